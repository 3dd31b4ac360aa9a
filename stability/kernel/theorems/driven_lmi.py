r"""Theorem ``driven_lmi``: contraction under inputs in a box, on sets that every trajectory enters.

The sets are those of ``absorbing_sets``, computed again and rounded outwards. The multiplier inequality with the
range of the *derivative* there proves the rate for any two trajectories from the step on from which they are in them:
on the segment between them each difference quotient lies in that range.

Rule ``driven_equilibrium``: the same data prove that for each constant input of the box there is one equilibrium, which
attracts every trajectory: a trajectory and the same a step later are two under one input, so that the steps of each are
summable from the known step on; the limit is a fixed point, and two fixed points are two trajectories whose difference
does not decay.
"""

from __future__ import annotations

import numpy as np

from stability.errors import StabilityError
from stability.kernel.arithmetic.activation_bounds import slope_range
from stability.kernel.arithmetic.intervals import midpoint_radius
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Refused, require
from stability.kernel.format.sentences import contracts_in_box, decays, one_equilibrium
from stability.kernel.format.theorem_table import certifies, reason_of
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.absorbing_sets import Absorbed, why_no_zonotopes
from stability.kernel.theorems.multiplier_lmi import Decay, check_lmi, no_decay
from stability.kernel.theorems.regional_lmi import regional_system

Array = np.ndarray
SIZE = "r must be a positive vector of {n} entries"


def slopes_on(subject: DrivenSystem, low: Array, high: Array) -> LureSystem:
    """Return the system with the derivative's range for pre-activations within ``low`` and ``high``."""
    return regional_system(subject.system, *slope_range(subject.activation, *midpoint_radius(low, high)))


def decays_on(proof: Decay, subject: DrivenSystem, low: Array, high: Array, after: str) -> str:
    """State that a proof's inequality holds with the slopes for pre-activations within ``low`` and ``high``.

    Raises:
        Refused: it is not proved.
    """
    try:
        inner = slopes_on(subject, low, high)
    except StabilityError as error:
        raise Refused(f"no system with the slopes of the sets: {error}") from error
    reason = reason_of(check_lmi(inner, proof.P, proof.L, proof.rate))
    return f"pre-activations end in intervals of mean width {float(np.mean(high - low)):.3g} after {after}; {reason}"


@certifies(
    "driven_lmi", subject=DrivenSystem, claim="driven_contraction", value="rate", unfit=why_no_zonotopes, size=SIZE
)
class DrivenLmi(Absorbed, Decay):
    """Metric ``P``, multipliers ``L`` and the rate on the sets of the other data."""

    def contracts(self, subject: DrivenSystem | LayerStack, levels: int = 1, *more: str) -> str:
        """State the claim about a network, or about a stack of levels."""
        box = (self.low, self.high)
        return contracts_in_box(subject, box, self.overshoot, self.rate, *more, self.entry(levels))

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        return self.contracts(subject)

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        require(decays(self.rate, True), no_decay(self.rate))
        self.require_metric()
        sets = self.enclosed(subject)
        return decays_on(self, subject, sets.low, sets.high, f"{self.settled} steps")


@certifies("driven_equilibrium", subject=DrivenSystem, claim="equilibrium_in_box", unfit=why_no_zonotopes, size=SIZE)
class DrivenEquilibrium(DrivenLmi):
    """Data of ``driven_lmi``."""

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        return one_equilibrium(subject, box=(self.low, self.high))
