r"""Functions of linear functions with their first two derivatives, over many boxes at once, in intervals.

With :math:`a_i = A_i x` and one more function :math:`b` of :math:`x`,

.. math:: \nabla f = \sum_i f_i A_i + f_b \nabla b, \qquad \nabla^2 f = \sum_{i, j} f_{ij} A_i^T A_j
          + \sum_i f_{ib} (A_i^T \nabla b^T + \nabla b A_i) + f_{bb} \nabla b \nabla b^T + f_b \nabla^2 b .

Each ``A_i`` is the same in all boxes, so that the first sums are products with a matrix. Boxes are along the last axis;
of Hessians there is the upper triangle, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma
from stability.rigor.intervals import Interval

Array = np.ndarray


class Weights:
    r"""Sums of ranges that are weighed by constants.

    .. math:: y_j = \sum_k x_k C_{kj} .

    Args:
        constants: ``(m, s)``.

    Example:
        >>> sums = Weights(Interval.point([[1.0, -2.0], [0.5, 0.0]]))
        >>> y = sums(Interval(np.array([[0.0], [4.0]]), np.array([[1.0], [4.0]])))
        >>> y.low.round(9).tolist(), y.high.round(9).tolist()
        ([[2.0], [-2.0]], [[3.0], [0.0]])
    """

    def __init__(self, constants: Interval) -> None:
        middle, count = 0.5 * constants.low + 0.5 * constants.high, len(constants.low)
        apart = np.maximum(constants.high - middle, middle - constants.low) * (1.0 + 4 * EPS)
        up, down = np.maximum(middle, 0.0).T, np.minimum(middle, 0.0).T
        self.ends = np.block([[up, down], [down, up]])
        self.error = (gamma(2 * count + 8) * np.abs(middle) + apart).T * (1.0 + gamma(count + 8))

    def __call__(self, x: Interval) -> Interval:
        """The sums ``(s, N)`` of ranges ``(m, N)``."""
        ends = self.ends @ np.concatenate([x.low, x.high])
        error = self.error @ x.magnitude + TINY
        return Interval(ends[: len(error)] - error, ends[len(error) :] + error)


@dataclass(frozen=True, eq=False)
class Derivatives:
    """Of a function over ``N`` boxes of ``q`` variables.

    Attributes:
        slope: ``(q, N)``.
        bend: ``(q (q + 1) / 2, M)`` of the first ``M`` boxes.
    """

    slope: Interval
    bend: Interval


@dataclass(frozen=True, eq=False)
class Inner:
    """The one more function of a chain: its derivatives, and those by it.

    Attributes:
        of: its own derivatives.
        first: ``(1, N)``.
        second: ``(1, N)``.
        cross: ``(1, N)``, by it and ``Chain.cross``.
    """

    of: Derivatives
    first: Interval
    second: Interval
    cross: Interval


@dataclass(frozen=True, eq=False)
class Chain:
    """What functions have in common that depend in the same way on linear ones.

    Attributes:
        rows: ``(q,)`` of the linear functions, by name.
        first: the names of those that it depends on.
        second: pairs of these whose second derivative is not zero.
        cross: the one that has a second derivative with one more function, if there is any.

    Example:
        >>> rows = {"a": Interval.point([1.0, 0.0]), "b": Interval.point([1.0, 1.0])}
        >>> product, at = Chain(rows, "ab", [("a", "b")]), Interval.point([[3.0], [2.0]])  # x (x + y) at (2, 1)
        >>> found = product(at, Interval.point([[1.0]]), 1)
        >>> found.slope.low[:, 0].round(9).tolist(), found.bend.high[:, 0].round(9).tolist()
        ([5.0, 2.0], [2.0, 1.0, 0.0])
    """

    rows: dict[str, Interval]
    first: Sequence[str]
    second: Sequence[tuple[str, str]]
    cross: str | None = None

    @cached_property
    def _slopes(self) -> Weights:
        return Weights(_rows([self.rows[name] for name in self.first]))

    @cached_property
    def _bends(self) -> Weights:
        return Weights(_rows([outer(self.rows[a], self.rows[b]) for a, b in self.second]))

    @cached_property
    def _crossed(self) -> Weights:
        """What the slopes of one more function are weighed by."""
        own = self.rows[self.cross or ""]
        return Weights(_rows([outer(own, Interval.point(unit)) for unit in np.eye(len(own.low))]))

    def __call__(self, first: Interval, second: Interval, bent: int, inner: Inner | None = None) -> Derivatives:
        """Slopes, and Hessians of the first boxes.

        Args:
            first: derivatives by the linear functions ``(m, N)``.
            second: by their pairs ``(k, N)``.
            bent: of how many boxes Hessians are asked for.
            inner: of one more function.
        """
        slope, bend = self._slopes(first), self._bends(_boxes(second, bent))
        if inner is None:
            return Derivatives(slope, bend)
        own, near = inner.of, _boxes(inner.of.slope, bent)
        by, twice, cross = (_boxes(part, bent) for part in (inner.first, inner.second, inner.cross))
        bend = bend + cross * self._crossed(near) + by * own.bend + twice * squared(near)
        return Derivatives(slope + inner.first * own.slope, bend)


def outer(a: Interval, b: Interval) -> Interval:
    """The upper triangle ``(q (q + 1) / 2,)`` of ``a b^T``, where ``b`` is ``a``, else of ``a b^T + b a^T``."""
    i, j = np.triu_indices(len(a.low))
    one = rows_of(a, i) * rows_of(b, j)
    return one if a is b else one + rows_of(a, j) * rows_of(b, i)


def squared(x: Interval) -> Interval:
    """The upper triangle of ``x x^T``, its squares not negative, for ``(q, N)``."""
    i, j = np.triu_indices(len(x.low))
    out, own = products(x, i, j), x.square()
    out.low[i == j], out.high[i == j] = own.low, own.high
    return out


def whole(size: int) -> Array:
    """Where the entries ``(q, q)`` of a symmetric matrix are in its upper triangle."""
    out, (i, j) = np.zeros((size, size), dtype=int), np.triu_indices(size)
    out[i, j] = out[j, i] = np.arange(len(i))
    return out


def rows_of(x: Interval, which: Sequence[int] | Array) -> Interval:
    """Some of the rows ``(k, N)``."""
    return Interval(x.low[which], x.high[which])


def products(x: Interval, left: Sequence[int] | Array, right: Sequence[int] | Array) -> Interval:
    """Of pairs of the rows ``(k, N)``."""
    return rows_of(x, left) * rows_of(x, right)


def stacked(parts: Sequence[Interval], *, axis: int = 0) -> Interval:
    """Rows, or boxes, behind each other."""
    return Interval(*(np.concatenate([getattr(x, end) for x in parts], axis=axis) for end in ("low", "high")))


def _boxes(x: Interval, count: int) -> Interval:
    return Interval(x.low[:, :count], x.high[:, :count])


def _rows(parts: list[Interval]) -> Interval:
    return Interval(*(np.stack([getattr(x, end) for x in parts]) for end in ("low", "high")))
