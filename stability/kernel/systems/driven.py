"""Networks with inputs: a Lur'e system with activation, bias and input matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.activations import activation as lookup
from stability.kernel.checks import as_column, as_matrix
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

    def draw_states(self, rng: np.random.Generator, count: int) -> Array:
        """Draw ``(count, n)`` initial states."""
        return self.natural_size * rng.normal(size=(count, self.states))

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
