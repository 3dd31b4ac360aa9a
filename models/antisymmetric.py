r"""Antisymmetric RNN: :math:`\dot h = \tanh(W h + U x + b)` with :math:`W = M - M^T - \gamma I`.

Chang, Chen, Haber, Chi, "AntisymmetricRNN: A Dynamical System View on Recurrent Neural Networks" (ICLR 2019).
"""

from __future__ import annotations

import math

from torch import Tensor

from .continuous import ContinuousRNN
from .options import real
from .parametrizations.symmetric_skew import skew_bounds, symmetric_skew
from .recurrent import register_layer


@register_layer("antisymmetric")
class AntisymmetricRNN(ContinuousRNN):
    r"""Antisymmetric RNN, :math:`W = M - M^T - \gamma I`, by forward Euler or explicit midpoint.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        gamma: diffusion, >= 0.
        dt: step size.
        integrator: ``euler`` (the paper's) or ``midpoint``.
        activation: ``tanh``, ``relu``, ``leaky_relu``, ``sigmoid``, ``saturation`` or ``deadzone``.
        init_std: standard deviation of the entries of ``M``; ``None`` is ``1 / sqrt(hidden_size)``.

    Raises:
        ConfigurationError: an option out of its range.

    Example:
        >>> import torch
        >>> W = AntisymmetricRNN(2, 4, gamma=0.25).matrices()["W"]
        >>> bool(torch.allclose(W + W.T, -0.5 * torch.eye(4)))
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        gamma: float = 1e-4,
        dt: float = 0.01,
        integrator: str = "euler",
        activation: str = "tanh",
        init_std: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, dt=dt, integrator=integrator, activation=activation)
        self.gamma = real("gamma", gamma, 0.0)
        self.M_W = self.normal_matrix(init_std, 1.0 / math.sqrt(self.hidden_size))

    @property
    def idle_parameters(self) -> int:
        """Return the number of entries in the unused symmetric part of ``M``."""
        return self.hidden_size * (self.hidden_size + 1) // 2

    def matrices(self) -> dict[str, Tensor]:
        """Return ``W``: there is no linear term."""
        return {"W": symmetric_skew(self.M_W, 1.0, self.gamma)}

    def real_part_bounds(self, published: bool = False) -> dict[str, tuple[float, float]]:
        """Return Proposition 1 of the Lipschitz RNN for ``W``; see ``proposition1_bounds``."""
        return skew_bounds({"W": (self.M_W, 1.0, self.gamma, 1.0)}, published)
