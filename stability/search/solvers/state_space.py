"""State-space systems with shift, scaling, transposition and restriction, as the searches need them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.systems.state_space import Matrices

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class StateSpace(Matrices):
    """State space ``x' = A x + B u``, ``y = C x + D u`` (``x+`` in discrete time), with its transformations."""

    def shifted(self, rate: float) -> StateSpace:
        """Return the system that is stable exactly if this system decays at ``rate``.

        Args:
            rate: ``lambda`` (continuous) or ``rho`` (discrete).

        Returns:
            The shifted system.
        """
        if self.is_discrete:
            return StateSpace(self.A / rate, self.B / rate, self.C, self.D, True)
        return StateSpace(self.A + rate * np.eye(self.states), self.B, self.C, self.D, False)

    def scaled(self, delta: Array) -> StateSpace:
        """Return ``diag(delta) G diag(delta)^{-1}`` for a square transfer matrix ``G``."""
        c, d = delta[:, None] * self.C, delta[:, None] * self.D / delta
        return StateSpace(self.A, self.B / delta, c, d, self.is_discrete)

    def rescaled(self, t: Array, time: float = 1.0) -> StateSpace:
        """Return the system in coordinates ``y``, ``x = t y``.

        If ``P`` solves the inequality of the result, ``P / (t t^T)`` solves the inequality of this system.

        Args:
            t: ``(n,)`` positive.
            time: divisor of A and B, which changes the unit of time.
        """
        A, B = self.A * t / t[:, None], self.B / t[:, None]
        return StateSpace(A / time, B / time, self.C * t, self.D, self.is_discrete)

    def transposed(self) -> StateSpace:
        """Return the transposed transfer matrix; inverses of solutions of its inequality solve that of this system."""
        return StateSpace(self.A.T, self.C.T, self.B.T, self.D.T, self.is_discrete)

    def restricted(self, keep: Array) -> StateSpace:
        """Return the system with the selected inputs and the outputs of the same indices.

        Args:
            keep: ``(m,)`` booleans.
        """
        return StateSpace(self.A, self.B[:, keep], self.C[keep], self.D[np.ix_(keep, keep)], self.is_discrete)
