"""Nyquist curves of feedback loops with one nonlinearity, with the region that the circle criterion forbids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from stability.certificate import Certificate
from stability.errors import StabilityError
from stability.feedback_loops import Nyquist, nyquist

from ..formatting import count, number
from ..stored.records import ModelRecord
from .figure import INK, MUTED, REFUTED, RULE, Figure
from .layout import panels, selected

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def nyquist_curves(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure; ``None`` where no model without data is a loop of one channel."""
    shown, note = selected([m for m in models if _curve(m) is not None])
    curves = [c for m in shown if (c := _curve(m))]
    if not curves:
        return None
    parts = [
        pd.DataFrame({"model": m.name, "frequency": c.frequencies, "real": c.values.real, "imag": c.values.imag})
        for m, c in zip(shown, curves)
    ]
    reading = f"Solid: the loop's frequency response; dashed: its mirror image. Gray: the forbidden region, or the circle that the curve must not leave.{note}"
    said = f"{count(len(curves[0].frequencies))} frequencies; the criterion is decided by an exact test, not by the picture."
    return Figure("nyquist", _finding(shown, curves), reading, said, pd.concat(parts), partial(_draw, shown, curves))


def _curve(model: ModelRecord) -> Nyquist | None:
    if model.certificate is None or model.analysis.get("task"):
        return None
    try:
        return nyquist(Certificate.load(model.folder / "certificate.json").subject)
    except StabilityError:
        return None


def _draw(models: Sequence[ModelRecord], curves: Sequence[Nyquist]) -> Drawing:
    drawing, grid = panels(models, square=True, shared=False)
    for axes, model, curve in zip(grid, models, curves):
        title, color = axes.get_title(loc="left"), axes.title.get_color()
        curve.plot(axes)
        axes.set_title("")
        axes.set_title(f"{model.title}, slopes {number(curve.slope[0])} to {number(curve.slope[1])}", loc="left")
        for line in axes.lines:
            line.set(color=INK if curve.holds else REFUTED, linewidth=1.4)
        for region in axes.patches:
            region.set(facecolor=RULE if region.get_facecolor()[3] else "none", edgecolor=MUTED)
        axes.axhline(0, color=RULE, linewidth=0.7, zorder=0.1)
        axes.axvline(0, color=RULE, linewidth=0.7, zorder=0.1)
    return drawing


def _finding(models: Sequence[ModelRecord], curves: Sequence[Nyquist]) -> str:
    held = [m.title for m, c in zip(models, curves) if c.holds]
    if len(models) > 1:
        return f"The circle criterion holds for {len(held)} of {len(models)} loops."
    way = "leaves the circle" if curves[0].slope[0] < 0 else "enters the forbidden region"
    if held:
        return f"The circle criterion holds for {held[0]}."
    return (
        f"The circle criterion does not hold for {models[0].title}"
        + f": its Nyquist curve {way}" * (curves[0].clearance < 0)
        + "."
    )
