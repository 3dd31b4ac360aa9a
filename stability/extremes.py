"""Two extremes that users ask for: the largest certified step of a discretisation, the least overshoot at a rate."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from stability.certificate import Certificate
from stability.certify import certify
from stability.criteria.multiplier import Rate, multiplier_criterion, parse_rate
from stability.criteria.witness import prove
from stability.errors import ConfigurationError, UnsupportedError
from stability.solve.conditioning import min_overshoot
from stability.systems import LureSystem
from stability.tradeoff import contraction_claim

__all__ = ["StepBound", "largest_step", "smallest_overshoot"]


@dataclass(frozen=True, eq=False)
class StepBound:
    """The largest step found for which the discrete map is certified.

    Attributes:
        dt: that step; 0 when none was certified.
        certificate: of the map at ``dt``, or ``None``.
        failed: the smallest step tried that was not certified; infinite when none failed.
    """

    dt: float
    certificate: Certificate | None
    failed: float


def largest_step(
    system: LureSystem, method: str = "euler", *, rate: Rate = "any", tol: float = 1e-3, time_limit: float | None = None
) -> StepBound:
    """The largest Euler or midpoint step for which the discrete map is certified.

    For Euler the certified steps form an interval that starts at zero: at fixed ``(P, L)`` the inequality divided by
    ``dt`` grows with ``dt`` by ``[A B]^T P [A B]``. For midpoint the step found is certified, and none beyond was tried
    once one failed.

    Args:
        system: a continuous system.
        method: ``"euler"`` or ``"midpoint"``.
        rate: what the map must reach: ``"any"``, or a rate per step.
        tol: relative tolerance of the step.
        time_limit: seconds.

    Returns:
        The step and its certificate.

    Raises:
        ConfigurationError: bad options, or a system that is discrete already.

    Example:
        >>> bound = largest_step(LureSystem.recurrent([[-2.0]], [[0.0]]))
        >>> round(bound.dt, 2)
        1.0
    """
    if not isinstance(system, LureSystem) or system.is_discrete:
        raise ConfigurationError("largest_step needs a continuous LureSystem")
    if not isinstance(tol, float) or not 0.0 < tol < 1.0:
        raise ConfigurationError(f"tol must lie in (0, 1), got {tol!r}")
    deadline = time.monotonic() + (np.inf if time_limit is None else float(time_limit))
    unit = 1.0 / max(float(np.linalg.norm(system.A, 2)), float(np.linalg.norm(system.C, 2)), 1e-12)
    parse_rate(rate, system.discretise(method, unit))

    def holds(dt: float) -> bool:
        return multiplier_criterion(system.discretise(method, dt), rate=rate, solver="riccati").holds

    low, high = 0.0, np.inf
    dt = unit
    for _ in range(60):
        if time.monotonic() > deadline:
            break
        if holds(dt):
            low = dt
            if np.isinf(high) and dt > 1e6 * unit:
                break
        else:
            high = dt
            if dt < 1e-9 * unit:
                break
        if low > 0 and high - low <= tol * low:
            break
        dt = 2.0 * low if np.isinf(high) else 0.5 * (low + high) if low > 0 else 0.25 * high
    if low == 0.0:
        return StepBound(0.0, None, float(high))
    certificate = certify(system.discretise(method, low), criterion="multiplier", rate=rate, refute=False)
    return StepBound(low, certificate, float(high))


def smallest_overshoot(system: LureSystem, rate: float, *, time_limit: float | None = None) -> Certificate:
    """A certificate at a given rate with the smallest overshoot that a quadratic metric gives (an SDP: small systems).

    Args:
        system: the system.
        rate: ``lambda`` or ``rho`` to certify.
        time_limit: seconds.

    Returns:
        The certificate.

    Raises:
        ConfigurationError: a rate that makes no sense, or a system too large for a dense SDP.
        UnsupportedError: when the rate could not be certified.

    Example:
        >>> round(smallest_overshoot(LureSystem.recurrent([[-2.0]], [[1.0]]), 0.5).overshoot, 4)
        1.0
    """
    value = parse_rate(rate, system)
    if isinstance(value, str):
        raise ConfigurationError(f"smallest_overshoot needs a number as rate, got {rate!r}")
    result = min_overshoot(system, value, time_limit=time_limit)
    claim = None
    if result.P is not None and result.L is not None:
        found = prove(system, result.P, result.L, value)
        claim = contraction_claim(system, found) if found else None
    if claim is None or claim.proof is None:
        raise UnsupportedError(f"the rate {value:g} could not be certified: {result.detail}")
    return Certificate(system, claim, "multiplier", value, claim.proof.data["overshoot"])
