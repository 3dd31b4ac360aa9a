"""Rule ``growth_lmi``: a step stretches differences by at most a factor, in the Euclidean norm (``P = I``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.rules.multiplier_lmi import check_lmi
from stability.rules.registry import Outcome, rule
from stability.statements import at_most, subject_phrase
from stability.systems import DrivenSystem, LureSystem

__all__ = ["LARGEST_FACTOR", "check"]

LARGEST_FACTOR = 1.0 + 1e-6
"""What the rounding of orthogonal weights to float32 or float64 can cost; more would be growth by another name."""


def _statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    return (
        f"For {subject_phrase(subject)}: no step stretches the difference of two trajectories by more than "
        f"the factor {at_most(data['factor'], near=1.0)}, which is within 1e-6 of non-expansion."
    )


@rule(
    "growth_lmi",
    subject=(LureSystem, DrivenSystem),
    claim="nonexpansive",
    verdict=Verdict.CERTIFIED,
    fields={"factor": "number", "L": "array"},
    value="factor",
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """The multiplier inequality with ``P = I`` at ``rho = factor``, slightly above one."""
    system = subject.system
    if not system.is_discrete:
        return False, "this proof is about maps, not about flows"
    factor = float(data["factor"])
    if not 1.0 <= factor <= LARGEST_FACTOR:
        return False, f"the factor must lie in [1, {LARGEST_FACTOR!r}]: beyond it distances grow"
    return check_lmi(system, np.eye(system.states), data["L"], factor, limit=2.0)
