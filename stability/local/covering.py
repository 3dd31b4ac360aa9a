r"""Whether a margin of a small network is positive in a whole ball: its box is cut until each part of it is done.

With a price for each ball (their radii are ``r``), and :math:`\xi(M) = M + \tfrac{\kappa}{2} M^2`,

.. math:: L(y) = \xi(M(y)) + \sum_g p_g (|y_g|^2 - r^2) .

Where :math:`L > 0` and :math:`\kappa M \ge -1`, no input of a ball has a margin :math:`M \le 0`: the first summand is
not positive there, and neither are the others. In a box the second-order Taylor polynomial of ``L`` at one point, with
a Hessian enclosed over the box, bounds it from below. Near the worst input ``y*`` of the ball, with the right prices,
it is convex (:math:`\kappa` adds :math:`\kappa \nabla M \nabla M^T` to the Hessian, where the margin itself is convex
along the ball alone), so that ``L(y*) > 0`` closes a neighbourhood of it at once, and elsewhere there is room.
Where ``y*`` lies on kinks that bend the margin upwards, this holds of ``L`` with lines through them, see ``supports``.
Any prices are sound, so that boxes far from ``y*`` have prices of their own, those of their middles.

Sources: for underestimators by intervals of Hessians C. S. Adjiman, S. Dallwig, C. A. Floudas, A. Neumaier, A global
optimization method, alphaBB, for general twice-differentiable constrained NLPs, Computers and Chemical Engineering 22
(1998); for the clusters of boxes that bounds of first order leave K. Du, R. B. Kearfott, The cluster problem in
multivariate global optimization, Journal of Global Optimization 5 (1994).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from stability.gated.cell import GatedCell
from stability.local.classifier import Classifier
from stability.local.coordinates import Coordinates
from stability.local.hessians import Expansion, expansion, weights
from stability.local.jets import column, square
from stability.local.minorants import first_order, second_order
from stability.local.supports import Lines, Sides
from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma
from stability.rigor.intervals import Interval

Array = np.ndarray
_CHUNK, _ENTRIES = 2048, 400_000
"""Boxes at a time, and entries of their Hessians."""
_LEAST = 1e-11
"""Of the ball's box: boxes are not cut below."""


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
class Cover:
    """What came of a ball.

    Attributes:
        holds: whether all of it was done.
        boxes: that were looked at.
        broken: a perturbation of the ball with a margin that is not positive, where one was met.
        work: what that cost, see ``turn_cost``.
    """

    holds: bool
    boxes: int
    broken: Array | None = None
    work: float = 0.0


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
            reach = np.where(weight > 0.0, reach, np.inf)
            low[:, part], high[:, part] = np.maximum(a, -reach), np.minimum(b, reach)
            inside &= (room >= 0.0).all(axis=1)
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


def turn_cost(classifier: Classifier, steps: int, coordinates: int, boxes: int) -> float:
    """What one turn with some boxes costs, in units of about a microsecond.

    Example:
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> turn_cost(Classifier(cell, [[1.0], [-1.0]]), 8, 8, 512)
        41548.8
    """
    n, net = classifier.states, classifier.recurrent
    if isinstance(net, GatedCell):
        return steps * (n + 1) * len(net.w_ih) * (1400.0 + boxes * (2.0 + coordinates**2 / 40.0))
    m = len(net.E)
    return steps * (n * m + n + m + (m if net.system.D.any() else 0)) * (400.0 + boxes * (1.0 + coordinates**2 / 40.0))


def covered(
    of: Coordinates,
    label: int,
    other: int,
    touch: Touch,
    room: int,
    over: Callable[[], bool] | None = None,
    most: float = np.inf,
) -> Cover:
    """Whether the margin of a class over another one is proved positive in the ball.

    Args:
        of: the ball.
        label: the class.
        other: the other one.
        touch: any is sound.
        room: boxes that may be looked at.
        over: whether the time of a search is over.
        most: work that may be done, see ``turn_cost``.

    Example:
        >>> from stability.local.classifier import Classifier
        >>> from stability.local.coordinates import coordinates
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> net, touch = Classifier(cell, [[1.0], [-1.0]]), Touch(np.zeros(1), np.zeros(0), 0.0)
        >>> balls = [coordinates(net, np.ones((1, 1)), r, "l2") for r in (0.999999, 1.000001)]
        >>> [covered(ball, 0, 1, touch, 100).holds for ball in balls]
        [True, False]
    """
    margin, seen, work, size = weights(of, label, other), 0, 0.0, len(of.low)
    sides = np.zeros((1, of.bent), dtype=int), np.full((1, of.bent), of.kinks)
    chunk = max(1, min(_CHUNK, _ENTRIES // max(1, len(of.low)) ** 2))
    waiting, least = [Boxes(of.low[None], of.high[None], sides)], _LEAST * (of.high - of.low)
    while waiting:
        boxes = waiting.pop()
        while waiting and len(boxes) < chunk:  # turns of few boxes cost nearly as much as full ones
            boxes = boxes.and_(waiting.pop())
        if len(boxes) > chunk:
            waiting.append(boxes.some(slice(None, -chunk)))
            boxes = boxes.some(slice(-chunk, None))
        cost = turn_cost(of.classifier, len(of.steps), size, len(boxes))
        seen, work = seen + len(boxes), work + (2.0 if len(touch.slopes) else 1.0) * cost
        if seen > room or work > most or (over is not None and over()):
            return Cover(False, seen, None, work)
        boxes = boxes.within(of)
        if not len(boxes):
            continue
        boxes, worth, kinks, point = _open(of, margin, touch, boxes)
        if point is not None:
            return Cover(False, seen, point, work)
        wide = boxes.high - boxes.low > least
        if not (wide.any(axis=1) | (kinks >= 0)).all():
            return Cover(False, seen, None, work)
        if len(boxes):
            waiting.append(boxes.halves(np.where(wide, worth, -1.0), kinks, of.kinks))
    return Cover(True, seen, None, work)


def _open(
    of: Coordinates, margin: tuple[Interval, Interval], touch: Touch, boxes: Boxes
) -> tuple[Boxes, Array, Array, Array | None]:
    """The boxes that stay open, what cutting each coordinate is worth, their kinks, and a point that ends it all."""
    told = expansion(of, margin, boxes.low, boxes.high, boxes.sides, second=False, kept=True)
    boxes = boxes.some(~told.empty & ~(told.value.low > 0.0))
    if not len(boxes):
        return boxes, boxes.low, np.zeros(0, dtype=int), None
    found = expansion(of, margin, boxes.low, boxes.high, boxes.sides)
    if of.balls:
        done, broken = _priced(of, margin, touch, boxes, found)
        if broken is not None:
            return boxes, boxes.low, found.bent, broken
        boxes, found = boxes.some(~done), found.some(~done)
    if not len(boxes):
        return boxes, boxes.low, np.zeros(0, dtype=int), None
    bounds = _bounds(of, margin, touch, boxes, found, None)
    if bounds.broken is not None:
        return boxes, boxes.low, found.bent, bounds.broken
    left = ~(bounds.best > 0.0)
    if len(touch.slopes) and left.any():
        left[left] = ~_ruled(of, margin, touch, boxes.some(left))
    if not of.balls and not boxes.sides[0].shape[1]:  # L is the margin: what is said of a side is said of the box
        boxes = Boxes(bounds.low, bounds.high, boxes.sides)
    boxes, H, slope = boxes.some(left), bounds.hessian, bounds.slope
    wide, spread = boxes.high - boxes.low, (H.high - H.low)[left]
    worth = np.einsum("bij,bj->bi", spread, wide) + np.maximum(-np.einsum("bii->bi", H.low[left]), 0.0) * wide
    return boxes, wide * (worth + (slope.high - slope.low)[left] * 1e-3 + 1e-12), found.bent[left], None


def _priced(
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


def _ruled(of: Coordinates, margin: tuple[Interval, Interval], touch: Touch, boxes: Boxes) -> Array:
    """Which boxes are done by lines in the activation's place, see ``supports``."""
    out = np.zeros(len(boxes), dtype=bool)
    found = expansion(of, margin, boxes.low, boxes.high, boxes.sides, lines=(touch.slopes, None))
    some = np.asarray((found.lines >= 0).any(axis=1))
    if some.any():
        lines = touch.slopes, found.lines[some]
        out[some] = _bounds(of, margin, touch, boxes.some(some), found.some(some), lines).best > 0.0
    return out


@dataclass(frozen=True, eq=False)
class _Bounds:
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


def _bounds(
    of: Coordinates,
    margin: tuple[Interval, Interval],
    touch: Touch,
    boxes: Boxes,
    found: Expansion,
    lines: Lines | None,
) -> _Bounds:
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
            return _Bounds(best, a, b, slope, H, broken)
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
    return _Bounds(best, a, b, slope, H)


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
