"""Periodic orbits of maps, from simulated trajectories that settle on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import block_diag

from stability.kernel.arithmetic.eigenpairs import solved
from stability.search.solvers.deadline import Deadline

Array = np.ndarray


def closed_path(subject: Any, state: Array, inputs: Array, longest: int) -> Array | None:
    """The path ``(k, n)`` of a settled state under ``inputs (q, p)`` up to its return within ``longest`` steps."""
    path, q, scale = [state], len(inputs), 1.0 + np.abs(state).max()
    for t in range(longest):
        path.append(subject.advance(path[-1], inputs[t % q]))
        if (t + 1) % q == 0 and np.abs(path[-1] - state).max() < 1e-5 * scale:
            return np.array(path[:-1])
    return None


def orbit_near_state(subject: Any, state: Array, inputs: Array, longest: int, deadline: Deadline) -> Array | None:
    """The orbit that a settled state runs, made exact, or ``None`` when it has no short period."""
    path = closed_path(subject, state, inputs, longest)
    orbit = None if path is None else refine_orbit(subject, path, inputs, deadline=deadline)
    near = orbit is not None and np.abs(orbit[0] - state).max() <= 1e-2 * (1.0 + np.abs(state).max())
    return orbit if near else None


def refine_orbit(
    subject: Any, points: Array, inputs: Array, steps: int = 12, *, deadline: Deadline | None = None
) -> Array | None:
    """Newton's method on ``F(x_i, u_i) = x_{i+1}`` in plain floating point.

    Args:
        subject: a map with ``advance`` and ``jacobian``.
        points: ``(k, n)`` approximate orbit.
        inputs: ``(q, p)``, ``q`` divides ``k``.
        steps: most Newton steps.
        deadline: asked before each of them, whose matrix has ``(k n)^2`` entries.

    Returns:
        The orbit, or ``None`` where Newton's method does not settle, or not in time.
    """
    x = np.array(points, dtype=np.float64)
    k, n = x.shape
    u = inputs[np.arange(k) % len(inputs)]
    ahead = np.roll(np.eye(k * n), n, axis=1)
    for _ in range(steps):
        if deadline is not None and not deadline.affords(0.7 * (k * n) ** 3):
            return None
        value = subject.advance(x, u) - np.roll(x, -1, axis=0)
        move = solved(np.asarray(block_diag(*map(subject.jacobian, x, u))) - ahead, value.reshape(-1))
        if move is None:
            return None
        x = x - move.reshape(k, n)
        if np.abs(move).max() <= 1e-13 * (1.0 + np.abs(x).max()):
            return x
    return None
