"""Theorems that refute contraction of a gated cell by periodic orbits.

``gated_orbits``: two different points on periodic orbits under one constant or periodic input. Their distance is
periodic, so it does not converge to zero. Equilibria under a constant input are orbits of period one. One orbit longer
than the input's period is enough: two trajectories run along it one period of the input apart.

``gated_unstable``: an orbit or equilibrium, proved to exist, with a multiplier proved to lie outside the unit circle
(an eigenvalue of the product of the Jacobians along it), so that trajectories beside it leave it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.eigenpairs import Matrix
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import LIMIT, AnyArray, ProofData, as_rows, require, required
from stability.kernel.format.sentences import NOT_CONTRACTING, at_least, at_most, exact_text, orbits_apart, theorem
from stability.kernel.format.theorem_table import refutes
from stability.kernel.reachability.gated_orbits import enclose_orbit, orbit_jacobian
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.theorems.eigenvalue_phrase import Unstable

Array = np.ndarray
MAX_UNKNOWNS, LONGEST_INPUT = 2500, 24  # size of the orbit equations and period of the input that a file may ask for
SHORT = 7
"""Most characters of a number that is shown unrounded."""


def inputs_of(subject: Any, value: Array) -> Array:
    """Return the input of a proof as ``(q, p)``, from one vector ``(p,)`` or a period of up to 24.

    Args:
        subject: the cell, or a stack whose lowest layer reads the input.
        value: input in the proof.

    Returns:
        The inputs.

    Raises:
        Refused: a wrong shape or size, or outside the cell's input box.
    """
    value, cell = as_rows(value), getattr(subject, "layers", (subject,))[0]
    fits = value.ndim == 2 and value.shape[1] == cell.inputs and 1 <= len(value) <= LONGEST_INPUT
    require(fits, f"input must hold 1 to {LONGEST_INPUT} vectors of {cell.inputs} entries")
    require((np.abs(value) <= LIMIT).all(), f"an entry of the input exceeds {LIMIT:g}")
    low, high = getattr(cell, "input_low", None), getattr(cell, "input_high", None)
    inside = low is None or ((low <= value) & (value <= high)).all()
    require(inside, "the input of the proof lies outside the cell's input box")
    return value


def input_phrase(value: Array) -> str:
    """Describe the input of a witness, with the range of its entries rounded outwards."""
    value = as_rows(value)
    kind = "the constant input" if len(value) == 1 else f"the input of period {len(value)}"
    if not value.size:
        return f"{kind} of the proof"
    low, high = float(value.min()), float(value.max())
    ends = (
        text if len(text := exact_text(x)) <= SHORT else rounded(x) for x, rounded in ((low, at_least), (high, at_most))
    )
    return f"{kind} of the proof (entries in [{', '.join(ends)}])"


def orbit_of(value: Array, n: int, period: int) -> Array | None:
    """Return a stored orbit as ``(k, n)``, with ``k`` a multiple of the input's period; else ``None``."""
    points = as_rows(value)
    if points.ndim != 2 or points.shape[1] != n or not 1 <= points.size <= MAX_UNKNOWNS or len(points) % period:
        return None
    return points if bool((np.abs(points) <= LIMIT).all()) else None


def least_distance(one: Ball, two: Ball) -> float:
    """Return a lower bound of the largest entrywise distance of two points; not positive if they may be equal."""
    return float((np.abs(one.mid - two.mid) * (1 - 1e-15) - (one.rad + two.rad) * (1 + 1e-15)).max())


class OrbitsApart(ProofData):
    """Data: ``first`` (k, n), ``second`` (l, n) unless ``first`` is longer than the input, ``input`` (q, p)."""

    first: AnyArray
    input: AnyArray
    second: AnyArray | None = None

    def sentence(self, subject: Any, claim: Claim) -> str:
        period, first = len(as_rows(self.input)), len(as_rows(self.first))
        second = None if self.second is None else len(as_rows(self.second))
        return orbits_apart(subject, input_phrase(self.input), period, first, second)

    def enclose(self, subject: Any, orbit: Array, inputs: Array) -> Ball | None:
        """Return boxes ``(k, n)`` that contain an orbit, or ``None``."""
        raise NotImplementedError

    def proved(self, subject: Any, what: str) -> str:
        """Prove that the orbits exist and start apart; ``what`` names the subject."""
        inputs = inputs_of(subject, self.input)
        q, orbits = len(inputs), [orbit for orbit in (self.first, self.second) if orbit is not None]
        points = [p for orbit in orbits if (p := orbit_of(orbit, subject.states, q)) is not None]
        fit = len(points) == len(orbits) and (len(points) == 2 or len(points[0]) >= 2 * q)
        size = f"orbits of the {what}'s size, as long as the input or a multiple of it"
        require(fit, f"first and second must be {size}; one alone must be longer than the input")
        boxes = [required(self.enclose(subject, p, inputs), "an orbit is not proved to exist") for p in points]
        gap = least_distance(boxes[0][0], boxes[0][q] if len(boxes) == 1 else boxes[1][0])
        require(gap > 0.0, "the two points may be the same")
        return f"orbits proved to exist, their points at least {gap:.3g} apart"


@refutes("gated_orbits", subject=GatedCell)
class GatedOrbits(OrbitsApart):
    """Two orbits of a cell."""

    def enclose(self, subject: GatedCell, orbit: Array, inputs: Array) -> Ball | None:
        return enclose_orbit(subject, orbit, inputs)

    def check(self, subject: GatedCell, claim: Claim) -> str:
        return self.proved(subject, "cell")


class UnstableOrbit(Unstable):
    """Data: ``state`` (n,) or an orbit (k, n), ``input`` (p,) or (q, p)."""

    state: AnyArray
    input: AnyArray

    def diverges(self, subject: Any, where: str = "") -> str:
        """State the equilibrium or orbit and its unstable multiplier, which belongs to ``where``."""
        length, found = len(as_rows(self.state)), "equilibrium whose Jacobian"
        if length > 1:
            found = f"orbit of period {length} along which the product of the Jacobians"
        return theorem(subject, NOT_CONTRACTING, self.unstable(input_phrase(self.input), True, found, where))

    def multiplier(self, jacobian: Ball) -> str:
        """Return the proved property of the multiplier outside the unit circle; ``whose`` names its owner.

        Raises:
            Refused: no such multiplier is proved.
        """
        return self.outside(Matrix(jacobian, np.ones(len(jacobian.mid))), True)

    @property
    def what(self) -> str:
        """Return the noun: equilibrium or orbit."""
        return "an equilibrium" if len(as_rows(self.state)) == 1 else "an orbit"


UNPROVED = "no equilibrium or orbit is proved to exist at the stored states and input"


@refutes("gated_unstable", subject=GatedCell)
class GatedUnstable(UnstableOrbit):
    """Unstable orbit or equilibrium of a cell."""

    def sentence(self, subject: GatedCell, claim: Claim) -> str:
        return self.diverges(subject)

    def check(self, subject: GatedCell, claim: Claim) -> str:
        inputs = inputs_of(subject, self.input)
        words = "state must be of the cell's size, one point or an orbit as long as the input or a multiple of it"
        points = required(orbit_of(self.state, subject.states, len(inputs)), words)
        box = required(enclose_orbit(subject, points, inputs), UNPROVED)
        proved = self.multiplier(orbit_jacobian(subject, box, inputs))
        return f"{self.what} within {float(box.rad.max()):.1e} of the stored states; for its Jacobian: {proved}"
