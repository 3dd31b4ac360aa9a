"""State-space matrices without the checks of a system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Matrices:
    """State space ``x' = A x + B u``, ``y = C x + D u`` (``x+`` in discrete time): ``(n, n) (n, m) (p, n) (p, m)``."""

    A: Array
    B: Array
    C: Array
    D: Array
    is_discrete: bool

    @property
    def matrices(self) -> tuple[Array, Array, Array, Array]:
        """Matrices ``(A, B, C, D)``."""
        return self.A, self.B, self.C, self.D

    @property
    def states(self) -> int:
        """Number of states ``n``."""
        return self.B.shape[0]

    @property
    def channels(self) -> int:
        """Number of inputs ``m``."""
        return self.B.shape[1]


@dataclass(frozen=True, eq=False)
class LureMatrices(Matrices):
    """Matrices and slopes of a Lur'e system, unchecked."""

    alpha: Array
    beta: Array
    origin: None = None


def with_input(system: Any, E: Array, F: Array) -> LureMatrices:
    """Append a Lur'e system's input as ``p`` further unrestricted channels (their L must be zero).

    Args:
        system: the Lur'e system, ``n`` states and ``m`` channels.
        E: ``(m, p)`` input to channel.
        F: ``(n, p)`` input to state.

    Returns:
        The system with ``m + p`` channels.
    """
    p, zeros = F.shape[1], np.zeros(F.shape[1])
    return LureMatrices(
        system.A,
        np.hstack([system.B, F]),
        np.vstack([system.C, np.zeros((p, len(system.A)))]),
        np.block([[system.D, E], [np.zeros((p, system.D.shape[1] + p))]]),
        system.is_discrete,
        np.concatenate([system.alpha, zeros]),
        np.concatenate([system.beta, zeros]),
    )
