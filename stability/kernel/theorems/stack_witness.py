"""Theorems that refute contraction of a stack by a proof about a layer or the merged network.

``cascade_layer``: a witness against one layer of the lowest level, which reads the input itself.

``merged_stack``: a proof against the network that merges all layers, with matrices that are free of rounding errors.

The inner proof is checked by its own rule, which must refute contraction.
"""

from __future__ import annotations

from typing import Any

from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.fields import Index, Inner, ProofData, Text, require, required
from stability.kernel.format.sentences import NOT_CONTRACTING, theorem
from stability.kernel.format.theorem_table import RULES, reason_of, refutes, worded
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.merged_stack import merged_network

MERGED_KINDS = (
    "unstable_linear",
    "unstable_everywhere",
    "unstable_equilibrium",
    "two_equilibria",
    "periodic_orbits",
    "unstable_orbit",
)
"""Kinds of proof that ``merged_stack`` may contain."""


class DelegatedProof(ProofData):
    """Kind and data of a proof about another subject."""

    kind: Text
    data: Inner

    def about(self, subject: Any) -> Claim:
        """Return the unchecked claim that the other subject does not contract, with the sentence of its rule."""
        return worded(subject, Claim("contraction", "", Verdict.REFUTED, Proof(self.kind, self.data)))


@refutes("cascade_layer", subject=LayerStack)
class WitnessOfLayer(DelegatedProof):
    """Proof about layer number ``layer`` of the lowest level."""

    layer: Index

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        inner = self.about(subject.layers[self.layer]).statement
        return theorem(subject, NOT_CONTRACTING, f"Layer {self.layer}, on the lowest level, is not: {inner}")

    def check(self, subject: LayerStack, claim: Claim) -> str:
        reason = "only a layer of the lowest level, which reads the input itself, refutes the stack"
        require(self.layer < subject.directions, reason)
        known = self.kind in RULES and RULES[self.kind].subject != (LayerStack,)
        require(known, f"unknown kind of proof {self.kind[:60]!r}")
        layer = subject.layers[self.layer]
        return reason_of(RULES[self.kind](layer, self.about(layer)))


@refutes("merged_stack", subject=LayerStack)
class MergedStack(DelegatedProof):
    """Proof against the merged network."""

    def network(self, subject: LayerStack) -> Any:
        """Return the merged network, or ``None`` if there is none or the proof is about another type."""
        return merged_network(subject) if self.kind in MERGED_KINDS else None

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        merged = self.network(subject)
        inner = "A statement about stacks of layers." if merged is None else self.about(merged).statement
        return theorem(subject, NOT_CONTRACTING, f"The stack as one network is not: {inner}")

    def check(self, subject: LayerStack, claim: Claim) -> str:
        reason = f"merging the stack into one network needs rounding, or the kind of proof is none of {MERGED_KINDS}"
        merged = required(self.network(subject), reason)
        return reason_of(RULES[self.kind](merged, self.about(merged)))
