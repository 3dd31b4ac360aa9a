"""Common data of proofs about balls around one input."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Index, Number, Pair, ProofData, Text, require
from stability.kernel.format.sentences import at_least, exact_text, phrase_of
from stability.kernel.systems.classifier import Classifier

LARGEST = 1e12
"""Of inputs, multipliers and radii: far beyond what is in use, far below what overflows."""
FINEST = 1e60
"""A radius is more than one part in so many: squares of squares of less leave the range of floats."""
WIDEST = 10_000
"""Features of a step: matrices with a row and a column for each are held."""


class LocalBall(ProofData):
    """``x (T, p)``, its class, norm and radius; ``mask`` of zeros and ones where only some entries may change."""

    x: AnyArray
    label: Index
    norm: Text
    radius: Number
    mask: AnyArray | None = None

    measure: ClassVar[str] = ""
    """The norm that the theorem is about."""

    @property
    def norm_name(self) -> str:
        """The norm in a sentence."""
        return self.measure

    def claimed(self, subject: Classifier, condition: str = "") -> str:
        """The sentence, with a condition on the perturbed input behind the radius."""
        where = "" if self.mask is None else " of the entries that its mask names"
        return (
            f"For {phrase_of(subject)}: no perturbation{where} of the proof's input within {self.norm_name} radius "
            f"{at_least(self.radius)}{condition} changes its class, {self.label}."
        )

    def require_ball(self, subject: Classifier) -> None:
        """What is claimed makes sense for this network.

        Raises:
            Refused: where it does not.
        """
        x, mask = self.x, self.mask
        problem = subject.out_of_range
        require(problem is None, problem or "")
        require(x.ndim != 2 or x.shape[1] <= WIDEST, f"a step has at most {WIDEST:,} features in such a proof")
        norm = self.norm_name.replace("_", "")
        require(self.norm == norm, f"the norm of such a proof is {norm}")
        require(self.label < subject.classes, "the label is none of the network's classes")
        require(x.ndim == 2 and len(x) > 0 and x.shape[1] == subject.inputs, f"x must be (T, {subject.inputs}), T >= 1")
        within = 1.0 / FINEST < self.radius < LARGEST and float(np.abs(x).max(initial=0.0)) < LARGEST
        require(within, "the radius or the input is out of range")
        masked = mask is None or (mask.shape == x.shape and bool(np.isin(mask, (0.0, 1.0)).all()))
        require(masked, "mask must be zeros and ones, one for each entry of x")


class LocalClippedBall(LocalBall):
    """A ball, in the largest change unless it is said otherwise, whose inputs may be clipped to ``bounds``."""

    bounds: Pair | None = None

    measure: ClassVar[str] = "l_inf"

    def sentence(self, subject: Classifier, claim: Claim) -> str:
        return self.claimed(subject, self.clipped)

    @property
    def clipped(self) -> str:
        """The condition that a perturbed input stays between two numbers, in words."""
        if self.bounds is None:
            return ""
        low, high = (exact_text(end) for end in self.bounds)
        return f", under which the input stays in [{low}, {high}],"

    def require_ball(self, subject: Classifier) -> None:
        super().require_ball(subject)
        low, high = (-np.inf, np.inf) if self.bounds is None else self.bounds
        require(low <= float(self.x.min()) and float(self.x.max()) <= high, "the input itself is not within the bounds")
