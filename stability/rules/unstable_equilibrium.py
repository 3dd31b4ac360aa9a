r"""Rule ``unstable_equilibrium``: an equilibrium of the network itself that nearby trajectories leave.

Existence of an equilibrium in a box around the stored state is proved by Krawczyk's test, for the stored
constant input; then an eigenvalue outside the stability region is proved for *every* Jacobian over the box.
A network that contracts at an exponential rate has no such equilibrium.
"""

from __future__ import annotations

from stability.certificate import Claim, Verdict
from stability.rigor.balls import Ball, activation_slopes
from stability.rigor.eigenpairs import closed_loop_orbit
from stability.rigor.equilibria import enclose_equilibrium
from stability.rules.fields import Input, State, given, require
from stability.rules.named_eigenvalue import Unstable
from stability.rules.registry import rule
from stability.statements import describe
from stability.systems import DrivenSystem

__all__ = ["UnstableEquilibrium", "smooth_slopes"]


def smooth_slopes(name: str, channels: Ball) -> Ball:
    """The activation's slopes over boxes of pre-activations.

    Raises:
        Refused: there may be no Jacobian.
    """
    slopes = activation_slopes(name, channels)
    smooth = name not in ("relu", "leaky_relu") or not slopes.rad.any()
    require(smooth, "the orbit may pass a kink of the activation, where there is no Jacobian")
    return slopes


@rule(
    "unstable_equilibrium",
    subject=DrivenSystem,
    claim=("contraction", "equilibrium"),
    verdict=Verdict.REFUTED,
    size="state and input must be finite and of the network's sizes",
)
class UnstableEquilibrium(Unstable):
    """A state and the constant input under which it is at rest."""

    state: State
    input: Input

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        attracting = "globally asymptotically stable for every constant input"
        return (
            f"{describe(subject)} is not {'contracting' if claim.name == 'contraction' else attracting}: under the "
            f"constant input of the proof it has an equilibrium whose Jacobian has {self.phrase(subject.is_discrete)}, "
            "so trajectories that start next to it leave it."
        )

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        found = given(
            enclose_equilibrium(subject, self.state, self.input),
            "no equilibrium is proved to exist at the stored state and input",
        )
        matrix = closed_loop_orbit(subject.system, smooth_slopes(subject.activation, found.channels))
        proved = self.outside(
            matrix, subject.is_discrete, "the eigenvalue of the Jacobian outside the stability region is not proved"
        )
        where = float(found.states.rad.max())
        return f"an equilibrium within {where:.1e} of the stored state; its Jacobian: {proved}"
