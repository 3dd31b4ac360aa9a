"""Periodic orbits of maps, from simulated trajectories that converge to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.eigenpairs import (
    Matrix,
    approximate_solution,
    closed_loop_orbit,
    enclose_eigenpair,
    inverse_iteration,
)
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.periodic_orbits import MAX_UNKNOWNS, orbit_equations_size
from stability.search.counterexamples.equilibrium_manifold import slopes_at
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.simulation import simulate_path

Array = np.ndarray


def closed_path(subject: Any, state: Array, inputs: Array, longest: int) -> Array | None:
    """Return the path ``(k, n)`` of a settled state under ``inputs (q, p)`` until its return, or ``None``."""
    path, q, scale = [state], len(inputs), 1.0 + np.abs(state).max()
    for t in range(longest):
        path.append(subject.advance(path[-1], inputs[t % q]))
        if (t + 1) % q == 0 and np.abs(path[-1] - state).max() < 1e-5 * scale:
            return np.array(path[:-1])
    return None


def orbit_near_state(subject: Any, state: Array, inputs: Array, longest: int, deadline: Deadline) -> Array | None:
    """Return the refined orbit of a settled state, or ``None`` without a short period."""
    path = closed_path(subject, state, inputs, longest)
    orbit = None if path is None else refine_orbit(subject, path, inputs, deadline=deadline)
    close = orbit is not None and np.abs(orbit[0] - state).max() <= 1e-2 * (1.0 + np.abs(state).max())
    return orbit if close else None


def refine_orbit(
    subject: Any, points: Array, inputs: Array, steps: int = 12, *, deadline: Deadline | None = None
) -> Array | None:
    """Run Newton's method on ``F(x_i, u_i) = x_{i+1}`` in plain floating point.

    Args:
        subject: a map with ``advance`` and ``jacobian``.
        points: ``(k, n)`` approximate orbit.
        inputs: ``(q, p)``, ``q`` divides ``k``.
        steps: most Newton steps.
        deadline: checked before each step; the matrix of a step has ``(k n)^2`` entries.

    Returns:
        The orbit, or ``None`` if Newton's method does not converge, or not in time.
    """
    x = np.array(points, dtype=np.float64)
    k, n = x.shape
    u = inputs[np.arange(k) % len(inputs)]
    shift = np.roll(np.eye(k * n), n, axis=1)
    for _ in range(steps):
        if deadline is not None and not deadline.affords(0.7 * (k * n) ** 3):
            return None
        value = subject.advance(x, u) - np.roll(x, -1, axis=0)
        move = approximate_solution(np.asarray(block_diag(*map(subject.jacobian, x, u))) - shift, value.reshape(-1))
        if move is None:
            return None
        x = x - move.reshape(k, n)
        if np.abs(move).max() <= 1e-13 * (1.0 + np.abs(x).max()):
            return x
    return None


def orbits_near_returns(
    driven: DrivenSystem, state: Array, inputs: Array, tries: int = 6, *, deadline: Deadline | None = None
) -> Iterator[Array]:
    """Yield orbits close to a run, including repelling ones: cycles inside a chaotic attractor.

    The run has 400 steps. For each short period Newton's method starts where the run returns closest to itself.

    Yields:
        Refined orbits.
    """
    q, run = len(inputs), simulate_path(driven, state, inputs, 401, deadline)
    if deadline is not None and deadline.over:
        return
    if not np.isfinite(run).all():
        return
    orbits = []
    for k in range(q, 13, q):
        if orbit_equations_size(driven, k) > MAX_UNKNOWNS:
            break
        distance = np.abs(run[k:] - run[:-k]).max(axis=1)[::q]
        at = q * int(np.argmin(distance))
        orbits.append((float(distance.min()), k, at))
    for _, k, at in sorted(orbits)[:tries]:
        orbit = refine_orbit(driven, run[at : at + k], inputs, deadline=deadline)
        if orbit is not None:
            yield orbit


def orbit_multiplier(driven: DrivenSystem, orbit: Array, inputs: Array) -> complex:
    """Return the root of the leading multiplier, per step; for an equilibrium of a flow the leading eigenvalue."""
    product = np.eye(orbit.shape[1])
    for i, x in enumerate(orbit):
        product = driven.jacobian(x, inputs[i % len(inputs)]) @ product
    if not np.isfinite(product).all():
        return complex(0.0)
    values = np.linalg.eigvals(product)
    top = complex(values[int(np.argmax(np.abs(values) if driven.system.is_discrete else values.real))])
    return top if len(orbit) == 1 else complex(top) ** (1.0 / len(orbit))


def refined_eigenvalue(pencil: Matrix, value: complex) -> list[float]:
    """Return an eigenvalue to floating-point precision: the center of its enclosure if there is one."""
    vector = inverse_iteration(pencil, value)
    pair = None if vector is None else enclose_eigenpair(pencil, value, vector)
    best = value if pair is None or abs(pair.value - value) > 1e-3 * (1e-6 + abs(value)) else pair.value
    return [float(best.real), abs(float(best.imag))]


def refined_orbit_eigenvalue(driven: DrivenSystem, orbit: Array, inputs: Array, value: complex) -> list[float]:
    """Return ``refined_eigenvalue`` of the linearization along an orbit."""
    slopes = np.stack([slopes_at(driven, x, inputs[i % len(inputs)])[1] for i, x in enumerate(orbit)])
    return refined_eigenvalue(closed_loop_orbit(driven.system, Ball.exact(slopes)), value)
