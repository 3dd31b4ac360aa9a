r"""Theorems on flows under inputs in a box: contraction, one equilibrium, bounds.

``flow_lmi``: the multiplier inequality with the range of the derivative there proves the rate for any two trajectories
from the time on from which they are in them. ``flow_equilibrium``: for each constant input of the box a trajectory and
the same a moment later are two under one input, so that it ends in a point where nothing moves, and two of these would
be two trajectories that stay apart. ``flow_bounds``: the box around the last ellipsoid.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Number, State, require
from stability.kernel.format.sentences import at_most, contracts_in_box, decays, one_equilibrium, stays_in_box
from stability.kernel.format.theorem_table import certifies
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.driven_bounds import ENDS, within_diagonal
from stability.kernel.theorems.driven_lmi import decays_on
from stability.kernel.theorems.flow_sets import FlowSets, no_flow_sets
from stability.kernel.theorems.multiplier_lmi import Decay, no_decay

Array = np.ndarray
SIZE = "low and high must be vectors of {p} entries, least and most of {n}"


@certifies("flow_lmi", subject=DrivenSystem, claim="driven_contraction", value="rate", unfit=no_flow_sets, size=SIZE)
class FlowLmi(FlowSets, Decay):
    """Metric ``P``, multipliers ``L`` and the rate on the sets of the other data."""

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        return contracts_in_box(subject, (self.low, self.high), self.overshoot, self.rate, self.entry)

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        require(decays(self.rate, False), no_decay(self.rate))
        self.require_metric()
        sets = self.ranges(subject)
        return decays_on(self, subject, sets.low, sets.high, at_most(self.time))


@certifies("flow_equilibrium", subject=DrivenSystem, claim="equilibrium_in_box", unfit=no_flow_sets, size=SIZE)
class FlowEquilibrium(FlowLmi):
    """Data of ``flow_lmi``."""

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        return one_equilibrium(subject, box=(self.low, self.high))


@certifies("flow_bounds", subject=DrivenSystem, claim="bounded_in_box", value="diagonal", unfit=no_flow_sets, size=SIZE)
class FlowBounds(FlowSets):
    """Box around the last ellipsoid: ``least``, ``most`` (n,), and ``diagonal``, at least its length."""

    least_state: Annotated[State, ENDS.replace("least", "least_state").replace("most", "most_state")]
    most_state: Annotated[State, ENDS.replace("least", "least_state").replace("most", "most_state")]
    diagonal: Number

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        box, names = (self.low, self.high), ("least_state", "most_state")
        return stays_in_box(subject, box, names, self.diagonal, self.entry)

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        require((self.least_state <= self.most_state).all(), "least_state must not be above most_state")
        self.ranges(subject)
        low, high = enclosing_box(self.centres[-1], self.shapes[-1], self.room)
        inside = (self.least_state <= low).all() and (high <= self.most_state).all()
        require(inside, "states may leave the box")
        wide = within_diagonal(self.least_state, self.most_state, self.diagonal)
        return f"states end in intervals of mean width {wide:.3g} after {at_most(self.time)} units of time"


def enclosing_box(centre: Array, Y: Array, room: float) -> tuple[Array, Array]:
    """Return the box around an ellipsoid, rounded outwards."""
    half = np.sqrt((1.0 + room) * np.diagonal(Y)) * (1 + 16 * EPS)
    return np.nextafter(centre - half, -np.inf), np.nextafter(centre + half, np.inf)
