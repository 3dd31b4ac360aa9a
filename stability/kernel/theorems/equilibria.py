r"""Theorems that refute contraction by equilibria, proved to exist by Krawczyk's test.

``two_equilibria``: two different equilibria under one constant input. Both are trajectories under the same input, and
their distance never changes.

``unstable_equilibrium``: an equilibrium that nearby trajectories leave. Krawczyk's test proves that it exists in a box
around the stored state, under the stored constant input. Then *every* Jacobian over the box is proved to have an
eigenvalue outside the stability region. A network that contracts at an exponential rate has no such equilibrium.

``unstable_everywhere``: every constant input has such an equilibrium. This is about networks without linear part,
:math:`\dot x = B \phi(z)`, :math:`z = C x + D \phi(z) + E u + b` with :math:`\phi(0) = 0`, and about their Euler and
midpoint maps; examples are the neural ODE and the antisymmetric RNN. If ``C`` has full row rank, every constant input
has a state with :math:`C x = -(E u + b)`. There ``z = 0`` solves the channel equation, the state is an equilibrium, and
the Jacobian for the slopes :math:`\phi'(0)` is the same for every input. Full rank is proved by
:math:`|I - C R|_\infty < 1` for an approximate right inverse ``R``.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.activation_bounds import activation_slopes
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import Ball, row_sum_norm
from stability.kernel.arithmetic.eigenpairs import closed_loop_orbit, closed_loop_pencil
from stability.kernel.arithmetic.krawczyk import distance, enclose_equilibrium
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Input, ProofData, State, require, required
from stability.kernel.format.sentences import NOT_CONTRACTING, theorem
from stability.kernel.format.theorem_table import refutes
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.eigenvalue_phrase import Unstable


def refuted(claim: Claim, which: str = "Some") -> str:
    """State that the claim is false: of contraction, or of a globally stable equilibrium for every constant input.

    ``which`` is ``Some`` if one constant input has no such equilibrium, ``No`` if none has one.
    """
    lacking = f"{which} constant input has a globally asymptotically stable equilibrium."
    if which == "Some":
        lacking = "Some constant input has no globally asymptotically stable equilibrium."
    return NOT_CONTRACTING if claim.name == "contraction" else lacking


@refutes(
    "two_equilibria",
    subject=DrivenSystem,
    claim=("contraction", "equilibrium"),
    size="state1, state2 and input must be finite vectors of the network's sizes",
)
class TwoEquilibria(ProofData):
    """Data: two equilibria and their constant input."""

    state1: State
    state2: State
    input: Input

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        found = "Under the constant input of the proof there are two different equilibria."
        return theorem(subject, refuted(claim), found, "Their distance never changes.")

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        boxes: list[Ball] = []
        for which, state in (("first", self.state1), ("second", self.state2)):
            reason = f"no equilibrium is proved to exist at the {which} state"
            boxes.append(required(enclose_equilibrium(subject, state, self.input), reason).states)
        gap = distance(*boxes)
        require(gap > 0.0, "the two boxes overlap: the equilibria may be the same")
        return f"two equilibria proved to exist, at least {gap:.3g} apart"


def smooth_slopes(name: str, channels: Ball) -> Ball:
    """Enclose the activation's slopes over boxes of pre-activations.

    Raises:
        Refused: a kink lies in the boxes.
    """
    slopes = activation_slopes(name, channels)
    smooth = not activation(name).kinks or not slopes.rad.any()
    require(smooth, "the orbit may pass a kink of the activation, where there is no Jacobian")
    return slopes


@refutes(
    "unstable_equilibrium",
    subject=DrivenSystem,
    claim=("contraction", "equilibrium"),
    size="state and input must be finite and of the network's sizes",
)
class UnstableEquilibrium(Unstable):
    """Data: an equilibrium and its constant input."""

    state: State
    input: Input

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        return theorem(subject, refuted(claim), self.unstable("the constant input of the proof", subject.is_discrete))

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        found = required(enclose_equilibrium(subject, self.state, self.input), "no equilibrium is proved to exist")
        matrix = closed_loop_orbit(subject.system, smooth_slopes(subject.activation, found.channels))
        proved = self.outside(matrix, subject.is_discrete)
        where = float(found.states.rad.max())
        return f"an equilibrium within {where:.1e} of the stored state; its Jacobian: {proved}"


SMOOTH = ("tanh", "identity")  # phi(0) = 0 and phi'(0) = 1


def why_not_everywhere(subject: DrivenSystem) -> str | None:
    """Return the reason why ``unstable_everywhere`` does not cover a network, or ``None``."""
    system = subject.system
    base = system if system.origin is None else system.origin.base
    no_motion = np.eye(base.states) if base.is_discrete else np.zeros((base.states, base.states))
    m = base.channels
    if subject.activation not in SMOOTH or m == 0:
        return f"this proof covers the activations {' and '.join(SMOOTH)} only"
    if not np.array_equal(base.A, no_motion) or subject.F.any():
        return "this proof covers only networks without a linear part, whose input enters the channels"
    for k in range(m, system.channels, m):  # the stages of the midpoint rule read the same input
        if not (
            np.array_equal(subject.E[k : k + m], subject.E[:m]) and np.array_equal(subject.b[k : k + m], subject.b[:m])
        ):
            return "the stages of the discretization read different inputs"
    right = np.asarray(np.linalg.pinv(base.C), dtype=np.float64)
    if not (np.isfinite(right).all() and row_sum_norm(np.eye(m) - Ball.exact(base.C) @ right) < 1.0):
        return "C is not proved to have full row rank"
    return None


@refutes("unstable_everywhere", subject=DrivenSystem, claim=("contraction", "equilibrium"), unfit=why_not_everywhere)
class UnstableEverywhere(Unstable):
    """Data: none, except ``eigenvalue`` if the sentence names it."""

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        return theorem(subject, refuted(claim, "No"), self.unstable("every constant input", subject.is_discrete))

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        matrix = closed_loop_pencil(subject.system, Ball.exact(np.ones(subject.system.channels)))
        proved = self.outside(matrix, subject.is_discrete)
        return f"every constant input has an equilibrium; its Jacobian: {proved}"
