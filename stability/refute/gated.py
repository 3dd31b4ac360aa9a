"""Search for what keeps a gated cell from contracting, counted in attempts.

The search goes through boxes of inputs, the data's range first. In each: many states run under many constant inputs;
from where they settle and from their averages Newton's method finds equilibria, and the inputs are moved to where the
equilibria are least stable; where runs stay apart, their limits are made exact as orbits or enclosed in disjoint boxes;
then inputs of short periods follow. What can be proved is returned at once; what was only seen to stay apart waits
until nothing else is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from stability.gated.cell import GatedCell
from stability.gated.orbits import orbit_jacobian
from stability.refute.answer import NOTHING, Refutation, witness_claim
from stability.refute.gated_equilibria import FOLLOWED, Steady, ascend, largest_eigenvalues, steady
from stability.refute.gated_runs import box_pair, orbit_near, replay_data, run, starts
from stability.refute.inputs import ANYWHERE, InputRange
from stability.refute.occurrence import in_range
from stability.refute.reach import input_boxes, states_reachable
from stability.rigor.balls import Ball
from stability.rules.registry import RULES
from stability.solve.deadline import Deadline, TimeLimit

__all__ = ["search_gated"]

Array = np.ndarray
Candidate = tuple[str, dict[str, Any]]
INPUTS, SETTLE, LONGER = 8, 300, 600
APART = 1e-7
UNSTABLE = 1.0 + 1e-9
CLIMBS, GRADIENTS = 3, 12
PAIRS = 2  # inputs in a box under which runs that stay apart are looked at closely
LASTS = 0.99  # of a gap, over twice as many steps: below, it is on its way to nothing


def search_gated(
    cell: GatedCell,
    *,
    seed: int = 0,
    time_limit: TimeLimit = None,
    region: InputRange = ANYWHERE,
    start: Array | None = None,
    horizon: int | None = None,
) -> Refutation:
    """Search for a witness against the contraction of a gated cell.

    Args:
        cell: the cell; only inputs in its box are tried.
        seed: of the random inputs and states.
        time_limit: seconds; without one the attempts are counted and nothing reads the clock.
        region: the range of the data's inputs: searched first.
        start: ``(n,)`` the initial state of the network, zero by default; for ``states_reachable``.
        horizon: steps that the network runs; for ``states_reachable``.

    Returns:
        A witness that its rule has accepted, or none, which proves nothing.
    """
    deadline, rng = Deadline.after(time_limit), np.random.default_rng(seed)
    boxes = input_boxes(cell.input_low, cell.input_high, region, cell.inputs)
    seen: Refutation | None = None
    with np.errstate(all="ignore"):
        for low, high in boxes:
            for kind, data in _in_box(cell, low, high, rng, deadline):
                claim = witness_claim(cell, kind, data)
                replayed = kind == "gated_trajectories"
                if replayed and seen is not None:
                    continue
                valid, reason = RULES[kind](cell, claim)
                if valid:
                    answer = Refutation(
                        claim.proof,
                        claim.statement,
                        (),
                        reason,
                        in_range(data, region),
                        None if horizon is None else states_reachable(cell, data, start, horizon, region),
                    )
                    if not replayed:
                        return answer
                    seen = answer
            if deadline.stops("refutation"):
                break
    return seen or Refutation(None, "", (), f"{NOTHING} ({len(boxes)} boxes of inputs, {INPUTS} inputs in each)")


def _in_box(
    cell: GatedCell, low: Array, high: Array, rng: np.random.Generator, deadline: Deadline
) -> Iterator[Candidate]:
    """Witnesses worth trying under inputs of one box, what is cheap and strong first."""
    inputs = _inputs(low, high, rng)
    first = starts(cell, rng, len(inputs))
    states, mean = run(cell, first, inputs[None], SETTLE, deadline)
    if deadline.stops("refutation"):
        return
    found: list[Steady] = []
    for k, u in enumerate(inputs):
        here: list[Steady] = []
        for guess in _guesses(first[k], states[k], mean[k]):
            if deadline.stops("refutation"):
                return
            point = steady(cell, guess, u, deadline)
            if point is not None and all(_differ(p.state, point.state) for p in here):
                here.append(point)
                yield from _unstable(cell, point)
                if len(here) > 1:
                    yield "gated_orbits", {"first": here[0].state[None], "second": point.state[None], "input": u}
        found += here
    found.sort(key=lambda p: -p.radius)
    for point in found[:CLIMBS]:
        if deadline.stops("refutation"):
            return
        for value in largest_eigenvalues(cell.jacobian(point.state, point.u), FOLLOWED):
            last = point
            for last in ascend(cell, replace(point, value=value), low, high, GRADIENTS, deadline):
                yield from _unstable(cell, last)
            if last is not point:
                yield from _across(cell, last, deadline)
    yield from _apart(cell, states, inputs[None], deadline)
    for period in (2, 3):
        if deadline.stops("refutation"):
            return
        sequences = np.stack([_inputs(low, high, rng) for _ in range(period)])
        some, _ = run(cell, starts(cell, rng, INPUTS), sequences, SETTLE // period * period, deadline)
        yield from _periodic(cell, some, sequences, deadline)


def _guesses(first: Array, final: Array, mean: Array) -> Iterator[Array]:
    """Where equilibria may be: at the ends of runs, in the middle of cycles, between runs that stay apart, anywhere."""
    yield from (final[0], mean[0], 0.0 * final[0])
    far = int(np.argmax(np.abs(final - final[0]).max(axis=1)))
    if _differ(final[far], final[0]):
        yield from (final[far], mean[far], 0.5 * (final[0] + final[far]))
    yield from (first[1], first[-1])


def _across(cell: GatedCell, point: Steady, deadline: Deadline) -> Iterator[Candidate]:
    """Where an equilibrium is about to meet another one, that one lies along the slow direction."""
    if point.value.imag or not point.value.real > 0.8 or deadline.stops("refutation"):
        return
    values, vectors = np.linalg.eig(cell.jacobian(point.state, point.u))
    slow = np.real(vectors[:, int(np.argmin(np.abs(values - point.value)))])
    for length in (0.1, -0.1, 0.5, -0.5, 2.0, -2.0):
        other = steady(cell, point.state + length * slow, point.u, deadline)
        if other is not None and _differ(other.state, point.state):
            yield from _unstable(cell, other)
            yield "gated_orbits", {"first": point.state[None], "second": other.state[None], "input": point.u}


def _inputs(low: Array, high: Array, rng: np.random.Generator) -> Array:
    """Inputs in a box, ``(INPUTS, p)``: the smallest, the middle, then inner points and corners by turns."""
    u = 2.0 * rng.uniform(0.5 * low, 0.5 * high, size=(INPUTS, len(low)))  # the width of a box may overflow
    corner = np.where(rng.random(u.shape) < 0.5, low, high)
    u[1::2] = corner[1::2]
    u[0], u[2] = np.clip(0.0, low, high), 0.5 * (low + high)
    return u


def _unstable(cell: GatedCell, point: Steady) -> Iterator[Candidate]:
    if point.radius > UNSTABLE:
        value = [point.value.real, point.value.imag]
        yield "gated_unstable", {"state": point.state, "input": point.u, "eigenvalue": value}


def _apart(cell: GatedCell, states: Array, inputs: Array, deadline: Deadline) -> Iterator[Candidate]:
    """Where runs under one input ``(q, count, p)`` stay apart: orbits, boxes, a replay."""
    spread = np.abs(states - states[:, :1]).max(axis=(1, 2))
    order = np.argsort(-spread)[:PAIRS]
    order = order[spread[order] > APART]
    if not len(order) or deadline.stops("refutation"):
        return
    period = len(inputs)
    longer, _ = run(cell, states[order], inputs[:, order], LONGER // period * period, deadline)
    for k, before, after in zip(order, states[order], longer):
        if deadline.stops("refutation"):
            return
        u, orbits = np.ascontiguousarray(inputs[:, k]), []
        far = int(np.argmax(np.abs(after - after[0]).max(axis=1)))
        for guess in (after[0], after[far], after[1]):
            orbit = orbit_near(cell, guess, u, deadline)
            if orbit is None:
                continue
            if len(orbit) > period:
                yield "gated_orbits", {"first": orbit, "input": u}
            if orbits and _differ(orbits[0][0], orbit[0]):
                yield "gated_orbits", {"first": orbits[0], "second": orbit, "input": u}
            orbits.append(orbit)
        gaps = [float(np.linalg.norm(x[0] - x[far])) for x in (before, after)]
        if gaps[1] > LASTS * gaps[0]:
            yield from box_pair(cell, after[0], after[far], u, deadline)
            yield from replay_data(cell, after[0], after[far], u, deadline)


def _periodic(cell: GatedCell, states: Array, inputs: Array, deadline: Deadline) -> Iterator[Candidate]:
    """Orbits under periodic inputs ``(q, count, p)`` that are unstable, or runs that stay apart there."""
    yield from _apart(cell, states, inputs, deadline)
    for k in range(states.shape[0]):
        if deadline.stops("refutation"):
            return
        orbit = orbit_near(cell, states[k, 0], inputs[:, k], deadline)
        if orbit is None:
            continue
        value = largest_eigenvalues(orbit_jacobian(cell, Ball.exact(orbit), inputs[:, k]).mid)[0]
        if abs(value) > UNSTABLE:
            yield "gated_unstable", {"state": orbit, "input": inputs[:, k], "eigenvalue": [value.real, value.imag]}


def _differ(first: Array, second: Array) -> bool:
    return bool(np.abs(first - second).max() > APART)
