r"""Small gain theorem: the gain of the linear part is below ``1/M``.

With :math:`|\phi_i(s) - \phi_i(t)| \le M |s - t|` and ``A`` Hurwitz (Schur),
:math:`\|C (s I - A)^{-1} B + D\|_\infty < 1/M` proves incremental exponential stability; equivalently
``Z(s) = [I + M G][I - M G]^{-1}`` is strictly positive real. The H-infinity norm by level sets decides it.

Source: H. K. Khalil, Nonlinear Systems, 3rd ed., section 7.1; bounded real lemma: B. D. O. Anderson,
S. Vongpanitlerd, Network Analysis and Synthesis, 1973.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stability.arguments import as_positive
from stability.certificate import Finding
from stability.errors import ConfigurationError
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.state_space import LureMatrices
from stability.search.criteria.witness import (
    Multiplier,
    Witness,
    best_rate,
    bisect_rate,
    guarded_criterion,
    nested_multiplier,
    prove_first,
    rates_towards_start,
    riccati_solutions,
)
from stability.search.solvers.deadline import STOPPED, TOO_LATE, Deadline, TimeLimit, TimeOverError
from stability.search.solvers.hinf import hinf_peak
from stability.search.solvers.inequality_slack import multiplier_slack
from stability.search.solvers.loop_transformation import as_lure
from stability.search.solvers.rates import Rate, margin_of, parse_rate, spectral_rate, start_rate
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
_EXACT_STATES = 64  # most states for an exact search of the best rate


@guarded_criterion("small_gain")
def circle_criterion(
    system: LureSystem, *, M: float | None = None, rate: Rate = "best", time_limit: TimeLimit = None
) -> Finding:
    r"""Decide the small gain theorem by the H-infinity norm, which is the circle criterion of the sector ``[-M, M]``.

    Args:
        system: continuous or discrete, any ``B``, ``C``, ``D``.
        M: Lipschitz constant of the nonlinearities; by default ``max(|alpha_i|, |beta_i|)`` for each channel.
        rate: ``"best"`` searches for the fastest rate at which the shifted system meets the criterion, ``"any"`` tests
            stability only, a number tests this rate.
        time_limit: time limit in seconds, after which the best rate so far is returned.

    Returns:
        A finding with margin ``1/M - ||G||`` (for an unstable linear part: minus its distance from
        stability) and a witness ``{"P", "L"}`` of the multiplier inequality in the system's own slopes,
        proved at ``rate``.

    Raises:
        ConfigurationError: a bad rate, or an M below the largest slope.

    Example:
        >>> finding = circle_criterion(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> finding.holds, round(finding.margin, 9), round(finding.rate, 6)
        (True, 0.5, 1.0)
    """
    return _gain_test(system, M, Deadline.from_limit(time_limit).named("small_gain")).decide(rate)


@guarded_criterion("small_gain")
def circle_margin(system: LureSystem, *, time_limit: TimeLimit = None) -> Finding:
    """Return the margin of the small gain theorem alone, by one norm, without rate and witness.

    Args:
        system: continuous or discrete, any ``B``, ``C``, ``D``.
        time_limit: time limit in seconds.

    Returns:
        The finding of ``circle_criterion`` without a witness.

    Example:
        >>> finding = circle_margin(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> finding.holds, round(finding.margin, 9), finding.rate
        (True, 0.5, None)
    """
    return _gain_test(system, None, Deadline.from_limit(time_limit).named("small_gain")).evaluated()[0]


def _gain_test(system: LureSystem, M: float | None, deadline: Deadline) -> GainTest:
    loop, multiplier, unit = centred_loop(as_lure(system), M)
    words = f"H-infinity norm of the linear part {{:.6g}}, to be below {unit:.6g}"
    return GainTest("small_gain", system, loop, multiplier, words, unit, deadline)


def centred_loop(system: LureSystem, M: float | None = None) -> tuple[StateSpace, Multiplier, float]:
    """Return the loop whose gain below one is the small gain theorem.

    Args:
        system: continuous or discrete.
        M: see ``circle_criterion``.

    Returns:
        The loop, its outputs multiplied by ``M``; the multipliers in the system's slopes that belong to a ``P`` of its
        bounded real lemma; and the unit of the margin, ``1/M`` with the largest ``M``.

    Raises:
        ConfigurationError: an M below the largest slope.

    Example:
        >>> loop, multiplier, unit = centred_loop(LureSystem.recurrent([[-2.0]], [[1.0]]), M=2.0)
        >>> loop.C.item(), unit
        (2.0, 0.5)
    """
    reach = np.maximum(np.abs(system.alpha), np.abs(system.beta))
    if M is not None:
        M = as_positive("M", M)
        if reach.size and reach.max() > M:
            raise ConfigurationError(f"M must be at least the largest slope {reach.max():g}, got {M:g}")
        reach = np.full(system.channels, M)
    loop = StateSpace(system.A, system.B, reach[:, None] * system.C, reach[:, None] * system.D, system.is_discrete)

    def multiplier(cap: float) -> Array:
        return 0.5 * nested_multiplier((-reach, reach), (system.alpha, system.beta), cap)

    return loop, multiplier, 1.0 / (float(reach.max(initial=0.0)) or 1.0)


@dataclass(frozen=True)
class GainTest:
    """Criterion of the form ``||loop||_inf < 1``.

    Attributes:
        name: name of the finding.
        system: the Lur'e system.
        loop: loop whose gain must be below one.
        multiplier: maps the cap of ``nested_multiplier`` to multipliers in the system's slopes.
        words: text of the finding, in which ``{}`` is replaced by the gain in the margin's unit.
        unit: the margin is ``unit * (1 - gain)``.
        deadline: checked between factorizations; after it the best rate so far is returned.
    """

    name: str
    system: LureSystem
    loop: StateSpace
    multiplier: Multiplier
    words: str
    unit: float
    deadline: Deadline

    def gain(self, rate: float) -> float:
        """Return the loop's gain at a rate.

        Raises:
            TimeOverError: the deadline has passed.
        """
        return hinf_peak(self.loop.shifted(rate), deadline=self.deadline).norm

    def decide(self, rate: Rate) -> Finding:
        """Return the finding: gain, best rate, witness.

        Args:
            rate: ``best``, ``any`` or a number.

        Returns:
            The finding.
        """
        rate = parse_rate(rate, self.system)
        finding, level, limit = self.evaluated()
        if not finding.holds:
            return finding
        try:
            if isinstance(rate, float) and not self.gain(rate) < 1.0:
                return replace(finding, holds=False, detail=f"{finding.detail}, but not at rate {rate:g}")
        except TimeOverError:
            return replace(finding, holds=False, detail=f"{finding.detail}; {TOO_LATE}")
        witness = self._proved(rate, level, limit)
        note = "" if witness else "; no proof was found at this rate"
        if rate != "any" and self.deadline.cut:
            note += f"; {STOPPED}"
        return replace(finding, detail=finding.detail + note, rate=witness.rate, witness=witness.data)

    def evaluated(self) -> tuple[Finding, float, float]:
        """Return the margin without a rate and witness, the gain, and the decay of the linear part."""
        system = self.system
        limit = spectral_rate(np.linalg.eigvals(self.loop.A), system.is_discrete)
        room = margin_of(limit, system)
        if not room > 0:
            words = f"A is not {'Schur' if system.is_discrete else 'Hurwitz'}"
            return Finding(self.name, False, room, words), np.inf, limit
        try:
            level = self.gain(start_rate(system))
        except TimeOverError:
            return Finding(self.name, False, None, TOO_LATE), np.inf, limit
        margin = self.unit * (1.0 - level) if np.isfinite(level) else None
        return Finding(self.name, level < 1.0, margin, self.words.format(self.unit * level)), level, limit

    def _proved(self, rate: Rate, level: float, limit: float) -> Witness:
        """Return a witness of the rate, or of the best one, from the initial gain and the supremum of all rates."""
        system, solutions = self.system, riccati_solutions(self.loop, level, self.deadline)
        if rate == "best" and system.states > _EXACT_STATES:
            return bisect_rate(system, limit, solutions, self.multiplier, self.deadline)
        if rate == "best":
            best = best_rate(self.gain, limit, system.is_discrete)
            targets = rates_towards_start(system, best, (1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.5))
        else:
            targets = [start_rate(system) if isinstance(rate, str) else rate]
        return prove_first(system, targets, solutions, self.multiplier, self.deadline)


def bounded_real_slack(system: StateSpace, P: Array) -> float:
    """Return the slack of ``P > 0`` and of the bounded real lemma for a gain below one.

    It is the multiplier inequality for slopes in [-1, 1] with all multipliers 1/2.

    Args:
        system: system whose gain must be below one.
        P: ``(n, n)`` symmetric.

    Returns:
        The slack, positive only if both hold beyond rounding errors; see ``multiplier_slack``.
    """
    p, m = system.D.shape
    k = max(p, m)
    B, C, D = np.pad(system.B, ((0, 0), (0, k - m))), np.pad(system.C, ((0, k - p), (0, 0))), np.zeros((k, k))
    D[:p, :m] = system.D
    square = LureMatrices(system.A, B, C, D, system.is_discrete, -np.ones(k), np.ones(k))
    return multiplier_slack(square, P, np.full(k, 0.5), start_rate(system))
