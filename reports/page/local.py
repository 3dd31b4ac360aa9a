"""The section of single inputs: how far each may move, proved from below and attacked from above."""

from __future__ import annotations

from ..figures import strips
from ..formatting import at_least, count, duration, number
from ..stored.collect import Report
from ..stored.reasons import reasons_for
from .layout import NAMED, Section, crowded, field, tabulate
from .marks import MEASURED, PROVED
from .protocol import protocol

_SMALL = (
    " Drawn of each model: the share of the inputs whose class is certified within a radius (thick) and that no attack "
    "changed (dashed), with the width of the shaded strip, where the truth lies, in words; then how many inputs have "
    "which share of their attacked radius certified; then the input that gives way first, with the change that an "
    "attack found."
)


def local(report: Report) -> Section | None:
    """Certified and attacked radii of single inputs."""
    models = report.models
    said = protocol(models, "local")
    both = ((strips.sandwich, (PROVED, MEASURED)), (strips.ratios, (PROVED, MEASURED)), (strips.inputs, (MEASURED,)))
    panels = tuple(panel for drawn, marks in both for panel in crowded(drawn(models), marks))
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
        protocol=said,
        made=("local",),
    )
    return Section(
        "local",
        "Single inputs",
        "For single test inputs: a radius within which no perturbation changes the network's answer, for the stored "
        "weights in exact arithmetic (each was accepted by the checker; stability radius MODEL --proofs DIR writes the "
        "proofs), and the size of the smallest perturbation that attacks found. A certificate is about one input and "
        "one decision: it says nothing about other inputs, nor whether the answer is right." + _SMALL,
        tables,
        panels,
        reasons_for(models, "local"),
        protocol=said,
        made=("local",),
    ).kept
