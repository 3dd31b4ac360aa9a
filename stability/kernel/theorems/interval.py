r"""Theorems that prove contraction of a gated cell on an absorbing box.

The box and the bounds over it are recomputed from the stored weights with outward rounding. The box
is invariant, and every trajectory from ``|h| <= 1`` and any ``c`` enters it (``absorbs``). A smaller box, such as one
around one of several attractors, is refused: a proof on it covers no other attractor.

``interval_jacobian``: over the box ``sup |J| d <= rho d``. By the mean value theorem, ``max_i |delta_i| / d_i`` of
two trajectories in the box under one input is multiplied by at most ``rho`` per step.

``interval_lmi``: the difference of two trajectories in the box satisfies a Lur'e system whose slope intervals are
bounds of the gates (``embedding``); the multiplier inequality for that system is then proved as
in ``multiplier_lmi``.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from stability.kernel.arithmetic.intervals import Interval
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import State, require
from stability.kernel.format.sentences import at_most, decay_bound, for_every, theorem
from stability.kernel.format.theorem_table import certifies
from stability.kernel.systems.gated_bounds import JacobianBound, absorbs, embedding, is_invariant
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.theorems.multiplier_lmi import Contraction, Decay

Array = np.ndarray
BOX = "low and high must be finite vectors of {n} entries with low <= high"


def absorbing_box(cell: GatedCell, low: Array, high: Array) -> Interval:
    """Return a state box after proving that it is invariant and absorbs every trajectory.

    Raises:
        Refused: the box is not proved invariant, or not proved absorbing.
    """
    require((low <= high).all(), BOX.format(n=cell.states))
    box = Interval(low, high)
    kept = is_invariant(cell, box)
    require(kept, "the state box is not proved to be invariant, or does not contain the zero state")
    require(absorbs(cell, box), "not every trajectory is proved to enter the state box")
    return box


def start_phrase(cell: GatedCell) -> str:
    """Return the condition on the initial states in claims about a cell."""
    return f" with |h_i(0)| <= 1{' and any c(0)' if cell.kind == 'lstm' else ''}"


class OverBox(Contraction):
    """Absorbing state box ``low``, ``high`` (n,) over which a cell is proved to contract."""

    low: Annotated[State, BOX]
    high: Annotated[State, BOX]

    def contracts(self, subject: GatedCell, norm: str) -> str:
        """Return the sentence of the claim: every trajectory enters the box, its size, and the decay of differences."""
        low, high = self.low, self.high
        size = np.maximum(np.abs(low), np.abs(high)) if low.shape == high.shape == (subject.states,) else np.zeros(0)
        parts = [("h", size[: subject.hidden]), ("c", size[subject.hidden :])]
        sizes = " and ".join(f"|{name}_i| <= {at_most(float(x.max()))}" for name, x in parts if x.size)
        bound = decay_bound(self.overshoot, self.rate, True, norm=norm)
        return theorem(
            subject,
            f"{for_every(subject)}, every trajectory{start_phrase(subject)} enters the box B of the proof and stays "
            "there.",
            f"In B, {sizes}.",
            f"Under every such input, any two trajectories x, y that start in B satisfy {bound}.",
        )

    def box(self, cell: GatedCell) -> Interval:
        """Return the state box after proving that it is invariant and absorbs every trajectory.

        Raises:
            Refused: the box is not proved invariant, or not proved absorbing.
        """
        return absorbing_box(cell, self.low, self.high)


@certifies("interval_jacobian", subject=GatedCell, claim="contraction", value="rate")
class IntervalJacobian(OverBox):
    """Proof by a bound of the Jacobian in a maximum norm with weights ``1 / d``, ``d`` (n,)."""

    d: Annotated[State, "d must be a vector of {n} entries"]

    def sentence(self, subject: GatedCell, claim: Claim) -> str:
        return self.contracts(subject, "inf")

    def check(self, subject: GatedCell, claim: Claim) -> str:
        return f"{self.shrinks(subject, self.box(subject))} that every trajectory enters, rounded outwards"

    def shrinks(self, subject: GatedCell, box: Interval) -> str:
        """Prove ``sup |J| d <= rate d`` over a box.

        Raises:
            Refused: it is not proved.
        """
        rate, d = self.rate, self.d
        require(0.0 < rate < 1.0, f"the rate must lie in (0, 1), got {rate}")
        require((d > 1e-100).all(), "d must be positive")
        covered = np.nextafter(self.overshoot, 0.0) >= d.max() / d.min()
        require(covered, f"the overshoot {self.overshoot} is smaller than max d / min d")
        image = JacobianBound(subject, box).apply(d)
        shrinks, worst = (image <= np.nextafter(rate * d, 0.0)).all(), int(np.argmax(image / d))
        require(shrinks, f"sup |J| d <= {rate} d is not proved in row {worst}")
        return f"|J| d <= {rate:.6g} d over a box"


@certifies("interval_lmi", subject=GatedCell, claim="contraction", value="rate")
class IntervalLmi(OverBox, Decay):
    """Proof by the multiplier inequality of ``embedding``: ``P``, ``L``, ``p_min``, ``p_max``, rate and overshoot."""

    def sentence(self, subject: GatedCell, claim: Claim) -> str:
        return self.contracts(subject, "2")

    def check(self, subject: GatedCell, claim: Claim) -> str:
        system = embedding(subject, self.box(subject))
        return f"over a box that every trajectory enters, {self.decays_at_the_rate(system)}"
