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
from stability.local.chains import whole
from stability.local.unit import GatedUnit
from stability.rigor.constants import EPS, TINY
from stability.rigor.intervals import Interval
from stability.rigor.neighbours import above, below

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
class Boxes:
    """Boxes of states and moves.

    Attributes:
        s: ``(N, d)`` middles of states.
        ds: ``(N, d)`` half of their widths.
        v: ``(N, q)`` of moves.
        dv: ``(N, q)``.
        slope: ``(N, d)`` what is taken off for each state, ``g`` above.
    """

    s: Array
    ds: Array
    v: Array
    dv: Array
    slope: Array

    def of(self, which: slice | Array) -> Boxes:
        """Some of them."""
        return Boxes(self.s[which], self.ds[which], self.v[which], self.dv[which], self.slope[which])


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
    near, ranges = _near(step, at)
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
        np.minimum.at(bounds, (slice(None), own), _bounds(step, each, near.of(own), least_there[own]))
    for piece in after.below(low.T, high.T):
        bounds[:, piece.there] = np.fmax(bounds, _bounds(step, [piece], near, least_there))[:, piece.there]
    by_move = (near.spread[:, d:].sum(axis=1) > 0.5 * near.spread[:, :d].sum(axis=1)).any(axis=0)
    none = np.where(np.isinf(floor), floor, least_there + after.bottom)
    return Least(np.maximum(bounds[0], none), floor, bounds[1], low.T, high.T, by_move)


def _bounds(step: Moves, planes: list[Piece], near: _Near, floor: Array) -> Array:
    """``(2, N)``: the best of some planes over boxes and, nearly, over those of one move; what overflows is none."""
    found, d = list[tuple[Array, Array]](), len(near.value)
    for piece in planes:
        own = _planes(piece, near)
        found += [own.least(near, *paid) for paid in _paid(step, near, own.along[d:])]
    return np.fmax(np.fmax.reduce(found), floor + planes[0].least)


@dataclass(frozen=True, eq=False)
class _Near:
    """The next states over boxes: boxes along the last axis.

    Attributes:
        value: ``(d, N)`` in the middle, up to ``error``.
        error: with what slopes may be off over a box.
        slope: ``(d, d + q, N)`` there.
        spread: ``(d, d + q, N)`` what they make, at most.
        low: ``(d, d + q, d + q, N)`` of Hessians over the box.
        high: of these.
        bent: ``(d, N)`` what these make, at most.
        v: ``(q, N)`` the middles of moves.
        r: ``(d + q, N)`` half of the widths.
        worth: ``(d, N)`` what is taken off for each state.
    """

    value: Array
    error: Array
    slope: Array
    spread: Array
    low: Array
    high: Array
    bent: Array
    v: Array
    r: Array
    worth: Array

    @property
    def far(self) -> Array:
        """``(d, N)``: how far from the middle's they are at most."""
        reach = self.error + self.spread.sum(axis=1) + self.bent
        return reach * (1.0 + 64 * EPS) + 64 * EPS * np.abs(self.value) + TINY

    def of(self, rows: Array) -> _Near:
        """Some boxes."""
        return _Near(*(part[..., rows] for part in vars(self).values()))


def _near(step: Moves, at: Boxes) -> tuple[_Near, Interval]:
    """The next states over boxes, and their ranges ``(d, N)``."""
    middle, half = (np.concatenate(parts, axis=1).T for parts in ((at.s, at.v), (at.ds, at.dv + step.around)))
    r, count = np.ascontiguousarray(half), len(at.v)
    low, high = below(below(middle - r)), above(above(middle + r))
    x = Interval(np.concatenate([low, middle], axis=1), np.concatenate([high, middle], axis=1))
    values, found = step.unit.derivatives(x, count)
    f, df = _centred(Interval(values.low[:, count:], values.high[:, count:]))
    slopes = (np.stack([getattr(one.slope, end)[:, count:] for one in found]) for end in ("low", "high"))
    p, dp = _centred(Interval(*slopes))
    low, high = (np.stack([getattr(one.bend, end) for one in found])[:, whole(len(r))] for end in ("low", "high"))
    bent = 0.5 * (np.maximum(np.abs(low), np.abs(high)) * (r[:, None] * r)).sum(axis=(1, 2))
    parts = f, df + (dp * r).sum(axis=1), p, (np.abs(p) + dp) * r, low, high, bent
    return _Near(*parts, _turned(at.v), r, _turned(at.slope)), Interval(values.low[:, :count], values.high[:, :count])


def _floor(step: Moves, at: Boxes, r: Array) -> Array:
    """What moves cost at least, less the planes' slopes; infinite where all are too long."""
    size, falls = np.maximum(np.abs(at.v) - r[:, at.s.shape[1] :], 0.0), (np.abs(at.slope) * at.ds).sum(axis=1)
    square, slack = (size * size).sum(axis=1), 64 * EPS * ((at.v * at.v).sum(axis=1) + falls) + TINY
    if step.longest is None:
        return square - falls - slack
    return np.where(square - slack > step.longest * step.longest * (1.0 + 4 * EPS), np.inf, -falls - slack)


def _paid(step: Moves, at: _Near, along: Array) -> list[tuple[Array, Array]]:
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


@dataclass(frozen=True, eq=False)
class _Planes:
    """One plane on ``N`` boxes, but for what moves cost: see ``_planes``."""

    middle: Array
    along: Array
    of_states: Array
    cross: Array
    curved: Array
    slack: Array

    def least(self, at: _Near, price: Array, more: Array) -> tuple[Array, Array]:
        """The least values over the boxes and, nearly, over those of one move."""
        d, v = len(at.worth), at.v
        dv = at.r[d:]
        steep = np.abs(2.0 * price * v + self.along[d:]) + self.cross
        curved = price + self.curved
        inside = steep < 2.0 * curved * dv
        half = 0.5 * steep  # its square, or four times what is curved, may leave the range of floats
        lowest = -half * above(half / np.where(inside, curved, 1.0))
        by_moves = np.where(inside, lowest, (curved * dv - steep) * dv)
        square = price * (v * v).sum(axis=0)
        sizes = square + np.abs(more) + (price * (2.0 * np.abs(v) * dv + dv * dv)).sum(axis=0)
        narrow = square + more + self.middle - self.of_states - self.slack - 256 * EPS * sizes
        return narrow + by_moves.sum(axis=0), narrow


def _planes(piece: Piece, at: _Near) -> _Planes:
    b, c, d, count = _turned(piece.slope), _turned(piece.at), len(at.worth), len(at.r)
    size, ds, index, pairs = np.abs(b), at.r[:d], np.arange(count), np.triu_indices(count, 1)
    up, down = np.maximum(b, 0.0)[:, None], np.minimum(b, 0.0)[:, None]
    diagonal = (up * at.low[:, index, index] + down * at.high[:, index, index]).sum(axis=0)
    low, high = (end[:, pairs[0], pairs[1]] for end in (at.low, at.high))
    most = np.maximum(np.abs((up * low + down * high).sum(axis=0)), np.abs((up * high + down * low).sum(axis=0)))
    other = np.zeros((count, count, most.shape[1]))
    other[pairs] = other[pairs[1], pairs[0]] = most
    along = (b[:, None] * at.slope).sum(axis=0)
    sizes = (
        np.abs(piece.value) + (np.abs(at.worth) * ds).sum(axis=0)
        + (size * (np.abs(at.value) + np.abs(c) + at.spread.sum(axis=1) + 4.0 * at.bent)).sum(axis=0)
    )  # fmt: skip
    of_states = (np.abs(along[:d] - at.worth) * ds).sum(axis=0)
    of_states -= 0.5 * (np.minimum(diagonal[:d], 0.0) * ds * ds).sum(axis=0)
    of_states += 0.5 * (other[:d, :d] * ds[:, None] * ds).sum(axis=(0, 1))
    cross = (other[:d, d:] * ds[:, None]).sum(axis=0)
    curved = 0.5 * (diagonal[d:] - other[d:, d:].sum(axis=0))
    middle = piece.value + (b * (at.value - c)).sum(axis=0)
    error = (size * at.error).sum(axis=0)
    return _Planes(middle, along, of_states, cross, curved, error * (1.0 + 1e-10) + 256 * EPS * sizes + TINY)


def _turned(rows: Array) -> Array:
    """``(N, k)`` with boxes along the last axis."""
    return np.ascontiguousarray(rows.T)


def _centred(x: Interval) -> tuple[Array, Array]:
    """Middles, and how far the ends are from them."""
    middle = 0.5 * (x.low + x.high)
    return middle, (0.5 * (x.high - x.low)) * (1.0 + 4 * EPS) + 4 * EPS * np.abs(middle) + TINY
