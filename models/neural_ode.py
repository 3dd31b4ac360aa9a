r"""Neural ODE RNN: :math:`\dot h = \phi(W h + U x + b)` with a free ``W``."""

from __future__ import annotations

import math

from torch import Tensor

from .continuous import ContinuousRNN
from .recurrent import register_layer


@register_layer("neural_ode")
class NeuralODERNN(ContinuousRNN):
    r"""Neural ODE RNN, :math:`\dot h = \tanh(W h + U x + b)`, by forward Euler or explicit midpoint.

    Its linear part is zero and tanh saturates (slope 0), so no global exponential rate exists for it.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        dt: step size.
        integrator: ``euler`` or ``midpoint``.
        activation: ``tanh``, ``relu``, ``leaky_relu``, ``sigmoid``, ``saturation`` or ``deadzone``.
        init_std: standard deviation of the entries of ``W``; ``None`` is ``1 / sqrt(hidden_size)``.

    Raises:
        ConfigurationError: an option out of its range.

    Example:
        >>> layer = NeuralODERNN(2, 8, dt=0.1)
        >>> layer.lure(continuous=True).A.any()
        np.False_
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        dt: float = 0.03,
        integrator: str = "euler",
        activation: str = "tanh",
        init_std: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, dt=dt, integrator=integrator, activation=activation)
        self.weight_hh = self.normal_matrix(init_std, 1.0 / math.sqrt(self.hidden_size))

    def matrices(self) -> dict[str, Tensor]:
        """Return ``W``: there is no linear term."""
        return {"W": self.weight_hh}
