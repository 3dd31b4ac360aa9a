"""Boxes of moves that are looked at for cells of states, and which of them are cut next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.local.togo import split

Array = np.ndarray
_LOW = 0.5
"""Boxes are cut whose bounds are up to there, from the least one of their cell to what is needed."""


@dataclass(frozen=True, eq=False)
class Met:
    """Boxes of moves.

    Attributes:
        cell: ``(N,)`` the cells.
        cost: ``(N,)`` lower bounds, less the plane's slope.
        low: ``(N, d)`` of the next states.
        high: ``(N, d)``.
        floor: ``(N,)`` lower bounds of the moves alone.
    """

    cell: Array
    cost: Array
    low: Array
    high: Array
    floor: Array

    def of(self, which: Array, cells: Array | None = None) -> Met:
        """Some of them; with ``cells`` the cells have these numbers."""
        own = self.cell if cells is None else cells[self.cell]
        return Met(own[which], self.cost[which], self.low[which], self.high[which], self.floor[which])

    def __add__(self, other: Met) -> Met:
        return Met.joined([self, other])

    @classmethod
    def joined(cls, some: list[Met]) -> Met:
        """All of them."""
        return cls(*(np.concatenate([getattr(met, name) for met in some]) for name in vars(some[0])))


@dataclass(frozen=True, eq=False)
class Pool:
    """Boxes of moves that may be cut.

    The bound of a cell is the least of its boxes: those that turn out to be above it need not have been cut. So the
    lower ones are, and the others wait.

    Attributes:
        met: the boxes.
        v: ``(N, q)`` their middles.
        dv: ``(N, q)`` half of their widths.

    Example:
        >>> met = Met(np.zeros(3, dtype=int), np.array([1.0, 2.0, 4.0]), *np.zeros((2, 3, 1)), np.zeros(3))
        >>> cell, v, dv, left, ended = Pool(met, np.zeros((3, 1)), np.ones((3, 1))).cut(np.array([3.5]))
        >>> len(cell), float(dv[0, 0]), left.met.cost, ended.cost
        (8, 0.25, array([], dtype=float64), array([4.]))
    """

    met: Met
    v: Array
    dv: Array

    @classmethod
    def empty(cls, d: int, q: int) -> Pool:
        """None."""
        none = np.zeros(0)
        met = Met(none.astype(int), none, np.zeros((0, d)), np.zeros((0, d)), none)
        return cls(met, np.zeros((0, q)), np.zeros((0, q)))

    def of(self, which: Array) -> Pool:
        """Some of them."""
        return Pool(self.met.of(which), self.v[which], self.dv[which])

    def __add__(self, other: Pool) -> Pool:
        return Pool(self.met + other.met, np.concatenate([self.v, other.v]), np.concatenate([self.dv, other.dv]))

    def cut(self, need: Array) -> tuple[Array, Array, Array, Pool, Met]:
        """The parts of boxes that are cut: cells, middles and half of the widths; those that wait; and the others.

        Args:
            need: ``(n,)`` of each cell the bound that is enough: boxes that are not below are done with.
        """
        on = self.met.cost < need[self.met.cell]
        own, lowest = self.of(on), np.full(len(need), np.inf)
        np.minimum.at(lowest, own.met.cell, own.met.cost)
        known = np.isfinite(lowest) & np.isfinite(need)  # else there is no middle
        rest = np.where(known, need, 0.0) - np.where(known, lowest, 0.0)
        some = own.met.cost <= (lowest + _LOW * rest)[own.met.cell]
        return *split(own.met.cell[some], own.v[some], own.dv[some]), own.of(~some), self.met.of(~on)
