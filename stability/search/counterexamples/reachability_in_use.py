"""Checks that a counterexample can occur: inputs in the data's range, states within reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.intervals import Interval
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_bounds import gate_bounds
from stability.kernel.systems.gated_cell import GatedCell
from stability.search.trajectories.input_range import InputRange

Array = np.ndarray
STATES = ("state", "state1", "state2", "orbit", "first", "second")
CLOSE = 1e-2  # how near a run must come, relative to one plus the state
RUNS = 16  # simulated runs under random inputs of the range


def inputs_in_range(data: Mapping[str, Any], region: InputRange) -> bool | None:
    """Return True if the inputs of a witness lie in the data's range; ``None`` without a range.

    A witness without an input holds under every one.
    """
    inputs = data.get("input", data.get("inputs"))
    if not region.bounded:
        return None
    return True if inputs is None else region.contains(np.asarray(inputs))


def states_reachable(
    subject: Any, data: Mapping[str, Any], region: InputRange, start: Array | None, horizon: int | None
) -> bool | None:
    """Decide if the states of a witness against a map can be reached within a number of steps.

    No where a bound on every state excludes it; yes where a run comes to each of them; else it is not known.

    Args:
        subject: the network or gated cell; of others nothing is known.
        data: data of the witness.
        region: the data's range of inputs.
        start: ``(n,)`` initial state; zero by default.
        horizon: steps, or ``None`` where there is no such number.

    Returns:
        ``True``, ``False``, or ``None``: not known.
    """
    known = _REACHABLE.get(type(subject))
    if known is None or horizon is None or not subject.is_discrete:
        return None
    begin = np.zeros(subject.states) if start is None else np.asarray(start, dtype=np.float64)
    states = [np.atleast_2d(data[key])[0] for key in STATES if isinstance(data.get(key), np.ndarray)]
    with np.errstate(all="ignore"):
        return known(subject, data, region, begin, horizon, states)


def _driven(
    driven: DrivenSystem, data: Mapping[str, Any], region: InputRange, begin: Array, horizon: int, states: list[Array]
) -> bool | None:
    """Decide by a bound on the growth of ``|h|`` and by simulation under inputs of the range (or of the witness)."""
    limit = _largest(driven, region, begin, horizon)
    if "difference" in data:
        return False if (np.abs(data["difference"]) > 2.0 * limit).any() else None
    if any((np.abs(state) > limit * (1.0 + 1e-9)).any() for state in states):
        return False
    return True if states and _simulation_reaches(driven, data, region, begin, horizon, states) else None


def _gated(
    cell: GatedCell, data: Mapping[str, Any], region: InputRange, begin: Array, horizon: int, states: list[Array]
) -> bool | None:
    """Decide by interval arithmetic, step by step, for every input in the range (or the cell's own box).

    In one step the state of an LSTM grows by at most one; the run under the witness's inputs shows what is reached.
    """
    read = cell.with_inputs(region.low, region.high) if region.bounded else cell
    inputs, box, x = np.atleast_2d(data["input"]), Interval.point(begin), begin
    inside, close = [False] * len(states), [False] * len(states)
    for t in range(horizon + 1):
        for k, state in enumerate(states):
            inside[k] |= box.contains(Interval.point(state))
            close[k] |= bool(np.abs(x - state).max() <= 1e-6 * (1.0 + np.abs(state).max()))
        box, x = gate_bounds(read, box)["next"], cell.advance(x, inputs[t % len(inputs)])
    if not all(inside):
        return False
    return True if all(close) and region.contains(inputs) else None


def _largest(driven: DrivenSystem, region: InputRange, begin: Array, horizon: int) -> Array:
    """Bound every state within the horizon entrywise, for all inputs of the range."""
    system = driven.system
    push = np.zeros(system.states)
    if system.channels:
        push = push + np.abs(system.B).sum(axis=1) * activation(driven.activation).bound
    if driven.F.any():
        if not region.bounded:
            return np.full(system.states, np.inf)
        push = push + np.abs(driven.F) @ np.maximum(np.abs(region.low), np.abs(region.high))
    size = largest = np.abs(begin)
    for _ in range(min(horizon, 10_000)):
        size = np.abs(system.A) @ size + push
        largest = np.maximum(largest, size)
    return largest if horizon <= 10_000 else np.full(system.states, np.inf)


def _simulation_reaches(
    driven: DrivenSystem, data: Mapping[str, Any], region: InputRange, begin: Array, horizon: int, states: list[Array]
) -> bool:
    inputs = np.atleast_2d(data.get("input", np.zeros((1, driven.inputs))))
    tried = np.broadcast_to(inputs[None], (1, *inputs.shape))
    if region.bounded:
        random_inputs = region.draw(np.random.default_rng(0), (RUNS, 1), driven.inputs)
        tried = np.concatenate([tried, np.broadcast_to(random_inputs, (RUNS, *inputs.shape))])
    x = np.broadcast_to(begin, (len(tried), len(begin)))
    missing = list(states)
    for t in range(min(horizon, 2000) + 1):
        missing = [s for s in missing if np.abs(x - s).max(axis=1).min() > CLOSE * (1.0 + np.abs(s).max())]
        if not missing:
            return True
        x = driven.advance(x, tried[:, t % len(inputs)])
    return False


_REACHABLE: dict[type, Callable[..., bool | None]] = {DrivenSystem: _driven, GatedCell: _gated}
