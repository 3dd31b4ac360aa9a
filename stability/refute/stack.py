"""Search for what keeps a stack from contracting: its lowest level alone, the stack as one network, its own orbits.

An upper layer may be unstable under inputs that the level below never puts out, so it is never judged alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from stability.gated.cell import GatedCell
from stability.refute.answer import NOTHING, Refutation, accepted
from stability.refute.gated_equilibria import equilibrium, largest_eigenvalues
from stability.refute.inputs import ANYWHERE, InputRange
from stability.refute.occurrence import in_range
from stability.refute.reach import input_boxes
from stability.rules.gated_trajectories import MAX_WORK, MIN_STEPS
from stability.rules.replay import least_gap, replay, why_not_apart
from stability.rules.stack_witness import MERGED_KINDS, work
from stability.solve.deadline import Deadline, TimeLimit
from stability.stacks.cascade import Cascade
from stability.stacks.merged import merged

__all__ = ["search_stack"]

Array = np.ndarray
Candidate = tuple[str, dict[str, Any]]
COUNT, SETTLE, LONGEST, BRIEF = 12, 600, 8, 240
PERIODS = (1, 1, 1, 2, 3, 4)
CYCLE = 12  # a multiple of every period
APART, UNSTABLE = 1e-7, 1.0 + 1e-9


def search_stack(
    cascade: Cascade,
    search: Callable[..., Refutation],
    *,
    seed: int = 0,
    time_limit: TimeLimit = None,
    lowest: bool = True,
    region: InputRange = ANYWHERE,
) -> Refutation:
    """Search for a witness against the contraction of a stack.

    Args:
        cascade: the stack.
        search: the search for one layer or network (``stability.refute.refute``).
        seed: of the random starts.
        time_limit: seconds; without one the attempts are counted.
        lowest: whether the layers of the lowest level are to be searched, too.
        region: the range of the data's inputs, searched first.

    Returns:
        A witness that its rule has accepted, or none, which proves nothing.
    """
    deadline, seen = Deadline.after(time_limit), None
    data_range = None if region.low is None else (region.low, region.high)
    for index in range(cascade.directions if lowest else 0):
        found = search(
            cascade.layers[index],
            seed=seed,
            time_limit=deadline.share(0.3 / cascade.directions),
            input_range=data_range,
        )
        if found.proof is not None:
            data = {"layer": index, "kind": found.proof.kind, "data": dict(found.proof.data)}
            answer = _told(accepted(cascade, "cascade_layer", data), found)
            if answer is not None and answer.found:
                return answer
            seen = seen or answer
    whole = merged(cascade)
    if whole is not None:
        found = search(whole, seed=seed, time_limit=deadline.share(0.6), input_range=data_range)
        if found.proof is not None and found.proof.kind in MERGED_KINDS:
            data = {"kind": found.proof.kind, "data": dict(found.proof.data)}
            answer = _told(accepted(cascade, "merged_stack", data), found)
            if answer is not None and answer.found:
                return answer
            seen = seen or answer
    if cascade.directions == 1 and cascade.is_discrete:
        rng = np.random.default_rng(seed)
        with np.errstate(all="ignore"):
            for kind, data in _candidates(cascade, region, rng, deadline):
                if seen is not None and kind == "stack_trajectories":
                    continue
                answer = accepted(cascade, kind, data)
                if answer is not None:
                    answer = replace(answer, input_in_data_range=in_range(data, region))
                    if answer.found:
                        return answer
                    seen = answer
    return seen or Refutation(None, "", (), NOTHING)


def _told(answer: Refutation | None, inner: Refutation) -> Refutation | None:
    """The outcome for the stack, with what is known of the witness inside."""
    if answer is None:
        return None
    return replace(answer, input_in_data_range=inner.input_in_data_range, states_reachable=inner.states_reachable)


def _candidates(
    cascade: Cascade, region: InputRange, rng: np.random.Generator, deadline: Deadline
) -> Iterator[Candidate]:
    """Orbits of the stack and runs that stay apart, box of inputs by box of inputs."""
    lowest = cascade.layers[0]
    own = (lowest.input_low, lowest.input_high) if isinstance(lowest, GatedCell) else (None, None)
    for low, high in input_boxes(*own, region, cascade.inputs):
        sequences = [_inputs(low, high, rng, PERIODS[k % len(PERIODS)], k) for k in range(COUNT)]
        inputs = np.stack([np.resize(u, (CYCLE, cascade.inputs)) for u in sequences], axis=1)
        x = np.stack([_states(cascade, rng, COUNT) for _ in range(2)])
        mean = np.zeros_like(x[0])
        for t in range(SETTLE):
            x = cascade.advance(x, np.broadcast_to(inputs[t % CYCLE], (2, COUNT, cascade.inputs)))
            mean += x[0] / 120 if t >= SETTLE - 120 else 0.0
            if t % 5 == 0 and deadline.stops("refutation"):
                return
        for k in range(COUNT):
            if len(sequences[k]) == 1:
                yield from _unstable(cascade, (x[0, k], mean[k], 0.0 * mean[k]), sequences[k], deadline)
        gaps = np.abs(x[0] - x[1]).max(axis=1)
        for k in np.argsort(-np.where(np.isfinite(gaps), gaps, -1.0)):
            if not gaps[k] > APART or deadline.stops("refutation"):
                break
            yield from _orbits(cascade, x[0, k], x[1, k], sequences[k])
            yield from _replays(cascade, x[0, k], x[1, k], sequences[k], deadline)


def _unstable(cascade: Cascade, guesses: tuple[Array, ...], inputs: Array, deadline: Deadline) -> Iterator[Candidate]:
    """Equilibria of the stack, level by level from each guess, where one layer is unstable."""
    for guess in guesses:
        signal, at, parts, tops = inputs[0], 0, [], []
        for layer in cascade.layers:
            point = equilibrium(layer, guess[at : at + layer.states], signal, deadline)
            if point is None:
                break
            at += layer.states
            parts.append(point)
            tops.append(largest_eigenvalues(layer.jacobian(point, signal))[0])
            signal = point[: layer.outputs]
        worst = int(np.argmax(np.abs(tops))) if len(parts) == len(cascade.layers) else -1
        if worst >= 0 and abs(tops[worst]) > UNSTABLE:
            value = [tops[worst].real, tops[worst].imag]
            yield (
                "stack_unstable",
                {"state": np.concatenate(parts), "input": inputs, "layer": worst, "eigenvalue": value},
            )


def _orbit(cascade: Cascade, state: Array, inputs: Array) -> Array | None:
    """The path of a settled state up to its return."""
    path, period, scale = [state], len(inputs), 1.0 + np.abs(state).max()
    for t in range(LONGEST * period):
        path.append(cascade.advance(path[-1], inputs[t % period]))
        if (t + 1) % period == 0 and np.abs(path[-1] - state).max() < 1e-5 * scale:
            return np.array(path[:-1])
    return None


def _orbits(cascade: Cascade, first: Array, second: Array, inputs: Array) -> Iterator[Candidate]:
    one, two = _orbit(cascade, first, inputs), _orbit(cascade, second, inputs)
    if one is not None and two is not None:
        yield "stack_orbits", {"first": one, "second": two, "input": inputs}
    for orbit in (one, two):
        if orbit is not None and len(orbit) > len(inputs):
            yield "stack_orbits", {"first": orbit, "input": inputs}


def _replays(cascade: Cascade, first: Array, second: Array, inputs: Array, deadline: Deadline) -> Iterator[Candidate]:
    if 2.0 * MIN_STEPS * work(cascade) > MAX_WORK or not deadline.affords(16.0 * MIN_STEPS * work(cascade)):
        return
    brief = replay(cascade.advance, first, second, inputs, BRIEF)
    if why_not_apart(brief, least_gap(brief)) is not None:
        return
    gap = least_gap(replay(cascade.advance, first, second, inputs, 2 * (MIN_STEPS - MIN_STEPS % len(inputs))))
    if gap > 0:
        yield "stack_trajectories", {"first": first, "second": second, "inputs": inputs, "steps": MIN_STEPS, "gap": gap}


def _inputs(low: Array, high: Array, rng: np.random.Generator, period: int, k: int) -> Array:
    """``(period, p)`` inputs in a box, what is nearest to zero first, then corners and inner points by turns."""
    u = 2.0 * rng.uniform(0.5 * low, 0.5 * high, size=(period, len(low)))  # the width of a box may overflow
    corner = np.where(rng.random(u.shape) < 0.5, low, high)
    return np.clip(0.0 * u, low, high) if k == 0 else corner if k % 2 else u


def _states(cascade: Cascade, rng: np.random.Generator, count: int) -> Array:
    parts = []
    for layer in cascade.layers:
        if isinstance(layer, GatedCell):
            parts.append(rng.uniform(-1.0, 1.0, size=(count, layer.states)))
        else:
            spread = 1.0 + (float(np.abs(layer.system.B).sum(axis=1).max()) if layer.system.channels else 0.0)
            parts.append(spread * rng.normal(size=(count, layer.system.states)))
    return np.concatenate(parts, axis=1)
