"""Rules for what refutes the contraction of a stack beyond its lowest level.

``merged_stack``: a proof against the stack as one network (``stability.stacks.merged``), checked by that proof's own
rule.

``stack_trajectories``: two simulated runs of the whole stack under one input sequence, constant or periodic, that stay
apart. A replay, not a proof: it supports the verdict inconclusive (see ``gated_trajectories``).
"""

from __future__ import annotations

from typing import Any

from stability.certificate import Claim, Verdict
from stability.gated.cell import GatedCell
from stability.rules.fields import AnyArray, Inner, Text, given, require
from stability.rules.gated_orbits import inputs_of
from stability.rules.gated_trajectories import SIZE, HeldApart, cell_work
from stability.rules.registry import RULES, ProofData, propose, reason_of, rule
from stability.stacks.cascade import Cascade
from stability.stacks.merged import merged
from stability.statements import describe

__all__ = ["MERGED_KINDS", "MergedStack", "StackTrajectories", "work"]

MERGED_KINDS = (
    "unstable_linear",
    "unstable_everywhere",
    "unstable_equilibrium",
    "two_equilibria",
    "periodic_orbits",
    "unstable_orbit",
    "disjoint_boxes",
    "separated_trajectories",
)


@rule("merged_stack", subject=Cascade, claim="contraction", verdict=(Verdict.REFUTED, Verdict.INCONCLUSIVE))
class MergedStack(ProofData):
    """``kind`` and ``data`` of a proof against the merged network; the verdict is that proof's."""

    kind: Text
    data: Inner

    def inner(self, subject: Cascade, claim: Claim) -> tuple[Any, Claim] | None:
        """The merged network and the claim about it, or ``None`` where there is none."""
        whole = merged(subject)
        if whole is None or self.kind not in MERGED_KINDS:
            return None
        return whole, propose(whole, self.kind, self.data, name="contraction", verdict=claim.verdict)

    def sentence(self, subject: Cascade, claim: Claim) -> str:
        inner = self.inner(subject, claim)
        if inner is None:
            return "A statement about stacks of layers."
        answer = "does not contract" if claim.verdict is Verdict.REFUTED else "was not seen to contract"
        return f"{describe(subject)} {answer}, as one network: {inner[1].statement}"

    def check(self, subject: Cascade, claim: Claim) -> str:
        inner = given(
            self.inner(subject, claim),
            f"the stack is no single network free of rounding, or the proof is none of {MERGED_KINDS}",
        )
        return reason_of(RULES[self.kind](*inner))


def work(cascade: Cascade) -> float:
    """Operations of one step, roughly."""
    total = 1.0
    for layer in cascade.layers:
        if isinstance(layer, GatedCell):
            total += cell_work(layer)
        else:
            n, m = layer.system.states, layer.system.channels
            total += n * n + 2.0 * n * m + m * layer.inputs
    return total


def _not_one_way(subject: Cascade) -> str | None:
    one_way = subject.directions == 1 and subject.is_discrete
    return None if one_way else "runs are replayed for discrete stacks with one direction"


@rule(
    "stack_trajectories",
    subject=Cascade,
    claim="contraction",
    verdict=Verdict.INCONCLUSIVE,
    unfit=_not_one_way,
    size=SIZE,
)
class StackTrajectories(HeldApart):
    """``inputs`` (q, p)."""

    inputs: AnyArray

    def sentence(self, subject: Cascade, claim: Claim) -> str:
        return self.seen(subject, self.inputs, "runs of it")

    def check(self, subject: Cascade, claim: Claim) -> str:
        inputs = inputs_of(subject.layers[0], self.inputs)
        reason = self.kept(subject, inputs, work(subject))
        require(reason is None, reason)
        return f"replayed, not proved: the gap stays above {self.gap:.3g} for {self.steps} steps"
