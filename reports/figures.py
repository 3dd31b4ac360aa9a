"""The panels of the report, each drawn from stored tables alone.

Every function takes records and gives one ``<svg>``, or ``None`` where the files hold nothing to draw. A
model keeps its colour, its dash pattern and its marker through the whole page, so that no distinction rests
on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Sized
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from .collect import ModelRecord, select
from .formatting import number
from .svg import INK, MUTED, panel, series_color, to_svg
from .words import NAMES, UNSOUND, WITNESSES

__all__ = [
    "curves",
    "density",
    "drift",
    "drift_of_frames",
    "exponents",
    "look",
    "margins",
    "proved",
    "sweep",
    "training",
]

DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.6, 1.2, 1.6)), (0, (3, 1.2)), (0, (8, 2)))
LOWEST_EXPONENT = -0.75  # per step; what lies below is gone at once and would flatten the rest
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")


def look(index: int) -> dict[str, object]:
    """Colour, dash pattern and marker of the model with this index."""
    return {
        "color": series_color(index),
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markerfacecolor": "none" if index % 2 else series_color(index),
    }


def _legend(axes: Axes, **options: object) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, labels, **{"loc": "best", **options})  # type: ignore[arg-type]


def _plain_ticks(axes: Axes, which: str = "both") -> None:
    formatter = FuncFormatter(lambda v, _: number(v))
    if which in ("x", "both"):
        axes.xaxis.set_major_formatter(formatter)
    if which in ("y", "both"):
        axes.yaxis.set_major_formatter(formatter)


def _percent_axis(axes: Axes, chance: float | None) -> None:
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
    axes.set_ylabel("accuracy")
    if chance is not None:
        axes.axhline(chance, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
        axes.annotate(
            "chance",
            (1, chance),
            xycoords=("axes fraction", "data"),
            color=MUTED,
            fontsize=8.5,
            ha="right",
            va="bottom",
        )


def _chance(models: Sequence[ModelRecord]) -> float | None:
    values = {m.run.get("result", {}).get("chance") for m in models} - {None}
    return float(values.pop()) if len(values) == 1 else None


def _thin(x: Sized, most: int = 14) -> int:
    return max(1, round(len(x) / most))


def training(models: Sequence[ModelRecord], column: str, title: str, name: str) -> str | None:
    """One column of ``metrics.csv`` over epochs for all models."""
    with panel(title) as (figure, axes):
        drawn = False
        for i, m in enumerate(models):
            frame = m.frames.get("metrics")
            if frame is None or column not in frame or np.isnan(frame[column].to_numpy(dtype=float)).all():
                continue
            axes.plot(frame["epoch"], frame[column], label=m.title, markevery=_thin(frame), **look(i))  # type: ignore[arg-type]
            drawn = True
        if not drawn:
            return None
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if column.endswith("metric"):
            _percent_axis(axes, _chance(models))
        else:
            _plain_ticks(axes, "y")
            axes.set_ylabel("loss")
        _legend(axes)
        return to_svg(figure, name, f"{title} of {len(models)} models over epochs of training")


def margins(models: Sequence[ModelRecord], name: str) -> str | None:
    """Signed margin of every criterion and model; right of zero the criterion holds."""
    known = [
        (i, f)
        for i, m in enumerate(models)
        for f in (m.certificate or {}).get("findings", ())
        if f["margin"] is not None and f["criterion"] not in {*WITNESSES, *UNSOUND}
    ]
    order = list(dict.fromkeys(str(f["criterion"]) for _, f in known))
    if not order:
        return None
    reach = 10.0 ** math.ceil(math.log10(max(0.1, *(1.5 * abs(f["margin"]) for _, f in known))))
    with panel("Margin of each criterion", height=1.3 + 0.34 * len(order)) as (figure, axes):
        for i, m in enumerate(models):
            points = [(f["margin"], order.index(f["criterion"])) for j, f in known if j == i]
            if points:
                x, y = zip(*points)
                shift = (i - (len(models) - 1) / 2) * 0.6 / len(models)
                axes.plot(x, np.array(y) + shift, label=m.title, **(look(i) | {"linestyle": "none"}))  # type: ignore[arg-type]
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_xscale("symlog", linthresh=0.01)
        axes.set_yticks(range(len(order)), [NAMES.get(c, c) for c in order])
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.set_xlim(-reach, reach)
        decades = [10.0**k for k in range(-1, round(math.log10(reach)) + 1)]
        decades = decades[:: max(1, math.ceil(len(decades) / 3))]
        axes.set_xticks([*(-d for d in reversed(decades)), 0.0, *decades])
        axes.xaxis.set_minor_locator(NullLocator())
        _plain_ticks(axes, "x")
        axes.set_xlabel("← fails | margin | holds →")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return to_svg(figure, name, "Margins of every criterion and model; the numbers stand in the table")


def _rows(model: ModelRecord, frame: str, keys: Mapping[str, str]) -> pd.DataFrame | None:
    stored = model.frames.get(frame)
    if stored is None:
        return None
    rows = select(stored, **keys)
    return None if rows.empty else rows.sort_values("level" if frame == "noise" else "epsilon")


def sweep(
    models: Sequence[ModelRecord], frame: str, keys: Mapping[str, str], title: str, label: str, name: str
) -> str | None:
    """Accuracy with its confidence band against the strength of a perturbation.

    Args:
        models: the records.
        frame: ``"noise"`` or ``"attacks"``.
        keys: columns and values that select the rows.
        title: the panel's title.
        label: the horizontal axis in words.
        name: identifier in the page.
    """
    strength = "level" if frame == "noise" else "epsilon"
    found = [(i, m, rows) for i, m in enumerate(models) if (rows := _rows(m, frame, keys)) is not None]
    if not found:
        return None
    with panel(title) as (figure, axes):
        for i, m, rows in found:
            axes.fill_between(
                rows[strength],
                rows["ci_low"],
                rows["ci_high"],
                color=series_color(i),
                alpha=0.15,
                linewidth=0,
            )
            axes.plot(rows[strength], rows["accuracy"], label=m.title, **look(i))  # type: ignore[arg-type]
        _percent_axis(axes, _chance(models))
        axes.set_xlabel(label)
        _plain_ticks(axes, "x")
        _legend(axes)
        return to_svg(figure, name, f"{title}: accuracy of each model against {label}")


def proved(models: Sequence[ModelRecord], keys: Mapping[str, str], title: str, name: str) -> str | None:
    """Certified accuracy (thick, a lower bound) and accuracy under attack (an upper bound) over l2 radii."""
    stored = [(i, m, m.frames["robustness"]) for i, m in enumerate(models) if "robustness" in m.frames]
    known = [(i, m, f[f["radius"] > 0]) for i, m, f in stored if float(f["radius"].to_numpy().max()) > 0]
    if not known:
        return None
    with panel(title) as (figure, axes):
        for i, m, frame in known:
            axes.plot(frame["radius"], frame["certified_accuracy"], color=series_color(i), linewidth=3.4, alpha=0.6)
            rows = _rows(m, "attacks", keys)
            if rows is not None:
                rows = rows[rows["epsilon"] > 0]
                axes.plot(rows["epsilon"], rows["accuracy"], label=m.title, **look(i))  # type: ignore[arg-type]
        _percent_axis(axes, _chance(models))
        axes.set_xscale("log")
        axes.set_xlabel("radius, Euclidean norm of the change")
        axes.xaxis.set_major_locator(LogLocator(numticks=5))
        axes.xaxis.set_minor_locator(NullLocator())
        _plain_ticks(axes, "x")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        text = "certified accuracy and accuracy under attack of each model over the radius, logarithmic"
        return to_svg(figure, name, f"{title}: {text}")


def density(model: ModelRecord, index: int, name: str) -> str | None:
    """Spectral density of the Hessian of one model."""
    frame = model.frames.get("density")
    if frame is None:
        return None
    with panel(model.title) as (figure, axes):
        y = frame["density"].clip(lower=frame["density"].max() * 1e-6)
        axes.fill_between(frame["eigenvalue"], y, y.min(), color=series_color(index), alpha=0.25, linewidth=0)
        axes.plot(frame["eigenvalue"], y, color=series_color(index), linewidth=1.4)
        axes.set_yscale("log")
        axes.set_xlabel("eigenvalue of the Hessian")
        axes.set_ylabel("density")
        axes.yaxis.set_minor_locator(NullLocator())
        _plain_ticks(axes)
        return to_svg(figure, name, f"Spectral density of the Hessian of {model.title}, logarithmic vertical axis")


def drift(models: Sequence[ModelRecord], name: str) -> str | None:
    """Median norm of the hidden state over time with the band from 10 % to 90 %."""
    frames = {m.title: m.frames["norms"] for m in models if "norms" in m.frames}
    lengths = {m.documents.get("drift", {}).get("trained_length") for m in models} - {None}
    order = [m.title for m in models]
    return drift_of_frames(frames, lengths, name, order) if frames else None


def drift_of_frames(
    frames: Mapping[str, pd.DataFrame], lengths: set[Any], name: str, order: Sequence[str] | None = None
) -> str:
    """The same from tables by title: columns layer, t, q10, q50, q90; of a stack its last layer.

    Args:
        frames: the tables.
        lengths: lengths of the sequences that came first, marked by a line.
        name: identifier in the page.
        order: titles in the order that decides colours.
    """
    order = list(frames) if order is None else order
    with panel("Norm of the hidden state over time") as (figure, axes):
        for title, frame in frames.items():
            i = order.index(title)
            frame = select(frame, layer=frame["layer"].max())
            keep = frame.iloc[:: _thin(frame, 160)]
            axes.fill_between(keep["t"], keep["q10"], keep["q90"], color=series_color(i), alpha=0.15, linewidth=0)
            axes.plot(keep["t"], keep["q50"], label=title, markevery=(4 * i % len(keep), _thin(keep, 8)), **look(i))  # type: ignore[arg-type]
        for length in lengths:
            axes.axvline(length, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
            axes.annotate(
                " end of the sequence",
                (length, 1),
                xycoords=("data", "axes fraction"),
                color=MUTED,
                fontsize=8.5,
                va="top",
            )
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
        _plain_ticks(axes)
        axes.set_xlabel("time step")
        axes.set_ylabel("‖h‖")
        _legend(axes)
        return to_svg(figure, name, "Norm of the hidden state over time for each model, logarithmic vertical axis")


def exponents(models: Sequence[ModelRecord], name: str) -> str | None:
    """Lyapunov exponents in falling order."""
    with panel("Lyapunov exponents along test sequences") as (figure, axes):
        drawn = False
        for i, m in enumerate(models):
            frame = m.frames.get("lyapunov")
            if frame is None:
                continue
            frame = frame[np.isfinite(frame["per_step"])]
            axes.plot(frame["index"], frame["per_step"], label=m.title, markevery=_thin(frame, 8), **look(i))  # type: ignore[arg-type]
            drawn = True
        if not drawn:
            return None
        axes.axhline(0, color=INK, linewidth=1)
        axes.set_ylim(bottom=max(axes.get_ylim()[0], LOWEST_EXPONENT))
        axes.set_xlabel("index")
        axes.set_ylabel("exponent per step")
        _plain_ticks(axes)
        _legend(axes)
        return to_svg(figure, name, "Lyapunov exponents of each model in falling order; above zero is chaos")


def curves(
    model: ModelRecord,
    series: Sequence[tuple[str, pd.DataFrame]],
    title: str,
    label: str,
    name: str,
    *,
    zero: bool = True,
) -> str | None:
    """Quantities of one model over training steps, each a ``(legend, frame with step and value)``."""
    series = [(legend, frame) for legend, frame in series if not frame.empty]
    if not series:
        return None
    with panel(title) as (figure, axes):
        for i, (legend, frame) in enumerate(series):
            axes.plot(frame["step"], frame["value"], label=legend, markevery=_thin(frame, 8), **look(i))  # type: ignore[arg-type]
        if zero:
            axes.axhline(0, color=INK, linewidth=1)
        axes.set_xlabel("training step")
        axes.set_ylabel(label)
        _plain_ticks(axes)
        _legend(axes)
        return to_svg(figure, name, f"{title} of {model.title} along training")
