r"""H-infinity norm by level sets, to a stated tolerance.

A number :math:`\gamma` is a singular value of :math:`G(i\omega)` exactly where a Hamiltonian matrix has the eigenvalue
:math:`i\omega`. So the frequencies at which the largest singular value crosses a level are computed, not searched; the
peak between them gives the next level, and the norm is reached quadratically.

Sources: S. Boyd, V. Balakrishnan, A regularity result for the singular values of a transfer matrix and a quadratically
convergent algorithm for computing its L-infinity norm, Systems & Control Letters 15 (1990); N. Bruinsma, M. Steinbuch,
A fast algorithm to compute the H-infinity norm of a transfer function matrix, ibid. 14 (1990).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError
from scipy.optimize import minimize_scalar

from stability.errors import ConfigurationError, UnsupportedError
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.state_space import StateSpace
from stability.search.solvers.transfer_function import Response, scaled_response, state_space

Array = np.ndarray
_LEVELS = 60  # most levels
_EXACT_TRIES = 30


@dataclass(frozen=True, eq=False)
class Peak:
    """Largest singular value of a transfer matrix and its frequency.

    Attributes:
        norm: the H-infinity norm; infinite for an unstable system.
        omega: frequency of the peak in rad per unit of time, in [0, inf]; in discrete time an angle per step in
            [0, pi]. NaN for an unstable system.
    """

    norm: float
    omega: float


def _hamiltonian_frequencies(system: StateSpace, level: float) -> tuple[Array, Array]:
    """Return real parts (relative) and imaginary parts of the eigenvalues of the level's Hamiltonian matrix.

    ``R = level^2 I - D^H D`` must be positive definite and well conditioned.
    """
    A, B, C, D = system.A, system.B / np.sqrt(level), system.C / np.sqrt(level), system.D / level
    R = np.eye(D.shape[1]) - D.conj().T @ D
    S = np.eye(len(D)) - D @ D.conj().T
    F = A + B @ np.linalg.solve(R, D.conj().T @ C)
    upper = B @ np.linalg.solve(R, B.conj().T)
    lower = C.conj().T @ np.linalg.solve(S, C)
    H = np.block([[F, upper], [-lower, -F.conj().T]])
    values = np.linalg.eigvals(H)
    size = np.abs(values) + np.finfo(float).eps * np.linalg.norm(H)
    return np.abs(values.real) / size, values.imag


@dataclass(frozen=True, eq=False)
class _Chart(StateSpace):
    """System in a variable whose imaginary axis is the boundary and whose infinity is a regular point."""

    pole: complex | None

    def omegas(self, imaginary: Array) -> Array:
        """Return the frequencies of the original system at points ``i * imaginary`` of this chart."""
        if self.pole is None:
            return np.abs(imaginary)
        if self.is_discrete:
            s = 1j * imaginary
            with np.errstate(divide="ignore", invalid="ignore"):
                z = np.where(s == 1, -1, self.pole * (s + 1) / (s - 1))
            return np.abs(np.angle(z))
        with np.errstate(divide="ignore"):
            return np.abs(self.pole.imag - 1.0 / imaginary)


def _chart(system: StateSpace, pole: complex | None) -> _Chart:
    """Move infinity: ``s -> 1 / (s - pole)``, or in discrete time ``z -> (z + pole) / (z - pole)``."""
    A, B, C, D = system.matrices
    discrete = system.is_discrete
    if pole is None:
        return _Chart(A, B, C, D, discrete, None)
    point = pole.real if pole.imag == 0 else pole
    inverse = np.linalg.inv(point * np.eye(len(A)) - A)
    if discrete:
        E = inverse @ B
        return _Chart(-inverse @ (A + point * np.eye(len(A))), E, -2 * point * (C @ inverse), D + C @ E, True, pole)
    right = C @ inverse
    return _Chart(-inverse, B, -(right @ inverse), D + right @ B, False, pole)


def _best_chart(response: Response, gains: dict[float, float]) -> _Chart:
    """Return the chart whose point at infinity has a gain well below the norm and lies away from the poles."""
    top = max(gains.values())
    if not response.discrete and gains[np.inf] <= 0.9 * top:
        return _chart(response.system, None)
    best, choice = -np.inf, None
    for omega, gain in gains.items():
        if np.isinf(omega):
            continue
        point = complex(response.point(omega))
        if omega == 0 or omega == np.pi:
            point = complex(round(point.real), 0.0) if response.discrete else 0j
        distance = float(np.min(np.abs(point - response.poles)))
        if distance == 0:
            continue
        unit = 1.0 if response.discrete else max(1e-300, float(np.max(np.abs(response.poles))))
        real = 0.3 if point.imag == 0 else 0.0  # real arithmetic is several times faster
        quality = min(0.0, np.log10(distance / unit) + 1.0) + 4 * min(0.0, 0.9 - gain / top) + real
        if quality > best:
            best, choice = quality, point
    return _chart(response.system, choice)


@np.errstate(all="ignore")
def hinf_peak(system: StateSpace, *, rtol: float = 1e-10, deadline: Deadline | None = None) -> Peak:
    r"""Compute the H-infinity norm and its frequency.

    Args:
        system: the system.
        rtol: relative tolerance; a peak that exceeds the answer by less may be missed.
        deadline: checked between factorizations; a norm that is half computed is none.

    Returns:
        The peak.

    Raises:
        ConfigurationError: a tolerance outside (0, 1).
        UnsupportedError: matrices so badly scaled that no change of units makes them finite.
        TimeOverError: when the deadline came first, for the search that set it.

    Example:
        >>> peak = hinf_peak(state_space([[0.0, 1.0], [-1.0, -0.1]], [[0.0], [1.0]], [[1.0, 0.0]]))
        >>> round(peak.norm, 6), round(peak.omega, 6)  # 1 / (2 z sqrt(1 - z^2)) at sqrt(1 - 2 z^2), z = 0.05
        (10.012523, 0.997497)
    """
    if not (isinstance(rtol, (int, float)) and 0 < rtol < 1):
        raise ConfigurationError(f"rtol must lie in (0, 1), got {rtol!r}")
    p, m = system.D.shape
    if m == 0 or p == 0:
        return Peak(0.0, 0.0)
    if system.states == 0:
        return _result(Response(StateSpace(-np.eye(1), np.zeros((1, m)), np.zeros((p, 1)), system.D, False)), 0.0)
    deadline = deadline or Deadline()
    try:
        response, time = scaled_response(system, deadline)
        poles = response.poles
        if (np.abs(poles) >= 1).any() if system.is_discrete else (np.real(poles) >= 0).any():
            return Peak(np.inf, np.nan)
        if not (response.system.B.any() and response.system.C.any()):
            return _result(response, 0.0)
        peak = _climb(response, rtol, deadline)
        return replace(peak, omega=peak.omega * time)
    except LinAlgError as error:
        raise UnsupportedError(f"the response overflows: {error}; rescale inputs, outputs or time") from error


def _refine(response: Response, omega: float, gain: float, gain_at: Callable[[float], float]) -> tuple[float, float]:
    """Polish a local maximum between its neighbors at a width set by the nearest pole."""
    if np.isinf(omega):
        return omega, gain
    point = response.point(omega)
    width = float(np.min(np.abs(point - response.poles)))
    top = np.pi if response.discrete else np.inf
    low, high = max(0.0, omega - width), min(top, omega + width)
    if not high > low:
        return omega, gain
    steps = 50 if response.small else 12
    options = {"xatol": 1e-9 * (high - low), "maxiter": steps}
    result: Any = minimize_scalar(lambda x: -gain_at(x), bounds=(low, high), method="bounded", options=options)
    found = float(result.x)
    value = gain_at(found)
    return (found, value) if value > gain else (omega, gain)


def _climb(response: Response, rtol: float, deadline: Deadline) -> Peak:
    """Raise the level to the peaks between the frequencies at which the largest singular value crosses it."""

    def gain(omega: float) -> float:
        deadline.require()
        return response.gain(omega)

    samples = response.samples()
    gains = dict(zip(samples.tolist(), response.estimates(samples, deadline).tolist()))
    omega = max(gains, key=lambda w: gains[w])
    best = gain(omega)
    if best == 0.0:  # zero at more points than a non-zero rational function of this degree has zeros
        return _result(response, 0.0)
    chart = _best_chart(response, gains)
    for _ in range(_LEVELS):
        omega, best = _refine(response, omega, best, gain)
        level = best * (1.0 + rtol)
        deadline.require((100.0 if np.iscomplexobj(chart.A) else 25.0) * (2 * len(chart.A)) ** 3)
        try:
            off_axis, imaginary = _hamiltonian_frequencies(chart, level)
        except LinAlgError:
            break
        # rounding moves a double eigenvalue off the axis by the root of the precision: take in all candidates
        omegas = chart.omegas(imaginary[off_axis < 1e-5])
        omegas = np.unique(omegas[~np.isnan(omegas)])
        if len(omegas) == 0:
            break
        candidates = response.candidates(omegas[np.isfinite(omegas)])
        tries = candidates[np.argsort(-response.estimates(candidates, deadline), kind="stable")].tolist()
        above = next((w for w in tries[: None if response.small else _EXACT_TRIES] if gain(w) > level), None)
        if above is None:
            break
        omega, best = above, gain(above)
    return _result(response, omega)


def _result(response: Response, omega: float) -> Peak:
    return Peak(float(np.linalg.norm(response.at(omega), 2)), float(omega))


def hinf_norm(A: Any, B: Any, C: Any, D: Any = None, dt: float | None = None, *, rtol: float = 1e-10) -> float:
    r"""Return the H-infinity norm :math:`\sup_\omega \bar\sigma(G(i\omega))` of ``G(s) = C (s I - A)^{-1} B + D``.

    In discrete time the supremum is over the unit circle. The cost is a few eigenvalue problems of size ``2 n``.

    Args:
        A: ``(n, n)``.
        B: ``(n, m)``.
        C: ``(p, n)``.
        D: ``(p, m)``, zero by default.
        dt: ``None`` for continuous time, the step (any number) for discrete time.
        rtol: relative tolerance.

    Returns:
        The norm; ``inf`` when A has an eigenvalue outside the open left half plane (open unit disc), even one that
        the input does not excite.

    Raises:
        DimensionError: shapes that do not fit.
        NonFiniteError: NaN or infinite entries.
        ConfigurationError: a tolerance outside (0, 1).
        UnsupportedError: matrices so badly scaled that no change of units makes them finite.

    Example:
        >>> round(hinf_norm([[-2.0]], [[1.0]], [[1.0]]), 12)
        0.5
        >>> round(hinf_norm([[0.5]], [[1.0]], [[1.0]], dt=1.0), 12)
        2.0
        >>> hinf_norm([[0.1]], [[1.0]], [[1.0]])
        inf
    """
    return hinf_peak(state_space(A, B, C, D, dt), rtol=rtol).norm
