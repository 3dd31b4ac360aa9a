"""RG-LRU, the recurrence of Griffin, Hawk and RecurrentGemma."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError

from ..checkpoints import gated
from ..options import positive_int
from ..recurrent import register_layer
from .block import CausalConvolution
from .diagonal import DiagonalBlock, DiagonalMixer, Gates

SHARPNESS = 8.0
"""Factor of the exponent of the decay in the paper."""
SLOWEST, FASTEST = 0.999, 0.9
"""Range of ``exp(-softplus(recurrent_param))`` at the start of training, in the paper."""

CONVOLUTION_VARIANCE = 0.01
"""Variance of the sum of a convolution's taps at the start of training, in the paper's code: gates start near 1/2."""


class RGLRUGates(nn.Module):
    """Gates and decay parameters of an RG-LRU.

    Args:
        width: size of ``h``.
        heads: blocks of the gates' block-diagonal matrices.

    Attributes:
        recurrent_param: ``(width,)``.
        input_gate_weight: ``(heads, width / heads, width / heads)``, multiplied from the right.
        input_gate_bias: ``(heads, width / heads)``.
        recurrent_gate_weight: like that of the input gate.
        recurrent_gate_bias: likewise.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        block = width // heads
        squares = torch.empty(width).uniform_(FASTEST**2, SLOWEST**2)
        self.recurrent_param = nn.Parameter(torch.log(torch.expm1(-0.5 * torch.log(squares))))
        self.input_gate_weight, self.recurrent_gate_weight = (
            nn.Parameter(torch.randn(heads, block, block) / math.sqrt(block)) for _ in range(2)
        )
        self.input_gate_bias, self.recurrent_gate_bias = (nn.Parameter(torch.zeros(heads, block)) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the recurrence gate and the input gate of ``x (..., width)``, in (0, 1)."""
        by_head = x.unflatten(-1, self.input_gate_bias.shape)

        def gate(weight: Tensor, bias: Tensor) -> Tensor:
            return torch.sigmoid(torch.einsum("...hi,hij->...hj", by_head, weight) + bias).flatten(-2)

        r = gate(self.recurrent_gate_weight, self.recurrent_gate_bias)
        return r, gate(self.input_gate_weight, self.input_gate_bias)


class RGLRUMixer(DiagonalMixer):
    """Recurrent branch and gate branch, with the keys of ``temporal_block`` in transformers' RecurrentGemma.

    A state is ``(h, window, started)``; ``started (batch, 1)`` is 0 before the first step of a sequence and 1 after
    it: the first input enters with factor 1.

    Args:
        width: features of input and output.
        inner: size of ``h``.
        heads: blocks of the gates.
        taps: inputs of the convolution.
    """

    def __init__(self, width: int, inner: int, heads: int, taps: int) -> None:
        super().__init__()
        self.state_shape = (inner,)
        self.linear_y = nn.Linear(width, inner)
        self.linear_x = nn.Linear(width, inner)
        self.linear_out = nn.Linear(inner, width)
        self.conv_1d = CausalConvolution(inner, taps)
        nn.init.normal_(self.conv_1d.weight, std=math.sqrt(CONVOLUTION_VARIANCE / taps))
        if self.conv_1d.bias is not None:
            nn.init.zeros_(self.conv_1d.bias)
        self.rg_lru = RGLRUGates(inner, heads)

    @property
    def convolution(self) -> CausalConvolution:
        """Return the convolution in front of the recurrence."""
        return self.conv_1d

    def project(self, u: Tensor) -> Tensor:
        """Return the inputs of both branches."""
        return torch.cat([self.linear_x(u), self.linear_y(u)], dim=-1)

    def gates(self, signal: Tensor) -> Gates:
        """Return the input of the recurrence, its two gates and the input of the gate branch."""
        x, y = signal.chunk(2, dim=-1)
        return (x, *self.rg_lru(x), y)

    def initial_state(self, u: Tensor) -> Any:
        """Return zeros."""
        return (*super().initial_state(u), u.new_zeros(u.shape[0], 1))

    def _signal(self, projected: Tensor, state: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        signal, rest = super()._signal(projected, state)
        return signal, (*rest, 0.0 * state[2] + 1.0)  # part of the graph, as every entry of a state is elsewhere

    def recurrence(self, gates: Gates, state: Any) -> tuple[Tensor, Tensor]:
        """Return the decay ``a`` and ``sqrt(1 - a^2) i x``; ``i x`` at the first step of a sequence."""
        x, r, i, _ = gates
        log_a = -SHARPNESS * r * nn.functional.softplus(self.rg_lru.recurrent_param)
        started = torch.cat([state[2].unsqueeze(1), state[2].new_ones(x.shape[0], x.shape[1] - 1, 1)], dim=1)
        scale = torch.where(started > 0, torch.sqrt(-torch.expm1(2.0 * log_a)), 1.0)
        return torch.exp(log_a), scale * i * x

    def readout(self, h: Tensor, gates: Gates) -> Tensor:
        """Return a linear map of ``h * gelu(y)``."""
        return self.linear_out(h * nn.functional.gelu(gates[3], approximate="tanh"))


@register_layer("rglru")
class RGLRU(DiagonalBlock):
    r"""Recurrent block of Griffin: :math:`h^+ = a \odot h + \sqrt{1 - a^2} \odot i \odot x`.

    ``x`` is a convolution of a linear map of the normed input; :math:`\log a = -8\, r \odot
    \mathrm{softplus}(\Lambda)`, and the gates ``r, i`` are sigmoids of block-diagonal maps of ``x``.

    Args:
        input_size: features per time step.
        hidden_size: width of the block.
        lru_width: size of ``h``; ``hidden_size`` by default.
        heads: blocks of the gates; a divisor of ``lru_width``.
        taps: inputs that the convolution reads.

    Shapes:
        state ``(h, window, started)``: ``(batch, lru_width)``, ``(batch, taps, lru_width)`` and ``(batch, 1)``.

    Raises:
        ConfigurationError: an option out of its range.

    Source:
        S. De, S. L. Smith, A. Fernando et al., "Griffin: mixing gated linear recurrences with local attention for
        efficient language models" (2024).

    Example:
        >>> outputs, (h, window, started) = RGLRU(2, 8)(torch.zeros(3, 5, 2))
        >>> outputs.shape, h.shape, window.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 8]), torch.Size([3, 4, 8]))
    """

    layout = staticmethod(gated.rg_lru)
    type_name = "RG-LRU"

    def __init__(
        self, input_size: int, hidden_size: int, *, lru_width: int | None = None, heads: int = 1, taps: int = 4
    ) -> None:
        super().__init__(input_size, hidden_size, eps=1e-6, unit_offset=True)
        self.lru_width = self.hidden_size if lru_width is None else positive_int("lru_width", lru_width)
        self.heads, self.taps = positive_int("heads", heads), positive_int("taps", taps)
        if self.lru_width % self.heads:
            raise ConfigurationError(f"heads must divide lru_width {self.lru_width}, got {self.heads}")
        self.mixer = RGLRUMixer(self.hidden_size, self.lru_width, self.heads, self.taps)
