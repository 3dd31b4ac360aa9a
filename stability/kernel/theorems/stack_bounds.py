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
from stability.kernel.format.sentences import at_most, phrase_of
from stability.kernel.format.theorem_table import certifies
from stability.kernel.reachability.backward_bounds import steps_made
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import Layer, LayerStack
from stability.kernel.theorems.absorbing_sets import BOX, inputs_in_box
from stability.kernel.theorems.driven_bounds import ENDS, within_diagonal
from stability.kernel.theorems.stack_contraction import BOUNDS, cell_names, proved_layers, require_parts

Array = np.ndarray
SIDES = {
    "driven_bounds": ("least", "most"),
    "gated_bounds": ("low", "high"),
    "flow_bounds": ("least_state", "most_state"),
}
"""Names of the box bounds in a layer's proof."""


def _two_ways(subject: LayerStack) -> str | None:
    return None if subject.directions == 1 else "where a stack ends is proved for stacks with one direction"


def restrict_inputs(layer: Layer, low: Array, high: Array) -> Layer:
    """Return the layer with its input box; a network's proof states the box itself."""
    return layer.with_inputs(low, high) if isinstance(layer, GatedCell) else layer


def steps_named(data: Mapping[str, Any]) -> int | None:
    """Return the step from which on a proved layer is in its box; ``None`` if it depends on the start."""
    if data.get("share") != 0.0:
        return None
    return steps_made(data["steps"], data.get("backward")) + 1


@certifies("cascade_bounds", subject=LayerStack, claim="bounded_in_box", value="diagonal", unfit=_two_ways)
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
        gated = any(isinstance(layer, GatedCell) for layer in subject.layers)
        deep = any(isinstance(layer, GatedCell) and layer.kind == "lstm" for layer in subject.layers)
        since = f"some {'step' if subject.is_discrete else 'time'} on"
        if self.since is not None:
            since = f"step K = {self.since} on, wherever it starts"
        return (
            f"For {phrase_of(subject)}, {cell_names(subject)}, under every input with "
            f"{inputs_in_box(self.low, self.high)} at all times: from {since}, every "
            f"run{' in whose gated layers |h| <= 1 at its start' if gated else ''} "
            f"stays in the box least_i <= x_i <= most_i of the proof, x the states of all layers"
            f"{', of an LSTM h before c' if deep else ''}, whose diagonal is {at_most(self.diagonal)} long. "
            "Nothing is said about other inputs."
        )

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
            own = slice(at, at + layer.states)
            held = (self.least[own] <= data[least]).all() and (data[most] <= self.most[own]).all()
            require(held, f"the states of layer {k} may leave the box")
            low, high, at = layer.output(data[least]), layer.output(data[most]), own.stop
            if self.since is not None:
                named = steps_named(data) if part["kind"] == "driven_bounds" else None
                require(named is not None, f"layer {k} names no step from which on it is in its box")
                since += named or 0
        require(self.since is None or self.since >= since, f"the layers' steps add up to {since}, not to {self.since}")
        wide = within_diagonal(self.least, self.most, self.diagonal)
        return f"all {len(subject.layers)} layers are proved to end in their boxes, {wide:.3g} wide on average"
