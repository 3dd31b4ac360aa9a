r"""Base of linear recurrences: scan, step and convolution of one map, and its linear system.

The state is kept in the coordinates in which the map is diagonal, as neighboring pairs of real numbers, so that
one step costs a few operations an entry and the certificate is exact.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.systems.layer_stack import LayerStack
from stability.systems import DrivenSystem, LureSystem

from .options import real
from .recurrent import RecurrentLayer
from .scans.linear import as_pairs, diagonal_convolution, diagonal_scan, from_pairs
from .tensors import check_sequence, to_numpy

Scan = Callable[..., Tensor]
"""Function that returns the states of a diagonal recurrence, such as ``diagonal_scan``."""


class Realised(NamedTuple):
    """Matrices of one forward pass: ``z_t = lam z_{t-1} + into u_t``, ``y_t = out z_t + skip(u_t)``."""

    lam: Tensor
    into: Tensor
    out: Tensor
    back: Tensor | None


class LinearLayer(RecurrentLayer):
    """Base of linear recurrences; a subclass gives its diagonal form.

    Attributes:
        heads: parts of the state whose entries are paired among themselves.
        summation: order of sums in a step, see ``ExecutionModel``: the input's products are added before the state's.
        D: ``(output_size,)``, the input added entry by entry, or ``(output_size, input_size)`` where sizes differ.
    """

    D: nn.Parameter
    heads = 1
    summation = "products"

    @abstractmethod
    def realise(self, double: bool = False) -> Realised:
        """Return the diagonal form; ``double``: from exact float64 copies of the parameters."""

    def complex_state(self, state: Tensor) -> Tensor:
        """Convert a state's real entries (last axis) to the complex numbers that ``lam`` multiplies, by heads."""
        if self.width % 2 == 0:  # no head ends in the middle of a pair
            return as_pairs(state)
        return as_pairs(state.unflatten(-1, (self.heads, self.width))).flatten(-2)

    def real_state(self, state: Tensor) -> Tensor:
        """Invert ``complex_state``."""
        if self.width % 2 == 0:
            return from_pairs(state, self.hidden_size)
        return from_pairs(state.unflatten(-1, (self.heads, -1)), self.width).flatten(-2)

    @property
    def width(self) -> int:
        """Number of entries of one head, ``d``."""
        return self.hidden_size // self.heads

    @abstractmethod
    def transition_matrix(self, double: bool = False) -> Tensor:
        """Return the real form ``(n, n)`` of ``lam``."""

    def prepare(self) -> Realised:
        """Return the diagonal form of this forward pass."""
        return self.realise()

    def begin(self, x: Tensor, state: Any = None) -> tuple[Any, Any]:
        """Call ``RecurrentLayer.begin``; raise an error for the state of a bidirectional layer."""
        if state is not None and self.bidirectional:
            raise ConfigurationError("a bidirectional layer needs the whole sequence: leave the state out")
        return super().begin(x, state)

    def skip(self, x: Tensor) -> Tensor:
        """Return ``D u``, entry by entry or as a matrix product."""
        return self.D * x if self.D.dim() == 1 else nn.functional.linear(x, self.D)

    def drive(self, x: Tensor, prepared: Realised) -> Tensor:
        """Return the input's terms of state and output, joined along the last axis."""
        return torch.cat([nn.functional.linear(x, prepared.into), self.skip(x)], dim=-1)

    def transition(self, drive: Tensor, state: Tensor, prepared: Realised) -> Tensor:
        """Return ``lam z + drive``."""
        moved = self.real_state(prepared.lam * self.complex_state(state))
        return moved + drive[..., : self.hidden_size]

    def emit(self, state: Tensor) -> Tensor:
        """Raise an error: the output is not a function of the state alone.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"an output of {type(self).__name__} also needs the input: use output(state, drive, prepared)"
        )

    def output(self, state: Tensor, drive: Tensor, prepared: Realised) -> Tensor:
        """Return ``C x_t + D u_t``.

        Raises:
            UnsupportedError: for a bidirectional layer, whose output needs the future.
        """
        self._one_way("one step")
        return nn.functional.linear(state, prepared.out) + drive[..., self.hidden_size :]

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
        """Run over a sequence by a scan; see ``RecurrentLayer.forward``."""
        return self._run(x, state, diagonal_scan)

    def _run(self, x: Tensor, state: Any, method: Scan) -> tuple[Tensor, Tensor]:
        check_sequence(x, self.input_size)
        prepared, state = self.begin(x, state)
        added = nn.functional.linear(x, prepared.into).to(self.D.dtype)
        states = self._states(method, prepared.lam, added, state)
        outputs = nn.functional.linear(states, prepared.out) + self.skip(x)
        if prepared.back is not None:
            end = self.initial_state(x[:, -1:], prepared)
            back = self._states(method, prepared.lam, added, end, True)
            outputs = outputs + nn.functional.linear(back, prepared.back)
        return outputs, states[:, -1]

    def _states(self, method: Scan, lam: Tensor, added: Tensor, state: Tensor, reverse: bool = False) -> Tensor:
        start, b = self.complex_state(state), self.complex_state(added)
        return self.real_state(method(lam, b, reverse=reverse, initial=start))

    def convolve(self, x: Tensor) -> Tensor:
        r"""Run the convolutional form by FFT: :math:`x_t = \sum_{k \le t} A^{t-k} B u_k`.

        Args:
            x: ``(batch, time, input_size)``.

        Returns:
            Outputs ``(batch, time, output_size)``, those of ``forward`` to rounding.

        Raises:
            DimensionError: a wrong shape, or an empty batch or sequence.
            ConfigurationError: a wrong dtype or device.
        """
        return self._run(x, None, _convolved)[0]

    def states(self, x: Tensor, state: Any = None) -> Tensor:
        """Return all hidden states of the forward direction, ``(batch, time, hidden_size)``."""
        check_sequence(x, self.input_size)
        prepared, state = self.begin(x, state)
        return self._states(diagonal_scan, prepared.lam, nn.functional.linear(x, prepared.into), state)

    def driven(self, continuous: bool = False) -> Any:
        """Return the linear system, in float64, in the coordinates of the state.

        Returns:
            A ``DrivenSystem`` without channels; for a bidirectional layer a ``LayerStack`` of one level.

        Raises:
            UnsupportedError: for a differential equation, which this map does not have.
            NonFiniteError: NaN or infinite weights.
        """
        self.refuse_equation(continuous)
        self.check_finite()
        with torch.no_grad():
            realised, A = self.realise(double=True), self.transition_matrix(double=True)
        system = LureSystem.linear(to_numpy(A), dt=1.0)
        F = to_numpy(realised.into)
        one = DrivenSystem(system, "identity", np.zeros((0, F.shape[1])), None, F, type(self).__name__)
        if not self.bidirectional:
            return one
        return LayerStack([one, one], directions=2, name=type(self).__name__)

    def _one_way(self, what: str) -> None:
        if self.bidirectional:
            raise UnsupportedError(f"a bidirectional layer needs the whole sequence: it has no {what}")


def _convolved(lam: Tensor, b: Tensor, *, reverse: bool, initial: Tensor) -> Tensor:
    """Compute ``diagonal_scan`` by FFT."""
    b = b.flip(1) if reverse else b
    b = torch.cat([b[:, :1] + lam * initial.unsqueeze(1), b[:, 1:]], dim=1)
    return diagonal_convolution(lam, b).flip(1) if reverse else diagonal_convolution(lam, b)


def radii(names: tuple[str, str], low: float, high: float, why: str) -> tuple[float, float]:
    """Check the least and the largest initial size of eigenvalues: ``0 < low <= high < 1``.

    Raises:
        ConfigurationError: out of range; ``why``: what does not exist at one.
    """
    low = real(names[0], low, 0.0, 1.0, strict=True)
    high = real(names[1], high, low, 1.0)
    if high == 1.0:
        raise ConfigurationError(f"{names[1]} must be less than 1: {why}")
    return low, high


def initial_skip(inputs: int, outputs: int) -> Tensor:
    """Return ``D``: standard normal entry by entry, or a matrix if the sizes differ."""
    if inputs == outputs:
        return torch.randn(outputs)
    return torch.randn(outputs, inputs) / math.sqrt(inputs)


def series(layers: Sequence[LinearLayer]) -> DrivenSystem:
    r"""Return stacked linear layers as one linear system; its A is block-triangular.

    With :math:`y = C x + D u` between them, layer 2 sees :math:`C_1 (A_1 x_1 + B_1 u) + D_1 u`.

    Args:
        layers: linear layers, the lowest first, each in one direction.

    Returns:
        The system of all states together.

    Raises:
        UnsupportedError: a bidirectional layer.
    """
    A, F, _, _ = input_output(layers)
    return DrivenSystem(LureSystem.linear(A, dt=1.0), "identity", np.zeros((0, F.shape[1])), None, F, "series")


def input_output(layers: Sequence[LinearLayer]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    r"""Return stacked linear layers as :math:`x^+ = A x + F u` with the last layer's output ``H x + J u``.

    Args:
        layers: linear layers, the lowest first, each in one direction.

    Returns:
        ``A (n, n)``, ``F (n, p)``, ``H (q, n)`` and ``J (q, p)``, all of the state before the step.

    Raises:
        UnsupportedError: a bidirectional layer.
    """
    rows: list[np.ndarray] = []
    inputs = layers[0].input_size
    widths = [layer.hidden_size for layer in layers]
    total = sum(widths)
    signal = np.hstack([np.zeros((inputs, total)), np.eye(inputs)])  # what layer k reads, from (state, u)
    for k, layer in enumerate(layers):
        layer._one_way("series form")
        system = layer.driven()
        with torch.no_grad():
            out = to_numpy(layer.realise(double=True).out)
        at = sum(widths[:k])
        row = system.F @ signal
        row[:, at : at + widths[k]] += system.system.A
        D = to_numpy(layer.D)
        rows.append(row)
        signal = out @ row + (D[:, None] * signal if D.ndim == 1 else D @ signal)
    stacked = np.vstack(rows)
    return stacked[:, :total], stacked[:, total:], signal[:, :total], signal[:, total:]
