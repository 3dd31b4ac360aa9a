r"""Channels that bring no uncertainty, kept out of the search and given their multipliers afterwards.

A channel with a single slope (``alpha = beta = c``) is linear: after the loop is centred its row is zero. So is that
of a channel that no state reaches. No finite multiplier is the best for it, and a search over all multipliers would run
away along it. With :math:`w_s = c z_s + e` the multiplier inequality is

.. math:: \begin{bmatrix} N_{11} & N_{12} \\ N_{12}^T & N_{22} - 2 L_s \end{bmatrix} < 0,

where :math:`N_{11}` is the inequality of the loop without these channels: it decides, and every diagonal ``L_s`` with
:math:`2 L_s > N_{22} - N_{12}^T N_{11}^{-1} N_{12}` completes the witness.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from stability.rules.multiplier_lmi import lmi_matrix
from stability.systems import LureSystem

__all__ = ["completed", "completions", "fixed_channels"]

Array = np.ndarray
_SINGLE = 1e-8
"""A sector this narrow, relative to its slopes, counts as a single slope in the search; the check sees all of it."""


def fixed_channels(system: LureSystem) -> Array:
    """Which channels bring no uncertainty: a single slope, or a zero row of ``[C, D]``.

    Args:
        system: the system.

    Returns:
        ``(m,)`` of booleans.

    Example:
        >>> fixed_channels(LureSystem([[-1.0]], [[1.0, 1.0]], [[0.5], [0.5]], slope=([0.0, 0.3], [1.0, 0.3])))
        array([False,  True])
    """
    reach = np.maximum(np.abs(system.alpha), np.abs(system.beta))
    reached = system.C.any(axis=1) | system.D.any(axis=1)
    return (system.beta - system.alpha <= _SINGLE * reach) | ~reached


def completed(system: LureSystem, P: Array, L: Array, rate: float, fixed: Array, factor: float = 2.0) -> Array | None:
    """Multipliers of the fixed channels that complete a witness of the smaller loop.

    Args:
        system: the system.
        P: ``(n, n)`` that satisfies the smaller loop's inequality strictly.
        L: ``(m,)`` multipliers; the entries of fixed channels are ignored.
        rate: ``lambda`` or ``rho``.
        fixed: ``(m,)`` booleans, the fixed channels.
        factor: by how much the least diagonal that dominates is exceeded, above one.

    Returns:
        ``(m,)``, or ``None`` where the smaller inequality does not hold.
    """
    multipliers = np.where(fixed, 0.0, L)
    if not fixed.any():
        return multipliers
    n, c = system.states, 0.5 * (system.alpha + system.beta)[fixed]
    keep = np.concatenate([np.ones(n, dtype=bool), ~fixed])
    # (x, w) as a linear map of (x, w of the others, e)
    change = np.eye(n + system.channels)
    inverse = np.linalg.inv(np.eye(int(fixed.sum())) - c[:, None] * system.D[np.ix_(fixed, fixed)])
    change[np.ix_(~keep, keep)] = inverse @ (c[:, None] * np.hstack([system.C, system.D[:, ~fixed]])[fixed])
    change[np.ix_(~keep, ~keep)] = inverse
    form = change.T @ lmi_matrix(system, P, multipliers, rate) @ change
    cross, inner = form[np.ix_(keep, ~keep)], -form[np.ix_(keep, keep)]
    diagonal = np.diagonal(inner)
    if not (np.isfinite(form).all() and (diagonal > 0).all()):
        return None
    d = 1.0 / np.sqrt(diagonal)
    try:
        solved = cho_solve(cho_factor(inner * d[:, None] * d[None, :]), d[:, None] * cross)
    except np.linalg.LinAlgError:
        return None
    needed = form[np.ix_(~keep, ~keep)] + (d[:, None] * cross).T @ solved
    least = np.abs(needed).sum(axis=1)  # a diagonal that dominates, tight where the matrix has rank one
    floor = 1e-12 * float(np.abs(P).max()) + 1e-6 * float(least.max())
    multipliers[fixed] = 0.5 * factor * np.maximum(least, floor)
    return multipliers


def completions(system: LureSystem, P: Array, L: Array, rate: float, fixed: Array) -> Iterator[Array]:
    """What ``completed`` gives, with little and with much to spare; nothing where the smaller inequality fails."""
    for factor in (2.0, 32.0) if fixed.any() else (1.0,):
        full = completed(system, P, L, rate, fixed, factor)
        if full is None:
            return
        yield full
