r"""Lines through kinks that take an activation's place: where they bound a margin of a small network from below.

At the worst input of a ball some arguments ``z`` may lie on a kink ``k`` at which the margin is bent upwards; no slope
of a piece makes the Lagrangian stationary there, but some slopes :math:`\theta` in between do. With the line
:math:`\phi(k) + \theta (z - k)` in the place of the activation at such units, from the last one back to the first,

.. math:: M(y) - M_\theta(y) = \sum_u \omega_u \, \bigl(\phi(z_u) - \phi(k) - \theta_u (z_u - k)\bigr),

where ``z_u`` is that of the true run, and ``omega_u`` what the margin gains by the output of ``u`` with lines at later
units alone, between the line's value and the true one. So :math:`M \ge M_\theta` where every summand has a sign: which
sign a line has is a question of the pieces' slopes on either side of the kink. Of runs on one side of it alone nothing
is asked about the other: there a slope beyond both pieces is a multiplier of the condition that ``z`` is on this side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.rigor.intervals import Interval, hull
from stability.systems.activations import Activation

Array = np.ndarray
Sides = tuple[Array, Array]
"""The first and the last piece of the activation: ``(N, T m)`` of the channels of all steps, or ``(N,)`` of one."""
Lines = tuple[Array, Array | None]
"""Slopes ``(T m,)`` of lines, and through which kinks ``(N, T m)`` they go, -1: none; ``None``: where they may."""


def at_kinks(phi: Activation, z: Interval, slope: float, sides: Sides | None = None) -> tuple[Array, Array]:
    """The kinks through which a line is nowhere above the activation on a range, and nowhere below it; -1: none.

    Args:
        phi: piecewise linear.
        z: ``(N,)``.
        slope: of the line.
        sides: the first and the last piece ``(N,)`` that runs are on.

    Example:
        >>> from stability.systems.activations import activation
        >>> z = Interval(np.array([-0.1, -0.1, 0.2]), np.array([0.1, 0.1, 0.3]))
        >>> at_kinks(activation("relu"), z, 0.5), at_kinks(activation("relu"), z, 1.5)[1]
        ((array([ 0,  0, -1]), array([-1, -1, -1])), array([-1, -1, -1]))
        >>> at_kinks(activation("relu"), z, 1.5, (np.array([0, 1, 1]), np.array([0, 1, 1])))
        (array([ 0, -1, -1]), array([-1,  0, -1]))
    """
    least, most = (np.array(0), np.array(len(phi.kinks))) if sides is None else sides
    under, over = np.full(z.low.shape, -1), np.full(z.low.shape, -1)
    for i, kink in enumerate(phi.kinks):
        here = (z.low <= kink) & (kink <= z.high) & (least <= i + 1) & (most >= i)
        below, above = here, here
        for j, piece in enumerate(phi.pieces):
            met = (least <= j) & (j <= most)
            met = met & ((z.low <= phi.kinks[j]) if j <= i else (z.high >= phi.kinks[j - 1]))
            steeper, flatter = ~met | (piece >= slope), ~met | (piece <= slope)
            below, above = below & (flatter if j <= i else steeper), above & (steeper if j <= i else flatter)
        under, over = np.where((under < 0) & below, i, under), np.where((over < 0) & above, i, over)
    return under, over


@dataclass(frozen=True, eq=False)
class Ruler:
    """The line of one unit, in many boxes.

    Attributes:
        phi: the activation, piecewise linear.
        z: ``(N,)`` the unit's argument.
        angle: the line's slope.
        under: ``(N,)`` the kink through which it may go where the margin gains by the unit's output; -1: none.
        over: ``(N,)`` the same where it loses.
        told: whether ``under``, which is ``over``, is where it goes.
    """

    phi: Activation
    z: Interval
    angle: float
    under: Array
    over: Array
    told: bool

    def value(self, value: Interval) -> Interval:
        """Of the line where it is told to go, else of the activation (``value``) and of lines that may go."""
        for kinks in (self.under,) if self.told else (self.under, self.over):
            at, here = np.array(self.phi.kinks)[kinks], kinks >= 0
            line = Interval.point(self.phi.function(at)) + Interval.point(self.angle) * (self.z - Interval.point(at))
            line = line if self.told else hull(line, value)
            value = Interval(np.where(here, line.low, value.low), np.where(here, line.high, value.high))
        return value

    def chosen(self, omega: Interval) -> Array:
        """The kinks ``(N,)`` through which it goes, for what the margin gains by the unit's output."""
        if self.told:
            return self.under
        kinks = np.where(omega.low >= 0.0, self.under, -1)
        return np.where((kinks < 0) & (omega.high <= 0.0), self.over, kinks)

    def steep(self, slopes: Interval, kinks: Array) -> Interval:
        """Its slope where it goes through a kink, else those of the activation."""
        here = kinks >= 0
        return Interval(np.where(here, self.angle, slopes.low), np.where(here, self.angle, slopes.high))


def ruler(phi: Activation, z: Interval, sides: Sides | None, lines: Lines, unit: int) -> Ruler:
    """The line of a unit, see ``Ruler``.

    Args:
        phi: piecewise linear.
        z: ``(N,)``.
        sides: of the unit.
        lines: of all units.
        unit: its number.
    """
    slopes, told = lines
    angle = float(slopes[unit])
    if told is not None:
        return Ruler(phi, z, angle, told[:, unit], told[:, unit], True)
    return Ruler(phi, z, angle, *at_kinks(phi, z, angle, sides), False)
