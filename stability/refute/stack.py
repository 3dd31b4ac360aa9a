"""Search for what keeps a stack from contracting: its lowest level alone, the stack as one network, its runs.

An upper layer may be unstable under inputs that the level below never puts out, so it is never judged alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stability.gated import GatedCell
from stability.merged import merged
from stability.refute.answer import NOTHING, Refutation, witness_claim
from stability.rules.registry import RULES
from stability.rules.separated_trajectories import MAX_WORK, MIN_STEPS, holds_apart
from stability.rules.stack_witness import MERGED_KINDS, run_gaps, work
from stability.stacks import Cascade

__all__ = ["search_stack"]

Array = np.ndarray
PERIODS = (1, 1, 1, 2, 3, 4)


def search_stack(
    cascade: Cascade, search: Callable[..., Refutation], *, seed: int = 0, time_limit: float = 10.0, lowest: bool = True
) -> Refutation:
    """Search for a witness against the contraction of a stack.

    Args:
        cascade: the stack.
        search: the search for one layer or network (``stability.refute.refute``).
        seed: of the random starts.
        time_limit: seconds.
        lowest: whether the layers of the lowest level are to be searched, too.

    Returns:
        A witness that its rule has accepted, or none, which proves nothing.
    """
    end = time.monotonic() + time_limit
    for index in range(cascade.directions if lowest else 0):
        found = search(cascade.layers[index], seed=seed, time_limit=0.3 * time_limit / cascade.directions)
        if found.proof is not None:
            data = {"layer": index, "kind": found.proof.kind, "data": dict(found.proof.data)}
            return _accepted(cascade, "cascade_layer", data) or found
    whole = merged(cascade)
    if whole is not None:
        found = search(whole, seed=seed, time_limit=0.6 * max(end - time.monotonic(), 0.0))
        if found.proof is not None and found.proof.kind in MERGED_KINDS:
            answer = _accepted(cascade, "merged_stack", {"kind": found.proof.kind, "data": dict(found.proof.data)})
            if answer is not None:
                return answer
    answer = None
    if cascade.directions == 1 and cascade.is_discrete and MIN_STEPS * work(cascade) <= MAX_WORK:
        with np.errstate(all="ignore"):
            answer = _by_runs(cascade, np.random.default_rng(seed), end)
    return answer or Refutation(None, "", (), NOTHING)


def _accepted(cascade: Cascade, kind: str, data: dict[str, Any]) -> Refutation | None:
    claim = witness_claim(cascade, kind, data)
    valid, reason = RULES[kind](cascade, claim)
    return Refutation(claim.proof, claim.statement, (), reason) if valid else None


def _by_runs(cascade: Cascade, rng: np.random.Generator, end: float, count: int = 12) -> Refutation | None:
    """Pairs of random states settle under periodic inputs; where the distance stops shrinking, the run is replayed."""
    sequences = [_inputs(cascade, rng, PERIODS[k % len(PERIODS)], k, count) for k in range(count)]
    inputs = np.stack([np.resize(u, (12, cascade.inputs)) for u in sequences], axis=1)  # 12: a multiple of every period
    x = np.stack([_states(cascade, rng, count) for _ in range(2)])
    for t in range(1200):
        x = cascade.advance(x, np.broadcast_to(inputs[t % 12], (2, count, cascade.inputs)))
        if t % 20 == 0 and time.monotonic() > end:
            return None
    gaps, size = np.linalg.norm(x[0] - x[1], axis=1), np.linalg.norm(x, axis=2).max(axis=0)
    alive = np.isfinite(gaps) & (size < 1e9) & (gaps > 1e-3 * (1e-3 + size))
    for k in np.argsort(-np.where(alive, gaps, -1.0)):
        if not alive[k] or time.monotonic() > end:
            break
        distances = run_gaps(cascade, x[0, k], x[1, k], sequences[k], MIN_STEPS)
        gap = 0.5 * float(distances.min())
        if gap > 0 and holds_apart(distances, gap):
            data = {"first": x[0, k], "second": x[1, k], "inputs": sequences[k], "steps": MIN_STEPS, "gap": gap}
            answer = _accepted(cascade, "stack_trajectories", data)
            if answer is not None:
                return answer
    return None


def _inputs(cascade: Cascade, rng: np.random.Generator, period: int, k: int, count: int) -> Array:
    """``(period, p)`` inputs of sizes from a tenth to ten, zero first, or in the box of the lowest level."""
    lowest, shape = cascade.layers[0], (period, cascade.inputs)
    if isinstance(lowest, GatedCell) and lowest.input_low is not None and lowest.input_high is not None:
        return rng.uniform(lowest.input_low, lowest.input_high, size=shape)
    return rng.normal(size=shape) * (0.0 if k == 0 else 10.0 ** (-1.0 + 2.0 * k / (count - 1)))


def _states(cascade: Cascade, rng: np.random.Generator, count: int) -> Array:
    parts = []
    for layer in cascade.layers:
        if isinstance(layer, GatedCell):
            parts.append(rng.uniform(-1.0, 1.0, size=(count, layer.states)))
        else:
            spread = 1.0 + (float(np.abs(layer.system.B).sum(axis=1).max()) if layer.system.channels else 0.0)
            parts.append(spread * rng.normal(size=(count, layer.system.states)))
    return np.concatenate(parts, axis=1)
