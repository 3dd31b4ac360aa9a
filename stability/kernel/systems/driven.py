"""Lur'e systems with known activations: networks with inputs, and control loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.activation_bounds import secant_range
from stability.kernel.arithmetic.activations import ACTIVATIONS, Activation
from stability.kernel.arithmetic.activations import activation as lookup
from stability.kernel.checks import as_choice, as_column, as_matrix
from stability.kernel.format.serialization import subject
from stability.kernel.systems.channels import solve_channels
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.parts import as_part, origin_phrase, part_phrase
from stability.kernel.systems.subjects import Subject

Array = np.ndarray


@subject("driven")
@dataclass(frozen=True, eq=False, repr=False)
class DrivenSystem(Subject):
    r"""Network: a Lur'e system with its activation, bias and input.

    .. math:: \dot x \;(\text{or } x^+) = A x + B w + F u, \quad z = C x + D w + E u + b, \quad w = \phi(z) .

    Args:
        system: the Lur'e system; its slopes must contain those of the activation.
        activation: a name of ``stability.kernel.arithmetic.activations``.
        E: ``(m, p)`` input to channel.
        b: ``(m,)`` bias.
        F: ``(n, p)`` input to state, zero by default.
        name: name in reports.
        part: ``"PATH of WHOLE"`` for a part of something bigger, see ``stability.kernel.systems.parts``.

    Raises:
        DimensionError: shapes that do not fit.
        ConfigurationError: an unknown activation, or slopes that do not contain the activation's.
    """

    system: LureSystem
    activation: str
    E: Any
    b: Any = None
    F: Any = None
    name: str = "network"
    part: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        system, activation, b, phi = self.system, self.activation, self.b, lookup(self.activation)
        m, n = system.channels, system.states
        e = as_matrix("E", self.E, (m, None))
        bias = as_column("b", np.zeros(m) if b is None else b, m)
        f = as_matrix("F", np.zeros((n, e.shape[1])) if self.F is None else self.F, (n, e.shape[1]))
        if m and not ((system.alpha <= phi.slope[0]).all() and (system.beta >= phi.slope[1]).all()):
            raise ConfigurationError(
                f"the slopes {system.slope} do not contain those of {activation}, {phi.slope}: "
                "a proof for them would say nothing about this network"
            )
        self._set(E=e, b=bias, F=f, name=str(self.name), part=as_part(self.part))

    def __repr__(self) -> str:
        return f"DrivenSystem({self.system!r}, {self.activation!r}, inputs={self.inputs}, name={self.name!r})"

    @property
    def inputs(self) -> int:
        """Number of inputs ``p``."""
        return self.E.shape[1]

    @property
    def states(self) -> int:
        """Number of states ``n``."""
        return self.system.states

    @property
    def is_discrete(self) -> bool:
        """True if time advances in steps."""
        return self.system.is_discrete

    @property
    def kind_name(self) -> str:
        """Name of this kind of layer in sentences: its activation."""
        return self.activation

    @property
    def output_bound(self) -> float:
        """Bound of a bounded activation for the plain map ``x+ = phi(C x + E u + b)``; else infinite."""
        system = self.system
        plain = system.is_discrete and not system.A.any() and not self.F.any()
        is_activation = plain and np.array_equal(system.B, np.eye(system.states))
        return lookup(self.activation).bound if is_activation else float("inf")

    @property
    def natural_size(self) -> float:
        """Scale of random initial states: ``1 + |B|``, the largest row sum."""
        return 1.0 + (float(np.abs(self.system.B).sum(axis=1).max()) if self.system.channels else 0.0)

    @property
    def phrase(self) -> str:
        """Subject of a claim's sentence, without quantifiers."""
        stored = f"{self.activation}, {self.system.stored('weights and bias')}{origin_phrase(self)}"
        return f"{part_phrase(self) or 'network'} ({stored}, exact arithmetic)"

    def channel(self, x: Array, u: Array) -> Array:
        """Return pre-activations ``z (..., m)`` at states ``x (..., n)`` and inputs ``u (..., p)``."""
        free = x @ self.system.C.T + u @ self.E.T + self.b
        if not self.system.D.any():
            return free
        phi = lookup(self.activation)
        return solve_channels(free, self.system.D, phi.function, phi.derivative)

    def advance(self, x: Array, u: Array) -> Array:
        """Return the right-hand side (continuous time) or next state (discrete time); ``(..., n)``, ``(..., p)``."""
        w = lookup(self.activation).function(self.channel(x, u))
        return x @ self.system.A.T + w @ self.system.B.T + u @ self.F.T

    def jacobian(self, x: Array, u: Array) -> Array:
        """Return ``d advance / d x`` at one state ``(n,)`` and one input ``(p,)``, shape ``(n, n)``."""
        return self.system.jacobian(lookup(self.activation).derivative(self.channel(x, u)))

    @classmethod
    def from_payload(cls, data: Mapping[str, Any]) -> DrivenSystem:
        """Invert ``payload``."""
        if not isinstance(data["system"], LureSystem):
            raise ConfigurationError("a driven system needs a Lur'e system")
        return super().from_payload(data)


NONLINEARITIES = {name: phi for name, phi in ACTIVATIONS.items() if name != "sigmoid"}
NONLINEARITIES["sin"] = Activation("sin", np.sin, np.cos, (-1.0, 1.0), 1.0)
"""Nonlinearities with ``phi(0) = 0``, by name."""
LEAST_OF_SINC = -0.2173  # sin(r) / r is least at r = 4.4934, where it is -0.217234


@subject("loop")
@dataclass(frozen=True, eq=False, init=False, repr=False)
class ControlLoop(LureSystem):
    r"""Lur'e system without inputs that names the nonlinearity of each channel; its equilibrium is zero.

    .. math:: \dot x \;(\text{or } x^+) = A x + B w, \quad z = C x + D w, \quad w_i = \phi_i(z_i), \quad \phi_i(0) = 0 .

    Claims about a ``LureSystem`` hold for it, too. ``regional`` proves its region of attraction.

    Args:
        A: ``(n, n)`` linear part, continuous or per step.
        B: ``(n, m)`` channel to state.
        C: ``(m, n)`` state to channel.
        D: ``(m, m)`` channel to channel, zero by default.
        slope: name of each channel's nonlinearity: ``tanh``, ``saturation`` (clips to [-1, 1]), ``sin``,
            ``deadzone``, ``relu``, ``leaky_relu`` or ``identity``; one name stands for all channels.
        dt: ``None`` for continuous time, the step (> 0) for discrete time.

    Raises:
        ConfigurationError: an unknown name.
        DimensionError: not one name per row of ``C``, and as for a ``LureSystem``.

    Example:
        >>> loop = ControlLoop([[1.2]], [[-0.5]], [[1.0]], slope=["saturation"], dt=1.0)  # u = -0.5 sat(x)
        >>> loop.advance(np.array([[1.0], [3.0]])).round(9)
        array([[0.7],
               [3.1]])
    """

    activations: tuple[str, ...]

    def __init__(
        self, A: Any, B: Any, C: Any, D: Any = None, slope: Any = "saturation", dt: float | None = None
    ) -> None:
        names = (slope,) * len(C) if isinstance(slope, str) else tuple(slope)
        slopes = [NONLINEARITIES[as_choice("nonlinearity", name, NONLINEARITIES)].slope for name in names]
        super().__init__(A, B, C, D, tuple(np.array(slopes).reshape(-1, 2).T), dt)
        self._set(activations=names)

    @property
    def clipped(self) -> list[int]:
        """Indices of the saturated channels."""
        return [i for i, name in enumerate(self.activations) if name == "saturation"]

    def _map(self, which: str, z: Array) -> Array:
        columns = [getattr(NONLINEARITIES[name], which)(z[..., i]) for i, name in enumerate(self.activations)]
        return np.stack(columns, axis=-1) if columns else z

    def advance(self, x: Array) -> Array:
        """Return the right-hand side (continuous time) or next state (discrete time) at states ``x (..., n)``."""
        z = x @ self.C.T
        if self.D.any():
            z = solve_channels(z, self.D, lambda v: self._map("function", v), lambda v: self._map("derivative", v))
        return x @ self.A.T + self._map("function", z) @ self.B.T

    def sectors(self, reach: Array) -> tuple[Array, Array]:
        r"""Bound ``phi_i(z) / z`` for ``0 < |z| <= reach_i``.

        For the sine :math:`\sin r / r \ge 1 - r^2/6 + r^4/120 - r^6/5040`, which falls in ``r`` up to 3.

        Args:
            reach: ``(m,)``, >= 0.

        Returns:
            Two vectors ``(m,)``, rounded outwards.

        Example:
            >>> loop = ControlLoop([[0.5]], [[1.0]], [[1.0]], slope=["sin"], dt=1.0)
            >>> low, high = loop.sectors(np.array([1.0]))
            >>> bool(0.841 < low[0] <= np.sin(1.0)), float(high[0])
            (True, 1.0)
        """
        least = np.minimum(reach, 3.0) ** 2 / 6.0
        least = np.where(reach <= 3.0, 1.0 - least * (1.0 - 0.3 * least * (1.0 - least / 7.0)) - 1e-14, LEAST_OF_SINC)
        ends = [
            (least[i : i + 1], np.ones(1)) if name == "sin" else secant_range(name, np.zeros(1), reach[i : i + 1])
            for i, name in enumerate(self.activations)
        ]
        return np.hstack([low for low, _ in ends]), np.hstack([high for _, high in ends])

    @classmethod
    def from_payload(cls, data: Mapping[str, Any]) -> ControlLoop:
        """Invert ``payload``."""
        return cls(*(data[key] for key in ("A", "B", "C", "D", "activations", "dt")))
