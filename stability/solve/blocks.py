"""Sizes of the blocks of a loop between groups of states and groups of channels: the entries of a comparison system."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

from stability.systems.statespace import StateSpace

__all__ = ["Groups", "block_sizes", "layers_of", "norms_leave_room", "numbered"]

Array = np.ndarray
Groups = tuple[Array, Array]
"""A number for every state and one for every channel: of its group, or of the connected part that it belongs to."""
_DEEP = 8


def layers_of(D: Array) -> Array:
    """Layer of every channel within one step: one more than those that drive it.

    Args:
        D: ``(m, m)`` channel to channel.

    Returns:
        ``(m,)`` integers, all zero where D has a loop or many layers.

    Example:
        >>> layers_of(np.array([[0.0, 0.0], [0.5, 0.0]]))
        array([0, 1])
    """
    layers = np.zeros(len(D), dtype=int)
    drives = D != 0.0
    for _ in range(_DEEP if drives.any() else 0):
        new = np.where(drives, layers[None, :] + 1, 0).max(axis=1)
        if np.array_equal(new, layers):
            return layers
        layers = new
    return np.zeros(len(D), dtype=int)


def numbered(labels: Array) -> Array:
    """The same groups, counted from zero without gaps."""
    return np.unique(labels, return_inverse=True)[1]


def block_sizes(loop: StateSpace, labels: Groups, parts: Groups) -> tuple[Array, Array, Array, Array]:
    """Norms of the blocks between groups; in continuous time logarithmic norms of the diagonal blocks of A.

    Args:
        loop: the centred loop.
        labels: group of every state and of every channel, counted from zero.
        parts: connected part of every state and of every channel; a group lies inside one.

    Returns:
        ``A, B, C, D`` of the comparison system: absolute values where all groups are single.

    Example:
        >>> C = np.array([[0.0, 3.0], [4.0, 0.0]])
        >>> loop = StateSpace(np.diag([-1.0, -2.0]), np.eye(2), C, np.zeros((2, 2)), False)
        >>> one = np.zeros(2, dtype=int)
        >>> [float(x.item()) for x in block_sizes(loop, (one, one), (one, one))]
        [-1.0, 1.0, 4.0, 0.0]
    """
    (x, w), (px, pw) = labels, parts
    A = _norms(loop.A, x, x, px, px)
    if not loop.is_discrete:
        for g in range(len(A)):
            block = loop.A[np.ix_(x == g, x == g)] if len(A) < len(x) else loop.A[g : g + 1, g : g + 1]
            A[g, g] = block[0, 0] if len(block) == 1 else np.linalg.eigvalsh(0.5 * (block + block.T))[-1]
    return A, _norms(loop.B, x, w, px, pw), _norms(loop.C, w, x, pw, px), _norms(loop.D, w, w, pw, pw)


def norms_leave_room(loop: StateSpace, enough: float) -> bool:
    """Whether lower bounds of the norms, some products with vectors each, leave room for a test by norms.

    Args:
        loop: the centred loop.
        enough: the limit to stay below.

    Returns:
        False only where the norms of the whole matrices are too large.
    """
    if loop.D.any() or not np.isfinite(enough):
        return True

    def least(X: Array) -> float:
        return float(np.sqrt(max(_ritz(lambda x: X.T @ (X @ x), X.shape[1]), 0.0)))

    own = least(loop.A) if loop.is_discrete else _ritz(lambda x: 0.5 * (loop.A @ x + loop.A.T @ x), len(loop.A))
    return own + least(loop.B) * least(loop.C) < enough


def _ritz(apply: Callable[[Array], Array], n: int, steps: int = 16) -> float:
    """A lower bound of the largest eigenvalue of a symmetric matrix: some steps of the Lanczos iteration."""
    if n == 0:
        return 0.0
    x, before = np.random.default_rng(0).standard_normal(n), np.zeros(n)
    x /= np.linalg.norm(x)
    diagonal, beside = [], [0.0]
    for _ in range(min(steps, n)):
        y = apply(x) - beside[-1] * before
        diagonal.append(float(x @ y))
        y -= diagonal[-1] * x
        size = float(np.linalg.norm(y))
        if size <= 1e-12 * abs(diagonal[0]):
            break
        beside.append(size)
        before, x = x, y / size
    k = len(diagonal)
    return float(eigvalsh_tridiagonal(diagonal, beside[1:k])[-1])


def _norms(X: Array, rows: Array, columns: Array, row_parts: Array, column_parts: Array) -> Array:
    """Bounds of the 2-norms of blocks: the norm itself inside a connected part, the Frobenius norm between two."""
    k, m = int(rows.max(initial=-1)) + 1, int(columns.max(initial=-1)) + 1
    if k == len(rows) and m == len(columns):
        return np.abs(X)
    left, right = np.eye(k)[rows], np.eye(m)[columns]
    out = np.sqrt(left.T @ (X * X) @ right)
    for g in range(k):
        i = np.flatnonzero(rows == g)
        for h in np.unique(columns[column_parts == row_parts[i[0]]]):
            j = np.flatnonzero(columns == h)
            if len(i) > 1 or len(j) > 1:
                out[g, h] = _norm(X[np.ix_(i, j)])
    return out


def _norm(X: Array) -> float:
    diagonal = np.diagonal(X)
    if np.count_nonzero(X) == np.count_nonzero(diagonal):
        return float(np.abs(diagonal).max(initial=0.0))
    return float(np.linalg.norm(X, 2))
