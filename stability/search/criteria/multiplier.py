"""Multiplier criterion, the strongest for Lur'e systems, by a structured solver or by an SDP.

``P`` comes from one Riccati equation for given multipliers (``riccati``), multipliers from convex
minimization over ``log Delta`` (``diagonal_multipliers``). Every candidate is put to the rigorous check before it
counts, so that a finding that holds is a theorem already.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.certificate import Finding
from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice
from stability.kernel.systems.lure import LureSystem
from stability.search.criteria.linear import linear_criterion
from stability.search.solvers.deadline import STOPPED, Deadline, TimeLimit, TimeOverError
from stability.search.solvers.diagonal_multipliers import optimise_scaling
from stability.search.solvers.loop_transformation import as_lure
from stability.search.solvers.multiplier_program import multiplier_lmi
from stability.search.solvers.overshoot import condition_number
from stability.search.solvers.peak_exchange import Exchange
from stability.search.solvers.rates import Rate, bisect, margin_of, parse_rate, slow_rate, spectral_rate, start_rate
from stability.search.solvers.scaling import balanced_states, power_of_two
from stability.search.solvers.witness_search import WitnessSearch
from stability.threads import threads_for

Array = np.ndarray
_SMALL, _SDP_SIZE, _PEAKS = 64, 24, 3
_USEFUL = 1e8
"""Squared overshoot limit of the best rate (or ten times that of mere existence): in a reducible network the fastest
rates need unbounded overshoots.
"""


def default_tolerance(system: LureSystem) -> float:
    """Return the relative tolerance of the best rate: ``1e-6`` up to 64 states, ``1e-3`` beyond."""
    return 1e-6 if system.states <= _SMALL else 1e-3


def rate_ceiling(system: LureSystem, *, deadline: Deadline | None = None, enough: float = np.inf) -> float:
    """Bound the rates that can be certified by the slowest decay over some constant slopes.

    Args:
        system: the system.
        deadline: checked before each eigenvalue problem but the first.
        enough: an abscissa (a radius) at which no more slopes need be tried.

    Returns:
        An upper bound of ``lambda`` (continuous) or a lower bound of ``rho`` (discrete).
    """
    rng = np.random.default_rng(0)
    picks = [system.alpha, system.beta, 0.5 * (system.alpha + system.beta)]
    picks += [np.where(rng.random(system.channels) < 0.5, system.alpha, system.beta) for _ in range(8)]
    sign, worst = 1.0 if system.is_discrete else -1.0, -np.inf
    for k in picks:
        if worst >= enough or (deadline is not None and worst > -np.inf and deadline.over):
            break  # fewer slopes: a ceiling all the same
        eigenvalues = np.linalg.eigvals(system.jacobian(k))
        worst = max(worst, sign * spectral_rate(eigenvalues, system.is_discrete))
    return sign * worst


def _find_proof(search: WitnessSearch) -> bool:
    """Search for a proof at any rate, and improve one whose overshoot is not bounded."""
    start = slow_rate(search.system)
    rough = search.system.states >= 96 and search.attempt(start, 1e-2, np.float32)
    proved = rough or search.feasible(start)
    if not proved and (search.deadline.over or not _try_improved_multipliers(search, start, None)):
        return False
    if condition_number(search.witness["P"]) > _USEFUL:
        search.condition()
    return True


def _try_improved_multipliers(search: WitnessSearch, rate: float, *more: float | None) -> bool:
    """Try a rate with its best multipliers, judged by their gain on the samples, and with improved ones."""
    gain = search.improve(rate, target=0.0)
    if gain >= 1.05 or search.deadline.over:
        return False
    return any(search.feasible(rate, g) for g in (min(gain, 0.999999), *more))


_ROUNDED = 1e-4
"""Relative distance of a proof from the rate of a peak exchange below which the search ends."""


@dataclass
class _Bracket:
    """Bracket of the best rate: a proved and an unproved one, with estimates of the logarithmic gain there.

    The next rate is where the line through both logarithms crosses zero (regula falsi); after two steps that hardly
    narrowed the bracket one in its middle.
    """

    low: float
    high: float
    log_low: float | None = None
    log_high: float | None = None
    slow: int = 0

    @property
    def width(self) -> float:
        return abs(self.high - self.low)

    def next(self) -> float:
        part = 0.5
        if self.log_low is not None and self.log_high is not None and self.slow < 2:
            part = float(np.clip(self.log_low / (self.log_low - self.log_high), 0.02, 0.98))
        return self.low + part * (self.high - self.low)

    def narrow(self, rate: float, proved: bool, gain: float | None) -> None:
        before = self.width
        log = None if gain is None else float(np.log(max(gain, 1e-300)))
        if proved:
            self.low, self.log_low = rate, log if log is not None and log < 0 else None
        else:
            self.high, self.log_high = rate, log if log is not None and log > 0 else None
        self.slow = 0 if self.width < 0.6 * before or self.slow == 2 else self.slow + 1


def _search_best_rate(search: WitnessSearch, tol: float) -> None:
    """Find the rate where the best gain reaches one; keep the fastest verified witness.

    The gain on the sampled axis steers, Riccati attempts decide.
    """
    system = search.system
    low = search.rate
    if low is None:
        return
    search.most = max(_USEFUL, 100.0 * condition_number(search.witness["P"]))
    before = search.x
    try:
        if _search_by_peak_exchange(search, tol):
            return
    except (ArithmeticError, np.linalg.LinAlgError, ValueError):  # extreme entries
        search.x = before
    high, low = rate_ceiling(system, deadline=search.deadline), search.rate or low
    if not np.isfinite(high) or (high <= low) != system.is_discrete:
        return
    first = low + (1.0 - 0.5 * tol) * (high - low)
    if first > 0.0 and search.feasible(first):  # the ceiling is reached in the scalar and many small cases
        return
    width = tol * _rate_scale(high, system)
    bracket = _Bracket(float(search.rate or low), high)
    while bracket.width > width and not search.deadline.over:
        rate = bracket.next()
        gain = search.improve(rate, target=0.9) if search.channels > 1 else None
        proved = (gain is None or gain < 1.0) and search.feasible(rate, gain)
        bracket.narrow(rate, proved, gain)


def _make_peak_exchange(search: WitnessSearch) -> tuple[Exchange, float] | None:
    """Return an exchange of peaks in balanced coordinates and its unit of time, if it is usable."""
    loop, time = balanced_states(search.loop), 1.0
    if not loop.is_discrete:
        time = power_of_two(float(np.abs(loop.A).max(initial=0.0)))
        loop = loop.rescaled(np.ones(loop.states), time)
    if search.channels < 2 or not search.deadline.affords(100.0 * loop.states**3) or not np.isfinite(loop.A).all():
        return None
    exchange = Exchange(loop, search.deadline, search.x - search.x.mean())
    return (exchange, time) if exchange.usable else None


def _search_by_peak_exchange(search: WitnessSearch, tol: float) -> bool:
    """Search the best rate by an exchange of peaks; return True if it is proved as near as rounding allows."""
    search_and_rate = _make_peak_exchange(search)
    if search_and_rate is None:
        return False
    (exchange, time), before = search_and_rate, search.x
    share = exchange.run(tol)

    def proved(reduction: float) -> bool:
        search.x, at = exchange.x, share * (1.0 - reduction * tol)
        if search.deadline.over or at <= 0.0:
            return False
        rate, gain = exchange.at(at) * time, exchange.gain(at)
        return gain < 1.0 and search.faster(rate) and search.feasible(rate, gain)

    for _ in range(_PEAKS):
        if proved(0.5) or proved(1.0):
            return True
        peak = search.peak(exchange.at(share * (1.0 - 0.5 * tol)) * time, 0.05 * tol)
        if peak is None or peak.norm < 1.0:
            break
        share = exchange.run_on(peak.omega / time, tol, share)
    steps = [8.0**k for k in range(1, 6)]
    best = next((k for k, reduction in enumerate(steps) if proved(reduction)), None)
    if best is None:
        search.x = before
        return False
    high, low = steps[best], steps[best] / 8.0  # where rounding asked for more room than the tolerance gives: how much
    for _ in range(4):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if proved(middle) else (middle, high)
    return high * tol <= _ROUNDED  # else the other search goes on from there


def _rate_scale(ceiling: float, system: LureSystem) -> float:
    """Return the decay that a tolerance of the rate refers to."""
    return max(margin_of(ceiling, system), 1e-12)


def multiplier_criterion(
    system: LureSystem,
    *,
    rate: Rate = "best",
    solver: str = "auto",
    tol: float | None = None,
    time_limit: TimeLimit = None,
) -> Finding:
    r"""Evaluate the multiplier inequality with diagonal multipliers (slope-restricted Lur'e systems).

    .. math:: \begin{bmatrix} A^T P + P A + 2\lambda P & P B \\ B^T P & 0 \end{bmatrix}
              + \begin{bmatrix} C & D \\ 0 & I \end{bmatrix}^T
              \begin{bmatrix} -2\alpha\beta L & (\alpha+\beta) L \\ (\alpha+\beta) L & -2 L \end{bmatrix}
              \begin{bmatrix} C & D \\ 0 & I \end{bmatrix} < 0

    Args:
        system: a Lur'e system, continuous or discrete.
        rate: ``"any"`` (existence only, the fastest), ``"best"``, or a number: at least this rate.
        solver: ``"riccati"`` (structured, any size), ``"cvxpy"`` (SDP, small sizes), or ``"auto"``: the first, then
            the second where it failed and the size allows.
        tol: relative tolerance of the best rate; ``1e-6`` up to 64 states and ``1e-3`` beyond by default.
        time_limit: seconds after which the search returns its best result.

    Returns:
        A finding whose witness ``{"P", "L"}`` is proved already at ``rate``; the margin is the certified rate
        (continuous) or ``1 - rho`` (discrete), or minus the shortfall of the gain where it fails.

    Raises:
        ConfigurationError: a bad rate, solver or tolerance.

    Source:
        Lipschitz Recurrent Neural Networks, theorem 1, generalized; the inequality is the KYP lemma with the
        multipliers of Lur'e, Yakubovich and Safonov for slope-restricted nonlinearities.

    Cost:
        ``O(n^3)`` a Riccati attempt (about 0.1 s at n = 256 on two cores); a few for existence, 10 to 40 for the
        best rate.

    Example:
        >>> finding = multiplier_criterion(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> finding.holds, round(finding.rate, 4)
        (True, 1.0)
    """
    rate = parse_rate(rate, as_lure(system))
    as_choice("solver", solver, ("auto", "riccati", "cvxpy"))
    if tol is None:
        tol = default_tolerance(system)
    if not 0.0 < tol < 1.0:
        raise ConfigurationError(f"tol must lie in (0, 1), got {tol!r}")
    deadline = Deadline.from_limit(time_limit).named("multiplier")
    with threads_for(system.states), np.errstate(all="ignore"):
        search = WitnessSearch(system, deadline)
        if solver != "cvxpy":
            try:
                _search_by_riccati(search, rate, tol)
            except (ArithmeticError, np.linalg.LinAlgError, ValueError):  # LAPACK on extreme entries: no candidate
                search.witness = search.witness or {}
        if not search.witness and (solver == "cvxpy" or (solver == "auto" and system.states <= _SDP_SIZE)):
            _search_by_program(search, rate, tol)
        if rate != "any":
            search.condition()
        return _finding(search, rate)


def _search_by_riccati(search: WitnessSearch, rate: Rate, tol: float) -> None:
    if not search.channels:  # nothing but a linear system is left
        search.attempts += 1
        exact = linear_criterion(search.system, rate=rate)
        if exact.witness:
            search.witness, search.rate = dict(exact.witness), exact.rate
            return
    if isinstance(rate, float):
        if not search.feasible(rate) and search.channels > 1 and not search.deadline.over:
            _try_improved_multipliers(search, rate)
        return
    if _find_proof(search) and rate == "best":
        _search_best_rate(search, tol)


def _search_by_program(search: WitnessSearch, rate: Rate, tol: float) -> None:
    """Search by a semidefinite program and prove its solutions."""
    system = search.system

    def proved(value: float) -> bool:
        if search.deadline.over:
            return False
        search.attempts += 1
        result = multiplier_lmi(system, value, time_limit=search.deadline)
        if result.P is None or result.L is None:
            return False
        search.witness, search.rate = {"P": result.P, "L": result.L}, value
        return True

    start = rate if isinstance(rate, float) else slow_rate(system)
    if proved(start) and rate == "best":
        ceiling = rate_ceiling(system, deadline=search.deadline)
        bisect(proved, start, ceiling, max(tol, 1e-4) * _rate_scale(ceiling, system), search.deadline)


def _finding(search: WitnessSearch, rate: Rate) -> Finding:
    effort = f"{search.attempts} attempts"
    cut = search.deadline.cut
    if search.witness and search.rate is not None:
        margin = margin_of(search.rate, search.system)
        what = f"rho = {search.rate:.6g} per step" if search.system.is_discrete else f"lambda = {search.rate:.6g}"
        words = f"holds at {what} ({effort})" + (f"; {STOPPED}" if cut and rate != "any" else "")
        return Finding("multiplier", True, margin, words, search.rate, search.witness)
    outcome = "the time limit was reached" if cut else "no matrix P and multipliers were found"
    target = "" if rate in ("any", "best") else f" at rate {rate:g}"
    return Finding("multiplier", False, _shortfall(search), f"{outcome}{target} ({effort})")


def _shortfall(search: WitnessSearch) -> float | None:
    """Return the negative distance of a failed criterion from holding, or ``None`` if unknown.

    It is minus the excess of the scaled gain over one on the samples, or, where the center of the slopes is unstable,
    minus the excess of its spectral abscissa (radius).
    """
    if not np.isfinite(search.loop.A).all():
        return None
    values = search.samples.eigenvalues if search.samples is not None else np.linalg.eigvals(search.loop.A)
    margin = margin_of(spectral_rate(values, search.system.is_discrete), search.system)
    if margin <= 0.0:
        return margin
    if search.samples is None or not search.channels or search.deadline.over:
        return None
    try:
        samples = search.samples.at(start_rate(search.system), search.deadline)
    except TimeOverError:
        return None
    gain = optimise_scaling(samples, search.x, deadline=search.deadline)[1]
    return min(1.0 - gain, 0.0) if np.isfinite(gain) else None
