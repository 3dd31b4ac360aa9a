r"""Spectral radius and Perron vectors of non-negative matrices, computed without subtraction.

A *comparison matrix* M has non-negative entries off its diagonal (on it too, in discrete time). Its eigenvalue of
largest real part :math:`\eta` is real, and for every level :math:`c > \eta` and right-hand side :math:`r > 0` the
equation :math:`(c I - M) u = r` has a positive solution. A dense factorization can lose this sign if the entries of u
span many orders of magnitude, as they do for triangular matrices of a few dozen rows. Here the strongly connected
components of M are solved in order: a component of one row by a division of positive numbers, a larger one after
scaling by its Perron vector, which gives all entries of the solution a similar size.

The entries of a comparison system between groups of states and groups of channels are norms of the blocks of a loop
(``block_sizes``).

Source: A. Berman, R. J. Plemmons, Nonnegative Matrices in the Mathematical Sciences (1979), chapters 2 and 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal, solve_triangular

from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
Groups = tuple[Array, Array]
"""Number of the group, or of the connected component, of every state and of every channel."""
_MOST_LAYERS = 8
"""Most layers of channels that feed each other within one step."""
_DENSE = 640
"""Largest component whose Perron vectors are computed by a dense eigenproblem if the power method is slow."""
_POWERS = 400
"""Most iterations of the power method."""


def ordered_components(graph: Array) -> list[Array]:
    """Return the strongly connected components of a directed graph, each after the components that drive it.

    Args:
        graph: ``(n, n)`` booleans; ``graph[i, j]`` means that i is driven by j.

    Returns:
        Arrays of indices.

    Example:
        >>> [part.tolist() for part in ordered_components(np.array([[True, True], [False, True]]))]
        [[1], [0]]
    """
    from scipy.sparse import csr_array  # loaded for this criterion alone
    from scipy.sparse.csgraph import connected_components

    count, labels = connected_components(csr_array(graph), connection="strong")
    if count == 1:
        return [np.arange(len(graph))]
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(count))
    members = np.split(order, starts[1:])
    drives = np.logical_or.reduceat(np.logical_or.reduceat(graph[np.ix_(order, order)], starts, 0), starts, 1)
    np.fill_diagonal(drives, False)
    waiting = drives.sum(axis=1)
    ready, out = list(np.flatnonzero(waiting == 0)), []
    while ready:
        part = ready.pop()
        out.append(members[part])
        driven = np.flatnonzero(drives[:, part])
        waiting[driven] -= 1
        ready += list(driven[waiting[driven] == 0])
    return out


@dataclass(frozen=True, eq=False)
class _Part:
    """Strongly connected component: its indices, eigenvalue ``top`` and Perron vectors (largest entry one)."""

    index: Array
    top: float
    right: Array
    left: Array


class ComparisonMatrix:
    """Comparison matrix with its largest eigenvalue ``top`` and its strongly connected components.

    Args:
        matrix: ``(n, n)``, non-negative off the diagonal, finite.
        enough: the computation ends once ``top`` is at least this; ``top`` is then a lower bound.

    Example:
        >>> found = ComparisonMatrix(np.array([[0.5, 1e9], [0.0, 0.25]]))
        >>> found.top, found.solve(1.0, np.ones(2))
        (0.5, array([2.66666667e+09, 1.33333333e+00]))
    """

    def __init__(self, matrix: Array, enough: float = np.inf) -> None:
        self.matrix = matrix
        self.top = -np.inf
        self.parts: list[_Part] = []
        for index in ordered_components((matrix != 0.0) | np.eye(len(matrix), dtype=bool)):
            part = _part(matrix, index, enough)
            self.parts.append(part)
            self.top = max(self.top, part.top)
            if self.top >= enough:
                return

    def solve(self, level: float, r: Array) -> Array:
        """Return ``u > 0`` with ``(level I - M) u = r``.

        Args:
            level: above ``top``.
            r: ``(n,)`` positive, or ``(n, k)`` for several right-hand sides.

        Returns:
            ``u`` in the shape of ``r``.
        """
        return self._sweep(self.matrix, self.parts, level, r, right=True)

    def solve_transposed(self, level: float, r: Array) -> Array:
        """Return ``v > 0`` with ``(level I - M)^T v = r``."""
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
    """Solve ``inner y = force`` for an ``inner`` with row sums ``room``; near singularity return an upper bound."""
    try:
        y = np.linalg.solve(inner, force)
    except np.linalg.LinAlgError:
        y = np.zeros(force.shape)
    return np.where((y > 0.0).all(axis=0), y, force.max(axis=0) / room)


def _part(matrix: Array, index: Array, enough: float) -> _Part:
    """Return a component with its eigenvalue and Perron vectors, without the left one once it exceeds ``enough``."""
    if len(index) == 1:
        return _Part(index, float(matrix[index[0], index[0]]), np.ones(1), np.ones(1))
    block = matrix[np.ix_(index, index)]
    # the shift makes the block non-negative and primitive, so that the power method converges
    shift = max(0.0, -float(np.diagonal(block).min())) + 1e-2 * float(np.abs(block).max())
    block = block + shift * np.eye(len(index))
    low, top, right = _perron(block, enough + shift)
    if low - shift >= enough:
        return _Part(index, low - shift, right, right)
    return _Part(index, top - shift, right, _perron(block.T, np.inf)[2])


def _perron(m: Array, enough: float) -> tuple[float, float, Array]:
    """Return Collatz-Wielandt bounds of the largest eigenvalue of a primitive non-negative matrix, and its vector."""
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


def channel_layers(D: Array) -> Array:
    """Return the layer of every channel within one step: one more than the largest layer of the channels it reads.

    Args:
        D: ``(m, m)`` channel to channel.

    Returns:
        ``(m,)`` integers, all zero if D has a cycle or more than ``_MOST_LAYERS`` layers.

    Example:
        >>> channel_layers(np.array([[0.0, 0.0], [0.5, 0.0]]))
        array([0, 1])
    """
    layers = np.zeros(len(D), dtype=int)
    drives = D != 0.0
    for _ in range(_MOST_LAYERS if drives.any() else 0):
        updated = np.where(drives, layers[None, :] + 1, 0).max(axis=1)
        if np.array_equal(updated, layers):
            return layers
        layers = updated
    return np.zeros(len(D), dtype=int)


def renumbered_groups(labels: Array) -> Array:
    """Renumber groups from zero without gaps."""
    return np.unique(labels, return_inverse=True)[1]


def block_sizes(loop: StateSpace, labels: Groups, parts: Groups) -> tuple[Array, Array, Array, Array]:
    """Return norms of the blocks between groups; in continuous time logarithmic norms of the diagonal blocks of A.

    Args:
        loop: the centered loop.
        labels: group of every state and of every channel, counted from zero.
        parts: connected component of every state and of every channel; each group lies inside one component.

    Returns:
        ``A, B, C, D`` of the comparison system, which are absolute values if each group has one member.

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


def norms_may_suffice(loop: StateSpace, enough: float) -> bool:
    """Return False if lower bounds of the norms rule out a proof by norms.

    Args:
        loop: the centered loop.
        enough: bound below which the sum of norms must lie for a proof.
    """
    if loop.D.any() or not np.isfinite(enough):
        return True

    def least(X: Array) -> float:
        return float(np.sqrt(max(_ritz(lambda x: X.T @ (X @ x), X.shape[1]), 0.0)))

    linear_rate = least(loop.A) if loop.is_discrete else _ritz(lambda x: 0.5 * (loop.A @ x + loop.A.T @ x), len(loop.A))
    return linear_rate + least(loop.B) * least(loop.C) < enough


def _ritz(apply: Callable[[Array], Array], n: int, steps: int = 16) -> float:
    """Return a lower bound of the largest eigenvalue of a symmetric matrix by some steps of the Lanczos iteration."""
    if n == 0:
        return 0.0
    x, previous = np.random.default_rng(0).standard_normal(n), np.zeros(n)
    x /= np.linalg.norm(x)
    diagonal, off_diagonal = [], [0.0]
    for _ in range(min(steps, n)):
        y = apply(x) - off_diagonal[-1] * previous
        diagonal.append(float(x @ y))
        y -= diagonal[-1] * x
        size = float(np.linalg.norm(y))
        if size <= 1e-12 * abs(diagonal[0]):
            break
        off_diagonal.append(size)
        previous, x = x, y / size
    return float(eigvalsh_tridiagonal(diagonal, off_diagonal[1 : len(diagonal)])[-1])


def _norms(X: Array, rows: Array, columns: Array, row_parts: Array, column_parts: Array) -> Array:
    """Bound the 2-norms of blocks: by the norm itself inside a component, by the Frobenius norm between components."""
    k, m = int(rows.max(initial=-1)) + 1, int(columns.max(initial=-1)) + 1
    if k == len(rows) and m == len(columns):
        return np.abs(X)
    row_groups, column_groups = np.eye(k)[rows], np.eye(m)[columns]
    out = np.sqrt(row_groups.T @ (X * X) @ column_groups)
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
