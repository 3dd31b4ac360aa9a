r"""Radius search for long sequences, by extrapolation from two or three tubes.

A ball of radius :math:`\epsilon` uses a share of its margin. With the radius ``r`` of the linearization the share is
:math:`\epsilon / r` for small balls, and about :math:`\epsilon / r \exp(c \epsilon^q)` for larger ones. One tube, at
half of ``r``, gives ``c`` and with it the radius of the second tube, whose weights are improved from the first. The
second tube usually uses almost all of its margin, so that its multipliers prove a radius close by.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.reachability.margin_loss import differences
from stability.kernel.reachability.stages import Nominal
from stability.search.local.backward_search import NEAR, CertifiedBall
from stability.search.local.initial_radius import initial_balls
from stability.search.local.multiplier_costs import refined_weights
from stability.search.local.tube_trials import Task, TubeResult, ellipsoid_tubes, select_runs
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
_ROUNDS, _HALVINGS = 5, 40
_FIRST = 0.5
"""Share of the linearized radius that is tried first."""
_POWER = 1.3
"""Exponent ``q`` of the module's text."""
_GOAL = -4e-3
"""Target logarithm of the share: roundings of a proof are larger on long sequences."""
_PART, _GAIN = 0.75, 1.02
"""Weight of improved weights in the mean, and the expected increase of a radius by the first ones."""
_DOWN, _UP, _TIMID, _STALE = 0.04, 0.015, 0.6, 20.0
"""Range of a tube's multipliers in logarithms of the radius, share of the way up, and their loss on the way down."""
_LEAST, _MOST = 0.3, 4.0
"""Range of margin shares in which a tube improves the weights."""
_PROMISING = 2.0
"""Largest share at which a tube near the boundary is expected to be useful."""


@np.errstate(all="ignore")
def improve_weights(
    task: Task, tubes: TubeResult, worth: list[Array], good: Array, where: Array, part: float = 0.5
) -> None:
    """Improve the weights of some samples of a batch in place by part of a step, since a full step overshoots.

    Args:
        task: the batch.
        tubes: tubes of the batch.
        worth: the weights of all samples.
        good: indices in the batch of the samples to improve.
        where: their indices among all samples.
        part: share of a full step.
    """
    parts = [at.only(good) for at in tubes.passed]
    directions = differences(task.net.head, task.y[good]) / task.margins[good][..., None]
    emphasis = (tubes.shares[good] / tubes.share[good][:, None]) ** 8  # the largest share, smoothly
    new = refined_weights(task.net, parts, directions * emphasis[..., None])
    usable = np.isfinite([W.sum(axis=(1, 2)) for W in new]).all(axis=0)
    for old, W in zip(worth, new):
        previous = old[where[usable]]
        old[where[usable]] = (1.0 - part) * (previous / _traces(previous)) + part * (W[usable] / _traces(W[usable]))


def _traces(W: Array) -> Array:
    return np.maximum(np.einsum("bii->b", W), 1e-300)[:, None, None]


@np.errstate(all="ignore")
def long_sequence_balls(
    task: Task, run: list[Nominal], worth: list[Array], upper: Array, away: Array, deadline: Deadline
) -> list[CertifiedBall | None]:
    """Return balls of samples and improve their weights; ``None`` if a few tubes do not suffice.

    Args:
        task: ``B`` samples.
        run: nominal run of the samples.
        worth: sensitivities of the margins to every stage.
        upper: ``(B,)`` radii of attacks, infinite where none is known.
        away: ``(B, k)`` distances to the boundaries of all classes in the linearization.
        deadline: time limit of the search.
    """
    linear = away.min(axis=1)
    out: list[CertifiedBall | None] = [None] * len(linear)
    most = NEAR * upper
    trial = np.minimum(_FIRST * linear, most)
    todo = np.flatnonzero(np.isfinite(linear) & (trial > 0))
    for turn in range(_ROUNDS):
        if not len(todo) or deadline.over:
            break
        e, part = trial[todo], task.only(todo)
        tubes = ellipsoid_tubes(part, [select_runs(at, todo) for at in run], [W[todo] for W in worth], e)
        if turn == 0:
            tried = _balls_near_boundary(part, run, worth, todo, tubes.share, (e, upper[todo], away[todo]), deadline)
            for i, ball in zip(todo, tried):
                out[i] = ball
        following = np.minimum(_following(e, tubes.share, linear[todo]), most[todo])
        way = np.log(following / e)
        settled = (way >= -_DOWN) & (way <= _UP)
        if turn == _ROUNDS - 1:  # it holds, at least
            settled |= tubes.share < 1.0
        radius = e * np.exp(np.where(way > 0, np.minimum(_TIMID * way, _UP), way - _STALE * way * way))
        for k, i in enumerate(todo):
            if out[i] is None and settled[k]:
                out[i] = CertifiedBall(float(radius[k]), tubes.T[k], [])
            elif out[i] is None and deadline.over and tubes.share[k] < 1.0:
                out[i] = CertifiedBall(float(e[k]), tubes.T[k], [])
        open_ = np.array([out[i] is None for i in todo])
        better = open_ & (tubes.share > _LEAST) & (tubes.share < _MOST)
        if better.any() and not deadline.over:
            improve_weights(part, tubes, worth, better, todo[better], _PART)
        gain = np.where(better & (turn == 0), _GAIN, 1.0)
        trial[todo] = np.minimum(following * gain, most[todo])
        todo = todo[open_]
    return out


def _following(e: Array, share: Array, linear: Array) -> Array:
    """Extrapolate the radius at which a tube uses up its margin; half of ``e`` for a diverged tube."""
    c = np.maximum(np.log(share * linear / e), 0.0)  # of radii in units of e
    low, high = -20.0 * np.ones(len(e)), np.log(linear / e)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        reached = middle - np.log(linear / e) + c * np.exp(_POWER * middle) > _GOAL
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return np.where(np.isfinite(share), e * np.exp(low), 0.5 * e)


def _balls_near_boundary(
    task: Task,
    run: list[Nominal],
    worth: list[Array],
    todo: Array,
    share: Array,
    first: tuple[Array, Array, Array],
    deadline: Deadline,
) -> list[CertifiedBall | None]:
    """Return balls near the nearest boundary, tried if the first tube predicts success."""
    e, upper, away = first
    linear = away.min(axis=1)
    trials = NEAR * np.minimum(upper, linear)
    c = np.maximum(np.log(share * linear / e), 0.0)
    expected = trials / linear * np.exp(c * (trials / e) ** _POWER)
    out: list[CertifiedBall | None] = [None] * len(todo)
    some = np.flatnonzero(expected < _PROMISING)
    if len(some) and not deadline.over:
        indices = todo[some]
        runs, weights = [select_runs(at, indices) for at in run], [W[indices] for W in worth]
        balls, _ = initial_balls(task.only(some), runs, weights, upper[some], away[some].argmin(axis=1), deadline)
        for k, ball in zip(some, balls):
            out[k] = ball
    return out
