r"""Steps whose perturbations cost nothing and add two numbers: the next states are an interval, and their least sum.

From a state ``h`` the next states of a step whose pairs ``(y, q)`` lie in a convex set (``stability.local.pairs``) fill
an interval. With the argument ``w`` of the activation in a range, and one of the set's tangents, its upper end is

.. math:: \max h^+ \le (A - s C) h + f - s e + H(s) + \max_w \big(s w + B \phi(w)\big) ,

a line in ``h``: over a cell of states the end lies below the highest of these lines, one for each range of ``w``, which
are halved where that pays. Where ``U`` is to be least between a lower line and an upper one, it is least on the stretch
of the lower end, on that of the upper one, or between both, which all states of the cell reach.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stability.local.bellman import Stage, partition
from stability.local.below import Lines, Table
from stability.local.curves import slopes
from stability.local.pairs import Pair, Tangents
from stability.local.ranges import crests
from stability.local.scalar import ScalarStep
from stability.rigor.constants import EPS, TINY
from stability.rigor.intervals import Interval
from stability.systems.activations import Activation

Array = np.ndarray
_ROUNDS, _NARROW, _FREE, _FLAT = 44, 1e-12, 0.1, 2_000
"""How often ranges are halved, and of all, below which none is; of what is lost, the least part that this has to gain;
boxes that cost as much as all that a step costs besides."""
_GRID, _ZOOMS = 33, 7
"""Values that are tried at once, and how often around the best."""


@dataclass(frozen=True, eq=False)
class Ends:
    """What ``sign`` times the next state is at most, over ``K`` cells: a line above each, by its ends.

    Attributes:
        left: ``(K,)``.
        right: ``(K,)``.
        best: ``(K,)`` the end from the middle of each cell, nearly.
        boxes: that were looked at.
    """

    left: Array
    right: Array
    best: Array
    boxes: int


@dataclass(frozen=True, eq=False)
class Span:
    """One such step.

    Attributes:
        step: the step, with a ``pair``.
        phi: the activation.
        low: of the states before it.
        high: of these.
    """

    step: ScalarStep
    phi: Activation
    low: float
    high: float

    @property
    def pair(self) -> Pair:
        """What the step adds."""
        assert self.step.pair is not None
        return self.step.pair

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Middles of the step's numbers, and what arguments and states are off by, as of ``Stage``."""
        y = self.pair.ends
        one = replace(self.step, S=Interval.point([1.0]), g=Interval.point([0.0]),
                      low=np.array([y[0]]), high=np.array([y[1]]))  # fmt: skip
        return vars(Stage(one, self.phi, self.low, self.high))

    def side(self, sign: float) -> Tangents:
        """Of ``sign q``."""
        return self.pair.sides[0 if sign > 0.0 else 1]

    def furthest(self, sign: float, h: Array) -> tuple[Array, Array]:
        """``sign`` times the furthest next states, nearly, and the ``y`` of these."""
        m, side, (low, high), index = self.numbers, self.side(sign), self.pair.ends, np.arange(len(h))
        best, where = np.full(len(h), -np.inf), np.full(len(h), 0.5 * low + 0.5 * high)
        away, grid = 0.5 * (high - low), np.linspace(-1.0, 1.0, _GRID)
        for _ in range(_ZOOMS):
            y = np.clip(where[:, None] + away * grid, low, high)
            met = sign * m["B"] * self.phi.function((m["C"] * h + m["e"])[:, None] + y) + side.height(y)
            k = met.argmax(axis=1)
            better = met[index, k] > best
            best, where = np.where(better, met[index, k], best), np.where(better, y[index, k], where)
            away = away * 3.0 / _GRID
        return best + sign * (m["A"] * h + m["f"]), where

    def ends(self, sign: float, knots: Array, small: float, room: float) -> Ends:
        """The lines above ``sign`` times the next states.

        Args:
            sign: one or minus one.
            knots: ``(K + 1,)`` of the cells.
            small: a difference that does not matter.
            room: boxes that may be looked at; then no range is halved any more.
        """
        m, phi, side, (low, high) = self.numbers, self.phi, self.side(sign), self.pair.ends
        A, B, C, f = sign * m["A"], sign * m["B"], m["C"], sign * m["f"]
        left, right = knots[:-1], knots[1:]
        count, centre = len(left), 0.5 * left + 0.5 * right
        wide = np.maximum(right - centre, centre - left) * (1.0 + 4 * EPS)
        best, where = self.furthest(sign, centre)
        z, steep, far = C * centre + m["e"], abs(B) * phi.slope[1], max(abs(self.low), abs(self.high))
        tilt = A - side.slope(where) * C
        span = high - low + 2.0 * abs(C) * wide
        cell, cuts = partition(where, abs(C) * wide + m["dz"], low, high)
        out, seen = (np.full(count, -np.inf), np.full(count, -np.inf)), _FLAT + count * _GRID * _ZOOMS // 8
        floor = np.full(count, -np.inf)
        for turn in range(_ROUNDS):
            y, zc, dh = 0.5 * cuts[0] + 0.5 * cuts[1], z[cell], wide[cell]
            s = self._touching(side, B, zc, cuts, dh * abs(C))
            crest, top = crests(phi, s, B, zc, *cuts), side.top(s)
            size = np.abs(crest) + np.abs(top) + (abs(A) + np.abs(s * C)) * far + abs(f)
            size = size + (np.abs(s) + steep) * (np.abs(cuts[0]) + np.abs(cuts[1]) + np.abs(zc))
            value = A * centre[cell] + f + top + crest + np.abs(s) * m["dz"] + m["dh"] + 64 * EPS * size + TINY
            slope = A - s * C
            ways = (slope * (knot[cell] - centre[cell]) for knot in (left, right))  # of cells of a few roundings, too
            ends = [value + np.maximum(way, side_ * slope * dh) for way, side_ in zip(ways, (-1.0, 1.0))]
            over = value - best[cell] + np.abs(slope - tilt[cell]) * dh
            seen += len(cell)
            split = (over > np.maximum(small, floor[cell])) & (cuts[1] - cuts[0] > _NARROW * span[cell])
            thin = s * y + B * phi.function(y + zc)
            split &= crest - thin > _FREE * over
            split &= turn < _ROUNDS - 1 and seen <= room
            np.maximum.at(floor, cell[~split], over[~split])
            for kept, end in zip(out, ends):
                np.maximum.at(kept, cell[~split], end[~split])
            if not split.any():
                break
            cell, y = np.tile(cell[split], 2), y[split]
            cuts = np.concatenate([cuts[0][split], y]), np.concatenate([y, cuts[1][split]])
        return Ends(*out, best, seen)

    def _touching(self, side: Tangents, B: float, z: Array, cuts: tuple[Array, Array], moved: Array) -> Array:
        """Slopes of tangents that suit ranges of ``y``: where they touch, the activation is to be as steep."""
        y, phi = 0.5 * cuts[0] + 0.5 * cuts[1], self.phi
        most, least = side.slope(cuts[0] - moved), side.slope(cuts[1] + moved)
        if phi.width is not None:
            return np.clip(-B * phi.derivative(y + z), least, most)
        ways = [-B * end for end in slopes(phi, cuts[0] + z, cuts[1] + z)]
        return np.clip(np.clip(side.slope(y), np.minimum(*ways), np.maximum(*ways)), least, most)

    def least(self, lines: Lines, knots: Array, small: float, room: float) -> tuple[Lines, Array, int]:
        """Lines below the least ``U`` of next states, these least values, nearly, at the cells' middles, and boxes.

        Args:
            lines: below ``U``.
            knots: ``(K + 1,)`` of the cells.
            small: see ``ends``.
            room: see ``ends``.
        """
        table, (first, last) = Table.of(lines), (lines.knots[0], lines.knots[-1])
        up = self.ends(1.0, knots, small, room)
        down = self.ends(-1.0, knots, small, room - up.boxes)
        bottom, top = (-down.left, -down.right), (up.left, up.right)
        low, high = (np.clip(pick(*pair), first, last) for pick, pair in ((np.minimum, bottom), (np.maximum, top)))
        inner = [np.clip(np.maximum(*bottom), low, high), np.clip(np.minimum(*top), low, high)]
        core = np.where(inner[0] <= inner[1], minima(lines, inner[0], np.maximum(*inner)), np.inf)
        left, right = core.copy(), core.copy()
        for begin, end, still in ((low, inner[0], inner[0]), (inner[1], high, inner[1])):
            found = _along(table, (begin, end), still, bottom, top)
            left, right = np.minimum(left, found[0]), np.minimum(right, found[1])
        nearly = minima(lines, *(np.clip(v, first, last) for v in (-down.best, np.maximum(up.best, -down.best))))
        return Lines(knots, left, right), nearly, up.boxes + down.boxes

    def followed(self, lines: Lines, h: float) -> tuple[float, float, float]:
        """Where the next state is to be that makes ``U`` least, nearly, and a pair that leads there."""
        at, m = np.array([h]), self.numbers
        pairs = list[tuple[float, float]]()
        for sign in (-1.0, 1.0):
            y = float(self.furthest(sign, at)[1][0])
            pairs.append((y, sign * float(self.side(sign).height(np.array([y]))[0])))

        def after(part: float) -> tuple[float, float, float]:
            y, q = ((1.0 - part) * a + part * b for a, b in zip(*pairs))
            phi = float(self.phi.function(np.array(m["C"] * h + m["e"] + y)))
            return m["A"] * h + m["B"] * phi + m["f"] + q, y, q

        low, high = after(0.0)[0], after(1.0)[0]
        tried = np.concatenate([[low, high], lines.knots[(lines.knots > low) & (lines.knots < high)]])
        aim = float(tried[lines.at(tried).argmin()])
        less, more = 0.0, 1.0
        for _ in range(60 if low < aim < high else 0):
            part = 0.5 * (less + more)
            less, more = (part, more) if after(part)[0] < aim else (less, part)
        return after(0.0 if aim <= low else 1.0 if aim >= high else less)


def _along(
    table: Table, stretch: tuple[Array, Array], at: Array, bottom: tuple[Array, Array], top: tuple[Array, Array]
) -> tuple[Array, Array]:
    """What ``U`` is at least on stretches next to an end that moves along a line, at both ends of the cells.

    On a stretch ``U`` lies above a line; where that rises, it is least at the lower end of the next states, and else at
    the upper one.

    Args:
        table: of ``U``.
        stretch: their ends, ``(K,)`` each.
        at: ``(K,)`` that end of each which does not move.
        bottom: the lower end of the next states at both ends of the cells.
        top: the upper one.
    """
    there = table.stretches(*stretch)
    best = np.full(len(at), -np.inf), np.full(len(at), -np.inf)
    for b in (np.zeros(len(at)), *there.slopes):
        value = there.below(at, b)
        lines = [np.where(b >= 0.0, *pair) for pair in zip(bottom, top)]
        size = [np.abs(value) + np.abs(b) * (np.abs(at) + np.abs(line)) for line in lines]
        ways = [value + b * (line - at) - 8 * EPS * own - TINY for line, own in zip(lines, size)]
        better = ways[0] + ways[1] > best[0] + best[1]
        best = np.where(better, ways[0], best[0]), np.where(better, ways[1], best[1])
    return best


def minima(lines: Lines, low: Array, high: Array) -> Array:
    """Lower bounds ``(N,)`` of a function on stretches within its grid: the least of its values at ends of cells.

    Example:
        >>> lines = Lines(np.array([0.0, 1.0, 2.0]), np.array([2.0, 1.0]), np.array([1.0, 3.0]))
        >>> minima(lines, np.array([0.5, 1.5]), np.array([2.0, 1.75])).round(6)
        array([1., 2.])
    """
    x, count = lines.knots, len(lines.left)
    levels = [np.minimum(lines.left, lines.right)]
    while 2 ** len(levels) <= count:
        size = 2 ** (len(levels) - 1)
        levels.append(np.minimum(levels[-1][:-size], levels[-1][size:]))
    first = np.clip(np.searchsorted(x, low, side="right") - 1, 0, count - 1)
    last = np.clip(np.searchsorted(x, high, side="left") - 1, first, count - 1)
    out = np.full(len(low), np.inf)
    for k in (first, last):  # the cells in which the stretch begins and ends
        wide = np.maximum(x[k + 1] - x[k], 1e-300)
        slack = 16 * EPS * (np.abs(lines.left[k]) + np.abs(lines.right[k])) + TINY
        for end in (np.maximum(low, x[k]), np.minimum(high, x[k + 1])):
            part = np.clip((end - x[k]) / wide, 0.0, 1.0)
            size = np.abs(lines.right[k] - lines.left[k]) * (8 * EPS * (np.abs(end) + np.abs(x[k])) / wide)
            out = np.minimum(out, lines.left[k] + part * (lines.right[k] - lines.left[k]) - slack - size)
    inner = last - first - 1
    level = np.where(inner > 0, np.floor(np.log2(np.maximum(inner, 1))).astype(int), 0)
    for own in np.unique(level[inner > 0]):
        mine = (level == own) & (inner > 0)
        a, b = first[mine] + 1, last[mine] - 2**own
        out[mine] = np.minimum(out[mine], np.minimum(levels[own][a], levels[own][b]))
    return out
