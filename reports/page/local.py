"""The section of single inputs: how far each may move, proved from below and attacked from above."""

from __future__ import annotations

from collections.abc import Sequence

from ..figures import local as figures
from ..figures import strips
from ..formatting import at_least, count, duration, number
from ..stored.collect import Report
from ..stored.reasons import reasons_for
from ..stored.records import ModelRecord
from .layout import FEW, NAMED, Panel, Section, crowded, draw, each, field, tabulate
from .marks import MEASURED, PROVED
from .protocol import protocol

_SMALL = (
    " Drawn of each model: the share of the inputs whose class is certified within a radius (thick) and that no attack "
    "changed (dashed), with the width of the shaded strip, where the truth lies, in words; then how many inputs have "
    "which share of their attacked radius certified; then the input that gives way first, with the change that an "
    "attack found."
)


def _small(models: Sequence[ModelRecord]) -> tuple[Panel, ...]:
    """Three small drawings of each model."""
    both = ((strips.sandwich, (PROVED, MEASURED)), (strips.ratios, (PROVED, MEASURED)), (strips.inputs, (MEASURED,)))
    return tuple(panel for drawn, marks in both for panel in crowded(drawn(models), marks))


def local(report: Report) -> Section | None:
    """Certified and attacked radii of single inputs."""
    models = report.models
    known = [(m, i) for i, m in enumerate(models) if "local" in m.frames]
    many, said = len(models) > FEW, protocol(models, "local")
    panels = (
        _small(models)
        if many
        else draw(
            *each(
                known,
                lambda m, i: figures.sandwich(m, i, f"sandwich-{i}"),
                "Share of the inputs whose class is certified within a radius (thick), and that no attack changed "
                "(dashed). The truth lies in the shaded strip.",
            ),
            (
                figures.ratios(models, "local-ratios"),
                "1: the certificate reaches the smallest perturbation that was found; 0: nothing was certified.",
            ),
            marks=(PROVED, MEASURED),
            protocol=said,
            made=("local",),
        )
        + draw(
            *each(
                known,
                lambda m, i: figures.inputs(m, i, f"local-inputs-{i}"),
                "The two inputs that give way first, and the perturbations that change their class.",
            ),
            marks=(MEASURED,),
            protocol=said,
            made=("local",),
        )
    )
    tables = tabulate(
        "Single inputs: certified and attacked radii in the Euclidean norm of the whole sequence's change, medians "
        "over those that are classified correctly",
        (
            NAMED,
            field("inputs", "local", "samples", count),
            field("classified correctly", "local", "correct", count),
            field("certified radius", "local", "median_radius", at_least, PROVED),
            field("attacked radius", "local", "median_attack", number),
            field("certified / attacked", "local", "median_ratio", number),
            field("mean width of what is not known", "local", "strip", number),
            field("time an input", "local", "seconds", duration),
        ),
        [m for m in models if m.documents.get("local")],
        "no attack succeeded, or no input is classified correctly",
        protocol=protocol(models, "local"),
        made=("local",),
    )
    return Section(
        "local",
        "Single inputs",
        "For single test inputs: a radius within which no perturbation changes the network's answer, for the stored "
        "weights in exact arithmetic (each was accepted by the checker; stability radius MODEL --proofs DIR writes the "
        "proofs), and the size of the smallest perturbation that attacks found. A certificate is about one input and "
        "one decision: it says nothing about other inputs, nor whether the answer is right." + _SMALL * many,
        tables,
        panels,
        reasons_for(models, "local"),
        small=many,
        protocol=said if many else "",
        made=("local",) if many else (),
    ).kept
