"""Search for counterexamples to contraction of a gated cell.

The search goes through boxes of inputs, the data's range first. In each: many states run under many constant inputs;
from where they settle and from their averages Newton's method finds equilibria, and the inputs are moved to where the
equilibria are least stable; where runs stay apart, their limits are made exact as orbits;
then inputs of short periods follow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import numpy as np

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.reachability.gated_orbits import orbit_jacobian
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.theorems.gated_orbits import MAX_UNKNOWNS
from stability.search.counterexamples.gated_equilibria import (
    FOLLOWED,
    GatedEquilibrium,
    ascend_radius,
    equilibrium_near,
    largest_eigenvalues,
)
from stability.search.counterexamples.limit_cycles import orbit_near_state
from stability.search.counterexamples.refutation import Candidate, Refutation, RefutationTask, first_accepted
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.input_range import InputRange, input_boxes
from stability.search.trajectories.simulation import simulate_to_limit

Array = np.ndarray
# inputs per box, starts per input, steps to settle, averaged steps, steps of a second run, longest period
INPUTS, STARTS, SETTLE, TAIL, LONGER, LONGEST = 8, 12, 300, 100, 600, 24
APART = 1e-7  # distance of two runs above which they count as separated
UNSTABLE = 1.0 + 1e-9  # modulus of an eigenvalue above which a proof is tried
CLIMBS, GRADIENTS = 3, 12
PAIRS = 2  # inputs in a box under which runs that stay apart are looked at closely


def search_gated(search: RefutationTask) -> Refutation:
    """Search for a witness against the contraction of a gated cell; only inputs in its box are tried."""
    cell, rng = search.subject, np.random.default_rng(search.seed)
    boxes = input_boxes(cell.input_low, cell.input_high, search.region, cell.inputs)
    candidates = (candidate for box in boxes for candidate in _candidates_in_box(cell, box, rng, search.deadline))
    return first_accepted(search, candidates, f"searched {len(boxes)} boxes with {INPUTS} inputs each")


def _candidates_in_box(
    cell: GatedCell, box: InputRange, rng: np.random.Generator, deadline: Deadline
) -> Iterator[Candidate]:
    """Yield witnesses worth trying under inputs of one box, cheap and strong ones first."""
    if deadline.over:
        return
    inputs = _inputs(box, rng)
    first = _starts(cell, rng, len(inputs))
    states, mean = simulate_to_limit(cell, first, inputs[None, :, None], SETTLE, deadline, TAIL)
    equilibria: list[GatedEquilibrium] = []
    for k, u in enumerate(inputs):
        equilibria += yield from _equilibria_at_input(cell, u, _guesses(first[k], states[k], mean[k]), deadline)
    for point in sorted(equilibria, key=lambda p: -p.radius)[:CLIMBS]:
        yield from _climbs(cell, point, box, deadline)
    yield from _separated_orbits(cell, states, inputs[None], deadline)
    for period in (2, 3):
        if deadline.over:
            return
        sequences = np.stack([_inputs(box, rng) for _ in range(period)])
        some = _starts(cell, rng, INPUTS)
        some, _ = simulate_to_limit(cell, some, sequences[:, :, None], SETTLE // period * period, deadline)
        yield from _periodic(cell, some, sequences, deadline)


def _equilibria_at_input(
    cell: GatedCell, u: Array, guesses: Iterator[Array], deadline: Deadline
) -> Generator[Candidate, None, list[GatedEquilibrium]]:
    """Yield equilibria under one input as witnesses; return all of them."""
    equilibria: list[GatedEquilibrium] = []
    for guess in guesses:
        if deadline.over:
            break
        point = equilibrium_near(cell, guess, u, deadline)
        if point is not None and all(_are_distinct(p.state, point.state) for p in equilibria):
            equilibria.append(point)
            yield from _unstable(cell, point)
            if len(equilibria) > 1:
                yield "gated_orbits", {"first": equilibria[0].state[None], "second": point.state[None], "input": u}
    return equilibria


def _climbs(cell: GatedCell, point: GatedEquilibrium, box: InputRange, deadline: Deadline) -> Iterator[Candidate]:
    """Yield equilibria on the way to inputs of least stability, one ascent per promising eigenvalue."""
    if deadline.over:
        return
    for value in largest_eigenvalues(cell.jacobian(point.state, point.u), FOLLOWED):
        last = point
        for last in ascend_radius(cell, replace(point, value=value), box, GRADIENTS, deadline):
            yield from _unstable(cell, last)
        if last is not point:
            yield from _neighboring_equilibria(cell, last, deadline)


def _guesses(first: Array, final: Array, mean: Array) -> Iterator[Array]:
    """Yield guesses of equilibria: final and mean states of runs, states between separated runs, and the first."""
    yield from (final[0], mean[0], 0.0 * final[0])
    farthest = int(np.argmax(np.abs(final - final[0]).max(axis=1)))
    if _are_distinct(final[farthest], final[0]):
        yield from (final[farthest], mean[farthest], 0.5 * (final[0] + final[farthest]))
    yield from (first[1], first[-1])


def _neighboring_equilibria(cell: GatedCell, point: GatedEquilibrium, deadline: Deadline) -> Iterator[Candidate]:
    """Search for a second equilibrium along the slow direction of one that is about to meet it."""
    if point.value.imag or not point.value.real > 0.8 or deadline.over:
        return
    values, vectors = np.linalg.eig(cell.jacobian(point.state, point.u))
    slow = np.real(vectors[:, int(np.argmin(np.abs(values - point.value)))])
    for length in (0.1, -0.1, 0.5, -0.5, 2.0, -2.0):
        other = equilibrium_near(cell, point.state + length * slow, point.u, deadline)
        if other is not None and _are_distinct(other.state, point.state):
            yield from _unstable(cell, other)
            yield "gated_orbits", {"first": point.state[None], "second": other.state[None], "input": point.u}


def _inputs(box: InputRange, rng: np.random.Generator) -> Array:
    """Return inputs in a box, ``(INPUTS, p)``: the smallest, the middle, then inner points and corners by turns."""
    u = box.draw(rng, (INPUTS,), len(box.low))
    u[2] = 0.5 * (box.low + box.high)
    return u


def _starts(cell: GatedCell, rng: np.random.Generator, count: int) -> Array:
    """Return initial states ``(count, STARTS, n)``: the zero state, then inner points and corners of ``|h| <= 1``."""
    h = rng.uniform(-1.0, 1.0, size=(count, STARTS, cell.hidden))
    h[:, STARTS // 2 :] = np.sign(h[:, STARTS // 2 :])
    h[:, 0] = 0.0
    if cell.kind == "gru":
        return h
    size = np.exp(rng.uniform(-1.0, 3.0, size=(count, STARTS, 1)))
    return np.concatenate([np.tanh(size * h), size * h], axis=-1)


def _unstable(cell: GatedCell, point: GatedEquilibrium) -> Iterator[Candidate]:
    if point.radius > UNSTABLE:
        value = [point.value.real, point.value.imag]
        yield "gated_unstable", {"state": point.state, "input": point.u, "eigenvalue": value}


def _separated_orbits(cell: GatedCell, states: Array, inputs: Array, deadline: Deadline) -> Iterator[Candidate]:
    """Search for orbits where runs under one input ``(q, count, p)`` stay apart."""
    spread = np.abs(states - states[:, :1]).max(axis=(1, 2))
    order = np.argsort(-spread)[:PAIRS]
    order = order[spread[order] > APART]
    if not len(order) or deadline.over:
        return
    period, longest = len(inputs), _longest_period(cell)
    longer, _ = simulate_to_limit(cell, states[order], inputs[:, order, None], LONGER // period * period, deadline)
    for k, final in zip(order, longer):
        if deadline.over:
            return
        u, orbits = np.ascontiguousarray(inputs[:, k]), []
        farthest = int(np.argmax(np.abs(final - final[0]).max(axis=1)))
        for guess in (final[0], final[farthest], final[1]):
            orbit = orbit_near_state(cell, guess, u, longest, deadline)
            if orbit is None:
                continue
            if len(orbit) > period:
                yield "gated_orbits", {"first": orbit, "input": u}
            if orbits and _are_distinct(orbits[0][0], orbit[0]):
                yield "gated_orbits", {"first": orbits[0], "second": orbit, "input": u}
            orbits.append(orbit)


def _periodic(cell: GatedCell, states: Array, inputs: Array, deadline: Deadline) -> Iterator[Candidate]:
    """Yield unstable orbits under periodic inputs ``(q, count, p)``, or runs that stay apart there."""
    yield from _separated_orbits(cell, states, inputs, deadline)
    for k in range(states.shape[0]):
        if deadline.over:
            return
        orbit = orbit_near_state(cell, states[k, 0], inputs[:, k], _longest_period(cell), deadline)
        if orbit is None:
            continue
        value = largest_eigenvalues(orbit_jacobian(cell, Ball.exact(orbit), inputs[:, k]).mid)[0]
        if abs(value) > UNSTABLE:
            yield "gated_unstable", {"state": orbit, "input": inputs[:, k], "eigenvalue": [value.real, value.imag]}


def _longest_period(cell: GatedCell) -> int:
    """Return the longest orbit in steps that the search tries and the rule accepts."""
    return min(LONGEST, MAX_UNKNOWNS // cell.states)


def _are_distinct(first: Array, second: Array) -> bool:
    return bool(np.abs(first - second).max() > APART)
