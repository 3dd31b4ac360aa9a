r"""Theorem ``cascade_bounds``: absorbing boxes of a stack under inputs in a box, layer by layer.

Every layer brings a proof of its own about where it ends under inputs in a box, ``driven_bounds``, ``gated_bounds`` or
``flow_bounds``, each checked by its own rule: the lowest layer's box holds the inputs that the claim is about, every
other's holds the box in which what the layer below puts out is proved to end. From the moment when the layer below is
in its box a run of a layer is one under inputs in the box of its own proof, begun at that moment; what a layer did
before is a start like any other (of a gated layer ``|h| <= 1`` is kept under whatever input). So all layers end in
their boxes, and where each names the step from which on it does, wherever it starts, the sum of these steps will do
for the stack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Count, Input, Number, Parts, ProofData, State, require
from stability.kernel.format.sentences import stays_in_box
from stability.kernel.format.theorem_table import certifies
from stability.kernel.reachability.backward_bounds import steps_made
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import Layer, LayerStack
from stability.kernel.theorems.absorbing_sets import BOX
from stability.kernel.theorems.driven_bounds import ENDS, within_diagonal
from stability.kernel.theorems.stack_contraction import (
    BOUNDS,
    proved_layers,
    require_parts,
    start_of_layers,
    two_ways,
)

Array = np.ndarray
SIDES = {
    "driven_bounds": ("least", "most"),
    "gated_bounds": ("low", "high"),
    "flow_bounds": ("least_state", "most_state"),
}
"""Names of the box bounds in a layer's proof."""


def restrict_inputs(layer: Layer, low: Array, high: Array) -> Layer:
    """Return the layer with its input box; a network's proof states the box itself."""
    return layer.with_inputs(low, high) if isinstance(layer, GatedCell) else layer


def steps_named(data: Mapping[str, Any]) -> int | None:
    """Return the step from which on a proved layer is in its box; ``None`` if it depends on the start."""
    if data.get("share") != 0.0:
        return None
    return steps_made(data["steps"], data.get("backward")) + 1


@certifies("cascade_bounds", subject=LayerStack, claim="bounded_in_box", value="diagonal", unfit=two_ways)
class StackEnds(ProofData):
    """Data: ``low``, ``high`` (p,), the box of inputs; ``layers``, kind, data and value (``rate``) of each layer's
    proof; ``least``, ``most`` of all layers' states, one layer after the other; ``since``, the sum of the steps.
    """

    low: Annotated[Input, BOX]
    high: Annotated[Input, BOX]
    layers: Parts
    least: Annotated[State, ENDS]
    most: Annotated[State, ENDS]
    diagonal: Number
    since: Count | None = None

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        more = [f"The proof does not bound {'K' if subject.is_discrete else 'T'}, which depends on the trajectory."]
        if self.since is not None:
            more = [f"Here K = {self.since} for all initial states."]
        if any(isinstance(layer, GatedCell) and layer.kind == "lstm" for layer in subject.layers):
            more.append("In an LSTM layer, h comes before c.")
        box, start = (self.low, self.high), start_of_layers(subject)
        return stays_in_box(subject, box, ("least", "most"), self.diagonal, *more, start=start)

    def check(self, subject: LayerStack, claim: Claim) -> str:
        require((self.low <= self.high).all(), BOX.format(p=subject.inputs))
        require((self.least <= self.most).all(), ENDS.format(n=subject.states))
        require_parts(self.layers, subject.layers)
        low, high, at, since = self.low, self.high, 0, 0
        for k, (layer, part) in enumerate(zip(subject.layers, self.layers)):
            proved_layers([restrict_inputs(layer, low, high)], [part], BOUNDS, "box where it ends is proved", first=k)
            data, (least, most) = part["data"], SIDES[part["kind"]]
            if not isinstance(layer, GatedCell):
                held = (data["low"] <= low).all() and (high <= data["high"]).all()
                require(held, f"layer {k} may read values outside the input box of its proof")
            states = slice(at, at + layer.states)
            held = (self.least[states] <= data[least]).all() and (data[most] <= self.most[states]).all()
            require(held, f"the states of layer {k} may leave the box")
            low, high, at = layer.output(data[least]), layer.output(data[most]), states.stop
            if self.since is not None:
                named = steps_named(data) if part["kind"] == "driven_bounds" else None
                require(named is not None, f"layer {k} names no step from which on it is in its box")
                since += named or 0
        require(self.since is None or self.since >= since, f"the layers' steps add up to {since}, not to {self.since}")
        wide = within_diagonal(self.least, self.most, self.diagonal)
        return f"all {len(subject.layers)} layers are proved to end in their boxes, of mean width {wide:.3g}"
