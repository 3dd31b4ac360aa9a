r"""What a step of an LSTM or GRU of one unit and all that follows cost at least, over boxes of states and moves.

.. math:: V_t(s) = \min_v |v|^2 + V_{t+1}(f_t(s, v)),

``v`` the perturbation of the step, in coordinates in which it is no longer than that of the input. Below
:math:`V_{t+1}` lie planes ``a + b^T (s' - c)``; with one of them

.. math:: |v|^2 + a + b^T (f_t(s, v) - c) - g^T (s - s_0)

is bounded from below over a box of states and moves by its value and slopes in the middle and the range of the Hessian
of :math:`b^T f_t`: along each coordinate of the move a parabola is left. After the last step ``V`` is zero for states
of another class and infinite for the others; then planes are prices times how far the state is from its bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from stability.local.cells import Piece
from stability.local.jets import Jet
from stability.local.unit import GatedUnit
from stability.rigor.constants import EPS, TINY
from stability.rigor.intervals import Interval

Array = np.ndarray
AT_ONCE = 20_000
"""Boxes, which take 4 KB each."""


class After(Protocol):
    """Lower bounds of what follows a step."""

    def pieces(self, low: Array, high: Array) -> list[Piece]:
        """Planes below it, for boxes ``(N, d)`` of states."""
        ...


@dataclass(frozen=True, eq=False)
class Ending:
    """What follows the last step: nothing, for states of another class.

    Attributes:
        low: states ``h`` from here on surely have the class; minus infinity where there are no others below.
        high: up to here; infinity where there are no others above.
    """

    low: float
    high: float

    @property
    def sides(self) -> list[tuple[float, float]]:
        """A sign and a bound, for each side of states that may have another class."""
        return [(sign, at) for sign, at in ((1.0, self.high), (-1.0, self.low)) if np.isfinite(at)]

    def priced(self, low: Array, high: Array, v: Array, slope: Array) -> list[Piece]:
        """Planes, with prices at which the cost is stationary nearly; ``slope`` is ``(N, q)`` of ``h`` by ``v``."""
        out, size = list[Piece](), np.maximum((slope * slope).sum(axis=1), 1e-30)
        zero, shape = np.zeros(len(low)), low.shape
        for sign, at in self.sides:
            there = ~(high[:, 0] < at) if sign > 0.0 else ~(low[:, 0] > at)
            b, c = np.zeros(shape), np.zeros(shape)
            b[:, 0] = -sign * np.clip(2.0 * sign * (v * slope).sum(axis=1) / size, 0.0, 1e12)
            c[:, 0] = at
            out.append(Piece(there, zero, zero, b, c))
        return out


@dataclass(frozen=True, eq=False)
class Moves:
    """A step with the box of its moves.

    Attributes:
        unit: the step.
        low: ``(q,)``.
        high: ``(q,)``.
    """

    unit: GatedUnit
    low: Array
    high: Array

    @property
    def around(self) -> Array:
        """``(q,)``: what is added to a box of moves, more than what rounding makes of its ends."""
        return 256 * EPS * np.maximum(np.abs(self.low), np.abs(self.high))

    def grid(self, count: int) -> tuple[Array, Array]:
        """All moves, in boxes: middles and half of the widths, ``(N, q)``."""
        each = (1, 9, 5, 3, 3)[min(count, 4)]
        half = (self.high - self.low) / (2 * each)
        along = [low + (2 * np.arange(each) + 1) * h for low, h in zip(self.low, half)]
        middles = np.zeros((1, 0))
        if count:
            middles = np.stack(np.meshgrid(*along, indexing="ij"), axis=-1).reshape(-1, count)
        return middles, np.broadcast_to(half, middles.shape).copy()


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
        middle: ``(N, d)`` that of the middle, nearly.
        turned: ``(N,)`` whether the next states differ by the move, and not by the state.
    """

    cost: Array
    floor: Array
    narrow: Array
    low: Array
    high: Array
    middle: Array
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
    squares, falls = (at.v * at.v).sum(axis=1), (np.abs(at.slope) * at.ds).sum(axis=1)
    floor = (np.maximum(np.abs(at.v) - r[:, d:], 0.0) ** 2).sum(axis=1) - falls - 64 * EPS * (squares + falls) - TINY
    if isinstance(after, Ending):
        pieces = after.priced(low, high, at.v, p[:, 0, d:])
    else:
        pieces = after.pieces(low, high)
    cost, narrow = np.full(n, np.inf), np.full(n, np.inf)
    for piece in pieces:
        found = _parabolas(piece, at, r, (f, df), (p, dp), (H_low, H_high))
        both = [np.fmax(x, floor + piece.least) for x in found]  # what overflows is no bound
        cost = np.where(piece.there, np.minimum(cost, both[0]), cost)
        narrow = np.where(piece.there, np.minimum(narrow, both[1]), narrow)
    by_move = (spread[:, :, d:].sum(axis=2) > 0.5 * spread[:, :, :d].sum(axis=2)).any(axis=1)
    return Least(np.maximum(cost, floor), floor, narrow, low, high, f, by_move)


def _parabolas(
    piece: Piece, at: Boxes, r: Array, value: tuple[Array, Array], slope: tuple[Array, Array], bend: tuple[Array, Array]
) -> tuple[Array, Array]:
    """The least values with one plane, over the boxes and, nearly, over those of one move."""
    (f, df), (p, dp), b, d = value, slope, piece.slope, at.s.shape[1]
    size, ds, dv = np.abs(b), r[:, :d], r[:, d:]
    up = (b >= 0.0)[:, :, None, None]
    H = np.einsum("nk,nkij->nij", b, np.where(up, bend[0], bend[1]))
    H_most = np.maximum(np.abs(H), np.abs(np.einsum("nk,nkij->nij", b, np.where(up, bend[1], bend[0]))))
    diagonal, other = np.einsum("nii->ni", H), H_most * (1.0 - np.eye(r.shape[1]))
    H_size = np.einsum("nk,nkij->nij", size, np.maximum(np.abs(bend[0]), np.abs(bend[1])))
    along = np.einsum("nk,nkj->nj", b, p)
    error = (size * df).sum(axis=1) + np.einsum("nk,nkj,nj->n", size, dp, r)
    sizes = (
        (at.v * at.v).sum(axis=1) + np.abs(piece.value) + (size * (np.abs(f) + np.abs(piece.at))).sum(axis=1)
        + np.einsum("nk,nkj,nj->n", size, np.abs(p) + dp, r) + (np.abs(at.slope) * ds).sum(axis=1)
        + (2.0 * np.abs(at.v) * dv + dv * dv).sum(axis=1) + 2.0 * np.einsum("nij,ni,nj->n", H_size, r, r)
    )  # fmt: skip
    middle = (at.v * at.v).sum(axis=1) + piece.value + (b * (f - piece.at)).sum(axis=1)
    of_states = middle - (np.abs(along[:, :d] - at.slope) * ds).sum(axis=1)
    of_states += 0.5 * (np.minimum(diagonal[:, :d], 0.0) * ds * ds).sum(axis=1)
    of_states -= 0.5 * np.einsum("nij,ni,nj->n", other[:, :d, :d], ds, ds)
    steep = np.abs(2.0 * at.v + along[:, d:]) + np.einsum("nij,ni->nj", other[:, :d, d:], ds)
    curved = 1.0 + 0.5 * (diagonal[:, d:] - other[:, d:, d:].sum(axis=2))
    inside = steep < 2.0 * curved * dv
    least_there = np.where(inside, -steep * steep / np.where(inside, 4.0 * curved, 1.0), (curved * dv - steep) * dv)
    slack = error * (1.0 + 1e-10) + 256 * EPS * sizes + TINY
    return of_states + least_there.sum(axis=1) - slack, of_states - slack


def _ends(jet: Jet, n: int, size: int) -> tuple[Array, Array]:
    if jet.bend is None:
        return np.zeros((n, size, size)), np.zeros((n, size, size))
    return np.broadcast_to(jet.bend.low, (n, size, size)), np.broadcast_to(jet.bend.high, (n, size, size))


def _centred(parts: list[Interval]) -> tuple[Array, Array]:
    """Middles, and how far the ends are from them, along a second axis."""
    low, high = (np.stack([getattr(x, end) for x in parts], axis=1) for end in ("low", "high"))
    middle = 0.5 * (low + high)
    return middle, (0.5 * (high - low)) * (1.0 + 4 * EPS) + 4 * EPS * np.abs(middle) + TINY
