"""Fixed-point arithmetic: integers over a power of two with an error bound."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, isqrt

import numpy as np

Array = np.ndarray


def integers(x: Array) -> tuple[Array, int]:
    """Return numbers exactly, as integers over ``2**places``, and the least ``places``.

    Example:
        >>> ints, places = integers(np.array([0.75, -2.0]))
        >>> (ints / 2**places).tolist()
        [0.75, -2.0]
    """
    mantissas, exponents = np.frexp(x)
    whole = (mantissas * 2.0**53).astype(np.int64)
    places = max(0, 53 - int(exponents[whole != 0].min(initial=53)))
    ints = whole.astype(object) << np.maximum(exponents.astype(np.int64) - 53 + places, 0).astype(object)
    common = gcd(*ints.flat) or 1
    spare = min(places, (common & -common).bit_length() - 1)
    return ints >> spare, places - spare


@dataclass(frozen=True, eq=False)
class ExactMatrix:
    """Matrix of exact integers over a power of two.

    Attributes:
        ints: ``(m, n)`` objects, over ``2**places``.
        places: see ``ints``.
        size: the largest sum of a column's absolute values, over the same.
    """

    ints: Array
    places: int
    size: int

    @classmethod
    def of(cls, matrix: Array) -> ExactMatrix:
        """Return the exact matrix of floats."""
        ints, places = integers(matrix)
        return cls(ints, places, max([0, *np.abs(ints).sum(axis=0)]) if ints.size else 0)

    @property
    def cost(self) -> float:
        """Return the cost of a row times the matrix, in products of short integers."""
        return self.ints.size * (1.0 + self.places / 256.0)


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """Rows of integers over ``2**bits``, with an error bound.

    Attributes:
        ints: ``(k, n)`` objects.
        off: integer bound of the error of each of them.
    """

    ints: Array
    off: int

    def __matmul__(self, matrix: ExactMatrix) -> FixedPoint:
        product = (
            self.ints @ matrix.ints if matrix.ints.size else np.zeros((len(self.ints), matrix.ints.shape[1]), object)
        )
        return FixedPoint(product >> matrix.places, (self.off * matrix.size >> matrix.places) + 2)

    def __add__(self, other: FixedPoint) -> FixedPoint:
        return FixedPoint(self.ints + other.ints, self.off + other.off)

    def times(self, count: int) -> FixedPoint:
        """Return ``count`` times the rows."""
        return FixedPoint(self.ints * count, self.off * count)

    @classmethod
    def of(cls, matrix: Array, bits: int) -> FixedPoint:
        """Return the fixed-point matrix of floats."""
        exact = ExactMatrix.of(matrix)
        return cls((exact.ints << bits) >> exact.places, 1)


def integer_root(square: int) -> int:
    """Return the smallest integer whose square is at least ``square``.

    Example:
        >>> integer_root(9), integer_root(10)
        (3, 4)
    """
    root = isqrt(square)
    return root + (root * root < square)


def rounded_ratio(a: int, b: int) -> float:
    """Return ``a / b`` rounded, ``b > 0``; infinite beyond the range.

    Example:
        >>> rounded_ratio(3, 4), rounded_ratio(-(10**400), 3)
        (0.75, -inf)
    """
    try:
        return a / b
    except OverflowError:
        return float("inf") if a > 0 else float("-inf")
