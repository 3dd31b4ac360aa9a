"""Rule ``gated_boxes``: a gated cell with two disjoint boxes of states that no step leaves does not contract.

A trajectory that starts in the one stays at least as far from a trajectory in the other as the boxes are from each
other. The images are enclosed by interval arithmetic, rounded outwards; nothing has to settle inside a box.
"""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim
from stability.gated.bounds import gate_bounds
from stability.gated.cell import GatedCell
from stability.rigor.intervals import Interval
from stability.rules.fields import AnyArray, ProofData, State, require
from stability.rules.gated_orbits import input_phrase, inputs_of
from stability.rules.registry import refutes
from stability.statements import describe, inputs_phrase


def is_kept(cell: GatedCell, box: Interval) -> bool:
    """Prove that no step from ``box`` leaves it, under any input of the cell's box."""
    return box.contains(gate_bounds(cell, box)["next"])


@refutes("gated_boxes", subject=GatedCell, size="the ends of the boxes must be vectors of {n} entries")
class GatedBoxes(ProofData):
    """The ends of both boxes; ``input`` (p,) or (q, p), without it the boxes are kept under every input."""

    first_low: State
    first_high: State
    second_low: State
    second_high: State
    input: AnyArray | None = None

    def sentence(self, subject: GatedCell, claim: Claim) -> str:
        inputs = inputs_phrase(subject) if self.input is None else f"the {input_phrase(self.input)}"
        return (
            f"{describe(subject)} does not contract: under {inputs} it never leaves either of the two boxes of states "
            "of the proof, which are disjoint, so that two trajectories never approach each other."
        )

    def check(self, subject: GatedCell, claim: Claim) -> str:
        filled = (self.first_low <= self.first_high).all() and (self.second_low <= self.second_high).all()
        require(filled, "a box is empty")
        cells = [subject]
        if self.input is not None:
            inputs = inputs_of(subject, self.input)
            cells = [subject.with_inputs(u, u) for u in inputs]
        one, two = Interval(self.first_low, self.first_high), Interval(self.second_low, self.second_high)
        gap = float(np.maximum(two.low - one.high, one.low - two.high).max())
        require(gap > 0.0, "the boxes are not disjoint")
        for number, box in enumerate((one, two), 1):
            require(all(is_kept(cell, box) for cell in cells), f"box {number} is not proved to keep what starts in it")
        return f"two boxes that no step leaves, {gap:.3g} apart in one entry"
