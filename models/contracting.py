"""Recurrent network that contracts by construction, before and after training, and carries its proof."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stability.kernel.checks import as_choice
from stability.systems import LureSystem

from .lure import INTEGRATORS, LureLayer, input_parameters
from .options import real
from .parametrizations.contracting import continuous_factors, discrete_factors
from .recurrent import register_layer
from .tensors import to_numpy

STEP = 0.3
"""Unit in which the free matrices of the discrete form are stored, which scales down the updates of Adam: their norms
near ``lr n`` are too long a step for an A near a rotation once n is 100 or more.
"""


FREE = {"discrete": ("X", "Y", "W", "V", "l"), "continuous": ("V", "l", "X", "S_raw", "K_raw")}
"""Free parameters of each form: ``X`` is ``(2n, 2n)`` in discrete time, ``l`` is ``(n,)``, all others ``(n, n)``."""


@register_layer("contracting")
class ContractingRNN(LureLayer):
    r"""Network that contracts for every value of its parameters, trained by any optimizer.

    Discrete time: :math:`h^+ = A h + B \phi(W h + U x + b)`, and any two trajectories under the same
    input satisfy :math:`|d_t|_P \le \rho^t |d_0|_P`. Continuous time: :math:`\dot h = A h + \phi(W h + U
    x + b)`, the differential equation contracts at rate :math:`\lambda`; the Euler or midpoint map that
    runs contracts for small ``dt`` only (``witness()`` and ``certify`` say whether it does), so the
    discrete form is the default.

    The matrices are built in float64 and rounded to the layer's dtype once per forward pass. The LMI
    holds with the relative strictness ``margin``, far above the rounding of float32, and ``witness``
    checks it again at the rounded matrices.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        rate: discrete: a factor ``rho`` in (0, 1] per step, 1 by default (the margin makes it less than 1);
            continuous: ``lambda >= 0`` per unit of time, 0 by default.
        time: ``discrete`` or ``continuous``.
        dt: step of the continuous form; without meaning for the discrete one.
        integrator: ``euler`` or ``midpoint``, of the continuous form.
        activation: ``tanh``, ``relu``, ``leaky_relu``, ``sigmoid``, ``saturation`` or ``deadzone``
            (slopes within [0, 1]).
        margin: relative strictness of the LMI.

    Raises:
        ConfigurationError: an option out of its range.

    Example:
        >>> layer = ContractingRNN(2, 8, rate=0.95)
        >>> outputs, h = layer(torch.zeros(3, 5, 2))
        >>> outputs.shape, layer.witness()["rate"] <= 0.95
        (torch.Size([3, 5, 8]), True)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        rate: float | None = None,
        time: str = "discrete",
        dt: float = 0.1,
        integrator: str = "euler",
        activation: str = "tanh",
        margin: float = 1e-3,
    ) -> None:
        super().__init__(input_size, hidden_size, activation=activation)
        self.time = as_choice("time", time, ("discrete", "continuous"))
        discrete = self.time == "discrete"
        rate = float(discrete) if rate is None else rate
        self.rate = real("rate", rate, 0.0, 1.0, strict=True) if discrete else real("rate", rate, 0.0)
        self.dt = real("dt", dt, 0.0, strict=True)
        self.integrator = as_choice("integrator", integrator, INTEGRATORS)
        self.margin = real("margin", margin, 0.0, 0.1, strict=True)
        free = self._initial_discrete() if discrete else self._initial_continuous()
        for name, value in free.items():
            self.register_parameter(name, nn.Parameter(value))
        self.weight_ih, self.bias = input_parameters(self.input_size, self.hidden_size)

    def _initial_discrete(self) -> dict[str, Tensor]:
        """Initialize near ``h+ = .97 rho R h + .15 phi(U x + b)``, R random orthogonal: long memory, inside the set."""
        n, keep, gain = self.hidden_size, 0.97, 0.15
        eye = torch.eye(n)
        R = nn.init.orthogonal_(torch.empty(n, n))
        M = torch.cat((torch.cat((eye, keep * R.T), dim=1), torch.cat((keep * R, eye), dim=1)))
        X = torch.linalg.cholesky_ex(M)[0].T + 0.01 * torch.randn(2 * n, 2 * n)
        # the same network slowed down to rho: M11 scaled by rho^2, M22 by rho^4
        scale = torch.cat((torch.full((n,), self.rate), torch.full((n,), self.rate**2)))
        return {
            "X": X * scale / STEP,
            "Y": 0.01 * torch.randn(n, n) / STEP,
            "W": 0.01 * torch.randn(n, n) / STEP,
            "V": self.rate**2 * gain * eye / STEP,
            "l": torch.zeros(n),
        }

    def _initial_continuous(self) -> dict[str, Tensor]:
        """Initialize near ``dh/dt = (K - .1 - rate) h + phi(W h + .)`` with a random skew K, and P close to I."""
        n = self.hidden_size
        eye = torch.eye(n)
        noise = 0.1 / math.sqrt(n)
        return {
            "V": eye + noise * torch.randn(n, n),
            "l": torch.full((n,), math.log(4.0)),
            "X": math.sqrt(0.2) * eye + noise * torch.randn(n, n),
            "S_raw": noise * torch.randn(n, n),
            "K_raw": torch.randn(n, n) / math.sqrt(n),
        }

    def factors(self) -> Any:
        """Return the matrices and their proof in float64, before rounding to the layer's dtype."""
        free = {name: getattr(self, name).double() for name in FREE[self.time]}
        if self.time == "continuous":
            return continuous_factors(*free.values(), rate=self.rate, margin=self.margin)
        scaled = (p if name == "l" else STEP * p for name, p in free.items())
        return discrete_factors(*scaled, rho=self.rate, margin=self.margin)

    def matrices(self) -> dict[str, Tensor]:
        """Return ``A``, ``W`` and in discrete time ``B``, as the layer uses them."""
        factors = self.factors()
        names = ("A", "B", "W") if self.time == "discrete" else ("A", "W")
        return {name: getattr(factors, name).to(self.bias.dtype) for name in names}

    def slope(self) -> tuple[float, float]:
        """Return [0, 1], the slopes for which the matrices contract, for every activation."""
        return 0.0, 1.0

    def witness(self, continuous: bool = False) -> dict[str, Any] | None:
        """Return the proof by construction for the system of ``driven(continuous)``.

        ``P`` and ``L`` come from the free parameters; the rate is the best that they prove at the rounded
        matrices (found from one eigenvalue problem), moved a tenth of the way back to the promised one to
        stay strict.

        Args:
            continuous: for the differential equation instead of the map.

        Returns:
            ``{"P": (n, n), "L": (m,), "rate": float}`` for the multiplier LMI with slopes [0, 1], or None
            where these prove nothing: the Euler or midpoint map of the continuous form when ``dt`` is too
            large.

        Raises:
            UnsupportedError: for the differential equation of the discrete form.
            NonFiniteError: NaN or infinite weights.
        """
        system = self.driven(continuous).system
        with torch.no_grad():
            factors = self.factors()
        if self.time == "discrete":
            P, L = to_numpy(factors.metric()), to_numpy(factors.L)
            return _prove(system, P, L, self.rate)
        P, L = to_numpy(factors.P), to_numpy(factors.L)
        if continuous:
            return _prove(system, P, L, self.rate)
        if self.integrator == "euler":
            return _prove(system, P, self.dt * L, 1.0)
        small = 0.5 * self.dt**2  # the first stage enters the state with weight dt^2/2
        return _prove(system, P, np.concatenate([small * L, self.dt * L]), 1.0)

    @property
    def time_step(self) -> float | None:
        """Return ``dt`` in continuous time; ``None`` for the discrete form."""
        return self.dt if self.time == "continuous" else None


def _prove(system: LureSystem, P: np.ndarray, L: np.ndarray, limit: float) -> dict[str, Any] | None:
    """Return the best rate that ``(P, L)`` proves, moved a tenth of the way back to ``limit``; None if worse."""
    A, B, C, D = system.A, system.B, system.C, system.D
    corner = L[:, None] * D + (L[:, None] * D).T - 2.0 * np.diag(L)
    if system.is_discrete:
        top, side, corner = A.T @ P @ A, A.T @ P @ B + C.T * L, corner + B.T @ P @ B
    else:
        top, side = A.T @ P + P @ A, P @ B + C.T * L
    try:
        outer = np.linalg.inv(np.linalg.cholesky(-corner)) @ side.T
        inner = np.linalg.inv(np.linalg.cholesky(P))
    except np.linalg.LinAlgError:
        return None
    # Schur: the LMI holds iff top + outer^T outer < rho^2 P, or < -2 rate P
    peak = float(np.linalg.eigvalsh(inner @ (top + outer.T @ outer) @ inner.T)[-1])
    if system.is_discrete:
        squared = peak + 0.1 * (limit**2 - peak)
        return {"P": P, "L": L, "rate": math.sqrt(max(squared, 0.0))} if peak < limit**2 else None
    rate = -0.5 * peak
    return {"P": P, "L": L, "rate": rate - 0.1 * (rate - limit)} if rate > limit else None
