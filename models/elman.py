r"""The Elman RNN ("simple RNN"): :math:`h^+ = \phi(W h + U x + b)`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stability.errors import UnsupportedError
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import activation as lookup

from .continuous import Realised
from .options import torch_activation
from .recurrent import RecurrentLayer, positive_int, register_layer, to_numpy

__all__ = ["ElmanRNN"]


@register_layer("elman")
class ElmanRNN(RecurrentLayer):
    r"""The Elman RNN, :math:`h^+ = \phi(W h + U x + b)`.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        activation: ``tanh``, ``relu``, ``leaky_relu`` (slope 0.1) or ``sigmoid``.

    Raises:
        ConfigurationError: an option out of its range.

    Example:
        >>> layer = ElmanRNN(2, 8, activation="relu")
        >>> outputs, h = layer(torch.zeros(3, 5, 2))
        >>> outputs.shape, layer.lure().dt
        (torch.Size([3, 5, 8]), 1.0)
    """

    def __init__(self, input_size: int, hidden_size: int, *, activation: str = "tanh") -> None:
        super().__init__()
        self.input_size = positive_int("input_size", input_size)
        self.hidden_size = positive_int("hidden_size", hidden_size)
        self.output_size = self.hidden_size
        self._phi = torch_activation(activation)
        self.activation = activation
        bound = 1.0 / math.sqrt(self.hidden_size)  # as torch.nn.RNN
        self.weight_ih = nn.Parameter(torch.empty(self.hidden_size, self.input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(self.hidden_size, self.hidden_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(self.hidden_size).uniform_(-bound, bound))

    def prepare(self) -> Realised:
        """The weights, transposed for row vectors."""
        return Realised(None, self.weight_hh.T, self.weight_ih, self.bias)

    def drive(self, x: Tensor, prepared: Realised) -> Tensor:
        """``U x + b`` for all times."""
        return nn.functional.linear(x, prepared.weight_ih, prepared.bias)

    def initial_state(self, x: Tensor, prepared: Realised) -> Tensor:
        """Zero."""
        return x.new_zeros(x.shape[0], self.hidden_size)

    def transition(self, drive: Tensor, state: Tensor, prepared: Realised) -> Tensor:
        """``phi(W h + drive)``."""
        return self._phi(torch.addmm(drive, state, prepared.W_t))

    def matrices(self) -> dict[str, Tensor]:
        """``W``."""
        return {"W": self.weight_hh}

    def driven(self, continuous: bool = False) -> DrivenSystem:
        """The map in exact float64 copies of the weights.

        Raises:
            UnsupportedError: for the differential equation, which this map does not have.
            NonFiniteError: NaN or infinite weights.
        """
        if continuous:
            raise UnsupportedError(
                f"{type(self).__name__} is a discrete map: there is no differential equation behind it"
            )
        self.check_finite()
        n = self.hidden_size
        system = LureSystem(
            np.zeros((n, n)), np.eye(n), to_numpy(self.weight_hh), slope=lookup(self.activation).slope, dt=1.0
        )
        return DrivenSystem(
            system, self.activation, to_numpy(self.weight_ih), to_numpy(self.bias), name=type(self).__name__
        )

    def config(self) -> dict[str, Any]:
        """Keyword arguments that build this layer again."""
        return {"input_size": self.input_size, "hidden_size": self.hidden_size, "activation": self.activation}

    def extra_repr(self) -> str:
        """What ``repr`` shows."""
        return ", ".join(f"{key}={value!r}" for key, value in self.config().items())
