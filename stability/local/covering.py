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
from dataclasses import dataclass

import numpy as np

from stability.gated.cell import GatedCell
from stability.local.classifier import Classifier
from stability.local.coordinates import Coordinates
from stability.local.hessians import expansion, weights
from stability.local.lagrangians import Boxes, Touch, by_own_prices, lagrangian
from stability.rigor.intervals import Interval

Array = np.ndarray
_CHUNK, _ENTRIES = 2048, 400_000
"""Boxes at a time, and entries of their Hessians."""
_LEAST = 1e-11
"""Of the ball's box: boxes are not cut below."""
Known = Callable[[Array, Array], tuple[Array, Array]]
"""Of boxes, by their ends ``(N, k)``: which are done, and what cutting each coordinate is worth, zeros for nothing."""


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
    known: Known | None = None,
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
        known: tells which boxes are done otherwise, see ``stability.local.guided``.

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
        boxes, worth, kinks, point = _opened(of, margin, touch, boxes, known)
        if point is not None:
            return Cover(False, seen, point, work)
        wide = boxes.high - boxes.low > least
        if not (wide.any(axis=1) | (kinks >= 0)).all():
            return Cover(False, seen, None, work)
        if len(boxes):
            waiting.append(boxes.halves(np.where(wide, worth, -1.0), kinks, of.kinks))
    return Cover(True, seen, None, work)


def _opened(
    of: Coordinates, margin: tuple[Interval, Interval], touch: Touch, boxes: Boxes, known: Known | None
) -> tuple[Boxes, Array, Array, Array | None]:
    """As of ``_open``, but for boxes that are done otherwise, or that are to be cut for this."""
    if known is None:
        return _open(of, margin, touch, boxes)
    done, worth = known(boxes.low, boxes.high)
    boxes, worth = boxes.some(~done), worth[~done]
    first = np.asarray((worth > 0.0).any(axis=1))
    if first.any():
        own = boxes.some(first)
        kept = ~(expansion(of, margin, own.low, own.high, own.sides, second=False).value.low > 0.0)
        some = ~first
        some[first] = kept
        boxes, worth, first = boxes.some(some), worth[some], first[some]
    rest = boxes.some(~first)
    if not len(rest):
        return boxes, worth, np.full(len(boxes), -1), None
    left, others, kinks, point = _open(of, margin, touch, rest)
    joined = np.concatenate([worth[first], others]), np.concatenate([np.full(int(first.sum()), -1), kinks])
    return boxes.some(first).and_(left), *joined, point


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
        done, broken = by_own_prices(of, margin, touch, boxes, found)
        if broken is not None:
            return boxes, boxes.low, found.bent, broken
        boxes, found = boxes.some(~done), found.some(~done)
    if not len(boxes):
        return boxes, boxes.low, np.zeros(0, dtype=int), None
    bounds = lagrangian(of, margin, touch, boxes, found, None)
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


def _ruled(of: Coordinates, margin: tuple[Interval, Interval], touch: Touch, boxes: Boxes) -> Array:
    """Which boxes are done by lines in the activation's place, see ``supports``."""
    out = np.zeros(len(boxes), dtype=bool)
    found = expansion(of, margin, boxes.low, boxes.high, boxes.sides, lines=(touch.slopes, None))
    some = np.asarray((found.lines >= 0).any(axis=1))
    if some.any():
        lines = touch.slopes, found.lines[some]
        out[some] = lagrangian(of, margin, touch, boxes.some(some), found.some(some), lines).best > 0.0
    return out
