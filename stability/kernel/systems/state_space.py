"""State-space matrices for searches, without the checks of a system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class StateSpace:
    """``x' = A x + B u``, ``y = C x + D u`` (``x+`` in discrete time): ``(n, n) (n, m) (p, n) (p, m)``."""

    A: Array
    B: Array
    C: Array
    D: Array
    is_discrete: bool

    @property
    def matrices(self) -> tuple[Array, Array, Array, Array]:
        """``(A, B, C, D)``."""
        return self.A, self.B, self.C, self.D

    @property
    def states(self) -> int:
        """Number of states ``n``."""
        return self.B.shape[0]

    @property
    def channels(self) -> int:
        """Number of inputs ``m``."""
        return self.B.shape[1]

    def shifted(self, rate: float) -> StateSpace:
        """The system whose stability at rate 0 (or 1) is this one's at ``rate``.

        Args:
            rate: ``lambda`` (continuous) or ``rho`` (discrete).

        Returns:
            The shifted system.
        """
        if self.is_discrete:
            return StateSpace(self.A / rate, self.B / rate, self.C, self.D, True)
        return StateSpace(self.A + rate * np.eye(self.states), self.B, self.C, self.D, False)

    def scaled(self, delta: Array) -> StateSpace:
        """``diag(delta) G diag(delta)^{-1}`` for a square transfer matrix ``G``."""
        c, d = delta[:, None] * self.C, delta[:, None] * self.D / delta
        return StateSpace(self.A, self.B / delta, c, d, self.is_discrete)

    def rescaled(self, t: Array, time: float = 1.0) -> StateSpace:
        """The system in coordinates ``x = t y``; where ``P`` solves its inequality, ``P / (t t^T)`` solves this one.

        Args:
            t: ``(n,)`` positive.
            time: the new unit of time: A and B are divided by it.
        """
        A, B = self.A * t / t[:, None], self.B / t[:, None]
        return StateSpace(A / time, B / time, self.C * t, self.D, self.is_discrete)

    def transposed(self) -> StateSpace:
        """The transposed transfer matrix; solutions of its inequality are the inverses of those of this one's."""
        return StateSpace(self.A.T, self.C.T, self.B.T, self.D.T, self.is_discrete)

    def restricted(self, keep: Array) -> StateSpace:
        """The system with some of its inputs and the outputs of the same numbers.

        Args:
            keep: ``(m,)`` booleans.
        """
        return StateSpace(self.A, self.B[:, keep], self.C[keep], self.D[np.ix_(keep, keep)], self.is_discrete)


@dataclass(frozen=True, eq=False)
class LureMatrices(StateSpace):
    """The matrices and slopes of a Lur'e system, unchecked."""

    alpha: Array
    beta: Array
    origin: None = None


def with_input(system: Any, E: Array, F: Array) -> LureMatrices:
    """A Lur'e system's input appended as ``p`` further channels that nothing restricts (their L is to be zero).

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
