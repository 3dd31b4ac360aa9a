r"""Rule ``stack_driven``: contraction of a stack of maps under inputs in a box.

In the skewed state :math:`y_k = (h^1_k, h^2_{k-1}, \dots, h^l_{k-l+1})` a stack is one network without feedthrough
(``stacks/skewed.py``), of which ``driven_lmi`` is proved. All of ``y`` is there from step ``l - 1`` on, one step later
it is in the box, and ``l`` steps after the sets of that proof have settled its bound begins.
"""

from __future__ import annotations

from stability.certificate import Claim
from stability.rules.absorbed import inputs_in_box
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
        network = skewed(subject)
        if not isinstance(network, DrivenSystem):
            raise Refused(network)
        require(self.levels == len(subject.layers), "levels must be the number of layers")
        require(self.share == 0.0, "share must be zero: these layers keep nothing of their state")
        return super().check(network, claim)
