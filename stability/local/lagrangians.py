"""Lower bounds of a margin's Lagrangian over boxes, by its slopes and its Hessian: see ``stability.local.covering``."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stability.local.coordinates import Coordinates
from stability.local.hessians import Expansion, expansion
from stability.local.jets import column, square
from stability.local.minorants import first_order, second_order
from stability.local.supports import Lines, Sides
from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma
from stability.rigor.intervals import Interval

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Touch:
    """What is named for one class: where ``L`` is expanded, the prices and ``kappa``.

    Attributes:
        point: ``(k,)``.
        prices: one for each ball.
        bend: ``kappa >= 0``.
        slopes: ``(T m,)`` of lines through kinks, see ``supports``, or ``(0,)``: there are none.
    """

    point: Array
    prices: Array
    bend: float
    slopes: Array = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of coordinates, and the sides of the activation's kinks that count in them.

    Attributes:
        low: ``(N, k)``.
        high: ``(N, k)``.
        sides: see ``hessians``; of a smooth activation ``(N, 0)``.
    """

    low: Array
    high: Array
    sides: Sides

    def __len__(self) -> int:
        return len(self.low)

    def some(self, which: Array | slice) -> Boxes:
        """Some of them."""
        least, most = self.sides
        return Boxes(self.low[which], self.high[which], (least[which], most[which]))

    def and_(self, more: Boxes) -> Boxes:
        """These and some others."""
        ends = ((self.low, more.low), (self.high, more.high), *zip(self.sides, more.sides))
        low, high, least, most = (np.concatenate(pair) for pair in ends)
        return Boxes(low, high, (least, most))

    def within(self, of: Coordinates) -> Boxes:
        """What of them may lie in the balls."""
        low, high, inside = self.low.copy(), self.high.copy(), np.ones(len(self), dtype=bool)
        for part in of.balls:
            a, b = low[:, part], high[:, part]
            weight = of.least[part]
            away = weight * np.where((a <= 0.0) & (b >= 0.0), 0.0, np.minimum(a * a, b * b))
            whole, square = away.sum(axis=1, keepdims=True), of.radius * of.radius
            room = square - (whole - away) + 2.0 * gamma(a.shape[1] + 8) * (square + whole) + TINY
            with np.errstate(divide="ignore", invalid="ignore"):
                reach = np.sqrt(np.maximum(room, 0.0) / weight) * (1.0 + 8 * EPS) + TINY
            reach = np.where((weight > 0.0) & ~np.isnan(reach), reach, np.inf)
            low[:, part], high[:, part] = np.maximum(a, -reach), np.minimum(b, reach)
            inside &= ~(room < 0.0).any(axis=1)  # of NaN nothing is known
        return Boxes(low, high, self.sides).some(inside & (low <= high).all(axis=1))

    def halves(self, worth: Array, kinks: Array, per_unit: int) -> Boxes:
        """Both halves of each: at a kink where one is told, else at the middle of the coordinate that is worth most."""
        index, cut, smooth = np.arange(len(self)), np.argmax(worth, axis=1), kinks < 0
        at = 0.5 * self.low[index, cut] + 0.5 * self.high[index, cut]
        upper, lower, (least, most) = self.high.copy(), self.low.copy(), self.sides
        upper[index[smooth], cut[smooth]] = lower[index[smooth], cut[smooth]] = at[smooth]
        before, after = most.copy(), least.copy()
        if per_unit:
            unit, kink = kinks[~smooth] // per_unit, kinks[~smooth] % per_unit
            before[index[~smooth], unit], after[index[~smooth], unit] = kink, kink + 1
        sides = np.concatenate([least, after]), np.concatenate([before, most])
        return Boxes(np.concatenate([self.low, lower]), np.concatenate([upper, self.high]), sides)


@dataclass(frozen=True, eq=False)
class Bounds:
    """What is known of ``L`` in some boxes.

    Attributes:
        best: ``(N,)`` a lower bound; where it is positive by slopes alone, that of the Hessian is not asked for.
        low: ``(N, k)`` of the side of the box on which it is least.
        high: ``(N, k)``.
        slope: ``(N, k)`` of the first summand.
        hessian: ``(N, k, k)``.
        broken: a point that ends it all.
    """

    best: Array
    low: Array
    high: Array
    slope: Interval
    hessian: Interval
    broken: Array | None = None


def lagrangian(
    of: Coordinates,
    margin: tuple[Interval, Interval],
    touch: Touch,
    boxes: Boxes,
    found: Expansion,
    lines: Lines | None,
) -> Bounds:
    """Lower bounds of ``L`` over boxes, from an expansion over these and from those at points of them."""
    assert found.hessian is not None
    low, high = boxes.low, boxes.high
    (costs, tilts, _), bend = of.energy(touch.point), np.zeros(len(low))
    prices, tilts = of.spread(touch.prices) * costs, of.spread(touch.prices) * tilts  # rounded: ``_paid`` pays for it
    if of.balls:
        with np.errstate(divide="ignore"):
            bend = np.minimum(touch.bend, (1.0 - 1e-9) / np.maximum(-found.value.low, 1e-300))
    kappa, price = Interval.point(bend), Interval.point(prices)
    steep = Interval.point(1.0) + Interval.point(bend) * found.value
    steep = Interval(np.maximum(steep.low, 0.0), steep.high)  # by the choice of bend
    slope = column(steep) * found.slope
    whole = slope + Interval.point(2.0 * prices) * Interval(low, high) + Interval.point(tilts)
    a = np.where(whole.high < 0.0, high, low)  # where L falls or rises all over the box, it is least on a side
    b = np.where(whole.low > 0.0, low, high)
    H = column(steep, times=2) * found.hessian
    if bend.any():
        H = H + column(kappa, times=2) * square(found.slope)
    H = _raised(H, prices)
    best = np.full(len(low), -np.inf)
    for c in (np.clip(touch.point, a, b), np.clip(0.5 * a + 0.5 * b, a, b)):
        at = expansion(of, margin, c, c, boxes.sides, second=False, lines=lines)
        broken = _broken(of, margin, at, c) if lines is None else None
        if broken is not None:
            return Bounds(best, a, b, slope, H, broken)
        value = at.value + Interval.point(0.5 * bend) * at.value.square()
        value = value.low + _paid(of, touch.point, touch.prices[None], c, np.maximum(np.abs(low), np.abs(high)))
        g = column(Interval.point(1.0) + Interval.point(bend) * at.value) * at.slope
        g = g + Interval.point(2.0 * prices) * Interval.point(c) + Interval.point(tilts)
        best = np.maximum(best, value + first_order(slope + Interval.point(tilts), price, c, a, b))
        left = ~(best > 0.0) & (found.bent < 0)  # eigenvalues, for those alone that need them
        if left.any():
            slopes, hessians = (_rows(x, left) for x in (g, H))
            curved = second_order(slopes, hessians, c[left], a[left], b[left])
            best[left] = np.maximum(best[left], value[left] + curved)
    return Bounds(best, a, b, slope, H)


def _broken(of: Coordinates, margin: tuple[Interval, Interval], at: Expansion, c: Array) -> Array | None:
    """One of some points that is in the balls and has no positive margin."""
    wrong = at.value.high <= 0.0
    for part in of.balls:
        wrong &= (of.least[part] * c[:, part] ** 2).sum(axis=1) <= of.radius * of.radius
    for point in c[wrong]:
        own, costs = point[None], of.cost(point)[0]
        inside = all(float(costs[part].sum()) <= of.radius * of.radius for part in of.balls)
        if inside and expansion(of, margin, own, own, second=False).value.high[0] <= 0.0:  # on whatever side it is
            return point
    return None


def _paid(of: Coordinates, point: Array, prices: Array, c: Array, far: Array) -> Array:
    """``sum_g p_g (cost of c_g - r^2)``, rounded downwards by what the prices err by as far away, too.

    Args:
        of: the ball.
        point: where costs touch what they are bounded by.
        prices: ``(N, g)``, or ``(1, g)``.
        c: ``(N, k)``.
        far: ``(N, k)``.
    """
    out, size, (a, b, free) = np.zeros(len(c)), np.zeros(len(c)), of.energy(point)
    for price, part in zip(prices.T, of.balls):
        y, most, square = c[:, part], far[:, part], of.radius * of.radius
        out += price * ((a[part] * y * y + b[part] * y + free[part]).sum(axis=1) - square)
        size += price * ((a[part] * most * most + np.abs(b[part] * most) + np.abs(free[part])).sum(axis=1) + square)
    return out - gamma(3 * c.shape[1] + prices.shape[1] + 32) * size - TINY


def by_own_prices(
    of: Coordinates, margin: tuple[Interval, Interval], touch: Touch, boxes: Boxes, found: Expansion
) -> tuple[Array, Array | None]:
    """Which boxes are done by prices of their own, those that make ``L`` flattest in the middle; a point as above."""
    assert found.hessian is not None
    low, high = boxes.low, boxes.high
    c = np.clip(0.5 * low + 0.5 * high, low, high)
    at = expansion(of, margin, c, c, boxes.sides, second=False)
    broken = _broken(of, margin, at, c)
    if broken is not None:
        return np.zeros(len(low), dtype=bool), broken
    costs, tilts, _ = of.energy(touch.point)
    middle, rise = 0.5 * (at.slope.low + at.slope.high), 2.0 * costs * c + tilts
    prices = np.zeros((len(low), len(of.balls)))
    for k, part in enumerate(of.balls):
        square = np.maximum((rise[:, part] ** 2).sum(axis=1), 1e-300)
        prices[:, k] = np.clip(np.nan_to_num(-(middle[:, part] * rise[:, part]).sum(axis=1) / square), 0.0, 1e20)
    each = of.spread(prices)
    price, tilt = Interval.point(each * costs), Interval.point(each * tilts)  # rounded: ``_paid`` pays for it
    value = at.value.low + _paid(of, touch.point, prices, c, np.maximum(np.abs(low), np.abs(high)))
    best = value + first_order(found.slope + tilt, price, c, low, high)
    left = ~(best > 0.0) & (found.bent < 0)
    if left.any():
        g = _rows(at.slope + Interval.point(2.0 * price.low) * Interval.point(c) + tilt, left)
        H = _raised(_rows(found.hessian, left), price.low[left])
        best[left] = np.maximum(best[left], value[left] + second_order(g, H, c[left], low[left], high[left]))
    return best > 0.0, None


def _rows(x: Interval, which: Array) -> Interval:
    return Interval(x.low[which], x.high[which])


def _raised(H: Interval, prices: Array) -> Interval:
    """Hessians ``(N, k, k)`` with what prices ``(k,)`` or ``(N, k)`` add to their diagonals."""
    low, high, index = H.low.copy(), H.high.copy(), np.arange(H.low.shape[1])
    low[:, index, index] = np.nextafter(low[:, index, index] + 2.0 * prices, -np.inf)
    high[:, index, index] = np.nextafter(high[:, index, index] + 2.0 * prices, np.inf)
    return Interval(low, high)
