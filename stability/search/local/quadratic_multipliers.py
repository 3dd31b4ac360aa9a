r"""Optimal multipliers of the quadratic relaxation, by Newton's method.

.. math:: \min_{D > 0} \; \tfrac14 q^T (H + D)^{-1} q + \sum_k D_k - \mu \log\det(H + D), \qquad H + D > 0,

with ``mu`` going to zero: Shor's dual of ``min q v + v^T H v`` over the box ``|v_k| <= 1``. The variable is ``log D``,
so that every step keeps ``D > 0`` and multipliers may differ by orders of magnitude. The result is not a proof; see
``Quadratic.least``.

``H = R^T S R = Q S' Q^T`` has the rank of the units' arguments, which is mostly far below the number of symbols. With
``Q`` orthonormal, :math:`(H + D)^{-1} = D^{-1} - D^{-1} Q M Q^T D^{-1}`. If the second derivative of the barrier is
replaced by its diagonal, the matrix of Newton's method is a diagonal plus a matrix of low rank, and a step costs
``O(symbols x rank^2)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import qr, solve_triangular

from stability.kernel.reachability.quadratic_relaxation import Quadratic
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
WARM = 0.01
"""Barrier weight of a warm start, relative to the mean of the multipliers."""


@dataclass(frozen=True)
class Multipliers:
    """Multipliers and their bound.

    Attributes:
        D: ``(n + k,)`` multipliers of the symbols, then of the cuts.
        bound: lower bound by these multipliers, in floating point.
        v: ``(n,)`` minimizer of the convex function.
    """

    D: Array
    bound: float
    v: Array


class _Dual:
    """Dual of one function ``F(v) = constant + q v + v^T Q S Q^T v``, with cut values ``offset + G^T Q^T v``."""

    def __init__(self, F: Quadratic) -> None:
        self.q, self.n = F.slope(), len(F.linear)
        self.constant = F.value(np.zeros(self.n))
        factors: Any = qr(
            np.concatenate([F.rows, F.cut_rows.reshape(-1, self.n)]).T,
            mode="economic",
            pivoting=True,
            check_finite=False,
        )
        Q, upper, order = factors
        sizes = np.abs(np.diagonal(upper))
        rank = int((sizes > 1e-13 * sizes.max(initial=0.0)).sum())
        turned = np.zeros((rank, upper.shape[1]))
        turned[:, order] = upper[:rank]
        self.Q = Q[:, :rank]
        rows, self.G = turned[:, : len(F.offset)], turned[:, len(F.offset) :]
        S = rows @ F.form(rows.T)
        self.S, self.offset, self.half = 0.5 * (S + S.T), F.cut_offset, F.cut_half

    def value(self, v: Array) -> float:
        """Return ``F(v)``."""
        y = self.Q.T @ v
        return float(self.constant + self.q @ v + y @ self.S @ y)

    def first(self) -> Array:
        """Return multipliers with a diagonally dominant ``H + D``; those of the cuts are small."""
        rows = np.abs((self.Q @ self.S) @ self.Q.T).sum(axis=1)
        D = 0.5 * np.abs(self.q) + 1.0001 * rows + 1e-9 * (1.0 + np.abs(self.q).max(initial=0.0))
        cut_size = 0.01 * float(D.sum()) / max(self.n, 1)
        return np.concatenate([D, cut_size / np.maximum(self.half, 1e-9) ** 2])

    def at(self, D: Array) -> _Point | None:
        """Evaluate the dual at multipliers; ``None`` if ``H + D`` is not positive definite."""
        D, cut = D[: self.n], D[self.n :]
        S = self.S + (self.G * cut) @ self.G.T
        q = self.q + 2.0 * self.Q @ (self.G @ (cut * self.offset))
        try:
            around = (self.Q.T / D) @ self.Q
            C = np.linalg.cholesky(around)
            E = C.T @ S @ C
            L = np.linalg.cholesky(0.5 * (E + E.T) + np.eye(len(E)))
        except np.linalg.LinAlgError:
            return None
        X = solve_triangular(L, C.T @ S, lower=True, check_finite=False)
        M = S - X.T @ X
        log = float(np.log(D).sum() + 2.0 * np.log(np.diagonal(L)).sum())
        z = q / D
        v = -0.5 * (z - (self.Q @ (M @ (self.Q.T @ z))) / D)
        gain = 0.5 * float(q @ v) - float(D.sum()) + float(cut @ (self.offset**2 - self.half**2))
        return _Point(D, cut, M, around, v, log, gain)

    def step(self, at: _Point, mu: float) -> tuple[Array, float]:
        """Return Newton's step in ``log D``, and twice its predicted decrease."""
        D, v, M = at.D, at.v, at.M
        Z = self.Q / D[:, None]
        inverse = 1.0 / D - ((Z @ M) * Z).sum(axis=1)
        rest = 1.0 - v * v - mu * inverse
        flat = 2.0 * D * v * v + mu * (D * inverse) ** 2 + D * np.maximum(rest, 0.05) + 1e-12
        V, g = v[:, None] * self.Q, D * rest
        bent = V / flat[:, None]
        inner = np.eye(len(M)) - 2.0 * M @ (V.T @ bent)

        def solved(right: Array) -> Array:
            return right / (flat if right.ndim == 1 else flat[:, None]) + bent @ np.linalg.solve(
                inner, 2.0 * M @ (bent.T @ right)
            )

        step = -solved(g)
        if not len(at.cut):
            return step, -float(g @ step)
        # block of the cuts; y is the value of a cut at v, minus the middle of its interval
        y = self.offset + self.G.T @ (self.Q.T @ v)
        reduced = self.G - M @ (at.around @ self.G)  # Q^T K^-1 Q G without the factor Q^T D^-1 Q
        hessian = self.G.T @ (at.around @ reduced)
        width = np.diagonal(hessian)
        gap = self.half**2 - y * y - mu * width
        G_c, weight = at.cut * gap, at.cut * y
        cross = 2.0 * V @ (reduced * weight)
        block = 2.0 * weight[:, None] * hessian * weight
        block = block + np.diag(at.cut * np.maximum(gap, 0.05 * self.half**2) + mu * (at.cut * width) ** 2 + 1e-12)
        across = solved(cross)
        cuts = np.linalg.solve(block - cross.T @ across, -G_c - cross.T @ step)
        step = np.concatenate([step - across @ cuts, cuts])
        return step, -float(np.concatenate([g, G_c]) @ step)


@dataclass(frozen=True)
class _Point:
    D: Array
    cut: Array
    M: Array
    around: Array
    v: Array
    log: float
    gain: float

    @property
    def all(self) -> Array:
        return np.concatenate([self.D, self.cut])

    def cost(self, mu: float) -> float:
        return -self.gain - mu * self.log


def best_multipliers(
    F: Quadratic, *, decide: bool = True, rounds: int = 40, deadline: Deadline | None = None, start: Array | None = None
) -> Multipliers:
    """Find multipliers with a large lower bound of a quadratic function over ``|v_k| <= 1``.

    Args:
        F: the function.
        decide: end once the sign of the minimum is known: the bound is positive, or a value is negative.
        rounds: most Newton steps.
        deadline: checked before each step.
        start: initial multipliers, all positive.

    Returns:
        The multipliers with the largest bound.

    Example:
        >>> one, none = np.ones(1), np.zeros(0, dtype=int)
        >>> F = Quadratic(0.0, one, np.ones((1, 1)), 0.0 * one, -one, none, none, np.zeros(0))  # v - v^2
        >>> round(best_multipliers(F, decide=False).bound, 3)
        -2.0
    """
    dual = _Dual(F)
    D, n = dual.first(), max(len(F.linear) + len(F.cut_half), 1)
    at = None
    for factor in (1.0, 1.2, 2.0) if start is not None else ():
        at = dual.at(factor * np.asarray(start)) if at is None else at
    warm = at is not None
    at = dual.at(D) if at is None else at
    if at is None:
        return Multipliers(D, -np.inf, np.zeros(dual.n))
    best, until = Multipliers(D, -np.inf, at.v), deadline or Deadline.from_limit(None)
    mu = (WARM if warm else 0.1) * float(at.D.sum()) / n
    for _ in range(rounds):
        bound = dual.constant + at.gain
        if bound > best.bound:
            best = Multipliers(at.all, bound, at.v)
        known = decide and (bound > 0.0 or dual.value(np.clip(at.v, -1.0, 1.0)) < 0.0)
        if known or until.over:
            break
        try:
            step, promise = dual.step(at, mu)
        except np.linalg.LinAlgError:
            break
        improved = _search(dual, at, step, promise, mu)
        if improved is None:
            break
        at = improved
        if promise < 0.3 * mu * n:
            if decide and dual.constant + at.gain + 2.0 * mu * n < 0.0:
                break  # without the barrier the bound would still be negative
            mu *= 0.4
    return best


def _search(dual: _Dual, at: _Point, step: Array, promise: float, mu: float) -> _Point | None:
    """Return the next point along a step, halved until the decrease suffices."""
    length, cost = min(1.0, 3.0 / max(float(np.abs(step).max(initial=0.0)), 1e-300)), at.cost(mu)
    while length > 1e-3:
        trial = dual.at(at.all * np.exp(length * step))
        if trial is not None and trial.cost(mu) <= cost - 0.01 * length * promise:
            return trial
        length *= 0.5
    return None
