r"""Lower bounds of a function of one or two numbers: a plane on every cell of a tree of boxes.

.. math:: V(s) \ge \max(a_k + g_k^T (s - c_k), m_k, 0), \quad s \in k .

A cell is cut into :math:`2^d` of half its width. A cell that is cut has a plane, too, which lies below those of its
parts: so that over a box that is as wide as a cell of some size, at most :math:`2^d` planes are looked at, however
small the cells are there. A plane is about its cell and a little around it, which is more than what rounding can make
of where a cell ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.rigor.constants import EPS, TINY

Array = np.ndarray
DEEPEST = 40
"""Halvings."""


@dataclass(frozen=True, eq=False)
class Piece:
    """One plane for each of ``N`` boxes.

    Attributes:
        there: ``(N,)`` where it is to be looked at.
        value: ``(N,)`` at ``at``.
        least: ``(N,)`` what the function is nowhere below.
        slope: ``(N, d)``.
        at: ``(N, d)``.
    """

    there: Array
    value: Array
    least: Array
    slope: Array
    at: Array

    def of(self, rows: Array) -> Piece:
        """Some boxes."""
        return Piece(*(part[rows] for part in vars(self).values()))

    @classmethod
    def joined(cls, parts: list[Piece]) -> Piece:
        """The boxes of all parts."""
        return cls(*(np.concatenate(own) for own in zip(*(vars(part).values() for part in parts))))


class Cells:
    """A box of states, cut into cells.

    Args:
        low: ``(d,)``.
        high: ``(d,)``, above ``low``.
        signed: whether the function may be negative; else zero is a bound, too.

    Example:
        >>> cells = Cells(np.array([-1.0]), np.array([1.0]))
        >>> cells.cut(np.array([0]))
        >>> cells.value[:], cells.slope[:] = [0.0, 1.0, 2.0], [[0.0], [0.0], [1.0]]
        >>> cells.lift()
        >>> cells.bound(np.array([[-0.5], [0.75]])), cells.leaves
        (array([1.  , 2.25]), array([1, 2]))
    """

    def __init__(self, low: Array, high: Array, signed: bool = False) -> None:
        self.low, self.high, self.bottom, d = low, high, -np.inf if signed else 0.0, len(low)
        self.first, self.level = np.full(1, -1), np.zeros(1, dtype=int)
        self.index = np.zeros((1, d), dtype=int)
        self.value, self.slope, self.least = np.zeros(1), np.zeros((1, d)), np.zeros(1)
        self.corners = (np.arange(2**d)[:, None] >> np.arange(d)) & 1

    def __len__(self) -> int:
        return len(self.first)

    @property
    def leaves(self) -> Array:
        """Cells that are not cut, by number."""
        return np.flatnonzero(self.first < 0)

    @property
    def around(self) -> Array:
        """``(d,)``: how far beyond a cell its plane holds."""
        return 16 * EPS * (np.abs(self.low) + np.abs(self.high)) + TINY

    def boxes(self, cells: Array) -> tuple[Array, Array]:
        """Middles and half of the widths, ``(N, d)`` each."""
        half = (self.high - self.low) * 0.5 ** (self.level[cells][:, None] + 1.0)
        return self.low + (2 * self.index[cells] + 1) * half, half

    def cut(self, cells: Array) -> None:
        """Cut cells that are not; their parts have their plane."""
        k, count, before = len(self.corners), len(cells), len(self)
        self.first[cells] = before + k * np.arange(count)
        self.first = np.concatenate([self.first, np.full(count * k, -1)])
        self.level = np.concatenate([self.level, np.repeat(self.level[cells] + 1, k)])
        parts = (2 * self.index[cells][:, None] + self.corners).reshape(-1, len(self.low))
        self.index = np.concatenate([self.index, parts])
        off = self.boxes(np.arange(before, len(self)))[0] - np.repeat(self.boxes(cells)[0], k, axis=0)
        slope = np.repeat(self.slope[cells], k, axis=0)
        self.value = np.concatenate([self.value, np.repeat(self.value[cells], k) + (slope * off).sum(axis=1)])
        self.slope = np.concatenate([self.slope, slope])
        self.least = np.concatenate([self.least, np.repeat(self.least[cells], k)])

    def lift(self) -> None:
        """Least values, and planes of the cells that are cut, from those that are not."""
        leaves, k = self.leaves, len(self.corners)
        _, half = self.boxes(leaves)
        self.least[leaves] = np.maximum(_below(self.value[leaves], self.slope[leaves], half + self.around), self.bottom)
        for level in range(int(self.level.max()) - 1, -1, -1):
            cells = np.flatnonzero((self.first >= 0) & (self.level == level))
            parts = self.first[cells][:, None] + np.arange(k)
            own, (middles, half) = self.boxes(cells)[0], self.boxes(parts.ravel())
            off = middles.reshape(*parts.shape, -1) - own[:, None]
            value, slope = self.value[parts], self.slope[parts]
            square = np.maximum((off * off).sum(axis=1), 1e-300)
            mean = 0.25 * slope.mean(axis=1) + 0.75 * (value[..., None] * off).sum(axis=1) / square
            apart, error = slope - mean[:, None], 16 * EPS * (np.abs(mean)[:, None] * np.abs(off)).sum(axis=2)
            beyond = half.reshape(off.shape) + self.around
            low = _below(value - (mean[:, None] * off).sum(axis=2), apart, beyond) - error - 16 * EPS * np.abs(value)
            self.value[cells], self.slope[cells] = low.min(axis=1), mean
            self.least[cells] = self.least[parts].min(axis=1)

    def bent(self, cells: Array) -> Array:
        """What planes lose at the corners ``(N,)``, nearly, by how slopes of the parts of the same cell differ."""
        k, d = self.corners.shape
        mean = self.slope[1:].reshape(-1, k, d).mean(axis=1)[(cells - 1) // k]
        return 0.5 * (np.abs(self.slope[cells] - mean) * self.boxes(cells)[1]).sum(axis=1)

    def find(self, s: Array, level: Array | int = DEEPEST) -> Array:
        """The cell ``(N,)`` of each state ``(N, d)``, of a level or, where there is none so small, not cut."""
        part = np.clip((s - self.low) / (self.high - self.low), 0.0, 1.0 - EPS)
        cells, most = np.zeros(len(s), dtype=int), np.broadcast_to(level, len(s))
        for depth in range(int(most.max(initial=0))):
            first = self.first[cells]
            goes = (first >= 0) & (depth < most)
            if not goes.any():
                break
            bits = (np.floor(part * 2.0 ** (depth + 1)).astype(np.int64) & 1) @ (1 << np.arange(len(self.low)))
            cells = np.where(goes, first + bits, cells)
        return cells

    def bound(self, s: Array) -> Array:
        """The bound at states ``(N, d)``, nearly; infinite where none comes to."""
        cells = self.find(s)
        middle, _ = self.boxes(cells)
        plane = self.value[cells] + (self.slope[cells] * (s - middle)).sum(axis=1)
        out = ((s < self.low - self.around) | (s > self.high + self.around)).any(axis=1)
        return np.where(out, np.inf, np.maximum(plane, self.least[cells]))

    def slopes(self, s: Array) -> Array:
        """Its slope ``(N, d)``."""
        return self.slope[self.find(s)]

    def pieces(self, low: Array, high: Array) -> list[Piece]:
        """Planes that are below the function on boxes, one for each corner; none where nothing of a box is in here.

        Args:
            low: ``(N, d)``.
            high: ``(N, d)``.
        """
        wide = self.high - self.low
        ends = [np.clip((end - self.low) / wide, 0.0, 1.0 - EPS) for end in (low, high)]
        size = np.maximum((ends[1] - ends[0]).max(axis=1), 2.0**-DEEPEST)
        level = np.clip(np.floor(-np.log2(size)), 0, DEEPEST).astype(int)
        far = (np.floor(ends[1] * 2.0 ** level[:, None]) - np.floor(ends[0] * 2.0 ** level[:, None]) > 1.0).any(axis=1)
        level -= far
        meets = np.asarray(~((low > self.high) | (high < self.low)).any(axis=1))
        ends = np.stack([np.where(corner, high, low) for corner in self.corners])
        found = self.find(ends.reshape(-1, len(wide)), np.tile(level, len(ends))).reshape(len(ends), -1)
        at, out = self.boxes(found.ravel())[0].reshape(ends.shape), list[Piece]()
        for k, cells in enumerate(found):
            there = meets & (cells != found[:k]).all(axis=0)
            out.append(Piece(there, self.value[cells], self.least[cells], self.slope[cells], at[k]))
        return out

    def below(self, low: Array, high: Array) -> list[Piece]:
        """One plane that is below the function on all of each box, with the slope of the cell in its middle.

        Larger boxes than cells lie in up to ``3^d`` cells, each of which is looked at where it meets the box alone, so
        that less is lost where the function is convex than by their planes on all of the box.

        Args:
            low: ``(N, d)``.
            high: ``(N, d)``.
        """
        wide, middle = self.high - self.low, 0.5 * (low + high)
        ends = [np.clip((end - self.low) / wide, 0.0, 1.0 - EPS) for end in (low, high)]
        size = np.maximum((ends[1] - ends[0]).max(axis=1), 2.0**-DEEPEST)
        level = np.clip(np.floor(-np.log2(size)) + 1.0, 0, DEEPEST).astype(int)
        first, last = (np.floor(end * 2.0 ** level[:, None]) for end in ends)
        level -= (last - first > 2.0).any(axis=1)
        first, last = (np.floor(end * 2.0 ** level[:, None]) for end in ends)
        parts = (np.arange(3 ** len(wide))[:, None] // 3 ** np.arange(len(wide))) % 3
        points = (np.minimum(first + parts[:, None], last) + 0.5) * 0.5 ** level[:, None]
        cells = self.find((self.low + points * wide).reshape(-1, len(wide)), np.tile(level, len(parts)))
        (at, half), shape = self.boxes(cells), points.shape
        a = np.maximum(low, (at - half - self.around).reshape(shape))
        b = np.minimum(high, (at + half + self.around).reshape(shape))
        slope, at, value = self.slope[cells].reshape(shape), at.reshape(shape), self.value[cells].reshape(shape[:2])
        own = self.slope[self.find(middle, level)]
        there, half = 0.5 * (a + b), np.maximum(0.5 * (b - a), 0.0) + 2 * EPS * (np.abs(a) + np.abs(b))
        falls = np.abs(slope - own) * half
        size = np.abs(slope) * (np.abs(there) + np.abs(at)) + np.abs(own) * (np.abs(there) + np.abs(middle)) + falls
        more = slope * (there - at) - own * (there - middle) - falls - 16 * EPS * size
        found = (value + more.sum(axis=2) - 16 * EPS * np.abs(value) - TINY).min(axis=0)
        meets = np.asarray(~((low > self.high) | (high < self.low)).any(axis=1))
        return [Piece(meets, found, self.least[cells].reshape(shape[:2]).min(axis=0), own, middle)]

    def spread(self, low: Array, high: Array, value: Array, most: Array) -> Array:
        """Of every cell the largest value ``(N,)`` of the boxes that meet it and are not sure to be below its least.

        Args:
            low: ``(M, d)``.
            high: ``(M, d)``.
            value: ``(M,)``.
            most: ``(M,)``: of cells whose least value is above, a box does not count.
        """
        out, rows, cells = np.full(len(self), -np.inf), np.arange(len(low)), np.zeros(len(low), dtype=int)
        low, high = np.maximum(low, self.low), np.minimum(high, self.high)
        while len(rows):
            middle, half = self.boxes(cells)
            meets = ((low[rows] <= middle + half) & (high[rows] >= middle - half)).all(axis=1)
            meets &= self.least[cells] <= most[rows]
            rows, cells, middle, half = rows[meets], cells[meets], middle[meets], half[meets]
            whole = ((low[rows] <= middle - half) & (high[rows] >= middle + half)).all(axis=1)
            whole |= self.first[cells] < 0
            np.maximum.at(out, cells[whole], value[rows[whole]])
            rows, first = rows[~whole], self.first[cells[~whole]]
            cells = (first[:, None] + np.arange(len(self.corners))).ravel()
            rows = np.repeat(rows, len(self.corners))
        for level in range(int(self.level.max())):
            cut = np.flatnonzero((self.first >= 0) & (self.level == level))
            for k in range(len(self.corners)):
                out[self.first[cut] + k] = np.maximum(out[self.first[cut] + k], out[cut])
        return np.where(self.first < 0, out, -np.inf)

    def ordered(self) -> tuple[Array, Array]:
        """Whether each cell is cut, ``(N,)``, larger ones first, and the numbers of those that are not."""
        order, k = [np.zeros(1, dtype=int)], np.arange(len(self.corners))
        while len(order[-1]):
            cut = order[-1][self.first[order[-1]] >= 0]
            order.append((self.first[cut][:, None] + k).ravel())
        cells = np.concatenate(order)
        cut = self.first[cells] >= 0
        return cut, cells[~cut]

    @classmethod
    def of(cls, low: Array, high: Array, cut: Array, signed: bool = False) -> tuple[Cells, int] | None:
        """Cells by what ``ordered`` says, and how much of it was read; ``None`` where it ends too soon."""
        out, at, cells = cls(low, high, signed), 0, np.zeros(1, dtype=int)
        while len(cells):
            own = cut[at : at + len(cells)]
            if len(own) < len(cells) or (own.any() and out.level[cells[0]] >= DEEPEST):
                return None
            at, before = at + len(cells), len(out)
            if own.any():
                out.cut(cells[own])
            cells = np.arange(before, len(out))
        return out, at


def _below(value: Array, slope: Array, half: Array) -> Array:
    """The least value of planes on boxes around where they are known."""
    falls = (np.abs(slope) * half).sum(axis=-1)
    return value - falls - 16 * EPS * (np.abs(value) + falls) - TINY
