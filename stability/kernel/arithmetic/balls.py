"""Midpoint-radius arithmetic for matrices: radii contain every rounding error.

A ball ``Ball(mid, rad)`` stands for all matrices ``X`` with ``|X - mid| <= rad`` entry by entry. No rounding
mode is switched: an operation's own error is bounded by the standard model of floating-point arithmetic (a
sum of ``k`` products errs by at most ``k u / (1 - k u)`` times the sum of the absolute products, in any order
of summation, with or without fused multiply-add; Higham, Accuracy and Stability of Numerical Algorithms,
3.5), and each radius is enlarged for the errors made in computing it. NaN or overflow gives a NaN or infinite
radius, which fails every comparison that a proof makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.kernel.arithmetic.discretization import step_matrices
from stability.kernel.arithmetic.floating_point import EPS, TINY

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Ball:
    """Set of all arrays within ``rad`` of ``mid``, entry by entry.

    Attributes:
        mid: real or complex array.
        rad: real array of the same shape, >= 0.

    Example:
        >>> import numpy as np
        >>> third = Ball.exact(np.ones((1, 1))) * Ball.exact(np.full((1, 1), 1 / 3))
        >>> bool(third.rad[0, 0] > 0)
        True
    """

    mid: Array
    rad: Array

    __array_ufunc__ = None  # makes ``ndarray @ Ball`` come here

    @classmethod
    def exact(cls, value: Any) -> Ball:
        """Return a ball of radius zero."""
        if isinstance(value, Ball):
            return value
        mid = np.asarray(value)
        return cls(mid, np.zeros(mid.shape))

    @classmethod
    def around(cls, low: Array, high: Array) -> Ball:
        """Return the ball around an interval."""
        mid = 0.5 * (low + high)
        return cls(mid, np.maximum(high - mid, mid - low) * (1 + 4 * EPS) + TINY)

    @property
    def T(self) -> Ball:
        """Transpose."""
        return Ball(self.mid.T, self.rad.T)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the arrays."""
        return self.mid.shape

    def upper(self) -> Array:
        """Return an entrywise upper bound of the absolute value."""
        return (np.abs(self.mid) * (1 + 2 * EPS) + self.rad) * (1 + 2 * EPS)

    def endpoints(self) -> tuple[Array, Array]:
        """Return the smallest and the largest real array inside, rounded outwards."""
        return np.nextafter(self.mid - self.rad, -np.inf), np.nextafter(self.mid + self.rad, np.inf)

    def __getitem__(self, key: Any) -> Ball:
        return Ball(self.mid[key], self.rad[key])

    def reshape(self, *shape: int) -> Ball:
        """Return the same entries in another shape."""
        return Ball(self.mid.reshape(shape), self.rad.reshape(shape))

    def __neg__(self) -> Ball:
        return Ball(-self.mid, self.rad)

    def __add__(self, other: Any) -> Ball:
        b = Ball.exact(other)
        mid = self.mid + b.mid
        return Ball(mid, (self.rad + b.rad + 2 * EPS * np.abs(mid)) * (1 + 4 * EPS))

    def __sub__(self, other: Any) -> Ball:
        return self + (-Ball.exact(other))

    def __mul__(self, other: Any) -> Ball:
        b = Ball.exact(other)
        mid = self.mid * b.mid
        size = np.abs(self.mid) * b.rad + self.rad * np.abs(b.mid) + self.rad * b.rad
        return Ball(mid, (size + 4 * EPS * np.abs(self.mid) * np.abs(b.mid)) * (1 + 8 * EPS) + TINY)

    def __matmul__(self, other: Any) -> Ball:
        b = Ball.exact(other)
        length = self.mid.shape[-1]
        absolute, absolute_b = np.abs(self.mid), np.abs(b.mid)
        complex_factor = 4 if np.iscomplexobj(self.mid) or np.iscomplexobj(b.mid) else 1
        relative = complex_factor * (length + 4) * EPS
        rad = (relative * absolute) @ absolute_b
        if b.rad.any():
            rad = rad + (absolute + self.rad) @ b.rad
        if self.rad.any():
            rad = rad + self.rad @ absolute_b
        return Ball(self.mid @ b.mid, rad * (1 + 4 * (length + 4) * EPS) + length * TINY)

    def __rmatmul__(self, other: Any) -> Ball:
        return Ball.exact(other) @ self

    def __rsub__(self, other: Any) -> Ball:
        return Ball.exact(other) - self

    __radd__, __rmul__ = __add__, __mul__

    @classmethod
    def stack(cls, rows: list[list[Ball]]) -> Ball:
        """Return the block matrix of balls."""
        return cls(np.block([[b.mid for b in r] for r in rows]), np.block([[b.rad for b in r] for r in rows]))

    @classmethod
    def join(cls, *parts: Ball) -> Ball:
        """Concatenate vectors."""
        return cls(np.concatenate([part.mid for part in parts]), np.concatenate([part.rad for part in parts]))


def diagonal_of(matrix: np.ndarray) -> np.ndarray | None:
    """Return the diagonal of a diagonal matrix, else ``None``; products with it are exact and cheap."""
    diagonal = np.diagonal(matrix).copy()
    square = matrix.shape[0] == matrix.shape[1]
    return diagonal if square and np.count_nonzero(matrix) == np.count_nonzero(diagonal) else None


def row_sum_norm(ball: Ball) -> float:
    """Bound the infinity norm (largest absolute row sum; largest entry of a vector) above."""
    size = ball.upper()
    if size.ndim == 2:
        size = size.sum(axis=1) * (1 + (size.shape[1] + 4) * EPS)
    return float(size.max(initial=0.0))


def system_balls(system: Any) -> tuple[Ball, Ball, Ball, Ball]:
    """Return ``A, B, C, D`` of a ``LureSystem`` as balls.

    A system that was given by its matrices is exact. One that was discretized contains, in its balls, both
    the stored matrices and the exact discretization of the continuous ones.
    """
    if system.origin is None:
        return Ball.exact(system.A), Ball.exact(system.B), Ball.exact(system.C), Ball.exact(system.D)
    base, dt = system.origin.base, system.origin.dt
    exact = tuple(Ball.exact(x) for x in (base.A, base.B, base.C, base.D))
    step, half = Ball.exact(np.float64(dt)), Ball.exact(np.float64(0.5 * dt))
    A, B, C, D = step_matrices(system.origin.method, exact, step, half, block=Ball.stack)  # type: ignore[arg-type]
    if not base.A.any():  # then I + dt A is the identity, exactly
        A = Ball.exact(np.eye(base.states))
    return _recentered(A, system.A), _recentered(B, system.B), _recentered(C, system.C), _recentered(D, system.D)


def has_feedthrough(system: Any) -> bool:
    """Return True if channels of a ``LureSystem`` may feed one another, as stored or before rounding.

    Example:
        >>> from stability.systems import LureSystem
        >>> flow = LureSystem([[-1.0, 1.0], [0.0, -1.0]], [[0.0], [1.0]], [[1.0, 0.0]])
        >>> has_feedthrough(flow), has_feedthrough(flow.midpoint(0.1)), bool(flow.midpoint(0.1).D.any())
        (False, True, False)
    """
    D = system_balls(system)[3]
    return bool(D.mid.any() or D.rad.any())


def _recentered(ball: Ball, stored: Array) -> Ball:
    """Return a ball centered on the stored matrix that contains it and the given ball."""
    shift = np.abs(ball.mid - stored)
    return Ball(stored, np.where(shift + ball.rad > 0, (shift + ball.rad) * (1 + 4 * EPS), 0.0))
