r"""The multipliers that make the most of a quadratic lower bound: Newton's method for their logarithms.

.. math:: \min_{D > 0} \; \tfrac14 q^T (H + D)^{-1} q + \sum_k D_k - \mu \log\det(H + D), \qquad H + D > 0,

with ``mu`` going to zero: Shor's dual of ``min q v + v^T H v`` over the box ``|v_k| <= 1``. In ``log D`` a step keeps
``D > 0`` and the multipliers may differ by orders of magnitude. Nothing here is a proof, see ``Quadratic.least``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotrf, dpotri  # type: ignore[attr-defined]

Array = np.ndarray


@dataclass(frozen=True)
class Multipliers:
    """What was found.

    Attributes:
        D: ``(n,)``.
        bound: the lower bound that they give, in floating point.
        v: ``(n,)`` where the convex function is least.
    """

    D: Array
    bound: float
    v: Array


def _inverse(K: Array) -> tuple[Array, float] | None:
    """Inverse and log-determinant, or ``None`` where the matrix is not positive definite."""
    factor, info = dpotrf(K, lower=1)
    if info:
        return None
    log = 2.0 * float(np.log(np.diagonal(factor)).sum())
    lower, info = dpotri(factor, lower=1)
    return (np.tril(lower) + np.tril(lower, -1).T, log) if not info else None


def best_multipliers(H: Array, q: Array, constant: float, *, need: float = 0.0, rounds: int = 12) -> Multipliers:
    """Multipliers of a large lower bound of ``constant + q v + v^T H v`` over ``|v_k| <= 1``.

    Args:
        H: ``(n, n)``, symmetric.
        q: ``(n,)``.
        constant: a number.
        need: the search ends where the bound is above it.
        rounds: most Newton steps.

    Returns:
        The best found.

    Example:
        >>> found = best_multipliers(np.array([[-1.0]]), np.array([1.0]), 0.0, need=9.0, rounds=30)
        >>> round(found.bound, 3)
        -2.0
    """
    n = len(q)
    D = 0.5 * np.abs(q) + np.abs(H).sum(axis=1) * 1.0001 + 1e-9 * (1.0 + np.abs(q).max(initial=0.0))
    found = _inverse(H + np.diag(D))
    if found is None:
        return Multipliers(D, -np.inf, np.zeros(n))
    inverse, log = found
    v, mu = -0.5 * inverse @ q, 0.1 * float(D.sum()) / n
    best = Multipliers(D, -np.inf, v)
    for _ in range(rounds):
        bound = constant + 0.5 * float(q @ v) - float(D.sum())
        if bound > best.bound:
            best = Multipliers(D, bound, v)
        if bound > need:
            break
        rest, Dv = 1.0 - v * v - mu * np.diagonal(inverse), D * v
        curvature = 2.0 * (Dv[:, None] * inverse * Dv) + mu * (D[:, None] * inverse * D) * inverse
        curvature.flat[:: n + 1] += D * np.maximum(rest, 0.05) + 1e-12
        try:
            step = -cho_solve(cho_factor(curvature, overwrite_a=True, check_finite=False), D * rest, check_finite=False)
        except np.linalg.LinAlgError:
            break
        decrement = -float((D * rest) @ step)
        value, length = -0.5 * float(q @ v) + float(D.sum()) - mu * log, min(1.0, 3.0 / np.abs(step).max())
        while length > 1e-3:
            trial = D * np.exp(length * step)
            found = _inverse(H + np.diag(trial))
            if found is not None:
                moved = -0.5 * found[0] @ q
                if -0.5 * float(q @ moved) + float(trial.sum()) - mu * found[1] <= value - 0.01 * length * decrement:
                    break
            length *= 0.5
        else:
            break
        D, (inverse, log), v = trial, found, moved
        if decrement < 0.3 * mu * n:
            mu *= 0.4
    return best
