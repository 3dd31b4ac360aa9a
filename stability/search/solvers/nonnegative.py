"""Least squares with non-negative unknowns, from the normal equations.

``scipy.optimize`` has the same method; to load it takes longer than a small system takes to be certified.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs

Array = np.ndarray
_SOLVE: Any = get_lapack_funcs("posv", dtype=np.float64)


def nonnegative(gram: Array, right: Array, most: int | None = None) -> Array:
    """``argmin x^T G x / 2 - r^T x`` over ``x >= 0``, by the active sets of Lawson and Hanson.

    At the answer ``G x - r >= 0`` where ``x = 0``, and ``= 0`` elsewhere.

    Args:
        gram: ``(n, n)`` symmetric and positive definite.
        right: ``(n,)``.
        most: solved systems at most, ``20 n + 100`` by default; the best that was reached is the answer then.

    Returns:
        ``(n,)``.

    Raises:
        LinAlgError: a matrix that is not positive definite, or numbers that are not finite.

    Source:
        C. L. Lawson and R. J. Hanson, Solving least squares problems (1974), chapter 23; R. Bro and S. de Jong (1997)
        for the form with ``G``.

    Example:
        >>> nonnegative(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([1.0, -1.0])).round(12).tolist()
        [0.5, 0.0]
    """
    n = len(right)
    if not (np.isfinite(gram).all() and np.isfinite(right).all()):
        raise np.linalg.LinAlgError("the matrix or the right-hand side is not finite")
    x, free, barred = np.zeros(n), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    scale = 1e-14 * max(float(np.abs(right).max(initial=0.0)), np.finfo(float).tiny)
    left = 20 * n + 100 if most is None else most
    while left > 0 and not (free | barred).all():
        pull = np.where(free | barred, -np.inf, right - gram @ x)
        entering = int(pull.argmax())
        if not pull[entering] > scale:
            break
        free[entering] = True
        wanted = _solved(gram, right, free)
        left -= 1
        if not wanted[entering] > 0.0:  # pulled by rounding alone
            free[entering], barred[entering] = False, True
            continue
        barred[:] = False
        while left > 0 and (leaving := free & ~(wanted > 0.0)).any():
            shares = x[leaving] / (x[leaving] - wanted[leaving])
            x = np.where(free, x + float(shares.min()) * (wanted - x), 0.0)
            free &= x > 1e-15 * np.abs(x).max()
            x[~free] = 0.0
            wanted = _solved(gram, right, free)
            left -= 1
        if not (wanted < 0.0).any():
            x = wanted
    return x


def _solved(gram: Array, right: Array, free: Array) -> Array:
    """The answer to the equations of the free unknowns, zero elsewhere."""
    index = np.flatnonzero(free)
    out = np.zeros(len(right))
    if len(index):
        _, found, info = _SOLVE(gram[np.ix_(index, index)], right[index], lower=True)
        if info:
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        out[index] = found
    return out
