"""From a criterion's own solution to a witness ``(P, L)`` of the multiplier inequality, proved before it
counts.

A criterion that asks for more than the slopes do (a ball ``[-M, M]`` around them) gives multipliers for the
larger interval; the S-lemma turns them into multipliers for the smaller one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import brentq

from stability.certificate import Finding
from stability.errors import ConfigurationError, DimensionError, NonFiniteError
from stability.rules.multiplier_lmi import check_lmi
from stability.solve.deadline import Deadline, TimeOverError
from stability.solve.loop import Loop
from stability.solve.riccati import bounded_real
from stability.systems import LureSystem

__all__ = [
    "Witness",
    "answering",
    "best_rate",
    "climb_by_riccati",
    "crawl",
    "nested_multiplier",
    "prove",
    "prove_by_riccati",
    "retreat",
    "shift_factor",
    "start_rate",
]

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Witness:
    """A proved ``(P, L)`` with its rate; empty when none was proved."""

    rate: float | None = None
    data: dict[str, Array] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.rate is not None


def answering(name: str) -> Callable[[Callable[..., Finding]], Callable[..., Finding]]:
    """Decorator of a criterion: overflow on extreme entries becomes a finding that does not hold.

    Args:
        name: the criterion's.

    Returns:
        The decorator.
    """

    def decorate(function: Callable[..., Finding]) -> Callable[..., Finding]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Finding:
            try:
                with np.errstate(all="ignore"):
                    return function(*args, **kwargs)
            except (ConfigurationError, DimensionError, NonFiniteError):
                raise
            except (np.linalg.LinAlgError, ArithmeticError, ValueError) as error:  # LAPACK and scipy on overflow
                words = f"undecided: the entries are out of the range of floating point ({error})"
                return Finding(name, False, None, words)

        return guarded

    return decorate


def start_rate(system: LureSystem) -> float:
    """The rate that means no more than stability: 0 in continuous, 1 in discrete time."""
    return 1.0 if system.is_discrete else 0.0


def shift_factor(system: LureSystem, rate: float) -> float:
    """Factor of the shifted loop's multipliers: in discrete time ``A/rho, B/rho`` divides by ``rho^2``."""
    return rate * rate if system.is_discrete else 1.0


def nested_multiplier(outer: tuple[Array, Array], inner: tuple[Array, Array], cap: float = 4.0) -> Array:
    r"""Numbers ``t`` with :math:`t\,q_{\mathrm{inner}} \le q_{\mathrm{outer}}`, channel by channel (S-lemma).

    ``q(w, z) = 2 (w - a z)(b z - w)`` is non-negative exactly for slopes in ``[a, b]``. Whatever is proved
    with the multiplier L for the outer interval then holds with ``t L`` for the inner one.

    Args:
        outer: ``(a, b)``, vectors ``(m,)``.
        inner: ``(alpha, beta)`` inside.
        cap: where every large t will do (a single slope), one near this is taken.

    Returns:
        ``(m,)``.

    Example:
        >>> one = np.ones(1)
        >>> nested_multiplier((-one, one), (0 * one, one))
        array([2.])
    """
    a, b = outer
    alpha, beta = inner
    wide, narrow = b - a, beta - alpha
    k = (a + b) * (alpha + beta) - 2.0 * (a * b + alpha * beta)
    root = np.sqrt(np.maximum(k * k - (narrow * wide) ** 2, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(k > 0, wide**2 / (k + root), cap)
        middle = np.where(narrow > 0, wide / narrow, np.inf)  # the geometric mean of the two roots
    return np.maximum(low, np.minimum(middle, np.maximum(2.0 * low, cap)))


def crawl(system: LureSystem) -> float:
    """A rate that means "exponentially, however slowly": strictly inside, and far below every other time scale."""
    if system.is_discrete:
        return 1.0 - 2.0**-30
    size = float(np.linalg.norm(system.A)) / np.sqrt(system.states)
    return float(2.0 ** np.floor(np.log2(min(max(size, 1e-200), 1e200)) - 24.0))


def _strictly_inside(system: LureSystem, rate: float) -> Iterable[float]:
    """The rate itself; where it says no more than stability, slow rates that do: the inequality is strict."""
    if rate != start_rate(system):
        return (rate,)
    if system.is_discrete:
        return (crawl(system), 1.0 - 2.0**-40, 1.0 - 2.0**-50)
    return tuple(crawl(system) * 2.0**-k for k in (0, 10, 20, 100))


def prove(system: LureSystem, P: Array, L: Array, rate: float) -> Witness:
    """The witness at this rate if the rigorous check accepts it, P scaled by a power of two to about unit size.

    At the rate that means no more than stability (0, or 1 per step) the witness is of a rate strictly inside.
    """
    if not (np.isfinite(P).all() and np.isfinite(L).all()):
        return Witness()
    size, least = float(np.abs(P).max()), float(np.diagonal(P).min())
    if 0.0 < least < 1e-30 * size:  # far apart: one in the middle, so that neither end leaves the checker's range
        size = float(np.sqrt(size) * np.sqrt(least))
    unit = 2.0 ** -np.round(np.log2(size)) if 1e-280 < size < 1e280 else 1.0
    rate = float(rate)
    p = np.ascontiguousarray(0.5 * unit * (P + P.T))
    multipliers = np.maximum(np.ascontiguousarray(unit * L), 0.0)
    for inside in _strictly_inside(system, rate):
        if check_lmi(system, p, multipliers, inside)[0]:
            return Witness(inside, {"P": p, "L": multipliers})
    return Witness()


def retreat(system: LureSystem, best: float, steps: Iterable[float] | None = None) -> Iterable[float]:
    """Rates from just inside ``best`` back to the start, for a supremum that is not reached."""
    start = start_rate(system)
    for step in steps if steps is not None else 10.0 ** np.arange(-15.0, 0.0, 1.25):
        rate = best + step * (start - best)
        if rate != best:
            yield rate
    yield start


def best_rate(gain: Callable[[float], float], limit: float, discrete: bool, tol: float = 1e-9) -> float:
    """The fastest rate at which a gain that grows with it is below one, or, when the time is over, the fastest seen.

    Args:
        gain: gain at a rate; below one at the start (0 or 1), infinite beyond ``limit``; may raise ``TimeOverError``.
        limit: decay rate of the linear part.
        discrete: time base.
        tol: absolute tolerance relative to the span of rates.

    Returns:
        The rate.

    Example:
        >>> round(best_rate(lambda r: 1.0 / (2.0 - r) if r < 2.0 else np.inf, 2.0, False), 6)
        1.0
    """
    start = 1.0 if discrete else 0.0
    span = limit - start

    reached = 0.0

    def surplus(x: float) -> float:
        nonlocal reached
        value = gain(start + x * span)
        reached = max(reached, x) if value < 1.0 else reached
        return 1.0 - min(value, 1e9) if value <= 1.0 else 1.0 / min(value, 1e9) - 1.0

    try:
        if surplus(1.0 - 1e-12) > 0:  # the feedback costs nothing
            return start + (1.0 - 1e-12) * span
        root: Any = brentq(surplus, 0.0, 1.0 - 1e-12, xtol=tol, rtol=np.float64(1e-12), maxiter=80)
    except TimeOverError:
        return start + reached * span
    return start + float(root) * span


def prove_by_riccati(
    system: LureSystem,
    loop: Loop,
    multiplier: Callable[[float], Array],
    rates: Iterable[float],
    gain: float,
    deadline: Deadline,
) -> Witness:
    """Try the bounded real Riccati equation of a loop at one rate after another.

    Args:
        system: the system that the witness is for.
        loop: a loop whose gain below one proves it, unshifted.
        multiplier: the multipliers in the system's slopes, given the cap of ``nested_multiplier``.
        rates: rates to try, the best first.
        gain: gain of the loop at the start; sets the slack.
        deadline: asked before each equation.
    """
    room = max(1.0 - gain * gain, 1e-12)
    for rate in rates:
        for slack in (0.1 * room, 1e-3 * room, 1e-6 * room, 1e-9 * room):
            if deadline.over:
                return Witness()
            with np.errstate(all="ignore"):
                P = bounded_real(loop.shifted(rate), slack, deadline=deadline).P
            if P is None or not np.isfinite(P).all():
                continue
            for cap in (4.0, 1e3, 1e6):
                witness = prove(system, P, shift_factor(system, rate) * multiplier(cap), rate)
                if witness:
                    return witness
                if (system.beta > system.alpha).all():
                    break
    return Witness()


def climb_by_riccati(
    system: LureSystem,
    loop: Loop,
    multiplier: Callable[[float], Array],
    limit: float,
    gain: float,
    deadline: Deadline,
    tol: float = 1e-3,
) -> Witness:
    """Bisection on the rate by Riccati equations alone: the way for large systems.

    Args:
        system: the system that the witness is for.
        loop: as in ``prove_by_riccati``.
        multiplier: as in ``prove_by_riccati``.
        limit: decay rate of the linear part, beyond which nothing can be proved.
        gain: gain of the loop at the start.
        deadline: asked before each equation; the best rate proved until then is the answer.
        tol: of the rate, relative to the span.

    Returns:
        The best proved witness.
    """
    low = start_rate(system)
    best = prove_by_riccati(system, loop, multiplier, [low], gain, deadline)
    high = limit
    span = abs(high - low)
    while best and abs(high - low) > tol * span and not deadline.over:
        middle = 0.5 * (low + high)
        found = prove_by_riccati(system, loop, multiplier, [middle], gain, deadline)
        if found:
            best, low = found, middle
        else:
            high = middle
    return best
