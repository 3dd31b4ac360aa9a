r"""What the continuous-time networks share: the input map, the integrators and the system behind them.

.. math:: \dot h = A h + \phi(W h + U x + b)

Forward Euler ``h+ = h + dt f(h, x)``; explicit midpoint ``g = h + dt/2 f(h, x)``, ``h+ = h + dt f(g, x)``:
the input is held over the step.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import activation as lookup

from .options import choice, real, torch_activation
from .recurrent import RecurrentLayer, positive_int, to_numpy

__all__ = ["ContinuousRNN", "Realised", "driven_network", "input_parameters", "integrate"]

INTEGRATORS = ("euler", "midpoint")


class Realised(NamedTuple):
    """Transposed matrices for a batch of row vectors; ``A_t`` is None where there is no linear term."""

    A_t: Tensor | None
    W_t: Tensor
    weight_ih: Tensor
    bias: Tensor


def input_parameters(input_size: int, hidden_size: int) -> tuple[nn.Parameter, nn.Parameter]:
    """``U (hidden, input)`` and ``b (hidden,)``, uniform in ``+-1/sqrt(input_size)`` like ``nn.Linear``."""
    bound = 1.0 / math.sqrt(input_size)
    weight = nn.Parameter(torch.empty(hidden_size, input_size).uniform_(-bound, bound))
    return weight, nn.Parameter(torch.empty(hidden_size).uniform_(-bound, bound))


def driven_network(
    A: np.ndarray | None,
    W: Tensor,
    weight_ih: Tensor,
    bias: Tensor,
    activation: str,
    slope: tuple[float, float],
    name: str,
    discretise: tuple[str, float] | None,
) -> DrivenSystem:
    """``dh/dt = A h + phi(W h + U x + b)`` or its discrete map, in exact float64 copies."""
    w, e, b = to_numpy(W), to_numpy(weight_ih), to_numpy(bias)
    system = LureSystem.recurrent(np.zeros_like(w) if A is None else A, w, slope=slope)
    if discretise is not None:
        system = system.discretise(*discretise)
        copies = system.channels // w.shape[0]  # the midpoint map has the channels twice, with the same input
        e, b = np.tile(e, (copies, 1)), np.tile(b, copies)
    return DrivenSystem(system, activation, e, b, name=name)


def integrate(
    drive: Tensor,
    h: Tensor,
    A_t: Tensor | None,
    W_t: Tensor,
    phi: Callable[[Tensor], Tensor],
    *,
    dt: float,
    integrator: str,
) -> Tensor:
    """One step of ``dh/dt = A h + phi(W h + drive)`` for rows ``(batch, n)``, the drive held."""

    def field(g: Tensor) -> Tensor:
        channel = phi(torch.addmm(drive, g, W_t))
        return channel if A_t is None else torch.addmm(channel, g, A_t)

    # I + dt A is never formed: in float32 the sum would round away much of a small damping gamma dt
    middle = h if integrator == "euler" else torch.add(h, field(h), alpha=0.5 * dt)
    return torch.add(h, field(middle), alpha=dt)


class ContinuousRNN(RecurrentLayer):
    """Base of the layers that integrate ``dh/dt = A h + phi(W h + U x + b)``.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        dt: step size.
        integrator: ``euler`` or ``midpoint``.
        activation: ``tanh``, ``relu``, ``leaky_relu`` or ``sigmoid``.
    """

    def __init__(self, input_size: int, hidden_size: int, *, dt: float, integrator: str, activation: str) -> None:
        super().__init__()
        self.input_size = positive_int("input_size", input_size)
        self.hidden_size = positive_int("hidden_size", hidden_size)
        self.output_size = self.hidden_size
        self.dt = real("dt", dt, 0.0, strict=True)
        self.integrator = choice("integrator", integrator, INTEGRATORS)
        self._phi: Callable[[Tensor], Tensor] = torch_activation(activation)
        self.activation = activation
        self.weight_ih, self.bias = input_parameters(self.input_size, self.hidden_size)

    @abstractmethod
    def realise(self) -> tuple[Tensor | None, Tensor]:
        """``A`` (None where there is no linear term) and ``W``, ``(hidden, hidden)``, acting on columns."""

    @property
    def time_step(self) -> float | None:
        """``dt``."""
        return self.dt

    def prepare(self) -> Realised:
        """The realised matrices, transposed for row vectors."""
        A, W = self.realise()
        return Realised(None if A is None else A.T, W.T, self.weight_ih, self.bias)

    def drive(self, x: Tensor, prepared: Realised) -> Tensor:
        """``U x + b`` for all times."""
        return nn.functional.linear(x, prepared.weight_ih, prepared.bias)

    def initial_state(self, x: Tensor, prepared: Realised) -> Tensor:
        """Zero."""
        return x.new_zeros(x.shape[0], self.hidden_size)

    def transition(self, drive: Tensor, state: Tensor, prepared: Realised) -> Tensor:
        """One step of the integrator: ``(batch, hidden)`` to ``(batch, hidden)``."""
        return integrate(drive, state, prepared.A_t, prepared.W_t, self._phi, dt=self.dt, integrator=self.integrator)

    def matrices(self) -> dict[str, Tensor]:
        """``A`` (where there is one) and ``W`` as they are now."""
        A, W = self.realise()
        return {"W": W} if A is None else {"A": A, "W": W}

    def driven(self, continuous: bool = False) -> DrivenSystem:
        """The map that runs (or the differential equation) in exact float64 copies of the realised matrices.

        Args:
            continuous: the differential equation instead of the map.

        Returns:
            The system with input, bias and activation.

        Raises:
            NonFiniteError: NaN or infinite weights.
        """
        self.check_finite()
        with torch.no_grad():
            A, W = self.realise()
        return driven_network(
            None if A is None else to_numpy(A),
            W,
            self.weight_ih,
            self.bias,
            self.activation,
            self.slope(),
            type(self).__name__,
            None if continuous else (self.integrator, self.dt),
        )

    def slope(self) -> tuple[float, float]:
        """Slope interval for which claims about this layer are made: that of its activation."""
        return lookup(self.activation).slope

    def extra_repr(self) -> str:
        """What ``repr`` shows."""
        return ", ".join(f"{key}={value!r}" for key, value in self.config().items())
