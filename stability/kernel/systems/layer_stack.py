"""Stacks of recurrent layers: each layer reads the outputs of the level below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.format.serialization import subject
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_bounds import invariant_box, round_cost
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.systems.parts import as_part, origin_phrase, part_phrase
from stability.kernel.systems.subjects import Subject

Array = np.ndarray
Layer = DrivenSystem | GatedCell | PairwiseSystem
_MAX_OPERATIONS = 1e10
"""Operations for the output box of one gated layer: a few seconds, or two sweeps of bounds for a thousand units."""


@subject("cascade")
@dataclass(frozen=True, eq=False, repr=False)
class LayerStack(Subject):
    r"""Stack of recurrent layers with one or two directions.

    Level ``k`` consists of ``directions`` layers, which do not read each other. Each reads the concatenated outputs
    of all layers of level ``k - 1`` at the same time step; level 0 reads the input. The output of a layer is its
    state (LSTM: ``h``). With two directions the second layer of a level runs through the sequence
    backwards, as in a bidirectional ``torch.nn.RNN``.

    The input box of a gated layer above level 0 is a box of the outputs of the level below: the invariant box of gated
    layers, and the bound of the activation for other layers.

    Args:
        layers: ``DrivenSystem``, ``GatedCell`` or ``PairwiseSystem``, level by level.
        directions: layers per level, 1 or 2.
        name: name in reports.
        part: ``"PATH of WHOLE"`` for a part of a larger model, see ``stability.kernel.systems.parts``.

    Raises:
        ConfigurationError: no layers, layers of another type, layers with different time bases, or two directions with
            different input boxes.
        DimensionError: a layer whose input size differs from the output size below.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> stack = LayerStack([cell, cell])
        >>> stack.states, stack.inputs, stack.levels
        (2, 1, 2)
    """

    layers: Sequence[Layer]
    _: KW_ONLY
    directions: int = 1
    name: str = "stack"
    part: str = ""

    def __post_init__(self) -> None:
        directions, parts = self.directions, tuple(self.layers)
        if directions not in (1, 2) or isinstance(directions, bool):
            raise ConfigurationError(f"directions must be 1 or 2, got {directions!r}")
        _refuse_other_layers(parts, directions)
        checked: list[Layer] = []
        for k, layer in enumerate(parts):
            level = k // directions
            below = checked[(level - 1) * directions : level * directions] if level else []
            width = sum(p.outputs for p in below) if level else parts[0].inputs
            if layer.inputs != width:
                raise DimensionError(f"the input of layer {k}", (width,), (layer.inputs,), "it reads the level below")
            checked.append(_with_outputs_of(layer, below) if level else layer)
        _refuse_two_boxes(checked[:directions])
        self._set(layers=tuple(checked), name=str(self.name), part=as_part(self.part))

    def __repr__(self) -> str:
        return f"LayerStack({len(self.layers)} layers, directions={self.directions}, name={self.name!r})"

    @property
    def levels(self) -> int:
        """Number of levels."""
        return len(self.layers) // self.directions

    @property
    def states(self) -> int:
        """Total size of the states of all layers."""
        return sum(layer.states for layer in self.layers)

    @property
    def inputs(self) -> int:
        """Number of inputs of the lowest level."""
        return self.layers[0].inputs

    @property
    def is_discrete(self) -> bool:
        """True if time advances in steps."""
        return self.layers[0].is_discrete

    @property
    def phrase(self) -> str:
        """Description of the stack in the sentence of a claim."""
        title = part_phrase(self, f"stack of {len(self.layers)} layers")
        kinds = ", ".join(layer.kind_name for layer in self.layers)
        return f"{title} ({kinds}; stored weights and biases{origin_phrase(self)}, exact arithmetic)"

    def with_inputs(self, low: Any, high: Any) -> LayerStack:
        """Return the stack with an input box of its lowest level; the boxes above are recomputed."""
        layers = [
            layer.with_inputs(*((low, high) if k < self.directions else (None, None)))
            for k, layer in enumerate(self.layers)
        ]
        return replace(self, layers=layers)

    def layers_read_by(self, index: int) -> range:
        """Return the indices of the layers that layer ``index`` reads; empty on the lowest level."""
        level = index // self.directions
        return range(max(level - 1, 0) * self.directions, level * self.directions)

    def advance(self, state: Array, u: Array) -> Array:
        """Run one step of a discrete stack with one direction: ``(..., n)``, ``(..., p)`` to ``(..., n)``.

        Raises:
            ConfigurationError: for a continuous stack or two directions.
        """
        if self.directions != 1 or not self.is_discrete:
            raise ConfigurationError("only a discrete stack with one direction advances step by step")
        parts, offset, signal = [], 0, np.asarray(u, dtype=np.float64)
        for layer in self.layers:
            new = layer.advance(np.asarray(state, dtype=np.float64)[..., offset : offset + layer.states], signal)
            offset += layer.states
            parts.append(new)
            signal = layer.output(new)
        return np.concatenate(parts, axis=-1)


Cascade = LayerStack
"""Former public name; certificate files still use ``"cascade"``."""


def _refuse_other_layers(layers: tuple[Layer, ...], directions: int) -> None:
    """Raise an error for layers that do not form a stack."""
    if not layers or len(layers) % directions:
        raise ConfigurationError(f"a stack needs {directions} layers per level, got {len(layers)} in all")
    for layer in layers:
        if not isinstance(layer, Layer):
            raise ConfigurationError(
                "a layer of a stack must be a DrivenSystem, a GatedCell or a PairwiseSystem, got a "
                f"{type(layer).__name__}"
            )
    if len({layer.is_discrete for layer in layers}) > 1:
        raise ConfigurationError("the layers of a stack must all be discrete or all continuous in time")
    if directions == 2 and not layers[0].is_discrete:
        raise ConfigurationError("a stack with two directions must be discrete in time")


def _refuse_two_boxes(lowest: Sequence[Layer]) -> None:
    """Raise an error for two input boxes on the lowest level, whose layers read the same input."""
    first, *others = [(layer.input_low, layer.input_high) for layer in lowest]
    if not all(np.array_equal(np.asarray(a), np.asarray(b)) for box in others for a, b in zip(first, box)):
        raise ConfigurationError(
            "both directions of the lowest level read the same input and must be given the same input box"
        )


def _output_box(layer: Layer) -> tuple[Array, Array]:
    """Return a box ``(m,)``, ``(m,)`` of a layer's outputs from the first step on; its ends may be infinite."""
    box = None
    if isinstance(layer, GatedCell):
        box = invariant_box(layer, sweeps=int(min(max(_MAX_OPERATIONS / round_cost(layer), 1), 100)))
    return layer.output_box() if box is None else (layer.output(box.low), layer.output(box.high))


def _with_outputs_of(layer: Layer, below: Sequence[Layer]) -> Layer:
    """Return the layer with the output box of the level below as input box, if it needs one and has none."""
    if not layer.rests_on_boxes or layer.input_low is not None:
        return layer
    low, high = (np.concatenate(ends) for ends in zip(*map(_output_box, below)))
    return layer.with_inputs(low, high) if np.isfinite(high).all() else layer
