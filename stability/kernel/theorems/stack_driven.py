r"""Theorem ``stack_driven``: contraction of a stack of maps under inputs in a box.

In the skewed state :math:`y_k = (h^1_k, h^2_{k-1}, \dots, h^l_{k-l+1})` a stack is one network
(``delayed_stack``), of which ``driven_lmi`` is proved. All of ``y`` is there from step ``l - 1`` on. Where nothing
is kept of a state (``share`` zero) it is in the first box one step later. Else let ``V`` be the largest of
:math:`|h_i(0)| / r_i` (or of both sides, with ``falls``) over all layers. A layer reads its own state and that of the
layer below, which are within ``max(V, 1)`` times their part of the box one after the other, at whatever steps they are
taken, so that :math:`V^+ - 1 \le q (V - 1)` above one holds from the start on, and all of ``y`` at step ``l - 1`` is
within ``max(V, 1)`` times the box. ``l - 1`` steps more than ``driven_lmi`` counts from the start are therefore enough.

``stack_driven_equilibrium`` and ``stack_driven_bounds`` are ``driven_equilibrium`` and ``driven_bounds`` of that
network: what its states do from a step on, those of the stack's layers do, each at a step of its own up to then.
"""

from __future__ import annotations

from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Count, Refused, require
from stability.kernel.format.sentences import one_equilibrium
from stability.kernel.format.theorem_table import certifies
from stability.kernel.systems.delayed_stack import delayed_network
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.absorbing_sets import why_no_zonotopes
from stability.kernel.theorems.driven_bounds import DrivenBounds
from stability.kernel.theorems.driven_lmi import SIZE, DrivenLmi


def _no_skew(subject: LayerStack) -> str | None:
    network = delayed_network(subject)
    return network if isinstance(network, str) else None


@certifies("stack_driven", subject=LayerStack, claim="driven_contraction", value="rate", unfit=_no_skew, size=SIZE)
class StackDriven(DrivenLmi):
    """Data: ``levels``, the layers ``l``; all else as in ``driven_lmi``, about the skewed state, without ``Y``."""

    levels: Count

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        states = f"The vectors x(k), y(k) hold the layer states h_j(k + 1 - j), j = 1 to {self.levels}."
        return self.contracts(subject, self.levels, states)

    def check(self, subject: LayerStack, claim: Claim) -> str:
        return super().check(_delayed_subject(subject, self), claim)


def _delayed_subject(subject: LayerStack, proof: StackDriven | StackBounds) -> DrivenSystem:
    """Return the stack in its skewed state, checked against the data.

    Raises:
        Refused: they are not, or it has none.
    """
    network = delayed_network(subject)
    if not isinstance(network, DrivenSystem):
        raise Refused(network)
    require(proof.levels == len(subject.layers), "levels must be the number of layers")
    ellipsoid = proof.Y is not None or proof.tau is not None
    require(
        not ellipsoid, "of stacks the first set is a box: an ellipsoid of all layers says nothing of their first steps"
    )
    problem = why_no_zonotopes(network)
    require(problem is None, str(problem))
    return network


@certifies("stack_driven_equilibrium", subject=LayerStack, claim="equilibrium_in_box", unfit=_no_skew, size=SIZE)
class StackEquilibrium(StackDriven):
    """Data of ``stack_driven``."""

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        return one_equilibrium(subject, box=(self.low, self.high))


@certifies(
    "stack_driven_bounds", subject=LayerStack, claim="bounded_in_box", value="diagonal", unfit=_no_skew, size=SIZE
)
class StackBounds(DrivenBounds):
    """Data: ``levels``, the layers; ``least``, ``most`` of all layers' states, one layer after the other."""

    levels: Count

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        return self.bounded(subject, self.levels)

    def check(self, subject: LayerStack, claim: Claim) -> str:
        return super().check(_delayed_subject(subject, self), claim)
