r"""What a step of an LSTM or GRU of one unit and all that follows cost at least, over boxes of states and moves.

.. math:: V_t(s) = \min_v |v|^2 + V_{t+1}(f_t(s, v)),

``v`` the perturbation of the step, in coordinates in which it is no longer than that of the input. Below
:math:`V_{t+1}` lie planes ``a + b^T (s' - c)``; with one of them

.. math:: |v|^2 + a + b^T (f_t(s, v) - c) - g^T (s - s_0)

is bounded from below over a box of states and moves by its value and slopes in the middle and the range of the Hessian
of :math:`b^T f_t`: along each coordinate of the move a parabola is left. What follows, and what ``V`` is
after the last step, is in ``stability.local.after``. Where each step has a ball or a box of its own, moves cost
nothing:

.. math:: V_t(s) = \min_{|v| \le \epsilon} V_{t+1}(f_t(s, v)).

Of boxes that a ball's sphere goes through, :math:`\mu (|v|^2 - \epsilon^2)` is added, at a price at which the sum is
stationary nearly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stability.local.after import After, Ending
from stability.local.cells import Piece
from stability.local.expansions import Boxes, Near, expanded, spread_on
from stability.local.unit import GatedUnit
from stability.rigor.constants import EPS, TINY

Array = np.ndarray
AT_ONCE = 4_000
"""Boxes, which take 4 KB each."""


@dataclass(frozen=True, eq=False)
class Moves:
    """A step with the box of its moves.

    Attributes:
        unit: the step.
        low: ``(q,)``.
        high: ``(q,)``.
        longest: of a move, where moves cost nothing; infinite for all of the box; ``None``: they cost their square.
    """

    unit: GatedUnit
    low: Array
    high: Array
    longest: float | None = None

    @property
    def around(self) -> Array:
        """``(q,)``: what is added to a box of moves, more than what rounding makes of its ends."""
        return 256 * EPS * np.maximum(np.abs(self.low), np.abs(self.high)) + TINY

    def priced(self, v: Array) -> Array:
        """What moves ``(N, q)`` cost, nearly; those that are too long are none."""
        square = (v * v).sum(axis=1)
        return square if self.longest is None else np.where(square > self.longest**2 * (1.0 + 1e-12), np.inf, 0.0)

    def grid(self, cells: int) -> tuple[Array, Array, Array]:
        """All moves, in boxes, for each of some cells: these by number, middles and half of the widths ``(N, q)``."""
        count = len(self.low)
        each = (1, 9, 5, 3, 3)[min(count, 4)]
        half = (self.high - self.low) / (2 * each)
        along = [low + (2 * np.arange(each) + 1) * h for low, h in zip(self.low, half)]
        middles = np.zeros((1, 0))
        if count:
            middles = np.stack(np.meshgrid(*along, indexing="ij"), axis=-1).reshape(-1, count)
        of = np.repeat(np.arange(cells), len(middles))
        return of, np.tile(middles, (cells, 1)), np.tile(half, (len(of), 1))


@dataclass(frozen=True, eq=False)
class Least:
    """What boxes cost at least.

    Attributes:
        cost: ``(N,)``; infinite where no state of another class is reached.
        floor: ``(N,)`` of the moves alone.
        narrow: ``(N,)`` nearly what it would be if the box of moves were its middle.
        low: ``(N, d)`` of the next states.
        high: ``(N, d)``.
        turned: ``(N,)`` whether the next states differ by the move, and not by the state.
    """

    cost: Array
    floor: Array
    narrow: Array
    low: Array
    high: Array
    turned: Array = field(repr=False)


def least(step: Moves, after: After | Ending, at: Boxes) -> Least:
    """Lower bounds over boxes, roundings included."""
    parts = [_least(step, after, at.of(slice(k, k + AT_ONCE))) for k in range(0, max(len(at.v), 1), AT_ONCE)]
    if len(parts) == 1:
        return parts[0]
    return Least(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])})


def _least(step: Moves, after: After | Ending, at: Boxes) -> Least:
    near, ranges = expanded(step.unit, at, step.around)
    (d, count), far = near.value.shape, near.far  # NaN where products overflow
    low, high = np.fmax(ranges.low, near.value - far), np.fmin(ranges.high, near.value + far)
    floor = _floor(step, at, near.r.T)
    least_there = np.where(np.isinf(floor), 0.0, floor)
    if isinstance(after, Ending):
        pieces = after.priced(low.T, high.T, at.v, near.slope[0].T, at.slope)
    else:
        pieces = [(piece,) for piece in after.pieces(low.T, high.T)]
    rows, bounds = [np.flatnonzero(others[0].there) for others in pieces], np.full((2, count), np.inf)
    if pieces:
        own = np.concatenate(rows)
        each = [Piece.joined([p.of(some) for p, some in zip(others, rows)]) for others in zip(*pieces)]
        for bound, more in zip(bounds, _bounds(step, each, near.of(own), least_there[own])):
            np.minimum.at(bound, own, more)
    for piece in after.below(low.T, high.T):
        bounds[:, piece.there] = np.fmax(bounds, _bounds(step, [piece], near, least_there))[:, piece.there]
    by_move = (near.spread[:, d:].sum(axis=1) > 0.5 * near.spread[:, :d].sum(axis=1)).any(axis=0)
    none = np.where(np.isinf(floor), floor, least_there + after.bottom)
    return Least(np.maximum(bounds[0], none), floor, bounds[1], low.T, high.T, by_move)


def _bounds(step: Moves, planes: list[Piece], near: Near, floor: Array) -> Array:
    """``(2, N)``: the best of some planes over boxes and, nearly, over those of one move; what overflows is none."""
    found, d = list[tuple[Array, Array]](), len(near.value)
    for piece in planes:
        own = spread_on(piece, near)
        found += [own.least(near, *paid) for paid in _paid(step, near, own.along[d:])]
    return np.fmax(np.fmax.reduce(found), floor + planes[0].least)


def _floor(step: Moves, at: Boxes, r: Array) -> Array:
    """What moves cost at least, less the planes' slopes; infinite where all are too long."""
    size, falls = np.maximum(np.abs(at.v) - r[:, at.s.shape[1] :], 0.0), (np.abs(at.slope) * at.ds).sum(axis=1)
    square, slack = (size * size).sum(axis=1), 64 * EPS * ((at.v * at.v).sum(axis=1) + falls) + TINY
    if step.longest is None:
        return square - falls - slack
    return np.where(square - slack > step.longest * step.longest * (1.0 + 4 * EPS), np.inf, -falls - slack)


def _paid(step: Moves, at: Near, along: Array) -> list[tuple[Array, Array]]:
    """Prices of the squares of moves, and what is added, which together are nowhere above what moves cost."""
    v, zero = at.v, np.zeros(at.v.shape[1])
    if step.longest is None:
        return [(zero + 1.0, zero)]
    if not np.isfinite(step.longest) or len(v) < 2:
        return [(zero, zero)]
    longest, square = step.longest * step.longest, (v * v).sum(axis=0)
    out = ((np.abs(v) + at.r[-len(v) :]) ** 2).sum(axis=0) > longest
    price = np.where(out, np.clip(-0.5 * (along * v).sum(axis=0) / np.maximum(square, 1e-300), 0.0, 1e12), 0.0)
    return [(zero, zero), (price, -price * longest * (1.0 + 4 * EPS))]
