r"""The least sum of states and costs of a network of one state, bounded from below by dynamic programming.

.. math:: V_t(h) = \min_v \; c(v) + U_t\big(A h + B \phi(C h + e + S v) + f + g v\big), \quad
          U_t(h) = \nu h + V_{t+1}(h)

``V_0`` at the start is a lower bound of :math:`\sum_t c(v_t) + \nu \sum_t h_t`: of a head on the mean with a price for
what a run costs, and without a cost of the sum itself. Cells are small near ``paths``, see ``stability.local.least``.
A step of several coordinates that cost nothing moves the argument by ``y`` and what goes past it by ``q``, and
``(y, q)`` lie in a polygon. The next state is greatest on its upper edges and least on its lower ones, which meet in
two corners: so the states that are reached by its edges alone are all of them, and each edge is a step of one
coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from stability.local.bellman import Stage, bellman, policy
from stability.local.below import Lines
from stability.local.classifier import Classifier
from stability.local.least import cells, kept_states, sizes
from stability.local.ranges import middle, reached
from stability.local.scalar import ScalarStep
from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma
from stability.rigor.intervals import Interval
from stability.systems.activations import Activation

Array = np.ndarray
EDGED = 16
"""Most coordinates of a step that cost nothing."""
_TURNS, _MUCH, _MOST, _SMALL = 6, 0.004, 1500, 1e-12
"""How often cells are cut that lose so much of the scale, how many there may be, and what does not matter of it."""


@dataclass(frozen=True, eq=False)
class Sum:
    """A lower bound of a sum.

    Attributes:
        value: the bound; minus infinity where numbers overflow or there was too much to do.
        boxes: that were looked at.
        path: ``(K + 1,)`` states of the run that the bound is about, nearly; with ``followed`` alone.
        moves: ``(K, 3)`` of that run: the last coordinate that moved, what is added to the argument, and past it.
    """

    value: float
    boxes: int
    path: Array | None = None
    moves: Array | None = None


def edged(steps: list[ScalarStep]) -> bool:
    """Whether every step is one of few coordinates whose weights are known exactly, or of one."""
    return all(
        len(step.low) < 2
        or (len(step.low) <= EDGED and bool((step.S.low == step.S.high).all() and (step.g.low == step.g.high).all()))
        for step in steps
    )


@np.errstate(all="ignore")
def limits(
    classifier: Classifier, label: int, steps: list[ScalarStep], low: Array, high: Array
) -> list[tuple[float, float]] | None:
    """``(sign, c)``: where the class changes, ``sign`` times the sum of the states is at most ``c`` of one of these.

    Args:
        classifier: the network; its head reads the mean.
        label: the class.
        steps: of the ball.
        low: ``(K + 1,)`` of the states.
        high: ``(K + 1,)``.

    Returns:
        None, one or two of them; ``None`` where no mean is known to have the class.
    """
    ends, count = np.array([step.ends for step in steps]), sum(step.ends for step in steps)
    sides = list[float]()
    for sign, states in ((-1.0, low), (1.0, high)):
        own = states[1:][ends]
        room = gamma(count + 8) * float(np.abs(own).sum()) + TINY
        sides.append((float(own.sum()) + sign * room) / count + sign * (4 * EPS * float(np.abs(own).max()) + TINY))
    if not np.isfinite(sides).all():
        return None
    kept = kept_states(classifier, label, *sides)
    if kept is None:
        return None
    out = [(s, s * count * end) for s, end, whole in zip((1.0, -1.0), kept, sides) if end != whole]
    return [(s, c + 4 * EPS * abs(c) + TINY) for s, c in out]


def edges(step: ScalarStep) -> list[ScalarStep]:
    """Steps of one coordinate each, which together reach what a step of several does, from every state.

    Example:
        >>> from stability.local.classifier import Classifier
        >>> from stability.local.scalar import scalar_steps
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> own = LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0)
        >>> cell = DrivenSystem(own, "tanh", [[1.0, 2.0]], F=[[0.5, -1.0]])
        >>> (step,) = scalar_steps(Classifier(cell, [[1.0], [-1.0]]), np.ones((1, 2)), 0.5, "linf")
        >>> [float(one.S.low[0]) for one in edges(step)]
        [1.0, 2.0, 2.0, 1.0]
    """
    if len(step.low) < 2:
        return [step]
    S, g = step.S.low, step.g.low  # exact: the weights themselves
    flip = (S < 0.0) | ((S == 0.0) & (g < 0.0))
    left = np.where(flip, step.high, step.low), np.where(flip, step.low, step.high)

    def slope(k: int) -> tuple[int, Fraction]:
        return (1, Fraction(0)) if S[k] == 0.0 else (0, Fraction(float(g[k])) / Fraction(float(S[k])))

    order, out = sorted(range(len(S)), key=slope), list[ScalarStep]()
    for chain in (order[::-1], order):  # the upper edges, and the lower ones, from the left to the right
        at = left[0].copy()
        for k in chain:
            rest = np.delete(np.arange(len(S)), k)
            y, q = step.e, step.f
            for j in rest:
                y = y + Interval.point(S[j]) * Interval.point(at[j])
                q = q + Interval.point(g[j]) * Interval.point(at[j])
            own = slice(k, k + 1)
            out.append(replace(step, e=y, f=q, S=Interval.point(S[own]), g=Interval.point(g[own]),
                               low=step.low[own], high=step.high[own]))  # fmt: skip
            at[k] = left[1][k]
    return out


@np.errstate(all="ignore")
def least_sum(
    steps: list[ScalarStep], phi: Activation, start: float, price: float, scale: float, paths: Array, fine: int,
    room: int, *, paid: bool, followed: bool = False,
) -> Sum:  # fmt: skip
    """The bound.

    Args:
        steps: of the ball.
        phi: the activation.
        start: the first state.
        price: what a state counts.
        scale: of what matters.
        paths: ``(q, K + 1)`` states before and after the ``K`` steps.
        fine: see ``least.cells``.
        room: boxes that may be looked at.
        paid: whether perturbations cost their squares.
        followed: whether the run that costs least is asked for.
    """
    low, high = reached(steps, phi, start)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return Sum(-np.inf, 0)
    stages = [
        [Stage(edge, phi, low[t], high[t], paid) for edge in edges(step)] for t, step in enumerate(steps)
    ]  # fmt: skip
    near, after, boxes = sizes(steps, phi, start, paths), list[Lines](), 0
    lines = Lines(np.array([low[-1], high[-1]]), np.zeros(1), np.zeros(1))
    for t in range(len(steps) - 1, -1, -1):
        lines = _counted(lines, price) if steps[t].ends else lines
        after.insert(0, lines)
        own = cells(low[t], high[t], paths[:, t], near[:, t], fine)
        lines, seen = _earlier(stages[t], lines, own, scale, room - boxes)
        boxes += seen
        if boxes > room or not (np.isfinite(lines.left).all() and np.isfinite(lines.right).all()):
            return Sum(-np.inf, boxes)
    value = float(min(lines.left[0], lines.right[0]))
    if not followed:
        return Sum(value, boxes)
    return Sum(value, boxes, *_followed(steps, stages, start, after, _SMALL * scale))


def _counted(lines: Lines, price: float) -> Lines:
    """The same and what a state counts."""
    ends = [(lines.left, price * lines.knots[:-1]), (lines.right, price * lines.knots[1:])]
    return Lines(lines.knots, *(v + own - 4 * EPS * (np.abs(v) + np.abs(own)) - TINY for v, own in ends))


def _least(
    stages: list[Stage], lines: Lines, knots: Array, small: float, room: float
) -> tuple[Lines, Array, Array, Array, int]:
    """The lower bound one step earlier; least values, nearly; which edge has them, and where on it; boxes."""
    found, boxes = list[tuple[Lines, tuple[Array, Array]]](), 0
    centre = 0.5 * knots[:-1] + 0.5 * knots[1:]
    ways = [policy(stage, lines, centre) if len(stages) > 1 else None for stage in stages]
    cheaper = np.min([way[0] for way in ways if way is not None], axis=0) if len(stages) > 1 else None
    for stage, way in zip(stages, ways):
        own, best, seen = bellman(stage, lines, knots, small, room - boxes, way, cheaper)
        found.append((own, best))
        boxes += seen
    left, right = (np.min([getattr(own, side) for own, _ in found], axis=0) for side in ("left", "right"))
    best = np.stack([best[0] for _, best in found])
    which = best.argmin(axis=0)
    where = np.stack([best[1] for _, best in found])[which, np.arange(len(which))]
    return Lines(knots, left, right), best.min(axis=0), which, where, boxes  # the least of lines is concave


def _earlier(stages: list[Stage], lines: Lines, knots: Array, scale: float, room: float) -> tuple[Lines, int]:
    """The lower bound one step earlier, where cells are cut that lose much, and boxes looked at."""
    boxes = 0
    for turn in range(_TURNS):
        found, best, _, _, seen = _least(stages, lines, knots, _SMALL * scale, room - boxes)
        boxes, wide = boxes + seen, np.diff(knots)
        lost = best - 0.5 * found.left - 0.5 * found.right
        bad = (lost > _MUCH * scale) & (wide > 1e-10 * (knots[-1] - knots[0]))
        if not bad.any() or len(knots) > _MOST or turn == _TURNS - 1 or boxes > room:
            break
        cuts = [knots[:-1][bad] + part * wide[bad] for part in (0.25, 0.5, 0.75)]
        knots = np.unique(np.concatenate([knots, *cuts]))
    return found, boxes


def _followed(
    steps: list[ScalarStep], stages: list[list[Stage]], start: float, after: list[Lines], small: float
) -> tuple[Array, Array]:  # fmt: skip
    """The states of the run that follows the least sums, nearly, and its moves."""
    out, moves = [start], list[tuple[float, float, float]]()
    for step, own, lines in zip(steps, stages, after):
        at = np.array([out[-1]])
        if own[0].paid:
            _, _, which, v, _ = _least(own, lines, np.repeat(at, 2), small, np.inf)
        else:  # mostly an end of a range, which boxes that are not halved any more do not tell
            best, where = zip(*(policy(stage, lines, at) for stage in own))
            which = np.array([int(np.argmin(np.concatenate(best)))])
            v = where[which[0]]
        stage, m = own[which[0]], vars(own[which[0]])
        out.append(float(stage.after(np.array(out[-1]), v[0])[2]))
        past = m["f"] - float(middle(step.f)) + m["g"] * v[0]
        moves.append((float(v[0]), m["e"] - float(middle(step.e)) + m["S"] * v[0], past))
    return np.array(out), np.array(moves)
