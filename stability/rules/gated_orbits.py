"""Rules that refute the contraction of a gated cell by orbits, proved to exist by Krawczyk's test.

``gated_orbits``: two different points on periodic orbits under one constant or periodic input. Their distance comes
back after the common period, for ever. Equilibria under a constant input are orbits of period one; one orbit longer
than the input's period is enough by itself, run by two trajectories one period of the input apart.

``gated_unstable``: an orbit or equilibrium, proved to exist, with a multiplier proved to lie outside the unit circle
(an eigenvalue of the product of the Jacobians along it), so that trajectories beside it leave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.gated.cell import GatedCell
from stability.gated.orbits import enclose_orbit, orbit_jacobian
from stability.rigor.balls import Ball
from stability.rigor.eigenpairs import Matrix
from stability.rigor.instability import prove_not_stable
from stability.rules.named_eigenvalue import OPTIONAL, eigenvalue_phrase, named
from stability.rules.registry import Outcome, rule
from stability.statements import at_least, at_most, describe

__all__ = [
    "LIMIT",
    "MAX_UNKNOWNS",
    "check_orbits",
    "check_unstable",
    "input_phrase",
    "inputs_of",
    "least_distance",
    "multiplier_phrase",
    "orbit_of",
    "orbits_phrase",
]

Array = np.ndarray
Data = Mapping[str, Any]
MAX_UNKNOWNS, LONGEST_INPUT, LIMIT = 2500, 24, 1e100


def inputs_of(cell: Any, data: Data) -> tuple[Array | None, str]:
    """The input of a proof as ``(q, p)``, ``(p,)`` or up to 24 of them in turn, or why it is none that the cell reads.

    Args:
        cell: the cell, or the lowest layer of a stack.
        data: of the proof.

    Returns:
        The inputs and an empty string, or ``None`` and the reason.
    """
    value = np.atleast_2d(data["input"])
    if value.ndim != 2 or value.shape[1] != cell.inputs or not 1 <= len(value) <= LONGEST_INPUT:
        return None, f"input must hold 1 to {LONGEST_INPUT} vectors of {cell.inputs} entries"
    if not (np.abs(value) <= LIMIT).all():
        return None, f"an entry of the input exceeds {LIMIT:g}"
    low, high = getattr(cell, "input_low", None), getattr(cell, "input_high", None)
    if low is not None and not ((low <= value) & (value <= high)).all():
        return None, "the input of the proof lies outside the cell's input box"
    return value, ""


def input_phrase(data: Data, key: str = "input") -> str:
    """The input of a witness in words, with the range of its entries rounded outwards."""
    value = np.atleast_2d(data[key])
    kind = "constant input" if len(value) == 1 else f"input of period {len(value)}"
    if not value.size:
        return f"{kind} of the proof"
    low, high = float(value.min()), float(value.max())
    return f"{kind} of the proof (entries in [{at_least(low)}, {at_most(high)}])"


def orbit_of(value: Any, n: int, period: int) -> Array | None:
    """A stored orbit as ``(k, n)``, ``k`` a multiple of the input's period."""
    points = np.atleast_2d(value)
    if points.ndim != 2 or points.shape[1] != n or not 1 <= points.size <= MAX_UNKNOWNS or len(points) % period:
        return None
    return points if bool((np.abs(points) <= LIMIT).all()) else None


def least_distance(one: Ball, two: Ball) -> float:
    """A lower bound of the largest distance of two points in one entry; not positive where they may be the same."""
    return float((np.abs(one.mid - two.mid) * (1 - 1e-15) - (one.rad + two.rad) * (1 + 1e-15)).max())


def orbits_phrase(data: Data) -> str:
    """The orbits of a proof in words."""
    period = len(np.atleast_2d(data["input"]))
    lengths = [len(np.atleast_2d(data[key])) for key in ("first", "second") if key in data]
    if len(lengths) == 1:
        apart = "a step" if period == 1 else f"{period} steps"
        return f"an orbit of period {lengths[0]}, and two trajectories that run it {apart} apart never approach"
    if max(lengths) == 1:
        return "two different equilibria, whose distance never changes"
    return f"two orbits of periods {lengths[0]} and {lengths[1]}, which never approach each other"


def _orbits_statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    return f"{describe(subject)} does not contract: under the {input_phrase(data)} it has {orbits_phrase(data)}."


@rule(
    "gated_orbits",
    subject=GatedCell,
    claim="contraction",
    verdict=Verdict.REFUTED,
    fields={"first": "array", "input": "array"},
    optional={"second": "array"},
    statement=_orbits_statement,
)
def check_orbits(subject: Any, claim: Claim, data: Data) -> Outcome:
    """Data: ``first`` (k, n), ``second`` (l, n) unless ``first`` is longer than the input, ``input`` (q, p)."""
    inputs, problem = inputs_of(subject, data)
    if inputs is None:
        return False, problem
    q = len(inputs)
    first = orbit_of(data["first"], subject.states, q)
    second = orbit_of(data["second"], subject.states, q) if "second" in data else None
    if first is None or ("second" in data and second is None) or (second is None and len(first) < 2 * q):
        return False, (
            "first and second must be orbits of the cell's size, as long as the input or a multiple of it; one alone "
            "must be longer than the input"
        )
    box = enclose_orbit(subject, first, inputs)
    other = None if second is None else enclose_orbit(subject, second, inputs)
    if box is None or (second is not None and other is None):
        return False, "an orbit is not proved to exist"
    gap = least_distance(box[0], box[q] if other is None else other[0])
    if not gap > 0.0:
        return False, "the two points may be the same"
    return True, f"orbits proved to exist, their points at least {gap:.3g} apart"


def multiplier_phrase(data: Data) -> str:
    """The equilibrium or orbit of a proof and its unstable multiplier in words."""
    length, which = len(np.atleast_2d(data["state"])), eigenvalue_phrase(data, True)
    if length == 1:
        return f"an equilibrium whose Jacobian has {which}"
    return f"an orbit of period {length} along which the product of the Jacobians has {which}"


def _unstable_statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    return (
        f"{describe(subject)} does not contract: under the {input_phrase(data)} it has {multiplier_phrase(data)}, "
        "so trajectories that start next to it leave it."
    )


@rule(
    "gated_unstable",
    subject=GatedCell,
    claim="contraction",
    verdict=Verdict.REFUTED,
    fields={"state": "array", "input": "array"},
    optional=OPTIONAL,
    statement=_unstable_statement,
)
def check_unstable(subject: Any, claim: Claim, data: Data) -> Outcome:
    """Data: ``state`` (n,) or an orbit (k, n), ``input`` (p,) or (q, p); ``eigenvalue`` where the sentence names it."""
    inputs, problem = inputs_of(subject, data)
    if inputs is None:
        return False, problem
    points = orbit_of(data["state"], subject.states, len(inputs))
    if points is None:
        return False, "state must be of the cell's size, one point or an orbit as long as the input or a multiple of it"
    box = enclose_orbit(subject, points, inputs)
    if box is None:
        return False, "no equilibrium or orbit is proved to exist at the stored states and input"
    jacobian = orbit_jacobian(subject, box, inputs)
    proved = prove_not_stable(Matrix(jacobian, np.ones(subject.states)), True, named(data), strict=True)
    if proved is None:
        return False, "no multiplier outside the unit circle is proved near the stored one"
    what = "an equilibrium" if len(points) == 1 else "an orbit"
    return True, f"{what} within {float(box.rad.max()):.1e} of the stored states; for its Jacobian: {proved}"
