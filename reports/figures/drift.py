"""Norm of the hidden state over time, the figure of ``stability compare``."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from ..formatting import number
from ..stored.records import select
from .svg import MUTED, label, legend_below, panel, series_color, to_svg

DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.6, 1.2, 1.6)), (0, (3, 1.2)), (0, (8, 2)))
NAMED = 3  # networks whose lines of theory are named in the legend
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")


def look(index: int) -> dict[str, Any]:
    """Colour, dash pattern and marker of the model with this index."""
    return {
        "color": series_color(index),
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markerfacecolor": "none" if index % 2 else series_color(index),
    }


def _band(axes: Axes, x: Any, low: Any, high: Any, index: int, alpha: float = 0.15) -> None:
    axes.fill_between(x, low, high, color=series_color(index), alpha=alpha, linewidth=0)


def _plain_ticks(axes: Axes, which: str = "both") -> None:
    formatter = FuncFormatter(lambda v, _: number(v))
    if which in ("x", "both"):
        axes.xaxis.set_major_formatter(formatter)
    if which in ("y", "both"):
        axes.yaxis.set_major_formatter(formatter)


def _thin(x: Sized, most: int = 14) -> int:
    return max(1, round(len(x) / most))


def norm_drift(frames: Sequence[tuple[int, str, pd.DataFrame]], lengths: set[Any], name: str) -> str:
    """Draw the norm of the hidden state over time with matplotlib: median and the band from 10 % to 90 %.

    Tables have the columns layer, t, q10, q50, q90 and, if known, expected and envelope. Of a stack the last layer is
    drawn. A dotted line is the bound that a proof gives, a dash-dotted one the expected root mean
    square.

    Args:
        frames: index (it decides the colour), title and table of each model.
        lengths: lengths of the sequences that came first, marked by a line.
        name: identifier in the page.
    """
    theory: dict[str, str] = {}
    with panel("Norm of the hidden state over time") as (figure, axes):
        for i, title, frame in frames:
            frame = select(frame, layer=frame["layer"].max())
            keep = frame.iloc[:: _thin(frame, 160)]
            _band(axes, keep["t"], keep["q10"], keep["q90"], i)
            every = (4 * i % len(keep), _thin(keep, 8))
            axes.plot(keep["t"], keep["q50"], label=label(title), markevery=every, **look(i))
            for column, style, words in (("envelope", ":", "proved bound"), ("expected", "-.", "expected")):
                known = keep[keep[column].notna()] if column in keep else keep.iloc[:0]
                if len(known):
                    said = f"{label(title)}: {words}" if len(frames) <= NAMED else None
                    theory |= {words: style} if said is None else {}
                    line: dict[str, Any] = {"color": series_color(i), "linestyle": style, "linewidth": 1.1}
                    axes.plot(known["t"], known[column], label=said, **line)
        for words, style in theory.items():  # of many, the colour says whose it is
            axes.plot([], [], color=MUTED, linestyle=style, linewidth=1.1, label=words)
        for k, length in enumerate(sorted(lengths)):
            named = "end of the sequence" if k == 0 else None
            axes.axvline(length, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)), label=named)
        axes.set(yscale="log", xlabel="time step", ylabel="‖h‖")
        axes.yaxis.set_minor_locator(NullLocator())
        _plain_ticks(axes)
        legend_below(axes)
        text = "Norm of the hidden state over time for each model, logarithmic vertical axis"
        return to_svg(figure, name, text, [title for _, title, _ in frames])
