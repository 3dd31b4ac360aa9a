"""Rule ``growth_lmi``: a step stretches differences by at most a factor, in the Euclidean norm (``P = I``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.rules.multiplier_lmi import check_lmi
from stability.rules.registry import Outcome, rule
from stability.statements import at_most, subject_phrase
from stability.systems import DrivenSystem, LureSystem

__all__ = ["check", "statement"]


def statement(subject: Any, claim: Claim) -> str:
    """The only sentence such a proof may carry."""
    factor = claim.proof.data["factor"] if claim.proof is not None else None
    return (
        f"For {subject_phrase(subject)}: no step stretches the difference of two trajectories by more than "
        f"{at_most(factor, near=1.0)}."
    )


@rule("growth_lmi", statement=statement)
def check(subject: Any, claim: Claim) -> Outcome:
    """The multiplier inequality with ``P = I`` at ``rho = factor``, slightly above one."""
    system = subject.system if isinstance(subject, DrivenSystem) else subject
    if not isinstance(system, LureSystem) or not system.is_discrete:
        return False, "this proof is about discrete Lur'e systems"
    if claim.name != "nonexpansive" or claim.verdict is not Verdict.CERTIFIED or claim.proof is None:
        return False, "this proof certifies non-expansiveness and nothing else"
    factor, multipliers = claim.proof.data.get("factor"), claim.proof.data.get("L")
    if not isinstance(factor, float) or not 1.0 <= factor <= 1.001 or claim.value != factor:
        return False, "the factor must lie in [1, 1.001] and be the claim's"
    if not isinstance(multipliers, np.ndarray):
        return False, "L must be an array"
    return check_lmi(system, np.eye(system.states), multipliers, factor, limit=2.0)
