"""Where on the data a network is unstable: two pictures and some lines in its block, a row in a table of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..figures.growth import growth, map_eigenvalues
from ..formatting import count, number, percent, signed
from ..stored.collect import Report
from ..stored.records import ModelRecord
from .layout import NAMED, Panel, Table, draw, field, tabulate, text
from .marks import HEURISTIC, MEASURED, PROVED
from .protocol import protocol

MOST = "sequence with the largest mean growth, from the first step on; steepest step"
WORST = "test sequence with the largest mean growth of the direction that its first step stretches most"
SEQUENCES = (
    "Test sequences over their steps, that of the largest mean at the top (numbers count from 0). Red: the direction "
    "that grows fastest has grown in this step, by up to 10 %, up to 35 %, and more; green: it has shrunk, by up to "
    "10 %, and more."
)
EIGENVALUES = (
    "Eigenvalues of the map that runs. Grey: of its Jacobians at 24 of these steps; {slopes}the circle is where a "
    "linear map neither grows nor decays. Jacobians that change from step to step may grow together though the "
    "eigenvalues of each lie inside, and the other way round."
)
SLOPES = "coloured: with every slope of the activation at its largest; "
RINGED = "ringed: the eigenvalue that the refutation proves; "


def pictures(model: ModelRecord) -> tuple[Panel, ...]:
    """Both pictures of a model's block; none where nothing was measured.

    Args:
        model: the record.
    """
    said = protocol([model], "growth")
    frame = model.frames.get("jacobians")
    named = bool((model.certificate or {}).get("eigenvalue"))
    slopes = (SLOPES if frame is not None and "slope" in set(frame["what"]) else "") + RINGED * named
    marks = (MEASURED, HEURISTIC) if SLOPES in slopes else (MEASURED,)
    words = EIGENVALUES.format(slopes=slopes)
    drawn = draw((growth(model), SEQUENCES), marks=(MEASURED,), protocol=said, made=("growth",))
    made = ("growth", "certificate") if named else ("growth",)
    marks = (PROVED, *marks) if named else marks
    return drawn + draw((map_eigenvalues(model), words), marks=marks, protocol=said, made=made)


def unstable(model: ModelRecord) -> list[tuple[str, str]]:
    """Lines of a model's facts: in how many steps something grows, and which sequence is the worst.

    Args:
        model: the record.
    """
    told: Mapping[str, Any] = model.documents.get("growth", {})
    found: list[tuple[str, str]] = []
    if "stretching" in told:
        label = "steps of the data that stretch some difference in the Euclidean norm, which a proof does not exclude"
        found.append((label, f"{percent(told['stretching'])}, by × {number(told.get('largest'))} at most"))
    if "growing" in told:
        found.append(("steps in which the fastest direction grows", percent(told["growing"])))
    if worst := _worst(model):
        found.append((WORST, worst))
    return found


def _worst(model: ModelRecord) -> str:
    listed = model.documents.get("growth", {}).get("worst") or []
    first: Mapping[str, Any] = next((w for w in listed if w.get("mean") is not None), {})
    if not first:
        return ""
    way = "grows" if first["mean"] > 0 else "shrinks"
    place = f"no. {count(first.get('sequence'))} {way}: {signed(first['mean'])} a step"
    return f"{place}; step {count(first.get('step'))} stretches most, by × {number(first.get('stretch'))}"


def growths(report: Report) -> tuple[Table, ...]:
    """A row a model.

    Args:
        report: what ``collect`` read.
    """
    return tabulate(
        "Where on the data it is unstable: growth of small differences of the state in single steps, Euclidean norm",
        (
            NAMED,
            field("steps that stretch some difference", "growth", "stretching", percent),
            field("by at most", "growth", "largest", number),
            field("steps in which the fastest direction grows", "growth", "growing", percent),
            field("sequences over which it has grown", "growth", "grown", percent),
            text(MOST, lambda m: _worst(m) or "–", MEASURED),
        ),
        [m for m in report.models if m.documents.get("growth")],
        "every step forgets everything",
        protocol=protocol(report.models, "growth"),
        made=("growth",),
    )
