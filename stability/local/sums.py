r"""The least sum of states and costs of a network of one state, bounded from below by dynamic programming.

.. math:: V_t(h) = \min_v \; c(v) + U_t\big(A h + B \phi(C h + e + S v) + f + g v\big), \quad
          U_t(h) = \nu h + V_{t+1}(h)

``V_0`` at the start is a lower bound of :math:`\sum_t c(v_t) + \nu \sum_t h_t`: of a head on the mean with a price for
what a run costs, and without a cost of the sum itself. Cells are small near ``paths``, see ``stability.local.least``.
Steps whose coordinates cost nothing are in ``stability.local.spans``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stability.local.bellman import Stage, bellman
from stability.local.below import Lines
from stability.local.classifier import Classifier
from stability.local.least import cells, kept_states, sizes
from stability.local.pairs import Pair
from stability.local.parts import Part
from stability.local.ranges import reached
from stability.local.scalar import WIDEST, ScalarStep, slopes_of
from stability.local.spans import Span
from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma
from stability.rigor.intervals import Interval
from stability.systems.activations import Activation

Array = np.ndarray
_TURNS, _MUCH, _MOST, _SMALL = 6, 0.004, 1500, 1e-12
"""How often cells are cut that lose so much of the scale, how many there may be, and what does not matter of it."""


@dataclass(frozen=True, eq=False)
class Sum:
    """A lower bound of a sum.

    Attributes:
        value: the bound; minus infinity where numbers overflow or there was too much to do.
        boxes: that were looked at.
        path: ``(K + 1,)`` states of the run that the bound is about, nearly; with ``followed`` alone.
        moves: ``(K, 3)`` of that run: the coordinate, where it costs, what is added to the argument, and past it.
    """

    value: float
    boxes: int
    path: Array | None = None
    moves: Array | None = None


def told(steps: list[ScalarStep], phi: Activation) -> bool:
    """Whether the pairs that every step adds are known."""
    return all(pair_of(step, phi) is not None for step in steps)


def pair_of(step: ScalarStep, phi: Activation) -> Pair | None:
    """The pairs that a step of coordinates without cost adds; ``None`` where there are too many to tell.

    Example:
        >>> from stability.local.classifier import Classifier
        >>> from stability.local.scalar import scalar_steps
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> from stability.systems.activations import activation
        >>> own = LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0)
        >>> cell = DrivenSystem(own, "tanh", [[1.0, 2.0]], F=[[0.5, -1.0]])
        >>> (step,) = scalar_steps(Classifier(cell, [[1.0], [-1.0]]), np.ones((1, 2)), 0.5, "linf")
        >>> [round(end, 6) for end in pair_of(step, activation("tanh")).ends]
        [-1.5, 1.5]
    """
    if step.pair is not None:
        return step.pair
    if len(step.low) > WIDEST:
        return None
    E, F, low, high = step.S.low, step.g.low, step.low, step.high
    if (step.S.high != E).any():  # a length, that is known to its rounding
        if len(E) != 1 or F.any() or step.g.high.any():
            return None
        moved = step.S * Interval(low, high)
        E, low, high = np.ones(1), moved.low, moved.high
    elif (step.g.high != F).any():
        return None
    return Pair(E, F, low, high, np.inf, True, slopes_of(step, phi))


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


@np.errstate(all="ignore")
def least_sum(
    steps: list[ScalarStep], phi: Activation, start: float, price: float, scale: float, paths: Array, fine: int,
    room: int, *, paid: bool, followed: bool = False, part: Part | None = None, enough: float = np.inf,
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
        part: the runs that the bound is about; ``None`` for all.
        enough: what the bound need not be above, where it is about a part.

    Returns:
        The bound; infinite where the part has no runs.
    """
    low, high = reached(steps, phi, start, None if part is None else part.ends)
    if (low > high).any():
        return Sum(np.inf, 0)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return Sum(-np.inf, 0)
    before = _before(steps, price, low, high)
    if not paid:
        steps = [replace(step, pair=pair_of(step, phi)) for step in steps]
    stages = [(Stage if paid else Span)(step, phi, low[t], high[t]) for t, step in enumerate(steps)]
    near, after, boxes = sizes(steps, phi, start, paths), list[Lines](), 0
    lines = Lines(np.array([low[-1], high[-1]]), np.zeros(1), np.zeros(1))
    for t in range(len(steps) - 1, -1, -1):
        lines = _counted(lines, price) if steps[t].ends else lines
        wall = np.inf if part is None else enough - float(before[t])
        lines = lines if part is None else replace(lines, beyond=wall)  # infinite: no run of the part goes there
        after.insert(0, lines)
        own = cells(low[t], high[t], paths[:, t], near[:, t], fine)
        lines, seen = _earlier(stages[t], lines, own, scale, room - boxes, wall)
        boxes += seen
        if boxes > room or not (np.isfinite(lines.left).all() and np.isfinite(lines.right).all()):
            return Sum(-np.inf, boxes)
    value = float(min(lines.left[0], lines.right[0]))
    if not followed:
        return Sum(value, boxes)
    return Sum(value, boxes, *_followed(stages, start, after, _SMALL * scale))


def _before(steps: list[ScalarStep], price: float, low: Array, high: Array) -> Array:
    """``(K,)`` the least that states count up to the one before each step, nearly."""
    counted = [min(price * a, price * b) for a, b in zip(low[1:], high[1:])]
    return np.concatenate([[0.0], np.cumsum([c if step.ends else 0.0 for c, step in zip(counted, steps)])[:-1]])


def _counted(lines: Lines, price: float) -> Lines:
    """The same and what a state counts."""
    ends = [(lines.left, price * lines.knots[:-1]), (lines.right, price * lines.knots[1:])]
    left, right = (v + own - 4 * EPS * (np.abs(v) + np.abs(own)) - TINY for v, own in ends)
    return Lines(lines.knots, left, right)


def _earlier(
    stage: Stage | Span, lines: Lines, knots: Array, scale: float, room: float, wall: float
) -> tuple[Lines, int]:  # fmt: skip
    """The lower bound one step earlier, where cells are cut that lose much below a wall, and boxes looked at."""
    boxes = 0
    for turn in range(_TURNS):
        if isinstance(stage, Span):
            found, best, seen = stage.least(lines, knots, _SMALL * scale, room - boxes)
        else:
            found, (best, _), seen = bellman(stage, lines, knots, _SMALL * scale, room - boxes)
        boxes, wide = boxes + seen, np.diff(knots)
        lost = np.minimum(best, wall) - 0.5 * found.left - 0.5 * found.right
        bad = (lost > _MUCH * scale) & (wide > 1e-10 * (knots[-1] - knots[0]))
        if not bad.any() or len(knots) > _MOST or turn == _TURNS - 1 or boxes > room:
            break
        cuts = [knots[:-1][bad] + part * wide[bad] for part in (0.25, 0.5, 0.75)]
        knots = np.unique(np.concatenate([knots, *cuts]))
    return found, boxes


def _followed(stages: list[Stage | Span], start: float, after: list[Lines], small: float) -> tuple[Array, Array]:
    """The states of the run that follows the least sums, nearly, and its moves."""
    out, moves = [start], list[tuple[float, float, float]]()
    for stage, lines in zip(stages, after):
        if isinstance(stage, Span):
            state, y, q = stage.followed(lines, out[-1])
            out.append(state)
            moves.append((0.0, y, q))
            continue
        m, v = vars(stage), bellman(stage, lines, np.repeat(out[-1], 2), small, np.inf)[1][1][0]
        out.append(float(stage.after(np.array(out[-1]), v)[2]))
        moves.append((float(v), m["S"] * v, m["g"] * v))
    return np.array(out), np.array(moves)
