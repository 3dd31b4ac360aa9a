r"""Affine bounds of implicit channels ``z = C x + D phi(z) + E u + b`` in ``x`` and ``u``.

On an interval that the pre-activations are in, :math:`\phi(z) = \Lambda z + \mu + e` with
:math:`|e_i| \le \epsilon_i`, so that for every matrix ``R``

.. math:: z = R (C x + E u + b + D \mu) + R D e + (I - R (I - D \Lambda)) z .

With ``R`` next to the inverse of :math:`I - D \Lambda` the last term is what rounding left of it, bounded by the bounds
of ``z``. States that two channels have in common stay in common, where an interval of ``D phi(z)`` forgets them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.balls import Ball

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class AffineChannels:
    """Affine bounds ``z = C x + E u + rest + H e + r``, ``|e| <= error``, ``|r| <= loose``, of the channels.

    Example:
        >>> line = np.full(1, 0.5), np.zeros(1), np.full(1, 0.1)  # phi(z) within .1 of z / 2
        >>> one = Ball.exact(np.ones((1, 1)))
        >>> E, b, reach = np.ones((1, 1)), np.zeros(1), np.full(1, 3.0)
        >>> found = AffineChannels.of(line, one, one, E, b, reach)  # z = x + phi(z) + u
        >>> found.C.mid, found.H.mid, bool(found.loose[0] < 1e-12)
        (array([[2.]]), array([[2.]]), True)
    """

    slope: Array
    offset: Array
    error: Array
    C: Ball
    E: Ball
    H: Ball
    rest: Ball
    loose: Array

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
            The affine bounds, or ``None`` where there is no inverse to speak of.
        """
        slope, offset, error = line
        eye = np.eye(len(slope))
        matrix = Ball.exact(eye) - D * slope[None, :]
        try:
            R = np.linalg.inv(matrix.mid)
        except np.linalg.LinAlgError:
            return None
        if not np.isfinite(R).all():
            return None
        left = Ball.exact(eye) - R @ matrix
        loose = (Ball.exact(left.upper()) @ reach).upper()
        return cls(slope, offset, error, R @ C, R @ Ball.exact(E), R @ D, R @ (D @ offset + b), loose)
