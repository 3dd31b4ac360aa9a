"""Triangular systems ``(s I - T) X = R`` at many points ``s`` at once.

After one Schur form a frequency costs ``n^2`` operations a column; taken one by one most of the time would go into
copies of ``T``. Here all points are the columns of one right-hand side: back-substitution in blocks of rows, of which
all but the diagonal ones are products of matrices.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray
_ROWS = 16


class ShiftedTriangle:
    """``T`` upper triangular, and its adjoint.

    Args:
        T: ``(n, n)`` complex, upper triangular; entries below the diagonal are not read.

    Example:
        >>> solver = ShiftedTriangle(np.array([[1.0, 2.0], [0.0, 3.0]], dtype=complex))
        >>> solver.solve(np.array([2.0, 4.0]), np.ones((2, 1, 1))).real[:, :, 0]
        array([[-1.,  1.],
               [-1.,  1.]])
    """

    def __init__(self, T: Array) -> None:
        self._T = np.ascontiguousarray(np.triu(T))
        self._adjoint = np.ascontiguousarray(self._T.conj().T[::-1, ::-1])

    def solve(self, points: Array, right: Array, *, adjoint: bool = False) -> Array:
        """``(s_k I - T)^{-1} R_k``, or ``(s_k I - T)^{-H} R_k``.

        Args:
            points: ``(K,)`` complex.
            right: ``(n, K, r)``, or ``(n, 1, r)`` where all points have the same right-hand side.
            adjoint: for the adjoint.

        Returns:
            ``(n, K, r)``; infinite at a point that is an eigenvalue.

        Cost:
            ``4 n^2 K r`` flops and ``n`` small steps.
        """
        T, s = (self._adjoint, points.conj()) if adjoint else (self._T, points)
        n, r = len(T), right.shape[2]
        x = np.empty((n, len(points), r), dtype=complex)
        x[:] = right[::-1] if adjoint else right
        rows = x.reshape(n, -1)
        pivots = s[None, :] - np.diagonal(T)[:, None]
        poles = (pivots == 0.0).any(axis=0)
        pivots[:, poles] = 1.0
        with np.errstate(all="ignore"):  # what overflows is infinite, as at a pole
            self._substitute(T, x, rows, pivots)
        x[:, poles] = np.inf
        return x[::-1] if adjoint else x

    @staticmethod
    def _substitute(T: Array, x: Array, rows: Array, pivots: Array) -> None:
        """Back-substitution in place, ``rows (n, K r)`` a view of ``x (n, K, r)``."""
        n = len(T)
        for end in range(n, 0, -_ROWS):
            start = max(0, end - _ROWS)
            if end < n:
                rows[start:end] += T[start:end, end:] @ rows[end:]
            for i in range(end - 1, start - 1, -1):
                if i + 1 < end:
                    rows[i] += T[i, i + 1 : end] @ rows[i + 1 : end]
                x[i] /= pivots[i][:, None]
