"""One metric common to the vertices of a few slopes: where diagonal multipliers just fail.

The channels to split are those whose multipliers lose most, told by the directions in which the inequality nearly
fails; two more at a time. Every candidate is put to the rule's own inequalities before it counts.
"""

from __future__ import annotations

import numpy as np

from stability.certificate import Finding
from stability.rules.multiplier_lmi import check_lmi
from stability.rules.vertex_lmi import vertex_system, vertices_of
from stability.solve.deadline import STOPPED, Deadline, TimeLimit
from stability.solve.vertices import CommonMetric
from stability.systems import LureSystem

Array = np.ndarray
STATES = 40
"""Beyond this many states the interior-point method is not tried."""
FEW, SMALL = (2, 4), 24
MANY = (2, 4, 6)
"""Channels that are split, in turn; the last for up to ``SMALL`` states."""
NEAR = 1e-4
"""How far below one (above zero) the rate is that is asked for."""
HOPELESS = 0.93
"""A step of splitting that leaves more of the violation than this share of it per channel ends the attempt."""
_FIXED = (1e2, 1e4, 1e6)
"""Multipliers of split channels, whose slopes are single numbers: large enough that only these count."""


def vertices_criterion(system: LureSystem, *, time_limit: TimeLimit = None) -> Finding:
    """Search one metric for all vertices of a few slopes.

    Args:
        system: without feedthrough, given by its own matrices.
        time_limit: seconds.

    Returns:
        The finding ``vertices``; where it holds, its witness has ``P``, ``L`` and ``split`` of a ``vertex_lmi`` proof.
        Where not, the margin is minus what had to be added to the inequality.

    Cost:
        ``O(2^s n^4 + n^6)`` for each of some dozens of steps, ``s`` channels split.

    Example:
        >>> W = np.array([[0.0, 1.3], [-1.3, 0.0]])
        >>> vertices_criterion(LureSystem(np.zeros((2, 2)), np.eye(2), W, dt=1.0)).holds  # unstable at slopes 1
        False
    """
    n, m = system.states, system.channels
    why = "it is for up to 40 states, without feedthrough" if n > STATES or system.D.any() else ""
    if why or system.origin is not None or m == 0:
        return Finding("vertices", False, None, f"does not apply: {why or 'it is for systems of their own matrices'}")
    deadline, rate = Deadline.after(time_limit).named("vertices"), 1.0 - NEAR if system.is_discrete else NEAR
    split, found = (), CommonMetric(system, (), rate, deadline)
    found.solve()
    for s in MANY if n <= SMALL else FEW:
        if deadline.over or len(split) >= m:
            break
        before, order = found.tau, np.argsort(-found.loose(), kind="stable")
        more = [int(c) for c in order if c not in split and system.alpha[c] < system.beta[c]]
        split = tuple(sorted((*split, *more[: s - len(split)])))
        if not split:
            break
        found = CommonMetric(system, split, rate, deadline)
        if found.solve():
            witness = _checked(system, found)
            if witness is not None:
                words = f"one metric for the {2 ** len(split)} vertices of {len(split)} slopes"
                return Finding("vertices", True, 1.0 - rate if system.is_discrete else rate, words, rate, witness)
        if found.tau > HOPELESS**2 * before:
            break
    words = STOPPED if deadline.cut else f"no metric common to the vertices of {len(split)} slopes was found"
    return Finding("vertices", False, -max(found.tau, 0.0), words)


def _checked(system: LureSystem, found: CommonMetric) -> dict[str, Array] | None:
    """The witness, with multipliers of the split channels with which every inequality is proved."""
    P = np.ascontiguousarray(0.5 * (found.P + found.P.T))
    split = np.array(found.split)
    vertices = vertices_of(system, split)
    L = found.multipliers()
    for k, vertex in enumerate(vertices):
        for size in _FIXED:
            L[k, split] = size
            if check_lmi(vertex_system(system, split, vertex), P, np.ascontiguousarray(L[k]), found.rate)[0]:
                break
        else:
            return None
    return {"P": P, "L": L, "split": split.astype(np.float64)}
