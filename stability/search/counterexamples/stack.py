"""Search for counterexamples of a stack: in its lowest layers, in the merged network, and in orbits of the stack.

An upper layer may be unstable only under inputs that the level below never outputs, so it is not searched alone.
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
from stability.search.trajectories.simulation import draw_states, simulate_to_limit

Array = np.ndarray
Searcher = Callable[..., Refutation]
PAIRS = 12  # pairs of runs per input box
TRANSIENT_STEPS, AVERAGED_STEPS = 600, 120
MAX_ORBIT_PERIODS = 8  # longest orbit, in periods of the input
INPUT_PERIODS = (1, 1, 1, 2, 3, 4)  # steps, used in turn
CYCLE = 12  # steps: a multiple of every input period
MIN_GAP = 1e-7  # distance above which two runs count as separate
MIN_MODULUS = 1.0 + 1e-9  # modulus of an eigenvalue above which a proof of instability is tried


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
        lowest: True to search the layers of the lowest level as well.
        region: range of the inputs in the data; it is searched first.

    Returns:
        A witness that the checker accepts, or no witness, which proves nothing.
    """
    deadline = Deadline.from_limit(time_limit).named("refutation")
    options = {"seed": seed, "input_range": (region.low, region.high) if region.bounded else None}
    task = RefutationTask(stack, seed, deadline, region=region)
    candidates = itertools.chain(
        _layer_candidates(stack, search, deadline, options) if lowest else (),
        _merged_candidates(stack, search, deadline, options),
        _stack_candidates(stack, region, np.random.default_rng(seed), deadline),
    )
    return first_accepted(task, candidates)


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
    """Yield witnesses against the merged network of the stack, if its layers can be merged."""
    merged = merged_network(stack)
    refutation = None if merged is None else search(merged, time_limit=deadline.share(0.6), **options)
    if refutation is not None and refutation.proof is not None and refutation.proof.kind in MERGED_KINDS:
        yield "merged_stack", {"kind": refutation.proof.kind, "data": dict(refutation.proof.data)}


def _stack_candidates(
    stack: LayerStack, region: InputRange, rng: np.random.Generator, deadline: Deadline
) -> Iterator[Candidate]:
    """Yield unstable equilibria and orbits of the whole stack, one input box after another."""
    if stack.directions != 1 or not stack.is_discrete:
        return
    lowest = stack.layers[0]
    for box in input_boxes(lowest.input_low, lowest.input_high, region, stack.inputs):
        sequences = [_inputs(box, rng, INPUT_PERIODS[k % len(INPUT_PERIODS)], k) for k in range(PAIRS)]
        inputs = np.stack([np.resize(u, (CYCLE, stack.inputs)) for u in sequences], axis=1)
        x = np.stack([np.hstack([draw_states(layer, rng, PAIRS) for layer in stack.layers]) for _ in range(2)])
        x, mean = simulate_to_limit(stack, x, inputs[:, None], TRANSIENT_STEPS, deadline, AVERAGED_STEPS)
        if deadline.over:
            return
        for k in range(PAIRS):
            if len(sequences[k]) == 1:
                yield from _unstable_equilibria(stack, (x[0, k], mean[0, k], 0.0 * x[0, k]), sequences[k], deadline)
        gaps = np.abs(x[0] - x[1]).max(axis=1)
        for k in np.argsort(-np.where(np.isfinite(gaps), gaps, -1.0)):
            if not gaps[k] > MIN_GAP or deadline.over:
                break
            yield from _orbits(stack, x[0, k], x[1, k], sequences[k])


def _unstable_equilibria(
    stack: LayerStack, guesses: tuple[Array, ...], inputs: Array, deadline: Deadline
) -> Iterator[Candidate]:
    """Yield equilibria of the stack with an unstable layer, level by level from each guess."""
    for guess in guesses:
        signal, offset, parts, eigenvalues = inputs[0], 0, [], []
        for layer in stack.layers:
            point = newton_equilibrium(layer, guess[offset : offset + layer.states], signal, deadline=deadline)
            if point is None:
                break
            offset += layer.states
            parts.append(point)
            eigenvalues.append(largest_eigenvalues(layer.jacobian(point, signal))[0])
            signal = layer.output(point)
        worst = int(np.argmax(np.abs(eigenvalues))) if len(parts) == len(stack.layers) else -1
        if worst >= 0 and abs(eigenvalues[worst]) > MIN_MODULUS:
            value = [eigenvalues[worst].real, eigenvalues[worst].imag]
            yield (
                "stack_unstable",
                {"state": np.concatenate(parts), "input": inputs, "layer": worst, "eigenvalue": value},
            )


def _orbits(stack: LayerStack, first: Array, second: Array, inputs: Array) -> Iterator[Candidate]:
    """Yield two orbits under one input, then each orbit whose period is longer than that of the input."""
    one, two = (closed_path(stack, state, inputs, MAX_ORBIT_PERIODS * len(inputs)) for state in (first, second))
    if one is not None and two is not None:
        yield "stack_orbits", {"first": one, "second": two, "input": inputs}
    for orbit in (one, two):
        if orbit is not None and len(orbit) > len(inputs):
            yield "stack_orbits", {"first": orbit, "input": inputs}


def _inputs(box: InputRange, rng: np.random.Generator, period: int, k: int) -> Array:
    """Return inputs ``(period, p)`` in a box: nearest to zero (``k = 0``), corners (``k`` odd) or inner points."""
    low, high = box.low, box.high
    u = 2.0 * rng.uniform(0.5 * low, 0.5 * high, size=(period, len(low)))  # the width of a box may overflow
    corner = np.where(rng.random(u.shape) < 0.5, low, high)
    return box.clip(0.0 * u) if k == 0 else corner if k % 2 else u
