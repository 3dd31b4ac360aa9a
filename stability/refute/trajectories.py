"""Search by simulation for two trajectories under one input that stay apart."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from stability.flow import advance_many, natural_step, pair_gaps
from stability.rules.separated_trajectories import MAX_WORK, MIN_STEPS, holds_apart
from stability.systems import DrivenSystem

__all__ = ["search_trajectories"]

Array = np.ndarray


def search_trajectories(
    driven: DrivenSystem,
    *,
    rng: np.random.Generator,
    deadline: float,
    pairs: int = 12,
    inputs: Array | None = None,
) -> dict[str, Any] | None:
    """Let pairs of random states settle, then watch whether their distance goes on shrinking.

    Constant inputs come first; for maps then inputs of period two to four that saturate channels by turns.

    Args:
        driven: the network.
        rng: source of random states and inputs.
        deadline: a ``time.monotonic`` value.
        pairs: how many pairs run at once.
        inputs: ``(k, p)`` inputs worth trying first.

    Returns:
        The data of a ``separated_trajectories`` proof, or ``None``.
    """
    system = driven.system
    if MIN_STEPS * (system.states * (system.states + 2 * system.channels) + 1.0) > MAX_WORK:
        return None
    with np.errstate(all="ignore"):
        found = _constant(driven, rng, deadline, pairs, inputs)
        for period in (2, 3, 4) if system.is_discrete and system.channels and driven.E.any() else ():
            if found is None and time.monotonic() < deadline:
                found = _periodic(driven, rng, deadline, 2 * pairs, period)
    return found


def _spread(driven: DrivenSystem) -> float:
    return 1.0 + (float(np.abs(driven.system.B).sum(axis=1).max()) if driven.system.channels else 0.0)


def _constant(
    driven: DrivenSystem, rng: np.random.Generator, deadline: float, pairs: int, inputs: Array | None
) -> dict[str, Any] | None:
    n, p = driven.system.states, driven.inputs
    u = rng.normal(size=(pairs, p)) * np.logspace(-1, 1, pairs)[:, None]
    u[0] = 0.0
    if inputs is not None:
        u[1 : 1 + len(inputs)] = inputs[: pairs - 1]
    x = rng.normal(size=(2, pairs, n)) * _spread(driven)
    step, both = natural_step(driven), np.broadcast_to(u, (2, pairs, p))
    for _ in range(4):
        for _ in range(1000):
            x = advance_many(driven, x, both, step)
            if time.monotonic() > deadline:
                return None
        order = _apart(x)
        if not len(order):
            return None
    for i in order:
        found = None if time.monotonic() > deadline else _replay(driven, x[0, i], x[1, i], u[i], step, deadline)
        if found is not None:
            return found
    return None


def _apart(x: Array) -> Array:
    """Indices of the pairs ``(2, pairs, n)`` that are still apart, the farthest first."""
    gaps = np.linalg.norm(x[0] - x[1], axis=1)
    size = np.linalg.norm(x, axis=2).max(axis=0)
    alive = np.isfinite(gaps) & (size < 1e9) & (gaps > 1e-3 * (1e-3 + size))
    order = np.argsort(-np.where(alive, gaps, -1.0))
    return order[: int(alive.sum())]


def _periodic(
    driven: DrivenSystem, rng: np.random.Generator, deadline: float, pairs: int, period: int
) -> dict[str, Any] | None:
    """Inputs chosen, step by step, so that some channels are steep and the others flat, others in every phase."""
    n, m, p = driven.system.states, driven.system.channels, driven.inputs
    inverse = np.linalg.pinv(driven.E)
    flat = np.where(rng.random((period, pairs, m)) < 0.5, 5.0 * rng.choice([-1.0, 1.0], (period, pairs, m)), 0.0)
    u, x = np.zeros((period, pairs, p)), np.zeros((pairs, n))
    for t in range(8 * period):
        k = t % period
        if t < 6 * period:  # the input that brings the channels there from the state reached; then it stays
            u[k] = (flat[k] - driven.channel(x, np.zeros((pairs, p)))) @ inverse.T
        x = driven.advance(x, u[k])
    both = np.stack([x, x + 0.3 * _spread(driven) * rng.normal(size=x.shape)])
    for _ in range(4):
        for t in range(60 * period):
            both = driven.advance(both, np.broadcast_to(u[t % period], (2, pairs, p)))
            if time.monotonic() > deadline:
                return None
        order = _apart(both)
        if not len(order):
            return None
    for i in order:
        if time.monotonic() > deadline:
            break
        found = _replay(driven, both[0, i], both[1, i], np.ascontiguousarray(u[:, i]), 1.0, deadline)
        if found is not None:
            return found
    return None


def _replay(
    driven: DrivenSystem, first: Array, second: Array, u: Array, step: float, deadline: float
) -> dict[str, Any] | None:
    """Longer and longer runs, until the distance has stopped shrinking or time is up; ``u`` is (p,) or (k, p)."""
    inputs = np.atleast_2d(u)
    for steps in (MIN_STEPS, 2 * MIN_STEPS, 4 * MIN_STEPS):
        if time.monotonic() > deadline:
            return None
        runs = [pair_gaps(driven, first, second, u, step, steps)]
        if not driven.system.is_discrete:
            runs.append(pair_gaps(driven, first, second, u, 0.5 * step, 2 * steps))
        gap = 0.5 * min(float(run.min()) for run in runs)
        if gap > 0 and all(holds_apart(run, gap) for run in runs):
            total = float(steps) if driven.system.is_discrete else step * steps
            return {"first": first, "second": second, "input": u, "time": total, "steps": steps, "gap": gap}
        x = np.stack([first, second])
        for t in range(12 * (steps // 12)):  # whole periods: the next run starts in the same phase
            x = advance_many(driven, x, np.broadcast_to(inputs[t % len(inputs)], (2, inputs.shape[1])), step)
        first, second = x
    return None
