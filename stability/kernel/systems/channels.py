"""Channel equation ``z = free + D phi(z)``, explicit for acyclic D and solved otherwise."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from stability.errors import UnsupportedError

Array = np.ndarray
_SWEEPS, _ROUNDS = 200, 400
_CIRCLE = 12
"""Sweeps remembered to detect cycles of period two, three and four caused by rounding."""
_BATCH = 2**27
"""Bytes of Newton matrices in one batch."""
_ROUNDING = 32 * np.finfo(float).eps


def solve_channels(
    free: Array, D: Array, function: Callable[[Array], Array], derivative: Callable[[Array], Array]
) -> Array:
    r"""Solve :math:`z = f + D \phi(z)` row by row.

    Sweeps end exactly after at most ``m`` of them where D has no cycle. Where it has, they converge as slowly as the
    spectral radius of ``|D| |K|`` allows; Newton's method takes over, and gives way to sweeps where it does not help.

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
        """Return the residual minus its rounding errors; not positive for rows that are not finite."""
        w = function(z)
        with np.errstate(all="ignore"):
            scale = np.abs(rows) + np.abs(w) @ size.T + np.abs(z)
            ratio = (np.abs(z - rows - w @ D.T) / np.maximum(_ROUNDING * len(D) * scale, 1e-300)).max(axis=-1)
        return np.where(np.isfinite(ratio), ratio, 0.0)

    z, most, seen = free, _SWEEPS + len(D), deque[Array](maxlen=_CIRCLE)
    for k in range(1, most + 1):
        new = sweep(z, free)
        if np.array_equal(new, z):
            return z
        seen.append(z)
        z, period = new, _period(new, seen)
        if period:  # rounding goes round in a circle for ever: where the last sweep would end is known
            z = seen[-period + (most - k) % period]
            break
    flat, rows = z.reshape(-1, len(D)).copy(), free.reshape(-1, len(D))
    for _ in range(_ROUNDS):
        left = np.flatnonzero(excess(flat, rows) > 1.0)
        if not len(left):
            return flat.reshape(free.shape)
        here, given = flat[left], rows[left]
        parts = np.array_split(np.arange(len(left)), -(-len(left) * 8 * D.size // _BATCH))
        slopes, rest = derivative(here)[:, None, :], (here - sweep(here, given))[..., None]
        try:
            moves = [np.linalg.solve(np.eye(len(D)) - D * slopes[part], rest[part])[..., 0] for part in parts]
            trial = here - np.concatenate(moves)
        except np.linalg.LinAlgError:
            trial = np.full_like(here, np.nan)
        better = excess(trial, given) < 0.5 * excess(here, given)
        better &= np.isfinite(trial).all(axis=-1)
        for _ in range(0 if better.all() else 100):  # a contraction in some weighted norm: slow, and always nearer
            here = sweep(here, given)
        flat[left] = np.where(better[:, None], trial, here)
    raise UnsupportedError(
        "the channel equation z = free + D phi(z) could not be solved to its rounding errors: its D has cycles of a "
        "gain too close to one; give the network with an explicit (acyclic) direct term"
    )


def _period(new: Array, seen: deque[Array]) -> int:
    """Return the number of sweeps since ``new`` occurred, to the last bit; 0 if it is not among ``seen``."""
    near = (back for back in range(2, len(seen) + 1) if new.flat[0] == seen[-back].flat[0])
    return next((back for back in near if np.array_equal(new, seen[-back])), 0)


def close_loop(D: Array, k: Array, right: Array) -> Array:
    r"""Return the closed loop of the channels with fixed slopes: :math:`(I - D K)^{-1} X` for ``K = diag(k)``.

    Where no channel both reads others and is read, as in an LSTM, ``(D K)^2 = 0`` and no equation is solved.

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
