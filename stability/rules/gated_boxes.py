"""Rule ``gated_boxes``: a gated cell with two disjoint boxes of states that no step leaves does not contract.

A trajectory that starts in the one stays at least as far from a trajectory in the other as the boxes are from each
other. The images are enclosed by interval arithmetic, rounded outwards; nothing has to settle inside a box.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.gated.bounds import gate_bounds
from stability.gated.cell import GatedCell
from stability.rigor.intervals import Interval
from stability.rules.gated_orbits import LIMIT, input_phrase, inputs_of
from stability.rules.registry import Outcome, rule
from stability.rules.witness_data import vector
from stability.statements import describe, inputs_phrase

__all__ = ["check", "is_kept"]

Array = np.ndarray


def is_kept(cell: GatedCell, box: Interval) -> bool:
    """Prove that no step from ``box`` leaves it, under any input of the cell's box."""
    return box.contains(gate_bounds(cell, box)["next"])


def _statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    inputs = f"the {input_phrase(data)}" if "input" in data else inputs_phrase(subject)
    return (
        f"{describe(subject)} does not contract: under {inputs} it never leaves either of the two boxes of states of "
        "the proof, which are disjoint, so that two trajectories never approach each other."
    )


@rule(
    "gated_boxes",
    subject=GatedCell,
    claim="contraction",
    verdict=Verdict.REFUTED,
    fields={"first_low": "array", "first_high": "array", "second_low": "array", "second_high": "array"},
    optional={"input": "array"},
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: the ends (n,) of both boxes; ``input`` (p,) or (q, p), without it the boxes are kept under every input."""
    names = ("first_low", "first_high", "second_low", "second_high")
    ends = [end for key in names if (end := vector(data, key, subject.states)) is not None]
    if len(ends) < len(names) or not all((np.abs(end) <= LIMIT).all() for end in ends):
        return False, f"the ends of the boxes must be vectors of {subject.states} entries"
    one_low, one_high, two_low, two_high = ends
    if not ((one_low <= one_high).all() and (two_low <= two_high).all()):
        return False, "a box is empty"
    cells = [subject]
    if "input" in data:
        inputs, problem = inputs_of(subject, data)
        if inputs is None:
            return False, problem
        cells = [subject.with_inputs(u, u) for u in inputs]
    gap = float(np.maximum(two_low - one_high, one_low - two_high).max())
    if not gap > 0.0:
        return False, "the boxes are not disjoint"
    for number, box in enumerate((Interval(one_low, one_high), Interval(two_low, two_high)), 1):
        if not all(is_kept(cell, box) for cell in cells):
            return False, f"box {number} is not proved to keep what starts in it"
    return True, f"two boxes that no step leaves, {gap:.3g} apart in one entry"
