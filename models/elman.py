r"""Elman RNN ("simple RNN"): :math:`h^+ = \phi(W h + U x + b)`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from stability.kernel.arithmetic.activations import activation as lookup

from .lure import LureLayer
from .recurrent import register_layer


@register_layer("elman")
class ElmanRNN(LureLayer):
    r"""Elman RNN, :math:`h^+ = \phi(W h + U x + b)`.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        activation: ``tanh``, ``relu``, ``leaky_relu`` (slope 0.1), ``sigmoid``, ``saturation`` (to
            [-1, 1]) or ``deadzone`` (what that cuts off).

    Raises:
        ConfigurationError: an option out of its range.

    Example:
        >>> layer = ElmanRNN(2, 8, activation="relu")
        >>> outputs, h = layer(torch.zeros(3, 5, 2))
        >>> outputs.shape, layer.lure().dt
        (torch.Size([3, 5, 8]), 1.0)
    """

    def __init__(self, input_size: int, hidden_size: int, *, activation: str = "tanh") -> None:
        super().__init__(input_size, hidden_size, activation=activation)
        bound = 1.0 / math.sqrt(self.hidden_size)  # as torch.nn.RNN
        self.weight_ih = nn.Parameter(torch.empty(self.hidden_size, self.input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(self.hidden_size, self.hidden_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(self.hidden_size).uniform_(-bound, bound))

    def matrices(self) -> dict[str, Tensor]:
        """Return ``W``."""
        return {"W": self.weight_hh}

    def contraction_gap(self) -> Tensor:
        """Return ``1 - M |W|`` with ``M`` the slope of the activation, per step."""
        return 1 - lookup(self.activation).slope[1] * torch.linalg.matrix_norm(self.weight_hh, 2)
