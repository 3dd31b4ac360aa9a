r"""Krawczyk's test: proofs that an equilibrium or a periodic orbit exists in a small box.

Source: R. Krawczyk, "Newton-Algorithmen zur Bestimmung von Nullstellen mit Fehlerschranken", Computing 4 (1969).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.kernel.arithmetic.activation_bounds import activation_slopes, activation_values
from stability.kernel.arithmetic.balls import Ball, row_sum_norm, system_balls
from stability.kernel.arithmetic.eigenpairs import approximate_solution, inverse_or_none
from stability.kernel.arithmetic.floating_point import EPS

Array = np.ndarray
MOVED = 1e-3  # largest distance from the given points to the solution, relative to one plus their size


@dataclass(frozen=True, eq=False)
class Orbit:
    """Box with exactly one orbit of period ``k``: states ``(k, n)`` and pre-activations ``(k, m)``."""

    states: Ball
    channels: Ball


class _Shooting:
    """Shooting equations of an orbit in ``(x_0 .. x_{k-1}, z_0 .. z_{k-1})`` and their derivative."""

    def __init__(self, driven: Any, inputs: Array, period: int) -> None:
        system = driven.system
        self.name, self.discrete, self.period = driven.activation, system.is_discrete, period
        self.n, self.m = system.states, system.channels
        self.A, self.B, self.C, self.D = system_balls(system)
        self.state_inputs = [Ball.exact(driven.F) @ u for u in inputs]
        self.channel_inputs = [Ball.exact(driven.E) @ u + driven.b for u in inputs]

    def __call__(self, point: Ball) -> tuple[Ball, Ball]:
        """Return the left-hand sides and their derivative at ``(x, z)``, ``(k (n + m),)``."""
        split = self.period * self.n
        x, z = point[:split].reshape(self.period, self.n), point[split:].reshape(self.period, self.m)
        return self.residual(x, z), self.derivative(z)

    def residual(self, x: Ball, z: Ball) -> Ball:
        w = activation_values(self.name, z)
        rows, channels = [], []
        for i in range(self.period):
            u = i % len(self.state_inputs)
            row = self.A @ x[i] + self.B @ w[i] + self.state_inputs[u]
            rows.append(row - x[(i + 1) % self.period] if self.discrete else row)
            channels.append(self.C @ x[i] + self.D @ w[i] + self.channel_inputs[u] - z[i])
        return Ball.join(*rows, *channels)

    def derivative(self, z: Ball) -> Ball:
        slopes = activation_slopes(self.name, z)
        k, n, m = self.period, self.n, self.m
        size = k * (n + m)
        mid, rad = np.zeros((size, size)), np.zeros((size, size))

        def put(row: int, column: int, block: Ball) -> None:
            place = np.s_[row : row + block.shape[0], column : column + block.shape[1]]
            mid[place], rad[place] = block.mid, block.rad

        moved = self.A - np.eye(n) if self.discrete and k == 1 else self.A
        for i in range(k):
            turn, offset = slopes[i][None, :], k * n + i * m
            put(i * n, i * n, moved)
            put(i * n, offset, self.B * turn)
            put(offset, i * n, self.C)
            put(offset, offset, self.D * turn - np.eye(m))
            if k > 1:
                put(i * n, ((i + 1) % k) * n, Ball.exact(-np.eye(n)))
        return Ball(mid, rad)


def enclose_orbit(driven: Any, points: Array, inputs: Array) -> Orbit | None:
    r"""Enclose one orbit near a guess: ``x_{i+1} = A x_i + B phi(z_i) + F u_i`` with
    ``z_i = C x_i + D phi(z_i) + E u_i + b``, ``i`` modulo the period; in continuous time an equilibrium, ``0 = ...``.

    Newton's method in the joint unknown ``(x, z)``, then Krawczyk's test: with ``R`` close to the inverse of
    the Jacobian, the box of radius ``r`` around the guess holds exactly one zero when
    ``|R G| + |I - R J(box)| r <= r`` with the norm below one.

    Args:
        driven: a ``DrivenSystem``.
        points: ``(k, n)`` approximate orbit; in continuous time ``k = 1``.
        inputs: ``(q, p)`` the periodic input, taken as exact; ``q`` divides ``k``.

    Returns:
        The box, or ``None`` where existence is not proved.

    Example:
        >>> from stability import DrivenSystem, LureSystem
        >>> flip = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[-2.0]], dt=1.0), "tanh", [[0.0]])
        >>> orbit = enclose_orbit(flip, np.array([[0.957], [-0.957]]), np.zeros((1, 1)))
        >>> bool(np.abs(orbit.states.mid - np.tanh(-2 * orbit.states.mid[::-1])).max() < 1e-15)
        True
    """
    k, n = points.shape
    if k % len(inputs) or (k > 1 and not driven.system.is_discrete):
        return None
    z = [driven.channel(point, inputs[i % len(inputs)]) for i, point in enumerate(points)]
    found = enclose_zero(_Shooting(driven, inputs, k), np.concatenate([points.ravel(), *z]), points.size)
    if found is None:
        return None
    return Orbit(found[: k * n].reshape(k, n), found[k * n :].reshape(k, driven.system.channels))


def enclose_zero(
    equations: Callable[[Ball], tuple[Ball, Ball]], guess: Array, compared: int, steps: int = 4
) -> Ball | None:
    """Return a box with exactly one zero of a function near a guess, or ``None``.

    Args:
        equations: the function and its derivative, ``(n,)`` and ``(n, n)``, enclosed over a box ``(n,)``.
        guess: ``(n,)``.
        compared: number of leading entries that must lie near the guess.
        steps: Newton steps in floating point.
    """
    point = guess
    for _ in range(steps):
        value, slope = equations(Ball.exact(point))
        move = approximate_solution(slope.mid, value.mid)
        if move is None:
            return None
        point = point - move
    start = guess[:compared]
    if not np.abs(point[:compared] - start).max() <= MOVED * (1.0 + np.abs(start).max()):
        return None  # Newton's method found a solution elsewhere, which says nothing about the guess
    value, slope = equations(Ball.exact(point))
    radius = proved_radius(value, slope, lambda r: equations(Ball(point, np.full(len(point), r)))[1])
    return None if radius is None else Ball(point, np.full(len(point), radius))


def proved_radius(value: Ball, slope: Ball, over: Callable[[float], Ball]) -> float | None:
    """Return the radius of a box in which Krawczyk's test proves exactly one zero of ``G``, or ``None``.

    Args:
        value: ``G`` at the point.
        slope: its derivative there.
        over: function of ``r`` that encloses the derivative over the box of radius ``r``.
    """
    inverse = inverse_or_none(slope.mid)
    if inverse is None:
        return None
    factor, eye = Ball.exact(inverse), np.eye(len(inverse))
    return invariant_radius(row_sum_norm(factor @ value), lambda radius: row_sum_norm(eye - factor @ over(radius)))


def invariant_radius(move: float, spread: Callable[[float], float]) -> float | None:
    """Return a radius ``r`` with ``move + spread(r) r < r``, whose box is mapped into itself, or ``None``.

    Args:
        move: ``|R G|``, rounded up.
        spread: function of ``r`` that bounds ``|I - R J|`` over the box of radius ``r`` above.

    Returns:
        The radius, or ``None`` if every trial fails. An infinite radius fails, since the comparison is strict.
    """
    for factor in (1.5, 4.0, 64.0):
        radius = factor * move + 1e-290
        if (move + spread(radius) * radius) * (1 + 8 * EPS) < radius:
            return radius
    return None


def enclose_equilibrium(driven: Any, state: Array, inputs: Array) -> Orbit | None:
    """Enclose one equilibrium near a guess under a constant input, as an orbit of period one.

    Args:
        driven: a ``DrivenSystem``.
        state: ``(n,)`` approximate equilibrium.
        inputs: ``(p,)`` the constant input, taken as exact.

    Returns:
        The box, states ``(1, n)``, or ``None`` where existence is not proved.
    """
    return enclose_orbit(driven, state[None, :], inputs[None, :])


def distance(first: Ball, second: Ball) -> float:
    """Return a lower bound of the maximum norm of the difference of two boxes; not positive if they intersect."""
    apart = first - second
    return float(np.nextafter((np.abs(apart.mid) - apart.rad).max(), -np.inf))
