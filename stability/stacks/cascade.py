"""A stack of recurrent layers as one subject: each layer reads what the layers of the level below put out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError
from stability.gated.bounds import invariant_box
from stability.gated.cell import GatedCell
from stability.systems import DrivenSystem
from stability.systems.activations import activation
from stability.systems.parts import as_part
from stability.systems.subjects import Subject
from stability.wire import subject

__all__ = ["Cascade"]

Array = np.ndarray
Layer = DrivenSystem | GatedCell


@subject("cascade")
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Cascade(Subject):
    r"""Recurrent layers on top of each other, one direction or two.

    Level ``k`` consists of ``directions`` layers, which do not see each other. Each reads the outputs of all layers
    of level ``k - 1`` at the same time step, one after the other in one vector; level 0 reads the input. A layer puts
    out its state (an LSTM: ``h``). With two directions the second layer of a level runs through the sequence
    backwards, as in a bidirectional ``torch.nn.RNN``.

    A gated layer above level 0 gets the box of what it reads as its input box: the hidden units of gated layers lie
    in their invariant box, those of a bounded activation within its bound.

    Args:
        layers: ``DrivenSystem`` or ``GatedCell``, level by level.
        directions: layers a level, 1 or 2.
        name: what reports call it.
        part: ``"PATH of WHOLE"`` for a part of something bigger, see ``stability.systems.parts``.

    Raises:
        ConfigurationError: an empty stack, other subjects, layers with different time bases, two directions that are
            promised different inputs.
        DimensionError: a layer that cannot read what the level below puts out.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> stack = Cascade([cell, cell])
        >>> stack.states, stack.inputs, stack.levels
        (2, 1, 2)
    """

    layers: tuple[Layer, ...]
    directions: int
    name: str
    part: str

    def __init__(self, layers: Sequence[Layer], *, directions: int = 1, name: str = "stack", part: str = "") -> None:
        if directions not in (1, 2) or isinstance(directions, bool):
            raise ConfigurationError(f"directions must be 1 or 2, got {directions!r}")
        parts = tuple(layers)
        if not parts or len(parts) % directions:
            raise ConfigurationError(f"a stack needs {directions} layers a level, got {len(parts)} in all")
        for layer in parts:
            if not isinstance(layer, (DrivenSystem, GatedCell)):
                raise ConfigurationError(
                    f"a layer of a stack must be a DrivenSystem or a GatedCell, got {type(layer).__name__}"
                )
        if len({layer.is_discrete for layer in parts}) > 1:
            raise ConfigurationError("the layers of a stack must all be discrete or all continuous in time")
        if directions == 2 and not parts[0].is_discrete:
            raise ConfigurationError("a stack with two directions must be discrete in time")
        done: list[Layer] = []
        for k, layer in enumerate(parts):
            level = k // directions
            below = done[(level - 1) * directions : level * directions] if level else [parts[0]]
            width = sum(p.outputs for p in below) if level else parts[0].inputs
            if layer.inputs != width:
                raise DimensionError(f"the input of layer {k}", (width,), (layer.inputs,), "it reads the level below")
            if level and isinstance(layer, GatedCell) and layer.input_low is None:
                layer = _with_outputs_of(layer, below)
            done.append(layer)
        _refuse_two_boxes(done[:directions])
        self._set(layers=tuple(done), directions=directions, name=str(name), part=as_part(part))

    def __repr__(self) -> str:
        return f"Cascade({len(self.layers)} layers, directions={self.directions}, name={self.name!r})"

    @property
    def levels(self) -> int:
        """Number of levels."""
        return len(self.layers) // self.directions

    @property
    def states(self) -> int:
        """Size of all states together."""
        return sum(layer.states for layer in self.layers)

    @property
    def inputs(self) -> int:
        """Number of inputs of the lowest level."""
        return self.layers[0].inputs

    @property
    def is_discrete(self) -> bool:
        """Whether time advances in steps."""
        return self.layers[0].is_discrete

    def with_inputs(self, low: Any, high: Any) -> Cascade:
        """The same stack with a promise about the inputs of its lowest level; boxes above are worked out anew."""
        layers: list[Layer] = []
        for k, layer in enumerate(self.layers):
            if isinstance(layer, GatedCell):
                layer = layer.with_inputs(low, high) if k < self.directions else layer.with_inputs(None, None)
            layers.append(layer)
        return Cascade(layers, directions=self.directions, name=self.name, part=self.part)

    def below(self, index: int) -> range:
        """Indices of the layers that layer ``index`` reads; empty on the lowest level."""
        level = index // self.directions
        return range(max(level - 1, 0) * self.directions, level * self.directions)

    def advance(self, state: Array, u: Array) -> Array:
        """One step of a discrete stack with one direction: ``(..., n)``, ``(..., p)`` to ``(..., n)``.

        Raises:
            ConfigurationError: for a continuous stack or two directions.
        """
        if self.directions != 1 or not self.is_discrete:
            raise ConfigurationError("only a discrete stack with one direction advances step by step")
        parts, at, signal = [], 0, np.asarray(u, dtype=np.float64)
        for layer in self.layers:
            new = layer.advance(np.asarray(state, dtype=np.float64)[..., at : at + layer.states], signal)
            at += layer.states
            parts.append(new)
            signal = layer.output(new)
        return np.concatenate(parts, axis=-1)


def output_bound(layer: Layer) -> float:
    """``b`` with ``|x| <= b`` for what a layer without invariant box puts out from its first step on; may be infinite.

    Only the plain map ``x+ = phi(C x + E u + b)`` with a bounded activation has one.
    """
    if isinstance(layer, GatedCell) or not layer.system.is_discrete:
        return float("inf")
    system = layer.system
    plain = not system.A.any() and not layer.F.any() and np.array_equal(system.B, np.eye(system.states))
    return activation(layer.activation).bound if plain else float("inf")


def _refuse_two_boxes(lowest: Sequence[Layer]) -> None:
    """The layers of the lowest level read one and the same input, so there is one promise about it."""
    first, *others = [(getattr(layer, "input_low", None), getattr(layer, "input_high", None)) for layer in lowest]
    for box in others:
        if not all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(first, box)):
            raise ConfigurationError(
                "both directions of the lowest level read the same input and must be given the same input box"
            )


def _with_outputs_of(cell: GatedCell, below: Sequence[Layer]) -> GatedCell:
    low, high = [], []
    for layer in below:
        if isinstance(layer, GatedCell):
            box = invariant_box(layer)
            m = layer.hidden
            low.append(np.full(m, -1.0) if box is None else box.low[:m])
            high.append(np.full(m, 1.0) if box is None else box.high[:m])
        else:
            bound = output_bound(layer)
            if not np.isfinite(bound):
                return cell
            low.append(np.full(layer.outputs, -bound))
            high.append(np.full(layer.outputs, bound))
    return cell.with_inputs(np.concatenate(low), np.concatenate(high))
