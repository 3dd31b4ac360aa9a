"""Loops with other slopes or another integration step, and the search for the largest factor with a proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from stability.certificate import Certificate
from stability.certification import certify
from stability.errors import ConfigurationError, IllPosedError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.lure import LureSystem
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.rates import Rate

Array = np.ndarray
LARGEST = 2.0**30
"""Largest factor of the slopes that is tried; its inverse is the smallest."""


def loop_system(subject: Any) -> LureSystem:
    """Return the Lur'e system of a subject, whose slopes or step a margin scales.

    Args:
        subject: a ``LureSystem``, or a network with one.

    Raises:
        UnsupportedError: the subject has no such system, or one without channels.
    """
    system: Any = getattr(subject, "system", None)
    if isinstance(system, LureSystem) and not system.channels:
        raise UnsupportedError(
            "a linear system has no slopes: for margins build the loop by feedback(plant, controller, slope=(1, 1)); "
            "for a loop with an LSTM or GRU use certify, which examines the linearization"
        )
    if not isinstance(system, LureSystem):
        raise UnsupportedError("margins need a LureSystem, or a network with one; for an LSTM or GRU loop use certify")
    return system


def scale_slopes(system: LureSystem, factor: float, largest: float | None = None) -> LureSystem | None:
    """Return the system with multiplied slopes; ``None`` if its channels' equation may have no solution.

    Args:
        system: a flow, a map, or a map that an integrator made.
        factor: factor of the slopes.
        largest: a larger factor: the slopes are the least sector that contains those of all factors between both.
    """
    base = system if system.origin is None else system.origin.base
    largest = factor if largest is None else largest
    low = np.minimum(factor * base.alpha, largest * base.alpha)
    return with_slopes(system, low, np.maximum(factor * base.beta, largest * base.beta))


def with_slopes(system: LureSystem, low: Array, high: Array) -> LureSystem | None:
    """Return the system with other slopes; ``None`` if its channels' equation may have no solution.

    Args:
        system: a flow, a map, or a map that an integrator made.
        low: ``(m,)``, lower slopes; of the flow behind a map that an integrator made.
        high: ``(m,)``, upper slopes.
    """
    base = system if system.origin is None else system.origin.base
    try:
        changed = LureSystem(base.A, base.B, base.C, base.D, (low, high), base.dt, part=base.part)
        return changed if system.origin is None else changed.discretise(system.origin.method, system.origin.dt)
    except IllPosedError:
        return None


def nominal_loop(system: LureSystem) -> LureSystem:
    """Return the linear loop in which every slope is the bound of larger modulus: 1 for a saturation.

    Example:
        >>> nominal_loop(LureSystem.recurrent([[-2.0]], [[1.0]])).slope
        (1.0, 1.0)
    """
    base = system if system.origin is None else system.origin.base
    slope = np.where(np.abs(base.beta) >= np.abs(base.alpha), base.beta, base.alpha)
    return with_slopes(system, slope, slope) or system  # never the latter: these slopes are the system's own


def scale_step(system: LureSystem, factor: float) -> LureSystem | None:
    """Return the flow behind a map, integrated with a multiple of its step; ``None`` for any other system.

    Args:
        system: a map that an integrator made.
        factor: factor of its step.
    """
    origin = system.origin
    try:
        return None if origin is None else origin.base.discretise(origin.method, factor * origin.dt)
    except IllPosedError:
        return None


def certify_contraction_at(system: LureSystem | None, rate: Rate, deadline: Deadline) -> Certificate | None:
    """Certify a system by the multiplier criterion at a rate, or return ``None``.

    For one channel the circle criterion proves the same sectors, and also at rates that are very slow.
    """
    for criterion in () if system is None else ("multiplier", "circle")[: 1 + (system.channels == 1)]:
        proof = certify(system, criterion=criterion, solver="riccati", rate=rate, refute=False, time_limit=deadline)
        if proof.verdict is Verdict.CERTIFIED and proof.meta.get("asked_rate_reached", True):
            return proof
    return None


def largest_factor(
    proved: Callable[[float], Certificate | None], tol: float, deadline: Deadline
) -> tuple[float, Certificate | None, float]:
    """Return the largest proved factor, its certificate, and the smallest unproved one."""
    low, high, best, factor = 0.0, float("inf"), None, 1.0
    while 1.0 / LARGEST <= factor <= LARGEST and not deadline.over:
        largest = proved(factor)
        if largest is not None:
            low, best = factor, largest
        elif deadline.cut:
            break
        else:
            high = factor
        if low and high <= low * (1.0 + tol):
            break
        factor = 4.0 * factor if np.isinf(high) else 0.25 * factor if low == 0.0 else middle(low, high)
    return low, best and replace(best, meta={**best.meta, **deadline.meta}), high


def check_tolerance(tol: Any) -> None:
    """Refuse a relative tolerance outside (0, 1)."""
    if not isinstance(tol, float) or not 0.0 < tol < 1.0:
        raise ConfigurationError(f"tol must be a number in (0, 1), got {tol!r}")


def middle(low: float, high: float) -> float:
    """Return the geometric mean of two positive numbers."""
    return float(np.sqrt(low * high))
