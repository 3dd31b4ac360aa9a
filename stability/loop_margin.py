"""Margins of a loop: factors of its slopes or of its integrator's step that keep or break contraction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stability.certificate import Certificate
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.systems.lure import LureSystem
from stability.scaled_loops import (
    LARGEST,
    certify_contraction_at,
    check_tolerance,
    largest_factor,
    loop_system,
    middle,
    scale_slopes,
    scale_step,
)
from stability.search.counterexamples.counterexample_search import refute as search
from stability.search.solvers.deadline import Deadline, TimeLimit
from stability.search.solvers.rates import Rate, parse_rate

FIRST_TRIES = 10
"""Powers of two above and below 1 that are tried as a first factor where factor 1 has no proof."""
PIECES = 200
"""Most sectors that are tried on each side of the first factor; an ordinary loop needs 10 to 40."""


@dataclass(frozen=True, eq=False)
class GainMargin:
    """Certified and destabilizing factors of the slopes of a Lur'e system.

    Attributes:
        certified: the largest certified factor; 0 if none was found, ``LARGEST`` if none failed.
        certificate: certificate of the system at that factor, or ``None``.
        destabilising: the smallest factor above with a proved counterexample; infinite if none was found.
        refutation: certificate of the counterexample, or ``None``.
        slope: ``(alpha, beta)`` of the unchanged system, at factor 1.
        certified_low: the smallest certified factor, such that every factor from here to ``certified`` is certified;
            0 if all smaller factors are, infinite if no factor is certified.
        destabilising_low: the largest factor below with a proved counterexample; 0 if none was found.
        refutation_low: certificate of that counterexample, or ``None``.
        cover: certificates that together prove every factor between ``certified_low`` and ``certified``: the slopes of
            each such factor lie in the slopes of one of them.
    """

    certified: float
    certificate: Certificate | None = field(repr=False)
    destabilising: float
    refutation: Certificate | None = field(repr=False)
    slope: tuple[Any, Any]
    certified_low: float = 0.0
    destabilising_low: float = 0.0
    refutation_low: Certificate | None = field(default=None, repr=False)
    cover: tuple[Certificate, ...] = field(default=(), repr=False)

    @property
    def undecided(self) -> float:
        """Ratio of the two upper factors: 1 for a known margin, larger if slopes between them are undecided."""
        return self.destabilising / self.certified if self.certified else float("inf")

    def to_dict(self) -> dict[str, float | None]:
        """Return the factors as JSON values; ``None`` if there is none."""
        return {
            "certified_low": None if self.certificate is None else self.certified_low,
            "certified": self.certified,
            "destabilizing_low": self.destabilising_low or None,
            "destabilizing": self.destabilising if np.isfinite(self.destabilising) else None,
        }


def gain_margin(
    subject: Any, *, tol: float = 1e-3, refute: bool = True, seed: int = 0, time_limit: TimeLimit = None
) -> GainMargin:
    r"""Find an interval of certified factors of the slopes, and the nearest factors that provably destabilize.

    For slopes :math:`0 \le \phi' \le 1` the factor is the largest slope itself. Textbooks ask for it in a loop with
    saturation: the circle criterion gives one answer, the Nyquist gain margin (constant gains) another. Intervals
    :math:`[k \alpha, k \beta]` with :math:`\alpha \le 0 \le \beta` are nested, so the proof at the largest factor
    certifies all smaller ones, and the counterexample at ``destabilising`` refutes all larger ones.

    Other slopes, of loops with an integrator, an unstable plant or conditional stability, are not nested. There the
    factors around 1 are covered by pieces :math:`[k_1, k_2]`, and each piece is proved as one sector: the slopes
    :math:`[k_1 \alpha, k_2 \beta]` if they are positive. So every factor k of the interval is certified: the loop is
    stable for each nonlinearity with slopes in :math:`[k \alpha, k \beta]`. For :math:`\alpha = \beta` these are the
    linear loops with a constant gain; a gain that moves through several pieces in time is not covered. If factor 1 has
    no proof, the interval contains the power of two nearest to 1 that has one.

    Args:
        subject: a ``LureSystem``, or a network with one, whose weights into the activation are multiplied.
        tol: relative tolerance of all factors.
        refute: look for the destabilizing factors.
        seed: seed of the search for counterexamples.
        time_limit: time limit in seconds, after which the best result is returned.

    Returns:
        The factors with their certificates; nothing is claimed about factors between certified and destabilizing ones.

    Raises:
        ConfigurationError: a bad ``tol``.
        UnsupportedError: a subject without slopes.

    Source:
        H. K. Khalil, *Nonlinear Systems*, 3rd ed., theorem 7.1 (circle criterion), for each sector.

    Example:
        >>> loop = LureSystem.from_state_space(([[-1.0]], [[1.0]], [[1.0]], [[0.0]]), sign=1)  # x' = -x + phi(x)
        >>> margin = gain_margin(loop)
        >>> round(margin.certified, 2), round(margin.destabilising, 2)
        (1.0, 1.0)
        >>> plant = ([[1.0]], [[1.0]], [[1.0]], [[0.0]])  # 1 / (s - 1) needs a slope above 1
        >>> margin = gain_margin(LureSystem.from_state_space(plant, slope=(2.0, 3.0)))
        >>> round(margin.certified_low, 2), round(margin.destabilising_low, 2), margin.certified == LARGEST
        (0.5, 0.5, True)
    """
    check_tolerance(tol)
    system = loop_system(as_subject(subject))
    deadline = Deadline.from_limit(time_limit).named("gain margin")
    if (system.alpha <= 0).all() and (system.beta >= 0).all():
        return _margin(lambda factor: scale_slopes(system, factor), system.slope, tol, refute, seed, deadline)
    return _interval(system, tol, refute, seed, deadline)


def _interval(system: LureSystem, tol: float, refute: bool, seed: int, deadline: Deadline) -> GainMargin:
    """Search the interval of factors of slopes that do not contain 0, and the nearest destabilizing factors."""

    def proved(first: float, second: float) -> Certificate | None:
        ends = min(first, second), max(first, second)
        return certify_contraction_at(scale_slopes(system, *ends), "any", deadline)

    def broken(factor: float) -> Certificate | None:
        return _refuted(scale_slopes(system, factor), seed, deadline)

    powers = (2.0 ** (sign * k) for k in range(FIRST_TRIES + 1) for sign in (1, -1)[: 1 + (k > 0)])
    first = next(((k, found) for k in powers if not deadline.over and (found := proved(k, k)) is not None), None)
    if first is None:
        refutation = broken(1.0) if refute else None
        nearest = (np.inf, 0.0) if refutation is None else (1.0, 1.0)
        return GainMargin(0.0, None, nearest[0], refutation, system.slope, np.inf, nearest[1], refutation)
    below, low = _extend(proved, first[0], 0.5, tol, deadline)
    above, high = _extend(proved, first[0], 2.0, tol, deadline)
    at_end = (proved(high, high) if above else first[1]) or above[-1]
    upper, lower = (np.inf, None), (np.inf, None)
    if refute and high < LARGEST:
        upper = _smallest(broken, high, tol, deadline)
    if refute and low > 1.0 / LARGEST:
        lower = _smallest(lambda inverse: broken(1.0 / inverse), 1.0 / low, tol, deadline)
    cover = (*reversed(below), first[1], *above)
    at_end = replace(at_end, meta={**at_end.meta, **deadline.meta})
    return GainMargin(high, at_end, *upper, system.slope, low, 1.0 / lower[0], lower[1], cover)


def _extend(
    proved: Callable[[float, float], Certificate | None], start: float, ratio: float, tol: float, deadline: Deadline
) -> tuple[list[Certificate], float]:
    """Cover the factors on one side of a certified one by pieces, each proved as one sector.

    Args:
        proved: certifies the sector that contains the slopes of all factors between two.
        start: a certified factor.
        ratio: first ratio of the ends of a piece; below 1 for factors below ``start``. It is squared after two
            successes and replaced by its root after a failure.
        tol: the search ends when a piece with a ratio of ``1 + tol / 4`` has no proof.
        deadline: time limit.

    Returns:
        The certificates in order from ``start``, and the last certified factor.
    """
    end, pieces, succeeded = start, [], True
    to_zero = ratio < 1.0 and proved(0.0, 0.0) is not None
    for _ in range(PIECES):
        if to_zero and (piece := proved(0.0, end)) is not None:
            return [*pieces, piece], 0.0
        target = float(np.clip(end * ratio, 1.0 / LARGEST, LARGEST))
        if target == end or deadline.over or abs(np.log(ratio)) < 0.25 * tol:
            break
        piece = proved(end, target)
        if piece is None:
            ratio = np.sqrt(ratio)
        else:
            pieces.append(piece)
            end, ratio = target, ratio**2 if succeeded else ratio
        succeeded = piece is not None
    return pieces, end


def step_margin(
    subject: Any, *, tol: float = 1e-3, refute: bool = True, seed: int = 0, time_limit: TimeLimit = None
) -> GainMargin:
    r"""Find the largest certified and the smallest provably destabilizing factor of an integrator's step.

    For Euler the certified steps form an interval that starts at zero (see ``largest_step``), so the first factor
    certifies all smaller ones; nothing is claimed about factors above the second.

    Args:
        subject: a map that an integrator made from a flow, ``system.discretise(method, dt)``.
        tol: relative tolerance of both factors.
        refute: look for the second factor.
        seed: seed of the search for counterexamples.
        time_limit: time limit in seconds, after which the best result is returned.

    Returns:
        Both factors of the step, each with its certificate.

    Raises:
        ConfigurationError: a bad ``tol``.
        UnsupportedError: a subject that no integrator made.

    Example:
        >>> margin = step_margin(LureSystem.recurrent([[-2.0]], [[0.5]]).discretise("euler", 0.1))
        >>> round(margin.certified, 1)
        10.0
    """
    check_tolerance(tol)
    system = loop_system(as_subject(subject))
    if system.origin is None:
        raise UnsupportedError("a step margin needs a system from LureSystem.discretise; this one has no integrator")
    deadline = Deadline.from_limit(time_limit).named("step margin")
    found = _margin(lambda factor: scale_step(system, factor), system.slope, tol, refute, seed, deadline)
    return found if system.origin.method == "euler" else replace(found, certified_low=found.certified or np.inf)


def _margin(
    at: Callable[[float], LureSystem | None], slope: Any, tol: float, refute: bool, seed: int, deadline: Deadline
) -> GainMargin:
    """Search both factors of the systems ``at(factor)``."""
    low, certificate, failed = largest_factor(
        lambda factor: certify_contraction_at(at(factor), "any", deadline), tol, deadline
    )
    high, refutation = float("inf"), None
    if refute and low < LARGEST:
        start = max(failed, 1.0 / LARGEST)
        high, refutation = _smallest(lambda factor: _refuted(at(factor), seed, deadline), start, tol, deadline)
    cover = () if certificate is None else (certificate,)
    return GainMargin(low, certificate, high, refutation, slope, 0.0 if cover else np.inf, cover=cover)


def _refuted(system: LureSystem | None, seed: int, deadline: Deadline) -> Certificate | None:
    """Refute the contraction of a system, or return ``None``."""
    result = None if system is None else search(system, seed=seed, time_limit=deadline)
    if result is None or result.proof is None or result.claim is None:
        return None
    return Certificate(system, result.claim, result.proof.kind, None, None, result.findings, meta=deadline.meta)


@dataclass(frozen=True, eq=False)
class StepBound:
    """Largest step found for which the discrete map is certified.

    Attributes:
        dt: the step; 0 if none was certified.
        certificate: certificate of the map at ``dt``, or ``None``.
        failed: the smallest step tried that was not certified; infinite if none failed.
    """

    dt: float
    certificate: Certificate | None
    failed: float


def largest_step(
    system: LureSystem, method: str = "euler", *, rate: Rate = "any", tol: float = 1e-3, time_limit: TimeLimit = None
) -> StepBound:
    """Search for the largest Euler or midpoint step for which the discrete map is certified.

    For Euler the certified steps form an interval that starts at zero: at fixed ``(P, L)`` the inequality divided by
    ``dt`` contains ``dt [A B]^T P [A B]``, which grows with ``dt``. For midpoint only the step found is certified; no
    step above one that failed was tried.

    Args:
        system: a continuous system.
        method: ``"euler"`` or ``"midpoint"``.
        rate: required rate of the map: ``"any"``, or a rate per step.
        tol: relative tolerance of the step.
        time_limit: time limit in seconds, after which the largest step certified so far is returned.

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
        raise ConfigurationError("largest_step needs a LureSystem in continuous time (without dt)")
    check_tolerance(tol)
    deadline = Deadline.from_limit(time_limit).named("step")
    unit = 1.0 / max(float(np.linalg.norm(system.A, 2)), float(np.linalg.norm(system.C, 2)), 1e-12)
    parse_rate(rate, system.discretise(method, unit))

    def proved(factor: float) -> Certificate | None:
        return certify_contraction_at(system.discretise(method, factor * unit), rate, deadline)

    low, certificate, failed = largest_factor(proved, tol, deadline)
    return StepBound(low * unit, certificate, failed * unit)


def _smallest(
    broken: Callable[[float], Certificate | None], start: float, tol: float, deadline: Deadline
) -> tuple[float, Certificate | None]:
    """Return the smallest refuted factor, searching upwards from the smallest that was not certified."""
    low, high, best, factor, growth = start, float("inf"), None, start, 1.0 + 4.0 * tol
    while factor <= LARGEST and not deadline.over:
        smallest = broken(factor)
        if smallest is not None:
            high, best = factor, smallest
        else:
            low = factor
        if high <= low * (1.0 + tol):
            break
        if best is None:
            factor, growth = factor * growth, min(growth**2, 8.0)
        else:
            factor = middle(low, high)
    return high, best
