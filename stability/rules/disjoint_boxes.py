r"""Rule ``disjoint_boxes``: two boxes of states, apart from each other, that no trajectory leaves under one input.

In discrete time the input has a period ``q`` and a box for each phase: the image of box ``t`` under the input of phase
``t``, enclosed with every rounding error, lies in box ``t + 1`` (modulo ``q``). In continuous time the input is
constant, and on no side of the box does the right-hand side point outwards; then no trajectory leaves it (Nagumo). A
trajectory that starts in the one box and one that starts in the other differ for ever, each time that the first phase
comes round by at least the distance of the two boxes of that phase. Nothing is said about what goes on inside: an
equilibrium, a cycle, chaos.

Source: M. Nagumo (1942); F. Blanchini, "Set invariance in control", Automatica 35 (1999), theorem 3.1.
"""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim
from stability.rigor.boxes import box_image, is_left_nowhere
from stability.rigor.constants import EPS
from stability.rules.fields import Inputs, Number, ProofData, States, require
from stability.rules.registry import refutes
from stability.statements import at_least, describe
from stability.systems import DrivenSystem

Array = np.ndarray
MAX_STATES = 256
SIZE = "input and the corners of the boxes must hold a finite row of the network's sizes for each phase"


def box_distance(low1: Array, high1: Array, low2: Array, high2: Array) -> float:
    """A lower bound of the largest difference of an entry between two boxes; not positive where they meet."""
    return float(np.maximum(low1 - high2, low2 - high1).max()) * (1 - 4 * EPS)


def is_invariant(subject: DrivenSystem, low: Array, high: Array, inputs: Array) -> bool:
    """Whether no trajectory leaves the boxes ``(q, n)`` of the phases of an input ``(q, p)``."""
    if not subject.system.is_discrete:
        return len(inputs) == 1 and is_left_nowhere(subject, low[0], high[0], inputs[0])
    for t, u in enumerate(inputs):
        image, after = box_image(subject, low[t], high[t], u), (t + 1) % len(inputs)
        if image is None or not ((image[0] >= low[after]) & (image[1] <= high[after])).all():
            return False
    return True


@refutes("disjoint_boxes", subject=DrivenSystem, size=SIZE)
class DisjointBoxes(ProofData):
    """The corners of both boxes and the input, a row for each phase; the least distance at the first."""

    low1: States
    high1: States
    low2: States
    high2: States
    input: Inputs
    gap: Number

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        period = len(self.input)
        when = "at every step" if subject.is_discrete else "at every time"
        under, span = (
            ("the constant input", when) if period == 1 else (f"the input of period {period}", "once a period")
        )
        return (
            f"{describe(subject)} is not contracting: under {under} of the proof there are two boxes of states that no "
            f"trajectory leaves, and from the one to the other an entry of the state differs by at least "
            f"{at_least(self.gap)} {span}."
        )

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        low1, high1, low2, high2 = self.low1, self.high1, self.low2, self.high2
        require(not any(len(corner) != len(self.input) for corner in (low1, high1, low2, high2)), SIZE)
        require(not (subject.states > MAX_STATES), f"boxes are for networks of up to {MAX_STATES} states")
        require(((low1 <= high1) & (low2 <= high2)).all(), "a box is empty")
        for name, low, high in (("first", low1, high1), ("second", low2, high2)):
            require(is_invariant(subject, low, high, self.input), f"the {name} box is not proved to be invariant")
        apart = box_distance(low1[0], high1[0], low2[0], high2[0])
        require(0.0 < self.gap <= apart, f"the boxes are proved to be {apart:.3g} apart, not {self.gap:.3g}")
        return f"both boxes are invariant, at least {apart:.3g} apart"
