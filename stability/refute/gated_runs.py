"""Runs of a gated cell under periodic inputs, and the witnesses that are made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stability.gated.bounds import gate_bounds
from stability.gated.cell import GatedCell
from stability.gated.orbits import polish_orbit
from stability.rigor.intervals import Interval
from stability.rules.gated_boxes import is_kept
from stability.rules.gated_orbits import MAX_UNKNOWNS
from stability.rules.gated_trajectories import MAX_WORK, MIN_STEPS, cell_work
from stability.rules.replay import least_gap, replay, why_not_apart
from stability.solve.deadline import Deadline

__all__ = ["STARTS", "box_pair", "orbit_near", "replay_data", "run", "starts"]

Array = np.ndarray
Candidate = tuple[str, dict[str, Any]]
STARTS = 12
LONGEST = 24
TAIL = 100
BRIEF = 240  # steps that show most of what is no evidence


def starts(cell: GatedCell, rng: np.random.Generator, count: int) -> Array:
    """Initial states ``(count, STARTS, n)``, the zero state first, then inner points and corners of ``|h| <= 1``."""
    h = rng.uniform(-1.0, 1.0, size=(count, STARTS, cell.hidden))
    h[:, STARTS // 2 :] = np.sign(h[:, STARTS // 2 :])
    h[:, 0] = 0.0
    if cell.kind == "gru":
        return h
    size = np.exp(rng.uniform(-1.0, 3.0, size=(count, STARTS, 1)))
    return np.concatenate([np.tanh(size * h), size * h], axis=-1)


def run(cell: GatedCell, states: Array, inputs: Array, steps: int, deadline: Deadline) -> tuple[Array, Array]:
    """States after ``steps`` and their averages over the last hundred.

    Args:
        cell: the cell.
        states: ``(count, k, n)``.
        inputs: ``(q, count, p)``, used in turn.
        steps: how many, a multiple of ``q``.
        deadline: when to stop early.

    Returns:
        ``(count, k, n)`` twice.
    """
    total, tail = np.zeros_like(states), min(TAIL, steps)
    for t in range(steps):
        u = np.broadcast_to(inputs[t % len(inputs)][:, None, :], (*states.shape[:2], inputs.shape[2]))
        states = cell.advance(states, u)
        if t >= steps - tail:
            total = total + states
        if t % 5 == 4 and deadline.stops("refutation"):
            break
    return states, total / tail


def orbit_near(cell: GatedCell, state: Array, inputs: Array, deadline: Deadline) -> Array | None:
    """The orbit that a settled state runs under ``inputs (q, p)``, made exact; ``None`` without a short period."""
    path, period = [state], len(inputs)
    scale = 1.0 + np.abs(state).max()
    for t in range(LONGEST):
        path.append(cell.advance(path[-1], inputs[t % period]))
        length = len(path) - 1
        if length % period == 0 and np.abs(path[-1] - state).max() < 1e-5 * scale:
            cost = 8.0 * (length * cell.states) ** 3  # of Newton's steps on the shooting equations
            if length * cell.states > MAX_UNKNOWNS or not deadline.affords(cost):
                return None
            orbit = polish_orbit(cell, np.array(path[:-1]), inputs)
            return None if orbit is None or np.abs(orbit[0] - state).max() > 1e-2 * scale else orbit
    return None


def box_pair(cell: GatedCell, first: Array, second: Array, inputs: Array, deadline: Deadline) -> Iterator[Candidate]:
    """Two disjoint boxes around two runs that no step leaves, under every input where that is so."""
    cells = [cell.with_inputs(u, u) for u in inputs]
    one, two = (_kept_box(cells, state, inputs, deadline) for state in (first, second))
    if one is None or two is None:
        return
    if not (np.maximum(two.low - one.high, one.low - two.high) > 0.0).any():
        return
    data = {"first_low": one.low, "first_high": one.high, "second_low": two.low, "second_high": two.high}
    everywhere = is_kept(cell, one) and is_kept(cell, two)
    yield "gated_boxes", data if everywhere else {**data, "input": inputs}


def _kept_box(
    cells: list[GatedCell], state: Array, inputs: Array, deadline: Deadline, sweeps: int = 60
) -> Interval | None:
    """A box around a run that no step leaves: the hull of the run, widened by its own image until it holds it."""
    low = high = state
    for t in range(200):
        state = cells[t % len(cells)].advance(state, inputs[t % len(inputs)])
        low, high = np.minimum(low, state), np.maximum(high, state)
    for _ in range(sweeps):
        if deadline.stops("refutation"):
            return None
        room = 1e-9 + 0.02 * (high - low)
        box = Interval(low - room, high + room)
        if all(is_kept(cell, box) for cell in cells):
            return box
        images = [gate_bounds(cell, box)["next"] for cell in cells]
        low = np.minimum.reduce([low, *(x.low for x in images)])
        high = np.maximum.reduce([high, *(x.high for x in images)])
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            return None
    return None


def replay_data(cell: GatedCell, first: Array, second: Array, inputs: Array, deadline: Deadline) -> Iterator[Candidate]:
    """Two runs to be replayed by the rule, with the gap that they keep."""
    if 2.0 * MIN_STEPS * cell_work(cell) > MAX_WORK or not deadline.affords(16.0 * MIN_STEPS * cell_work(cell)):
        return
    brief = replay(cell.advance, first, second, inputs, BRIEF * len(inputs))
    if why_not_apart(brief, least_gap(brief)) is not None:
        return
    length = 2 * (MIN_STEPS - MIN_STEPS % len(inputs))
    gap = least_gap(replay(cell.advance, first, second, inputs, length))
    if gap > 0.0:
        yield "gated_trajectories", {"first": first, "second": second, "input": inputs, "steps": MIN_STEPS, "gap": gap}
