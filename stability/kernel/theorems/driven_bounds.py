r"""Theorem ``driven_bounds``: a box that every trajectory enters under inputs in a box.

From a known step on, the states lie in a box ``[least, most]``, which contains the last of the sets of
``absorbing_sets``: the bounds of the zonotope, intersected with backward linear bounds. The diagonal of the box bounds
the distance of any two states from then on.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.intervals import euclidean_norms
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Number, State, require
from stability.kernel.format.sentences import stays_in_box
from stability.kernel.format.theorem_table import certifies
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.absorbing_sets import Absorbed, why_no_zonotopes
from stability.kernel.theorems.driven_lmi import SIZE

ENDS = "least and most must be vectors of {n} entries with least <= most"


def within_diagonal(low: np.ndarray, high: np.ndarray, diagonal: float) -> float:
    """Prove the bound of the diagonal of a box; return the mean width of the box.

    Raises:
        Refused: the diagonal is longer.
    """
    widths = np.nextafter(high - low, np.inf)
    length = float(euclidean_norms(widths)) * (1 + (len(widths) + 8) * EPS)
    require(length <= diagonal, "the diagonal of the box is longer")
    return float(np.mean(widths))


@certifies(
    "driven_bounds", subject=DrivenSystem, claim="bounded_in_box", value="diagonal", unfit=why_no_zonotopes, size=SIZE
)
class DrivenBounds(Absorbed):
    """Absorbing box of states: ``least``, ``most`` (n,), and ``diagonal``, an upper bound of its diagonal."""

    least: Annotated[State, ENDS]
    most: Annotated[State, ENDS]
    diagonal: Number

    def bounded(self, subject: DrivenSystem | LayerStack, levels: int = 1) -> str:
        """State the claim about a network, or about a stack with a number of levels."""
        box, names = (self.low, self.high), ("least", "most")
        return stays_in_box(subject, box, names, self.diagonal, self.entry(levels))

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        return self.bounded(subject)

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        require((self.least <= self.most).all(), ENDS.format(n=subject.states))
        low, high = self.enclosed(subject).states
        require(bool((self.least <= low).all() and (high <= self.most).all()), "states may leave the box")
        wide = within_diagonal(self.least, self.most, self.diagonal)
        return f"states end in intervals of mean width {wide:.3g} after {self.settled} steps"
