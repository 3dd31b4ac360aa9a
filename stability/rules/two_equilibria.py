"""Rule ``two_equilibria``: two different equilibria under one constant input, each proved to exist.

Both are trajectories under the same input, and their distance never changes.
"""

from __future__ import annotations

from stability.certificate import Claim, Verdict
from stability.rigor.equilibria import distance, enclose_equilibrium
from stability.rules.fields import Input, State, given, require
from stability.rules.registry import ProofData, rule
from stability.statements import describe
from stability.systems import DrivenSystem

__all__ = ["TwoEquilibria"]


@rule(
    "two_equilibria",
    subject=DrivenSystem,
    claim=("contraction", "equilibrium"),
    verdict=Verdict.REFUTED,
    size="state1, state2 and input must be finite vectors of the network's sizes",
)
class TwoEquilibria(ProofData):
    """Two states and the constant input under which they are at rest."""

    state1: State
    state2: State
    input: Input

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        attracting = "globally attracted by one equilibrium for every constant input"
        return (
            f"{describe(subject)} is not {'contracting' if claim.name == 'contraction' else attracting}: under the "
            "constant input of the proof it has two different equilibria, whose distance never changes."
        )

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        boxes = []
        for place, state in (("first", self.state1), ("second", self.state2)):
            box = given(
                enclose_equilibrium(subject, state, self.input),
                f"no equilibrium is proved to exist at the {place} state",
            )
            boxes.append(box.states)
        gap = distance(*boxes)
        require(gap > 0.0, "the two boxes overlap: the equilibria may be the same")
        return f"two equilibria proved to exist, at least {gap:.3g} apart"
