r"""Quadratic lower bound of one margin by a backward recursion around one input.

Around the run of a reference input :math:`\hat x` (near the worst one of the ball) a margin is bounded from below, step
by step from the end, by :math:`p_k^T d - d^T P_k d` and a price :math:`\lambda |u|^2` on changes of the input. At a
stage with rows ``C``, a part :math:`p^T B \psi(v)` loses :math:`v^T K v` on its tangent, with the signs of its bends
(``curvature``), and the quadratic part goes through slopes within :math:`m \pm \rho` over the reaches
that a tube of ellipsoids proves, with multipliers ``T >= 0`` for :math:`|e_i| \le \rho_i |v_i|`:

.. math:: \begin{bmatrix} P_k \oplus \lambda I - C^T (K + \rho T \rho) C & \\ & T \end{bmatrix}
          - \begin{bmatrix} G & B \end{bmatrix}^T P_{k+1} \begin{bmatrix} G & B \end{bmatrix} > 0,
          \qquad G = A + B m C .

With :math:`s = \hat x - x` and :math:`|x' - x|^2 \le \epsilon^2`, the margin of ``x'`` is at least

.. math:: \hat{\mathrm{margin}} - \lambda (\epsilon^2 - |s|^2) - |g + 2 \lambda s| (\epsilon + |s|)

with ``g`` the margin's gradient there. With a budget for each step every step has a price of its own, and what it takes
off is the same sum over the steps. It vanishes where the reference input is stationary, and then the bound is
Lagrange's: where the inequalities hold up to the ``lambda`` of the nearest attack, the radius is that of the attack.
Nothing in it takes more than one matrix of a stage's size at a time: it is linear in the number of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma, prove_positive_definite
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.reachability.curvature import Curvature, curvature
from stability.kernel.reachability.ellipsoid_operations import half_widths
from stability.kernel.reachability.ellipsoid_tube import ROOM, Local, gain, nominal_run, stage_error
from stability.kernel.reachability.network_stages import Stages
from stability.kernel.reachability.stages import Nominal, Stage

Array = np.ndarray
_RAISED = (1e-9, 1e-7, 1e-5)
"""Relative enlargements of the entries of ``P`` that are tried, as a margin for roundings."""
_SURE = 1.0 + 1e-12


@dataclass(frozen=True, eq=False)
class Passage:
    """Bounds of all perturbed runs at a stage, from a tube.

    Attributes:
        stage: the stage.
        y: ``(k,)`` the vector before it on the tube's own run.
        sides: ``(k,)`` how far that moves.
        rows: ``(m,)`` on that run.
        reach: ``(m,)`` how far they move.
        Y: ``(k, k)`` the ellipsoid, for the choice of multipliers.
    """

    stage: Stage
    y: Array
    sides: Array
    rows: Array
    reach: Array
    Y: Array


def half_reach(radius: float, Y: Array) -> Array:
    """Bound the entries of vectors in the ellipsoid ``radius^2 Y`` above."""
    return radius * (1.0 + ROOM) * half_widths(Y) * (1 + 8 * EPS)


@dataclass(frozen=True, eq=False)
class Reference:
    """Run of one input with the derivatives of one margin along it.

    Attributes:
        x: ``(T, p)``.
        run: every stage.
        at: the vectors before every stage.
        p: the margin's gradient by the vector after every stage, and before the first.
        worth: gradient by the outputs of every stage's channels.
        slopes: the channels' own.
        gradient: ``(T, p)`` by the input.
    """

    x: Array
    run: list[Nominal]
    at: list[Array]
    p: list[Array]
    worth: list[Array]
    slopes: list[Array]
    gradient: Array


def reference(net: Stages, x: Array, w: Array) -> Reference:
    """Return the run of ``x`` ``(T, p)`` and the gradients of ``w y``, with ``y`` the final vector."""
    run, count, n = nominal_run(net, x), len(net.stages), net.states
    before = [net.start, *(at.out for at in run[:-1])]
    at = [np.concatenate([y, x[k // count]]) if net.stages[k % count].fresh else y for k, y in enumerate(before)]
    p, worth, slopes, gradient = [w], list[Array](), list[Array](), np.zeros(x.shape)
    for k in range(len(run) - 1, -1, -1):
        stage = net.stages[k % count]
        slopes.append(stage.tangents(run[k].rows, run[k].offset)[0])
        worth.append(stage.B.T @ p[-1])
        adjoint = stage.A.T @ p[-1] + stage.C.T @ (worth[-1] * slopes[-1])
        if stage.fresh:
            gradient[k // count], adjoint = adjoint[n:], adjoint[:n]
        p.append(adjoint)
    return Reference(x, run, at, p[::-1], worth[::-1], slopes[::-1], gradient)


@dataclass(frozen=True, eq=False)
class Around:
    """Slopes and curvature of a stage around a reference, over the reach of a tube.

    Attributes:
        m: ``(m,)``.
        rho: ``(m,)``.
        K: the curvature.
        G: ``A + B m C``.
        far: ``(m,)`` the most that a row moves from the reference.
        sides: ``(k,)`` the same of the vector before the stage.
        loose: ``(m,)`` error bound of the floating-point rows.
    """

    m: Array
    rho: Array
    K: Curvature
    G: Array
    far: Array
    sides: Array
    loose: Array


def linearize_stages(net: Stages, tube: list[Passage], ref: Reference) -> list[Around]:
    """Return the slopes and the curvature of every stage around a reference."""
    count = len(net.stages)
    out: list[Any] = [None] * len(tube)
    for first, stage in enumerate(net.stages):
        index = range(first, len(tube), count)
        ways, runs = [tube[k] for k in index], [ref.run[k] for k in index]
        sides_of, reach, rows = (np.stack([getattr(w, name) for w in ways]) for name in ("sides", "reach", "rows"))
        stacked_rows, offset = np.stack([r.rows for r in runs]), np.stack([r.offset for r in runs])
        away = np.stack([np.abs(ref.at[k] - way.y) for k, way in zip(index, ways)])
        moved, reach = (sides_of + away) * (1 + 8 * EPS), reach * _SURE + 1e-300
        if stage.slack is not None:
            offset = offset + moved @ stage.slack[2].T * _SURE
            reach = reach + sides_of @ stage.slack[2].T * _SURE
        shift = rows - stacked_rows
        wider = reach + offset + 8 * EPS * (np.abs(rows) + np.abs(stacked_rows) + reach)
        down, up = np.maximum(wider - shift, 0.0), np.maximum(wider + shift, 0.0)
        largest = np.maximum(down, up)
        low, high = stage.slopes_between(stacked_rows, down, up)
        m = 0.5 * (low + high)
        rho = np.where(high > low, np.nextafter(np.maximum(high - m, m - low), np.inf), 0.0)
        K, G = curvature(stage, stacked_rows, np.stack([ref.worth[k] for k in index]), -down, up), gain(stage, m)
        for n, k in enumerate(index):
            out[k] = Around(m[n], rho[n], K.at(n), G[n], largest[n], moved[n], offset[n])
    return out


def _inequality(
    stage: Stage, a: Around, P: Array, T: Array, free: Array | None, price: float
) -> tuple[Array, Array, Array, Array]:
    """Return the matrix of the inequality minus the earlier ``P``, and its parts.

    Returns:
        The matrix over the state, the entries of the input that change and the channels whose slope is not known;
        ``[G B]`` and ``C`` on these, and ``rho T rho``.
    """
    active, n = a.rho > 0, len(a.G[0]) - (0 if free is None else len(free))
    G, C, entries = a.G, stage.C, 0
    if free is not None:
        entries = int(free.sum())
        if entries < len(free):
            index = np.concatenate([np.arange(n), n + np.flatnonzero(free)])
            G, C = G[:, index], C[:, index]
    size, loss = n + entries, np.where(active, a.rho * a.rho * T, 0.0)
    V = np.concatenate([G, stage.B[:, active]], axis=1)
    fixed = -(V.T @ (P @ V))
    fixed[:size, :size] -= a.K.on(C, loss)
    fixed[range(n, size), range(n, size)] += price
    fixed[range(size, len(fixed)), range(size, len(fixed))] += T[active]
    return 0.5 * (fixed + fixed.T), V, C, loss


def _eliminated(fixed: Array, n: int) -> Array | None:
    """Return the smallest ``P`` for which the matrix is non-negative; ``None`` if there is none."""
    rest = fixed[n:, n:]
    try:
        np.linalg.cholesky(rest)
        out = fixed[:n, n:] @ np.linalg.solve(rest, fixed[n:, :n]) - fixed[:n, :n]
    except np.linalg.LinAlgError:
        return None
    return 0.5 * (out + out.T)


def backward_step(stage: Stage, a: Around, P: Array, T: Array, free: Array | None, price: float) -> Array | None:
    """Return ``P`` before a stage from the one after it, or ``None`` if the inequality fails.

    Args:
        stage: the stage.
        a: its slopes and curvature.
        P: ``(k2, k2)``.
        T: ``(m,)``, positive.
        free: mask of the entries of the appended input that change; ``None``: no appended input.
        price: ``lambda``.
    """
    fixed, *_ = _inequality(stage, a, P, T, free, price)
    return _eliminated(fixed, len(a.G[0]) - (0 if free is None else len(free)))


def proved_step(stage: Stage, a: Around, P: Array, T: Array, free: Array | None, price: float) -> Array | None:
    """Return ``backward_step`` slightly enlarged and proved with every rounding error; ``None`` if that fails."""
    n = len(a.G[0]) - (0 if free is None else len(free))
    fixed, V, C, loss = _inequality(stage, a, P, T, free, price)
    before = _eliminated(fixed, n)
    if before is None:
        return None
    size, aP, aV = C.shape[1], np.abs(P), np.abs(V)
    whole = np.abs(before).sum(axis=1)
    room = whole + aV[:, :n].T @ (aP @ aV[:, :n].max(axis=1)) + 1e-12 * whole.max(initial=0.0) + 1e-30
    factor = gamma(2 * len(P) + len(C) + 16)
    for raised in _RAISED:
        trial = before.copy()
        trial[range(n), range(n)] += raised * room
        matrix = fixed.copy()
        matrix[:n, :n] += trial

        def error(s: Array, trial: Array = trial) -> Array:
            out = aV.T @ (aP @ (aV @ s))
            out[:size] += a.K.sizes(C, s[:size], loss)
            out[:n] += np.abs(trial) @ s[:n]
            out[n:size] += price * s[n:size]
            out[size:] += T[a.rho > 0] * s[size:]
            return factor * out

        if prove_positive_definite(matrix, error, overwrite=True).holds:
            return trial
    return None


def proved_margin(
    net: Stages, tube: list[Passage], ref: Reference, T: Array, free: Array, prices: Array, ball: tuple[Array, float]
) -> float:
    """Bound ``w y`` below over all inputs of a ball, up to the roundings of that product; minus infinity: no bound.

    Args:
        net: the stages.
        tube: enclosure of the runs.
        ref: a reference with the gradients of ``w y``.
        T: ``(T, m)`` multipliers of all stages of a step.
        free: ``(T, p)`` which entries of the input change.
        prices: ``lambda > 0``: ``(1,)`` for the budget of the whole sequence, ``(T,)`` for one of each step.
        ball: its center ``(T, p)`` and its radius.
    """
    (x, radius), w, count = ball, ref.p[-1], len(net.stages)
    paid = np.broadcast_to(prices, (len(x),))
    P, loss, stages = np.zeros((net.states, net.states)), 0.0, linearize_stages(net, tube, ref)
    edges = [0, *np.cumsum([len(stage.C) for stage in net.stages])]
    adjoint = np.zeros(net.states)
    for k in range(len(tube) - 1, -1, -1):
        stage, a = tube[k].stage, stages[k]
        rest, p, worth = (
            stage_error(stage, ref.run[k], Local(a.m, a.rho, a.far), 2.0 * a.loose, a.sides),
            np.abs(ref.p[k + 1]),
            np.abs(ref.worth[k]),
        )
        loss += float(p @ rest + 2.0 * adjoint @ (np.abs(P) @ rest) + rest @ (np.abs(P) @ rest))
        steep = np.abs(a.m) + a.rho
        _, unsure = stage.tangents(ref.run[k].rows, ref.run[k].offset)
        loss += float(worth @ (unsure * a.far))
        loss += gamma(len(P) + 4) * float((np.abs(stage.B).T @ p) @ (steep * a.far))
        sums = np.abs(stage.A).T @ p + np.abs(stage.C).T @ (worth * np.abs(ref.slopes[k]))
        loss += gamma(len(stage.A) + len(stage.C) + 8) * float(sums @ a.sides)
        entry = free[k // count] if stage.fresh else None
        multipliers, price = T[k // count, edges[k % count] : edges[k % count + 1]], float(paid[k // count])
        step = proved_step(stage, a, P, multipliers, entry, price)
        if step is None:
            return -np.inf
        P, adjoint = step, a.sides[: len(step)] if stage.fresh else a.sides
    shift = (ref.x - x) * free
    if (ref.x != x)[free == 0].any():
        return -np.inf
    steep = 2.0 * paid[:, None]
    away = _lengths(shift, prices) * _SURE
    rest = _lengths((ref.gradient + steep * shift) * free, prices)
    rest = rest + 16 * EPS * _lengths(np.abs(ref.gradient) + steep * (np.abs(ref.x) + np.abs(x)), prices)
    between = prices * (radius * radius * _SURE - away * away / _SURE**4)
    lost = float((between + rest * (radius + away) * _SURE).sum()) + loss * (1 + 1e-6)
    return float(w @ ref.run[-1].out) - lost - 1e-12 * (float(np.abs(between).sum()) + abs(lost))


def _lengths(x: Array, prices: Array) -> Array:
    """Return the length of ``(T, p)`` as a whole, or those of its steps: one for each price."""
    return np.linalg.norm(x.reshape(len(prices), -1), axis=1)
