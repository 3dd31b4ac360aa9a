"""Objectives of gain searches: the norm of all outputs or of pairwise differences."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class GainObjective:
    """Smooth function of the reachable ellipsoid.

    Attributes:
        H: ``(k, n)`` state to output.
        pairs: the geometric mean over all pairs of outputs (logits) instead of the norm of all.
        sharp: the largest eigenvalue stands as the norm of this order of all of them, which has a gradient.
    """

    H: Array
    pairs: bool = False
    sharp: float = 16.0

    def of(self, Q: Array) -> tuple[float, Array]:
        """Return value and derivative at a set.

        Args:
            Q: ``(n, n)``: inputs of size one reach ``x x^T <= Q``.

        Returns:
            The logarithm of the squared gain, and ``z (n, j)`` with the derivative ``tr z^T dQ z``.

        Example:
            >>> value, z = GainObjective(np.eye(2)).of(np.diag([4.0, 1.0]))
            >>> round(math.exp(value), 6), np.abs(np.round(z @ z.T, 6)).tolist()
            (4.0, [[0.25, 0.0], [0.0, 0.0]])
        """
        return self._of_pairs(Q) if self.pairs and len(self.H) > 1 else self.largest(Q)

    def sharper(self) -> tuple[GainObjective, ...]:
        """Return the objectives to use in turn: itself, then one near the largest eigenvalue, if needed."""
        return (self,) if self.pairs or len(self.H) == 1 else (self, replace(self, sharp=8.0 * self.sharp))

    def largest(self, Q: Array) -> tuple[float, Array]:
        """Return value and derivative for the norm of all outputs."""
        values, vectors = np.linalg.eigh(self.H @ Q @ self.H.T)
        top = max(float(values[-1]), 1e-300)
        shares = np.maximum(values / top, 0.0)
        total = float((shares**self.sharp).sum()) ** (1.0 / self.sharp)
        weights = (shares / total) ** (self.sharp - 1.0) / (top * total)
        return math.log(top * total), self.H.T @ (vectors * np.sqrt(weights))

    def _of_pairs(self, Q: Array) -> tuple[float, Array]:
        i, j = np.triu_indices(len(self.H), 1)
        rows = self.H[i] - self.H[j]
        squares = np.maximum(((rows @ Q) * rows).sum(axis=1), 1e-300)
        return float(np.log(squares).mean()), (rows / np.sqrt(len(rows) * squares)[:, None]).T
