"""Layers with a matrix as the state of each head: Mamba-2 and gated DeltaNet."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError

from ..checkpoints import delta_rule, state_space
from ..options import positive_int
from ..recurrent import register_layer
from ..scans.chunked import delta_rule_scan, scalar_gated_scan
from .block import CausalConvolution, GatedLinearBlock, Mixer, RMSNorm

INITIAL_TIME_STEPS = (1e-3, 0.1)
"""Range of the time steps at the start of training, log-uniform over the heads (Mamba and Mamba-2)."""
INITIAL_DECAYS = (1.0, 16.0)
"""Range of the decay rates per unit of time at the start of training (Mamba-2, gated DeltaNet)."""
KEY_EPS = 1e-6
"""Number added to the squared length of queries and keys before gated DeltaNet divides by it."""


class Terms(NamedTuple):
    """Terms of the recurrence of every head, ``(batch, ..., heads, entries)``, with a time axis or without.

    Attributes:
        q: queries, which read the state.
        k: keys; queries and keys of a group serve several consecutive heads.
        v: values, which are written under the keys.
        log_decay: logarithm of the decay of a step, ``(batch, ..., heads)``.
        beta: strength of writing, ``(batch, ..., heads)``.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    beta: Tensor


class MatrixStateMixer(Mixer):
    """Base of mixers with a state ``S (batch, heads, dk, dv)`` behind a causal convolution and SiLU.

    A state is the pair of ``S`` and the window of the convolution, ``(batch, taps, channels)``.

    Attributes:
        delta_rule: whether a step first takes away what the state holds under its key.
        conv1d: causal convolution of queries, keys and values.
        shape: ``(heads, dk, dv)``.
    """

    delta_rule: ClassVar[bool]
    conv1d: CausalConvolution
    shape: tuple[int, int, int]
    dt_bias: nn.Parameter
    A_log: nn.Parameter

    @property
    def step_bias(self) -> Tensor:
        """Return the bias of the steps."""
        return self.dt_bias

    @abstractmethod
    def parts(self, projected: Tensor) -> Sequence[Tensor]:
        """Split projections into the output gate ``z``, what enters the convolution, and the gates of the state."""

    @abstractmethod
    def terms(self, convolved: Tensor, gates: Tensor) -> Terms:
        """Return the terms of the recurrence from what left the convolution and SiLU, and the gates."""

    @abstractmethod
    def output(self, read: Tensor, v: Tensor, z: Tensor) -> Tensor:
        """Return outputs ``(..., width)`` from what queries read and the values, ``(..., heads, dv)``."""

    def initial_state(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return zeros."""
        return u.new_zeros(len(u), *self.shape), self.conv1d.window(u)

    def advance(self, projected: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Run one step of the window and of the recurrence."""
        S, window = state
        _, new, gates = self.parts(projected)
        window = torch.cat([window[:, 1:], new.unsqueeze(1)], 1)
        _, k, v, log_decay, beta = self.terms(nn.functional.silu(self.conv1d.at(window)), gates)
        k, v = self._of_heads(k).unsqueeze(-1), v.unsqueeze(-2)
        S = log_decay.exp()[..., None, None] * S
        return S + beta[..., None, None] * k * (v - k.mT @ S if self.delta_rule else v), window

    def read(self, projected: Tensor, state: tuple[Tensor, Tensor]) -> Tensor:
        """Return the output of a step."""
        S, window = state
        z, _, gates = self.parts(projected)
        q, _, v, _, _ = self.terms(nn.functional.silu(self.conv1d.at(window)), gates)
        return self.output((self._of_heads(q).unsqueeze(-2) @ S).squeeze(-2), v, z)

    def scan(self, projected: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run over a sequence in chunks."""
        S, window = state
        z, new, gates = self.parts(projected)
        convolved, window = self.conv1d(new, window)
        q, k, v, log_decay, beta = self.terms(nn.functional.silu(convolved), gates)
        if self.delta_rule:
            read, S = delta_rule_scan(q, k, v, log_decay, beta, initial=S)
        else:
            read, S = scalar_gated_scan(q, k, beta.unsqueeze(-1) * v, log_decay, initial=S)
        return self.output(read, v, z), (S, window)

    def decays(self, projected: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Return the logarithm of the decay of each head, and the steps."""
        _, new, gates = self.parts(projected)
        log_decay = self.terms(nn.functional.silu(self.conv1d(new, state[1])[0]), gates).log_decay
        return log_decay, -log_decay / self.A_log.exp()

    def _of_heads(self, x: Tensor) -> Tensor:
        """Repeat queries or keys of groups for each head, ``(batch, groups, dk)`` to ``(batch, heads, dk)``."""
        return x.repeat_interleave(self.shape[0] // x.shape[-2], -2)


class Mamba2Mixer(MatrixStateMixer):
    """Mixer of Mamba-2, with the parameters of ``mamba_ssm`` and ``transformers``; see ``Mamba2``."""

    delta_rule = False

    def __init__(
        self, width: int, *, heads: int = 4, groups: int = 1, state_size: int = 16, expand: int = 2, taps: int = 4
    ) -> None:
        super().__init__()
        inner = expand * width
        _divides("heads", heads, "expand * hidden_size", inner)
        _divides("groups", groups, "heads", heads)
        self.shape, self.groups, self.inner = (heads, state_size, inner // heads), groups, inner
        channels = inner + 2 * groups * state_size
        self.in_proj = nn.Linear(width, inner + channels + heads, bias=False)
        self.conv1d = CausalConvolution(channels, taps)
        self.dt_bias, self.A_log = initial_gates(heads)
        self.D = nn.Parameter(torch.ones(heads))
        self.norm = GroupedRMSNorm(inner, groups)
        self.out_proj = nn.Linear(inner, width, bias=False)

    def project(self, u: Tensor) -> Tensor:
        """Return ``[z | x | B | C | dt]``."""
        return self.in_proj(u)

    def parts(self, projected: Tensor) -> Sequence[Tensor]:
        """Split into ``z``, ``[x | B | C]`` and ``dt``."""
        return projected.split([self.inner, self.conv1d.channels, self.shape[0]], -1)

    def terms(self, convolved: Tensor, gates: Tensor) -> Terms:
        """Return queries ``C``, keys ``B``, values ``x``, the logarithms ``-dt A`` and the strengths ``dt``."""
        heads, size, _ = self.shape
        x, B, C = convolved.split([self.inner, self.groups * size, self.groups * size], -1)
        dt = self.step(gates + self.dt_bias)
        B, C = (part.unflatten(-1, (-1, size)) for part in (B, C))
        return Terms(C, B, x.unflatten(-1, (heads, -1)), -dt * self.A_log.exp(), dt)

    def output(self, read: Tensor, v: Tensor, z: Tensor) -> Tensor:
        """Return the projection of ``norm((S^T C + D x) silu(z))``."""
        y = torch.addcmul(read, self.D.unsqueeze(-1), v).flatten(-2)
        return self.out_proj(self.norm(y * nn.functional.silu(z)))


class GatedDeltaNetMixer(MatrixStateMixer):
    """Mixer of gated DeltaNet, with the parameters of Qwen3-Next in ``transformers``; see ``GatedDeltaNet``."""

    delta_rule = True

    def __init__(
        self,
        width: int,
        *,
        heads: int = 4,
        key_heads: int = 4,
        key_size: int = 16,
        expand: int = 2,
        taps: int = 4,
    ) -> None:
        super().__init__()
        values = expand * width
        _divides("heads", heads, "expand * hidden_size", values)
        _divides("key_heads", key_heads, "heads", heads)
        self.shape, self.key_heads, self.values = (heads, key_size, values // heads), key_heads, values
        keys = key_heads * key_size
        self.in_proj_qkvz = nn.Linear(width, 2 * keys + 2 * values, bias=False)
        self.in_proj_ba = nn.Linear(width, 2 * heads, bias=False)
        self.conv1d = CausalConvolution(2 * keys + values, taps, bias=False)
        self.dt_bias, self.A_log = initial_gates(heads)
        self.norm = RMSNorm(values // heads, 1e-6)
        self.out_proj = nn.Linear(values, width, bias=False)

    def project(self, u: Tensor) -> Tensor:
        """Return ``[z | q | k | v | b | a]``; the stored rows are ``[q k v z]`` and ``[b a]`` by heads of keys."""
        size, each = self.shape[1], self.values // self.key_heads
        q, k, v, z = self.in_proj_qkvz(u).unflatten(-1, (self.key_heads, -1)).split([size, size, each, each], -1)
        b, a = self.in_proj_ba(u).unflatten(-1, (self.key_heads, -1)).chunk(2, -1)
        return torch.cat([part.flatten(-2) for part in (z, q, k, v, b, a)], -1)

    def parts(self, projected: Tensor) -> Sequence[Tensor]:
        """Split into ``z``, ``[q | k | v]`` and ``[b | a]``."""
        return projected.split([self.values, self.conv1d.channels, 2 * self.shape[0]], -1)

    def terms(self, convolved: Tensor, gates: Tensor) -> Terms:
        """Return queries and keys of length one (queries over the root of ``dk``), values, and the gates."""
        heads, size, _ = self.shape
        q, k, v = convolved.split([self.key_heads * size, self.key_heads * size, self.values], -1)
        q, k = (_unit(x.unflatten(-1, (-1, size))) for x in (q, k))
        b, a = gates.chunk(2, -1)
        log_decay = -self.A_log.exp() * self.step(a + self.dt_bias)
        return Terms(q / math.sqrt(size), k, v.unflatten(-1, (heads, -1)), log_decay, torch.sigmoid(b))

    def output(self, read: Tensor, v: Tensor, z: Tensor) -> Tensor:
        """Return the projection of ``norm(S^T q) silu(z)``."""
        return self.out_proj(self.norm(read).flatten(-2) * nn.functional.silu(z))


class GroupedRMSNorm(RMSNorm):
    """Root-mean-square norm of each group of consecutive entries, with one weight for every entry."""

    def __init__(self, size: int, groups: int, eps: float = 1e-5) -> None:
        super().__init__(size, eps)
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """Return the normed ``x``."""
        wide = x.unflatten(-1, (self.groups, -1)).to(torch.promote_types(x.dtype, torch.float32))
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return normed.flatten(-2).to(x.dtype) * self.weight


@register_layer("mamba2")
class Mamba2(GatedLinearBlock):
    r"""Residual block of Mamba-2: a decay per head, decided by the input, of a memory of values under keys.

    Per head :math:`S_t = e^{-\Delta_t A} S_{t-1} + \Delta_t B_t x_t^\top` and :math:`y_t = S_t^\top C_t + D x_t` with
    :math:`\Delta_t = \mathrm{softplus}(W u_t + b)`; ``x``, ``B`` and ``C`` leave a causal convolution and SiLU. The
    output is gated by SiLU, normed in groups and projected. ``u`` is the normed input of the block.

    Args:
        input_size: features per time step; where they are not ``hidden_size``, a linear map comes first.
        hidden_size: width of the block, and the number of its outputs.
        heads: heads; ``expand * hidden_size`` is a multiple.
        groups: groups of consecutive heads that share ``B`` and ``C``.
        state_size: entries of ``B`` and ``C``.
        expand: ``expand * hidden_size`` values in all heads together.
        taps: inputs that the convolution sees at once.
        floor: lower limit of the step of each head, as a fraction of its initial step; ``None`` for no limit.

    Attributes:
        mixer: the mixer, with the parameters of ``mamba_ssm``.

    Shapes:
        state: ``(batch, heads, state_size, expand * hidden_size / heads)`` and the window of the convolution,
        ``(batch, taps, expand * hidden_size + 2 * groups * state_size)``.

    Raises:
        ConfigurationError: sizes that do not divide each other.

    Source:
        T. Dao, A. Gu, "Transformers are SSMs: generalized models and efficient algorithms through structured state
        space duality" (ICML 2024).

    Example:
        >>> outputs, (S, window) = Mamba2(2, 8)(torch.zeros(3, 5, 2))
        >>> outputs.shape, S.shape, window.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 4, 16, 4]), torch.Size([3, 4, 48]))
    """

    layout = staticmethod(state_space.mamba2)
    type_name = "Mamba-2"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        heads: int = 4,
        groups: int = 1,
        state_size: int = 16,
        expand: int = 2,
        taps: int = 4,
        floor: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size)
        sizes = {"heads": heads, "groups": groups, "state_size": state_size, "expand": expand, "taps": taps}
        for name, value in sizes.items():
            setattr(self, name, positive_int(name, value))
        self.mixer = Mamba2Mixer(self.hidden_size, **sizes)
        self._start_floors(floor)

    def settings(self) -> dict[str, Any]:
        """Return the number of groups."""
        return {"n_groups": self.groups}


@register_layer("gated_deltanet")
class GatedDeltaNet(GatedLinearBlock):
    r"""Residual block of gated DeltaNet: a memory of values under keys that replaces what a key held before.

    Per head :math:`S_t = \alpha_t (I - \beta_t k_t k_t^\top) S_{t-1} + \beta_t k_t v_t^\top` and
    :math:`o_t = S_t^\top q_t` with :math:`\alpha_t = e^{-A\, \mathrm{softplus}(a_t + b)}` and
    :math:`\beta_t = \sigma(b_t)`; queries, keys and values leave a causal convolution and SiLU, queries and keys have
    length one. The output of each head is normed, gated by SiLU and projected.

    Args:
        input_size: features per time step; where they are not ``hidden_size``, a linear map comes first.
        hidden_size: width of the block, and the number of its outputs.
        heads: heads; ``expand * hidden_size`` is a multiple.
        key_heads: heads of queries and keys, each shared by consecutive heads; ``heads`` by default.
        key_size: entries of a key.
        expand: ``expand * hidden_size`` values in all heads together.
        taps: inputs that the convolution sees at once.
        floor: lower limit of the step of each head, as a fraction of its initial step; ``None`` for no limit.

    Attributes:
        mixer: the mixer, with the parameters of Qwen3-Next in ``transformers``.

    Shapes:
        state: ``(batch, heads, key_size, expand * hidden_size / heads)`` and the window of the convolution,
        ``(batch, taps, expand * hidden_size + 2 * key_heads * key_size)``.

    Raises:
        ConfigurationError: sizes that do not divide each other.

    Source:
        S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks: improving Mamba2 with delta rule" (ICLR 2025).

    Example:
        >>> outputs, (S, window) = GatedDeltaNet(2, 8, key_heads=2)(torch.zeros(3, 5, 2))
        >>> outputs.shape, S.shape, window.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 4, 16, 4]), torch.Size([3, 4, 80]))
    """

    layout = staticmethod(delta_rule.qwen3_next)
    type_name = "gated DeltaNet"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        heads: int = 4,
        key_heads: int | None = None,
        key_size: int = 16,
        expand: int = 2,
        taps: int = 4,
        floor: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, eps=1e-6, unit_offset=True)
        key_heads = heads if key_heads is None else key_heads
        sizes = {"heads": heads, "key_heads": key_heads, "key_size": key_size, "expand": expand, "taps": taps}
        for name, value in sizes.items():
            setattr(self, name, positive_int(name, value))
        self.mixer = GatedDeltaNetMixer(self.hidden_size, **sizes)
        self._start_floors(floor)

    def settings(self) -> dict[str, Any]:
        """Return number and size of keys."""
        return {"linear_num_key_heads": self.key_heads, "linear_key_head_dim": self.key_size}


def initial_gates(heads: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Return ``dt_bias`` and ``A_log`` of each head at the start of training."""
    low, high = (math.log(step) for step in INITIAL_TIME_STEPS)
    dt = torch.empty(heads).uniform_(low, high).exp()
    inverse_softplus = dt + torch.log(-torch.expm1(-dt))
    return nn.Parameter(inverse_softplus), nn.Parameter(torch.empty(heads).uniform_(*INITIAL_DECAYS).log())


def _unit(x: Tensor) -> Tensor:
    """Return vectors over their lengths."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + KEY_EPS)


def _divides(name: str, count: int, of: str, total: int) -> None:
    """Raise an error if a count does not divide a total.

    Raises:
        ConfigurationError: it does not.
    """
    if total % count:
        raise ConfigurationError(f"{name} must divide {of} = {total}, got {count}")
