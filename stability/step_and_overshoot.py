"""Largest certified step of a discretization, and least overshoot at a given rate."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stability.certificate import Certificate, Finding
from stability.errors import ConfigurationError
from stability.kernel.systems.lure import LureSystem
from stability.search.criteria.contraction_claim import contraction_claim, open_claim
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.criteria.witness import Witness, prove
from stability.search.solvers.deadline import TOO_LATE, Deadline, TimeLimit
from stability.search.solvers.overshoot import min_overshoot
from stability.search.solvers.rates import Rate, crawl, parse_rate


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
    system: LureSystem, method: str = "euler", *, rate: Rate = "any", tol: float = 1e-3, time_limit: TimeLimit = None
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
        time_limit: seconds; the largest step certified until then is the answer.

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
    deadline = Deadline.after(time_limit).named("step")
    unit = 1.0 / max(float(np.linalg.norm(system.A, 2)), float(np.linalg.norm(system.C, 2)), 1e-12)
    parse_rate(rate, system.discretise(method, unit))

    low, high, best, dt = 0.0, np.inf, None, unit
    for _ in range(60):
        if deadline.over:
            break
        found = _certified(system.discretise(method, dt), rate, deadline)
        if found is not None:
            low, best = dt, found
        elif deadline.cut:  # not decided: this step did not fail
            break
        else:
            high = dt
        if _narrow(low / unit, high / unit, tol):
            break
        dt = _next_step(low, high)
    if best is not None:
        best = replace(best, meta={**best.meta, **deadline.meta})
    return StepBound(low, best, float(high))


def _certified(step: LureSystem, rate: Rate, deadline: Deadline) -> Certificate | None:
    """The certificate of a map by the multiplier criterion, or ``None``."""
    finding = multiplier_criterion(step, rate=rate, solver="riccati", time_limit=deadline)
    claim = contraction_claim(step, Witness(finding.rate, dict(finding.witness))) if finding.holds else None
    if claim is None or claim.proof is None:
        return None
    overshoot = float(claim.proof.data["overshoot"])
    return Certificate(step, claim, "multiplier", claim.value, overshoot, (finding,), meta=deadline.meta)


def _narrow(low: float, high: float, tol: float) -> bool:
    """Whether a bracket of the largest step, in the system's own unit, tells it: to ``tol``, as endless, or as none."""
    return (np.isinf(high) and low > 1e6) or high < 1e-9 or (low > 0 and high - low <= tol * low)


def _next_step(low: float, high: float) -> float:
    """The next step to try in a bracket: twice as long while none failed, shorter while none held, else the middle."""
    if np.isinf(high):
        return 2.0 * low
    return 0.5 * (low + high) if low > 0 else 0.25 * high


def smallest_overshoot(system: LureSystem, rate: float, *, time_limit: TimeLimit = None) -> Certificate:
    """A certificate at a given rate with the smallest overshoot that a quadratic metric gives (an SDP: small systems).

    Args:
        system: the system.
        rate: ``lambda`` or ``rho`` to certify.
        time_limit: seconds.

    Returns:
        The certificate; inconclusive, with the reason in its finding, where the rate could not be certified.

    Raises:
        ConfigurationError: a rate that makes no sense, or a system too large for a dense SDP.

    Example:
        >>> round(smallest_overshoot(LureSystem.recurrent([[-2.0]], [[1.0]]), 0.5).overshoot, 4)
        1.0
    """
    value = parse_rate(rate, system)
    if isinstance(rate, str):
        raise ConfigurationError(f"smallest_overshoot needs a number as rate, got {rate!r}")
    value = crawl(system) if isinstance(value, str) else value
    deadline = Deadline.after(time_limit).named("overshoot")
    result = min_overshoot(system, value, time_limit=deadline)
    claim = None
    if result.P is not None and result.L is not None:
        found = prove(system, result.P, result.L, value)
        claim = contraction_claim(system, found) if found else None
    if claim is None or claim.proof is None:
        words = TOO_LATE if deadline.cut else f"the rate {value:g} could not be certified: {result.detail}"
        finding = Finding("multiplier", False, None, words)
        return Certificate(system, open_claim(system), None, None, None, (finding,), meta=deadline.meta)
    return Certificate(system, claim, "multiplier", claim.value, claim.proof.data["overshoot"], meta=deadline.meta)
