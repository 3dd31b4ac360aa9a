"""The first pictures: two trajectories under one input, and what stability costs in accuracy."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from ..figures.price import price
from ..figures.trajectories import envelope, trajectories
from ..formatting import time_unit
from ..stored.collect import Report
from ..stored.reasons import reasons_for
from ..stored.records import ModelRecord
from .answer import accuracy, halved
from .layout import Panel, Section, draw
from .marks import MEASURED, PROVED
from .protocol import protocol


def pictures(report: Report) -> Section | None:
    """Distance of two trajectories over steps, a drawing a model with the same axes."""
    models = report.models
    drawn = trajectories(models, width=240.0)
    if not drawn:
        return None
    panels = tuple(Panel(Markup(svg), marks=_marks(m)) for m, svg in drawn)
    return Section(
        "trajectories",
        "Two trajectories under one input",
        "How far apart two states stay that read the same inputs, over their distance at the start. Grey: pairs on "
        "test data, the line their middle, the band 80 % of them. Green: what is proved of every pair of states, the "
        "least of all certified C ρᵏ. Red, broken: the counter-example of a refuted model, run in floating point; "
        "it need not grow: two trajectories that never come together are one, too. "
        "Dotted, upright: the length that was trained on. Contraction means that the green curve falls to 0.",
        panels=panels,
        notes=reasons_for(report.models, "pairs"),
        protocol=protocol(report.models, "pairs"),
        made=("pairs", "certificate"),
    )


def _marks(model: ModelRecord) -> tuple[str, ...]:
    there = {PROVED: envelope(model, np.zeros(1)) is not None, MEASURED: "pairs" in model.frames}
    return tuple(mark for mark, shown in there.items() if shown)


def costs(report: Report) -> Section | None:
    """Accuracy with its interval against the guaranteed halving time."""
    models = report.models
    known = {m.name: found for m in models if (found := accuracy(m)) is not None}
    times = {m.name: float(when) for m in models if (when := halved(m)) is not None}
    units = {time_unit(m.is_discrete) for m in models if m.name in times}
    svg = price(models, known, times, unit=units.pop()) if len(units) == 1 else None
    panels = draw(
        (svg, "Upright lines are 95 % intervals for the sampling of test sequences."),
        marks=(MEASURED,),  # without accuracies its axes are empty
        protocol=protocol(models, "training") or protocol(models, "performance"),
        made=("certificate", "training", "performance"),
    )
    return Section(
        "price",
        "The price of stability",
        "Left is steady: after so many steps two trajectories are certainly at most half as far apart, whatever the "
        "input of the claim. Models in the last column have no such proof.",
        panels=panels,
        wide=True,
    ).kept


def overview(report: Report) -> list[Section]:
    """The pictures that stand before the models.

    Args:
        report: what ``collect`` read.
    """
    return [s for s in (pictures(report), costs(report)) if s is not None]
