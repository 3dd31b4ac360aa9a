"""Search for the largest certified l2 radius with the ellipsoid tube.

A class whose margin the tube leaves open is bounded backwards (``quadratic_lower_bound``), where the curvature of the
channels counts with its sign. The reaches of all rows still come from the tube, which assumes adverse curvature at
every step; so the tube of an expanding network diverges at some radius for all multipliers. LSTM and GRU, whose gates
multiply two such errors, have a separate tube (``gated_tube``) with twice the range: slightly less than a tenth of the
distance to the nearest attack, on sequences of 28 steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stability.kernel.format.claims import Claim
from stability.kernel.reachability.ellipsoid_tube import gain, nominal_run
from stability.kernel.reachability.margin_loss import differences
from stability.kernel.reachability.network_stages import stages_of
from stability.kernel.reachability.stages import Nominal
from stability.kernel.systems.classifier import Classifier
from stability.proposals import accepted_claim
from stability.search.local.backward_search import CertifiedBall, TrialResult, select_sample, try_radius, widen_ball
from stability.search.local.gated_search import GatedSearch, is_gated
from stability.search.local.initial_radius import initial_balls
from stability.search.local.long_sequences import improve_weights, long_sequence_balls
from stability.search.local.multiplier_costs import nominal_slopes, stage_weights
from stability.search.local.request import FARTHEST, Request, is_affine
from stability.search.local.tube_trials import Task, ellipsoid_tubes, select_runs
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
_EVALUATIONS, _REFINED = 18, 3  # tubes per sample, and improvements of its weights
_TOLERANCE, _FINE = 1e-3, 1e-8  # relative tolerance of the radius, and that of small networks
_SMALL = 3e6
"""Approximate operations per evaluation below which the radius is found to ``_FINE``."""
_NEAR = 0.3
"""Share of the margin from which on a tube improves the weights."""
_ENDED = 1e3
"""Share of a margin above which a tube counts as diverged."""
_BATCH = 2**24
"""Bytes of ellipsoids and their costs in one batch."""
# relative reductions of a radius that are tried until the rule accepts it
_STEPS_BACK = (2e-8, 2e-7, 8e-7, 1e-4, 1e-2, 0.1)
_LONG, _LONG_BACK = 200, (1e-4, 1e-2, 0.1)
"""Steps from which on a proof costs as much as some trials, and larger reductions of a radius for roundings."""
_AFTER = 1.2
"""Factor of a certified radius for the next trial with better weights."""


def _search(
    task: Task, run: list[Nominal], worth: list[Array], upper: Array, tolerance: float, deadline: Deadline
) -> tuple[Array, Array, Array]:
    """Return certified radii ``(B,)`` with their multipliers and shares; zero if none was found.

    What a ball of radius e uses of its margin grows at least like e, so that a share just below one is enough: secants
    of the logarithms go for that, kept between the largest radius that held and the least that did not.
    """
    high = np.minimum(upper, 8.0 * linear_distances(task, run).min(axis=1))
    high = np.minimum(high, _farthest(task))
    low, top, better = np.zeros(len(high)), high.copy(), np.zeros(len(high), dtype=int)
    trial = np.minimum(np.where(np.isfinite(upper), 0.5 * high, 0.08 * high), 0.9 * high)
    multipliers = np.zeros((len(high), len(task.free), sum(len(stage.C) for stage in task.net.stages)))
    shares, goal = np.zeros((len(high), len(task.free))), np.log1p(-0.5 * tolerance)
    active, slope = np.flatnonzero(high > 0), np.full(len(high), 1.2)
    radii, logs = np.full(len(high), np.nan), np.full(len(high), np.nan)
    for _ in range(_EVALUATIONS):
        if not len(active) or deadline.over:
            break
        e = trial[active]
        part = task.only(active)
        tubes = ellipsoid_tubes(part, [select_runs(at, active) for at in run], [W[active] for W in worth], e)
        share, holds = tubes.share, tubes.share < 1.0
        proved, failed = active[holds], active[~holds]
        low[proved], multipliers[proved], shares[proved] = e[holds], tubes.T[holds], tubes.tau[holds]
        high[failed] = e[~holds]
        now = holds & (share >= _NEAR) & (better[active] < _REFINED)
        if now.any():
            improve_weights(part, tubes, worth, now, active[now])
            again = active[now]
            better[again] += 1
            high[again] = np.where(better[again] == 1, top[again], np.minimum(top[again], 1.5 * high[again]))
        with np.errstate(all="ignore"):
            log = np.log(share)
            secant = (log - logs[active]) / (np.log(e) - radii[active])
            slope[active] = np.where(np.isfinite(secant), np.clip(secant, 1.0, 50.0), slope[active])
            following = np.exp(np.log(e) + (goal - log) / slope[active])
        radii[active], logs[active] = np.log(e), log
        # what is not between the ends, or far from them all, is replaced by their middle
        middle = np.where(low[active] > 0, np.sqrt(low[active] * high[active]), 0.3 * high[active])
        if now.any():
            middle[now] = np.minimum(middle[now], _AFTER * low[active[now]])
        inside = np.isfinite(following) & (following > low[active]) & (following < high[active])
        trial[active] = np.where(inside, following, middle)
        done = (holds & ~now & (share >= 1.0 - tolerance)) | (high[active] - low[active] <= tolerance * high[active])
        active = active[~done]
    return low, multipliers, shares


def _searched(
    task: Task, run: list[Nominal], worth: list[Array], some: Array, upper: Array, tolerance: float, deadline: Deadline
) -> tuple[Array, Array, Array]:
    """Run ``_search`` for some samples and improve their weights; radii of the others are zero."""
    weights = [W[some] for W in worth]
    result = _search(task.only(some), [select_runs(at, some) for at in run], weights, upper[some], tolerance, deadline)
    out = tuple(np.zeros((len(upper), *part.shape[1:])) for part in result)
    for whole, part in zip(out, result):
        whole[some] = part
    for W, better in zip(worth, weights):
        W[some] = better
    radius, T, tau = out
    return radius, T, tau


def _farthest(task: Task) -> Array:
    """Return the largest radii ``(B,)`` to search for."""
    return FARTHEST * (1.0 + np.abs(task.x).max(axis=(1, 2)))


def linear_distances(task: Task, run: list[Nominal]) -> Array:
    """Return the linearized distances ``(B, k)`` to all class boundaries; infinite for the class itself."""
    net, count = task.net, len(task.net.stages)
    w = differences(net.head, task.y)
    squares = np.zeros(w.shape[:-1])
    for k in range(len(run) - 1, -1, -1):
        stage = net.stages[k % count]
        w = w @ gain(stage, nominal_slopes(stage, run[k]))
        if stage.fresh:
            entry = w[..., net.states :] * task.free[k // count]
            size = np.sqrt((entry * entry).sum(axis=-1))
            squares, w = (squares + size if task.budget == "step" else squares + size * size), w[..., : net.states]
    with np.errstate(divide="ignore"):
        return task.margins / (squares if task.budget == "step" else np.sqrt(squares))


def l2_claims(request: Request) -> list[Claim | None]:
    """Return the claims about balls in l2.

    Args:
        request: the inputs.

    Raises:
        UnsupportedError: a network for which no local certificate is known.
    """
    classifier, x, y, free, epsilon = request.classifier, request.x, request.y, request.free, request.epsilon
    net = stages_of(classifier)
    steps = x.shape[1] if classifier.reduction == "mean" else 1  # of a mean the tube carries the sum
    right = request.right if free.any() or epsilon is not None else request.right[:0]
    claims: list[Claim | None] = [None] * len(y)
    k = max(stage.A.shape[1] for stage in net.stages)
    size, work = (
        8 * x.shape[1] * len(net.stages) * k * k,
        float(x.shape[1] * sum(s.A.size * len(s.C) for s in net.stages)),
    )
    for part in np.array_split(right, max(1, -(-len(right) * size // _BATCH))):
        if not len(part):
            continue
        task = Task(net, x[part], y[part], steps * request.margins[part], free, request.budget)
        deadline = Deadline.from_limit(None if request.time_limit is None else request.time_limit * len(part))
        run = nominal_run(net, task.x)
        worth = stage_weights(net, run, task.y, task.margins)
        fine, limit = work < _SMALL, request.upper[part]
        gated, away = is_gated(task), linear_distances(task, run)
        initial: list[CertifiedBall | None] = [None] * len(part)
        shares = np.zeros(len(part))
        if epsilon is not None:
            radius, T, tau = _check_radii(task, run, worth, np.full(len(part), epsilon))
        else:
            if not fine and request.budget == "total":
                initial, shares = _initial_balls(task, run, worth, limit, away, deadline)
            # a ball that needs no closed class is within the tube's own reach, which may be more; long sequences have
            # tubes enough already
            long = x.shape[1] > _LONG
            unfinished = np.array([ball is None or not (ball.closed or long) for ball in initial])
            if gated and not fine:  # a tube that ends early is no use, and the one of bends costs as much
                unfinished &= shares < _ENDED
            tolerance = _FINE if fine else _TOLERANCE
            radius, T, tau = _searched(task, run, worth, np.flatnonzero(unfinished), limit, tolerance, deadline)
        limits = np.minimum(np.minimum(limit, 1.5 * away.min(axis=1)), _farthest(task))
        for i, sample in enumerate(part):
            first = CertifiedBall(float(radius[i]), T[i], [], tau=tau[i] if request.budget == "step" else None)
            more = {} if request.mask is None else {"mask": free}
            candidates = [first]
            if (here := initial[i]) is not None:
                candidates = [first, here] if first.radius > here.radius else [here, first]
            else:
                one = select_sample(task, run, worth, i)
                told_of = (first, epsilon, float(limits[i]), deadline, fine)
                better = (
                    _largest_gated_ball(one, shares[i] < _ENDED, *told_of) if gated else _largest_ball(one, *told_of)
                )
                candidates = [better, first] if better is not first else [first]
            for candidate in candidates:
                backs = _LONG_BACK if x.shape[1] > _LONG and not is_affine(net) else (0.0, *_STEPS_BACK)
                backs = backs if epsilon is None else (0.0,)
                arguments = (classifier, task.x[i], int(y[sample]), candidate, more, backs)
                claims[sample] = claims[sample] or _accepted(*arguments)
    return claims


def _initial_balls(
    task: Task, run: list[Nominal], worth: list[Array], upper: Array, away: Array, deadline: Deadline
) -> tuple[list[CertifiedBall | None], Array]:
    """Return balls from very few tubes, and the used shares of margins near the boundary, where evaluated."""
    if task.x.shape[1] > _LONG and not is_gated(task):
        return long_sequence_balls(task, run, worth, upper, away, deadline), np.zeros(len(away))
    return initial_balls(task, run, worth, upper, away.argmin(axis=1), deadline)


def _largest_ball(
    one: tuple[Task, list[Nominal], list[Array]],
    ball: CertifiedBall,
    epsilon: float | None,
    upper: float,
    deadline: Deadline,
    fine: bool,
) -> CertifiedBall:
    """Return a ball by closing single classes, or the given one."""
    if epsilon is not None:
        return _ball_of_radius(lambda radius: try_radius(*one, radius), ball, epsilon, deadline)
    if not ball.radius > 0:
        return ball
    dear = len(one[0].net.stages) > 1
    return widen_ball(lambda radius: try_radius(*one, radius), ball, upper, deadline, fine=fine, dear=dear)


def _ball_of_radius(
    decide: Callable[[float], TrialResult], ball: CertifiedBall, epsilon: float, deadline: Deadline
) -> CertifiedBall:
    """Return a ball of this radius, or the given one."""
    proof = None if ball.radius > 0 or deadline.over else decide(epsilon)
    return ball if proof is None or proof.closed is None else proof.ball(epsilon)


def _largest_gated_ball(
    one: tuple[Task, list[Nominal], list[Array]],
    lasts: bool,
    ball: CertifiedBall,
    epsilon: float | None,
    upper: float,
    deadline: Deadline,
    fine: bool,
) -> CertifiedBall:
    """Return ``_largest_ball`` of a gated network."""
    gated = GatedSearch.of(*one, lasts)
    if epsilon is not None:
        return _ball_of_radius(gated.decided, ball, epsilon, deadline)
    found = gated.largest(upper, deadline)
    if found is not None and found.radius > ball.radius:
        ball = found
    return widen_ball(gated.decided, ball, upper, deadline, fine=fine, dear=True) if ball.radius > 0 else ball


def _check_radii(task: Task, run: list[Nominal], worth: list[Array], radius: Array) -> tuple[Array, Array, Array]:
    """Return the radii that hold, else zero; a tube that fails by less than half is tried once more."""
    tubes = ellipsoid_tubes(task, run, worth, radius)
    close = (tubes.share >= 1.0) & (tubes.share < 2.0)
    if close.any():
        improve_weights(task, tubes, worth, close, np.flatnonzero(close))
        again = ellipsoid_tubes(task, run, worth, radius)
        shares = np.where(tubes.share < 1.0, tubes.share, again.share)
        first = tubes.share < 1.0
        T = np.where(first[:, None, None], tubes.T, again.T)
        return np.where(shares < 1.0, radius, 0.0), T, np.where(first[:, None], tubes.tau, again.tau)
    return np.where(tubes.share < 1.0, radius, 0.0), tubes.T, tubes.tau


def _accepted(
    classifier: Classifier, x: Array, label: int, ball: CertifiedBall, more: dict[str, Any], backs: tuple[float, ...]
) -> Claim | None:
    """Return the claim that the rule accepts, with the radius reduced by some shares in turn."""
    for back in backs if ball.radius > 0 else ():
        data = {"x": x, "label": label, "norm": "l2", "radius": ball.radius * (1.0 - back), **more}
        claim = accepted_claim(classifier, "local_ellipsoids", {**data, **ball.data()})
        if claim is not None:
            return claim
    return None
