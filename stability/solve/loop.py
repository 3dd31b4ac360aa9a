r"""The loop transformation that turns slope intervals into a unit ball.

With the centre slope :math:`c = (\alpha + \beta)/2` and radius :math:`r = (\beta - \alpha)/2` of every channel,
:math:`w = c z + \delta`, :math:`|\delta| \le r |z|`. After it the multiplier inequality at ``(P, L)`` *is* the bounded
real lemma of a scaled system, with the same ``P``:

.. math:: \| \Delta\, M\, \Delta^{-1} \|_\infty < 1, \qquad \Delta^2 = 2 L,

where ``M`` is the transfer matrix of the centred loop, its output rows multiplied by ``r``. The rate moves the axis:
``A + lambda I`` in continuous time, ``A / rho`` and ``B / rho`` in discrete time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.systems import LureSystem
from stability.systems.channels import closed

__all__ = ["Loop", "centre", "times"]

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Loop:
    """A linear system in feedback with ``|delta_i| <= |y_i|``: ``x' = A x + B delta``, ``y = C x + D delta``."""

    A: Array
    B: Array
    C: Array
    D: Array
    is_discrete: bool

    def shifted(self, rate: float) -> Loop:
        """The loop whose stability at rate 0 (or 1) is this one's at ``rate``.

        Args:
            rate: ``lambda`` (continuous) or ``rho`` (discrete).

        Returns:
            The shifted loop.
        """
        if self.is_discrete:
            return Loop(self.A / rate, self.B / rate, self.C, self.D, True)
        return Loop(self.A + rate * np.eye(self.A.shape[0]), self.B, self.C, self.D, False)

    def scaled(self, delta: Array) -> Loop:
        """``diag(delta) M diag(delta)^{-1}``."""
        return Loop(self.A, self.B / delta, delta[:, None] * self.C, delta[:, None] * self.D / delta, self.is_discrete)

    def state_scales(self, sweeps: int = 30) -> Array:
        """Powers of two ``t (n,)`` that balance rows against columns of the states; channels are left as they are.

        Args:
            sweeps: of Osborne's balancing, all states at once.

        Returns:
            The scales; in the coordinates ``x = t y`` the loop is ``rescaled(t)``.
        """
        inner = self.A**2
        np.fill_diagonal(inner, 0.0)
        into, out = (self.B**2).sum(axis=1), (self.C**2).sum(axis=0)
        x = np.zeros(len(inner))
        for _ in range(sweeps):
            squares = np.exp(2.0 * x)
            rows = (inner @ squares + into) / squares + 1e-200
            columns = (inner.T @ (1.0 / squares) + out) * squares + 1e-200
            move = np.clip(0.125 * np.log(rows / columns), -2.0, 2.0)
            x += move
            if np.abs(move).max(initial=0.0) < 0.05:
                break
        return np.exp2(np.clip(np.round((x - x.mean()) / np.log(2.0)), -200, 200))

    def rescaled(self, t: Array) -> Loop:
        """The loop in coordinates ``x = t y``; where ``P`` solves its inequality, ``P / (t t^T)`` solves this one."""
        return Loop(self.A * t / t[:, None], self.B / t[:, None], self.C * t, self.D, self.is_discrete)


def times(left: Array, right: Array) -> Array:
    """``left @ right``, by rows where ``left`` is square and diagonal: for most networks ``B`` is the identity."""
    if left.shape[0] == left.shape[1]:
        diagonal = np.diagonal(left)
        if np.count_nonzero(left) == np.count_nonzero(diagonal):
            return diagonal[:, None] * right
    return left @ right


def centre(system: LureSystem) -> Loop:
    """Move the slopes to a unit ball around their centre.

    Args:
        system: any well-posed Lur'e system.

    Returns:
        The centred loop; a channel with a single slope keeps a zero row.

    Example:
        >>> loop = centre(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> loop.A.item(), loop.C.item()
        (-1.5, 0.5)
    """
    middle, radius = 0.5 * (system.alpha + system.beta), 0.5 * (system.beta - system.alpha)
    if not system.D.any():
        return Loop(
            system.A + times(system.B * middle, system.C),
            system.B,
            radius[:, None] * system.C,
            system.D,
            system.is_discrete,
        )
    c, d = closed(system.D, middle, system.C), closed(system.D, middle, system.D)
    bm = system.B * middle
    return Loop(system.A + bm @ c, system.B + bm @ d, radius[:, None] * c, radius[:, None] * d, system.is_discrete)
