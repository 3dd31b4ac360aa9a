r"""Theorems ``ball`` and ``box``: a bounded activation and a stable linear part bound all trajectories.

Activation and inputs enter the state as :math:`G v` with ``G = [B, F]`` and :math:`|v_j| \le b_j`: the activation's
bound for the channels, the stated input bound for inputs that enter the state directly.

``ball``: with ``Y > 0``, ``tau > 0``, :math:`\sum_j \tau_j b_j^2 \le 1` and ``0 < mu`` (``< 1`` in discrete time)

.. math:: A Y + Y A^T + \mu Y + \mu^{-1} G \operatorname{diag}(\tau)^{-1} G^T < 0
          \quad \text{or} \quad
          (1 - \mu)^{-1} A Y A^T + \mu^{-1} G \operatorname{diag}(\tau)^{-1} G^T < Y

proves for :math:`V = x^T Y^{-1} x` that :math:`\dot V \le \mu (1 - V)` (:math:`V^+ \le (1 - \mu) V + \mu`):
the ellipsoid ``V <= 1`` is invariant and attracts every trajectory. It lies in the ball of radius
:math:`\lambda_{\max}(Y)^{1/2}`.

``box``: with :math:`s = |G| b` (what the activation and the inputs can add to each state in absolute value) and
``r > 0``: in discrete time :math:`|A| r + s < r`, in continuous time
:math:`a_{ii} r_i + \sum_{j \ne i} |a_{ij}| r_j + s_i < 0`. Then :math:`\max_i |x_i| / r_i` decreases while it is above
one, and its limit superior is at most one for every trajectory. Example: in discrete time with ``A = 0``, ``B = I``,
``F = 0`` and tanh, every box larger than the unit box satisfies this.

Source: S. Boyd, L. El Ghaoui, E. Feron, V. Balakrishnan, Linear Matrix Inequalities in System and Control
Theory (1994), section 6.1.3 (reachable sets with unit-peak inputs).
"""

from __future__ import annotations

import math

import numpy as np

from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import Ball, system_balls
from stability.kernel.arithmetic.definiteness import prove_positive_definite, spectral_bounds
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.intervals import euclidean_norms
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import LIMIT, AnyArray, Metric, Number, ProofData, State, require, require_definite
from stability.kernel.format.sentences import at_least, at_most, for_every, inputs_phrase, theorem
from stability.kernel.format.theorem_table import certifies
from stability.kernel.systems.driven import DrivenSystem

Array = np.ndarray


class Bounded(ProofData):
    """Base of both proofs: the radius, a bound on inputs that enter the state, and the sentence of the claim."""

    radius: Number
    input_bound: Number | None = None

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        inputs, bound = "", self.input_bound
        if bound is not None:
            inputs = (
                f"{inputs_phrase(subject)} with entries in [{'-' * (bound != 0)}{at_least(bound)}, {at_least(bound)}]"
            )
        time = "k" if subject.is_discrete else "t"
        limit = f"limsup |x({time})|_2 <= {at_most(self.radius)}"
        return theorem(subject, f"{for_every(subject, inputs)}, every trajectory x is bounded, and {limit}.")

    def forcing(self, subject: DrivenSystem) -> tuple[Ball, Array]:
        """Check the radius and the input bound, then return ``forcing_bounds``."""
        require(self.radius > 0, "radius must be positive")
        require(self.input_bound is None or self.input_bound >= 0, "input_bound must be a number >= 0")
        unbounded = "inputs enter the state directly: without a bound on them (input_bound) the state has no bound"
        require(self.input_bound is not None or not subject.F.any(), unbounded)
        return forcing_bounds(subject, self.input_bound)


def forcing_bounds(subject: DrivenSystem, largest: Array | float | None) -> tuple[Ball, Array]:
    """Return ``G`` and the bounds ``b`` of its columns: channels first, then inputs that enter the state.

    Args:
        subject: the network.
        largest: bound of the inputs' absolute values, a number or ``(p,)``; ``None`` for any input.
    """
    _, B, _, _ = system_balls(subject.system)
    bounds = np.full(subject.system.channels, activation(subject.activation).bound)
    if not subject.F.any():
        return B, bounds
    size = np.broadcast_to(math.inf if largest is None else largest, subject.inputs)
    return Ball.stack([[B, Ball.exact(subject.F)]]), np.concatenate([bounds, size])


def forced_ellipsoid(forcing: Ball, bounds: Array, tau: Array) -> Ball:
    """Return ``G diag(1 / tau) G^T``, whose ellipsoid contains ``G w`` for all ``|w_i| <= b_i``.

    Raises:
        Refused: ``sum(tau b^2)`` exceeds 1.
    """
    admitted = float((tau * bounds * bounds).sum()) * (1 + (len(tau) + 8) * EPS) <= 1.0
    require(admitted, "the weights tau do not admit every value of the activation and input")
    return (forcing * Ball(1.0 / tau, 4 * EPS / tau)[None, :]) @ forcing.T


def prove_ball_positive(matrix: Ball) -> bool:
    """Return True if every symmetric matrix in the ball is proved positive definite."""
    middle = 0.5 * (matrix.mid + matrix.mid.T)
    asymmetry = np.abs(matrix.mid - matrix.mid.T)
    # a rounded mean lies between its two numbers; the slack of the proof covers the few roundings of the radius
    rad = np.maximum(matrix.rad, matrix.rad.T) + asymmetry
    return prove_positive_definite(middle, lambda s: rad @ s).holds


BALL_SIZE = "Y and tau must be of the network's sizes, Y symmetric to the last bit"


@certifies("ball", subject=DrivenSystem, claim="bounded", value="radius", size=BALL_SIZE)
class BallProof(Bounded):
    """Proof by an invariant ellipsoid; ``tau`` (m or m + p,) has an entry for each column of ``G``."""

    Y: Metric
    mu: Number
    tau: AnyArray

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        system, Y, tau, mu = subject.system, self.Y, self.tau, self.mu
        forcing, bounds = self.forcing(subject)
        require(not (tau.shape != bounds.shape or not (np.abs(tau) <= LIMIT).all()), BALL_SIZE)
        require(np.isfinite(bounds).all(), "the activation or the input is not bounded")
        positive = (tau > 0).all() and 1e-30 < mu < (1.0 if system.is_discrete else 1e30)
        require(positive, "tau must be positive and mu positive (below one in discrete time)")
        reach = forced_ellipsoid(forcing, bounds, tau)
        A = system_balls(system)[0]
        inverse_mu = Ball.exact(np.array(1.0 / mu)) * Ball(np.array(1.0), np.array(4 * EPS))
        if system.is_discrete:
            keep = Ball(np.array(1.0 / (1.0 - mu)), np.array(8 * EPS / (1.0 - mu)))
            slack = Y - keep * (A @ (Y @ A.T)) - inverse_mu * reach
        else:
            product = A @ Y
            slack = -(product + product.T + mu * Ball.exact(Y) + inverse_mu * reach)
        require(prove_ball_positive(slack), "the matrix inequality for Y and mu is not proved")
        largest = self.radius * self.radius * (1 - 4 * EPS)
        require_definite(spectral_bounds(Y, 0.0, largest), "Y does not lie between 0 and radius^2")
        return f"all trajectories end in the ellipsoid x^T Y^-1 x <= 1, within radius {self.radius:.6g}"


BOX_SIZE = "r must be a positive vector of {n} entries"


@certifies("box", subject=DrivenSystem, claim="bounded", value="radius", size=BOX_SIZE)
class BoxProof(Bounded):
    """Proof by an invariant box ``|x_i| <= r_i``; ``radius`` is at least the Euclidean norm of ``r``."""

    r: State

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        system, r = subject.system, self.r
        forcing, bounds = self.forcing(subject)
        require((r > 0).all(), BOX_SIZE.format(n=system.states))
        require(np.isfinite(bounds).all(), "the activation or the input is not bounded")
        if system.is_discrete:
            flow = Ball.exact(system_balls(system)[0].upper()) @ r - r
        else:  # no discretisation: the stored matrix is the exact one
            diagonal = np.diagonal(system.A)
            flow = Ball.exact(np.abs(system.A - np.diag(diagonal))) @ r + Ball.exact(diagonal) * r
        total = flow + Ball.exact(forcing.upper()) @ bounds
        excess = total.mid + total.rad
        norm = float(euclidean_norms(r)) * (1 + (len(r) + 8) * EPS)
        require((excess < 0).all(), f"side {int(np.argmax(excess))} of the box is not proved invariant and attracting")
        require(norm <= self.radius, "the radius is smaller than the half diagonal of the box")
        return "the box is invariant and attracts every trajectory"
