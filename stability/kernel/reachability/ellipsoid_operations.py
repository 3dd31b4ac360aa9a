r"""Outward-rounded operations on ellipsoids ``x x^T <= Q``.

For products of ``n`` terms, errors :math:`|E_{ij}| \le \gamma a_i a_j` give
:math:`E \le \gamma n \operatorname{diag}(a^2)`, which is added to the diagonal.
Sums use :math:`\sum_i Q_i / \tau_i` with :math:`\sum_i \tau_i \le 1`. ``ellipsoid_tube`` and ``flow_sets`` have
recursions of their own: their checks prove an inequality for the next ellipsoid as computed, by Cholesky factorization
or in balls.

Source: A. Kurzhanski, I. Valyi, Ellipsoidal calculus for estimation and control (1997), for the sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.floating_point import EPS, LOST

Array = np.ndarray
_ROUND_UP = 1.0 + 1e-12


def half_widths(Q: Array) -> Array:
    """Return half widths ``(..., n)`` of the box around an ellipsoid, up to one rounding."""
    return np.sqrt(np.maximum(np.einsum("...ii->...i", Q), 0.0))


def raise_diagonal(Q: Array, factor: float, size: Array) -> Array:
    """Add errors ``|E_ij| <= factor size_i size_j`` to ``Q`` in place."""
    index = range(len(Q))
    Q[index, index] += factor * len(Q) * size * size * _ROUND_UP + 1e-200
    return Q


def transformed_ellipsoid(M: Array, Q: Array) -> Array:
    """Return a symmetric matrix ``>= M Q M^T``, for ``Q >= 0``."""
    out = M @ Q @ M.T
    return raise_diagonal(0.5 * (out + out.T), gamma(2 * len(Q) + 8), np.abs(M) @ half_widths(Q))


def scaled_ellipsoid(Q: Array, factor: float) -> Array:
    """Return a matrix ``>= factor Q``, for ``Q >= 0``."""
    out = Q * factor
    return raise_diagonal(out, gamma(8), half_widths(out))


def around_box(reach: Array) -> Array:
    """Return an ellipsoid around all vectors with entries ``|x_i| <= reach_i``."""
    return np.diag(reach * reach.sum() * (1.0 + gamma(len(reach) + 8)))


def around_symbols(M: Array, reach: Array) -> Array:
    """Return ``M diag(reach_j^2 / tau_j) M^T`` around all ``M s`` with ``|s_j| <= reach_j``; ``sum tau <= 1``."""
    lengths = np.sqrt((M * M).sum(axis=0))
    small = lengths < LOST  # their squares underflow
    M, lengths, apart = M[:, ~small], lengths[~small], np.abs(M[:, small]) @ reach[small]
    total = (reach[~small] * lengths).sum() * (1.0 + gamma(len(reach) + 16))
    root = M * np.sqrt(reach[~small] * total / lengths * _ROUND_UP)
    out = root @ root.T
    out = raise_diagonal(0.5 * (out + out.T), gamma(root.shape[1] + 8), np.sqrt((root * root).sum(axis=1)) * _ROUND_UP)
    return out if not small.any() else outer_sum([out, around_box(apart * _ROUND_UP + LOST)])


def outer_sum(parts: Sequence[Array], weights: Array | None = None) -> Array:
    """Return an ellipsoid around all sums of one vector per ellipsoid, thin where ``weights (n,) >= 0`` are large."""
    weights = np.ones(len(parts[0])) if weights is None else weights
    sizes = [float(np.sqrt(max(weights @ np.einsum("ii->i", part), 0.0))) for part in parts]
    least = 1e-30 * sum(sizes) + 1e-200
    shares = [max(size, least) for size in sizes]
    total = sum(shares) * _ROUND_UP
    out, size = np.zeros_like(parts[0]), np.zeros(len(weights))
    for part, share in zip(parts, shares):
        out += part * (total / share)
        size += half_widths(part) * np.sqrt(total / share)
    return raise_diagonal(out, gamma(2 * len(parts) + 8), size)


def ellipsoid_extent(w: Array, Y: Array) -> Array:
    """Return upper bounds of ``sqrt(w^T Y w)`` for ``Y >= 0``, rows ``w (..., k, n)``, with rounding and underflow."""
    size = np.abs(w)
    sizes = size @ half_widths(Y)[..., None]
    inner = ((w @ Y) * w).sum(axis=-1)
    bound = np.sqrt(np.maximum(inner + gamma(3 * w.shape[-1] + 8) * sizes[..., 0] ** 2, 0.0)) * (1 + 8 * EPS)
    return bound + LOST * (1.0 + size.sum(axis=-1))
