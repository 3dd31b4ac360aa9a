"""Common data of proofs about balls around one input."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Index, Number, Pair, ProofData, Text, require
from stability.kernel.format.sentences import at_least, interval_phrase, theorem
from stability.kernel.systems.classifier import Classifier

LARGEST = 1e12
"""Largest inputs, multipliers and radii: far beyond practical values, far below overflow."""
FINEST = 1e60
"""Inverse of the smallest radius: the fourth power of a smaller one may underflow in later bounds."""
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
    """Norm that the theorem covers, ``l2`` or ``linf``."""

    @property
    def norm_name(self) -> str:
        """Return the norm of the ball."""
        return self.measure

    def claimed(self, subject: Classifier, stepwise: bool = False, bounds: Pair | None = None) -> str:
        """State that the class is constant in the ball.

        Args:
            subject: the network.
            stepwise: whether the radius bounds the norm of every step instead of the whole sequence.
            bounds: range of the entries of the perturbed input.
        """
        size = f"|d{'(t)' * stepwise}|_{'inf' if self.norm_name == 'linf' else '2'} <= {at_least(self.radius)}"
        steps = " at every step t" if stepwise else ""
        mask = "" if self.mask is None else ", zero outside the mask of the proof,"
        clipped = "" if bounds is None else f" and the entries of x + d in {interval_phrase(*bounds)}"
        return theorem(
            subject,
            "Let x be the input sequence of the proof.",
            f"For every perturbation d{mask} with {size}{steps}{clipped}, the class of x + d is {self.label}.",
            "Other inputs are not covered.",
        )

    def require_ball(self, subject: Classifier) -> None:
        """Check that the claim is well-defined for this network.

        Raises:
            Refused: it is not.
        """
        x, mask = self.x, self.mask
        problem = subject.out_of_range
        require(problem is None, problem or "")
        require(x.ndim != 2 or x.shape[1] <= WIDEST, f"a step has at most {WIDEST:,} features in such a proof")
        norm = self.norm_name
        require(self.norm == norm, f"the norm of such a proof is {norm}")
        require(self.label < subject.classes, "the label is none of the network's classes")
        require(x.ndim == 2 and len(x) > 0 and x.shape[1] == subject.inputs, f"x must be (T, {subject.inputs}), T >= 1")
        within = 1.0 / FINEST < self.radius < LARGEST and float(np.abs(x).max(initial=0.0)) < LARGEST
        require(within, "the radius or the input is out of range")
        masked = mask is None or (mask.shape == x.shape and bool(np.isin(mask, (0.0, 1.0)).all()))
        require(masked, "mask must be zeros and ones, one for each entry of x")

    def require_below(self, other: int, holds: Any) -> None:
        """Check that a logit is proved to stay below that of the label."""
        require(holds, f"within the radius, logit {other} is not proved to stay below that of {self.label}")


class LocalClippedBall(LocalBall):
    """Ball of perturbations, in l_inf unless a subclass sets another norm, with inputs within optional ``bounds``."""

    bounds: Pair | None = None

    measure: ClassVar[str] = "linf"

    def sentence(self, subject: Classifier, claim: Claim) -> str:
        return self.claimed(subject, bounds=self.bounds)

    def require_ball(self, subject: Classifier) -> None:
        super().require_ball(subject)
        low, high = (-np.inf, np.inf) if self.bounds is None else self.bounds
        require(low <= float(self.x.min()) and float(self.x.max()) <= high, "the input itself is not within the bounds")
