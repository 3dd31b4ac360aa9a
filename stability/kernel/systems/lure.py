"""Lur'e systems: a linear system in feedback with a slope-restricted nonlinearity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError, IllPosedError
from stability.kernel.arithmetic.discretization import as_step, check_integrator, step_matrices
from stability.kernel.checks import as_matrix, as_slope, is_well_posed
from stability.kernel.format.sentences import exact_text
from stability.kernel.format.serialization import subject
from stability.kernel.systems.channels import close_loop
from stability.kernel.systems.parts import as_part, part_phrase
from stability.kernel.systems.plants import as_plant, slopes_of
from stability.kernel.systems.subjects import Subject

Array = np.ndarray


@dataclass(frozen=True)
class Discretisation:
    """Origin of a discrete system: continuous system, method and step."""

    base: LureSystem
    method: str
    dt: float

    def __post_init__(self) -> None:
        check_integrator(self.method)


@subject("lure")
@dataclass(frozen=True, eq=False, init=False, repr=False)
class LureSystem(Subject):
    r"""Lur'e system: linear dynamics in feedback with a slope-restricted diagonal nonlinearity.

    .. math:: \dot x \;(\text{or } x^+) = A x + B w + (\text{input}), \quad z = C x + D w + (\text{input}),
              \quad w_i = \phi_i(z_i), \quad
              \alpha_i \le \frac{\phi_i(s) - \phi_i(t)}{s - t} \le \beta_i .

    Args:
        A: ``(n, n)`` linear part.
        B: ``(n, m)`` channel to state.
        C: ``(m, n)`` state to channel.
        D: ``(m, m)`` channel to channel, zero by default. It must be strictly block-triangular up to a
            permutation, or small enough for the channel equation to have exactly one solution.
        slope: ``(alpha, beta)``, numbers or vectors of ``m`` entries. tanh and ReLU: ``(0, 1)``.
        dt: ``None`` for continuous time, the step (> 0) for discrete time.
        origin: the continuous system that this one discretizes, where ``euler`` or ``midpoint`` made it.
        part: ``"PATH of WHOLE"`` for a part of something bigger, see ``stability.kernel.systems.parts``.

    Raises:
        DimensionError: shapes that do not fit together.
        NonFiniteError: NaN or infinite entries.
        ConfigurationError: bad slopes, a bad step, complex entries.
        IllPosedError: a D for which well-posedness is not established.

    Example:
        >>> system = LureSystem.recurrent([[-2.0]], [[1.0]])
        >>> system.states, system.channels, system.is_discrete
        (1, 1, False)
        >>> system.euler(0.5).A
        array([[0.]])
    """

    A: Array
    B: Array
    C: Array
    D: Array
    alpha: Array
    beta: Array
    dt: float | None
    origin: Discretisation | None
    part: str

    def __init__(
        self,
        A: Any,
        B: Any,
        C: Any,
        D: Any = None,
        slope: Any = (0.0, 1.0),
        dt: float | None = None,
        *,
        origin: Discretisation | None = None,
        part: str = "",
    ) -> None:
        a = as_matrix("A", A)
        n = a.shape[0]
        if a.shape[1] != n or n == 0:
            raise DimensionError("A", "(n, n) with n >= 1", a.shape)
        b = as_matrix("B", B, (n, None))
        m = b.shape[1]
        c = as_matrix("C", C, (m, n))
        d = as_matrix("D", np.zeros((m, m)) if D is None else D, (m, m))
        alpha, beta = as_slope(slope, m)
        if dt is not None:
            dt = as_step(dt, "None (continuous) or a positive number")
        if not is_well_posed(d, alpha, beta):
            raise IllPosedError(
                "that z = C x + D phi(z) has one solution for every x is not established: D is accepted where it is "
                "strictly lower block-triangular (up to a permutation) or |D| has a spectral radius below 1 / slope"
            )
        self._set(A=a, B=b, C=c, D=d, alpha=alpha, beta=beta, dt=dt, origin=origin, part=as_part(part))

    def __repr__(self) -> str:
        time = "continuous" if self.dt is None else f"dt={self.dt:g}"
        slope = "(varied)" if isinstance(self.slope[0], np.ndarray) else self.slope
        return f"{type(self).__name__}({self.states} states, {self.channels} channels, slope={slope}, {time})"

    @classmethod
    def recurrent(cls, A: Any, W: Any, slope: Any = (0.0, 1.0)) -> LureSystem:
        """Return the continuous-time network ``dh/dt = A h + phi(W h + input)``: ``B = I``, ``C = W``.

        Args:
            A: ``(n, n)`` linear part.
            W: ``(n, n)`` recurrent weights.
            slope: slope interval of the activation.

        Returns:
            The system.

        Raises:
            DimensionError: ``W`` has another shape than ``A``.

        Example:
            >>> LureSystem.recurrent([[-1.0]], [[0.5]]).C
            array([[0.5]])
        """
        a = as_matrix("A", A)
        if a.shape[0] != a.shape[1]:
            raise DimensionError("A", "(n, n)", a.shape, "it takes the n states to their derivatives")
        w = as_matrix("W", W)
        if w.shape != a.shape:
            raise DimensionError("W", f"{a.shape} like A", w.shape)
        return cls(a, np.eye(a.shape[0]), w, slope=slope)

    @classmethod
    def linear(cls, A: Any, dt: float | None = None) -> LureSystem:
        """Return a linear system without channels.

        Example:
            >>> LureSystem.linear([[-1.0]]).channels
            0
        """
        a = as_matrix("A", A)
        return cls(a, np.zeros((a.shape[0], 0)), np.zeros((0, a.shape[0])), dt=dt)

    @classmethod
    def from_state_space(cls, plant: Any, slope: Any = (0.0, 1.0), sign: int = -1) -> LureSystem:
        r"""Return a linear plant in feedback with a slope-restricted nonlinearity, in the textbook's sign convention.

        .. math:: \dot x \;(\text{or } x^+) = A x + B u, \quad y = C x + D u, \quad u = -\phi(y) .

        Args:
            plant: a state space or transfer function of ``python-control`` or ``scipy.signal``, or ``(A, B, C, D)`` or
                ``(A, B, C, D, dt)``, with ``m`` inputs and ``m`` outputs. ``dt=True`` means a step of 1.
            slope: as in the constructor: ``alpha <= (phi_i(s) - phi_i(t)) / (s - t) <= beta``; or the name of the
                nonlinearity, ``"saturation"``, ``"deadzone"`` or an activation's, or ``("saturation", gain)``.
            sign: -1 for negative feedback, +1 for ``u = phi(y)``.

        Returns:
            The closed loop: ``B`` and ``D`` with that sign.

        Raises:
            UnsupportedError: no linear system.
            DimensionError: not as many outputs as inputs.
            ConfigurationError: no timebase, or another sign.

        Source:
            H. K. Khalil, *Nonlinear Systems*, 3rd ed., section 7.1 (absolute stability), with slopes for sectors.

        Example:
            >>> loop = LureSystem.from_state_space(([[-1.0]], [[2.0]], [[1.0]], [[0.0]]), slope=(0, 1))
            >>> loop.B, loop.is_discrete
            (array([[-2.]]), False)
        """
        matrices, interval = as_plant(plant), slopes_of(slope)
        if matrices.B.shape[1] != matrices.C.shape[0]:
            raise DimensionError(
                "D", "(m, m): as many outputs as inputs", matrices.D.shape, "each output has one slope"
            )
        if isinstance(sign, bool) or sign not in (-1, 1):
            raise ConfigurationError(f"sign must be -1 (u = -phi(y), the books' loop) or +1 (u = phi(y)), got {sign!r}")
        return cls(matrices.A, sign * matrices.B, matrices.C, sign * matrices.D, interval, matrices.dt)

    @property
    def states(self) -> int:
        """Number of states ``n``."""
        return self.A.shape[0]

    @property
    def channels(self) -> int:
        """Number of channels ``m``."""
        return self.B.shape[1]

    @property
    def system(self) -> LureSystem:
        """The system itself, as ``DrivenSystem.system``."""
        return self

    @property
    def is_discrete(self) -> bool:
        """True if time advances in steps."""
        return self.dt is not None

    @property
    def phrase(self) -> str:
        """Describe the subject of a claim, without quantifiers."""
        kind = "linear system" if self.channels == 0 else "Lur'e system"
        return f"{part_phrase(self) or kind} ({self.stored('matrices')}, exact arithmetic)"

    def stored(self, what: str) -> str:
        """Describe the stored object: the map itself, or the flow whose discretization is meant."""
        if self.origin is None:
            return f"stored {what}"
        method = "Euler" if self.origin.method == "euler" else self.origin.method
        return f"{method} map with step {exact_text(self.origin.dt)} of the stored {what}"

    @property
    def slope(self) -> tuple[Any, Any]:
        """Slope bounds ``(alpha, beta)``: two floats if all channels agree, else two vectors."""
        if self.channels == 0:
            return 0.0, 1.0
        if np.ptp(self.alpha) == 0 and np.ptp(self.beta) == 0:
            return float(self.alpha[0]), float(self.beta[0])
        return self.alpha, self.beta

    def euler(self, dt: float) -> LureSystem:
        """Return the forward Euler map, ``x+ = (I + dt A) x + dt B phi(C x + D w)``; see ``discretise``."""
        return self.discretise("euler", dt)

    def midpoint(self, dt: float) -> LureSystem:
        """Return the explicit midpoint (RK2) map with constant input; it has ``2 m`` channels; see ``discretise``."""
        return self.discretise("midpoint", dt)

    @np.errstate(all="ignore")  # what overflows is refused as not finite
    def discretise(self, method: str, dt: float) -> LureSystem:
        """Return the discrete map of an integrator, see ``stability.kernel.arithmetic.discretization.step_matrices``.

        Args:
            method: ``"euler"`` or ``"midpoint"``.
            dt: step size, > 0.

        Returns:
            The discrete system, which remembers this one.

        Raises:
            ConfigurationError: another method, a dt that is not positive, or a system that is discrete already.
            NonFiniteError: when an entry of the map is beyond float64.
        """
        check_integrator(method)
        if self.is_discrete:
            raise ConfigurationError("this system is discrete already; only a continuous one can be discretised")
        dt = as_step(dt)
        A, B, C, D = step_matrices(method, (self.A, self.B, self.C, self.D), dt, 0.5 * dt)
        times = len(C) // max(self.channels, 1)
        slope = np.tile(self.alpha, times), np.tile(self.beta, times)
        return LureSystem(A, B, C, D, slope, dt, origin=Discretisation(self, method, dt), part=self.part)

    def jacobian(self, K: Any) -> Array:
        """Return ``A + B K (I - D K)^{-1} C`` for a diagonal slope matrix given by its diagonal ``K``.

        Args:
            K: ``(m,)`` slopes.

        Returns:
            The ``(n, n)`` matrix of the linearized system.
        """
        k = np.asarray(K, dtype=np.float64)
        if not self.D.any():
            return self.A + (self.B * k) @ self.C
        return self.A + (self.B * k) @ close_loop(self.D, k, self.C)

    def payload(self) -> dict[str, Any]:
        """Return the stored content: the matrices, or a discretized system's continuous one, method and step."""
        if self.origin is not None:
            return {"base": self.origin.base, "method": self.origin.method, "dt": self.origin.dt}
        return {key: value for key, value in super().payload().items() if key != "origin"}

    @classmethod
    def from_payload(cls, data: Mapping[str, Any]) -> LureSystem:
        """Invert ``payload``."""
        if "base" in data:
            if not isinstance(data["base"], LureSystem) or data["base"].origin is not None:
                raise ConfigurationError("a discretised system needs a continuous base system")
            return data["base"].discretise(data["method"], data["dt"])
        slope, part = (data["alpha"], data["beta"]), data.get("part", "")
        return cls(data["A"], data["B"], data["C"], data["D"], slope, data["dt"], part=part)
