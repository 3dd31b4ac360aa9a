"""Drift of the state norm beyond the trained length, of all models on one pair of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from ..formatting import count, number
from ..stored.facts import recommended
from ..stored.records import ModelRecord, select
from . import layout
from .figure import MUTED, PROVEN, WIDTH, Figure, blank, color_of
from .layout import Drawing, Table

POINTS = 300  # most points of a curve
LOWEST = 1e-3  # lower end of the vertical axis, at least
BEYOND = {"repeat": "inputs repeated", "zero": "inputs zero", "hold": "the last input held", "noise": "noise as input"}
"""Descriptions of the inputs beyond the trained length."""


@dataclass(frozen=True, eq=False)
class Norms:
    """Median norm of a network's state, divided by its value at the trained length.

    Attributes:
        model: unique name.
        title: name for readers.
        label: short name for labels.
        state: the verdict.
        rows: columns step, value, and low and high, which are the ends of an interval over trainings or NaN.
        best: whether the network is recommended.
        bound: proved bound of the norm at every length, over the same norm; ``None`` without one.
    """

    model: str
    title: str
    label: str
    state: str | None
    rows: Table
    best: bool = False
    bound: float | None = None

    @property
    def ratio(self) -> float:
        """Norm at the end, divided by the norm at the trained length."""
        return float(self.rows["value"].iloc[-1])

    @property
    def drifts(self) -> bool:
        """Return True if the norm has at least doubled or halved."""
        return not 0.5 < self.ratio < 2.0

    @property
    def color(self) -> str:
        """Color of the verdict for a norm that drifts, blue for the recommended network, else gray."""
        return PROVEN if self.best else color_of(self.state) if self.drifts else MUTED


def relative(frame: Table, length: int | None) -> Table | None:
    """Return norms over that at the trained length, or ``None`` where they do not go beyond it.

    Args:
        frame: columns step, value, and low and high of an interval or neither.
        length: trained length, in steps.
    """
    frame = frame.reindex(columns=["step", "value", "low", "high"]).dropna(subset=["value"]).sort_values("step")
    start = frame.loc[frame["step"] == length, "value"]
    if len(start) != 1 or not start.iloc[0] > 0 or frame["step"].max() <= length:
        return None
    keep = np.unique(np.append(np.arange(0, len(frame), max(1, len(frame) // POINTS)), len(frame) - 1))
    out = frame.iloc[keep].astype(float).reset_index(drop=True)
    return out.assign(**{column: out[column] / float(start.iloc[0]) for column in ("value", "low", "high")})


def norm_drift(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure of a report; ``None`` where no norm is known beyond a trained length."""
    rows = {m.name: r for m in models if (r := _rows(m)) is not None}
    models, best = [m for m in models if m.name in rows], recommended(models)
    if not models:
        return None
    names = layout.short_names(models)
    norms = [Norms(m.name, m.title, names[m.name], m.state, rows[m.name], m is best) for m in models]
    return drift_figure(norms, layout.common_length(models), layout.protocol_line(models, ("norms",), means=True))


def _rows(model: ModelRecord) -> Table | None:
    frame: Table = model.frames.get("norms")
    means = model.trainings.curve("norms")
    if frame is None:
        return None
    if means is not None:
        return relative(means.rename(columns={"at": "step", "mean": "value"}), model.length)
    frame = select(frame, layer=frame["layer"].max())[["t", "q50"]]
    return relative(frame.rename(columns={"t": "step", "q50": "value"}), model.length)


def drift_figure(norms: Sequence[Norms], length: int | None, protocol: str, word: str = "trained length") -> Figure:
    """Return the norm drift figure of some networks.

    Args:
        norms: their norms.
        length: trained length in steps; ``None`` if networks have different ones.
        protocol: measurement protocol as a sentence.
        word: name of ``length`` for readers.
    """
    table = pd.concat([f.rows.assign(model=f.model) for f in norms], ignore_index=True)
    table = table.reindex(columns=["model", "step", "value", "low", "high"]).rename(columns={"value": "relative_norm"})
    start = f"the {word}" if length is None else f"step {count(length)}"
    bands = " Bands: 95 % intervals over trainings." * bool(table["low"].notna().any())
    quiet = " Thin: the norm stays within a factor of two." * (len(norms) > 1 and not all(f.drifts for f in norms))
    drawn, note = layout.selected(norms)
    dashed = " Dashed: proved bound of the norm at every length." * any(f.bound is not None for f in norms)
    reading = f"Median state norm, divided by its value at {start}.{quiet}{bands}{dashed}{note}"
    title, draw = _finding(norms, length, word), partial(_draw, drawn, length, word)
    return Figure("norm-drift", title, reading, protocol, table, draw)


def _draw(norms: Sequence[Norms], length: int | None, word: str) -> Drawing:
    drawing = blank(WIDTH, max(0.8 + 0.17 * len(norms), 3.5 if len(norms) > 2 else 2.6))
    axes = drawing.subplots()
    late = np.concatenate([f.rows["value"][f.rows["step"] >= 0.25 * (length or 0)].to_numpy() for f in norms])
    late, last = late[np.isfinite(late) & (late > 0)], max(float(f.rows["step"].iloc[-1]) for f in norms)
    late = np.append(late, [f.bound for f in norms if f.bound is not None])
    low, high = max(LOWEST, min(0.2, 0.7 * late.min(initial=1.0))), max(5.0, 1.6 * late.max(initial=1.0))
    start = word if length is None else f"step {length}"
    axes.set(xlim=(0, last), yscale="log", ylim=(low, high), xlabel="step", ylabel=f"state norm / norm at {start}")
    layout.logarithmic(axes.yaxis, 6)
    axes.grid(axis="y")
    if length is not None:
        layout.lengths(axes.xaxis, length, last)
        axes.axvline(length, color=MUTED, linestyle=":", linewidth=1.0)
        axes.text(length, 1.01, f" {word}", color=MUTED, fontsize=8, transform=axes.get_xaxis_transform())
    for f in sorted(norms, key=lambda f: (f.best, f.drifts)):
        bold = f.drifts or f.best or len(norms) == 1
        axes.fill_between(f.rows["step"], f.rows["low"], f.rows["high"], color=f.color, alpha=0.15, linewidth=0)
        alpha, width = (1.0, 1.7) if bold else (0.5, 0.9)
        axes.plot(f.rows["step"], f.rows["value"], color=f.color, alpha=alpha, linewidth=width)
        if f.bound is not None:
            axes.axhline(f.bound, color=f.color, alpha=alpha, linewidth=width, linestyle="--")
    labels = [(f"{f.label} × {factor(f.ratio)}", f.rows["step"].iloc[-1], f.ratio, f.color) for f in norms]
    labels += [(f"{f.label}, bound", last, f.bound, f.color) for f in norms if f.bound is not None]
    layout.name_ends(axes, labels)
    return drawing


def factor(value: float) -> str:
    """Format a factor to three digits; from 1,000 to 1e6 as a whole number.

    Example:
        >>> factor(1.0053), factor(24.55)
        ('1.01', '24.6')
    """
    return count(value) if 1000 <= value < 1e6 else number(value)


def _finding(norms: Sequence[Norms], length: int | None, word: str) -> str:
    last = max(float(f.rows["step"].iloc[-1]) for f in norms)
    moment = "At the end" if length is None else f"At {number(last / length, 2)} times the {word}"
    if len(norms) == 1:
        return f"{moment}, the state norm of {norms[0].title} has changed by a factor of {factor(norms[0].ratio)}."
    counts = {"doubled": sum(f.ratio >= 2 for f in norms), "halved": sum(f.ratio <= 0.5 for f in norms)}
    parts = [f"{n} {'has' if n == 1 else 'have'} at least {word}" for word, n in counts.items() if n]
    if not parts:
        return f"{moment}, none of the {len(norms)} state norms has doubled or halved."
    first = parts[0].replace(" ha", f" of {len(norms)} state norms ha", 1)
    return f"{moment}, {layout.joined([first, *parts[1:]])}."
