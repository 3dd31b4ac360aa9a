"""The multiplier criterion: the strongest of the Lur'e criteria here, by a structured solver or by an SDP.

``P`` comes from one Riccati equation for given multipliers (``stability.solve.riccati``), multipliers from convex
minimisation over ``log Delta`` (``stability.solve.diagonal``). Every candidate is put to the rigorous check before it
counts, so that a finding that holds is a theorem already.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.criteria.linear import linear_criterion
from stability.criteria.witness import crawl, start_rate
from stability.errors import ConfigurationError
from stability.rules.multiplier_lmi import check_lmi
from stability.solve.between import condition_number
from stability.solve.deadline import STOPPED, Deadline, TimeLimit, TimeOverError
from stability.solve.diagonal import optimise_scaling
from stability.solve.multiplier import multiplier_lmi
from stability.solve.search import Search
from stability.systems import LureSystem

__all__ = ["Rate", "default_tolerance", "multiplier_criterion", "parse_rate", "rate_ceiling"]

Array = np.ndarray
Rate = str | float
_SMALL, _SDP_SIZE = 64, 24
_USEFUL = 1e8
"""The best rate is the best whose overshoot stays below the square root of this (or ten times that of mere
existence): in a reducible network the fastest rates are approached only by overshoots beyond every bound."""


def parse_rate(rate: Rate, system: Any) -> Rate:
    """Normalise the argument ``rate``: ``"any"``, ``"best"`` or a number that makes sense for the time base.

    The number that means no more than stability (0, or 1 per step) is ``"any"``.

    Args:
        rate: as the user gave it.
        system: any subject with ``is_discrete``.

    Returns:
        The word, or the number as a float.

    Raises:
        ConfigurationError: for anything else.
    """
    if rate in ("any", "best"):
        return rate
    if isinstance(rate, (int, float, np.floating)) and not isinstance(rate, bool):
        value = float(rate)
        if value == start_rate(system):  # no more than stability: the rate that is found lies strictly inside
            return "any"
        if system.is_discrete and 0.0 < value <= 1.0:
            return value
        if not system.is_discrete and 0.0 <= value < 1e30:
            return value
    wanted = "in (0, 1] per step" if system.is_discrete else ">= 0 per unit of time"
    raise ConfigurationError(f'rate must be "any", "best" or a number {wanted}, got {rate!r}')


def default_tolerance(system: LureSystem) -> float:
    """Relative tolerance of the best rate: ``1e-6`` up to 64 states, ``1e-3`` beyond."""
    return 1e-6 if system.states <= _SMALL else 1e-3


def rate_ceiling(
    system: LureSystem,
    samples: int = 8,
    seed: int = 0,
    *,
    deadline: Deadline | None = None,
    enough: float = np.inf,
) -> float:
    """No rate beyond this can be certified: the slowest decay over some constant slopes.

    Args:
        system: the system.
        samples: random vertices of the slopes to try, beside their ends and middle.
        seed: of those.
        deadline: asked before each eigenvalue problem but the first.
        enough: an abscissa (a radius) at which no more slopes need be tried.

    Returns:
        An upper bound of ``lambda`` (continuous) or a lower bound of ``rho`` (discrete).
    """
    rng = np.random.default_rng(seed)
    picks = [system.alpha, system.beta, 0.5 * (system.alpha + system.beta)]
    picks += [np.where(rng.random(system.channels) < 0.5, system.alpha, system.beta) for _ in range(samples)]
    worst = -np.inf
    for k in picks:
        if worst >= enough or (deadline is not None and worst > -np.inf and deadline.over):
            break  # fewer slopes: a ceiling all the same
        eigenvalues = np.linalg.eigvals(system.jacobian(k))
        worst = max(worst, float(np.abs(eigenvalues).max() if system.is_discrete else eigenvalues.real.max()))
    return worst if system.is_discrete else -worst


def _existence(search: Search) -> bool:
    """Whether there is a proof at all; one whose overshoot could not be bounded is made better at once."""
    found = _exists(search)
    if found and condition_number(search.witness["P"]) > _USEFUL:
        search.condition()
    return found


def _exists(search: Search) -> bool:
    start = crawl(search.system)
    if search.system.states >= 96 and search.attempt(start, 1e-2, np.float32):
        return True
    if search.feasible(start):
        return True
    if search.expired():
        return False
    gain = search.improve(start, target=0.0)
    return (
        gain < 1.05 and not search.expired() and (search.feasible(start, min(gain, 0.999999)) or search.feasible(start))
    )


def _best(search: Search, tol: float) -> None:
    """Find the rate where the best gain reaches one; keeps the fastest verified witness.

    The gain on the sampled axis steers (its logarithm is interpolated), Riccati attempts decide.
    """
    system = search.system
    low = search.rate
    if low is None:
        return
    high = rate_ceiling(system, deadline=search.deadline)
    if not np.isfinite(high) or (high <= low) != system.is_discrete:
        return
    search.most = max(_USEFUL, 100.0 * condition_number(search.witness["P"]))
    scale = max(abs(high), 1e-12) if not system.is_discrete else max(1.0 - high, 1e-12)
    first = low + (1.0 - 0.5 * tol) * (high - low)
    if (first > 0.0) and search.feasible(first):  # the ceiling is reached in the scalar and many small cases
        return
    log_low = log_high = None
    stuck = 0
    while abs(high - low) > tol * scale and not search.expired():
        part = 0.5
        if log_low is not None and log_high is not None and log_low < 0 < log_high and stuck < 2:
            part = float(np.clip(log_low / (log_low - log_high), 0.02, 0.98))
        rate = low + part * (high - low)
        before = abs(high - low)
        gain = search.improve(rate, target=0.9) if search.channels > 1 else None
        if gain is None or gain < 1.0:
            ok = search.feasible(rate, gain)
            if not ok and gain is not None:
                gain = search.resample(rate)
                ok = gain < 1.0 and search.feasible(rate, gain)
        else:
            ok = False
        log = None if gain is None else float(np.log(max(gain, 1e-300)))
        if ok:
            low, log_low = rate, log if log is None or log < 0 else None
        else:
            high, log_high = rate, log if log is not None and log > 0 else None
        stuck = 0 if abs(high - low) < 0.6 * before else stuck + 1
        if stuck > 2:
            stuck = 0


def multiplier_criterion(
    system: LureSystem,
    *,
    rate: Rate = "best",
    solver: str = "auto",
    tol: float | None = None,
    time_limit: TimeLimit = None,
) -> Finding:
    r"""The multiplier inequality with diagonal multipliers (slope-restricted Lur'e systems).

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
        time_limit: seconds after which the search stops with what it has.

    Returns:
        A finding whose witness ``{"P", "L"}`` is proved already at ``rate``; the margin is the certified rate
        (continuous) or ``1 - rho`` (discrete), or minus the shortfall of the gain where it fails.

    Raises:
        ConfigurationError: a bad rate, solver or tolerance.

    Source:
        Lipschitz Recurrent Neural Networks, theorem 1, generalised; the inequality is the KYP lemma with the
        multipliers of Lur'e, Yakubovich and Safonov for slope-restricted nonlinearities.

    Cost:
        ``O(n^3)`` a Riccati attempt (about 0.1 s at n = 256 on two cores); a few for existence, 10 to 40 for the
        best rate.

    Example:
        >>> finding = multiplier_criterion(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> finding.holds, round(finding.rate, 4)
        (True, 1.0)
    """
    rate = parse_rate(rate, system)
    if solver not in ("auto", "riccati", "cvxpy"):
        raise ConfigurationError(f"unknown solver {solver!r}; the known ones are auto, riccati, cvxpy")
    if tol is None:
        tol = default_tolerance(system)
    if not 0.0 < tol < 1.0:
        raise ConfigurationError(f"tol must lie in (0, 1), got {tol!r}")
    deadline = Deadline.after(time_limit).named("multiplier")
    with np.errstate(all="ignore"):
        search = Search(system, deadline)
        if solver != "cvxpy":
            try:
                _structured(search, rate, tol)
            except (ArithmeticError, np.linalg.LinAlgError, ValueError):  # LAPACK on extreme entries: no candidate
                search.witness = search.witness or {}
        if not search.witness and (solver == "cvxpy" or (solver == "auto" and system.states <= _SDP_SIZE)):
            _by_sdp(search, rate, tol)
        if rate != "any":
            search.condition()
        return _finding(search, rate)


def _structured(search: Search, rate: Rate, tol: float) -> None:
    if not search.channels:  # nothing but a linear system is left
        search.attempts += 1
        exact = linear_criterion(search.system, rate=rate)
        if exact.witness:
            search.witness, search.rate = dict(exact.witness), exact.rate
            return
    if isinstance(rate, float):
        if search.feasible(rate):
            return
        if search.channels > 1 and not search.expired():
            gain = search.improve(rate, target=0.0)
            if gain < 1.05 and not search.expired():
                search.feasible(rate, min(gain, 0.999999))
        return
    if _existence(search) and rate == "best":
        _best(search, tol)


def _by_sdp(search: Search, rate: Rate, tol: float) -> None:
    """The same question put to an SDP solver; each answer is re-proved."""
    system = search.system

    def ask(value: float) -> bool:
        if search.expired():
            return False
        search.attempts += 1
        result = multiplier_lmi(system, value, time_limit=search.deadline)
        if result.P is None or result.L is None:
            return False
        p = np.ascontiguousarray(0.5 * (result.P + result.P.T))
        multipliers = np.ascontiguousarray(np.maximum(result.L, 0.0))
        if not check_lmi(system, p, multipliers, value)[0]:
            return False
        search.witness, search.rate = {"P": p, "L": multipliers}, value
        return True

    start = rate if isinstance(rate, float) else crawl(system)
    if not ask(start) or rate != "best":
        return
    low, high = start, rate_ceiling(system, deadline=search.deadline)
    scale = max(abs(high), 1e-12) if not system.is_discrete else max(1.0 - high, 1e-12)
    while abs(high - low) > max(tol, 1e-4) * scale and not search.expired():
        middle = 0.5 * (low + high)
        low, high = (middle, high) if ask(middle) else (low, middle)


def _finding(search: Search, rate: Rate) -> Finding:
    effort = f"{search.attempts} attempts"
    cut = search.deadline.cut
    if search.witness and search.rate is not None:
        margin = 1.0 - search.rate if search.system.is_discrete else search.rate
        what = f"rho = {search.rate:.6g} per step" if search.system.is_discrete else f"lambda = {search.rate:.6g}"
        words = f"holds at {what} ({effort})" + (f"; {STOPPED}" if cut and rate != "any" else "")
        return Finding("multiplier", True, margin, words, search.rate, search.witness)
    stopped = "the time limit came first" if cut else "no multipliers and P were found"
    wanted = "" if rate in ("any", "best") else f" at rate {rate:g}"
    return Finding("multiplier", False, _shortfall(search), f"{stopped}{wanted} ({effort})")


def _shortfall(search: Search) -> float | None:
    """How far it is from holding: minus the excess of the scaled gain over one on the samples, or, where the centre
    of the slopes is unstable already, minus the excess of its abscissa (of its radius over one).
    """
    if not np.isfinite(search.loop.A).all():
        return None
    values = search.samples.eigenvalues if search.samples is not None else np.linalg.eigvals(search.loop.A)
    excess = float(np.abs(values).max() - 1.0 if search.system.is_discrete else np.real(values).max())
    if excess >= 0.0:
        return -excess
    if search.samples is None or not search.channels or search.deadline.over:
        return None
    try:
        samples = search.samples.at(1.0 if search.system.is_discrete else 0.0, search.deadline)
    except TimeOverError:
        return None
    gain = optimise_scaling(samples, search.x, deadline=search.deadline)[1]
    return min(1.0 - gain, 0.0) if np.isfinite(gain) else None
