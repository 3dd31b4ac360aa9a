"""Rule ``growth_lmi``: a step stretches differences by at most a factor, in the Euclidean norm (``P = I``)."""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim, Verdict
from stability.rules.fields import AnyArray, Number, require
from stability.rules.multiplier_lmi import check_lmi
from stability.rules.registry import ProofData, reason_of, rule
from stability.statements import at_most, subject_phrase
from stability.systems import DrivenSystem, LureSystem

__all__ = ["LARGEST_FACTOR", "GrowthLmi"]

LARGEST_FACTOR = 1.0 + 1e-6
"""What the rounding of orthogonal weights to float32 or float64 can cost; more would be growth by another name."""


@rule(
    "growth_lmi",
    subject=(LureSystem, DrivenSystem),
    claim="nonexpansive",
    verdict=Verdict.CERTIFIED,
    value="factor",
    unfit=lambda subject: None if subject.is_discrete else "this proof is about maps, not about flows",
)
class GrowthLmi(ProofData):
    """The multiplier inequality with ``P = I`` at ``rho = factor``, slightly above one."""

    L: AnyArray
    factor: Number

    def sentence(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        return (
            f"For {subject_phrase(subject)}: no step stretches the difference of two trajectories by more than "
            f"the factor {at_most(self.factor, near=1.0)}, which is within 1e-6 of non-expansion."
        )

    def check(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        words = f"the factor must lie in [1, {LARGEST_FACTOR!r}]: beyond it distances grow"
        require(1.0 <= self.factor <= LARGEST_FACTOR, words)
        return reason_of(check_lmi(subject.system, np.eye(subject.states), self.L, self.factor, limit=2.0))
