r"""A margin of a small network, with its first two derivatives, over many boxes of coordinates at once, in intervals.

With :math:`z_t` the channels' arguments, :math:`Z_t = \partial z_t / \partial y` and :math:`\omega_t` what the margin
gains by the channels' outputs,

.. math:: \nabla M = \sum_t E_t^T (\phi'(z_t) \omega_t) + F_t^T \lambda_t, \qquad
          \nabla^2 M = \sum_t \sum_i \omega_{t,i} \phi''(z_{t,i}) Z_{t,i}^T Z_{t,i} .

A kink where the slope rises counts as :math:`\phi'' \ge 0`, which leaves the lower bound of the Hessian alone wherever
:math:`\omega \ge 0` (the margin is the limit of those of smooth activations with slopes in between). Where that is not
so, a box has no Hessian; then its runs are told apart by the ``Sides`` of the kink that they are on. On either side the
activation is the one that has the pieces of that side alone, the first and the last of them continued for ever: these
margins are the true ones of the runs that are there, whatever they are of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.local.coordinates import Coordinates
from stability.local.jets import column, square, steep, summed
from stability.local.supports import Lines, Ruler, Sides, ruler
from stability.local.unrolled import unrolled
from stability.rigor.constants import EPS
from stability.rigor.intervals import Interval, sigmoid, tanh
from stability.systems.activations import Activation, activation

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Expansion:
    """What is known of a margin over ``N`` boxes.

    Attributes:
        value: ``(N,)``.
        slope: ``(N, k)``.
        hessian: ``(N, k, k)``, of which the margin's Hessian is at least one; ``None`` where not asked for.
        bent: ``(N,)`` the kink that leaves none, ``(step * channels + channel) * kinks + kink``; -1 where there is one.
        empty: ``(N,)`` whether no run of the box is on the sides that are told; with ``kept`` alone.
        lines: ``(N, T m)`` the kinks whose lines are in the activation's place, see ``supports``; -1: none is. The
            value is that of the runs with and without them, slope and Hessian are those with them.
    """

    value: Interval
    slope: Interval
    hessian: Interval | None
    bent: Array
    empty: Array
    lines: Array

    def some(self, which: Array) -> Expansion:
        """That of some of the boxes."""
        hessian = None if self.hessian is None else _part(self.hessian, which)
        rest = self.bent[which], self.empty[which], self.lines[which]
        return Expansion(_part(self.value, which), _part(self.slope, which), hessian, *rest)


_Way = tuple[list[Interval], list[Interval], list[Interval], list[Ruler | None]]
"""Of a step: the channels' arguments, their derivatives, slopes, and the lines in the activation's place."""


def _part(x: Interval, which: Array) -> Interval:
    return Interval(x.low[which], x.high[which])


def _entry(M: Interval, i: int, j: int) -> Interval | None:
    """An entry of a matrix; ``None`` where it is zero."""
    low, high = M.low[i, j], M.high[i, j]
    return None if low == 0.0 == high else Interval(low, high)


def _product(M: Interval, parts: list[Interval], i: int) -> list[Interval]:
    """The summands of row ``i`` of ``M`` times a vector."""
    return [m * part for j, part in enumerate(parts) if (m := _entry(M, i, j)) is not None]


def _added(parts: list[Interval], zero: Interval) -> Interval:
    out = zero
    for k, part in enumerate(parts):
        out = part if k == 0 else out + part
    return out


def weights(of: Coordinates, label: int, other: int) -> tuple[Interval, Interval]:
    """The margin's row ``(n,)`` and bias, of a mean times the steps."""
    head, bias = of.classifier.weight, of.classifier.bias
    own = Interval.point(bias[label]) - Interval.point(bias[other])
    if of.classifier.reduction == "mean":
        own = own * Interval.point(float(len(of.steps)))
    return Interval.point(head[label]) - Interval.point(head[other]), own


def expansion(
    of: Coordinates,
    margin: tuple[Interval, Interval],
    low: Array,
    high: Array,
    sides: Sides | None = None,
    *,
    second: bool = True,
    kept: bool = False,
    lines: Lines | None = None,
) -> Expansion:
    """The margin over boxes.

    Args:
        of: the ball.
        margin: as of ``weights``.
        low: ``(N, k)``.
        high: ``(N, k)``.
        sides: the pieces that count; ``None``: all of them.
        second: whether the Hessian is asked for.
        kept: whether runs on other sides are left out of all ranges: then the value alone is of use.
        lines: that take the activation's place: where they are told, or where the margin with them is proved to be
            nowhere larger.

    Example:
        >>> from stability.local.classifier import Classifier
        >>> from stability.local.coordinates import coordinates
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> ball = coordinates(Classifier(cell, [[1.0], [-1.0]]), np.ones((1, 1)), 0.5, "l2")
        >>> found = expansion(ball, weights(ball, 0, 1), np.zeros((1, 1)), np.zeros((1, 1)))
        >>> bool(abs(found.value.low[0] - 2 * np.tanh(1.0)) < 1e-12)
        True
    """
    if of.units:
        value, slope, hessian = unrolled(of, margin, low, high, second)
        count = len(low)
        none = np.full(count, -1), np.zeros(count, dtype=bool), np.full((count, 0), -1)
        return Expansion(value, slope, hessian, *none)
    (w, bias), y = margin, Interval(low, high)
    sides = None if sides is None or not sides[0].shape[1] else sides
    (count, k), n = low.shape, of.classifier.states
    none, flat = Interval.point(np.zeros(count)), Interval.point(np.zeros((count, k)))
    zero = Interval.point(np.zeros(count))
    phi, ways = activation(of.classifier.recurrent.activation), list[_Way]()
    h = [zero + Interval.point(value) for value in of.classifier.start]
    dh, value, last = [flat] * n, zero + bias, len(of.steps) - 1
    empty = np.zeros(count, dtype=bool)
    for t, step in enumerate(of.steps):
        entered = Interval(y.low[:, step.of], y.high[:, step.of])
        z, dz, slopes, rulers = list[Interval](), list[Interval](), list[Interval](), list[Ruler | None]()
        a, da, m = list[Interval](), list[Interval](), len(of.C.low)
        for j in range(m):
            own, on = Interval(step.E.low[j], step.E.high[j]), None if sides is None else _of(sides, t * m + j)
            parts = [Interval(step.e.low[j], step.e.high[j]), *_product(of.C, h, j), *_product(of.D, a, j)]
            moved = _added([*_product(of.C, dh, j), *_product(of.D, da, j)], flat)
            one, line = _added([*parts, summed(own * entered)], none), None
            one = _kept(phi, one, on, empty) if kept else one
            if lines is not None and phi.kinks:
                line = ruler(phi, one, on, lines, t * m + j)
            z.append(one)
            dz.append(_entering(moved, step.of, own))
            slopes.append(_slope(phi, one, on))
            rulers.append(line)
            a.append(_value(phi, one, on) if line is None else line.value(_value(phi, one, on)))
            da.append(column(slopes[j]) * dz[j])
        ways.append((z, dz, slopes, rulers))
        following, dfollowing = list[Interval](), list[Interval]()
        for i in range(n):
            own = Interval(step.F.low[i], step.F.high[i])
            parts = [Interval(step.f.low[i], step.f.high[i]), *_product(of.A, h, i), *_product(of.B, a, i)]
            following.append(_added([*parts, summed(own * entered)], none) + zero)
            moved = _added([*_product(of.A, dh, i), *_product(of.B, da, i)], flat)
            dfollowing.append(_entering(moved, step.of, own))
        h, dh = following, dfollowing
        if t == last or of.classifier.reduction == "mean":
            for i in range(n):
                value = value + Interval(w.low[i], w.high[i]) * h[i]
    slope, hessian, bent, told = _backwards(of, w, phi, ways, (count, k), sides, second)
    return Expansion(value, slope, hessian, bent, empty, told)


def _of(sides: Sides, unit: int) -> Sides:
    return sides[0][:, unit], sides[1][:, unit]


def _entering(moved: Interval, of: slice, own: Interval) -> Interval:
    """Derivatives, and what the step's own coordinates add to theirs."""
    if not (own.low.any() or own.high.any()):
        return moved
    added = Interval(moved.low[:, of], moved.high[:, of]) + own
    low, high = moved.low.copy(), moved.high.copy()
    low[:, of], high[:, of] = added.low, added.high
    return Interval(low, high)


def _backwards(
    of: Coordinates,
    w: Interval,
    phi: Activation,
    ways: list[_Way],
    shape: tuple[int, int],
    sides: Sides | None,
    second: bool,
) -> tuple[Interval, Interval | None, Array, Array]:
    count, k = shape
    zero, n, m = Interval.point(np.zeros(count)), of.classifier.states, len(of.C.low)
    worth, last = [zero] * n, len(ways) - 1
    low, high, bent = np.zeros(shape), np.zeros(shape), np.full(count, -1)
    lines = np.full((count, len(ways) * m), -1)
    hessian = Interval.point(np.zeros((count, k, k))) if second else None
    turned = [Interval(M.low.T, M.high.T) for M in (of.A, of.B, of.C, of.D)]
    for t in range(last, -1, -1):
        (z, dz, slopes, rulers), step = ways[t], of.steps[t]
        if t == last or of.classifier.reduction == "mean":
            worth = [part + Interval(w.low[i], w.high[i]) for i, part in enumerate(worth)]
        out, through = [zero] * m, [zero] * m
        for j in range(m - 1, -1, -1):
            out[j] = _added([*_product(turned[1], worth, j), *_product(turned[3], through, j)], zero)
            one = rulers[j]
            lines[:, t * m + j] = -1 if one is None else one.chosen(out[j])
            through[j] = out[j] * (slopes[j] if one is None else one.steep(slopes[j], lines[:, t * m + j]))
        parts = [column(omega) * Interval(step.E.low[j], step.E.high[j]) for j, omega in enumerate(through)]
        parts += [column(one) * Interval(step.F.low[i], step.F.high[i]) for i, one in enumerate(worth)]
        entered = _added(parts, zero)
        low[:, step.of], high[:, step.of] = entered.low, entered.high
        if hessian is not None:
            for j, omega in enumerate(out):
                if phi.width is not None:
                    hessian = hessian + column(omega * _curve(phi, z[j]), times=2) * square(dz[j])
                else:
                    unit = t * m + j
                    here = _concave(phi, z[j], omega, None if sides is None else _of(sides, unit))
                    here = np.where(lines[:, unit] < 0, here, -1)
                    bent = np.where(here >= 0, unit * len(phi.kinks) + here, bent)
        worth = [_added([*_product(turned[0], worth, i), *_product(turned[2], through, i)], zero) for i in range(n)]
    return Interval(low, high), hessian, bent, lines


def _value(phi: Activation, z: Interval, sides: Sides | None) -> Interval:
    if phi.width is not None:
        return tanh(z) if phi.name == "tanh" else sigmoid(z)
    ends = [_extended(phi, end, sides) for end in (z.low, z.high)]
    far = np.maximum(np.abs(z.low), np.abs(z.high)) + max(map(abs, phi.kinks), default=0.0)
    slack = 16 * EPS * far if phi.kinks else 0.0 * far
    return Interval(ends[0] - slack, ends[1] + slack)


def _extended(phi: Activation, z: Array, sides: Sides | None) -> Array:
    """The activation with some of its pieces alone, the first and the last of which go on for ever."""
    kink = [*phi.kinks[:1], *phi.kinks] or [0.0]
    at = [float(phi.function(np.array(k))) - s * k for k, s in zip(kink, phi.pieces)]
    least = np.zeros(z.shape, dtype=int) if sides is None else sides[0]
    most = np.full(z.shape, len(phi.kinks)) if sides is None else sides[1]
    out = np.array(phi.pieces)[least] * z + np.array(at)[least]
    for i, k in enumerate(phi.kinks):
        more = (phi.pieces[i + 1] - phi.pieces[i]) * np.maximum(z - k, 0.0)
        out = out + np.where((least <= i) & (i < most), more, 0.0)
    return out


def _slope(phi: Activation, z: Interval, sides: Sides | None) -> Interval:
    if phi.width is not None:
        return steep(phi.width, phi.slope[1], tanh(Interval.point(phi.width) * z))[0]
    least, most = (np.array(0), np.array(len(phi.kinks))) if sides is None else sides
    low, high = np.full(z.low.shape, np.inf), np.full(z.low.shape, -np.inf)
    for i, (piece, left, right) in enumerate(zip(phi.pieces, (-np.inf, *phi.kinks), (*phi.kinks, np.inf))):
        there = (least <= i) & (i <= most) & ((z.low <= right) | (i == most)) & ((z.high >= left) | (i == least))
        low, high = np.where(there, np.minimum(low, piece), low), np.where(there, np.maximum(high, piece), high)
    return Interval(low, high)


def _curve(phi: Activation, z: Interval) -> Interval:
    """``phi'' = -2 w beta (t - t^3)`` with ``t = tanh(w z)``."""
    assert phi.width is not None
    return steep(phi.width, phi.slope[1], tanh(Interval.point(phi.width) * z))[1]


def _concave(phi: Activation, z: Interval, omega: Interval, sides: Sides | None) -> Array:
    """The number of a kink within the range of ``z`` that may bend the margin downwards, or -1."""
    out = np.full(z.low.shape, -1)
    for i, (kink, before, after) in enumerate(zip(phi.kinks, phi.pieces, phi.pieces[1:])):
        inside = (z.low <= kink) & (z.high >= kink)
        if sides is not None:
            inside &= (sides[0] <= i) & (i < sides[1])
        out = np.where(inside & ~((omega.low >= 0.0) if after > before else (omega.high <= 0.0)), i, out)
    return out


def _kept(phi: Activation, z: Interval, sides: Sides | None, dead: Array) -> Interval:
    """The part of a range that lies on some pieces; boxes that have none are marked."""
    if sides is None or not phi.kinks:
        return z
    kinks = np.array([-np.inf, *phi.kinks, np.inf])
    low, high = np.maximum(z.low, kinks[sides[0]]), np.minimum(z.high, kinks[sides[1] + 1])
    dead |= low > high
    return Interval(np.where(low > high, z.low, low), np.where(low > high, z.high, high))
