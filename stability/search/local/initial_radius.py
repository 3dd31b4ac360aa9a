"""Initial radii: a fraction of the distance to the decision boundary."""

from __future__ import annotations

import numpy as np

from stability.kernel.reachability.stages import Nominal
from stability.search.local.backward_search import NEAR, CertifiedBall, judge_tube, select_sample
from stability.search.local.tube_trials import Task, ellipsoid_tubes, select_runs
from stability.search.local.undecided_margins import broadcast_groups, group_norms, run_gradients
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
_STEPS, _CLOSE = 6, 1e-3  # linearizations, and relative margin at which a point counts as on the boundary


@np.errstate(all="ignore")
def boundary_distance(task: Task, other: Array) -> Array:
    """Estimate the distances ``(B,)`` to the boundaries of classes ``other (B,)``; infinite if none is found.

    The nearest point of the plane on which the margin, linear from the last point on, is zero, several times
    (S.-M. Moosavi-Dezfooli, A. Fawzi, P. Frossard, DeepFool, CVPR 2016). Nothing rests on it. With a budget for each
    step the nearest one has steps of equal lengths.

    Args:
        task: ``B`` samples.
        other: their other classes.
    """
    groups = task.x.shape[1] if task.budget == "step" else 1
    rows, index = task.net.head, np.arange(len(other))
    w = rows[task.y] - rows[other]
    y, _ = run_gradients(task.net, task.x, w)
    bias = task.margins[index, other] - (w * y).sum(axis=1)
    point, distances = task.x, np.full(len(other), np.inf)
    for _ in range(_STEPS):
        y, g = run_gradients(task.net, point, w)
        g = g * task.free
        margin, shift = (w * y).sum(axis=1) + bias, point - task.x
        size = group_norms(shift, groups).max(axis=1)
        distances = np.where(np.abs(margin) <= _CLOSE * np.abs(task.margins[index, other]), size, np.inf)
        steep = group_norms(g, groups)
        way = g / np.maximum(broadcast_groups(steep, task.x[0]), 1e-300)
        point = task.x - way * ((margin - (g * shift).sum(axis=(1, 2))) / steep.sum(axis=1))[:, None, None]
    return np.where(np.isfinite(distances), distances, np.inf)


def initial_balls(
    task: Task, run: list[Nominal], worth: list[Array], upper: Array, nearest: Array, deadline: Deadline
) -> tuple[list[CertifiedBall | None], Array]:
    """Certify balls that reach most of the way to the nearest boundary.

    Args:
        task: ``B`` samples.
        run: their nominal run.
        worth: sensitivities of the margins to every stage.
        upper: ``(B,)`` radii of attacks, infinite where none is known.
        nearest: ``(B,)`` the class that is nearest in the linearization.
        deadline: time limit of the search.

    Returns:
        They, and the shares ``(B,)`` of a margin that the tubes there use up: infinite where one has left all bounds,
        zero where none was tried.
    """
    radius = NEAR * np.minimum(upper, boundary_distance(task, nearest))
    out: list[CertifiedBall | None] = [None] * len(radius)
    shares = np.zeros(len(radius))
    some = np.flatnonzero(np.isfinite(radius) & (radius > 0))
    if not len(some):
        return out, shares
    tubes = ellipsoid_tubes(
        task.only(some), [select_runs(at, some) for at in run], [W[some] for W in worth], radius[some]
    )
    shares[some] = tubes.share
    for k, i in enumerate(some):
        if deadline.over:
            break
        one, single, _ = select_sample(task, run, worth, int(i))
        judged = judge_tube(one, single, tubes, k, float(radius[i]))
        if judged.closed is not None:
            out[int(i)] = judged.ball(float(radius[i]))
    return out, shares
