"""Recurrent layers on top of each other, as one layer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.stacks.cascade import Cascade

from .linear import LinearLayer, series
from .recurrent import RecurrentLayer, check_sequence

__all__ = ["Stack"]


class Stack(RecurrentLayer):
    """Layers in sequence: each reads what the one below puts out at the same time step.

    Args:
        layers: recurrent layers, the lowest first.

    Attributes:
        layers: the layers.

    Shapes:
        the state is a tuple with one state for each layer.

    Raises:
        ConfigurationError: no layers, or something that is no layer.
        DimensionError: a layer that cannot read what the one below puts out.

    Example:
        >>> import torch
        >>> from stability.models import ElmanRNN, LipschitzRNN
        >>> stack = Stack([LipschitzRNN(2, 8), ElmanRNN(8, 4)])
        >>> outputs, states = stack(torch.zeros(3, 5, 2))
        >>> outputs.shape, len(states), stack.driven().levels
        (torch.Size([3, 5, 4]), 2, 2)
    """

    layer_name = "stack"

    def __init__(self, layers: Sequence[RecurrentLayer]) -> None:
        super().__init__()
        parts = list(layers) if isinstance(layers, (list, tuple, nn.ModuleList)) else []
        if not parts or not all(isinstance(part, RecurrentLayer) for part in parts):
            raise ConfigurationError(f"a stack needs a list of recurrent layers, got {type(layers).__name__}")
        if any(isinstance(part, Stack) for part in parts):
            raise ConfigurationError("a stack holds layers, not stacks: list all layers in one")
        for k, (below, above) in enumerate(itertools.pairwise(parts), start=1):
            if above.input_size != below.output_size:
                raise DimensionError(f"the input of layer {k}", (below.output_size,), (above.input_size,))
        self.layers = nn.ModuleList(parts)
        self.input_size = parts[0].input_size
        self.hidden_size = parts[-1].hidden_size
        self.output_size = parts[-1].output_size

    def _parts(self) -> Iterator[RecurrentLayer]:
        for layer in self.layers:
            assert isinstance(layer, RecurrentLayer)
            yield layer

    def _states(self, state: Any) -> tuple[Any, ...]:
        if state is None:
            return (None,) * len(self.layers)
        if not isinstance(state, (tuple, list)) or len(state) != len(self.layers):
            raise ConfigurationError(f"the state of a stack is a tuple of {len(self.layers)} states, one a layer")
        return tuple(state)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, tuple[Any, ...]]:
        """Run over a sequence, layer by layer; see ``RecurrentLayer.forward``."""
        after = []
        for layer, own in zip(self._parts(), self._states(state)):
            x, final = layer(x, own)
            after.append(final)
        return x, tuple(after)

    def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, tuple[Any, ...]]:
        """One step of every layer; see ``RecurrentLayer.step``."""
        after = []
        for layer, own in zip(self._parts(), self._states(state)):
            x_t, final = layer.step(x_t, own)
            after.append(final)
        return x_t, tuple(after)

    def prepare(self) -> tuple[Any, ...]:
        """What each layer prepares."""
        return tuple(layer.prepare() for layer in self._parts())

    def drive(self, x: Tensor, prepared: tuple[Any, ...]) -> Tensor:
        """The input itself: what upper layers read is known only step by step."""
        return x

    def initial_state(self, x: Tensor, prepared: tuple[Any, ...]) -> tuple[Any, ...]:
        """The state of every layer before the first step."""
        states = []
        for layer, own in zip(self._parts(), prepared):
            start = layer.initial_state(x, own)
            states.append(start)
            drive = layer.drive(x[:, :1], own)[:, 0]
            x = layer.output(layer.transition(drive, start, own), drive, own).unsqueeze(1)
        return tuple(states)

    def transition(self, drive: Tensor, state: tuple[Any, ...], prepared: tuple[Any, ...]) -> tuple[Any, ...]:
        """One step of every layer, from the lowest up."""
        signal, after = drive, []
        for layer, before, own in zip(self._parts(), state, prepared):
            own_drive = layer.drive(signal.unsqueeze(1), own)[:, 0]
            new = layer.transition(own_drive, before, own)
            signal = layer.output(new, own_drive, own)
            after.append(new)
        return tuple(after)

    def begin(self, x: Tensor, state: Any = None) -> tuple[Any, Any]:
        """The prepared layers and the states to start from, each layer's checked; see ``RecurrentLayer.begin``."""
        check_sequence(x, self.input_size)
        signal, prepared, states = x[:, :1], [], []
        for layer, given in zip(self._parts(), self._states(state)):
            own, start = layer.begin(signal, given)
            prepared.append(own)
            states.append(start)
            drive = layer.drive(signal, own)[:, 0]
            signal = layer.output(layer.transition(drive, start, own), drive, own).unsqueeze(1)
        return tuple(prepared), tuple(states)

    def emit(self, state: tuple[Any, ...]) -> Tensor:
        """The output of the top layer."""
        return list(self._parts())[-1].emit(state[-1])

    def hidden(self, state: tuple[Any, ...]) -> Tensor:
        """The hidden state of the top layer."""
        return list(self._parts())[-1].hidden(state[-1])

    def matrices(self) -> dict[str, Tensor]:
        """The matrices of all layers, as ``A_0``, ``W_0``, ``W_1`` and so on."""
        return {
            f"{name}_{k}": value for k, layer in enumerate(self._parts()) for name, value in layer.matrices().items()
        }

    def driven(self, continuous: bool = False) -> Any:
        """The layers' systems as a cascade; linear layers as one linear system.

        Raises:
            UnsupportedError: when a layer has no system, or puts out something else than its state.
        """
        linear = [layer for layer in self._parts() if isinstance(layer, LinearLayer)]
        if len(linear) == len(self.layers) > 1 and not continuous:
            return series(linear)
        for layer in self._parts():
            if type(layer).emit is not RecurrentLayer.emit and layer.layer_name not in ("lstm", "gru"):
                raise UnsupportedError(
                    f"a cascade needs layers that put out their state, and {type(layer).__name__} does not"
                )
        return Cascade([layer.driven(continuous) for layer in self._parts()])

    def witness(self) -> dict[str, Any] | None:
        """The proofs that the layers carry, where one does.

        Returns:
            ``{"layers": [...]}``, each layer's own witness or ``None``, in the order of ``driven().layers``; ``None``
            where no layer carries one.
        """
        own = [layer.witness() for layer in self._parts()]
        return {"layers": own} if any(one is not None for one in own) else None

    def config(self) -> dict[str, Any]:
        """The layers' names and their keyword arguments."""
        return {"layers": [{"layer": layer.layer_name, "config": layer.config()} for layer in self._parts()]}
