"""Conversion of a criterion's solution to a proof ``(P, L)`` of the multiplier inequality.

Some criteria prove the inequality for a larger slope interval, such as ``[-M, M]``. The S-lemma converts their
multipliers to multipliers for the slopes of the system.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import brentq

from stability.certificate import Finding
from stability.errors import ConfigurationError, DimensionError, NonFiniteError
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.solvers.deadline import Deadline, TimeOverError
from stability.search.solvers.rates import bisect, shift_factor, slow_rate, start_rate
from stability.search.solvers.riccati import bounded_real
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
Multiplier = Callable[[float], Array]
Solutions = Callable[[float], Iterable[Array]]
CAPS = (4.0, 1e3, 1e6)
"""Values of ``cap`` in ``nested_multiplier`` for channels with a single slope; the first one with a proof is taken."""


@dataclass(frozen=True, eq=False)
class Witness:
    """Proved solution ``(P, L)`` of the multiplier inequality with its rate; empty if there is none."""

    rate: float | None = None
    data: dict[str, Array] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.rate is not None


def guarded_criterion(name: str) -> Callable[[Callable[..., Finding]], Callable[..., Finding]]:
    """Decorate a criterion: overflow on extreme entries becomes a finding that does not hold.

    Args:
        name: name of the criterion.

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
                words = f"undecided: numerical failure on entries of extreme size ({error})"
                return Finding(name, False, None, words)

        return guarded

    return decorate


def nested_multiplier(outer: tuple[Array, Array], inner: tuple[Array, Array], cap: float = 4.0) -> Array:
    r"""Return ``t`` with :math:`t\,q_{\mathrm{inner}} \le q_{\mathrm{outer}}`, channel by channel (S-lemma).

    ``q(w, z) = 2 (w - a z)(b z - w)`` is non-negative exactly for slopes in ``[a, b]``. Whatever is proved
    with the multiplier L for the outer interval then holds with ``t L`` for the inner one.

    Args:
        outer: ``(a, b)``, vectors ``(m,)``.
        inner: ``(alpha, beta)`` inside the outer interval, vectors ``(m,)``.
        cap: approximate value of t if every large t is admissible (a single slope).

    Returns:
        ``t``, ``(m,)``.

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


def _strictly_inside(system: LureSystem, rate: float) -> Iterable[float]:
    """Return the rates to try: the given one, or slow rates for stability without a rate, since the LMI is strict."""
    if rate != start_rate(system):
        return (rate,)
    if system.is_discrete:
        return (slow_rate(system), 1.0 - 2.0**-40, 1.0 - 2.0**-50)
    return tuple(slow_rate(system) * 2.0**-k for k in (0, 10, 20, 100))


def prove_witness(system: LureSystem, P: Array, L: Array, rate: float) -> Witness:
    """Return the witness at this rate if the rigorous check accepts it, with P scaled to about unit size.

    Rate 0 (1 per step) stands for stability without a rate; the witness then has a slow rate of ``_strictly_inside``.
    """
    if not (np.isfinite(P).all() and np.isfinite(L).all()):
        return Witness()
    size, least = float(np.abs(P).max()), float(np.diagonal(P).min())
    if 0.0 < least < 1e-30 * size:  # the geometric mean keeps both within the checker's range
        size = float(np.sqrt(size) * np.sqrt(least))
    unit = 2.0 ** -np.round(np.log2(size)) if 1e-280 < size < 1e280 else 1.0
    rate = float(rate)
    p = np.ascontiguousarray(0.5 * unit * (P + P.T))
    multipliers = np.maximum(np.ascontiguousarray(unit * L), 0.0)
    for inside in _strictly_inside(system, rate):
        if check_lmi(system, p, multipliers, inside)[0]:
            return Witness(inside, {"P": p, "L": multipliers})
    return Witness()


def rates_towards_start(system: LureSystem, best: float, steps: Iterable[float] | None = None) -> Iterable[float]:
    """Yield rates from slightly slower than ``best`` down to the start, for a supremum that is not attained."""
    start = start_rate(system)
    for step in steps if steps is not None else 10.0 ** np.arange(-15.0, 0.0, 1.25):
        rate = best + step * (start - best)
        if rate != best:
            yield rate
    yield start


_MAX_SHARE = 1.0 - 1e-12  # largest share of the span of rates that is tried


@dataclass
class _GainSlack:
    """Slack of the condition ``gain < 1`` as a function of the rate, scaled to (-1, 1]; ``brentq`` finds its zero.

    The rate is ``start + x * span``.

    Attributes:
        gain: gain at a rate.
        start: the rate at ``x = 0``.
        span: difference of the rates at ``x = 1`` and ``x = 0``.
        reached: the largest ``x`` evaluated so far at which the gain is below one.
    """

    gain: Callable[[float], float]
    start: float
    span: float
    reached: float = 0.0

    def rate(self, x: float) -> float:
        return self.start + x * self.span

    def __call__(self, x: float) -> float:
        value = self.gain(self.rate(x))
        if value < 1.0:
            self.reached = max(self.reached, x)
        return 1.0 - min(value, 1e9) if value <= 1.0 else 1.0 / min(value, 1e9) - 1.0


def best_rate(gain: Callable[[float], float], limit: float, discrete: bool, tol: float = 1e-9) -> float:
    """Return the fastest rate with a gain below one, or the fastest one found before the deadline.

    Args:
        gain: gain at a rate, below one at the start (0 or 1), larger at faster rates, infinite beyond ``limit``; it
            may raise ``TimeOverError``.
        limit: decay rate of the linear part.
        discrete: True for discrete time.
        tol: tolerance, as a share of the span of rates.

    Returns:
        The rate.

    Example:
        >>> round(best_rate(lambda r: 1.0 / (2.0 - r) if r < 2.0 else np.inf, 2.0, False), 6)
        1.0
    """
    start = 1.0 if discrete else 0.0
    slack = _GainSlack(gain, start, limit - start)
    try:
        if slack(_MAX_SHARE) > 0:  # the loop decays as fast as its linear part
            return slack.rate(_MAX_SHARE)
        accuracy: dict[str, Any] = {"xtol": tol, "rtol": 1e-12}
        root: Any = brentq(slack, 0.0, _MAX_SHARE, **accuracy, maxiter=80, disp=False)
    except TimeOverError:
        return slack.rate(slack.reached)
    return slack.rate(root)


def prove_capped(system: LureSystem, P: Array, multiplier: Multiplier, rate: float) -> Witness:
    """Return the witness of a solution of the shifted loop; for a channel with a single slope try all ``CAPS``."""
    for cap in CAPS if (system.alpha == system.beta).any() else CAPS[:1]:
        witness = prove_witness(system, P, shift_factor(system, rate) * multiplier(cap), rate)
        if witness:
            return witness
    return Witness()


def prove_first(
    system: LureSystem, rates: Iterable[float], solutions: Solutions, multiplier: Multiplier, deadline: Deadline
) -> Witness:
    """Return the witness of the first provable rate.

    Args:
        system: system of the witness.
        rates: rates to try, the best first.
        solutions: candidates ``P`` of a loop's inequality at a rate.
        multiplier: multipliers for the system's slopes as a function of the cap of ``nested_multiplier``.
        deadline: checked after each candidate.

    Returns:
        The witness.
    """
    for rate in rates:
        for P in solutions(rate):
            witness = prove_capped(system, P, multiplier, rate)
            if witness or deadline.over:
                return witness
        if deadline.over:
            break
    return Witness()


def riccati_solutions(loop: StateSpace, gain: float, deadline: Deadline) -> Solutions:
    """Return solutions of the bounded real Riccati equation of a loop as a function of the rate, with decreasing slack.

    Args:
        loop: loop before the shift; its gain below one proves the system stable.
        gain: gain of the loop at the start; sets the slack.
        deadline: checked before each equation.
    """
    max_slack = max(1.0 - gain * gain, 1e-12)

    def solutions(rate: float) -> Iterator[Array]:
        for share in (0.1, 1e-3, 1e-6, 1e-9):
            if deadline.over:
                return
            P = bounded_real(loop.shifted(rate), share * max_slack, deadline=deadline)
            if P is not None:
                yield P

    return solutions


def bisect_rate(
    system: LureSystem, limit: float, solutions: Solutions, multiplier: Multiplier, deadline: Deadline
) -> Witness:
    """Bisect the rate of large systems to a thousandth of the span, with solutions ``P`` and without gains.

    Args:
        system: system of the witness.
        limit: decay rate of the linear part, beyond which nothing can be proved.
        solutions: see ``prove_first``.
        multiplier: see ``prove_first``.
        deadline: checked before each equation.

    Returns:
        The best proved witness.
    """
    proved: list[Witness] = []

    def holds(rate: float) -> bool:
        witness = prove_first(system, [rate], solutions, multiplier, deadline)
        proved.extend([witness] if witness else [])
        return bool(witness)

    start = start_rate(system)
    if holds(start):
        bisect(holds, start, limit, 1e-3 * abs(limit - start), deadline)
    return proved[-1] if proved else Witness()
