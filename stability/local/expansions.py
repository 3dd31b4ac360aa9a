r"""Planes on the next states of an LSTM or GRU of one unit, over boxes of states and moves.

The next states :math:`f(s, v)` are known in the middle of a box with their slopes, and by the range of their Hessians
over all of it. So

.. math:: a + b^T (f(s, v) - c) - g^T (s - s_0) \ge m + \sum_j (p_j v_j + q_j v_j^2) - \sum_j r_j |v_j|,

``v`` from the middle on: what is linear in the states and what the Hessian may be off the diagonal is taken off at its
most. Boxes are along the last axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.local.cells import Piece
from stability.local.chains import whole
from stability.local.unit import GatedUnit
from stability.rigor.constants import EPS, TINY
from stability.rigor.intervals import Interval
from stability.rigor.neighbours import above, below

Array = np.ndarray


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
class Near:
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

    def of(self, rows: Array) -> Near:
        """Some boxes."""
        return Near(*(part[..., rows] for part in vars(self).values()))


def expanded(unit: GatedUnit, at: Boxes, around: Array) -> tuple[Near, Interval]:
    """The next states over boxes, and their ranges ``(d, N)``.

    Args:
        unit: the step.
        at: ``N`` boxes.
        around: ``(q,)`` what is added to those of moves.
    """
    middle, half = (np.concatenate(parts, axis=1).T for parts in ((at.s, at.v), (at.ds, at.dv + around)))
    r, count = np.ascontiguousarray(half), len(at.v)
    low, high = below(below(middle - r)), above(above(middle + r))
    x = Interval(np.concatenate([low, middle], axis=1), np.concatenate([high, middle], axis=1))
    values, found = unit.derivatives(x, count)
    f, df = _centred(Interval(values.low[:, count:], values.high[:, count:]))
    slopes = (np.stack([getattr(one.slope, end)[:, count:] for one in found]) for end in ("low", "high"))
    p, dp = _centred(Interval(*slopes))
    low, high = (np.stack([getattr(one.bend, end) for one in found])[:, whole(len(r))] for end in ("low", "high"))
    bent = 0.5 * (np.maximum(np.abs(low), np.abs(high)) * (r[:, None] * r)).sum(axis=(1, 2))
    parts = f, df + (dp * r).sum(axis=1), p, (np.abs(p) + dp) * r, low, high, bent
    return Near(*parts, _turned(at.v), r, _turned(at.slope)), Interval(values.low[:, :count], values.high[:, :count])


@dataclass(frozen=True, eq=False)
class Planes:
    """One plane on ``N`` boxes, but for what moves cost: see above."""

    middle: Array
    along: Array
    of_states: Array
    cross: Array
    curved: Array
    slack: Array

    def least(self, at: Near, price: Array, more: Array) -> tuple[Array, Array]:
        """The least values over the boxes and, nearly, over those of one move."""
        d, v = len(at.worth), at.v
        dv = at.r[d:]
        steep = np.abs(2.0 * price * v + self.along[d:]) + self.cross
        curved = price + self.curved
        inside = steep < 2.0 * curved * dv
        half = 0.5 * steep  # its square, or four times what is curved, may leave the range of floats
        lowest = -half * above(half / np.where(inside, curved, 1.0))
        by_moves = np.where(inside, lowest, (curved * dv - steep) * dv)
        by_moves = np.where(np.isfinite(curved) & np.isfinite(steep), by_moves, -np.inf)
        square = price * (v * v).sum(axis=0)
        sizes = square + np.abs(more) + (price * (2.0 * np.abs(v) * dv + dv * dv)).sum(axis=0)
        narrow = square + more + self.middle - self.of_states - self.slack - 256 * EPS * sizes
        return narrow + by_moves.sum(axis=0), narrow


def spread_on(piece: Piece, at: Near) -> Planes:
    """A plane for each box, on its next states."""
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
    return Planes(middle, along, of_states, cross, curved, error * (1.0 + 1e-10) + 256 * EPS * sizes + TINY)


def _turned(rows: Array) -> Array:
    """``(N, k)`` with boxes along the last axis."""
    return np.ascontiguousarray(rows.T)


def _centred(x: Interval) -> tuple[Array, Array]:
    """Middles, and how far the ends are from them."""
    middle = 0.5 * (x.low + x.high)
    return middle, (0.5 * (x.high - x.low)) * (1.0 + 4 * EPS) + 4 * EPS * np.abs(middle) + TINY
