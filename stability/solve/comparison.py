r"""Linear algebra of non-negative matrices, where no sign is ever lost to rounding.

A *comparison matrix* M has non-negative entries off its diagonal (on it too, in discrete time). Its eigenvalue of
largest real part :math:`\eta` is real, and for every level :math:`c > \eta` and right-hand side :math:`r > 0` the
equation :math:`(c I - M) u = r` has a positive solution. A dense factorisation loses that sign where u spans many
orders of magnitude, as it does for triangular matrices of a few dozen rows. Here the strongly connected parts of M are
taken in order: a part of one row is a division of positive numbers, a larger part is first scaled by its Perron vector,
after which all entries of the solution are of one size.

Source: A. Berman, R. J. Plemmons, Nonnegative Matrices in the Mathematical Sciences (1979), chapters 2 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

__all__ = ["Comparison", "parts_in_order"]

Array = np.ndarray
_DENSE = 640
"""Parts up to this size have their Perron vectors by a dense eigenproblem where the power method is slow."""
_POWERS = 400


def parts_in_order(graph: Array) -> list[Array]:
    """The strongly connected parts of a directed graph, each after those that it is driven by.

    Args:
        graph: ``(n, n)`` booleans; ``graph[i, j]`` means that i is driven by j.

    Returns:
        Arrays of indices.

    Example:
        >>> [part.tolist() for part in parts_in_order(np.array([[True, True], [False, True]]))]
        [[1], [0]]
    """
    count, labels = connected_components(csr_array(graph), connection="strong")
    if count == 1:
        return [np.arange(len(graph))]
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(count))
    members = np.split(order, starts[1:])
    between = np.logical_or.reduceat(np.logical_or.reduceat(graph[np.ix_(order, order)], starts, 0), starts, 1)
    np.fill_diagonal(between, False)
    waiting = between.sum(axis=1)
    ready, out = list(np.flatnonzero(waiting == 0)), []
    while ready:
        part = ready.pop()
        out.append(members[part])
        driven = np.flatnonzero(between[:, part])
        waiting[driven] -= 1
        ready += list(driven[waiting[driven] == 0])
    return out


@dataclass(frozen=True, eq=False)
class _Part:
    """One strongly connected part: its indices, its eigenvalue ``top``, its Perron vectors (largest entry one)."""

    index: Array
    top: float
    right: Array
    left: Array


class Comparison:
    """A comparison matrix with its strongly connected parts.

    Args:
        matrix: ``(n, n)``, non-negative off the diagonal, finite.
        enough: where the eigenvalue is seen to be at least this, the search for it stops (``top`` is a lower bound).

    Example:
        >>> found = Comparison(np.array([[0.5, 1e9], [0.0, 0.25]]))
        >>> found.top, found.solve(1.0, np.ones(2))
        (0.5, array([2.66666667e+09, 1.33333333e+00]))
    """

    def __init__(self, matrix: Array, enough: float = np.inf) -> None:
        self.matrix = matrix
        self.top = -np.inf
        self.parts: list[_Part] = []
        for index in parts_in_order((matrix != 0.0) | np.eye(len(matrix), dtype=bool)):
            part = _part(matrix, index, enough)
            self.parts.append(part)
            self.top = max(self.top, part.top)
            if self.top >= enough:
                return

    def solve(self, level: float, r: Array) -> Array:
        """``u > 0`` with ``(level I - M) u = r``.

        Args:
            level: above ``top``.
            r: ``(n,)`` positive, or ``(n, k)``: k right-hand sides for one factorisation of every part.

        Returns:
            As ``r``.
        """
        return self._sweep(self.matrix, self.parts, level, r, right=True)

    def solve_transposed(self, level: float, r: Array) -> Array:
        """``v > 0`` with ``(level I - M)^T v = r``."""
        return self._sweep(self.matrix.T, self.parts[::-1], level, r, right=False)

    def _sweep(self, m: Array, parts: list[_Part], level: float, r: Array, right: bool) -> Array:
        if all(len(part.index) == 1 for part in parts):
            order = np.concatenate([part.index for part in parts])
            u = np.empty(r.shape)
            lower = level * np.eye(len(r)) - m[np.ix_(order, order)]
            u[order] = solve_triangular(lower, r[order], lower=True, check_finite=False)
            return u
        u = np.zeros(r.shape)
        for part in parts:
            i = part.index
            force = r[i] + np.maximum(m[i], 0.0) @ u  # entries of later parts, and this part's own, are still zero in u
            if len(i) == 1:
                u[i] = force / (level - m[i, i])
                continue
            x = part.right if right else part.left
            inner = level * np.eye(len(i)) - (m[np.ix_(i, i)] * x) / x[:, None]
            unit = x if r.ndim == 1 else x[:, None]
            u[i] = unit * _balanced(inner, force / unit, level - part.top)
        return u


def _balanced(inner: Array, force: Array, room: float) -> Array:
    """``inner^{-1} force`` where the rows of ``inner`` sum to ``room``; close to singular, an upper bound of it."""
    try:
        y = np.linalg.solve(inner, force)
    except np.linalg.LinAlgError:
        y = np.zeros(force.shape)
    return np.where((y > 0.0).all(axis=0), y, force.max(axis=0) / room)


def _part(matrix: Array, index: Array, enough: float) -> _Part:
    if len(index) == 1:
        return _Part(index, float(matrix[index[0], index[0]]), np.ones(1), np.ones(1))
    block = matrix[np.ix_(index, index)]
    # non-negative, and primitive: the powers converge
    shift = max(0.0, -float(np.diagonal(block).min())) + 1e-2 * float(np.abs(block).max())
    block = block + shift * np.eye(len(index))
    low, top, right = _perron(block, enough + shift)
    if low - shift >= enough:
        return _Part(index, low - shift, right, right)
    return _Part(index, top - shift, right, _perron(block.T, np.inf)[2])


def _perron(m: Array, enough: float) -> tuple[float, float, Array]:
    """Collatz-Wielandt bounds of the largest eigenvalue of a primitive non-negative matrix, and its vector."""
    x = np.ones(len(m))
    low, high = 0.0, np.inf
    for k in range(_POWERS):
        y = m @ x
        ratio = y / x
        low, high = float(ratio.min()), float(ratio.max())
        if low >= enough or high - low <= 1e-12 * high:
            break
        x = np.maximum(y / y.max(), 1e-250)
        if k == 40 and len(m) <= _DENSE:
            values, vectors = np.linalg.eig(m)
            best = np.abs(np.real(vectors[:, int(np.argmax(np.real(values)))]))
            x = best / best.max() if (best > 0).all() else x
    return low, high, x
