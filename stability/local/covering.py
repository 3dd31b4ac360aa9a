r"""Whether a margin of a small network is positive in a whole ball: its box is cut until each part of it is done.

With a price for each ball (their radii are ``r``), and :math:`\xi(M) = M + \tfrac{\kappa}{2} M^2`,

.. math:: L(y) = \xi(M(y)) + \sum_g p_g (|y_g|^2 - r^2) .

Where :math:`L > 0` and :math:`\kappa M \ge -1`, no input of a ball has a margin :math:`M \le 0`: the first summand is
not positive there, and neither are the others. In a box the second-order Taylor polynomial of ``L`` at one point, with
a Hessian enclosed over the box, bounds it from below. Near the worst input ``y*`` of the ball, with the right prices,
it is convex (:math:`\kappa` adds :math:`\kappa \nabla M \nabla M^T` to the Hessian, where the margin itself is convex
along the ball alone), so that ``L(y*) > 0`` closes a neighbourhood of it at once, and elsewhere there is room.

Sources: for underestimators by intervals of Hessians C. S. Adjiman, S. Dallwig, C. A. Floudas, A. Neumaier, A global
optimization method, alphaBB, for general twice-differentiable constrained NLPs, Computers and Chemical Engineering 22
(1998); for the clusters of boxes that bounds of first order leave K. Du, R. B. Kearfott, The cluster problem in
multivariate global optimization, Journal of Global Optimization 5 (1994).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stability.local.classifier import Classifier
from stability.local.coordinates import Coordinates
from stability.local.hessians import Expansion, Sides, column, expansion, square, weights
from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma
from stability.rigor.intervals import Interval
from stability.systems.activations import activation

Array = np.ndarray
_CHUNK, _ENTRIES = 512, 400_000
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
    """

    point: Array
    prices: Array
    bend: float


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
    n, m = classifier.states, len(classifier.recurrent.E)
    return steps * (n * m + n + m) * (400.0 + boxes * (1.0 + coordinates**2 / 40.0))


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
    phi = activation(of.classifier.recurrent.activation)
    units = len(of.steps) * len(of.C.low) if phi.kinks else 0
    sides = np.zeros((1, units), dtype=int), np.full((1, units), len(phi.kinks))
    chunk = max(1, min(_CHUNK, _ENTRIES // max(1, len(of.low)) ** 2))
    waiting, least = [Boxes(of.low[None], of.high[None], sides)], _LEAST * (of.high - of.low)
    while waiting:
        boxes = waiting.pop()
        if len(boxes) > chunk:
            waiting.append(boxes.some(slice(None, -chunk)))
            boxes = boxes.some(slice(-chunk, None))
        seen, work = seen + len(boxes), work + turn_cost(of.classifier, len(of.steps), size, len(boxes))
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
            waiting.append(boxes.halves(np.where(wide, worth, -1.0), kinks, len(phi.kinks)))
    return Cover(True, seen, None, work)


def _open(
    of: Coordinates, margin: tuple[Interval, Interval], touch: Touch, boxes: Boxes
) -> tuple[Boxes, Array, Array, Array | None]:
    """The boxes that stay open, what cutting each coordinate is worth, their kinks, and a point that ends it all."""
    told = expansion(of, margin, boxes.low, boxes.high, boxes.sides, second=False, kept=True)
    boxes = boxes.some(~told.empty & ~(told.value.low > 0.0))
    if not len(boxes):
        return boxes, boxes.low, np.zeros(0, dtype=int), None
    low, high = boxes.low, boxes.high
    found = expansion(of, margin, low, high, boxes.sides)
    assert found.hessian is not None
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
    index = np.arange(low.shape[1])
    H.low[:, index, index], H.high[:, index, index] = (
        np.nextafter(H.low[:, index, index] + 2.0 * prices, -np.inf),
        np.nextafter(H.high[:, index, index] + 2.0 * prices, np.inf),
    )
    best = np.full(len(low), -np.inf)
    for c in (np.clip(touch.point, a, b), np.clip(0.5 * a + 0.5 * b, a, b)):
        at = expansion(of, margin, c, c, boxes.sides, second=False)
        broken = _broken(of, margin, at, c)
        if broken is not None:
            return boxes, low, found.bent, broken
        value = at.value + Interval.point(0.5 * bend) * at.value.square()
        value = value.low + _paid(of, touch, c, np.maximum(np.abs(low), np.abs(high)))
        g = column(Interval.point(1.0) + Interval.point(bend) * at.value) * at.slope
        g = g + Interval.point(2.0 * prices) * Interval.point(c) + Interval.point(tilts)
        first = value + _first(slope + Interval.point(tilts), price, c, a, b)
        curved = np.where(found.bent < 0, value + _second(g, H, c, a, b), -np.inf)
        best = np.maximum(best, np.maximum(first, curved))
    left = ~(best > 0.0)
    if not of.balls and not boxes.sides[0].shape[1]:  # L is the margin: what is said of a side is said of the box
        boxes = Boxes(a, b, boxes.sides)
    boxes = boxes.some(left)
    wide, spread = boxes.high - boxes.low, (H.high - H.low)[left]
    worth = np.einsum("bij,bj->bi", spread, wide) + np.maximum(-np.einsum("bii->bi", H.low[left]), 0.0) * wide
    return boxes, wide * (worth + (slope.high - slope.low)[left] * 1e-3 + 1e-12), found.bent[left], None


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


def _paid(of: Coordinates, touch: Touch, c: Array, far: Array) -> Array:
    """``sum_g p_g (cost of c_g - r^2)``, rounded downwards by what the prices err by as far away, too."""
    out, size, (a, b, free) = np.zeros(len(c)), np.zeros(len(c)), of.energy(touch.point)
    for price, part in zip(touch.prices, of.balls):
        y, most, square = c[:, part], far[:, part], of.radius * of.radius
        out += price * ((a[part] * y * y + b[part] * y + free[part]).sum(axis=1) - square)
        size += price * ((a[part] * most * most + np.abs(b[part] * most) + np.abs(free[part])).sum(axis=1) + square)
    return out - gamma(3 * c.shape[1] + len(touch.prices) + 32) * size - TINY


def _first(slope: Interval, price: Interval, c: Array, a: Array, b: Array) -> Array:
    """What ``L`` is more than at ``c``, at least, by the range of its margin's slopes over the box."""
    p = price.low
    out, size = np.zeros(c.shape), np.zeros(c.shape)
    for steep, far in ((slope.low, b - c), (slope.high, a - c)):
        ends = steep + 2.0 * p * c
        with np.errstate(all="ignore"):
            top = np.where(p > 0.0, -ends / (2.0 * p), far)
        top = np.clip(np.nan_to_num(top), np.minimum(far, 0.0), np.maximum(far, 0.0))
        out = np.minimum(out, np.minimum(ends * top + p * top * top, ends * far + p * far * far))
        size += (np.abs(steep) + 2.0 * p * np.abs(c)) * np.abs(far) + p * far * far
    total = out.sum(axis=1) - gamma(2 * c.shape[1] + 64) * size.sum(axis=1) - TINY
    return np.where(np.isfinite(total), total, -np.inf)


def _second(g: Interval, H: Interval, c: Array, a: Array, b: Array) -> Array:
    """The same by the slope at ``c`` and the Hessian over the box."""
    k = c.shape[1]
    left, right = a - c, b - c
    w = np.maximum(right, -left)
    mid = 0.5 * H.low + 0.5 * H.high
    rad = np.maximum(H.high - mid, mid - H.low) * (1.0 + 4 * EPS) + TINY
    scale = w[:, :, None] * w[:, None, :]
    S, R = mid * scale, rad * scale
    R = R * (1.0 + 16 * EPS) + 16 * EPS * np.abs(S) + TINY
    R = np.maximum(R, R.transpose(0, 2, 1))
    S = 0.5 * (S + S.transpose(0, 2, 1))
    R = R + np.abs(S - mid * scale) * (1.0 + 8 * EPS)
    rows, index = R.sum(axis=2) * (1.0 + gamma(k + 8)), np.arange(k)
    diagonal = S[:, index, index] - rows
    diagonal = diagonal - 4 * EPS * (np.abs(diagonal) + rows)
    still = np.where(w > 0.0, 0.0, np.abs(diagonal).max(axis=1, initial=0.0)[:, None] + TINY)
    S[:, index, index] = diagonal + still  # of what does not move nothing is asked
    bend = least_eigenvalues(S)[:, None]
    middle, slack = 0.5 * g.low + 0.5 * g.high, 0.5 * (g.high - g.low)
    s = middle * w
    with np.errstate(all="ignore"):
        e = [np.where(w > 0.0, end / w, 0.0) for end in (left, right)]
        top = np.clip(np.where(bend > 0.0, -s / bend, 0.0), *e)
    values = [s * x + 0.5 * bend * x * x for x in e]
    out = np.minimum(*values)
    out = np.where(bend > 0.0, np.minimum(out, s * top + 0.5 * bend * top * top), out)
    size = (np.abs(s) + np.abs(bend)).sum(axis=1)
    loss = (slack * w * (1.0 + 8 * EPS) + 4 * EPS * np.abs(s)).sum(axis=1)
    total = out.sum(axis=1) - loss - gamma(2 * k + 64) * (size + loss) - TINY
    return np.where(np.isfinite(total), total, -np.inf)


def least_eigenvalues(S: Array) -> Array:
    """Lower bounds ``(N,)`` of the eigenvalues of symmetric matrices ``(N, k, k)``: proved, whatever is computed.

    For any invertible ``V``: the eigenvalues of ``V^T S V``, which Gershgorin's circles enclose, are those of ``S``
    times numbers between the least and the largest eigenvalue of ``V^T V`` (Ostrowski).

    Example:
        >>> bound = least_eigenvalues(np.array([[[2.0, 1.0], [1.0, 2.0]]]))
        >>> bool(1.0 - 1e-12 < bound[0] <= 1.0)
        True
    """
    k = S.shape[1]
    fine = np.asarray(np.isfinite(S).all(axis=(1, 2)))
    S = np.where(fine[:, None, None], S, np.eye(k))
    try:
        V = np.linalg.eigh(S)[1]
    except np.linalg.LinAlgError:
        V = np.broadcast_to(np.eye(k), S.shape)
    W, size, index = V.transpose(0, 2, 1), np.abs(V), np.arange(k)
    X = W @ S @ V
    error = (gamma(2 * k + 8) * (size.transpose(0, 2, 1) @ np.abs(S) @ size)).sum(axis=2) + TINY
    off = np.abs(X).sum(axis=2) - np.abs(X[:, index, index])
    low = (X[:, index, index] - off * (1.0 + gamma(k + 8)) - error * (1.0 + gamma(k + 8))).min(axis=1)
    low = low - 8 * EPS * np.abs(low)
    apart = np.abs(W @ V - np.eye(k)).sum(axis=2) + gamma(k + 8) * (size.transpose(0, 2, 1) @ size).sum(axis=2)
    apart = apart.max(axis=1) * (1.0 + gamma(k + 8)) + 4 * EPS
    bound = low / np.where(low >= 0.0, 1.0 + apart, 1.0 - apart)
    bound = bound - 4 * EPS * np.abs(bound)
    return np.where(fine & (apart < 0.5), bound, -np.inf)
