"""Stack of recurrent layers as one layer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.opaque import OpaqueMap
from stability.systems import GatedLinearLayer

from .linear import LinearLayer, series
from .opaque import opaque_map
from .options import constructor_arguments, positive_int
from .recurrent import RecurrentLayer
from .tensors import check_sequence


class Stack(RecurrentLayer):
    """Stack of recurrent layers, each of which reads the output of the layer below at the same time step.

    Args:
        layers: recurrent layers, the lowest first.

    Attributes:
        layers: the layers.

    Shapes:
        the state is a tuple with one state for each layer.

    Raises:
        ConfigurationError: no layers, or an element that is not a recurrent layer.
        DimensionError: a layer whose input size differs from the output size below.

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
            raise ConfigurationError("a stack must not contain stacks: list all layers in one")
        for k, (earlier, above) in enumerate(itertools.pairwise(parts), start=1):
            if above.input_size != earlier.output_size:
                raise DimensionError(f"the input of layer {k}", (earlier.output_size,), (above.input_size,))
        self.layers = nn.ModuleList(parts)
        self.input_size = parts[0].input_size
        self.hidden_size = parts[-1].hidden_size
        self.output_size = parts[-1].output_size

    @property
    def prescribed_gain(self) -> float | None:
        """Return the product of the last layer's gain and the lower layers' sequence gains, if all prescribe one."""
        return _product([*map(_sequence_gain, self.parts[:-1]), self.parts[-1].prescribed_gain])

    @property
    def prescribed_sequence_gain(self) -> float | None:
        """Return the product of all layers' sequence gains, if all prescribe one."""
        return _product([_sequence_gain(layer) for layer in self.parts])

    @property
    def parts(self) -> list[RecurrentLayer]:
        """Layers, the lowest first."""
        return list(self.layers)  # type: ignore[arg-type]

    def _states(self, state: Any) -> tuple[Any, ...]:
        if state is None:
            return (None,) * len(self.layers)
        if not isinstance(state, (tuple, list)) or len(state) != len(self.layers):
            raise ConfigurationError(f"the state of a stack is a tuple of {len(self.layers)} states, one per layer")
        return tuple(state)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, tuple[Any, ...]]:
        """Run over a sequence, layer by layer; see ``RecurrentLayer.forward``."""
        return self._run_layers(nn.Module.__call__, x, state)

    def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, tuple[Any, ...]]:
        """Run one step of every layer; see ``RecurrentLayer.step``."""
        return self._run_layers(lambda layer, signal, layer_state: layer.step(signal, layer_state), x_t, state)

    def _run_layers(self, run: Callable[..., Any], signal: Tensor, state: Any) -> tuple[Tensor, tuple[Any, ...]]:
        """Apply ``run(layer, signal, state) -> output, state after`` from the lowest layer up."""
        next_states = []
        for layer, layer_state in zip(self.parts, self._states(state)):
            signal, final = run(layer, signal, layer_state)
            next_states.append(final)
        return signal, tuple(next_states)

    def prepare(self) -> tuple[Any, ...]:
        """Return the prepared matrices of each layer."""
        return tuple(layer.prepare() for layer in self.parts)

    def drive(self, x: Tensor, prepared: tuple[Any, ...]) -> Tensor:
        """Return the input itself; the inputs of upper layers are known only step by step."""
        return x

    def initial_state(self, x: Tensor, prepared: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the state of every layer before the first step."""
        return self.begin(x)[1]

    def transition(self, drive: Tensor, state: tuple[Any, ...], prepared: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run one step of every layer, from the lowest up."""
        signal, next_states = drive, []
        for layer, before, layer_prepared in zip(self.parts, state, prepared):
            own_drive = layer.drive(signal.unsqueeze(1), layer_prepared)[:, 0]
            next_states.append(layer.transition(own_drive, before, layer_prepared))
            signal = layer.output(next_states[-1], own_drive, layer_prepared)
        return tuple(next_states)

    def begin(self, x: Tensor, state: Any = None) -> tuple[Any, Any]:
        """Return the prepared layers and the checked initial states; see ``RecurrentLayer.begin``."""
        check_sequence(x, self.input_size)
        signal, prepared, states = x[:, :1], [], []
        for layer, layer_state in zip(self.parts, self._states(state)):
            (step,) = layer.walk(signal, layer_state)
            prepared.append(step.prepared)
            states.append(step.before)
            signal = layer.output(step.after, step.drive, step.prepared).unsqueeze(1)
        return tuple(prepared), tuple(states)

    def emit(self, state: tuple[Any, ...]) -> Tensor:
        """Return the output of the top layer."""
        return self.parts[-1].emit(state[-1])

    def output(self, state: tuple[Any, ...], drive: Tensor, prepared: tuple[Any, ...]) -> Tensor:
        """Return the output of the top layer, also if it depends on that layer's drive."""
        for layer, next_state, layer_prepared in zip(self.parts, state, prepared):
            drive = layer.output(next_state, layer.drive(drive.unsqueeze(1), layer_prepared)[:, 0], layer_prepared)
        return drive

    def hidden(self, state: tuple[Any, ...]) -> Tensor:
        """Return the hidden state of the top layer."""
        return self.parts[-1].hidden(state[-1])

    def hidden_states(self, state: tuple[Any, ...]) -> list[Tensor]:
        """Return the hidden states of all layers, the lowest first."""
        return [h for layer, layer_state in zip(self.parts, state) for h in layer.hidden_states(layer_state)]

    def system_state(self, state: tuple[Any, ...]) -> Tensor:
        """Return the states of all layers side by side, as in the stack of their systems."""
        return torch.cat([layer.system_state(layer_state) for layer, layer_state in zip(self.parts, state)], 1)

    def matrices(self) -> dict[str, Tensor]:
        """Return the matrices of all layers, as ``A_0``, ``W_0``, ``W_1`` and so on."""
        return {f"{name}_{k}": value for k, layer in enumerate(self.parts) for name, value in layer.matrices().items()}

    def driven(self, continuous: bool = False) -> Any:
        """Return a ``LayerStack`` of the layers' systems; one system if all are linear, opaque if one is no map.

        Raises:
            UnsupportedError: a layer whose output is not its state.
        """
        linear = [layer for layer in self.parts if isinstance(layer, LinearLayer)]
        if len(linear) == len(self.layers) > 1 and not continuous:
            return series(linear)
        subjects = [layer.driven(continuous) for layer in self.parts]
        if any(isinstance(subject, (OpaqueMap, GatedLinearLayer)) for subject in subjects):
            states = sum(subject.states for subject in subjects)
            return opaque_map(self, states, self.input_size, "no theorem covers one of its layers", "stack")
        for layer in self.parts:
            if not layer.outputs_hidden:
                raise UnsupportedError(
                    f"a stack needs layers whose output is their state; the output of {type(layer).__name__} is not"
                )
        return LayerStack(subjects)

    def witness(self) -> dict[str, Any] | None:
        """Return the proofs that the layers carry by construction, if any.

        Returns:
            ``{"layers": [...]}``, each layer's own witness or ``None``, in the order of ``driven().layers``; ``None``
            if no layer carries one.
        """
        proofs = [layer.witness() for layer in self.parts]
        return {"layers": proofs} if any(one is not None for one in proofs) else None

    def config(self) -> dict[str, Any]:
        """Return the layers' names and their keyword arguments."""
        return {"layers": [{"layer": layer.layer_name, "config": layer.config()} for layer in self.parts]}


def _sequence_gain(layer: RecurrentLayer) -> float | None:
    """Return the prescribed gain from a layer's input sequence to its output sequence, if it has one."""
    return getattr(layer, "prescribed_sequence_gain", None)


def _product(gains: list[float | None]) -> float | None:
    known = [gain for gain in gains if gain is not None]
    return math.prod(known) if len(known) == len(gains) else None


def stack_configs(
    layer: type[RecurrentLayer], input_size: int, hidden_size: int, layers: int, **options: Any
) -> list[dict[str, Any]]:
    """Return the keyword arguments of stacked layers of one class, each of which reads the layer below.

    Args:
        layer: class of the layers; its method ``stack_configs``, if it has one, gives the arguments.
        input_size: features per time step of the input of the lowest layer.
        hidden_size: hidden size of every layer.
        layers: number of layers.
        options: further keyword arguments of the layers. A layer with an option ``output_size`` has ``hidden_size``
            outputs by default.

    Returns:
        One mapping per layer, the lowest first.

    Raises:
        ConfigurationError: an option out of its range.

    Example:
        >>> from stability.models import BoundedGainRNN, ElmanRNN
        >>> stack_configs(ElmanRNN, 3, 8, 2)
        [{'input_size': 3, 'hidden_size': 8}, {'input_size': 8, 'hidden_size': 8}]
        >>> stack = Stack([BoundedGainRNN(**config) for config in stack_configs(BoundedGainRNN, 3, 8, 2, gain=0.5)])
        >>> round(stack.prescribed_gain, 6)
        0.5
    """
    if "output_size" in constructor_arguments(layer):
        options = {"output_size": hidden_size, **options}
    width = options.get("output_size", hidden_size)
    widths = [input_size] + [width] * (positive_int("layers", layers) - 1)
    factory: Callable[..., list[dict[str, Any]]] | None = getattr(layer, "stack_configs", None)
    if factory is not None:
        return factory(widths, hidden_size, **options)
    return [{"input_size": width, "hidden_size": hidden_size, **options} for width in widths]
