r"""Rule ``unstable_everywhere``: under every constant input there is an equilibrium that nearby trajectories leave.

For networks without linear part, :math:`\dot x = B \phi(z)`, :math:`z = C x + D \phi(z) + E u + b` with
:math:`\phi(0) = 0`, and their Euler and midpoint maps, such as the neural ODE and the antisymmetric RNN. Where ``C``
has full row rank, every constant input has a state with :math:`C x = -(E u + b)`; there ``z = 0`` solves the channel
equation, nothing moves, and the Jacobian is the same for every input: that of the slopes :math:`\phi'(0)`. Full rank is
proved by :math:`|I - C R|_\infty < 1` for an approximate right inverse ``R``.
"""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim, Verdict
from stability.rigor.balls import Ball, row_sum_norm
from stability.rigor.eigenpairs import closed_loop
from stability.rules.named_eigenvalue import Unstable
from stability.rules.registry import rule
from stability.statements import describe
from stability.systems import DrivenSystem

__all__ = ["UnstableEverywhere", "why_not_everywhere"]

SMOOTH = ("tanh", "identity")  # phi(0) = 0 and phi'(0) = 1


def why_not_everywhere(subject: DrivenSystem) -> str | None:
    """Why the network may lack an equilibrium with ``z = 0`` under some input; ``None`` where each has one."""
    system = subject.system
    base = system if system.origin is None else system.origin.base
    still = np.eye(base.states) if base.is_discrete else np.zeros((base.states, base.states))
    m = base.channels
    if subject.activation not in SMOOTH or m == 0:
        return f"this proof is about the activations {' and '.join(SMOOTH)}"
    if not np.array_equal(base.A, still) or subject.F.any():
        return "this proof is about networks without a linear part, whose input enters the channels"
    for k in range(m, system.channels, m):  # the stages of the midpoint rule read the same input
        if not (
            np.array_equal(subject.E[k : k + m], subject.E[:m]) and np.array_equal(subject.b[k : k + m], subject.b[:m])
        ):
            return "the stages of the discretisation read different inputs"
    right = np.linalg.pinv(base.C)
    if not (np.isfinite(right).all() and row_sum_norm(np.eye(m) - Ball.exact(base.C) @ right) < 1.0):
        return "C is not proved to have full row rank"
    return None


@rule(
    "unstable_everywhere",
    subject=DrivenSystem,
    claim=("contraction", "equilibrium"),
    verdict=Verdict.REFUTED,
    unfit=why_not_everywhere,
)
class UnstableEverywhere(Unstable):
    """No data but ``eigenvalue`` where the sentence names it."""

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        attracting = "globally asymptotically stable for any constant input"
        return (
            f"{describe(subject)} is not {'contracting' if claim.name == 'contraction' else attracting}: under every "
            f"constant input it has an equilibrium whose Jacobian has {self.phrase(subject.is_discrete)}, so "
            "trajectories that start next to it leave it."
        )

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        matrix = closed_loop(subject.system, Ball.exact(np.ones(subject.system.channels)))
        proved = self.outside(
            matrix, subject.is_discrete, "the eigenvalue of the Jacobian outside the stability region is not proved"
        )
        return f"every constant input has an equilibrium; its Jacobian: {proved}"
