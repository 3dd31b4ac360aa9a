"""Larger balls for single samples: classes that the tube leaves open are closed from their ends, one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.local.doubtful import Closed, closed, passages, priced
from stability.local.ending import differences
from stability.local.stages import Nominal
from stability.local.trial import Task, of_samples, tube
from stability.solve.deadline import Deadline

Array = np.ndarray
_FAR = 4.0
"""The share of a margin that a tube uses up, beyond which closing is not tried: its reaches are too long for it."""
_TRIALS, _NARROW = 4, 0.015
_DEAR_TRIALS = 2
"""Of networks whose steps have several stages."""
_SMALL_TRIALS, _SMALL_NARROW = 8, 5e-3
_NEAR = 0.9
"""Of the radius of an attack, tried first, and enough of it where a trial costs something."""
_AIMED = 0.3
"""The logarithm of the share that is tried next."""


@dataclass(frozen=True, eq=False)
class Ball:
    """A radius with what proves it: the tube's multipliers ``(T, m)``, and the classes that it left open."""

    radius: float
    T: Array
    closed: list[Closed]

    def data(self) -> dict[str, Array]:
        """For the proof."""
        if not self.closed:
            return {}
        return {
            "others": np.array([float(c.other) for c in self.closed]),
            "points": np.stack([c.point for c in self.closed]),
            "prices": np.array([c.price for c in self.closed]),
            "sectors": np.stack([c.T for c in self.closed]),
        }


@dataclass(frozen=True, eq=False)
class Trial:
    """What came of a radius.

    Attributes:
        share: that of the tube alone.
        T: its multipliers.
        closed: what closes the classes that it leaves open; ``None`` where one of them stays open.
    """

    share: float
    T: Array
    closed: list[Closed] | None


@np.errstate(all="ignore")
def decided(task: Task, run: list[Nominal], worth: list[Array], radius: float) -> Trial:
    """Whether a ball around one sample is found to be safe, and by what.

    Args:
        task: one sample.
        run: its nominal run.
        worth: what every stage is worth to it.
        radius: > 0.
    """
    made = tube(task, run, worth, np.array([radius]))
    shares, net, label = made.shares[0], task.net, int(task.y[0])
    share = float(made.share[0])
    if not share < _FAR:
        return Trial(share, made.T[0], None)
    order = [int(j) for j in np.argsort(-shares) if not shares[j] < 1.0 - 1e-6]
    found: list[Closed] = []
    if order:
        single = [Nominal(at.out[0], at.rows[0], at.offset[0], at.error[0]) for at in run]
        ways = passages(radius, net, task.x[0], single, [at.Y[0] for at in made.passed])
        rows = differences(net.head, np.asarray(label))
        w = -rows[order]
        bias = task.margins[0, order] - w @ single[-1].out
        starts = priced(net, task.x[0], w, bias, task.free, radius)
        for j, (ref, price) in zip(order, starts or ()):
            T = closed(net, ways, ref, task.free, price)
            if T is None:
                return Trial(share, made.T[0], None)
            found.append(Closed(j, ref.x, price, T))
        if starts is None:
            return Trial(share, made.T[0], None)
    return Trial(share, made.T[0], found)


def widened(
    task: Task,
    run: list[Nominal],
    worth: list[Array],
    ball: Ball,
    upper: float,
    deadline: Deadline,
    *,
    fine: bool = False,
) -> Ball:
    """The largest ball found between one that holds and a radius that is not to be reached.

    Args:
        task: one sample.
        run: its nominal run.
        worth: what every stage is worth to it.
        ball: one that holds.
        upper: a radius above it, of an attack or an estimate.
        deadline: of the search.
        fine: whether a trial costs next to nothing.
    """
    trials, narrow = (_SMALL_TRIALS, _SMALL_NARROW) if fine else (_TRIALS, _NARROW)
    if not fine and len(task.net.stages) > 1:
        trials = _DEAR_TRIALS
    low, high, top = ball, upper, np.inf
    for turn in range(trials):
        if deadline.over or high <= low.radius * (1.0 + narrow):
            break
        if turn == 0:
            trial = _NEAR * upper
        elif low.radius >= _NEAR * upper:
            trial = float(np.sqrt(low.radius * high))
        else:
            part = float(np.clip(_AIMED / np.log(top), 0.1, 0.5)) if 1.0 < top < np.inf else 0.25
            trial = float(low.radius * (high / low.radius) ** part)
        if not low.radius < trial < high:
            continue
        found = decided(task, run, worth, trial)
        if found.closed is None:
            high, top = trial, found.share
        else:
            low = Ball(trial, found.T, found.closed)
            if trial >= _NEAR * upper and not fine:
                break
    return low


def one_of(task: Task, run: list[Nominal], worth: list[Array], i: int) -> tuple[Task, list[Nominal], list[Array]]:
    """One of many."""
    index = np.array([i])
    return task.only(index), [of_samples(at, index) for at in run], [W[index] for W in worth]
