"""Search for the largest certified l2 radius of gated networks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.reachability.gated_tube import Linear, bent_tube, linear_part
from stability.kernel.reachability.stages import Gated, Nominal
from stability.search.local.backward_search import CertifiedBall, TrialResult, close_classes, try_radius
from stability.search.local.tube_trials import Task
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
_FIRST = 0.07
"""Share of an attack's distance that is tried first."""
_TRIALS, _NARROW = 7, 0.03  # trials of a radius, and relative width of the bracket that ends them
_AIMED = 0.9
"""Target share of a margin; beyond it a tube soon diverges."""


@dataclass(frozen=True, eq=False)
class GatedSearch:
    """Radius search for one sample of a gated network, with the radius-independent parts.

    Attributes:
        task: the sample.
        run: its nominal run, as of many.
        worth: sensitivity of the margin to every stage.
        stages: the linear part.
        weights: ``(T, k)`` for the proof.
        lasts: whether the tube of multipliers reaches far enough to be tried as well.
    """

    task: Task
    run: list[Nominal]
    worth: list[Array]
    stages: list[Linear]
    weights: Array
    lasts: bool

    @classmethod
    def of(cls, task: Task, run: list[Nominal], worth: list[Array], lasts: bool) -> GatedSearch:
        """Linearize the network around the run of one sample."""
        single = [Nominal(at.out[0], at.rows[0], at.offset[0], at.error[0]) for at in run]
        sizes, count = [np.maximum(np.einsum("bii->i", W), 0.0) for W in worth], len(task.net.stages)
        stages = linear_part(task.net, task.x[0], single, task.free, sizes)
        rows = [np.concatenate(sizes[k : k + count]) for k in range(0, len(sizes), count)]
        return cls(task, run, worth, stages, np.stack(rows), lasts)

    def share(self, radius: float) -> float:
        """Return the largest share of a margin that the tube alone uses up; infinite without a tube."""
        tube = bent_tube(self.task.net, self.stages, radius)
        if tube is None:
            return np.inf
        used = tube.margin_loss(self.task.net.head, int(self.task.y[0])) / self.task.margins[0]
        return float(used.max()) if np.isfinite(used).all() else np.inf

    def decided(self, radius: float) -> TrialResult:
        """Try to certify a ball by the tube of multipliers, then by this one with backward bounds."""
        first = TrialResult(np.inf, None, None)
        if self.lasts:
            first = try_radius(self.task, self.run, self.worth, radius)
        tube = bent_tube(self.task.net, self.stages, radius) if first.closed is None else None
        if tube is None:
            return first
        with np.errstate(all="ignore"):
            shares = tube.margin_loss(self.task.net.head, int(self.task.y[0])) / self.task.margins[0]
            closed = close_classes(self.task, self.run, tube.ways, shares, radius)
        return TrialResult(float(shares.max()), None, closed, self.weights)

    def largest(self, upper: float, deadline: Deadline) -> CertifiedBall | None:
        """Return nearly the largest ball that the tube alone proves."""
        low, high, trial, last = 0.0, upper, _FIRST * upper, (np.nan, np.nan)
        for _ in range(_TRIALS):
            if deadline.over or high <= low * (1.0 + _NARROW):
                break
            share = self.share(trial)
            now = (np.log(trial), np.log(share))
            slope = (now[1] - last[1]) / (now[0] - last[0]) if np.isfinite(last[1]) else 1.2
            low, high = (trial, high) if share < 1.0 - 1e-9 else (low, trial)
            if share < np.inf:
                aimed = np.exp(now[0] + (np.log(_AIMED) - now[1]) / np.clip(slope, 1.0, 50.0))
                aimed, last = min(float(aimed), 2.0 * trial), now
            else:
                aimed = np.nan
            if share < 1.0 and share > _AIMED:
                break
            inside = low < aimed < high and (high == upper or aimed < 0.5 * (low + high))
            trial = aimed if inside else float(np.sqrt(low * high)) if low > 0 else 0.4 * high
        return CertifiedBall(low, None, [], self.weights) if low > 0.0 else None


def is_gated(task: Task) -> bool:
    """Return True for a network with gates and a budget for the whole sequence."""
    return task.budget == "total" and any(isinstance(stage, Gated) for stage in task.net.stages)
