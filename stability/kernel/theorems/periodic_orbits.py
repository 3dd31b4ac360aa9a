r"""Theorems that refute contraction of maps by periodic orbits, proved to exist by Krawczyk's test.

``periodic_orbits``: two orbits under one periodic (or constant) input, or one that takes longer to come back than the
input does. With the input's period ``q`` and an orbit :math:`x_0, \dots, x_{k-1}`, ``k`` a multiple of ``q``, the
trajectories that start at :math:`x_0` and at :math:`x_q` see the same inputs, and so do those that start at the first
points of two orbits. Where the two starts are proved different, their distance comes back after the common period,
for ever; a network that contracts brings all trajectories under one input together.

``unstable_orbit``: an orbit along which the product of the Jacobians is proved to have an eigenvalue outside the unit
circle, for every Jacobian over the box of the orbit (``closed_loop_orbit``). Trajectories
beside it leave it; with an exponential rate none could.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.eigenpairs import closed_loop_orbit
from stability.kernel.arithmetic.krawczyk import Orbit, distance, enclose_orbit
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import LONGEST, Inputs, ProofData, States, require, required
from stability.kernel.format.sentences import NOT_CONTRACTING, orbits_apart, theorem
from stability.kernel.format.theorem_table import refutes
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.eigenvalue_phrase import Unstable
from stability.kernel.theorems.equilibria import smooth_slopes

Array = np.ndarray
MAX_UNKNOWNS = 1600  # size of the orbit equations that a file may ask for
SIZE = f"orbits and input must hold 1 to {LONGEST} finite rows of the network's sizes"


def orbit_equations_size(subject: DrivenSystem, period: int) -> int:
    """Return the size of the system of equations of an orbit."""
    return period * (subject.system.states + subject.system.channels)


def _no_map(subject: DrivenSystem) -> str | None:
    return None if subject.is_discrete else "orbits step by step are for maps"


def require_orbit(subject: DrivenSystem, orbit: Array, inputs: Array, what: str = "an orbit") -> Orbit:
    """Return boxes that contain exactly one orbit.

    Raises:
        Refused: it is not, or has too many unknowns.
    """
    require(len(orbit) % len(inputs) == 0, "the period of an orbit must be a multiple of the input's")
    few = orbit_equations_size(subject, len(orbit)) <= MAX_UNKNOWNS
    require(few, f"an orbit has more than {MAX_UNKNOWNS} unknowns")
    return required(enclose_orbit(subject, orbit, inputs), f"{what} is not proved to exist")


def _under(inputs: Array) -> str:
    period = len(inputs) if inputs.ndim == 2 else 1
    return "the constant input" if period == 1 else f"the input of period {period}"


@refutes("periodic_orbits", subject=DrivenSystem, unfit=_no_map, size=SIZE)
class PeriodicOrbits(ProofData):
    """Data: ``first`` (k, n), ``input`` (q, p); ``second`` (l, n) unless ``k > q``; ``q`` divides ``k`` and ``l``."""

    first: States
    input: Inputs
    second: States | None = None

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        second = None if self.second is None else len(self.second)
        under = f"{_under(self.input)} of the proof"
        return orbits_apart(subject, under, len(self.input), len(self.first), second)

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        first = require_orbit(subject, self.first, self.input).states
        if self.second is not None:
            other = require_orbit(subject, self.second, self.input).states[0]
        else:
            longer = len(self.first) > len(self.input)
            require(longer, "one orbit alone must have a longer period than the input")
            other = first[len(self.input)]
        gap = distance(first[0], other)
        require(gap > 0.0, "the two starting points may be the same")
        return f"orbits proved to exist; two trajectories on them come back to a distance of at least {gap:.3g}"


@refutes("unstable_orbit", subject=DrivenSystem, unfit=_no_map, size=SIZE)
class UnstablePeriodicOrbit(Unstable):
    """Data: ``orbit`` (k, n), ``input`` (q, p), ``q`` divides ``k``; ``eigenvalue``: a k-th root of a multiplier."""

    orbit: States
    input: Inputs

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        orbit = f"orbit of period {len(self.orbit)} whose linearization, one block for each step,"
        return theorem(subject, NOT_CONTRACTING, self.unstable(f"{_under(self.input)} of the proof", True, orbit))

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        box = require_orbit(subject, self.orbit, self.input, "the orbit")
        slopes = smooth_slopes(subject.activation, box.channels)
        proved = self.outside(closed_loop_orbit(subject.system, slopes), True)
        return f"an orbit within {float(box.states.rad.max()):.1e} of the stored one; step by step: {proved}"
