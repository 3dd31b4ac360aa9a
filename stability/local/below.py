r"""Functions of one number that are linear on every cell of a grid, as lower bounds, and lines below whole stretches.

A line below cells ``k`` to ``k + 2^L - 1`` is kept for every ``k`` and ``L`` (a sparse table): a stretch of any length
lies in two of them, so that a line of a slope that is asked for is found below it at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.rigor.constants import EPS, TINY

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Lines:
    """A line on each of ``K`` cells; at a knot either of both neighbours will do.

    Attributes:
        knots: ``(K + 1,)`` rising.
        left: ``(K,)`` values at the left end of each.
        right: ``(K,)``.
        beyond: outside of the grid; ``None`` where nobody gets there, and the ends' values will do.
    """

    knots: Array
    left: Array
    right: Array
    beyond: float | None = None

    def within(self, cap: float) -> Lines:
        """Nowhere above a number, and zero on cells where it is mostly below: the function is not negative."""
        left, right = np.minimum(self.left, cap), np.minimum(self.right, cap)
        kept = left + right > 0.0
        return Lines(self.knots, np.where(kept, left, 0.0), np.where(kept, right, 0.0))

    def at(self, x: Array) -> Array:
        """Values, in floating point."""
        k = np.clip(np.searchsorted(self.knots, x, side="right") - 1, 0, len(self.left) - 1)
        wide = np.maximum(self.knots[k + 1] - self.knots[k], 1e-300)
        part = np.clip((x - self.knots[k]) / wide, 0.0, 1.0)
        out = self.left[k] + part * (self.right[k] - self.left[k])
        if self.beyond is None:
            return out
        return np.where((x < self.knots[0]) | (x > self.knots[-1]), self.beyond, out)


@dataclass(frozen=True, eq=False)
class Table:
    """Lines below stretches; ``left[L, k]``, ``right[L, k]`` are the ends of that below ``2^L`` cells from ``k``."""

    knots: Array
    left: Array
    right: Array
    beyond: float | None = None

    @classmethod
    def of(cls, lines: Lines) -> Table:
        """The table of a function.

        Example:
            >>> table = Table.of(Lines(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0]), np.array([1.0, 0.0])))
            >>> stretch = table.stretches(np.array([0.5]), np.array([2.0]))
            >>> bool(-1e-9 < stretch.below(np.array([1.0]), np.array([0.0]))[0] <= 0.0)
            True
        """
        x, count = lines.knots, len(lines.left)
        levels = [(lines.left, lines.right)]
        while 2 ** len(levels) <= count:
            (left, right), size = levels[-1], 2 ** (len(levels) - 1)
            a, b = slice(None, -size), slice(size, None)
            start, end = left[a], right[b]
            ends = x[: len(start)], x[size : size + len(start)], x[2 * size : 2 * size + len(start)]
            part = (ends[1] - ends[0]) / np.maximum(ends[2] - ends[0], 1e-300)
            middle = start + part * (end - start)
            lost = np.maximum(middle - np.minimum(right[a], left[b]), 0.0)
            lost = lost + 16 * EPS * (np.abs(start) + np.abs(end) + np.abs(middle)) + TINY
            levels.append((start - lost, end - lost))
        out = np.full((2, len(levels), count), -np.inf)
        for level, pair in enumerate(levels):
            out[:, level, : len(pair[0])] = pair
        return cls(x, out[0], out[1], lines.beyond)

    def stretches(self, low: Array, high: Array) -> Stretches:
        """What is known of the function on ``[low, high]``, ``(N,)`` within the grid."""
        x, count = self.knots, self.left.shape[1]
        first = np.clip(np.searchsorted(x, low, side="right") - 1, 0, count - 1)
        last = np.clip(np.searchsorted(x, high, side="left") - 1, first, count - 1)
        level = np.maximum(np.ceil(np.log2(last - first + 1.0)).astype(int) - 1, 0)
        points, values, slopes, size = list[Array](), list[Array](), list[Array](), 2**level
        for k in (first, np.maximum(last - size + 1, first)):
            left, right, begins, ends = x[k], x[k + size], self.left[level, k], self.right[level, k]
            wide = right - left
            own = np.where(wide > 0.0, (ends - begins) / np.maximum(wide, 1e-300), 0.0)
            for end in (np.clip(low, left, right), np.clip(high, left, right)):
                value = np.minimum(begins + own * (end - left), ends + own * (end - right))
                size_ = np.abs(begins) + np.abs(ends) + np.abs(own) * (np.abs(end) + np.abs(left) + np.abs(right))
                points.append(end)
                values.append(value - 16 * EPS * size_ - TINY)
            slopes.append(own)
        apart = high - low
        chord = np.where(apart > 0.0, (values[3] - values[0]) / np.maximum(apart, 1e-300), slopes[0])
        slopes.append(np.where(np.isfinite(chord), chord, slopes[0]))
        return Stretches(np.stack(points), np.stack(values), np.stack(slopes))


@dataclass(frozen=True, eq=False)
class Stretches:
    """Two lines that overlap below each stretch, by their ends, and slopes of the function there."""

    points: Array
    values: Array
    slopes: Array

    def below(self, at: Array, slope: Array) -> Array:
        """The value at some numbers of the highest line of a slope that is below the function on all of a stretch.

        Args:
            at: ``(N,)``.
            slope: ``(N,)``.
        """
        way = slope * (self.points - at)
        size = np.abs(self.values) + np.abs(slope) * (np.abs(self.points) + np.abs(at))
        return (self.values - way - 8 * EPS * size - TINY).min(axis=0)
