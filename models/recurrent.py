"""Interface of a recurrent layer: one step, a whole sequence, and the certified system.

A layer stores parameters. ``prepare`` realizes its matrices once per forward pass, ``drive`` computes what the input
adds for all times, ``transition`` advances the state by one step, ``walk`` is the loop over time. Further methods
return known properties of a layer, by default none: duration of a step, contraction gap, eigenvalues, expected norms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, UnsupportedError
from stability.systems import DrivenSystem, LureSystem

from .opaque import opaque_map
from .options import constructor_arguments, no_contraction_gap, positive_int
from .precision import computed_error
from .tensors import check_sequence, state_leaves

Layer = TypeVar("Layer", bound="RecurrentLayer")
LAYERS: dict[str, type[RecurrentLayer]] = {}


def register_layer(name: str, *, replace: bool = False) -> Callable[[type[Layer]], type[Layer]]:
    """Decorate a layer class to register it as ``name`` for files and the command line.

    Args:
        name: name in files and on the command line.
        replace: replace a class registered under the same name.

    Returns:
        The decorator, which gives the class back.

    Raises:
        ConfigurationError: the name is taken, and ``replace`` is False.

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
                f"the layer name {name!r} belongs to {LAYERS[name].__module__}.{LAYERS[name].__qualname__}: choose "
                f"another name, or call register_layer({name!r}, replace=True)"
            )
        LAYERS[name] = cls
        cls.layer_name = name
        return cls

    return register


class Step(NamedTuple):
    """One step of ``walk``: the input's term, the states before and after the step, and the prepared matrices."""

    drive: Tensor
    before: Any
    after: Any
    prepared: Any


class RecurrentLayer(nn.Module, ABC):
    """Base of recurrent layers: ``outputs, state = layer(x)``; ``output, state = layer.step(x_t, state)``.

    Args:
        sizes: ``input_size``, ``hidden_size`` and, if different, ``output_size``; no sizes if the layer sets these
            attributes itself.

    Attributes:
        input_size: features per time step.
        hidden_size: size of the hidden state ``h``.
        output_size: size of an output.
        bidirectional: whether a second recurrence runs from the end of the sequence.
    """

    layer_name: str = ""
    input_size: int
    hidden_size: int
    output_size: int
    bidirectional: bool = False
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    """Default training settings of this layer."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__()
        for name, value in zip(("input_size", "hidden_size", "output_size"), (*sizes, *sizes[1:2])):
            setattr(self, name, positive_int(name, value))

    @abstractmethod
    def prepare(self) -> Any:
        """Return the realized matrices, computed once per forward pass."""

    @abstractmethod
    def drive(self, x: Tensor, prepared: Any) -> Tensor:
        """Return the input's term for all times: ``(batch, time, input) -> (batch, time, ...)``."""

    def initial_state(self, x: Tensor, prepared: Any) -> Any:
        """Return the state before the first step for the batch of ``x``, a tensor or a tuple; zero by default."""
        return x.new_zeros(x.shape[0], self.hidden_size)

    @abstractmethod
    def transition(self, drive: Tensor, state: Any, prepared: Any) -> Any:
        """Run one step: ``(batch, ...)`` and state to the next state."""

    def config(self) -> dict[str, Any]:
        """Return the constructor's keyword arguments that build this layer again (JSON values only).

        Raises:
            ConfigurationError: an argument without an attribute of the same name.
        """
        names = constructor_arguments(type(self))
        missing = next((name for name in names if not hasattr(self, name)), None)
        if missing is not None:
            raise ConfigurationError(
                f"{type(self).__name__} takes the argument {missing!r} and has no such attribute: define config()"
            )
        values = {name: getattr(self, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def extra_repr(self) -> str:
        """Return the arguments for ``repr``."""
        try:
            return ", ".join(f"{key}={value!r}" for key, value in self.config().items())
        except ConfigurationError:  # a user's layer that cannot be saved
            return ""

    @property
    def time_step(self) -> float | None:
        """Return the duration of a step, if the layer integrates a differential equation; ``None`` for maps.

        Example:
            >>> from stability.models import ContractingRNN, ElmanRNN, LipschitzRNN
            >>> [layer.time_step for layer in (LipschitzRNN(2, 4, dt=0.03), ElmanRNN(2, 4), ContractingRNN(2, 4))]
            [0.03, None, None]
        """
        return None

    @property
    def prescribed_gain(self) -> float | None:
        """Return the prescribed bound of the incremental l2 gain from the input sequence to the state at any time.

        Example:
            >>> from stability.models import BoundedGainRNN, ElmanRNN
            >>> BoundedGainRNN(2, 4, gain=0.5).prescribed_gain, ElmanRNN(2, 4).prescribed_gain
            (0.5, None)
        """
        return None

    @property
    def outputs_hidden(self) -> bool:
        """Return True if the outputs are the hidden states, so that another layer's system can read them.

        Example:
            >>> from stability.models import GRU, LRU
            >>> GRU(2, 4).outputs_hidden, LRU(2, 4).outputs_hidden
            (True, False)
        """
        cls = type(self)
        return cls.emit is RecurrentLayer.emit and cls.output is RecurrentLayer.output

    def emit(self, state: Any) -> Tensor:
        """Return the output of a state; the hidden state unless a layer overrides it."""
        return self.hidden(state)

    def output(self, state: Any, drive: Tensor, prepared: Any) -> Tensor:
        """Return the output of a step: ``emit(state)`` unless a layer has an output matrix or a skip connection.

        Args:
            state: the state after the step.
            drive: the input's term of the step.
            prepared: result of ``prepare``.

        Returns:
            ``(batch, output_size)``.
        """
        return self.emit(state)

    def hidden(self, state: Any) -> Tensor:
        """Return the hidden state ``h (batch, hidden_size)`` (real) inside a state."""
        return state

    def hidden_states(self, state: Any) -> list[Tensor]:
        """Return the hidden states inside a state: one, or one per layer of a stack, ``(batch, hidden_size)``."""
        return [self.hidden(state)]

    def system_state(self, state: Any) -> Tensor:
        """Return a state as real row vectors ``(batch, n)``, in the order of the states of ``driven()``.

        A complex tensor gives its real parts, then its imaginary ones.
        """
        real = [torch.view_as_real(v).movedim(-1, 1) if v.is_complex() else v for v in state_leaves(state)]
        return torch.cat([v.reshape(len(v), -1) for v in real], 1)

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
        outputs = []
        for drive, _, next_state, prepared in self.walk(x, state):
            outputs.append(self.output(next_state, drive, prepared))
            state = next_state
        return torch.stack(outputs, dim=1), state

    def walk(self, x: Tensor, state: Any = None) -> Iterator[Step]:
        """Yield the steps of a sequence one by one, for measurements along the trajectory.

        Args:
            x: ``(batch, time, input_size)``.
            state: state before the first step; ``None`` for the layer's own.

        Yields:
            See ``Step``.

        Example:
            >>> from stability.models import ElmanRNN
            >>> layer, x = ElmanRNN(2, 4), torch.ones(3, 5, 2)
            >>> *_, last = layer.walk(x)
            >>> torch.equal(last.after, layer(x)[1])
            True
        """
        prepared, state = self.begin(x, state)
        for drive in self.drive(x, prepared).unbind(1):  # indexing in the loop: quadratic backward
            before, state = state, self.transition(drive, state, prepared)
            yield Step(drive, before, state, prepared)

    def states(self, x: Tensor, state: Any = None) -> Tensor:
        """Return all hidden states on a sequence, ``(batch, time, hidden_size)``; by a scan if the layer has one."""
        return torch.stack([self.hidden(step.after) for step in self.walk(x, state)], dim=1)

    def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Run one step, equal to the forward pass.

        Args:
            x_t: ``(batch, input_size)``.
            state: ``None`` at the start.

        Returns:
            Output ``(batch, output_size)`` and the next state.
        """
        check_sequence(x_t, self.input_size, "(batch, input)")
        (step,) = self.walk(x_t.unsqueeze(1), state)
        return self.output(step.after, step.drive, step.prepared), step.after

    def begin(self, x: Tensor, state: Any = None) -> tuple[Any, Any]:
        """Return the realized matrices and the initial state: the checked argument, or the layer's own.

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
        initial = self.initial_state(x, prepared)
        if state is None:
            return prepared, initial
        leaves, needed = state_leaves(state), state_leaves(initial)
        for leaf, expected in zip(leaves, needed, strict=False):
            if not isinstance(leaf, Tensor):
                raise ConfigurationError(f"the state must hold tensors, got a {type(leaf).__name__}")
            if leaf.shape != expected.shape:
                raise DimensionError("state", tuple(expected.shape), tuple(leaf.shape))
        if len(leaves) != len(needed):
            raise ConfigurationError(f"the state of {type(self).__name__} must be {len(needed)} tensor(s)")
        return prepared, state

    def witness(self) -> dict[str, Any] | None:
        """Return the proof ``{"P", "L", "rate"}`` that the map contracts, if the layer has one by construction.

        Returns:
            None here: most layers carry none.
        """
        return None

    def matrices(self) -> dict[str, Tensor]:
        """Return the realized recurrent matrices by their names in the formulas (for spectra)."""
        return {}

    def contraction_gap(self) -> Tensor:
        """Return a differentiable sufficient margin of contraction in operator norms; positive if it contracts.

        Returns:
            A scalar: a rate per unit of time, or per step for maps.

        Raises:
            UnsupportedError: no weights make the layer contract, or no bound is known.
        """  # noqa: DOC501 - made by a function
        raise no_contraction_gap(self)

    def real_part_bounds(self, published: bool = False) -> dict[str, tuple[float, float]]:
        """Return intervals of the real parts of the eigenvalues of ``matrices()``, by name, where known.

        Args:
            published: return the intervals printed in the layer's paper, if they differ.

        Returns:
            ``(low, high)`` by name; empty here.
        """
        return {}

    def expected_squared_norm(self, t: int) -> Tensor | None:
        """Return the expected squared norms of the state's parts after ``t`` steps of white input, or ``None``.

        Args:
            t: step, counted from 1.
        """
        return None

    def expected_norm(self, t: int) -> float | None:
        """Return the root of the expected squared norm of the state after ``t`` steps of white input, or None."""
        squared = self.expected_squared_norm(t)
        return None if squared is None else math.sqrt(float(squared.sum()))

    def driven(self, continuous: bool = False) -> Any:
        """Return the subject of claims about this layer, in exact float64 copies of its weights.

        Args:
            continuous: return the differential equation behind the layer instead of the map that runs.

        Returns:
            A ``DrivenSystem`` or another subject; by default an ``OpaqueMap``, about which ``certify`` is inconclusive.

        Raises:
            UnsupportedError: there is no differential equation.
            NonFiniteError: NaN or infinite weights.
        """
        self.refuse_equation(continuous)
        self.check_finite()
        return opaque_map(self, self.hidden_size, self.input_size, "no theorem covers it", type(self).__name__)

    def weight_error(self, format: str) -> float:
        """Bound the relative error of the matrices that the layer computes in a format: see ``computed_error``."""
        return computed_error(self, format)

    def lure(self, continuous: bool = False) -> LureSystem:
        """Return the Lur'e system of the map that runs (or of the differential equation behind it).

        Raises:
            UnsupportedError: when the layer is no Lur'e system; the text says why.
        """
        subject = self.driven(continuous)
        if not isinstance(subject, DrivenSystem):
            raise UnsupportedError(f"{type(self).__name__} has no Lur'e system: use certify(layer) instead")
        return subject.system

    def refuse_equation(self, continuous: bool) -> None:
        """Raise an error for the differential equation of a map.

        Raises:
            UnsupportedError: always.
        """
        if continuous:
            raise UnsupportedError(
                f"{type(self).__name__} is a discrete map: there is no differential equation behind it"
            )

    def check_finite(self) -> None:
        """Raise an error for NaN or infinite weights.

        Raises:
            NonFiniteError: naming the parameter.
        """
        for name, value in self.named_parameters():
            if not torch.isfinite(value).all():
                raise NonFiniteError(f"parameter {name} of {type(self).__name__}")
