"""Ellipsoid tubes of many samples at once in plain floating point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stability.kernel.reachability.ellipsoid_tube import (
    ROOM,
    Local,
    append_input,
    gain,
    local_slopes,
    next_ellipsoid,
    products,
    row_spread,
)
from stability.kernel.reachability.margin_loss import margin_loss
from stability.kernel.reachability.network_stages import Stages
from stability.kernel.reachability.stages import Nominal, Stage
from stability.search.local.multiplier_costs import StagePass, nominal_slopes, stage_multipliers

Array = np.ndarray
_REACHES = 1e-2
"""Weight of the rows' reaches beside the margins: a channel without effect on the nominal run may have one later."""
_HOPELESS = 1e24
"""Squared reach, relative to that of the run, above which a tube counts as diverged."""
_EACH, _ABOVE = 5e-12, 8.0
"""Share of an ellipsoid reserved for the errors of a stage, with budgets per step; factor over the checker's own."""
_LEAST = 4e-9
"""Smallest share of a step, with budgets per step: slightly above the checker's minimum (1e-9)."""


@dataclass(frozen=True, eq=False)
class Task:
    """Samples of a batch with their margins, mask and budget.

    Attributes:
        net: the stages.
        x: ``(B, T, p)``.
        y: ``(B,)``.
        margins: ``(B, k)`` logit of the class less the others', infinite for the class itself; of a mean, of the sum.
        free: ``(T, p)``, one where an input may change, else zero.
        budget: ``total`` or ``step``.
    """

    net: Stages
    x: Array
    y: Array
    margins: Array
    free: Array
    budget: str

    def only(self, index: Array) -> Task:
        """Return the task of some samples."""
        return replace(self, x=self.x[index], y=self.y[index], margins=self.margins[index])


@dataclass(frozen=True, eq=False)
class TubeResult:
    """Result of the tubes around the runs of ``b`` samples.

    Attributes:
        share: ``(b,)`` the largest share of a margin that a perturbation can use up: below one, the class is kept.
        T: ``(b, T, m)`` the multipliers of all stages of a step.
        tau: ``(b, T)`` the input's shares, in budgets for each step.
        shares: ``(b, k)`` those of all other classes.
        passed: every stage.
    """

    share: Array
    T: Array
    tau: Array
    shares: Array
    passed: list[StagePass]


@np.errstate(all="ignore")  # what overflows proves nothing
def ellipsoid_tubes(task: Task, run: list[Nominal], worth: list[Array], radius: Array) -> TubeResult:
    """Bound the share of each margin that a perturbation of some size can use up.

    Args:
        task: ``b`` samples.
        run: their nominal run.
        worth: sensitivities of the margins to every stage.
        radius: ``(b,)``.
    """
    net, count = task.net, len(task.net.stages)
    width = sum(len(stage.C) for stage in net.stages)
    Y = np.zeros((len(radius), net.states, net.states))
    passed, shares = list[StagePass](), np.zeros((len(radius), len(task.free)))
    last: Any = None
    for k, (at, W) in enumerate(zip(run, worth)):
        stage = net.stages[k % count]
        if stage.fresh:
            free, tau = task.free[k // count], None
            if task.budget == "step":
                tau = shares[:, k // count] = _share(Y, stage, at, W, free)
            Y = append_input(Y, free, tau)
        CY, size = row_spread(stage, Y)
        local = local_slopes(stage, at, size, radius)
        of = products(stage, CY, local.m)
        T = stage_multipliers(stage, Y, of, local.rho, W)
        T = np.where((local.rho > 0.0) | np.isfinite(T), T, 1.0)  # of those that take no part any will do
        passed.append(StagePass(stage, Y, of, local.rho, T))
        last = (stage, at.rows, Y, local)
        Y = next_ellipsoid(stage, Y, of, local.rho, T)
        if not task.free[: k // count + 1].any():  # nothing moves yet: what the checker adds for roundings is all of it
            Y = Y + _rounded(task, stage, at, local, radius)
        limit = _HOPELESS * np.maximum(1.0, (at.out * at.out).max(axis=-1))
        if not (np.einsum("bii->b", Y) * radius * radius < limit).any():
            none = np.full(task.margins.shape, np.inf)
            return TubeResult(none[:, 0], np.zeros((len(radius), len(shares[0]), width)), shares, none, [])
    used = margin_loss(net.head, task.y, radius, Y, last) / task.margins
    share = np.where(np.isfinite(used).all(axis=1), used.max(axis=1), np.inf)
    steps = [np.concatenate([at.T for at in passed[k : k + count]], axis=1) for k in range(0, len(passed), count)]
    return TubeResult(share, np.stack(steps, axis=1), shares, used, passed)


def _rounded(task: Task, stage: Stage, at: Nominal, local: Local, radius: Array) -> Array:
    """Return ``(b, k, k)``, slightly more than the checker's allowance for roundings, which multipliers must exceed."""
    steep = np.abs(local.m) + local.rho
    missed = at.error + (steep * at.offset) @ np.abs(stage.B).T
    share = ROOM / (4.0 * len(task.free) * len(task.net.stages)) if task.budget == "total" else _EACH
    size = _ABOVE * missed.shape[1] * (missed / radius[:, None]) ** 2 / share
    return size[..., None] * np.eye(missed.shape[1])


def _share(Y: Array, stage: Stage, at: Nominal, W: Array, free: Array) -> Array:
    """Return ``tau`` of a cheap next ellipsoid on the nominal run, with short reaches of rows of varying slopes."""
    G, n = gain(stage, nominal_slopes(stage, at)), Y.shape[-1]
    state = ((W @ G[..., :n] @ Y) * G[..., :n]).sum(axis=(1, 2))
    entry = ((W @ G[..., n:]) * G[..., n:] * free).sum(axis=(1, 2))
    low, high = stage.slopes(at.rows, np.full(at.rows.shape, np.inf))
    C = stage.C * (high > low)[..., None]
    far, near = ((C[..., :n] @ Y) * C[..., :n]).sum(axis=(1, 2)), (C[..., n:] * C[..., n:] * free).sum(axis=(1, 2))
    whole = np.maximum(far + near, 1e-300)
    some = _REACHES * np.maximum(state + entry, 1e-200)
    state, entry = state + some * far / whole, entry + some * near / whole
    a, b = np.sqrt(np.maximum(state, 0.0)), np.sqrt(np.maximum(entry, 0.0))
    return np.clip(b / np.maximum(a + b, 1e-300), _LEAST, 1.0 - _LEAST)


def select_runs(at: Nominal, index: Array) -> Nominal:
    """Return the nominal run of the selected samples."""
    return Nominal(at.out[index], at.rows[index], at.offset[index], at.error[index])
