"""Rules that refute the contraction of a stack by orbits of its own, proved to exist level by level.

``stack_orbits``: two different points on periodic orbits of the whole stack under one constant or periodic input, or
one orbit that is longer than the input's period. Their distance comes back for ever.

``stack_unstable``: an orbit or equilibrium of the whole stack with a multiplier proved to lie outside the unit circle.
The Jacobian of a stack is block triangular, so a multiplier of one layer is one of the stack; what that layer reads is
what the levels below put out on the orbit itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.rigor.balls import Ball
from stability.rigor.eigenpairs import Matrix
from stability.rigor.instability import prove_not_stable
from stability.rules.gated_orbits import (
    input_phrase,
    inputs_of,
    least_distance,
    multiplier_phrase,
    orbit_of,
    orbits_phrase,
)
from stability.rules.named_eigenvalue import OPTIONAL, named
from stability.rules.registry import Outcome, rule
from stability.stacks.cascade import Cascade
from stability.stacks.orbits import LayerOrbit, enclose_stack_orbit
from stability.statements import describe

__all__ = ["check_orbits", "check_unstable"]

Array = np.ndarray
Data = Mapping[str, Any]
KINKED = ("relu", "leaky_relu")


def _inputs(subject: Cascade, data: Data) -> tuple[Array | None, str]:
    if subject.directions != 1 or not subject.is_discrete:
        return None, "orbits are proved for discrete stacks with one direction"
    return inputs_of(subject.layers[0], data)


def _at(parts: list[LayerOrbit], index: int) -> Ball:
    """The whole state at one point of an orbit."""
    points = [part.points[index] for part in parts]
    return Ball(np.concatenate([p.mid for p in points]), np.concatenate([p.rad for p in points]))


def _orbits_statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    return f"{describe(subject)} does not contract: under the {input_phrase(data)} it has {orbits_phrase(data)}."


@rule(
    "stack_orbits",
    subject=Cascade,
    claim="contraction",
    verdict=Verdict.REFUTED,
    fields={"first": "array", "input": "array"},
    optional={"second": "array"},
    statement=_orbits_statement,
)
def check_orbits(subject: Any, claim: Claim, data: Data) -> Outcome:
    """Data: ``first`` (k, n), ``second`` (l, n) unless ``first`` is longer than the input, ``input`` (q, p)."""
    inputs, problem = _inputs(subject, data)
    if inputs is None:
        return False, problem
    q = len(inputs)
    first = orbit_of(data["first"], subject.states, q)
    second = orbit_of(data["second"], subject.states, q) if "second" in data else None
    if first is None or ("second" in data and second is None) or (second is None and len(first) < 2 * q):
        return False, (
            "first and second must be orbits of the stack's size, as long as the input or a multiple of it; one alone "
            "must be longer than the input"
        )
    one = enclose_stack_orbit(subject, first, inputs)
    two = None if second is None else enclose_stack_orbit(subject, second, inputs)
    if one is None or (second is not None and two is None):
        return False, "an orbit is not proved to exist"
    gap = least_distance(_at(one, 0), _at(one, q) if two is None else _at(two, 0))
    if not gap > 0.0:
        return False, "the two points may be the same"
    return True, f"orbits proved to exist, their points at least {gap:.3g} apart"


def _unstable_statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    return (
        f"{describe(subject)} does not contract: under the {input_phrase(data)} it has {multiplier_phrase(data)} (that "
        f"of layer {data['layer']}), so runs that start next to it leave it."
    )


@rule(
    "stack_unstable",
    subject=Cascade,
    claim="contraction",
    verdict=Verdict.REFUTED,
    fields={"state": "array", "input": "array", "layer": "index"},
    optional=OPTIONAL,
    statement=_unstable_statement,
)
def check_unstable(subject: Any, claim: Claim, data: Data) -> Outcome:
    """Data: ``state`` (n,) or (k, n), ``input`` (p,) or (q, p), ``layer``; ``eigenvalue`` where it is named."""
    inputs, problem = _inputs(subject, data)
    if inputs is None:
        return False, problem
    points = orbit_of(data["state"], subject.states, len(inputs))
    if points is None or data["layer"] >= len(subject.layers):
        return False, "state must be of the stack's size, one point or an orbit, and layer one of its layers"
    if getattr(subject.layers[data["layer"]], "activation", "") in KINKED:
        return False, "that layer's activation has a kink, where there is no Jacobian"
    parts = enclose_stack_orbit(subject, points, inputs)
    if parts is None:
        return False, "no equilibrium or orbit is proved to exist at the stored states and input"
    jacobian = parts[data["layer"]].jacobian
    proved = prove_not_stable(Matrix(jacobian, np.ones(jacobian.shape[0])), True, named(data), strict=True)
    if proved is None:
        return False, "no multiplier of that layer outside the unit circle is proved near the stored one"
    what = "an equilibrium" if len(points) == 1 else "an orbit"
    return True, f"{what} proved level by level; for the Jacobian of layer {data['layer']}: {proved}"
