"""S4D and S5: state space models with a constant diagonal transition, in gated residual blocks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError

from ..checkpoints import state_space
from ..options import positive_int
from ..recurrent import register_layer
from ..scans.linear import powers
from .diagonal import DiagonalBlock, DiagonalMixer, Gates, log_uniform

DT_MIN, DT_MAX = 1e-3, 0.1
"""Range of the step sizes at the start of training, in both papers."""


class Discretized(NamedTuple):
    """Discretization by zero-order hold: factors ``exp(dt A)``, and ``(exp(dt A) - 1) / A``, which multiply ``B u``."""

    factors: Tensor
    gains: Tensor


def zero_order_hold(A: Tensor, dt: Tensor) -> Discretized:
    """Discretize the diagonal equation ``x' = A x + B u`` with step sizes ``dt``."""
    factors = torch.exp(dt * A)
    return Discretized(factors, (factors - 1.0) / A)


def wide(value: Tensor) -> Tensor:
    """Return a tensor in single precision at least, since there are no complex numbers of half precision."""
    return value.to(torch.promote_types(value.dtype, torch.float32))


class S4DKernel(nn.Module):
    """Parameters of S4D's diagonal systems, one for each feature, with the keys of ``state-spaces/s4``.

    Args:
        width: features ``H``.
        state_size: real entries ``N`` of the state of a feature, an even number; ``N / 2`` complex ones are kept.

    Attributes:
        C: ``(H, N / 2, 2)``, real and imaginary parts.
        log_dt: ``(H,)``.
        log_A_real: ``(H, N / 2)``; the real part of ``A`` is ``-exp(log_A_real)``.
        A_imag: ``(H, N / 2)``.
    """

    def __init__(self, width: int, state_size: int) -> None:
        super().__init__()
        modes = state_size // 2
        self.C = nn.Parameter(torch.randn(width, modes, 2) / math.sqrt(2.0))
        self.log_dt = nn.Parameter(log_uniform(width, low=DT_MIN, high=DT_MAX))
        self.log_A_real = nn.Parameter(torch.full((width, modes), math.log(0.5)))
        self.A_imag = nn.Parameter(math.pi * torch.arange(float(modes)).repeat(width, 1))

    def discretized(self) -> Discretized:
        """Return factors and gains, ``(H, N / 2)``."""
        A = torch.complex(-torch.exp(wide(self.log_A_real)), wide(self.A_imag))
        return zero_order_hold(A, torch.exp(wide(self.log_dt)).unsqueeze(-1))

    def output_weights(self) -> Tensor:
        """Return ``2 C`` as complex numbers: each stands for a conjugate pair."""
        return 2.0 * torch.view_as_complex(wide(self.C).contiguous())


class S4DMixer(DiagonalMixer):
    """Mixer of S4D, with the keys of ``state-spaces/s4``: ``kernel``, ``D`` and ``output_linear``.

    Args:
        width: features.
        state_size: real entries of the state of a feature.
    """

    complex_state = True

    def __init__(self, width: int, state_size: int) -> None:
        super().__init__()
        self.state_shape = (width, state_size // 2)
        self.D = nn.Parameter(torch.randn(width))
        self.kernel = S4DKernel(width, state_size)
        self.output_linear = nn.Sequential(nn.Conv1d(width, 2 * width, 1))

    def project(self, u: Tensor) -> Tensor:
        """Return the input."""
        return u

    def gates(self, signal: Tensor) -> Gates:
        """Return the input."""
        return (signal,)

    def recurrence(self, gates: Gates, state: Any) -> tuple[Tensor, Tensor]:
        """Return constant factors ``(H, N / 2)`` and the addends of all steps."""
        factors, gains = self.kernel.discretized()
        return factors, gains * wide(gates[0]).unsqueeze(-1)

    def readout(self, h: Tensor, gates: Gates) -> Tensor:
        """Return a gated linear unit of ``gelu(2 Re(C h) + D u)``."""
        return self._mixed(torch.einsum("...hn,hn->...h", h, self.kernel.output_weights()).real, gates[0])

    def scan(self, projected: Tensor, state: Any) -> tuple[Tensor, Tensor]:
        """Run over a sequence as a convolution by FFT, which never holds the states of all steps."""
        factors, gains = self.kernel.discretized()
        length, u, start = projected.shape[1], wide(projected), self._entries(state)
        power = powers(factors, length + 1).to(factors.dtype)
        weighted = power * self.kernel.output_weights()
        size = 1 << (2 * length - 1).bit_length()
        kernel = torch.fft.rfft((weighted[:-1] * gains).sum(-1).real, size, dim=0)
        y = torch.fft.irfft(kernel * torch.fft.rfft(u, size, dim=1), size, dim=1)[:, :length]
        y = y + torch.einsum("lhn,bhn->blh", weighted[1:], start).real
        forced = torch.einsum("lhn,blh->bhn", power[:-1].flip(0) * gains, u.to(power.dtype))
        return self._mixed(y, projected), self._joined(power[-1] * start + forced, (), projected)

    def _mixed(self, y: Tensor, u: Tensor) -> Tensor:
        """Return the output from ``2 Re(C h)`` and the input."""
        conv: Any = self.output_linear[0]
        y = nn.functional.gelu(y.to(u.dtype) + self.D * u)
        return nn.functional.glu(nn.functional.linear(y, conv.weight[..., 0], conv.bias), dim=-1)


class S5Mixer(DiagonalMixer):
    """Mixer of S5: one system of all features, with the keys of ``lindermanlab/S5``, and a gate at its output.

    Args:
        width: features ``H``.
        state_size: complex entries ``P`` of the state; each stands for a conjugate pair.
        clip_eigs: keep the real parts of ``Lambda`` below -1e-4.

    Attributes:
        Lambda_re: ``(P,)``, eigenvalues of the differential equation.
        Lambda_im: ``(P,)``.
        B: ``(P, H, 2)``, real and imaginary parts.
        C: ``(H, P, 2)``, likewise.
        D: ``(H,)``, skip connection.
        log_step: ``(P, 1)``, logarithms of the step sizes.
        out2: map to the gate of the output.
    """

    complex_state = True

    def __init__(self, width: int, state_size: int, clip_eigs: bool) -> None:
        super().__init__()
        self.state_shape, self.clip_eigs = (state_size,), clip_eigs
        eigenvalues, vectors = hippo_modes(state_size)
        into = vectors.conj().T @ (torch.randn(2 * state_size, width) / math.sqrt(width)).to(vectors.dtype)
        out = (torch.randn(width, 2 * state_size, 2) / math.sqrt(4 * state_size)).to(torch.float32)
        self.Lambda_re = nn.Parameter(eigenvalues.real.clone())
        self.Lambda_im = nn.Parameter(eigenvalues.imag.clone())
        self.B = nn.Parameter(torch.view_as_real(into).clone())
        self.C = nn.Parameter(torch.view_as_real(torch.view_as_complex(out) @ vectors).clone())
        self.D = nn.Parameter(torch.randn(width))
        self.log_step = nn.Parameter(log_uniform(state_size, 1, low=DT_MIN, high=DT_MAX))
        self.out2 = nn.Linear(width, width)

    def project(self, u: Tensor) -> Tensor:
        """Return the input."""
        return u

    def gates(self, signal: Tensor) -> Gates:
        """Return the input."""
        return (signal,)

    def recurrence(self, gates: Gates, state: Any) -> tuple[Tensor, Tensor]:
        """Return constant factors ``(P,)`` and the addends of all steps."""
        real = wide(self.Lambda_re)
        real = real.clamp(max=-1e-4) if self.clip_eigs else real
        factors, gains = zero_order_hold(
            torch.complex(real, wide(self.Lambda_im)), torch.exp(wide(self.log_step))[:, 0]
        )
        u, B = wide(gates[0]), wide(self.B)
        return factors, gains * torch.complex(nn.functional.linear(u, B[..., 0]), nn.functional.linear(u, B[..., 1]))

    def readout(self, h: Tensor, gates: Gates) -> Tensor:
        """Return ``x sigmoid(W x + b)`` of ``x = gelu(2 Re(C h) + D u)``."""
        u, C = gates[0], 2.0 * wide(self.C)
        y = nn.functional.linear(h.real, C[..., 0]) - nn.functional.linear(h.imag, C[..., 1])
        x = nn.functional.gelu(y.to(u.dtype) + self.D * u)
        return x * torch.sigmoid(self.out2(x))


def hippo_modes(count: int) -> tuple[Tensor, Tensor]:
    """Return eigenvalues ``(count,)`` and eigenvectors ``(2 count, count)`` of the normal part of HiPPO-LegS.

    Of each conjugate pair the one with the positive imaginary part is kept.
    """
    order = np.arange(2 * count)
    root = np.sqrt(2.0 * order + 1.0)
    low_rank = np.sqrt(order + 0.5)
    normal = np.diag(order) - np.tril(np.outer(root, root)) + np.outer(low_rank, low_rank)
    real = np.diag(normal).mean()
    imaginary, vectors = np.linalg.eigh(-1j * (normal - real * np.eye(2 * count)))
    eigenvalues = real + 1j * imaginary[count:]
    return torch.tensor(eigenvalues, dtype=torch.complex64), torch.tensor(vectors[:, count:], dtype=torch.complex64)


@register_layer("s4d")
class S4D(DiagonalBlock):
    r"""S4D block: for each feature of the normed input a diagonal system :math:`h' = A h + u`, :math:`y = 2\,
    \mathrm{Re}(C h) + D u`.

    Discretized by zero-order hold with a trained step size; a gated linear unit mixes the features of the output.

    Args:
        input_size: features per time step.
        hidden_size: width of the block.
        state_size: real entries of the state of a feature, even.

    Shapes:
        state ``(batch, hidden_size, state_size / 2, 2)``: real and imaginary parts last.

    Raises:
        ConfigurationError: an option out of its range.

    Source:
        A. Gu, A. Gupta, K. Goel, C. Ré, "On the parameterization and initialization of diagonal state space models"
        (NeurIPS 2022).

    Example:
        >>> outputs, h = S4D(2, 8, state_size=6)(torch.zeros(3, 5, 2))
        >>> outputs.shape, h.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 8, 3, 2]))
    """

    layout = staticmethod(state_space.s4d)
    type_name = "S4D"

    def __init__(self, input_size: int, hidden_size: int, *, state_size: int = 64) -> None:
        super().__init__(input_size, hidden_size)
        self.state_size = positive_int("state_size", state_size)
        if state_size % 2:
            raise ConfigurationError(f"state_size must be even (conjugate pairs), got {state_size}")
        self.mixer = S4DMixer(self.hidden_size, self.state_size)


@register_layer("s5")
class S5(DiagonalBlock):
    r"""S5 block: one diagonal system :math:`h' = \Lambda h + B u`, :math:`y = 2\, \mathrm{Re}(C h) + D u` of the normed
    input.

    Discretized by zero-order hold with a trained step size for each entry; the output gates itself.

    Args:
        input_size: features per time step.
        hidden_size: width of the block.
        state_size: complex entries of the state; half the width by default.
        clip_eigs: keep the real parts of ``Lambda`` negative; without it training may leave the region of stability.

    Shapes:
        state ``(batch, state_size, 2)``: real and imaginary parts last.

    Raises:
        ConfigurationError: an option out of its range.

    Source:
        J. T. H. Smith, A. Warrington, S. W. Linderman, "Simplified state space layers for sequence modeling"
        (ICLR 2023).

    Example:
        >>> outputs, h = S5(2, 8)(torch.zeros(3, 5, 2))
        >>> outputs.shape, h.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 4, 2]))
    """

    layout = staticmethod(state_space.s5)
    type_name = "S5"

    def __init__(
        self, input_size: int, hidden_size: int, *, state_size: int | None = None, clip_eigs: bool = False
    ) -> None:
        super().__init__(input_size, hidden_size)
        half = max(1, self.hidden_size // 2)
        self.state_size = half if state_size is None else positive_int("state_size", state_size)
        self.clip_eigs = bool(clip_eigs)
        self.mixer = S5Mixer(self.hidden_size, self.state_size, self.clip_eigs)

    def settings(self) -> dict[str, Any]:
        """Return discretization and clipping."""
        return {"discretization": "zoh", "clip_eigs": self.clip_eigs}
