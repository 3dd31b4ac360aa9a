r"""Theorems on gated cells: an absorbing box, and one equilibrium for each constant input.

``gated_bounds``: no step leaves the box and every trajectory enters it, under every input of the cell's input box.

``gated_equilibrium``: a proof of contraction on such a box, by ``interval_jacobian`` or ``interval_lmi``. Under a
constant input, a trajectory in the box and the same trajectory one step later approach each other exponentially.
Therefore its steps are summable and it converges to a fixed point. There is only one, since the difference of two fixed
points would not decay. Every equilibrium has :math:`|h| < 1` and is a trajectory that enters the box, so that no
equilibrium lies outside.
"""

from __future__ import annotations

from typing import Annotated

from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Number, ProofData, State, require
from stability.kernel.format.sentences import at_most, for_every, one_equilibrium, theorem
from stability.kernel.format.theorem_table import certifies
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.theorems.driven_bounds import within_diagonal
from stability.kernel.theorems.interval import BOX, IntervalJacobian, IntervalLmi, absorbing_box, start_phrase
from stability.kernel.theorems.multiplier_lmi import Contraction


@certifies("gated_bounds", subject=GatedCell, claim="bounded_in_box", value="diagonal")
class GatedBounds(ProofData):
    """Absorbing box of states: ``low``, ``high`` (n,), for an LSTM ``h`` before ``c``, and a bound of its diagonal."""

    low: Annotated[State, BOX]
    high: Annotated[State, BOX]
    diagonal: Number

    def sentence(self, subject: GatedCell, claim: Claim) -> str:
        return theorem(
            subject,
            f"{for_every(subject)}, every trajectory{start_phrase(subject)} enters the box low_i <= x_i <= high_i of "
            "the proof and stays there.",
            f"Here x = {'(h, c)' if subject.kind == 'lstm' else 'h'}.",
            f"The box has diagonal at most {at_most(self.diagonal)}.",
        )

    def check(self, subject: GatedCell, claim: Claim) -> str:
        box = absorbing_box(subject, self.low, self.high)
        wide = within_diagonal(box.low, box.high, self.diagonal)
        return f"every trajectory enters the box and stays; its mean width is {wide:.3g}"


@certifies("gated_equilibrium", subject=GatedCell, claim=("equilibrium_in_box", "equilibrium"))
class GatedEquilibrium(Contraction):
    """Data of ``interval_jacobian`` (with ``d``) or of ``interval_lmi`` (``P``, ``L``, ``p_min``, ``p_max``)."""

    low: Annotated[State, BOX]
    high: Annotated[State, BOX]
    d: Annotated[State, "d must be a vector of {n} entries"] | None = None
    P: AnyArray | None = None
    L: AnyArray | None = None
    p_min: Number | None = None
    p_max: Number | None = None

    def sentence(self, subject: GatedCell, claim: Claim) -> str:
        return one_equilibrium(subject, start_phrase(subject))

    def check(self, subject: GatedCell, claim: Claim) -> str:
        expected = "equilibrium" if subject.input_low is None else "equilibrium_in_box"
        require(claim.name == expected, f"for this cell and its inputs the claim must be {expected}")
        common = {"low": self.low, "high": self.high, "rate": self.rate, "overshoot": self.overshoot}
        rest = {name: getattr(self, name) for name in ("P", "L", "p_min", "p_max")}
        if self.d is not None:
            require(all(value is None for value in rest.values()), "d and a metric P exclude each other")
            return IntervalJacobian.of({**common, "d": self.d}).check(subject, claim)
        require(all(value is not None for value in rest.values()), "the data lack d, or P, L, p_min and p_max")
        return IntervalLmi.of({**common, **rest}).check(subject, claim)
