"""Newton's method on the manifold of equilibria ``(x, u)`` of a network."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lstsq

from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.eigenpairs import approximate_solution
from stability.kernel.systems.channels import close_loop
from stability.kernel.systems.driven import DrivenSystem
from stability.search.solvers.deadline import Deadline

Array = np.ndarray


def equilibrium_residual(subject: Any, x: Array, u: Array) -> Array:
    """Return the residual of an equilibrium: the right-hand side of a flow, or the next state minus the state."""
    change = subject.advance(x, u)
    return change - x if subject.is_discrete else change


def slopes_at(driven: DrivenSystem, x: Array, u: Array) -> tuple[Array, Array]:
    """Return pre-activations and slopes at a point."""
    z = driven.channel(x, u)
    return z, np.asarray(activation(driven.activation).derivative(z), dtype=np.float64)


def residual_jacobians(driven: DrivenSystem, x: Array, u: Array) -> tuple[Array, Array]:
    """Return the Jacobians ``g_x (n, n)`` and ``g_u (n, p)`` of ``equilibrium_residual``."""
    system = driven.system
    _, k = slopes_at(driven, x, u)
    gx = system.jacobian(k) - (np.eye(system.states) if system.is_discrete else 0.0)
    return gx, (system.B * k) @ close_loop(system.D, k, driven.E) + driven.F


def newton_equilibrium(
    subject: Any, x: Array, u: Array, steps: int = 40, *, deadline: Deadline | None = None
) -> Array | None:
    """Return an equilibrium for this input near ``x`` by Newton's method with step halving, or ``None``.

    Args:
        subject: a network, gated cell, or anything else with ``advance`` and ``jacobian``.
        x: ``(n,)`` guess.
        u: ``(p,)`` constant input.
        steps: maximum number of steps.
        deadline: checked before each step.
    """
    x = np.array(x, dtype=np.float64)
    shift = np.eye(len(x)) if subject.is_discrete else 0.0
    value = equilibrium_residual(subject, x, u)
    size = float(np.linalg.norm(value))
    for _ in range(steps):
        if not np.isfinite(size) or (deadline is not None and deadline.over):
            return None
        step = approximate_solution(subject.jacobian(x, u) - shift, value)
        if step is None:
            return None
        length = 1.0
        while True:
            trial = x - length * step
            change = equilibrium_residual(subject, trial, u)
            new = float(np.linalg.norm(change))
            if new < (1.0 - 0.1 * length) * size or length < 1e-3:
                break
            length *= 0.5
        done = float(np.abs(trial - x).max()) <= 1e-12 * (1.0 + float(np.abs(x).max()))
        if length < 1e-3 and not done:
            return None if size > 1e-9 * (1.0 + float(np.abs(x).max())) else x
        x, value, size = trial, change, new
        if done:
            return x
    return None


def equilibrium_at_input(
    driven: DrivenSystem, x: Array, u: Array, steps: int, deadline: Deadline | None
) -> tuple[Array, Array] | None:
    """Return the point ``(x, u)`` of the manifold near ``x`` with exactly this input, or ``None``."""
    equilibrium = newton_equilibrium(driven, x, u, steps, deadline=deadline)
    return None if equilibrium is None else (equilibrium, u)


def project_to_manifold(
    driven: DrivenSystem, x: Array, u: Array, steps: int = 25, *, deadline: Deadline | None = None
) -> tuple[Array, Array] | None:
    """Return the point of the manifold near ``(x, u)`` by Gauss-Newton in state and input, or ``None``."""
    n = len(x)
    for _ in range(steps if driven.E.any() or driven.F.any() else 0):
        value = equilibrium_residual(driven, x, u)
        if not np.isfinite(value).all() or (deadline is not None and deadline.over):
            return None
        both = np.hstack(residual_jacobians(driven, x, u))
        if not np.isfinite(both).all():
            return None
        least = lstsq(both, value, cond=1e-12, lapack_driver="gelsy", check_finite=False)  # the least-norm step
        assert least is not None  # for the type checker: this driver always returns a solution
        step = least[0]
        limit = 3.0 * (1.0 + float(np.abs(x).max()) + float(np.abs(u).max(initial=0.0)))
        step *= min(1.0, limit / max(float(np.abs(step).max()), 1e-300))
        x, u = x - step[:n], u - step[n:]
        if float(np.abs(step).max()) <= 1e-12 * (1.0 + float(np.abs(x).max())):
            return equilibrium_at_input(driven, x, u, 5, deadline) or (x, u)
    return equilibrium_at_input(driven, x, u, 40, deadline)
