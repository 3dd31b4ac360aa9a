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
from stability.local.jets import Jet
from stability.local.unit import GatedUnit
from stability.rigor.constants import EPS, TINY
from stability.rigor.intervals import Interval

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
    n, d = at.s.shape
    r = np.concatenate([at.ds, at.dv + step.around], axis=1)
    states = [Interval(at.s[:, k] - at.ds[:, k], at.s[:, k] + at.ds[:, k]) for k in range(d)]
    states = [Interval(np.nextafter(x.low, -np.inf), np.nextafter(x.high, np.inf)) for x in states]
    own, points = Interval(at.v - r[:, d:], at.v + r[:, d:]), [Interval.point(at.s[:, k]) for k in range(d)]
    own = Interval(np.nextafter(own.low, -np.inf), np.nextafter(own.high, np.inf))
    wide, thin = step.unit.jets(states, own, True), step.unit.jets(points, Interval.point(at.v), False)
    f, df = _centred([jet.value for jet in thin])
    slopes = [Interval(*(np.broadcast_to(end, (n, r.shape[1])) for end in (j.slope.low, j.slope.high))) for j in thin]
    p, dp = _centred(slopes)
    bends = [_ends(jet, n, r.shape[1]) for jet in wide]
    H_low, H_high = (np.stack([bend[k] for bend in bends], axis=1) for k in (0, 1))
    spread = (np.abs(p) + dp) * r[:, None]
    rest = 0.5 * np.einsum("nkij,ni,nj->nk", np.maximum(np.abs(H_low), np.abs(H_high)), r, r)
    far = (df + spread.sum(axis=2) + rest) * (1.0 + 64 * EPS) + 64 * EPS * np.abs(f) + TINY
    low = np.fmax(np.stack([jet.value.low for jet in wide], axis=1), f - far)  # far is NaN where products overflow
    high = np.fmin(np.stack([jet.value.high for jet in wide], axis=1), f + far)
    floor = _floor(step, at, r)
    least_there = np.where(np.isinf(floor), 0.0, floor)
    if isinstance(after, Ending):
        pieces = after.priced(low, high, at.v, p[:, 0], at.slope)
    else:
        pieces = [(piece,) for piece in after.pieces(low, high)]
    cost, narrow = np.full(n, np.inf), np.full(n, np.inf)
    for others in pieces:
        found, piece = list[tuple[Array, Array]](), others[0]
        for other in others:
            planes = _planes(other, at, r, (f, df), (p, dp), (H_low, H_high))
            found += [planes.least(at, r, *paid) for paid in _paid(step, at, r, planes.along[:, d:])]
        own = [np.fmax(x, least_there + piece.least) for x in np.fmax.reduce(found)]  # what overflows is no bound
        cost = np.where(piece.there, np.minimum(cost, own[0]), cost)
        narrow = np.where(piece.there, np.minimum(narrow, own[1]), narrow)
    by_move = (spread[:, :, d:].sum(axis=2) > 0.5 * spread[:, :, :d].sum(axis=2)).any(axis=1)
    none = np.where(np.isinf(floor), floor, least_there + after.bottom)
    return Least(np.maximum(cost, none), floor, narrow, low, high, by_move)


def _floor(step: Moves, at: Boxes, r: Array) -> Array:
    """What moves cost at least, less the planes' slopes; infinite where all are too long."""
    size, falls = np.maximum(np.abs(at.v) - r[:, at.s.shape[1] :], 0.0), (np.abs(at.slope) * at.ds).sum(axis=1)
    square, slack = (size * size).sum(axis=1), 64 * EPS * ((at.v * at.v).sum(axis=1) + falls) + TINY
    if step.longest is None:
        return square - falls - slack
    return np.where(square - slack > step.longest * step.longest * (1.0 + 4 * EPS), np.inf, -falls - slack)


def _paid(step: Moves, at: Boxes, r: Array, along: Array) -> list[tuple[Array, Array]]:
    """Prices of the squares of moves, and what is added, which together are nowhere above what moves cost."""
    zero, square = np.zeros(len(at.v)), (at.v * at.v).sum(axis=1)
    if step.longest is None:
        return [(np.ones(len(at.v)), zero)]
    if not np.isfinite(step.longest) or at.v.shape[1] < 2:
        return [(zero, zero)]
    longest = step.longest * step.longest
    out = ((np.abs(at.v) + r[:, at.s.shape[1] :]) ** 2).sum(axis=1) > longest
    price = np.where(out, np.clip(-0.5 * (along * at.v).sum(axis=1) / np.maximum(square, 1e-300), 0.0, 1e12), 0.0)
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

    def least(self, at: Boxes, r: Array, price: Array, more: Array) -> tuple[Array, Array]:
        """The least values over the boxes and, nearly, over those of one move."""
        d, dv, a = at.s.shape[1], r[:, at.s.shape[1] :], price[:, None]
        steep = np.abs(2.0 * a * at.v + self.along[:, d:]) + self.cross
        curved = a + self.curved
        inside = steep < 2.0 * curved * dv
        half = 0.5 * steep  # its square, or four times what is curved, may leave the range of floats
        lowest = -half * np.nextafter(half / np.where(inside, curved, 1.0), np.inf)
        by_moves = np.where(inside, lowest, (curved * dv - steep) * dv)
        square = price * (at.v * at.v).sum(axis=1)
        sizes = square + np.abs(more) + (a * (2.0 * np.abs(at.v) * dv + dv * dv)).sum(axis=1)
        narrow = square + more + self.middle - self.of_states - self.slack - 256 * EPS * sizes
        return narrow + by_moves.sum(axis=1), narrow


def _planes(
    piece: Piece, at: Boxes, r: Array, value: tuple[Array, Array], slope: tuple[Array, Array], bend: tuple[Array, Array]
) -> _Planes:
    (f, df), (p, dp), b, d = value, slope, piece.slope, at.s.shape[1]
    size, ds = np.abs(b), r[:, :d]
    up = (b >= 0.0)[:, :, None, None]
    H = np.einsum("nk,nkij->nij", b, np.where(up, bend[0], bend[1]))
    H_most = np.maximum(np.abs(H), np.abs(np.einsum("nk,nkij->nij", b, np.where(up, bend[1], bend[0]))))
    diagonal, other = np.einsum("nii->ni", H), H_most * (1.0 - np.eye(r.shape[1]))
    H_size = np.einsum("nk,nkij->nij", size, np.maximum(np.abs(bend[0]), np.abs(bend[1])))
    along = np.einsum("nk,nkj->nj", b, p)
    error = (size * df).sum(axis=1) + np.einsum("nk,nkj,nj->n", size, dp, r)
    sizes = (
        np.abs(piece.value) + (size * (np.abs(f) + np.abs(piece.at))).sum(axis=1)
        + np.einsum("nk,nkj,nj->n", size, np.abs(p) + dp, r) + (np.abs(at.slope) * ds).sum(axis=1)
        + 2.0 * np.einsum("nij,ni,nj->n", H_size, r, r)
    )  # fmt: skip
    of_states = (np.abs(along[:, :d] - at.slope) * ds).sum(axis=1)
    of_states -= 0.5 * (np.minimum(diagonal[:, :d], 0.0) * ds * ds).sum(axis=1)
    of_states += 0.5 * np.einsum("nij,ni,nj->n", other[:, :d, :d], ds, ds)
    cross = np.einsum("nij,ni->nj", other[:, :d, d:], ds)
    curved = 0.5 * (diagonal[:, d:] - other[:, d:, d:].sum(axis=2))
    middle = piece.value + (b * (f - piece.at)).sum(axis=1)
    return _Planes(middle, along, of_states, cross, curved, error * (1.0 + 1e-10) + 256 * EPS * sizes + TINY)


def _ends(jet: Jet, n: int, size: int) -> tuple[Array, Array]:
    if jet.bend is None:
        return np.zeros((n, size, size)), np.zeros((n, size, size))
    return np.broadcast_to(jet.bend.low, (n, size, size)), np.broadcast_to(jet.bend.high, (n, size, size))


def _centred(parts: list[Interval]) -> tuple[Array, Array]:
    """Middles, and how far the ends are from them, along a second axis."""
    low, high = (np.stack([getattr(x, end) for x in parts], axis=1) for end in ("low", "high"))
    middle = 0.5 * (low + high)
    return middle, (0.5 * (high - low)) * (1.0 + 4 * EPS) + 4 * EPS * np.abs(middle) + TINY
