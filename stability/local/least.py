r"""The least cost at which a perturbation changes the class of a network of one state, bounded from below.

Classes other than the proof's take the last state outside of an interval. ``V_T`` is zero there and as good as infinite
inside; ``V_0`` at the start, by ``stability.local.bellman``, is a lower bound of the least ``|d|^2`` that leads out.
Cells are small near ``paths``, sequences of states that are worth it, and grow with the distance from them, so that
what they lose stays below what a run costs more that goes there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.local.bellman import Stage, bellman
from stability.local.below import Lines
from stability.local.classifier import Classifier
from stability.local.ranges import reached
from stability.local.scalar import ScalarStep
from stability.rigor.constants import EPS, TINY
from stability.rigor.intervals import Interval
from stability.systems.activations import Activation, activation

Array = np.ndarray
WIDER, CAP = 1.5, 2.25
"""Of the radius: the range of a step's coordinate; of its square: what least costs are told apart up to."""
_UNIFORM, _OCTAVES, _SMALL = 24, 16, 1e-12
"""Cells of one size; halvings of the distance from a path; and of the radius' square, a cost that does not matter."""

_TURNS, _MUCH, _MOST = 6, 0.02, 1500
"""How often cells are cut that lose so much of the radius' square, and how many there may be."""


@dataclass(frozen=True, eq=False)
class Least:
    """A lower bound of the least cost.

    Attributes:
        cost: the bound; minus infinity where numbers overflow or there was too much to do.
        boxes: that were looked at.
        path: ``(K + 1,)`` the states of the run that the bound is about, nearly; with ``followed`` alone.
        moves: ``(K,)`` its coordinates.
    """

    cost: float
    boxes: int
    path: Array | None = None
    moves: Array | None = None


def kept_states(classifier: Classifier, label: int, low: float, high: float) -> tuple[float, float] | None:
    """Ends of last states that surely have the class, of those in ``[low, high]``; ``None`` where there are none.

    Example:
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> ends = kept_states(Classifier(cell, [[2.0], [1.0]], [0.25, 0.0]), 0, -3.0, 3.0)
        >>> bool(-0.25 <= ends[0] <= -0.25 + 1e-12), ends[1]
        (True, 3.0)
    """
    head, bias, ends = classifier.weight[:, 0], classifier.bias, [low, high]
    for other in range(classifier.classes):
        if other == label:
            continue
        w = Interval.point(head[label : label + 1]) - Interval.point(head[other : other + 1])
        b = Interval.point(bias[label : label + 1]) - Interval.point(bias[other : other + 1])
        if head[label] == head[other]:
            w = Interval.point(np.zeros(1))
        a, c, d = float(w.low[0]), float(w.high[0]), float(b.low[0])
        if not np.isfinite([a, c, d, low, high]).all():  # what overflows is known of no state
            return None
        least = min(a * low, a * high, c * low, c * high)
        if least + d > 8 * EPS * (abs(least) + abs(d)) + TINY:
            continue
        if a <= 0.0 <= c:
            return None
        # w h + b > 0 beyond -b / w
        at = max(-d / a, -d / c) if a > 0.0 else min(-d / a, -d / c)
        room = 4 * EPS * abs(at) + TINY
        ends = [max(ends[0], at + room), ends[1]] if a > 0.0 else [ends[0], min(ends[1], at - room)]
    return (ends[0], ends[1]) if ends[0] <= ends[1] else None


def cells(low: float, high: float, near: Array, wide: Array, fine: int) -> Array:
    """Knots from ``low`` to ``high``: some at equal distances, others around ``near``, ever closer.

    Args:
        low: the first.
        high: the last.
        near: ``(q,)``.
        wide: ``(q,)`` distances that count as one.
        fine: knots for each halving of a distance.
    """
    if not high > low:
        return np.array([low, high])
    parts = [np.linspace(low, high, _UNIFORM + 1)]
    for centre, size in zip(near, wide):
        octaves = np.arange(-_OCTAVES * fine, 10 * fine) / fine
        away = size * 2.0**octaves
        parts.extend((centre - away, centre + away, np.array([centre])))
    out = np.concatenate(parts)
    out = np.unique(out[(out > low) & (out < high)])
    out = np.concatenate([[low], out, [high]])
    apart = np.diff(out) > 1e-14 * np.maximum(np.abs(out[1:]), np.abs(out[:-1]))
    return np.concatenate([[low], out[1:-1][apart[:-1] & apart[1:]], [high]])


@np.errstate(all="ignore")
def least_cost(
    classifier: Classifier, steps: list[ScalarStep], label: int, radius: float, paths: Array, fine: int, room: int,
    *, followed: bool = False,
) -> Least:  # fmt: skip
    """The bound.

    Args:
        classifier: the network; its head reads the last output.
        steps: of the ball of ``WIDER`` times the radius.
        label: the class.
        radius: of the ball.
        paths: ``(q, K + 1)`` states before and after the ``K`` steps.
        fine: see ``cells``.
        room: boxes that may be looked at.
        followed: whether the run that costs least is asked for.
    """
    phi, start = activation(classifier.recurrent.activation), float(classifier.start[0])
    low, high = reached(steps, phi, start)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return Least(-np.inf, 0)
    kept = kept_states(classifier, label, low[-1], high[-1])
    if kept is None:
        return Least(-np.inf, 0)
    lines, boxes = _last(low[-1], high[-1], kept, CAP * radius**2), 0
    after, near = [lines], sizes(steps, phi, start, paths)
    stages = [Stage(step, phi, low[t], high[t]) for t, step in enumerate(steps)]
    for t in range(len(steps) - 1, -1, -1):
        own = cells(low[t], high[t], paths[:, t], near[:, t], fine)
        lines, seen = _earlier(stages[t], lines, own, radius**2, room - boxes)
        boxes += seen
        if boxes > room or not (np.isfinite(lines.left).all() and np.isfinite(lines.right).all()):
            return Least(-np.inf, boxes)
        after.insert(0, lines)
    cost = float(min(lines.left[0], lines.right[0]))
    if not followed:
        return Least(cost, boxes)
    return Least(cost, boxes, *_path(stages, start, after[1:], _SMALL * radius**2))


def _earlier(stage: Stage, lines: Lines, knots: Array, square: float, room: float) -> tuple[Lines, int]:
    """The lower bound one step earlier, where cells are cut that lose much, and boxes looked at."""
    boxes = 0
    for turn in range(_TURNS):
        found, (best, _), seen = bellman(stage, lines, knots, _SMALL * square, room - boxes)
        found, boxes = found.within(CAP * square), boxes + seen
        wide = np.diff(knots)
        lost = np.minimum(best, CAP * square) - 0.5 * (found.left + found.right)
        bad = (lost > _MUCH * square) & (wide > 1e-10 * (knots[-1] - knots[0]))
        if not bad.any() or len(knots) > _MOST or turn == _TURNS - 1 or boxes > room:
            break
        cuts = [knots[:-1][bad] + part * wide[bad] for part in (0.25, 0.5, 0.75)]
        knots = np.unique(np.concatenate([knots, *cuts]))
    return found, boxes


def _last(low: float, high: float, kept: tuple[float, float], cap: float) -> Lines:
    """``V_T``."""
    knots = np.array([low, *kept, high])
    values = np.array([0.0, cap, 0.0])
    there = np.diff(knots) > 0.0
    there[1] |= not there.any()
    ends = np.append(knots[:-1][there], high)
    return Lines(ends, values[there], values[there])


def sizes(steps: list[ScalarStep], phi: Activation, start: float, paths: Array) -> Array:
    """How far paths are from the run without a perturbation."""
    own = [start]
    for step in steps:
        stage = Stage(step, phi, start, start)
        own.append(float(stage.after(np.array(own[-1]), np.array(0.0))[2]))
    away = np.abs(paths - np.array(own))
    return np.maximum(away, 1e-6 * np.maximum(away.max(axis=1, keepdims=True), 1e-6))


def _path(stages: list[Stage], start: float, after: list[Lines], small: float) -> tuple[Array, Array]:
    """The run that follows the least costs, nearly: its states and its coordinates."""
    out, moves = [start], list[float]()
    for stage, lines in zip(stages, after):
        v = bellman(stage, lines, np.array([out[-1], out[-1]]), small, np.inf)[1][1]
        moves.append(float(v[0]))
        out.append(float(stage.after(np.array(out[-1]), v[0])[2]))
    return np.array(out), np.array(moves)
