"""Search for counterexamples of a stack: its lowest layers, the merged network, orbits of the stack.

An upper layer may be unstable under inputs that the level below never puts out, so it is never judged alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.merged_stack import merged_network
from stability.kernel.theorems.stack_witness import MERGED_KINDS
from stability.search.counterexamples.equilibrium_manifold import newton_equilibrium
from stability.search.counterexamples.gated_equilibria import largest_eigenvalues
from stability.search.counterexamples.limit_cycles import closed_path
from stability.search.counterexamples.refutation import Candidate, Refutation, RefutationTask, first_accepted
from stability.search.solvers.deadline import Deadline, TimeLimit
from stability.search.trajectories.input_range import ANYWHERE, InputRange, input_boxes
from stability.search.trajectories.simulation import simulate_to_limit

Array = np.ndarray
Searcher = Callable[..., Refutation]
# pairs of runs, steps to settle, averaged steps, longest period in periods of the input
COUNT, SETTLE, TAIL, LONGEST = 12, 600, 120, 8
PERIODS = (1, 1, 1, 2, 3, 4)  # periods of the inputs, used in turn
CYCLE = 12  # a multiple of every period
APART, UNSTABLE = 1e-7, 1.0 + 1e-9  # distance of separated runs; modulus of an eigenvalue above which a proof is tried


def search_stack(
    stack: LayerStack,
    search: Searcher,
    *,
    seed: int = 0,
    time_limit: TimeLimit = None,
    lowest: bool = True,
    region: InputRange = ANYWHERE,
) -> Refutation:
    """Search for a witness against the contraction of a stack.

    Args:
        stack: the stack.
        search: the search for one layer or network (``counterexample_search.refute``).
        seed: seed of the random starts.
        time_limit: seconds; without one the attempts are counted.
        lowest: whether to search the layers of the lowest level as well.
        region: the range of the data's inputs, searched first.

    Returns:
        A witness that its rule has accepted, or none, which proves nothing.
    """
    deadline = Deadline.from_limit(time_limit).named("refutation")
    options = {"seed": seed, "input_range": (region.low, region.high) if region.bounded else None}
    question = RefutationTask(stack, seed, deadline, region=region)
    candidates = itertools.chain(
        _layer_candidates(stack, search, deadline, options) if lowest else (),
        _merged_candidates(stack, search, deadline, options),
        _candidates(stack, region, np.random.default_rng(seed), deadline),
    )
    return first_accepted(question, candidates)


def _layer_candidates(
    stack: LayerStack, search: Searcher, deadline: Deadline, options: dict[str, Any]
) -> Iterator[Candidate]:
    """Yield witnesses against the layers that read the stack's inputs."""
    for index in range(stack.directions):
        share = deadline.share(0.3 / stack.directions)
        refutation = search(stack.layers[index], time_limit=share, **options)
        if refutation.proof is not None:
            yield "cascade_layer", {"layer": index, "kind": refutation.proof.kind, "data": dict(refutation.proof.data)}


def _merged_candidates(
    stack: LayerStack, search: Searcher, deadline: Deadline, options: dict[str, Any]
) -> Iterator[Candidate]:
    """Yield witnesses against the stack as one network, if it is one."""
    whole = merged_network(stack)
    refutation = None if whole is None else search(whole, time_limit=deadline.share(0.6), **options)
    if refutation is not None and refutation.proof is not None and refutation.proof.kind in MERGED_KINDS:
        yield "merged_stack", {"kind": refutation.proof.kind, "data": dict(refutation.proof.data)}


def _candidates(
    stack: LayerStack, region: InputRange, rng: np.random.Generator, deadline: Deadline
) -> Iterator[Candidate]:
    """Yield orbits of the stack and runs that stay apart, one input box after another."""
    if stack.directions != 1 or not stack.is_discrete:
        return
    lowest = stack.layers[0]
    for box in input_boxes(lowest.input_low, lowest.input_high, region, stack.inputs):
        sequences = [_inputs(box, rng, PERIODS[k % len(PERIODS)], k) for k in range(COUNT)]
        inputs = np.stack([np.resize(u, (CYCLE, stack.inputs)) for u in sequences], axis=1)
        x = np.stack([stack.draw_states(rng, COUNT) for _ in range(2)])
        x, mean = simulate_to_limit(stack, x, inputs[:, None], SETTLE, deadline, TAIL)
        if deadline.over:
            return
        for k in range(COUNT):
            if len(sequences[k]) == 1:
                yield from _unstable(stack, (x[0, k], mean[0, k], 0.0 * x[0, k]), sequences[k], deadline)
        gaps = np.abs(x[0] - x[1]).max(axis=1)
        for k in np.argsort(-np.where(np.isfinite(gaps), gaps, -1.0)):
            if not gaps[k] > APART or deadline.over:
                break
            yield from _orbits(stack, x[0, k], x[1, k], sequences[k])


def _unstable(stack: LayerStack, guesses: tuple[Array, ...], inputs: Array, deadline: Deadline) -> Iterator[Candidate]:
    """Yield equilibria of the stack with an unstable layer, level by level from each guess."""
    for guess in guesses:
        signal, at, parts, tops = inputs[0], 0, [], []
        for layer in stack.layers:
            point = newton_equilibrium(layer, guess[at : at + layer.states], signal, deadline=deadline)
            if point is None:
                break
            at += layer.states
            parts.append(point)
            tops.append(largest_eigenvalues(layer.jacobian(point, signal))[0])
            signal = layer.output(point)
        worst = int(np.argmax(np.abs(tops))) if len(parts) == len(stack.layers) else -1
        if worst >= 0 and abs(tops[worst]) > UNSTABLE:
            value = [tops[worst].real, tops[worst].imag]
            yield (
                "stack_unstable",
                {"state": np.concatenate(parts), "input": inputs, "layer": worst, "eigenvalue": value},
            )


def _orbits(stack: LayerStack, first: Array, second: Array, inputs: Array) -> Iterator[Candidate]:
    one, two = (closed_path(stack, state, inputs, LONGEST * len(inputs)) for state in (first, second))
    if one is not None and two is not None:
        yield "stack_orbits", {"first": one, "second": two, "input": inputs}
    for orbit in (one, two):
        if orbit is not None and len(orbit) > len(inputs):
            yield "stack_orbits", {"first": orbit, "input": inputs}


def _inputs(box: InputRange, rng: np.random.Generator, period: int, k: int) -> Array:
    """Return ``(period, p)`` inputs in a box: nearest to zero first, then corners and inner points by turns."""
    low, high = box.low, box.high
    u = 2.0 * rng.uniform(0.5 * low, 0.5 * high, size=(period, len(low)))  # the width of a box may overflow
    corner = np.where(rng.random(u.shape) < 0.5, low, high)
    return box.clip(0.0 * u) if k == 0 else corner if k % 2 else u
