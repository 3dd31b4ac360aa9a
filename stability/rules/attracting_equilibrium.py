r"""Rule ``attracting_equilibrium``: contraction gives one globally attracting equilibrium for every constant
input.

Under a constant input the time-``t`` map of a contracting system is a contraction in the norm of ``P``
(Banach): it has exactly one fixed point, the equilibrium, and every trajectory converges to it at the rate
of the inequality.
"""

from __future__ import annotations

from stability.certificate import Claim, Verdict
from stability.rules.fields import AnyArray, Number, require
from stability.rules.multiplier_lmi import check_lmi, no_decay
from stability.rules.registry import ProofData, reason_of, rule
from stability.statements import decays, whom
from stability.systems import DrivenSystem, LureSystem

__all__ = ["AttractingEquilibrium"]


@rule("attracting_equilibrium", subject=(LureSystem, DrivenSystem), claim="equilibrium", verdict=Verdict.CERTIFIED)
class AttractingEquilibrium(ProofData):
    """``P`` (n, n), ``L`` (m,), ``rate`` of the multiplier inequality."""

    P: AnyArray
    L: AnyArray
    rate: Number

    def sentence(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        return (
            f"For {whom(subject)}: for every constant input there is exactly one equilibrium, and it attracts every "
            "trajectory."
        )

    def check(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        require(decays(self.rate, subject.is_discrete), no_decay(self.rate))
        return reason_of(check_lmi(subject.system, self.P, self.L, self.rate))
