r"""Lower bounds of affine margins over a ball of inputs, in fixed-point arithmetic.

Over a ball, ``g^T d`` decreases by the dual norm of ``g``. Over the intersection of a ball and a box it is bounded by
Lagrangian relaxation of the ball, with any multiplier (price) :math:`\lambda \ge 0`:

.. math:: g^T d \ge \sum_i \min_{l_i \le d_i \le u_i} (g_i d_i + \lambda d_i^2) - \lambda r^2 , \qquad |d| \le r .
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.fixed_point import integer_root, integers

Array = np.ndarray
_HALVINGS, _PLACES = 100, 200
"""Bisection steps for a price, and binary places of a rounded price."""


@dataclass(frozen=True, eq=False)
class Margin:
    """Margin as an affine function of perturbations; all numbers are integers over ``2**bits``.

    Attributes:
        bits: binary places.
        value: lower bound of the margin without a perturbation.
        off: bound of the error of ``value``.
        rows: ``(T, p)`` coefficients ``g`` of the perturbations.
        wrong: ``(T, 1)`` bound of the error of the coefficients of a step.
    """

    bits: int
    value: int
    off: int
    rows: Array
    wrong: Array

    @property
    def scale(self) -> int:
        """Return the largest entry of the rows, at least one."""
        return max([1, *np.abs(self.rows).ravel()])

    def floats(self) -> Array:
        """Return the rows divided by their largest entry, ``(T, p)``, in floating point."""
        return (self.rows / self.scale).astype(np.float64)

    def boxed(self, low: Array, high: Array) -> Array:
        """Return lower bounds ``(T,)`` of each step's term for perturbations in a box ``(T, p)``."""
        (first, last), places = integers(np.stack([low, high]))
        most = (self.rows * np.where((self.rows > 0).astype(bool), first, last)).sum(axis=1)
        return (most >> places) - self._coefficient_error(first, last, places)

    def dual(self, free: Array, each: bool) -> int:
        """Return an upper bound of the norm of the rows, over the free entries ``(T, p)``; with ``each`` the sum of the
        norms of all steps.
        """
        squares = np.where(free, (np.abs(self.rows) + self.wrong) ** 2, 0).sum(axis=1)
        return sum(map(integer_root, squares)) if each else integer_root(int(squares.sum()))

    def priced(self, low: Array, high: Array, price: Array) -> Array:
        """Return lower bounds ``(T,)`` of ``g^T d + price |d|^2`` in a box ``(T, p)``; ``price (T,)`` is positive."""
        (first, last), places = integers(np.stack([low, high]))
        G, price = self.rows, price[:, None]
        values = [(G * end >> places) + (price * end * end >> 2 * places) for end in (first, last)]
        rises, falls = ((G << places) + 2 * price * end for end in (first, last))  # slopes at both ends
        inner = -(G * G) // (4 * price)
        worst = np.where((rises >= 0).astype(bool), values[0], np.where((falls <= 0).astype(bool), values[1], inner))
        return worst.sum(axis=1) - self._coefficient_error(first, last, places)

    def _coefficient_error(self, first: Array, last: Array, places: int) -> Array:
        """Return bounds ``(T,)`` of the effect of the errors of the coefficients in a box."""
        reach = np.maximum(np.abs(first), np.abs(last)).sum(axis=1)
        return (self.wrong[:, 0] * reach >> places) + 1

    def left(self, radius: float | None, box: tuple[Array, Array] | None, free: Array, each: bool) -> int:
        """Return a lower bound of the margin under perturbations.

        Args:
            radius: radius of the l2 ball; ``None`` for perturbations in the box alone.
            box: lower and upper ends ``(T, p)`` of the perturbations; ``None`` for perturbations in the ball alone.
            free: ``(T, p)``, True where the input may change.
            each: whether every step has a separate ball.
        """
        if radius is None:
            assert box is not None
            return self.value + int(self.boxed(*box).sum())
        (length,), places = integers(np.array([radius]))
        if box is None:
            return self.value - (self.dual(free, each) * length >> places) - 1
        g, low, high = (by_group(part, each) for part in (self.floats(), *box))
        prices, _ = priced(g, low, high, radius)
        scale = self.scale
        rounded_prices = np.array([int(price * 2.0**_PLACES) * scale >> _PLACES for price in prices], object)
        lost = sum((price * length * length >> 2 * places) + 1 for price in rounded_prices if price)
        price = rounded_prices if each else np.repeat(rounded_prices, len(free))
        positive = (price > 0).astype(bool)
        out = np.where(positive, self.priced(*box, np.where(positive, price, 1)), self.boxed(*box))
        return self.value + int(out.sum()) - lost


def by_group(x: Array, each: bool) -> Array:
    """Return ``(T, p)`` with one row for each ball."""
    return x if each else x.reshape(1, -1)


def priced(g: Array, low: Array, high: Array, radius: float) -> tuple[Array, Array]:
    """Return the best prices in floating point, and the worst perturbations.

    The price is zero if the ball contains the worst corner of the box.

    Args:
        g: ``(m, q)`` coefficients of the entries of each ball.
        low: ``(m, q)`` ends of the box.
        high: ``(m, q)`` ends of the box.
        radius: radius of the balls.

    Example:
        >>> price, d = priced(np.array([[1.0, 2.0]]), np.full((1, 2), -0.5), np.full((1, 2), 0.5), 0.6)
        >>> d.round(6), np.linalg.norm(d, axis=1).round(6)
        (array([[-0.331662, -0.5     ]]), array([0.6]))
    """
    corner = np.where(g > 0, low, np.where(g < 0, high, 0.0))
    with np.errstate(all="ignore"):
        tight = np.linalg.norm(corner, axis=1) > radius
        most = np.where(tight, 0.5 * np.linalg.norm(g, axis=1) / radius, 0.0)
        least = most * 1e-60
        for _ in range(_HALVINGS):
            price = np.sqrt(least) * np.sqrt(most)
            d = np.clip(-g / (2.0 * price[:, None]), low, high)
            over = np.linalg.norm(d, axis=1) > radius
            least, most = np.where(over, price, least), np.where(over, most, price)
        d = np.where(tight[:, None], np.clip(-g / (2.0 * most[:, None]), low, high), corner)
    return np.where(tight, most, 0.0), d
