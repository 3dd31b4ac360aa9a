r"""Rule ``interval_lmi``: a gated cell contracts in a quadratic norm on a box that every trajectory enters.

The difference of two trajectories in the box satisfies a Lur'e system whose slope intervals are bounds of the gates,
recomputed from the stored weights with outward rounding (``stability.gated.bounds.embedding``); the multiplier
inequality for that system is then proved as in ``multiplier_lmi``. What the box must be: see ``interval_jacobian``.
"""

from __future__ import annotations

from stability.certificate import Claim, Verdict
from stability.gated.bounds import embedding
from stability.gated.cell import GatedCell
from stability.rules.interval_jacobian import OverBox
from stability.rules.multiplier_lmi import Decay
from stability.rules.registry import rule

__all__ = ["IntervalLmi"]


@rule("interval_lmi", subject=GatedCell, claim="contraction", verdict=Verdict.CERTIFIED, value="rate")
class IntervalLmi(OverBox, Decay):
    """``P``, ``L``, ``rate``, ``overshoot``, ``p_min``, ``p_max`` are about the system of the slope intervals."""

    def sentence(self, subject: GatedCell, claim: Claim) -> str:
        return self.contracts(subject, "Euclidean")

    def check(self, subject: GatedCell, claim: Claim) -> str:
        system = embedding(subject, self.box(subject))
        return f"over a box that every trajectory enters, {self.decays_at_the_rate(system)}"
