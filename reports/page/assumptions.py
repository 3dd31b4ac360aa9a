"""What a certificate's statement rests on, point by point: covered, or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..boxes import ends, interval
from ..stored.records import ModelRecord

COVERED, NOT_COVERED, STATED = "✓", "✗", "!"
"""Signs: the statement covers it; it does not; it holds only as far as somebody stated it."""


def assumptions(model: ModelRecord) -> list[tuple[str, str]]:
    """Sign and words of each point; none where nothing is proved.

    Args:
        model: the record.
    """
    summary = model.certificate
    if summary is None or model.state not in ("certified", "refuted"):
        return []
    points = [
        (COVERED, "the weights as they are stored, in exact real arithmetic"),
        (NOT_COVERED, "the rounding of a run in float32 or float64: the statement is about exact arithmetic"),
        _map(model),
    ]
    if model.state == "certified":
        points += [_inputs(model, summary), _starts(summary)]
    points.append((NOT_COVERED, "other weights: training further, pruning or quantising asks for a new certificate"))
    return points


def _map(model: ModelRecord) -> tuple[str, str]:
    if model.is_discrete:
        return COVERED, "the map that runs, step by step (an integrator's steps included)"
    return NOT_COVERED, "a numerical integrator: the statement is about the differential equation"


def _inputs(model: ModelRecord, summary: Mapping[str, Any]) -> tuple[str, str]:
    driven = summary.get("driven")
    box = [driven["low"], driven["high"]] if driven else model.analysis.get("input_box")
    if not interval(box):
        return COVERED, "every input, however large"
    seen, stated = ends(model.analysis.get("input_seen") or model.analysis.get("input_range")), ends(box)
    inside = bool(seen and stated and min(stated[0]) <= min(seen[0]) and max(seen[1]) <= max(stated[1]))
    where = f"inputs in {interval(box)} alone"
    if not seen:
        return STATED, f"{where}; whether inputs stay there is for you to ensure"
    return STATED, f"{where}; {'all' if inside else 'not all'} inputs of the data lie there"


def _starts(summary: Mapping[str, Any]) -> tuple[str, str]:
    driven = summary.get("driven")
    if not driven:
        return COVERED, "every pair of starting states"
    since = driven.get("since")
    if since is None:
        return STATED, "pairs of states in the sets of the proof"
    return COVERED, f"every pair of starting states, from step {since} on"
