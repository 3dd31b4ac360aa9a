"""Proofs that a network has an equilibrium in a small box, by Krawczyk's test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.balls import EPS, Ball, activation_slopes, activation_values, row_sum_norm, system_balls
from stability.enclosures import inverse_or_none

__all__ = ["Equilibrium", "enclose_equilibrium"]

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Equilibrium:
    """States and pre-activations of exactly one equilibrium inside a box."""

    state: Ball
    channel: Ball


def enclose_equilibrium(driven: Any, state: Array, inputs: Array) -> Equilibrium | None:
    r"""Exactly one solution of ``A x + B phi(z) + F u = 0`` (``= x``), ``z = C x + D phi(z) + E u + b`` near
    a guess.

    Newton's method in the joint unknown ``(x, z)``, then Krawczyk's test: with ``R`` close to the inverse of
    the Jacobian, the box of radius ``r`` around the guess holds exactly one zero when
    ``|R G| + |I - R J(box)| r <= r`` with the norm below one.

    Args:
        driven: a ``DrivenSystem``.
        state: ``(n,)`` approximate equilibrium.
        inputs: ``(p,)`` the constant input, taken as exact.

    Returns:
        The box, or ``None`` where existence is not proved.
    """
    system, name = driven.system, driven.activation
    n, m = system.states, system.channels
    A, B, C, D = system_balls(system)
    drift = A - np.eye(n) if system.is_discrete else A
    x, z = np.array(state, dtype=np.float64), driven.channel(state, inputs)
    top, free = Ball.exact(driven.F) @ inputs, Ball.exact(driven.E) @ inputs + driven.b

    def residual(x: Array, z: Array) -> Ball | None:
        w = activation_values(name, Ball.exact(z))
        if w is None:
            return None
        first = drift @ x + B @ w + top
        second = C @ x + D @ w + free - z
        return Ball(np.concatenate([first.mid, second.mid]), np.concatenate([first.rad, second.rad]))

    def derivative(z: Ball) -> Ball | None:
        k = activation_slopes(name, z)
        if k is None:
            return None
        return Ball.stack([[drift, B * k[None, :]], [C, D * k[None, :] - np.eye(m)]])

    for _ in range(4):
        value, slope = residual(x, z), derivative(Ball.exact(z))
        if value is None or slope is None:
            return None
        try:
            step = np.linalg.solve(slope.mid, value.mid)
        except np.linalg.LinAlgError:
            return None
        x, z = x - step[:n], z - step[n:]
        if not (np.isfinite(x).all() and np.isfinite(z).all()):
            return None
    value, slope = residual(x, z), derivative(Ball.exact(z))
    if value is None or slope is None:
        return None
    inverse = inverse_or_none(slope.mid)
    if inverse is None:
        return None
    a = row_sum_norm(Ball.exact(inverse) @ value)
    for factor in (1.5, 4.0, 64.0):
        radius = factor * a + 1e-290
        box = derivative(Ball(z, np.full(m, radius)))
        if box is None:
            return None
        b = row_sum_norm(np.eye(n + m) - Ball.exact(inverse) @ box)
        if b < 1.0 and (a + b * radius) * (1 + 8 * EPS) <= radius:
            return Equilibrium(Ball(x, np.full(n, radius)), Ball(z, np.full(m, radius)))
    return None
