"""Nyquist curves of feedback loops with one nonlinearity, with the region that the circle criterion forbids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from stability.certificate import Certificate
from stability.errors import StabilityError
from stability.feedback_loops import Nyquist, nyquist

from ..formatting import number
from ..stored.records import ModelRecord
from . import layout
from .figure import INK, MUTED, REFUTED, RULE, Figure, color_of
from .layout import Drawing, Table

READING = (
    "Solid: frequency response of the linear part; dashed: its mirror image. The curve must avoid the shaded region, "
    "or, if no region is shaded, stay inside the circle. Crosses: -1 over the slopes. Orange: the criterion fails."
)


def nyquist_curves(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure of all loops with one channel; ``None`` if there is none. Models with data are skipped."""
    curves = {m.name: curve for m in models if (curve := _curve(m)) is not None}
    finding, draw, rows = partial(_finding, curves=curves), partial(_draw, curves=curves), partial(_rows, curves=curves)
    return layout.figure_of("nyquist", models, rows, finding, lambda _: READING, (), draw)


def _rows(model: ModelRecord, curves: dict[str, Nyquist]) -> Table:
    c: Any = curves.get(model.name)
    values = {} if c is None else {"frequency": c.frequencies, "real": c.values.real, "imag": c.values.imag}
    return pd.DataFrame(values)


def _curve(model: ModelRecord) -> Nyquist | None:
    if model.certificate is None or model.analysis.get("task"):
        return None
    try:
        return nyquist(Certificate.load(model.folder / "certificate.json").subject)
    except StabilityError:
        return None


def _draw(models: Sequence[ModelRecord], _: Table, curves: dict[str, Nyquist]) -> Drawing:
    drawing, grid = layout.panels(models, "real part", "imaginary part", square=True, shared=False)
    for axes, model in zip(grid, models):
        title = axes.get_title("left")
        draw_curve(axes, curves[model.name])
        axes.set(xlabel="", ylabel="")
        axes.set_title(title, color=color_of(model.state))
    return drawing


def draw_curve(axes: Any, curve: Nyquist) -> None:
    """Draw a Nyquist curve and its forbidden region in the colors of the page."""
    curve.plot(axes)
    for line in axes.lines:
        line.set(color=INK if curve.holds else REFUTED, linewidth=1.4)
    for region in axes.patches:
        region.set(facecolor=RULE if curve.slope[0] >= 0 else "none", edgecolor=MUTED)
    low, high = map(number, curve.slope)
    axes.text(0.97, 0.03, f"slopes {low} to {high}", color=MUTED, ha="right", transform=axes.transAxes)


def _finding(models: Sequence[ModelRecord], _: Table, curves: dict[str, Nyquist]) -> str:
    passed = sum(curve.holds for curve in curves.values())
    if len(models) > 1:
        return f"The circle criterion holds for {passed} of {len(models)} loops."
    (curve,) = curves.values()
    violation = "leaves the circle" if curve.slope[0] < 0 else "enters the forbidden region"
    reason = "" if passed else f": the Nyquist curve {violation}" * (curve.clearance < 0)
    return f"The circle criterion {'holds' if passed else 'does not hold'} for {models[0].title}{reason}."
