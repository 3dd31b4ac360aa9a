r"""Base of layers with channels :math:`\phi(W h + U x + b)`: input map, step and Lur'e system.

.. math:: \dot h = A h + B \phi(W h + U x + b) \quad\text{or}\quad h^+ = A h + B \phi(W h + U x + b)

Forward Euler ``h+ = h + dt f(h, x)``; explicit midpoint ``g = h + dt/2 f(h, x)``, ``h+ = h + dt f(g, x)``:
the input is held over the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stability.kernel.arithmetic.activations import activation as lookup
from stability.kernel.checks import as_choice
from stability.systems import DrivenSystem, LureSystem

from .adapters.inspection import twin
from .options import GAIN, TORCH_ACTIVATIONS
from .recurrent import RecurrentLayer
from .tensors import to_numpy

INTEGRATORS = ("euler", "midpoint")


class Prepared(NamedTuple):
    """Transposed matrices for a batch of row vectors; None: no linear term, or channels that enter unchanged."""

    A_t: Tensor | None
    B_t: Tensor | None
    W_t: Tensor


def input_parameters(input_size: int, hidden_size: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Return ``U (hidden, input)`` and ``b (hidden,)``, uniform in ``+-1/sqrt(input_size)`` like ``nn.Linear``."""
    bound = 1.0 / math.sqrt(input_size)
    weight = nn.Parameter(torch.empty(hidden_size, input_size).uniform_(-bound, bound))
    return weight, nn.Parameter(torch.empty(hidden_size).uniform_(-bound, bound))


def rnn_subject(W: Any, U: Any, b: Any = None, activation: str = "tanh", name: str = "RNN") -> DrivenSystem:
    """Return the network ``h+ = phi(W h + U x + b)`` of given matrices.

    Args:
        W: ``(n, n)`` recurrent weights.
        U: ``(n, p)`` input weights.
        b: ``(n,)`` bias.
        activation: a name of ``stability.kernel.arithmetic.activations``.
        name: name in reports.

    Returns:
        The network.

    Example:
        >>> import stability
        >>> network = rnn_subject([[0.4, 0.1], [-0.1, 0.4]], [[1.0], [0.0]])
        >>> str(stability.certify(network).claim.verdict)
        'certified'
    """
    n = np.shape(W)[0]
    system = LureSystem(np.zeros((n, n)), np.eye(n), W, slope=lookup(activation).slope, dt=1.0)
    return DrivenSystem(system, activation, U, b, name=name)


class LureLayer(RecurrentLayer):
    """Base of layers whose step, or whose differential equation, is ``A h + B phi(W h + U x + b)``.

    A layer says what its ``matrices`` are: ``W``, and ``A`` and ``B`` where it has them, all acting on columns. One
    that integrates an equation has ``time_step``, ``integrator`` and ``dt``.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        activation: ``tanh``, ``relu``, ``leaky_relu``, ``sigmoid``, ``saturation`` or ``deadzone``.
    """

    weight_ih: nn.Parameter
    bias: nn.Parameter
    dt: float
    integrator: str

    def __init__(self, input_size: int, hidden_size: int, *, activation: str) -> None:
        super().__init__(input_size, hidden_size)
        self.activation = as_choice("activation", activation, TORCH_ACTIVATIONS, GAIN)
        self._phi: Callable[[Tensor], Tensor] = TORCH_ACTIVATIONS[activation]

    def prepare(self) -> Prepared:
        """Return the realized matrices, transposed for row vectors."""
        matrices = self.matrices()
        A, B = matrices.get("A"), matrices.get("B")
        return Prepared(None if A is None else A.T, None if B is None else B.T, matrices["W"].T)

    def drive(self, x: Tensor, prepared: Prepared) -> Tensor:
        """Return ``U x + b`` for all times."""
        return nn.functional.linear(x, self.weight_ih, self.bias)

    def transition(self, drive: Tensor, state: Tensor, prepared: Prepared) -> Tensor:
        """Run one step of the map, or of the integrator with constant drive: ``(batch, hidden)`` to the same shape."""
        if self.time_step is None:
            return self._field(drive, state, prepared)
        # I + dt A is never formed: in float32 the sum would round away much of a small damping gamma dt
        middle = state
        if self.integrator == "midpoint":
            middle = torch.add(state, self._field(drive, state, prepared), alpha=0.5 * self.dt)
        return torch.add(state, self._field(drive, middle, prepared), alpha=self.dt)

    def _field(self, drive: Tensor, h: Tensor, prepared: Prepared) -> Tensor:
        """Return ``A h + B phi(W h + drive)`` for rows ``(batch, n)``."""
        A_t, B_t, W_t = prepared
        z = torch.addmm(drive, h, W_t)
        channel = self._phi(z)
        if A_t is None:
            return channel
        return torch.addmm(channel, h, A_t) if B_t is None else torch.addmm(h @ A_t, channel, B_t)

    def slope(self) -> tuple[float, float]:
        """Return the slope interval of the activation, for which claims about this layer are made."""
        return lookup(self.activation).slope

    def driven(self, continuous: bool = False) -> DrivenSystem:
        """Return the map that runs (or the differential equation), computed in float64 from the stored parameters.

        Args:
            continuous: the differential equation instead of the map.

        Returns:
            The system with input, bias and activation.

        Raises:
            UnsupportedError: for the differential equation of a map, which has none.
            NonFiniteError: NaN or infinite weights.
        """
        self.refuse_equation(continuous and self.time_step is None)
        self.check_finite()
        with torch.no_grad():
            matrices = {name: to_numpy(value) for name, value in twin(self).double().matrices().items()}
        n = self.hidden_size
        A, B = matrices.get("A", np.zeros((n, n))), matrices.get("B", np.eye(n))
        system = LureSystem(A, B, matrices["W"], slope=self.slope(), dt=1.0 if self.time_step is None else None)
        E, b = to_numpy(self.weight_ih), to_numpy(self.bias)
        if self.time_step is not None and not continuous:
            system = system.discretise(self.integrator, self.dt)
            copies = system.channels // n  # the midpoint map has the channels twice, with the same input
            E, b = np.tile(E, (copies, 1)), np.tile(b, copies)
        return DrivenSystem(system, self.activation, E, b, name=type(self).__name__)
