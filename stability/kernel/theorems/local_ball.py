"""Common data of proofs about balls around one input."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Index, Number, Pair, ProofData, Text, require
from stability.kernel.format.sentences import at_least, exact_text, phrase_of
from stability.kernel.systems.classifier import Classifier

LARGEST = 1e12
"""Largest inputs, multipliers and radii: far beyond practical values, far below overflow."""
FINEST = 1e60
"""Inverse of the smallest radius: squares of squares of smaller ones leave the range of floats."""
WIDEST = 10_000
"""Most features of a step, since matrices of that size are stored."""


class LocalBall(ProofData):
    """Input ``x (T, p)``, its class, norm and radius; ``mask`` of zeros and ones if only some entries may change."""

    x: AnyArray
    label: Index
    norm: Text
    radius: Number
    mask: AnyArray | None = None

    measure: ClassVar[str] = ""
    """Norm of the theorem."""

    @property
    def norm_name(self) -> str:
        """Return the norm's name in a sentence."""
        return self.measure

    def claimed(self, subject: Classifier, condition: str = "") -> str:
        """State the claim, with a condition on the perturbed input after the radius."""
        where = "" if self.mask is None else " of the entries that its mask names"
        return (
            f"For {phrase_of(subject)}: no perturbation{where} of the proof's input within {self.norm_name} radius "
            f"{at_least(self.radius)}{condition} changes its class, {self.label}."
        )

    def require_ball(self, subject: Classifier) -> None:
        """Check that the claim is well-defined for this network.

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
    """Ball, by default in the largest change, whose inputs may be clipped to ``bounds``."""

    bounds: Pair | None = None

    measure: ClassVar[str] = "l_inf"

    def sentence(self, subject: Classifier, claim: Claim) -> str:
        return self.claimed(subject, self.clipped)

    @property
    def clipped(self) -> str:
        """State that a perturbed input stays between two numbers."""
        if self.bounds is None:
            return ""
        low, high = (exact_text(end) for end in self.bounds)
        return f", under which the input stays in [{low}, {high}],"

    def require_ball(self, subject: Classifier) -> None:
        super().require_ball(subject)
        low, high = (-np.inf, np.inf) if self.bounds is None else self.bounds
        require(low <= float(self.x.min()) and float(self.x.max()) <= high, "the input itself is not within the bounds")
