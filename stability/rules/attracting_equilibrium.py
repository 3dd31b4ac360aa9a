r"""Rule ``attracting_equilibrium``: contraction gives one globally attracting equilibrium for every constant
input.

Under a constant input the time-``t`` map of a contracting system is a contraction in the norm of ``P``
(Banach): it has exactly one fixed point, the equilibrium, and every trajectory converges to it at the rate
of the inequality.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stability.certificate import Claim, Verdict
from stability.rules.multiplier_lmi import check_lmi
from stability.rules.registry import Outcome, rule
from stability.statements import decays, whom
from stability.systems import DrivenSystem, LureSystem

__all__ = ["check"]


def _statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    return (
        f"For {whom(subject)}: for every constant input there is exactly one equilibrium, and it attracts every "
        "trajectory."
    )


@rule(
    "attracting_equilibrium",
    subject=(LureSystem, DrivenSystem),
    claim="equilibrium",
    verdict=Verdict.CERTIFIED,
    fields={"P": "array", "L": "array", "rate": "number"},
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``P`` (n, n), ``L`` (m,), ``rate`` of the multiplier inequality."""
    system, rate = subject.system, float(data["rate"])
    if not decays(rate, system.is_discrete):
        return False, f"the rate {rate} is no exponential decay: below one a step, above zero in continuous time"
    return check_lmi(system, data["P"], data["L"], rate)
