r"""Absorbing ellipsoids of flows under inputs in a box, recomputed by the checker.

The flow is :math:`\dot x = A x + B \phi(z) + F u`, :math:`z = C x + E u + b`, its activation bounded, its inputs within
``r`` of the middle :math:`u_0` of their box. On intervals that pre-activations stay in, :math:`\phi(z) = s z + o + e`
with :math:`|e_i| \le \epsilon_i`, so that around a center ``c`` the state :math:`y = x - c` obeys

.. math:: \dot y = (A + B s C) y + B e + (F + B s E)(u - u_0) + d,

``d`` what is left at the center. With :math:`G = [B, F + B s E, I]`, ``beta`` the bounds of what it multiplies and
:math:`\sum_j \tau_j \beta_j^2 \le 1`,

.. math:: A_s Y + Y A_s^T + \mu Y + \mu^{-1} G \operatorname{diag}(\tau)^{-1} G^T < 0, \qquad A_s = A + B s C,

gives :math:`\dot V \le \mu (1 - V)` for :math:`V = y^T Y^{-1} y`: every trajectory enters :math:`V \le 1 + \eta` within
:math:`\log((V_0 - 1) / \eta) / \mu` and stays. There the pre-activations are within
:math:`\sqrt{(1 + \eta)\, C_i Y C_i^T}` of those of the center, which makes lines and errors of the next ellipsoid. The
first has ``s = 0`` and asks nothing of the pre-activations. All is rounded outwards.

Source: S. Boyd, L. El Ghaoui, E. Feron, V. Balakrishnan, Linear Matrix Inequalities in System and Control Theory
(1994), section 6.1.3 (reachable sets with unit-peak inputs), with the activation's linear part kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from stability.kernel.arithmetic.activation_lines import relaxation
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import Ball, system_balls
from stability.kernel.arithmetic.definiteness import is_symmetric, prove_positive_definite, spectral_bounds
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.intervals import midpoint_radius
from stability.kernel.format.fields import LIMIT, AnyArray, Input, Number, ProofData, require
from stability.kernel.format.sentences import at_least, at_most, entry_time, exact_text
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.absorbing_sets import BOX
from stability.kernel.theorems.bounded import forced_ellipsoid, prove_ball_positive

MOST_STAGES = 32  # most ellipsoids that a file may ask the checker to prove
SIZE = "stages must hold as many centres (n,), shapes (n, n), slopes (m,), tau (m + p + n,), mu and least"
Array = np.ndarray


def no_flow_sets(subject: DrivenSystem) -> str | None:
    """Return the reason why a network has no such sets, or ``None`` if it may have them."""
    if subject.is_discrete:
        return "this proof is about flows, not about maps"
    if subject.system.D.any():
        return "this proof is about flows without feedthrough (D = 0)"
    if not np.isfinite(activation(subject.activation).bound):
        return f"this proof needs a bounded activation, which {subject.activation} is not"
    return None


@dataclass(frozen=True, eq=False)
class Stage:
    """Basis of one ellipsoid: the linear part, the input terms, and the remainder at the center.

    Attributes:
        A: ``(n, n)`` ball of ``A + B s C``.
        push: ``(n, m + p + n)`` ball of ``G``.
        bounds: ``(m + p + n,)`` bounds of its argument.
    """

    A: Ball
    push: Ball
    bounds: Array


@dataclass
class Ranges:
    """Ranges of the pre-activations of a flow under inputs in a box.

    Attributes:
        driven: the flow.
        middle: ``(p,)`` of the box of inputs.
        reach: ``(p,)`` from there to its ends, rounded up.
        low: ``(m,)`` least pre-activations, minus infinity at first.
        high: ``(m,)`` largest.
    """

    driven: DrivenSystem
    middle: Array
    reach: Array
    low: Array
    high: Array

    @classmethod
    def under(cls, driven: DrivenSystem, low: Array, high: Array) -> Ranges:
        """Return infinite ranges."""
        free = np.full(len(driven.b), np.inf, dtype=np.float64)
        return cls(driven, *midpoint_radius(low, high), -free, free)

    def lines(self, slope: Array) -> tuple[Array, Array]:
        """Return offsets and errors of lines with given slopes over the ranges."""
        phi = activation(self.driven.activation)
        if np.isfinite(self.high - self.low).all():
            _, offset, error = relaxation(phi, self.low, self.high, slope)
            return offset, error
        at_zero = np.asarray(phi.function(np.zeros(len(slope))))
        return at_zero, np.full(len(slope), phi.bound) - np.abs(at_zero)

    def stage(self, slope: Array, centre: Array) -> Stage:
        """Return the ellipsoid's data for slopes and a center."""
        driven, (A, B, C, _) = self.driven, system_balls(self.driven.system)
        offset, error = self.lines(slope)
        through = B * slope[None, :]
        entry = Ball.exact(driven.F) + through @ driven.E
        linear = A + through @ C
        rest = through @ driven.b + B @ offset + entry @ self.middle + linear @ centre
        push = Ball.stack([[B, entry, Ball.exact(np.eye(driven.states))]])
        return Stage(linear, push, np.concatenate([error, self.reach, rest.upper()]))

    def enter(self, centre: Array, Y: Array, room: float) -> None:
        """Restrict the ranges to states within an ellipsoid."""
        driven, (_, _, C, _) = self.driven, system_balls(self.driven.system)
        middle = C @ centre + Ball.exact(driven.E) @ self.middle + driven.b
        size = np.diagonal((C @ Y @ C.T).upper())
        swing = np.nextafter(np.sqrt(np.nextafter((1.0 + room) * size, np.inf)), np.inf)
        turn = (Ball.exact(np.abs(driven.E)) @ self.reach).upper()
        wide = (swing + turn + middle.rad) * (1 + 8 * EPS)
        self.low = np.maximum(self.low, np.nextafter(middle.mid - wide, -np.inf))
        self.high = np.minimum(self.high, np.nextafter(middle.mid + wide, np.inf))


def rise_of(before: Array, Y_before: Array, after: Array, least: float, room: float) -> float:
    """Bound the next ellipsoid's ``V`` on the previous one, ``least I < Y``; rounded up."""
    apart = math.sqrt(float(((after - before) ** 2).sum())) + 1e-150
    size = math.sqrt((1.0 + room) * float(np.trace(Y_before)))
    return (size + apart) ** 2 / least * (1 + (len(before) + 32) * EPS)


class FlowSets(ProofData):
    """Data of absorbing ellipsoids. ``low``, ``high`` (p,): the box of inputs; ``centres`` (k, n), ``shapes``
    (k, n, n), ``slopes`` (k, m), ``tau`` (k, m + p + n), ``mu`` and ``least`` (k,): a sequence of ellipsoids, each
    entered from the one before; ``room``: eta; ``time`` from the first to the last.
    """

    low: Annotated[Input, BOX]
    high: Annotated[Input, BOX]
    centres: AnyArray
    shapes: AnyArray
    slopes: AnyArray
    tau: AnyArray
    mu: AnyArray
    least: AnyArray
    room: Number
    time: Number

    @property
    def entry(self) -> str:
        """State the time from which the claim holds."""
        duration = f"log((V - 1) / {exact_text(self.room)}) / {at_least(float(np.asarray(self.mu).flat[0]))}"
        size = "(s - c)^T Y^-1 (s - c)", "the first c and Y"
        return entry_time("T", at_most(self.time), duration, size, self.room)

    def ranges(self, subject: DrivenSystem) -> Ranges:
        """Return the final ranges of the pre-activations.

        Raises:
            Refused: an ellipsoid is not proved to be entered, or not in that time.
        """
        require((self.low <= self.high).all(), BOX.format(p=subject.inputs))
        require(0.0 < self.room <= 1.0 and (1.0 + self.room) - 1.0 == self.room, "room must lie in (0, 1]")
        self._fits(subject)
        ranges, spent, rows = Ranges.under(subject, self.low, self.high), 0.0, range(len(self.mu))
        for k in rows:
            Y, mu, least, centre = self.shapes[k], float(self.mu[k]), float(self.least[k]), self.centres[k]
            require(
                k > 0 or not self.slopes[k].any(), "the first ellipsoid knows no pre-activations: its slopes are zero"
            )
            stage = ranges.stage(self.slopes[k], centre)
            self._entered(stage, Y, mu, self.tau[k])
            require(spectral_bounds(Y, least, 2.0 * float(np.trace(Y))).holds, "least I < Y is not proved")
            if k:
                rise = rise_of(self.centres[k - 1], self.shapes[k - 1], centre, least, self.room)
                spent += max(math.log(rise / self.room), 0.0) / mu * (1 + 1e-12)
            ranges.enter(centre, Y, self.room)
        require(spent * (1 + 1e-12) <= self.time, f"the ellipsoids are proved to be entered after {spent}, not sooner")
        require((ranges.low <= ranges.high).all(), "the sets are empty: that cannot be")
        return ranges

    def _fits(self, subject: DrivenSystem) -> None:
        """Check that all sizes are consistent.

        Raises:
            Refused: they do not.
        """
        n, m = subject.states, subject.system.channels
        k = len(self.mu) if self.mu.ndim == 1 else 0
        require(1 <= k <= MOST_STAGES, SIZE)
        wanted = ((k, n), (k, n, n), (k, m), (k, m + subject.inputs + n), (k,), (k,))
        arrays = (self.centres, self.shapes, self.slopes, self.tau, self.mu, self.least)
        fits = all(value.shape == shape and (np.abs(value) <= LIMIT).all() for value, shape in zip(arrays, wanted))
        require(fits, SIZE)
        require(all(is_symmetric(Y) for Y in self.shapes), "shapes must be symmetric to the last bit")
        inside = ((self.slopes >= 0.0) & (self.slopes <= activation(subject.activation).slope[1])).all()
        require(inside, "slopes must lie between zero and that of the activation")
        positive = (self.mu > 1e-30).all() and (self.mu < 1e30).all() and (self.least > 1e-200).all()
        require(positive and (self.tau > 0).all(), "mu, least and tau must be positive")

    def _entered(self, stage: Stage, Y: Array, mu: float, tau: Array) -> None:
        """Prove that every trajectory enters an ellipsoid.

        Raises:
            Refused: it is not proved.
        """
        require(np.isfinite(stage.bounds).all(), "the sets have no finite bounds")
        reach = forced_ellipsoid(stage.push, stage.bounds, tau)
        require(prove_positive_definite(Y).holds, "Y is not proved positive definite")
        product = stage.A @ Y
        over = Ball.exact(np.array(1.0 / mu)) * Ball(np.array(1.0), np.array(4 * EPS))
        slack = -(product + product.T + Ball.exact(np.array(mu)) * Ball.exact(Y) + over * reach)
        require(prove_ball_positive(slack), "a trajectory may stay outside an ellipsoid: its inequality is not proved")
