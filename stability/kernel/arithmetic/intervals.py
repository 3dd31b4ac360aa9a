r"""Interval arithmetic on numpy arrays with outward rounding.

Sums and products are widened by one unit in the last place each. Dot products are widened by the classical
bound ``k eps sum |a_i b_i|``, which holds for every order of summation and with fused operations. ``tanh`` of
the platform is trusted to ``TANH_ULPS`` eps (vendors state 4 units in the last place or fewer).

Source: S. M. Rump, "Verification methods: rigorous results using floating-point arithmetic", Acta Numerica
2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.arithmetic.activations import TANH_ULPS
from stability.kernel.arithmetic.adjacent_floats import next_down, next_up
from stability.kernel.arithmetic.floating_point import EPS, LOST, TINY

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Interval:
    """Pair of arrays ``low <= high``; every operation contains all exact results.

    Raises:
        DimensionError: ends of different shapes.
        ConfigurationError: an empty interval, or NaN.

    Example:
        >>> x = Interval(np.array([-1.0]), np.array([2.0]))
        >>> (x * x).contains(Interval.point([4.0]))
        True
        >>> x.magnitude
        array([2.])
    """

    low: Array
    high: Array

    def __post_init__(self) -> None:
        if self.low.shape != self.high.shape:
            raise DimensionError("the upper bounds of an interval", self.low.shape, self.high.shape)
        if not (self.low <= self.high).all():
            raise ConfigurationError("an interval needs low <= high, without NaN")

    @classmethod
    def point(cls, value: Any) -> Interval:
        """Return the interval that contains exactly the given numbers."""
        array = np.asarray(value, dtype=np.float64)
        return cls(array, array)

    @property
    def magnitude(self) -> Array:
        """Return the largest absolute value."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def mignitude(self) -> Array:
        """Return the smallest absolute value."""
        inside = (self.low <= 0) & (self.high >= 0)
        return np.where(inside, 0.0, np.minimum(np.abs(self.low), np.abs(self.high)))

    def __add__(self, other: Interval) -> Interval:
        return Interval(next_down(self.low + other.low), next_up(self.high + other.high))

    def __sub__(self, other: Interval) -> Interval:
        return Interval(next_down(self.low - other.high), next_up(self.high - other.low))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __mul__(self, other: Interval) -> Interval:
        if other.low is other.high:
            self, other = other, self
        a, b = self.low * other.low, self.low * other.high
        least, most = np.minimum(a, b), np.maximum(a, b)
        if self.low is not self.high:
            c, d = self.high * other.low, self.high * other.high
            least, most = np.minimum(least, np.minimum(c, d)), np.maximum(most, np.maximum(c, d))
        return Interval(next_down(least), next_up(most))

    def square(self) -> Interval:
        """Return ``x * x`` with both factors the same."""
        return Interval(np.maximum(next_down(self.mignitude**2), 0.0), next_up(self.magnitude**2))

    def contains(self, other: Interval) -> bool:
        """Return True if every entry of ``other`` lies inside."""
        return bool((self.low <= other.low).all() and (other.high <= self.high).all())


def midpoint_radius(low: Array, high: Array) -> tuple[Array, Array]:
    """Return the midpoints of intervals and radii rounded outwards."""
    middle = 0.5 * (low + high)
    return middle, np.nextafter(np.maximum(high - middle, middle - low), np.inf)


def hull(*parts: Interval) -> Interval:
    """Return the smallest interval around all arguments."""
    return Interval(np.minimum.reduce([part.low for part in parts]), np.maximum.reduce([part.high for part in parts]))


def tanh(x: Interval) -> Interval:
    """Enclose ``tanh``; infinite ends are allowed."""
    low, high = np.tanh(x.low), np.tanh(x.high)
    error = TANH_ULPS * EPS * np.abs(np.stack([low, high]))
    return Interval(np.maximum(next_down(low - error[0]), -1.0), np.minimum(next_up(high + error[1]), 1.0))


def sigmoid(x: Interval) -> Interval:
    """Enclose the logistic function as ``(1 + tanh(x / 2)) / 2``, to an absolute ``TANH_ULPS`` eps."""
    slack = TANH_ULPS * EPS
    low, high = 0.5 * (1.0 + np.tanh(0.5 * x.low)), 0.5 * (1.0 + np.tanh(0.5 * x.high))
    return Interval(np.maximum(low - slack, 0.0), np.minimum(high + slack, 1.0))


def upper_product(matrix: Array, vector: Array) -> Array:
    """Bound ``matrix @ vector`` above for non-negative arguments.

    Args:
        matrix: ``(a, b)``, entries >= 0.
        vector: ``(b,)`` or ``(b, c)``, entries >= 0.

    Returns:
        ``(a,)`` or ``(a, c)``.
    """
    terms = matrix.shape[1] + 4
    with np.errstate(over="ignore"):
        return next_up((matrix @ vector) * (1.0 + 2.0 * terms * EPS) + terms * TINY)


def euclidean_norms(array: Array) -> Array:
    """Return Euclidean norms along the last axis, up to rounding, with an allowance for underflow.

    Example:
        >>> bool(euclidean_norms(np.array([3e-200, 4e-200])) >= 5e-200), float(euclidean_norms(np.array([3.0, 4.0])))
        (True, 5.0)
    """
    return np.sqrt((array * array).sum(axis=-1)) + LOST


def affine(matrix: Array, x: Interval, offset: Interval | None = None) -> Interval:
    """Enclose ``matrix @ x + offset`` for a finite box ``x``.

    Args:
        matrix: ``(a, b)``.
        x: box of ``(b,)``.
        offset: ``(a,)`` or ``None``.

    Returns:
        Box of ``(a,)``.
    """
    positive, negative = np.maximum(matrix, 0.0), np.minimum(matrix, 0.0)
    error = 2.0 * (2 * matrix.shape[1] + 8) * EPS * upper_product(np.abs(matrix), x.magnitude) + TINY
    with np.errstate(over="ignore", invalid="ignore"):
        low = next_down(positive @ x.low + negative @ x.high - error)
        high = next_up(positive @ x.high + negative @ x.low + error)
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    return Interval(low, high) if offset is None else Interval(low, high) + offset
