r"""A margin of an LSTM or GRU of one unit, with its first two derivatives, over many boxes at once, in intervals.

With :math:`s_{t+1} = f(s_t, y_t)`, :math:`S_t = \partial s_t / \partial y`, :math:`\lambda_t` what the margin gains by
the states, and :math:`V_t = (S_t, \partial y_t / \partial y)`,

.. math:: \nabla M = \sum_t (\partial f / \partial y_t)^T \lambda_{t+1}, \qquad
          \nabla^2 M = \sum_t V_t^T \Big( \sum_i \lambda_{t+1,i} \nabla^2 f_i \Big) V_t .

What the states are is known in two ways: by the ranges of the states before them, and by what they are at the middle
of a box and their slopes there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stability.local.coordinates import Coordinates
from stability.local.jets import Jet, both, column, crossed, square, summed, turned
from stability.rigor.intervals import Interval

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Way:
    """A step: its jets, slopes ``S`` of the states before and after it, and the states after it; also of middles."""

    jets: list[Jet]
    before: list[Interval]
    slopes: list[Interval]
    state: list[Interval]
    centre: list[Interval]


def ways(of: Coordinates, low: Array, high: Array, second: bool) -> Iterator[Way]:
    """The steps of the runs of boxes, as far as they are asked for.

    Args:
        of: the ball.
        low: ``(N, k)``.
        high: ``(N, k)``.
        second: whether the jets have Hessians.

    Yields:
        One step after the other.
    """
    y, (count, k), thin = Interval(low, high), low.shape, bool((low == high).all())
    state = [Interval.point(np.zeros(count)) + Interval.point(value) for value in of.classifier.start]
    slopes, middle = [Interval.point(np.zeros((count, k))) for _ in state], 0.5 * low + 0.5 * high
    centre, away = state, y - Interval.point(middle)
    for step, unit in zip(of.steps, of.units):
        jets, before = unit.jets(state, _part(y, step.of), second), slopes
        slopes = [_moved(jet, slopes, step.of) for jet in jets]
        state = [jet.value for jet in jets]
        if thin:
            centre = state
        else:
            centre = unit.values(centre, Interval.point(middle[:, step.of]))
            others = (there + summed(slope * away) for there, slope in zip(centre, slopes))
            state = [both(one, other) for one, other in zip(state, others)]
        yield Way(jets, before, slopes, state, centre)


def unrolled(
    of: Coordinates, margin: tuple[Interval, Interval], low: Array, high: Array, second: bool
) -> tuple[Interval, Interval, Interval | None]:
    """Value ``(N,)``, slope ``(N, k)`` and Hessian ``(N, k, k)`` over boxes.

    Args:
        of: the ball.
        margin: row and bias, see ``hessians.weights``.
        low: ``(N, k)``.
        high: ``(N, k)``.
        second: whether the Hessian is asked for.
    """
    (w, bias), count = margin, len(low)
    mean, row, steps = (
        of.classifier.reduction == "mean",
        Interval(w.low[0], w.high[0]),
        list(ways(of, low, high, second)),
    )
    value = Interval.point(np.zeros(count)) + bias
    for way in steps if mean else steps[-1:]:
        value = value + row * way.state[0]
    slope, hessian = _backwards(of, row, steps, low.shape, mean, second)
    return value, slope, hessian


def _part(x: Interval, of: slice) -> Interval:
    return Interval(x.low[:, of], x.high[:, of])


def _moved(jet: Jet, slopes: list[Interval], of: slice) -> Interval:
    """Slopes of a next state by all coordinates."""
    n, size = len(slopes), len(slopes[0].low)
    out = column(_entry(jet.slope, 0, size)) * slopes[0]
    for i in range(1, n):
        out = out + column(_entry(jet.slope, i, size)) * slopes[i]
    low, high = out.low.copy(), out.high.copy()
    low[:, of], high[:, of] = jet.slope.low[:, n:], jet.slope.high[:, n:]  # nothing before depends on them
    return Interval(low, high)


def _entry(slope: Interval, i: int, size: int) -> Interval:
    return Interval(*(np.broadcast_to(end[:, i], (size,)) for end in (slope.low, slope.high)))


def _backwards(
    of: Coordinates, row: Interval, ways: list[Way], shape: tuple[int, int], mean: bool, second: bool
) -> tuple[Interval, Interval | None]:
    (count, k), n, last = shape, of.classifier.states, len(ways) - 1
    zero = Interval.point(np.zeros(count))
    worth, low, high = [zero] * n, np.zeros(shape), np.zeros(shape)
    hessian = Interval(np.zeros((count, k, k)), np.zeros((count, k, k))) if second else None
    for t in range(last, -1, -1):
        jets, step, before = ways[t].jets, of.steps[t], ways[t].before
        if mean or t == last:
            worth = [worth[0] + row, *worth[1:]]
        total = _weighed(worth, [jet.slope for jet in jets])
        low[:, step.of], high[:, step.of] = total.low[:, n:], total.high[:, n:]
        if hessian is not None:
            bends = [(one, jet.bend) for one, jet in zip(worth, jets) if jet.bend is not None]
            bend = _weighed([one for one, _ in bends], [own for _, own in bends], times=2)
            _add(hessian, bend, before, step.of)
        worth = [_entry(total, i, count) for i in range(n)]
    return Interval(low, high), hessian


def _weighed(worth: list[Interval], parts: list[Interval], *, times: int = 1) -> Interval:
    out = column(worth[0], times=times) * parts[0]
    for one, part in zip(worth[1:], parts[1:]):
        out = out + column(one, times=times) * part
    return out


def _add(hessian: Interval, bend: Interval, before: list[Interval], of: slice) -> None:
    """Adds what a step bends, in place."""
    n, past = len(before), slice(0, of.start)

    def put(rows: slice, columns: slice, more: Interval) -> None:
        total = Interval(hessian.low[:, rows, columns], hessian.high[:, rows, columns]) + more
        hessian.low[:, rows, columns], hessian.high[:, rows, columns] = total.low, total.high

    put(of, of, Interval(bend.low[:, n:, n:], bend.high[:, n:, n:]))
    if not of.start:
        return
    own = [_part(d, past) for d in before]
    for i in range(n):
        cross = crossed(Interval(bend.low[:, n:, i], bend.high[:, n:, i]), own[i])
        put(of, past, cross)
        put(past, of, turned(cross))
        for j in range(i, n):
            both_ = square(own[i]) if i == j else crossed(own[i], own[j])
            both_ = both_ if i == j else both_ + turned(both_)
            put(past, past, column(Interval(bend.low[:, i, j], bend.high[:, i, j]), times=2) * both_)
