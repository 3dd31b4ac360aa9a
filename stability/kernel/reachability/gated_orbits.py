r"""Periodic orbits of gated cells, proved to exist by Krawczyk's test.

An orbit of period ``k`` under an input of period ``q``, ``k`` a multiple of ``q``, is a zero of the shooting equations
``F(x_i, u_i) - x_{i+1} = 0``, ``i`` modulo ``k``; an equilibrium has ``k = q = 1``. Its multipliers are the eigenvalues
of the product of the Jacobians along it.

Source: R. Krawczyk, "Newton-Algorithmen zur Bestimmung von Nullstellen mit Fehlerschranken", Computing 4 (1969).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stability.kernel.arithmetic.activation_bounds import activation_slopes, activation_values
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.krawczyk import enclose_zero
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.gated_equations import Arithmetic, step_and_derivative

Array = np.ndarray
Step = Callable[[int, Ball], tuple[Ball, Ball]]
"""Function of ``(i, ball of x)`` that encloses ``F(x, u_i)`` and its Jacobian by ``x``."""


def _squash(name: str, z: Ball) -> tuple[Ball, Ball]:
    """Return values and slopes of an activation."""
    return activation_values(name, z), activation_slopes(name, z)


def _diagonal(ball: Ball) -> Ball:
    return Ball(np.diag(ball.mid), np.diag(ball.rad))


BALLS = Arithmetic(Ball.exact, _squash, _diagonal, Ball.join, Ball.stack)


def step_and_jacobian(cell: GatedCell, state: Ball, u: Array | Ball) -> tuple[Ball, Ball]:
    """Enclose the next state and the Jacobian, for all states in a ball.

    Args:
        cell: the cell.
        state: ball of ``(n,)``.
        u: ``(p,)`` input, taken as exact, or a ball of inputs.

    Returns:
        Balls of ``(n,)`` and ``(n, n)``.
    """
    return step_and_derivative(cell, state, u, BALLS)


def _steps(cell: GatedCell, inputs: Array) -> Step:
    return lambda i, x: step_and_jacobian(cell, x, inputs[i % len(inputs)])


def _shooting(step: Step, points: Ball) -> tuple[Ball, Ball]:
    """Return ``F(x_i, u_i) - x_{i+1}`` flattened, ``(k n,)``, and its derivative ``(k n, k n)``."""
    k, n = points.shape
    images, jacobians = zip(*(step(i, points[i]) for i in range(k)))
    value = Ball.join(*(image - points[(i + 1) % k] for i, image in enumerate(images)))
    jacobian = Ball(np.zeros((k * n, k * n)), np.zeros((k * n, k * n)))
    for i, block in enumerate(jacobians):
        rows = slice(i * n, (i + 1) * n)
        jacobian.mid[rows, rows], jacobian.rad[rows, rows] = block.mid, block.rad
    return value, jacobian - np.roll(np.eye(k * n), n, axis=1)  # the identity is in the columns of the next point


def orbit_jacobian(cell: GatedCell, points: Ball, inputs: Array) -> Ball:
    """Enclose the Jacobian of ``k`` steps along an orbit, from its first point on.

    Args:
        cell: the cell.
        points: ball of ``(k, n)``.
        inputs: ``(q, p)``, repeated.

    Returns:
        Ball of ``(n, n)``.
    """
    return product_along(_steps(cell, inputs), points)


def product_along(step: Step, points: Ball) -> Ball:
    """Enclose the product of the Jacobians along the points of a ball ``(k, n)``, the last one leftmost."""
    product = step(0, points[0])[1]
    for i in range(1, points.shape[0]):
        product = step(i, points[i])[1] @ product
    return product


def enclose_orbit(cell: GatedCell, points: Array, inputs: Array) -> Ball | None:
    """Return a box around an approximate orbit that contains exactly one orbit of that period, or ``None``.

    Args:
        cell: the cell.
        points: ``(k, n)`` approximate orbit.
        inputs: ``(q, p)`` input, repeated, taken as exact; ``q`` divides ``k``.

    Returns:
        The box ``(k, n)``, or ``None`` where existence is not proved.

    Example:
        >>> cell = GatedCell("gru", np.zeros((3, 1)), np.zeros((3, 1)))
        >>> box = enclose_orbit(cell, np.array([[1e-9]]), np.zeros((1, 1)))
        >>> bool(abs(box.mid[0, 0]) <= box.rad[0, 0] < 1e-12)
        True
    """
    return enclose(_steps(cell, inputs), points)


def enclose(step: Step, points: Array) -> Ball | None:
    """Return a box ``(k, n)`` that contains exactly one orbit of any map with enclosures, or ``None``.

    If ``step`` encloses the images under all inputs in a ball, the box contains exactly one orbit for each input
    sequence in that ball.
    """
    found = enclose_zero(lambda box: _shooting(step, box.reshape(*points.shape)), points.ravel(), points.size, steps=3)
    return None if found is None else found.reshape(*points.shape)
