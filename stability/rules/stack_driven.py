r"""Rule ``stack_driven``: contraction of a stack of maps under inputs in a box.

In the skewed state :math:`y_k = (h^1_k, h^2_{k-1}, \dots, h^l_{k-l+1})` a stack is one network without feedthrough
(``stacks/skewed.py``), of which ``driven_lmi`` is proved. All of ``y`` is there from step ``l - 1`` on, one step later
it is in the box, and ``l`` steps after the sets of that proof have settled its bound begins.

``stack_driven_equilibrium`` and ``stack_driven_bounds`` are ``driven_equilibrium`` and ``driven_bounds`` of that
network: what its states do from a step on, those of the stack's layers do, each at a step of its own up to then.
"""

from __future__ import annotations

from stability.certificate import Claim
from stability.rules.absorbed import inputs_in_box
from stability.rules.driven_bounds import DrivenBounds
from stability.rules.driven_lmi import SIZE, DrivenLmi
from stability.rules.fields import Count, Refused, require
from stability.rules.registry import certifies
from stability.stacks.skewed import skewed
from stability.stacks.stack import LayerStack
from stability.statements import at_most, decay_factor, who
from stability.systems import DrivenSystem


def _no_skew(subject: LayerStack) -> str | None:
    found = skewed(subject)
    return found if isinstance(found, str) else None


@certifies(
    "stack_driven",
    subject=LayerStack,
    claim="driven_contraction",
    value="rate",
    unfit=_no_skew,
    size=SIZE,
)
class StackDriven(DrivenLmi):
    """``levels``: the layers, ``l``; all else as of ``driven_lmi``, about the skewed state; ``share`` is zero."""

    levels: Count

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        decay = decay_factor(self.rate, True).replace("^k", "^(k-K)")
        return (
            f"For {who(subject)} under every input with {inputs_in_box(self.low, self.high)} at all times: from step "
            f"K = {self.settled + self.levels} on, wherever they start, the difference d(k) of the states "
            f"h_j(k + 1 - j) of all layers j = 1 to {self.levels} in any two runs satisfies |d(k)| <= "
            f"{at_most(self.overshoot)} * {decay} |d(K)|. Nothing is said about other inputs."
        )

    def check(self, subject: LayerStack, claim: Claim) -> str:
        return super().check(_whole(subject, self.levels, self.share), claim)


def _whole(subject: LayerStack, levels: int, share: float) -> DrivenSystem:
    """The stack in its skewed state, where the data are about it.

    Raises:
        Refused: they are not, or it has none.
    """
    network = skewed(subject)
    if not isinstance(network, DrivenSystem):
        raise Refused(network)
    require(levels == len(subject.layers), "levels must be the number of layers")
    require(share == 0.0, "share must be zero: these layers keep nothing of their state")
    return network


@certifies("stack_driven_equilibrium", subject=LayerStack, claim="equilibrium_in_box", unfit=_no_skew, size=SIZE)
class StackEquilibrium(StackDriven):
    """The data of ``stack_driven``."""

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        return (
            f"For {who(subject)}: for every constant input with {inputs_in_box(self.low, self.high)} there is exactly "
            "one equilibrium of all layers, and every run approaches it under that input. Nothing is said about other "
            "inputs."
        )


@certifies(
    "stack_driven_bounds", subject=LayerStack, claim="bounded_in_box", value="diagonal", unfit=_no_skew, size=SIZE
)
class StackBounds(DrivenBounds):
    """``levels``: the layers; ``least``, ``most``: of all layers' states, one layer after the other."""

    levels: Count

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        return (
            f"For {who(subject)} under every input with {inputs_in_box(self.low, self.high)} at all times: from step "
            f"K = {self.settled + self.levels} on, wherever it starts, every run stays in the box least_i <= h_i <= "
            f"most_i of the proof, h the states of all layers, whose diagonal is {at_most(self.diagonal)} long. "
            "Nothing is said about other inputs."
        )

    def check(self, subject: LayerStack, claim: Claim) -> str:
        return super().check(_whole(subject, self.levels, self.share), claim)
