"""Residual block of a gated linear recurrence: norm, mixer, and the causal convolution inside the mixer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import DimensionError, UnsupportedError
from stability.systems import GatedLinearLayer, InputBox, NormBall

from ..checkpoints.layer_weights import LayerWeights, with_floors
from ..checkpoints.stored_tensors import Read
from ..options import real
from ..recurrent import RecurrentLayer
from ..tensors import check_sequence, state_leaves

Layout = Callable[[LayerWeights, NormBall], tuple[Any, Any]]


class RMSNorm(nn.Module):
    r"""Root-mean-square norm over the last axis, :math:`w\, x / \sqrt{\mathrm{mean}(x^2) + \epsilon}`.

    Args:
        size: entries of the last axis.
        eps: :math:`\epsilon`.
        unit_offset: multiply by ``1 + weight`` in place of ``weight``.

    Source:
        B. Zhang, R. Sennrich, "Root mean square layer normalization" (NeurIPS 2019).
    """

    def __init__(self, size: int, eps: float = 1e-5, unit_offset: bool = False) -> None:
        super().__init__()
        self.eps, self.unit_offset = eps, unit_offset
        self.weight = nn.Parameter(torch.zeros(size) if unit_offset else torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normed ``x``; squares of half precision are summed in single precision."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normed = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)
        return normed * (1.0 + self.weight if self.unit_offset else self.weight)


class CausalConvolution(nn.Module):
    """Depthwise convolution over past and present inputs, with the keys and shapes of a depthwise ``nn.Conv1d``.

    Args:
        channels: number of channels.
        taps: inputs that an output depends on: the present one and the ``taps - 1`` before it.
        bias: whether a bias is added.

    Attributes:
        weight: ``(channels, 1, taps)``; the last tap multiplies the present input.
        bias: ``(channels,)``, or ``None``.
    """

    def __init__(self, channels: int, taps: int, bias: bool = True) -> None:
        super().__init__()
        self.channels, self.taps = channels, taps
        bound = 1.0 / math.sqrt(taps)  # as torch.nn.Conv1d
        self.weight = nn.Parameter(torch.empty(channels, 1, taps).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound)) if bias else None

    def window(self, x: Tensor) -> Tensor:
        """Return the window before the first step for the batch of ``x``: zeros, ``(batch, taps, channels)``."""
        return x.new_zeros(x.shape[0], self.taps, self.channels)

    def forward(self, x: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve ``x (batch, time, channels)``.

        Args:
            x: the inputs.
            window: the last ``taps`` inputs before ``x``, ``(batch, taps, channels)``.

        Returns:
            Outputs in the shape of ``x``, and the last ``taps`` inputs.
        """
        joined = torch.cat([window[:, 1:], x], dim=1)
        return self._convolved(joined), joined[:, -self.taps :]

    def at(self, window: Tensor) -> Tensor:
        """Return the output ``(batch, channels)`` of the step after which the window is ``window``."""
        return self._convolved(window)[:, 0]

    def _convolved(self, x: Tensor) -> Tensor:
        count = x.shape[1] - self.taps + 1
        terms = [x[:, tap : tap + count] * self.weight[:, 0, tap] for tap in range(self.taps)]
        total = sum(terms[1:], terms[0])
        return total if self.bias is None else total + self.bias


class Mixer(nn.Module, ABC):
    """Map of sequences inside a block: projections of each input, a recurrence linear in its state, and a readout.

    A state is a tensor ``h (batch, ...)``, or a tuple that begins with it: a window of a convolution follows.

    Attributes:
        dt_floor: lower limit of the step of each channel or head, ``dt = max(dt_floor, softplus(p))``; ``None`` for
            none.
    """

    dt_floor: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("dt_floor", None)

    @property
    def step_bias(self) -> Tensor | None:
        """Return the bias of the pre-activation ``p`` of the steps; ``None`` for a mixer without steps."""
        return None

    def step(self, p: Tensor) -> Tensor:
        """Return the steps ``softplus(p)``, limited from below by ``dt_floor``."""
        dt = nn.functional.softplus(p)
        return dt if self.dt_floor is None else torch.maximum(dt, self.dt_floor)

    @abstractmethod
    def decays(self, projected: Tensor, state: Any) -> tuple[Tensor, Tensor | None]:
        """Return what the gates do with a sequence.

        Args:
            projected: ``(batch, time, features)``.
            state: state before it.

        Returns:
            Logarithms of the decay of each channel, mode or head, ``(batch, time, units)``, of a channel with several
            state entries the slowest; and their steps in the same shape, if there are steps.
        """

    @abstractmethod
    def project(self, u: Tensor) -> Tensor:
        """Return all that depends on the input of the same step alone: ``(..., width) -> (..., features)``."""

    @abstractmethod
    def initial_state(self, u: Tensor) -> Any:
        """Return the state before the first step, in dtype, device and batch of ``u (batch, ...)``."""

    @abstractmethod
    def advance(self, projected: Tensor, state: Any) -> Any:
        """Run one step: ``(batch, features)`` and state to the next state."""

    @abstractmethod
    def read(self, projected: Tensor, state: Any) -> Tensor:
        """Return the output ``(batch, width)`` of a step from its projections and the state after it."""

    @abstractmethod
    def scan(self, projected: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Run over ``(batch, time, features)``: outputs ``(batch, time, width)`` and the final state."""

    def states(self, projected: Tensor, state: Any) -> Tensor:
        """Return ``h`` after every step, ``(batch, time, ...)``."""
        found = []
        for drive in projected.unbind(1):
            state = self.advance(drive, state)
            found.append(state_leaves(state)[0])
        return torch.stack(found, dim=1)

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Run over ``u (batch, time, width)``: outputs of the same shape and the final state."""
        return self.scan(self.project(u), self.initial_state(u) if state is None else state)


class GatedLinearBlock(RecurrentLayer):
    """Residual block ``x + mixer(norm(x))``; a linear map brings the input to the width of the block.

    Its outputs are ``hidden_size`` numbers, the width; ``h``, the state of the mixer, may have more.

    Args:
        input_size: features per time step; where they are not ``hidden_size``, a linear map ``encoder`` comes first.
        hidden_size: width of the block.
        eps: number that the norm adds to the mean square.
        unit_offset: whether the norm multiplies by ``1 + weight``.

    Attributes:
        mixer: map of the normed sequence, which a subclass sets; its parameters have the names of public checkpoints.
    """

    mixer: Mixer
    floor: float | None = None

    def __init__(self, input_size: int, hidden_size: int, *, eps: float = 1e-5, unit_offset: bool = False) -> None:
        super().__init__(input_size, hidden_size)
        same = self.input_size == self.hidden_size
        self.encoder = nn.Identity() if same else nn.Linear(self.input_size, self.hidden_size)
        self.norm = RMSNorm(self.hidden_size, eps, unit_offset)

    def set_floors(self, floors: Tensor) -> None:
        """Limit the step of each channel or head from below: ``dt = max(floor, softplus(p))``.

        The limits become a part of the state dict, and ``gated_linear`` certifies the layer with them.

        Args:
            floors: ``(units,)``, at least 0.

        Raises:
            UnsupportedError: a layer whose gates have no step.
            DimensionError: another number of limits.
        """
        bias = self.mixer.step_bias
        if bias is None:
            raise UnsupportedError(
                f"floors limit the steps of Mamba, Mamba-2 and gated DeltaNet, and {self.type_name} has no steps"
            )
        if floors.shape != bias.shape:
            raise DimensionError("floors", tuple(bias.shape), tuple(floors.shape))
        self.mixer.dt_floor = floors.detach().to(bias)
        self.floor = self.floor or 0.0

    def _start_floors(self, floor: float | None) -> None:
        """Set the option ``floor``: lower limits as a fraction of the initial steps; ``None`` for none."""
        if floor is not None:
            self.floor = real("floor", floor, 0.0, 1.0)
            bias = self.mixer.step_bias
            assert bias is not None
            self.set_floors(self.floor * nn.functional.softplus(bias))

    def prepare(self) -> None:
        """Return None: the weights need no preparation."""

    def weight_error(self, format: str) -> float:
        """Return zero: the weights of a mixer are stored, none is computed."""
        return 0.0

    def drive(self, x: Tensor, prepared: None) -> Tensor:
        """Return the residual stream and the projections of the mixer, joined along the last axis."""
        stream = self.encoder(x)
        return torch.cat([stream, self.mixer.project(self.norm(stream))], dim=-1)

    def initial_state(self, x: Tensor, prepared: None) -> Any:
        """Return the state of the mixer before the first step."""
        return self.mixer.initial_state(x)

    def transition(self, drive: Tensor, state: Any, prepared: None) -> Any:
        """Run one step of the mixer."""
        return self.mixer.advance(drive[..., self.hidden_size :], state)

    def output(self, state: Any, drive: Tensor, prepared: None) -> Tensor:
        """Return the output of a step: residual stream plus readout of the mixer."""
        stream, projected = drive[..., : self.hidden_size], drive[..., self.hidden_size :]
        return stream + self.mixer.read(projected, state)

    def hidden(self, state: Any) -> Tensor:
        """Return ``h`` as rows of real numbers, ``(batch, entries of h)``."""
        return state_leaves(state)[0].flatten(1)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Run over a sequence without a loop over time; see ``RecurrentLayer.forward``."""
        check_sequence(x, self.input_size)
        _, state = self.begin(x, state)
        stream = self.encoder(x)
        y, state = self.mixer(self.norm(stream), state)
        return stream + y, state

    def states(self, x: Tensor, state: Any = None) -> Tensor:
        """Return ``h`` after every step as rows of real numbers, ``(batch, time, entries of h)``."""
        check_sequence(x, self.input_size)
        _, state = self.begin(x, state)
        return self.mixer.states(self.mixer.project(self.norm(self.encoder(x))), state).flatten(2)

    layout: Layout
    """Function that returns gate and injection of the mixer from its tensors, in the layout of public checkpoints."""
    type_name = "gated linear"
    """Name of the recurrence in sentences of claims."""

    def settings(self) -> dict[str, Any]:
        """Return the settings of the mixer that its tensors do not tell, by their names in ``config.json``."""
        return {}

    def driven(self, continuous: bool = False) -> GatedLinearLayer:
        """Return ``gated_linear()``; see ``RecurrentLayer.driven``."""
        self.refuse_equation(continuous)
        return self.gated_linear()

    def gated_linear(self, inputs: InputBox | None = None) -> GatedLinearLayer:
        """Return the recurrence as the subject of claims.

        Args:
            inputs: box of the mixer's inputs, behind the norm; ``None`` for every input of the norm.

        Raises:
            NonFiniteError: NaN or infinite weights.

        Example:
            >>> from stability import certify
            >>> from stability.models import MinGRU
            >>> str(certify(MinGRU(2, 8).gated_linear()).verdict)
            'certified'
        """
        self.check_finite()

        def reader(value: Tensor) -> Read:
            array = value.detach().to("cpu", torch.complex128 if value.is_complex() else torch.float64).numpy()
            return lambda rows=slice(None): array[rows]

        tensors = {name: reader(value) for name, value in self.mixer.state_dict().items()}
        ball = NormBall(reader(self.norm.weight)(), offset=int(self.norm.unit_offset))
        weights = LayerWeights(tensors, self.settings())
        gate, injection = type(self).layout(weights, ball if inputs is None else inputs)
        return GatedLinearLayer(with_floors(gate, weights), injection, self.type_name)
