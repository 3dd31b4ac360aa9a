r"""Affine bounds of implicit channels ``z = C x + D phi(z) + E u + b`` in ``x`` and ``u``.

On an interval that contains the pre-activations, :math:`\phi(z) = \Lambda z + \mu + e` with
:math:`|e_i| \le \epsilon_i`. Therefore, for every matrix ``R``,

.. math:: z = R (C x + E u + b + D \mu) + R D e + (I - R (I - D \Lambda)) z .

If ``R`` is close to the inverse of :math:`I - D \Lambda`, the last term is a rounding error, bounded by the bounds of
``z``. These bounds keep the dependence of several channels on the same states, which an interval of ``D phi(z)`` loses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.eigenpairs import inverse_or_none

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class AffineChannels:
    """Affine bounds ``z = C x + E u + rest + H e + r`` of the channels, with ``|e| <= error`` and ``|r| <= rounding``.

    Example:
        >>> line = np.full(1, 0.5), np.zeros(1), np.full(1, 0.1)  # phi(z) within .1 of z / 2
        >>> one = Ball.exact(np.ones((1, 1)))
        >>> E, b, reach = np.ones((1, 1)), np.zeros(1), np.full(1, 3.0)
        >>> found = AffineChannels.of(line, one, one, E, b, reach)  # z = x + phi(z) + u
        >>> found.C.mid, found.H.mid, bool(found.rounding[0] < 1e-12)
        (array([[2.]]), array([[2.]]), True)
    """

    slope: Array
    offset: Array
    error: Array
    C: Ball
    E: Ball
    H: Ball
    rest: Ball
    rounding: Array

    @classmethod
    def of(
        cls, line: tuple[Array, Array, Array], C: Ball, D: Ball, E: Array, b: Array, reach: Array
    ) -> AffineChannels | None:
        """Solve for the pre-activations.

        Args:
            line: ``slope``, ``offset``, ``error`` of the activation on the interval, each ``(m,)``.
            C: ``(m, n)`` ball.
            D: ``(m, m)`` ball.
            E: ``(m, p)``.
            b: ``(m,)``.
            reach: ``(m,)`` bounds of the pre-activations' absolute values, finite.

        Returns:
            The affine bounds, or ``None`` if the inverse is not finite.
        """
        slope, offset, error = line
        eye = np.eye(len(slope))
        matrix = Ball.exact(eye) - D * slope[None, :]
        R = inverse_or_none(matrix.mid)
        if R is None:
            return None
        left = Ball.exact(eye) - R @ matrix
        rounding = (Ball.exact(left.upper()) @ reach).upper()
        return cls(slope, offset, error, R @ C, R @ Ball.exact(E), R @ D, R @ (D @ offset + b), rounding)
