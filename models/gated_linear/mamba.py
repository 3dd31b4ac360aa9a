"""Mamba: a selective state space model with a diagonal transition."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints import state_space
from ..options import positive_int
from ..recurrent import register_layer
from .block import CausalConvolution, RMSNorm
from .diagonal import DiagonalBlock, DiagonalMixer, Gates, inverse_softplus, log_uniform

DT_MIN, DT_MAX, DT_FLOOR = 1e-3, 0.1, 1e-4
"""Range of the step sizes ``dt`` at the start of training, and the least one, in the paper's code."""


class MambaMixer(DiagonalMixer):
    """Mixer of Mamba, with the keys of ``mamba_ssm`` and of transformers.

    Args:
        width: features of input and output.
        inner: channels ``Di``.
        state_size: entries ``N`` of the state of a channel.
        rank: rank ``R`` of the map to the step sizes.
        taps: inputs of the convolution.

    Attributes:
        in_proj: rows ``[x | z]``.
        conv1d: convolution of ``x``.
        x_proj: rows ``[dt | B | C]``.
        dt_proj: map to the step sizes of all channels.
        A_log: ``(Di, N)``, logarithms of the decay rates.
        D: ``(Di,)``, skip connection.
        out_proj: readout.
        dt_layernorm: norm of the input of ``dt_proj``; FalconMamba and Jamba have it and the next two, Mamba has not.
        b_layernorm: norm of ``B``.
        c_layernorm: norm of ``C``.
    """

    def __init__(self, width: int, inner: int, state_size: int, rank: int, taps: int) -> None:
        super().__init__()
        self.state_shape, self.rank = (inner, state_size), rank
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv1d = CausalConvolution(inner, taps)
        self.x_proj = nn.Linear(inner, rank + 2 * state_size, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        bound = 1.0 / math.sqrt(rank)
        nn.init.uniform_(self.dt_proj.weight, -bound, bound)
        with torch.no_grad():
            dt = torch.exp(log_uniform(inner, low=DT_MIN, high=DT_MAX)).clamp(min=DT_FLOOR)
            self.dt_proj.bias.copy_(inverse_softplus(dt))
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, state_size + 1)).repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)
        self.dt_layernorm, self.b_layernorm, self.c_layernorm = (nn.Identity() for _ in range(3))

    @property
    def step_bias(self) -> Tensor:
        """Return the bias of the steps."""
        return self.dt_proj.bias

    @property
    def convolution(self) -> CausalConvolution:
        """Return the convolution of ``x``."""
        return self.conv1d

    def project(self, u: Tensor) -> Tensor:
        """Return ``x`` and ``z``."""
        return self.in_proj(u)

    def gates(self, signal: Tensor) -> Gates:
        """Return ``x``, step sizes, ``B``, ``C`` and ``z``."""
        x, z = signal.chunk(2, dim=-1)
        x = nn.functional.silu(x)
        n = self.state_shape[1]
        dt, B, C = self.x_proj(x).split([self.rank, n, n], dim=-1)
        return x, self.step(self.dt_proj(self.dt_layernorm(dt))), self.b_layernorm(B), self.c_layernorm(C), z

    def decays(self, projected: Tensor, state: Any) -> tuple[Tensor, Tensor | None]:
        """Return the logarithm of the slowest decay of each channel, and the steps."""
        dt = self.gates(self._signal(projected, state)[0])[1]
        return -dt * self.A_log.amin(-1).exp(), dt

    def recurrence(self, gates: Gates, state: Any) -> tuple[Tensor, Tensor]:
        """Return ``exp(-dt A)`` and ``dt x B``, ``(batch, time, Di, N)``."""
        x, dt, B, _, _ = gates
        return torch.exp(-dt.unsqueeze(-1) * torch.exp(self.A_log)), (dt * x).unsqueeze(-1) * B.unsqueeze(-2)

    def readout(self, h: Tensor, gates: Gates) -> Tensor:
        """Return a linear map of ``(h C + D x) silu(z)``."""
        x, _, _, C, z = gates
        y = (h @ C.unsqueeze(-1)).squeeze(-1) + self.D * x
        return self.out_proj(y * nn.functional.silu(z))


@register_layer("mamba")
class Mamba(DiagonalBlock):
    r"""Mamba block: :math:`h_{cn}^+ = e^{-\Delta_c A_{cn}} h_{cn} + \Delta_c B_n x_c`, :math:`y_c = \sum_n C_n h_{cn} +
    D_c x_c`.

    ``x`` is a SiLU of a convolution of a linear map of the normed input; the step sizes :math:`\Delta`, ``B`` and ``C``
    depend on ``x``; a second linear map of the input gates the output.

    Args:
        input_size: features per time step.
        hidden_size: width of the block.
        state_size: entries of the state of a channel.
        expand: channels over the width.
        rank: rank of the map to the step sizes; a sixteenth of the width by default.
        taps: inputs that the convolution reads.
        floor: lower limit of the step of each channel, as a fraction of its initial step; ``None`` for no limit.

    Shapes:
        state ``(h, window)``: ``(batch, expand * hidden_size, state_size)``, ``(batch, taps, expand * hidden_size)``.

    Raises:
        ConfigurationError: an option out of its range.

    Source:
        A. Gu, T. Dao, "Mamba: linear-time sequence modeling with selective state spaces" (2023).

    Example:
        >>> outputs, (h, window) = Mamba(2, 8)(torch.zeros(3, 5, 2))
        >>> outputs.shape, h.shape, window.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 16, 16]), torch.Size([3, 4, 16]))
    """

    layout = staticmethod(state_space.mamba)
    type_name = "Mamba"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        state_size: int = 16,
        expand: int = 2,
        rank: int | None = None,
        taps: int = 4,
        floor: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.state_size, self.expand = positive_int("state_size", state_size), positive_int("expand", expand)
        self.rank = math.ceil(self.hidden_size / 16) if rank is None else positive_int("rank", rank)
        self.taps = positive_int("taps", taps)
        self.mixer = MambaMixer(self.hidden_size, expand * self.hidden_size, self.state_size, self.rank, self.taps)
        self._start_floors(floor)

    def settings(self) -> dict[str, Any]:
        """Return the epsilon of the inner norms, if there are any."""
        return {"rms_norm_eps": norm.eps} if isinstance(norm := self.mixer.dt_layernorm, RMSNorm) else {}
