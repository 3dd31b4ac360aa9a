"""Backward bounds for classes that the forward tube leaves undecided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stability.kernel.reachability.margin_loss import differences
from stability.kernel.reachability.quadratic_lower_bound import Passage
from stability.kernel.reachability.stages import Nominal
from stability.search.local.tube_trials import Task, TubeResult, ellipsoid_tubes, select_runs
from stability.search.local.undecided_margins import ClosedClass, class_multipliers, priced_references, tube_passages
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
_FAR = 4.0
"""Share of a margin that a tube uses up, above which backward bounds are not tried: its reaches are too long."""
_TRIALS, _NARROW = 4, 0.015  # trials of a radius, and relative width of the bracket that ends them
_DEAR_TRIALS = 2
"""Trials for networks with several stages per step."""
_SMALL_TRIALS, _SMALL_NARROW = 8, 5e-3  # the same for small networks
NEAR = 0.9
"""Share of an attack's radius that is tried first, and is enough if a trial is expensive."""
_AIMED = 0.3
"""Logarithm of the target share of the next trial."""


@dataclass(frozen=True, eq=False)
class CertifiedBall:
    """Radius with its proof: the tube's multipliers ``(T, m)`` or weights, the closed classes, and the inputs' shares
    ``(T,)`` for a budget per step.
    """

    radius: float
    T: Array | None
    closed: list[ClosedClass]
    weights: Array | None = None
    tau: Array | None = None

    def data(self) -> dict[str, Array]:
        """Return the entries of the proof."""
        tube = {} if self.T is None else {"T": self.T}
        if self.weights is not None:
            tube["weights"] = self.weights
        if self.tau is not None:
            tube["tau"] = self.tau
        if not self.closed:
            return tube
        return {
            **tube,
            "others": np.array([float(c.other) for c in self.closed]),
            "points": np.stack([c.point for c in self.closed]),
            "prices": np.array([c.prices if self.tau is not None else c.prices[0] for c in self.closed]),
            "sectors": np.stack([c.T for c in self.closed]),
        }


@dataclass(frozen=True, eq=False)
class TrialResult:
    """Outcome of one radius.

    Attributes:
        share: that of the tube alone.
        T: its multipliers.
        closed: proofs for the classes that it leaves open; ``None`` if one of them stays open.
        weights: in the place of multipliers.
        tau: the inputs' shares, where every step has a budget.
    """

    share: float
    T: Array | None
    closed: list[ClosedClass] | None
    weights: Array | None = None
    tau: Array | None = None

    def ball(self, radius: float) -> CertifiedBall:
        """Return the ball of this radius, with all classes closed."""
        return CertifiedBall(radius, self.T, self.closed or [], self.weights, self.tau)


@np.errstate(all="ignore")
def try_radius(task: Task, run: list[Nominal], worth: list[Array], radius: float) -> TrialResult:
    """Try to certify a ball of one radius around one sample.

    Args:
        task: one sample.
        run: its nominal run.
        worth: sensitivity of the margin to every stage.
        radius: > 0.
    """
    return judge_tube(task, run, ellipsoid_tubes(task, run, worth, np.array([radius])), 0, radius)


def judge_tube(task: Task, run: list[Nominal], tubes: TubeResult, i: int, radius: float) -> TrialResult:
    """Decide a radius of one sample from tube number ``i`` of some tubes."""
    shares, share, T = tubes.shares[i], float(tubes.share[i]), tubes.T[i]
    tau = tubes.tau[i] if task.budget == "step" else None
    if not share < _FAR:
        return TrialResult(share, T, None)
    if not (shares >= 1.0 - 1e-6).any():
        return TrialResult(share, T, [], tau=tau)
    single = [Nominal(at.out[0], at.rows[0], at.offset[0], at.error[0]) for at in run]
    ways = tube_passages(radius, task.net, task.x[0], single, [at.Y[i] for at in tubes.passed])
    return TrialResult(share, T, close_classes(task, run, ways, shares, radius), tau=tau)


def close_classes(
    task: Task, run: list[Nominal], ways: list[Passage], shares: Array, radius: float
) -> list[ClosedClass] | None:
    """Bound the open classes of one sample backwards; ``None`` where one stays open.

    Args:
        task: one sample.
        run: its nominal run.
        ways: the tube.
        shares: ``(k,)`` of the margins.
        radius: > 0.
    """
    order = [int(j) for j in np.argsort(-shares) if not shares[j] < 1.0 - 1e-6]
    if not order:
        return []
    net, closed = task.net, list[ClosedClass]()
    w = -differences(net.head, np.asarray(int(task.y[0])))[order]
    bias = task.margins[0, order] - w @ run[-1].out[0]
    starts = priced_references(net, task.x[0], w, bias, task.free, radius, task.budget == "step")
    for j, (ref, prices) in zip(order, starts or ()):
        T = class_multipliers(net, ways, ref, task.free, prices)
        if T is None:
            return None
        closed.append(ClosedClass(j, ref.x, prices, T))
    return None if starts is None else closed


def widen_ball(
    decide: Callable[[float], TrialResult],
    ball: CertifiedBall,
    upper: float,
    deadline: Deadline,
    *,
    fine: bool = False,
    dear: bool = False,
) -> CertifiedBall:
    """Return the largest ball found between one that holds and an upper limit.

    Args:
        decide: whether a radius is found to be safe.
        ball: a certified ball.
        upper: a radius above it, of an attack or an estimate.
        deadline: time limit of the search.
        fine: whether a trial costs next to nothing.
        dear: whether it costs much: steps of several stages.
    """
    trials, narrow = (_SMALL_TRIALS, _SMALL_NARROW) if fine else (_TRIALS, _NARROW)
    if not fine and dear:
        trials = _DEAR_TRIALS
    low, high, top = ball, upper, np.inf
    for turn in range(trials):
        if deadline.over or high <= low.radius * (1.0 + narrow):
            break
        if turn == 0:
            trial = NEAR * upper
        elif low.radius >= NEAR * upper:
            trial = float(np.sqrt(low.radius * high))
        else:
            part = float(np.clip(_AIMED / np.log(top), 0.1, 0.5)) if 1.0 < top < np.inf else 0.25
            trial = float(low.radius * (high / low.radius) ** part)
        if not low.radius < trial < high:
            continue
        found = decide(trial)
        if found.closed is None:
            high, top = trial, found.share
        else:
            low = found.ball(trial)
            if trial >= NEAR * upper and not fine:
                break
    return low


def select_sample(
    task: Task, run: list[Nominal], worth: list[Array], i: int
) -> tuple[Task, list[Nominal], list[Array]]:
    """Select one sample of a batch with its run and weights."""
    index = np.array([i])
    return task.only(index), [select_runs(at, index) for at in run], [W[index] for W in worth]
