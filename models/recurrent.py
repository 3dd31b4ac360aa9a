"""The contract of a recurrent layer: one step, a whole sequence, and the system that proofs are about.

A layer stores parameters. ``prepare`` realises its matrices once per forward pass, ``drive`` computes what
the input adds for all times at once, ``transition`` advances the state by one step. The loop is written here,
once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, UnsupportedError
from stability.systems import DrivenSystem, LureSystem

__all__ = ["LAYERS", "RecurrentLayer", "check_sequence", "positive_int", "register_layer", "to_numpy"]

Layer = TypeVar("Layer", bound="RecurrentLayer")
LAYERS: dict[str, type[RecurrentLayer]] = {}


def register_layer(name: str, *, replace: bool = False) -> Callable[[type[Layer]], type[Layer]]:
    """Class decorator: the layer becomes known to files and to the command line as ``name``.

    Args:
        name: how files and the command line call it.
        replace: let the class take the place of another one that has the name.

    Returns:
        The decorator, which gives the class back.

    Raises:
        ConfigurationError: the name is taken, and ``replace`` was not said.

    Example:
        >>> from stability.models import ElmanRNN, describe
        >>> @register_layer("quiet")
        ... class QuietRNN(ElmanRNN):
        ...     pass
        >>> describe(QuietRNN(2, 4))["layer"], LAYERS.pop("quiet").__name__
        ('quiet', 'QuietRNN')
    """

    def register(cls: type[Layer]) -> type[Layer]:
        if not replace and LAYERS.get(name, cls) is not cls:
            raise ConfigurationError(
                f"the layer name {name!r} belongs to {LAYERS[name].__module__}.{LAYERS[name].__qualname__}: take "
                f"another one, or say register_layer({name!r}, replace=True)"
            )
        LAYERS[name] = cls
        cls.layer_name = name
        return cls

    return register


def positive_int(name: str, value: Any) -> int:
    """``value`` as an int >= 1.

    Raises:
        ConfigurationError: when it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name} must be a positive integer, got {value!r}")
    return value


def to_numpy(tensor: Tensor) -> Any:
    """A float64 numpy copy of a tensor; float32 and half precision convert exactly."""
    return tensor.detach().to("cpu", torch.float64).numpy().copy()


def _leaves(state: Any) -> tuple[Any, ...]:
    return tuple(state) if isinstance(state, (tuple, list)) else (state,)


def check_sequence(x: Any, input_size: int, axes: str = "(batch, time, input)") -> Tensor:
    """Refuse what a layer cannot run on; returns ``x``.

    Raises:
        ConfigurationError: not a floating-point tensor.
        DimensionError: wrong shape, empty batch or empty sequence.
    """
    expected = (*axes.strip("()").split(", ")[:-1], input_size)
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ConfigurationError(f"x must be a floating-point tensor {axes}, got {got}")
    if x.dim() != len(expected) or x.shape[-1] != input_size or 0 in x.shape:
        raise DimensionError("x", expected, tuple(x.shape), "batch and time must not be empty")
    return x


class RecurrentLayer(nn.Module, ABC):
    """Base of recurrent layers: ``outputs, state = layer(x)``; ``output, state = layer.step(x_t, state)``.

    Attributes:
        input_size: features per time step.
        hidden_size: size of the hidden state ``h``.
        output_size: size of an output.
    """

    layer_name: ClassVar[str] = ""
    input_size: int
    hidden_size: int
    output_size: int

    @abstractmethod
    def prepare(self) -> Any:
        """The realised matrices, computed once per forward pass."""

    @abstractmethod
    def drive(self, x: Tensor, prepared: Any) -> Tensor:
        """What the input adds, for all times: ``(batch, time, input) -> (batch, time, ...)``."""

    @abstractmethod
    def initial_state(self, x: Tensor, prepared: Any) -> Any:
        """The state before the first step for the batch of ``x``; a tensor or a tuple of tensors."""

    @abstractmethod
    def transition(self, drive: Tensor, state: Any, prepared: Any) -> Any:
        """One step: ``(batch, ...)`` and state to the next state."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Keyword arguments that build this layer again (JSON values only)."""

    @property
    def time_step(self) -> float | None:
        """Duration of a step, for layers that integrate a differential equation; ``None`` for maps.

        Example:
            >>> from stability.models import ContractingRNN, ElmanRNN, LipschitzRNN
            >>> [layer.time_step for layer in (LipschitzRNN(2, 4, dt=0.03), ElmanRNN(2, 4), ContractingRNN(2, 4))]
            [0.03, None, None]
        """
        return None

    def emit(self, state: Any) -> Tensor:
        """The output that belongs to a state; the hidden state itself unless a layer says otherwise."""
        return state

    def output(self, state: Any, drive: Tensor, prepared: Any) -> Tensor:
        """The output of a step: ``emit(state)``, unless a layer reads its state through matrices or skips input to it.

        Args:
            state: the state after the step.
            drive: what the step was driven with.
            prepared: what ``prepare`` returned.

        Returns:
            ``(batch, output_size)``.
        """
        return self.emit(state)

    def hidden(self, state: Any) -> Tensor:
        """The hidden state ``h (batch, hidden_size)`` (real) inside a state."""
        return state

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Run over a sequence.

        Args:
            x: ``(batch, time, input_size)``.
            state: state before the first step; ``None`` for the layer's own.

        Returns:
            Outputs ``(batch, time, output_size)`` and the final state.

        Raises:
            DimensionError: a wrong shape, or an empty batch or sequence.
            ConfigurationError: not a floating-point tensor.
        """
        check_sequence(x, self.input_size)
        prepared, state = self.begin(x, state)
        outputs = []
        for drive in self.drive(x, prepared).unbind(1):  # indexing in the loop: quadratic backward
            state = self.transition(drive, state, prepared)
            outputs.append(self.output(state, drive, prepared))
        return torch.stack(outputs, dim=1), state

    def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One step, equal to the forward pass.

        Args:
            x_t: ``(batch, input_size)``.
            state: ``None`` at the start.

        Returns:
            Output ``(batch, output_size)`` and the next state.
        """
        check_sequence(x_t, self.input_size, "(batch, input)")
        x = x_t.unsqueeze(1)
        prepared, state = self.begin(x, state)
        drive = self.drive(x, prepared)[:, 0]
        state = self.transition(drive, state, prepared)
        return self.output(state, drive, prepared), state

    def begin(self, x: Tensor, state: Any = None) -> tuple[Any, Any]:
        """The realised matrices, and the state to start from: the given one, checked, or the layer's own.

        Raises:
            ConfigurationError: when the dtype or device of ``x`` is not the layer's, or a state is no tensor.
            DimensionError: when the state has another shape than the layer's own.
        """
        weight = next((p for p in self.parameters() if p.is_floating_point()), None)
        if weight is not None:
            if weight.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
                raise ConfigurationError(
                    f"x has dtype {x.dtype} and {type(self).__name__} has {weight.dtype}: convert one of them"
                )
            if weight.device != x.device:
                raise ConfigurationError(
                    f"x is on {x.device} and {type(self).__name__} is on {weight.device}: move one of them"
                )
        prepared = self.prepare()
        own = self.initial_state(x, prepared)
        if state is None:
            return prepared, own
        for given, expected in zip(_leaves(state), _leaves(own), strict=False):
            if not isinstance(given, Tensor):
                raise ConfigurationError(f"a state holds tensors, got {type(given).__name__}")
            if given.shape != expected.shape:
                raise DimensionError("state", tuple(expected.shape), tuple(given.shape))
        if len(_leaves(state)) != len(_leaves(own)):
            raise ConfigurationError(f"a state of {type(self).__name__} is {len(_leaves(own))} tensor(s)")
        return prepared, state

    def witness(self) -> dict[str, Any] | None:
        """What proves that the map that runs contracts, ``{"P", "L", "rate"}``, for layers that carry one.

        Returns:
            None here: most layers carry none.
        """
        return None

    def matrices(self) -> dict[str, Tensor]:
        """The recurrent matrices by their names in the formulas, as realised now (for spectra)."""
        return {}

    def driven(self, continuous: bool = False) -> Any:
        """The subject that a claim about this layer is about, in exact float64 copies of its weights.

        Args:
            continuous: the differential equation behind the layer instead of the map that runs.

        Returns:
            A ``DrivenSystem``, or another subject type for gated cells.

        Raises:
            UnsupportedError: when the layer has none.
        """
        raise UnsupportedError(f"{type(self).__name__} is no Lur'e system")

    def lure(self, continuous: bool = False) -> LureSystem:
        """The Lur'e system of the map that runs (or of the differential equation behind it).

        Raises:
            UnsupportedError: when the layer is no Lur'e system; the text says why.
        """
        subject = self.driven(continuous)
        if not isinstance(subject, DrivenSystem):
            raise UnsupportedError(f"{type(self).__name__} is no Lur'e system: use certify(layer) instead")
        return subject.system

    def check_finite(self) -> None:
        """Refuse NaN or infinite weights.

        Raises:
            NonFiniteError: naming the parameter.
        """
        for name, value in self.named_parameters():
            if not torch.isfinite(value).all():
                raise NonFiniteError(f"parameter {name} of {type(self).__name__}")
