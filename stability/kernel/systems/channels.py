"""Solution of the channel equation ``z = free + D phi(z)``, which is explicit if ``D`` is acyclic."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from stability.errors import UnsupportedError

Array = np.ndarray
_SWEEPS, _ROUNDS = 200, 400  # most fixed-point sweeps (and one per channel), and most Newton steps after them
_LONGEST_CYCLE = 12
"""Longest detected period of fixed-point sweeps that repeat because of rounding; observed are two, three and four."""
_BATCH = 2**27
"""Bytes of Newton matrices in one batch."""
_ROUNDING = 32 * np.finfo(float).eps


def solve_channels(
    free: Array, D: Array, function: Callable[[Array], Array], derivative: Callable[[Array], Array]
) -> Array:
    r"""Solve :math:`z = f + D \phi(z)` row by row.

    If ``D`` has no cycle, fixed-point sweeps end after at most ``m`` sweeps. Otherwise they converge at the spectral
    radius of ``|D| |K|``; Newton's method continues, with further sweeps for rows that it does not improve.

    Args:
        free: ``(..., m)``, the pre-activations without the direct term.
        D: ``(m, m)``, well posed for the activation's slopes.
        function: the activation.
        derivative: its derivative.

    Returns:
        ``(..., m)``; rows that overflow have no meaning.

    Raises:
        UnsupportedError: when a residual stays above the rounding errors of its terms.

    Example:
        >>> swap = np.array([[0.0, 0.99], [0.99, 0.0]])
        >>> relu, step = lambda z: np.maximum(z, 0.0), lambda z: (z > 0) * 1.0
        >>> np.round(solve_channels(np.ones(2), swap, relu, step), 9)
        array([100., 100.])
    """
    size = np.abs(D)

    def sweep(z: Array, rows: Array) -> Array:
        return rows + function(z) @ D.T

    def excess(z: Array, rows: Array) -> Array:
        """Return the residual divided by its possible rounding error; zero for rows that are not finite."""
        w = function(z)
        with np.errstate(all="ignore"):
            scale = np.abs(rows) + np.abs(w) @ size.T + np.abs(z)
            ratio = (np.abs(z - rows - w @ D.T) / np.maximum(_ROUNDING * len(D) * scale, 1e-300)).max(axis=-1)
        return np.where(np.isfinite(ratio), ratio, 0.0)

    z, most, seen = free, _SWEEPS + len(D), deque[Array](maxlen=_LONGEST_CYCLE)
    for k in range(1, most + 1):
        new = sweep(z, free)
        if np.array_equal(new, z):
            return z
        seen.append(z)
        z, period = new, _period(new, seen)
        if period:  # the sweeps repeat: select the result that the last sweep would have
            z = seen[-period + (most - k) % period]
            break
    flat, rows = z.reshape(-1, len(D)).copy(), free.reshape(-1, len(D))
    for _ in range(_ROUNDS):
        open_rows = np.flatnonzero(excess(flat, rows) > 1.0)
        if not len(open_rows):
            return flat.reshape(free.shape)
        point, constant = flat[open_rows], rows[open_rows]
        parts = np.array_split(np.arange(len(open_rows)), -(-len(open_rows) * 8 * D.size // _BATCH))
        slopes, residual = derivative(point)[:, None, :], (point - sweep(point, constant))[..., None]
        try:
            moves = [np.linalg.solve(np.eye(len(D)) - D * slopes[part], residual[part])[..., 0] for part in parts]
            trial = point - np.concatenate(moves)
        except np.linalg.LinAlgError:
            trial = np.full_like(point, np.nan)
        better = excess(trial, constant) < 0.5 * excess(point, constant)
        better &= np.isfinite(trial).all(axis=-1)
        for _ in range(0 if better.all() else 100):  # a sweep contracts in some weighted norm: slow, but it converges
            point = sweep(point, constant)
        flat[open_rows] = np.where(better[:, None], trial, point)
    raise UnsupportedError(
        "the channel equation z = free + D phi(z) could not be solved to within rounding errors: D has cycles with a "
        "gain close to one; give the network with an acyclic D"
    )


def _period(new: Array, seen: deque[Array]) -> int:
    """Return the number of sweeps since exactly ``new`` occurred; 0 if it is not among ``seen``."""
    candidates = (back for back in range(2, len(seen) + 1) if new.flat[0] == seen[-back].flat[0])
    return next((back for back in candidates if np.array_equal(new, seen[-back])), 0)


def close_loop(D: Array, k: Array, right: Array) -> Array:
    r"""Return the closed loop of the channels with fixed slopes: :math:`(I - D K)^{-1} X` for ``K = diag(k)``.

    If no channel both reads others and is read, as in an LSTM, ``(D K)^2 = 0`` and no linear system is solved.

    Args:
        D: ``(m, m)``.
        k: ``(m,)`` slopes.
        right: ``(m, n)``, the matrix ``X``.

    Returns:
        ``(m, n)``.

    Example:
        >>> close_loop(np.array([[0.0, 3.0], [0.0, 0.0]]), np.array([1.0, 0.5]), np.eye(2))
        array([[1. , 1.5],
               [0. , 1. ]])
    """
    reading, read = D.any(axis=1), D.any(axis=0)
    if (reading & read).any():
        return np.linalg.solve(np.eye(len(D)) - D * k, right)
    out = np.array(right)
    out[reading] += (D[np.ix_(reading, read)] * k[read]) @ right[read]
    return out
