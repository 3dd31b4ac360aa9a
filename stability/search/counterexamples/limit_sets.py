"""Search by simulation for equilibria and periodic orbits that prove that a network does not contract.

Pairs of trajectories run from random states under one input until they converge to equilibria or orbits. If the two of
a pair stay apart, Newton's method refines the equilibria or orbits near them, and the rules prove that they exist.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stability.kernel.format.fields import LONGEST
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.periodic_orbits import MAX_UNKNOWNS, orbit_equations_size
from stability.search.counterexamples.equilibrium_manifold import newton_equilibrium
from stability.search.counterexamples.limit_cycles import (
    orbit_multiplier,
    orbit_near_state,
    orbits_near_returns,
    refine_orbit,
    refined_orbit_eigenvalue,
)
from stability.search.counterexamples.refutation import Candidate, RefutationTask
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.input_range import InputRange
from stability.search.trajectories.simulation import simulate_path, simulate_to_limit

Array = np.ndarray
SETTLE = 500  # steps until pairs of runs count as settled
CLOSEST = 3  # pairs of one phase, the farthest apart, that are examined


def search_separated_pairs(
    search: RefutationTask, rng: np.random.Generator, *, inputs: Array | None = None, brief: bool = False
) -> Iterator[Candidate]:
    """Simulate pairs of random states; if their distance stays, propose proofs that they never meet.

    Constant inputs come first; for maps then inputs of period two to four, some of which saturate channels by turns.

    Args:
        search: network and region of the inputs.
        rng: generator of the states and inputs.
        inputs: ``(k, p)`` constant inputs to try first.
        brief: try few constant inputs, because no constant slopes destabilize.

    Yields:
        Kind and data of a witness, not yet checked by its rule.
    """
    driven, region, deadline = search.subject, search.region, search.deadline
    system = driven.system
    size = system.states * (system.states + 2 * system.channels) + 1.0
    pairs = max(3, round(search.effort * min(12.0, 4e5 / size)))
    with np.errstate(all="ignore"):
        first = _constant(driven, rng, max(3, pairs // (3 if brief else 1)), region, inputs)
        yield from _candidates_under(driven, first, rng, deadline)
        moved = driven.E.any() or driven.F.any()
        for period in (2, 3, 4) if system.is_discrete and moved else ():
            if deadline.over:
                return
            yield from _candidates_under(driven, _periodic(driven, rng, pairs, period, region), rng, deadline)


def _constant(
    driven: DrivenSystem, rng: np.random.Generator, pairs: int, region: InputRange, inputs: Array | None
) -> Array:
    """Draw ``(pairs, 1, p)`` constant inputs."""
    u = region.draw(rng, (pairs, 1), driven.inputs)
    if inputs is not None:
        u[1 : 1 + len(inputs), 0] = inputs[: pairs - 1]
    return u


def _periodic(driven: DrivenSystem, rng: np.random.Generator, pairs: int, period: int, region: InputRange) -> Array:
    """Draw ``(2 pairs, period, p)`` inputs: random ones, and ones that make channels steep and flat by turns."""
    inputs = region.draw(rng, (pairs, period), driven.inputs)
    if not (driven.system.channels and driven.E.any()):
        return inputs
    n, m = driven.system.states, driven.system.channels
    inverse = np.linalg.pinv(driven.E)
    shape = (period, pairs, m)
    flat = np.where(rng.random(shape) < 0.5, 5.0 * rng.choice([-1.0, 1.0], shape), 0.0)
    u, x = np.zeros((period, pairs, driven.inputs)), np.zeros((pairs, n))
    for t in range(6 * period):  # the input that gives the channels these arguments in the present state
        k = t % period
        u[k] = region.clip((flat[k] - driven.channel(x, np.zeros((pairs, driven.inputs)))) @ inverse.T)
        x = driven.advance(x, u[k])
    return np.concatenate([inputs, np.swapaxes(u, 0, 1)])


def _candidates_under(
    driven: DrivenSystem, u: Array, rng: np.random.Generator, deadline: Deadline
) -> Iterator[Candidate]:
    """Yield candidates from settled pairs under the inputs ``(pairs, q, p)``, the farthest apart first."""
    count, q, _ = u.shape
    x = rng.normal(size=(2, count, driven.system.states)) * driven.natural_size
    inputs = np.swapaxes(u, 0, 1)[:, None]
    for _ in range(4):
        x, _ = simulate_to_limit(driven, x, inputs, q * (SETTLE // q), deadline)
        if deadline.over:
            return
        order = _separated_pairs(x)
        if not len(order):
            return
    for i in order[:CLOSEST]:
        if deadline.over:
            return
        yield from _proofs(driven, x[0, i], x[1, i], np.ascontiguousarray(u[i]), deadline)


def _separated_pairs(x: Array) -> Array:
    """Return the indices of the pairs ``(2, pairs, n)`` that are still apart, the farthest first."""
    gaps = np.linalg.norm(x[0] - x[1], axis=1)
    size = np.linalg.norm(x, axis=2).max(axis=0)
    alive = np.isfinite(gaps) & (size < 1e9) & (gaps > 1e-3 * (1e-3 + size))
    return np.argsort(-np.where(alive, gaps, -1.0), kind="stable")[: int(alive.sum())]


def _proofs(
    driven: DrivenSystem, first: Array, second: Array, inputs: Array, deadline: Deadline
) -> Iterator[Candidate]:
    """Yield candidates from two settled runs under one input, the simplest first."""
    if driven.system.is_discrete:
        yield from _orbit_witnesses(driven, first, second, inputs, deadline)
    else:
        states = [newton_equilibrium(driven, state, inputs[0], 8, deadline=deadline) for state in (first, second)]
        if states[0] is not None and states[1] is not None and _are_distinct(states[0], states[1]):
            yield "two_equilibria", {"state1": states[0], "state2": states[1], "input": inputs[0]}
    for state in (first, second):
        if not deadline.over:
            yield from _inner_equilibrium(driven, state, inputs, deadline)


def _orbit_witnesses(
    driven: DrivenSystem, first: Array, second: Array, inputs: Array, deadline: Deadline
) -> Iterator[Candidate]:
    longest = min(LONGEST, MAX_UNKNOWNS // orbit_equations_size(driven, 1))
    orbits = [orbit_near_state(driven, state, inputs, longest, deadline) for state in (first, second)]
    for orbit in orbits:
        if orbit is not None and len(orbit) > len(inputs) and _are_distinct(orbit[0], orbit[len(inputs)]):
            yield "periodic_orbits", {"first": orbit, "input": inputs}
    if orbits[0] is not None and orbits[1] is not None and _are_distinct(orbits[0][0], orbits[1][0]):
        if len(orbits[0]) == len(orbits[1]) == 1:
            yield "two_equilibria", {"state1": orbits[0][0], "state2": orbits[1][0], "input": inputs[0]}
        else:
            yield "periodic_orbits", {"first": orbits[0], "second": orbits[1], "input": inputs}
    for orbit, state in zip(orbits, (first, second)):
        for repelling in orbits_near_returns(driven, state, inputs, deadline=deadline) if orbit is None else ():
            yield from unstable_candidate(driven, repelling, inputs)
            if len(repelling) > len(inputs) and _are_distinct(repelling[0], repelling[len(inputs)]):
                yield "periodic_orbits", {"first": repelling, "input": inputs}


def _are_distinct(first: Array, second: Array) -> bool:
    return bool(np.abs(first - second).max() > 1e-7 * (1.0 + np.abs(first).max()))


def unstable_candidate(driven: DrivenSystem, orbit: Array, inputs: Array) -> Iterator[Candidate]:
    """Yield an equilibrium ``(1, n)``, or an orbit, if its linearization is unstable."""
    value = orbit_multiplier(driven, orbit, inputs)
    if not (abs(value) > 1.0 if driven.is_discrete else value.real > 0.0):
        return
    name = refined_orbit_eigenvalue(driven, orbit, inputs, value)
    if len(orbit) == 1:
        yield "unstable_equilibrium", {"state": orbit[0], "input": inputs[0], "eigenvalue": name}
    else:
        yield "unstable_orbit", {"orbit": orbit, "input": inputs, "eigenvalue": name}


def _inner_equilibrium(driven: DrivenSystem, state: Array, inputs: Array, deadline: Deadline) -> Iterator[Candidate]:
    """Yield equilibria, or orbits of the input's own period, in the middle of a run and nearby."""
    q = len(inputs)
    run = simulate_path(driven, state, inputs, q * (400 // q), deadline)
    if deadline.over:
        return
    points, middle = run[:q], np.stack([run[k::q].mean(axis=0) for k in range(q)])
    for guess in (middle, points, 0.5 * (middle + points)):
        if q == 1:
            equilibrium = newton_equilibrium(driven, guess[0], inputs[0], deadline=deadline)
            orbit = None if equilibrium is None else equilibrium[None]
        else:
            orbit = refine_orbit(driven, guess, inputs, 30, deadline=deadline)
        if orbit is not None and np.isfinite(orbit).all():
            yield from unstable_candidate(driven, orbit, inputs)
