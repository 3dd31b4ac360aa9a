r"""Continuous-time networks: :math:`\dot h = A h + \phi(W h + U x + b)`, by forward Euler or explicit midpoint."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stability.errors import UnsupportedError
from stability.kernel.arithmetic.activations import activation as lookup
from stability.kernel.checks import as_choice

from .lure import INTEGRATORS, LureLayer, input_parameters
from .options import real


class ContinuousRNN(LureLayer):
    """Base of the layers that integrate ``dh/dt = A h + phi(W h + U x + b)``.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        dt: step size.
        integrator: ``euler`` or ``midpoint``.
        activation: ``tanh``, ``relu``, ``leaky_relu``, ``sigmoid``, ``saturation`` or ``deadzone``.
    """

    def __init__(self, input_size: int, hidden_size: int, *, dt: float, integrator: str, activation: str) -> None:
        super().__init__(input_size, hidden_size, activation=activation)
        self.dt = real("dt", dt, 0.0, strict=True)
        self.integrator = as_choice("integrator", integrator, INTEGRATORS)
        self.weight_ih, self.bias = input_parameters(self.input_size, self.hidden_size)

    def normal_matrix(self, init_std: float | None, default: float) -> nn.Parameter:
        """Return a trainable ``(n, n)`` matrix of independent normal entries; store ``init_std`` as an attribute.

        Args:
            init_std: standard deviation; ``None`` for the default.
            default: the layer's default.
        """
        self.init_std = None if init_std is None else real("init_std", init_std, 0.0)
        std = default if self.init_std is None else self.init_std
        return nn.Parameter(std * torch.randn(self.hidden_size, self.hidden_size))

    @property
    def time_step(self) -> float | None:
        """Return ``dt``."""
        return self.dt

    def contraction_gap(self) -> Tensor:
        r"""Return the gap of the map that runs, with ``M`` the slope of the activation; a rate per unit of time.

        Forward Euler: :math:`(1 - \|I + dt A\| - dt M \|W\|) / dt`, which tends to Theorem 1(a)'s margin
        :math:`-\lambda_{\max}(A_s) - M \|W\|` for small steps; midpoint: the same with the norms of its two stages.

        Raises:
            UnsupportedError: no linear part.
        """
        matrices = self.matrices()
        A, W = matrices.get("A"), matrices["W"]
        if A is None:
            raise UnsupportedError(
                f"{type(self).__name__} has no linear part, so that no weights make it contract where its activation "
                "saturates; use LipschitzRNN or ContractingRNN"
            )
        dt, half = self.dt, 0.5 * self.dt
        eye = torch.eye(len(W), dtype=W.dtype, device=W.device)
        w = lookup(self.activation).slope[1] * torch.linalg.matrix_norm(W, 2)
        if self.integrator == "euler":
            return (1 - torch.linalg.matrix_norm(eye + dt * A, 2)) / dt - w
        linear = torch.linalg.matrix_norm(eye + dt * A + dt * half * (A @ A), 2)
        inner = torch.linalg.matrix_norm(eye + half * A, 2)
        feedback = half * torch.linalg.matrix_norm(A, 2) * w + w * (inner + half * w)
        return (1 - linear) / dt - feedback
