"""Region of the complex plane in which eigenvalues of the linear part decay, and names of matrices in titles."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

NARROW = 1e-3
"""Smallest height of an axis: smaller differences are rounding."""


@dataclass(frozen=True)
class Region:
    """Where the eigenvalues of a linear part must lie for the map that runs.

    Attributes:
        kind: ``map`` (inside the unit circle), ``euler`` or ``midpoint``.
        dt: the step of an integrator.
    """

    kind: str
    dt: float = 1.0

    def border(self, points: int = 720) -> np.ndarray:
        """The region's border, complex and closed.

        With ``z = dt * eigenvalue``: ``|z| = 1`` for a map, ``|1 + z| = 1`` for Euler, ``|1 + z + z^2/2| = 1`` for the
        midpoint rule.

        Args:
            points: how many.

        Example:
            >>> z = 0.2 * Region("midpoint", 0.2).border()
            >>> bool(np.allclose(np.abs(1 + z + z**2 / 2), 1))
            True
        """
        if self.kind != "midpoint":
            circle = np.exp(1j * np.linspace(0, 2 * np.pi, points))
            return circle if self.kind == "map" else (circle - 1) / self.dt
        square = 2 * np.exp(1j * np.linspace(0, 4 * np.pi, points)) - 1  # (1 + z)^2; twice round, for both roots
        root = np.sqrt(np.abs(square)) * np.exp(0.5j * np.unwrap(np.angle(square)))
        return (root - 1) / self.dt

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Which eigenvalues lie inside."""
        z = np.asarray(values) * (1.0 if self.kind == "map" else self.dt)
        factor = {"map": z, "euler": 1 + z}.get(self.kind, 1 + z + z**2 / 2)
        return np.abs(factor) < 1


def called(matrix: str) -> str:
    """A matrix as a title has it: of a deep network the matrix first, for the blocks differ in a number only.

    Example:
        >>> called("blocks.1.layer.A"), called("W")
        ('A, block 1', 'W')
    """
    found = re.fullmatch(r"blocks\.(\d+)\.layer\.(.+)", matrix)
    return f"{found[2]}, block {found[1]}" if found else matrix
