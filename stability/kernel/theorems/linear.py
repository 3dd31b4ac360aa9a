r"""Theorems that refute contraction by an unstable eigenvalue of a matrix.

``destabilising_slopes``, for a bare Lur'e system: the activation ``phi_i(s) = K_i s`` with ``alpha <= K <= beta`` is
one that the claim admits, and with it the difference of two trajectories obeys ``A + B K (I - D K)^{-1} C``. When that
matrix has an eigenvalue outside the open left half-plane (the open unit disc), differences along its eigenvector do not
decay. It says nothing about a particular network, whose activation is not linear: there it is refused.

``unstable_linear``, for a network: an unstable linear part that a bounded activation cannot hold back. Let
:math:`w^T A = \lambda w^T`. For two trajectories under one input :math:`y = w^T d` obeys
:math:`\dot y = \lambda y + w^T B \Delta\phi` with :math:`|w^T B \Delta\phi| \le S = 2 \sup|\phi| \sum_j |w^T B|_j`.
Hence, with ``Re lambda > 0`` (``|lambda| > 1``) and a first difference with ``|y(0)| Re(lambda) > S``
(``|y(0)| (|lambda| - 1) > S``), the gap grows for ever, whatever the input and the two first states, which proves that
the network neither contracts nor stays bounded.

Data without ``difference`` claim less: an eigenvalue on or beyond the boundary of the stability region. Then
``|y(t)| >= |y(0)| - S t`` for first differences of every size, so no ``C exp(-lambda t)`` (``C rho^t``)
bounds them all: the network does not contract at a uniform exponential rate, though trajectories may still
approach each other.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import Ball, system_balls
from stability.kernel.arithmetic.eigenpairs import Matrix, closed_loop_pencil
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.unstable_matrices import enclose_unstable
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Channels, State, require, required
from stability.kernel.format.sentences import NOT_CONTRACTING, for_every, slopes_phrase, theorem
from stability.kernel.format.theorem_table import refutes
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.eigenvalue_phrase import BOUNDARY, Unstable


@refutes("destabilising_slopes", subject=LureSystem, size="K must be a finite vector of {m} slopes")
class DestabilisingSlopes(Unstable):
    """Constant slopes ``K``, one per channel."""

    K: Channels

    def sentence(self, subject: LureSystem, claim: Claim) -> str:
        value = self.phrase(subject.is_discrete, strict=False)
        if subject.channels == 0:
            return theorem(subject, "It is not exponentially stable.", f"A has {value}.")
        return theorem(
            subject,
            f"It is not exponentially stable for {slopes_phrase(subject).replace('every', 'some', 1)}.",
            f"With the linear activation of slopes K of the proof, A + B K (I - D K)^-1 C has {value}.",
        )

    def check(self, subject: LureSystem, claim: Claim) -> str:
        require(((subject.alpha <= self.K) & (subject.beta >= self.K)).all(), "a slope in K lies outside [alpha, beta]")
        matrix = closed_loop_pencil(subject, Ball.exact(self.K))
        return f"with the slopes K: {self.outside(matrix, subject.is_discrete, strict=False)}"


SIZE = "difference must be a finite vector of {n} entries, with an eigenvalue"


@refutes("unstable_linear", subject=DrivenSystem, claim=("contraction", "bounded"), size=SIZE)
class UnstableLinear(Unstable):
    """Data: optionally ``eigenvalue`` with an initial ``difference`` of trajectories that diverge."""

    difference: State | None = None

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        bounded = "" if subject.system.channels == 0 else " and the activation is bounded"
        linear = f"The linear part has {self.phrase(subject.is_discrete, strict=self.difference is not None)}{bounded}."
        if self.difference is None:
            rate, slow = "It is not contracting at any uniform exponential rate.", "Large differences of trajectories"
            return theorem(subject, rate, linear, f"{slow} shrink at most at a bounded speed.")
        return theorem(
            subject,
            NOT_CONTRACTING if claim.name == "contraction" else "It is not bounded.",
            linear,
            f"{for_every(subject)}, two trajectories with the first difference of the proof move apart without bound.",
        )

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        system, value = subject.system, self.named
        covered = self.difference is not None or claim.name == "contraction"
        require(covered, "without a difference that grows, this proof is about contraction alone")
        bound = 0.0 if system.channels == 0 else activation(subject.activation).bound
        require(np.isfinite(bound), f"the activation {subject.activation!r} is not bounded")
        A, B, _, _ = system_balls(system)
        left = Matrix(A.T, np.ones(int(system.states)))
        if self.difference is None:
            return f"for A: {self.outside(left, system.is_discrete, strict=False)}"
        value = required(value, SIZE.format(n=system.states))
        pair = required(enclose_unstable(left, system.is_discrete, value), BOUNDARY)
        w = Ball(pair.vector, np.full(int(system.states), pair.vector_radius))
        push = float((w @ B).upper().sum()) * 2.0 * bound * (1 + (system.channels + 8) * EPS)
        y = w @ self.difference
        y_size = float(np.abs(y.mid)) * (1 - 4 * EPS) - float(y.rad) * (1 + 4 * EPS)
        growth = (abs(pair.value) * (1 - 4 * EPS) - 1.0 if system.is_discrete else pair.value.real) - pair.radius
        # push is not negative and growth positive: a difference that does not excite the eigenvalue ends here as well
        outgrows = growth * y_size * (1 - 8 * EPS) > push
        require(outgrows, "the first difference is too small to outgrow what the activation can do")
        return f"A has an eigenvalue {pair.phrase}; the gap grows"
