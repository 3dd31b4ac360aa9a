"""Whether a witness can happen: its input in the data's range, its states within reach of the initial state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.refute.inputs import InputRange
from stability.systems import DrivenSystem
from stability.systems.activations import activation

__all__ = ["in_range", "states_reachable"]

Array = np.ndarray
STATES = ("state", "state1", "state2", "orbit", "first", "second")
CLOSE = 1e-2  # how near a run must come, relative to one plus the state
RUNS = 16


def in_range(data: Mapping[str, Any], region: InputRange) -> bool | None:
    """Whether the inputs of a witness lie in the data's range; ``None`` without a range.

    A witness without an input holds under every one.
    """
    inputs = data.get("input", data.get("inputs"))
    if not region.bounded:
        return None
    return True if inputs is None else region.contains(np.asarray(inputs))


def states_reachable(
    driven: DrivenSystem, data: Mapping[str, Any], region: InputRange, start: Array | None, horizon: int | None
) -> bool | None:
    """Whether the states of a witness against a map can be reached within a number of steps.

    No where a bound on the growth of ``|h|`` excludes it; yes where a simulated run under inputs of the range (or of
    the witness) comes near each of them; else it is not known.

    Args:
        driven: the network.
        data: of the witness.
        region: the data's range of inputs.
        start: ``(n,)`` initial state; zero by default.
        horizon: steps, or ``None`` where there is no such number.

    Returns:
        ``True``, ``False``, or ``None``: not known.
    """
    if horizon is None or not driven.system.is_discrete:
        return None
    begin = np.zeros(driven.system.states) if start is None else np.asarray(start, dtype=np.float64)
    states = [np.atleast_2d(data[key])[0] for key in STATES if isinstance(data.get(key), np.ndarray)]
    with np.errstate(all="ignore"):
        limit = _largest(driven, region, begin, horizon)
        if "difference" in data:
            return False if (np.abs(data["difference"]) > 2.0 * limit).any() else None
        if any((np.abs(state) > limit * (1.0 + 1e-9)).any() for state in states):
            return False
        return True if states and _met(driven, data, region, begin, horizon, states) else None


def _largest(driven: DrivenSystem, region: InputRange, begin: Array, horizon: int) -> Array:
    """Entrywise bound of every state within the horizon, whatever the inputs of the range."""
    system = driven.system
    push = np.zeros(system.states)
    if system.channels:
        push = push + np.abs(system.B).sum(axis=1) * activation(driven.activation).bound
    if driven.F.any():
        if region.low is None or region.high is None:
            return np.full(system.states, np.inf)
        push = push + np.abs(driven.F) @ np.maximum(np.abs(region.low), np.abs(region.high))
    size = largest = np.abs(begin)
    for _ in range(min(horizon, 10_000)):
        size = np.abs(system.A) @ size + push
        largest = np.maximum(largest, size)
    return largest if horizon <= 10_000 else np.full(system.states, np.inf)


def _met(
    driven: DrivenSystem, data: Mapping[str, Any], region: InputRange, begin: Array, horizon: int, states: list[Array]
) -> bool:
    own = np.atleast_2d(data.get("input", np.zeros((1, driven.inputs))))
    tried = np.broadcast_to(own[None], (1, *own.shape))
    if region.bounded:
        drawn = region.draw(np.random.default_rng(0), (RUNS, 1), driven.inputs)
        tried = np.concatenate([tried, np.broadcast_to(drawn, (RUNS, *own.shape))])
    x = np.broadcast_to(begin, (len(tried), len(begin)))
    missing = list(states)
    for t in range(min(horizon, 2000) + 1):
        missing = [s for s in missing if np.abs(x - s).max(axis=1).min() > CLOSE * (1.0 + np.abs(s).max())]
        if not missing:
            return True
        x = driven.advance(x, tried[:, t % len(own)])
    return False
