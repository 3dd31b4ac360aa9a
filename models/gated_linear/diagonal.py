r"""Mixers with a diagonal transition: :math:`h_t = a_t \odot h_{t-1} + b_t`, run by a scan over time."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from ..scans.linear import diagonal_scan
from ..tensors import state_leaves
from .block import CausalConvolution, GatedLinearBlock, Mixer

Gates = tuple[Tensor, ...]
"""Tensors ``(..., features)`` of each step, from which the transition, its addend and the readout follow."""


class DiagonalMixer(Mixer):
    """Mixer whose state entries do not mix; subclasses give the gates, the transition and the readout.

    Attributes:
        state_shape: shape of ``h``; complex entries are kept as pairs of real numbers along a last axis.
        convolution: convolution of the first features of the projections, or ``None``.
        complex_state: whether the entries of ``h`` are complex.
    """

    state_shape: tuple[int, ...]
    complex_state = False

    @property
    def convolution(self) -> CausalConvolution | None:
        """Return the convolution, if the mixer has one."""
        return None

    @abstractmethod
    def gates(self, signal: Tensor) -> Gates:
        """Return all that transition and readout need of ``(..., features)``, the projections after the convolution."""

    @abstractmethod
    def recurrence(self, gates: Gates, state: Any) -> tuple[Tensor, Tensor]:
        """Return ``a``, which may be constant in time, and ``b (batch, time, *state_shape)``."""

    @abstractmethod
    def readout(self, h: Tensor, gates: Gates) -> Tensor:
        """Return ``(..., width)`` from the state entries ``h (..., *state_shape)`` after the step."""

    def initial_state(self, u: Tensor) -> Any:
        """Return zeros, with the window of the convolution if there is one."""
        h = u.new_zeros(u.shape[0], *self.state_shape, *((2,) if self.complex_state else ()))
        return h if self.convolution is None else (h, self.convolution.window(u))

    def advance(self, projected: Tensor, state: Any) -> Any:
        """Run one step."""
        signal, rest = self._signal(projected.unsqueeze(1), state)
        a, b = self.recurrence(self.gates(signal), state)
        factor = a[:, 0] if a.dim() == b.dim() else a
        return self._joined(factor * self._entries(state) + b[:, 0], rest, projected)

    def read(self, projected: Tensor, state: Any) -> Tensor:
        """Return the output of a step."""
        signal, conv = projected, self.convolution
        if conv is not None:
            signal = torch.cat([conv.at(state[1]), projected[..., conv.channels :]], dim=-1)
        return self.readout(self._entries(state), self.gates(signal))

    def scan(self, projected: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Run over a sequence by ``diagonal_scan``."""
        signal, rest = self._signal(projected, state)
        gates = self.gates(signal)
        h = self._scanned(gates, state)
        return self.readout(h, gates), self._joined(h[:, -1], rest, projected)

    def states(self, projected: Tensor, state: Any) -> Tensor:
        """Return ``h`` after every step, ``(batch, time, ...)``."""
        h = self._scanned(self.gates(self._signal(projected, state)[0]), state)
        return torch.view_as_real(h) if h.is_complex() else h

    def decays(self, projected: Tensor, state: Any) -> tuple[Tensor, Tensor | None]:
        """Return logarithms of the moduli of the decays; there are no steps."""
        a, _ = self.recurrence(self.gates(self._signal(projected, state)[0]), state)
        log_decay = a.abs().log().flatten(-len(self.state_shape))
        return log_decay.expand(*projected.shape[:2], -1), None

    def slowest_factors(self, u: Tensor) -> Tensor:
        """Return ``a`` for a constant input ``u (width,)``, of each channel the entry of the largest modulus."""
        projected = self.project(u.expand(1, getattr(self.convolution, "taps", 1), -1))
        state = self.initial_state(projected)
        a, b = self.recurrence(self.gates(self._signal(projected, state)[0]), state)
        a = a[0, -1] if a.dim() == b.dim() else a
        return a if a.dim() == 1 else a.gather(-1, a.abs().argmax(-1, keepdim=True)).squeeze(-1)

    def _signal(self, projected: Tensor, state: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the projections after the convolution, and the state after them but for ``h``."""
        conv = self.convolution
        if conv is None:
            return projected, ()
        convolved, window = conv(projected[..., : conv.channels], state[1])
        return torch.cat([convolved, projected[..., conv.channels :]], dim=-1), (window,)

    def _entries(self, state: Any) -> Tensor:
        """Return ``h`` of a state, as complex numbers if the entries are."""
        h = state_leaves(state)[0]
        if not self.complex_state:
            return h
        return torch.view_as_complex(h.to(torch.promote_types(h.dtype, torch.float32)).contiguous())

    def _scanned(self, gates: Gates, state: Any) -> Tensor:
        a, b = self.recurrence(gates, state)
        return diagonal_scan(a, b, initial=self._entries(state))

    def _joined(self, h: Tensor, rest: tuple[Tensor, ...], like: Tensor) -> Any:
        """Return the state from ``h`` and the rest, in the dtype of the projections."""
        h = (torch.view_as_real(h) if h.is_complex() else h).to(like.dtype)
        return (h, *rest) if rest else h


class DiagonalBlock(GatedLinearBlock):
    """Block around a mixer with a diagonal transition."""

    mixer: DiagonalMixer

    def matrices(self) -> dict[str, Tensor]:
        """Return ``A``: the transition under zero input, of each channel the entry that forgets slowest."""
        zero = self.norm.weight.new_zeros(self.input_size)
        return {"A": torch.diag(self.mixer.slowest_factors(self.norm(self.encoder(zero))))}


def inverse_softplus(value: Tensor) -> Tensor:
    """Return ``x`` with ``softplus(x) = value > 0``."""
    return value + torch.log(-torch.expm1(-value))


def log_uniform(*shape: int, low: float, high: float) -> Tensor:
    """Return logarithms of numbers in ``[low, high]``, drawn uniformly on the logarithmic scale."""
    return torch.empty(shape).uniform_(math.log(low), math.log(high))
