"""Gain with one quadratic storage function for all times.

Multipliers and storage are optimized together: for the whole output by the exchange of peaks (``peak_exchange``), for
the output at one time through the Riccati equation (``stationary_storage``). If neither gives a proof, the multipliers
of the stability proof are used, times one number that is optimized.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stability.kernel.systems.channels import close_loop
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.gain_lmi import check_gain, gain_matrix
from stability.search.criteria.multiplier import multiplier_criterion, rate_ceiling
from stability.search.gains.peak_exchange import GainExchange
from stability.search.gains.stationary_storage import StationarySearch
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.hinf import hinf_norm
from stability.search.solvers.inequality_slack import least_gain
from stability.search.solvers.loop_transformation import centered_loop
from stability.search.solvers.rates import bisect, minimize_on_grid, shift_factor, start_rate
from stability.search.solvers.riccati import bounded_real
from stability.search.solvers.scaling import balanced_coordinates, even_channel_scales
from stability.search.solvers.semidefinite import pose_gain, solver_order
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
PROGRAM_STATES = 16  # most states for Clarabel
_SMALL = 32
"""Most states for a search with the tolerance of the proof."""
_FAR = 0.01
"""Excess of the loop's gain over one above which the search gives up."""
_NONE = 60.0
"""Value in place of the logarithm of an unproved gain."""
Found = tuple[float, Array, Array]
"""Gain with the ``P`` and ``L`` that prove it."""


@dataclass(frozen=True, eq=False)
class StorageAttempt:
    """Dissipation inequality of one mode and growth for a system with input and output."""

    system: LureSystem
    E: Array
    F: Array
    H: Array
    mode: str
    growth: float
    deadline: Deadline

    @functools.cached_property
    def start(self) -> Array | None:
        """Return the initial ``Delta``; ``None`` if the search for a stability proof ended far from one.

        Every proof of a gain contains a proof of stability at the same growth.
        """
        return stable_multipliers(self.system, self.growth, self.deadline)

    def polish(self, P: Array, L: Array) -> Found | None:
        """Return the smallest gain that ``(P, L)`` proves, with the slack of a strict proof."""
        if not (np.isfinite(P).all() and np.isfinite(L).all()):
            return None
        P, L = 0.5 * (P + P.T), np.maximum(L, 0.0)
        if self.mode == "terminal":  # scaled to P > H^T H
            try:
                half = np.linalg.solve(np.linalg.cholesky(P), self.H.T)
            except np.linalg.LinAlgError:
                return None
            scale = float(np.linalg.norm(half, 2)) ** 2 * (1.0 + 1e-9)
            if not scale > 0:
                return None
            P, L = scale * P, scale * L
            P = 0.5 * (P + P.T)
        least = self.least(P, L, self.H if self.mode == "running" else None)
        if not math.isfinite(least):
            return None
        for step in (1e-10, 1e-8, 1e-6, 1e-4, 1e-2):
            gain = least * (1.0 + step) + 1e-12
            data = (P, L, self.E, self.F, self.H)
            if check_gain(self.system, *data, gain=gain, growth=self.growth, mode=self.mode)[0]:
                return gain, P, L
        return None

    def least(self, P: Array, L: Array, H: Array | None) -> float:
        """Return the smallest gain for which the inequality holds, up to rounding."""
        with np.errstate(all="ignore"):
            return least_gain(gain_matrix(self.system, P, L, self.E, self.F, H, self.growth), self.F.shape[1])

    def by_riccati(self, pairs: bool = False) -> Found | None:
        """Return the smallest gain by structured searches; ``pairs`` (mode ``terminal``): see ``GainObjective``."""
        delta = self.start
        if delta is None:
            return None
        candidates = self._at_the_end(delta, pairs) if self.mode == "terminal" else self._over_time(delta)
        proved: Found | None = None
        try:
            for P, L in candidates:
                gain = self.polish(P, L)
                proved = gain if proved is None or (gain is not None and gain[0] < proved[0]) else proved
                if proved is not None and self.mode == "running":  # later candidates only have more slack
                    break
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):  # LAPACK on extreme entries: no candidate
            pass
        return proved

    def by_size(self) -> Found | None:
        """Return the smallest gain with the multipliers of the stability proof times an optimized number."""
        return None if self.start is None else AttachedLoop(self, self.start).best_of_all()

    def _at_the_end(self, delta: Array, pairs: bool) -> Iterator[tuple[Array, Array]]:
        return StationarySearch(self.system, (self.E, self.F, self.H), self.growth, pairs, self.deadline).best(delta)

    def _over_time(self, delta: Array) -> Iterator[tuple[Array, Array]]:
        loop, tol = AttachedLoop(self, np.ones(len(delta))).whole(), 1e-5 if self.system.states <= _SMALL else 1e-3
        exchange = GainExchange(loop, delta, self.deadline) if len(delta) else None
        if exchange is None:
            least = hinf_norm(*loop.matrices, dt=1.0 if loop.is_discrete else None), delta
        else:
            least = exchange.least(tol) if exchange.usable else None
        if least is None or not math.isfinite(least[0]):
            return
        attached = AttachedLoop(self, least[1])
        for step in (tol, 10.0 * tol, 0.01, 0.03, 0.1):
            P = attached.solution(1.0, least[0] * (1.0 + step))
            if P is not None:
                yield P, attached.multipliers(1.0)

    def by_program(self) -> Found | None:
        """Return the smallest gain by a semidefinite program in balanced coordinates."""
        at, running = balanced_coordinates(self.system, self.growth), self.mode == "running"
        F = np.linalg.solve(at.X, self.F) / at.time
        E, H = at.v[:, None] * self.E, self.H @ at.X
        into = float(max(np.abs(F).max(initial=0.0), np.abs(E).max(initial=0.0))) or 1.0
        out = float(np.abs(H).max(initial=0.0)) or 1.0
        solver = "CLARABEL" if self.system.states <= PROGRAM_STATES else gain_solvers(self.system, F)[0]
        for margin in (1e-8, 1e-6, 1e-4) if solver == "CLARABEL" else (1e-3, 1e-2):
            if self.deadline.over:
                break
            _, P, L = pose_gain(at, E / into, F / into, H / out, running, solver, self.deadline, margin)
            if P is None or L is None:
                continue
            p, l = at.back(P, L)
            unit = out * out / (at.time if running else 1.0)
            gain = self.polish(unit * p, unit * l)
            if gain is not None:
                return gain
        return None


class AttachedLoop:
    r"""Centered loop, shifted by the growth and scaled by ``delta``, with input and output attached.

    For one number s its bounded real lemma proves the gain g with the multipliers :math:`2 L = s^2 \Delta^2`:

    .. math:: \begin{bmatrix} B/s & F_c/g \end{bmatrix}, \quad \begin{bmatrix} s C \\ H \end{bmatrix}, \quad
              \begin{bmatrix} D & s E_c/g \\ 0 & 0 \end{bmatrix}, \qquad
              E_c = \Delta R (I - D K)^{-1} E, \quad F_c = F + B K (I - D K)^{-1} E

    with the center slopes K and their radii R. In discrete time the shift divides the step by rho, and (P, L) by its
    square.
    """

    def __init__(self, attempt: StorageAttempt, delta: Array) -> None:
        system, self.attempt, self.delta = attempt.system, attempt, delta
        middle, radius = 0.5 * (system.alpha + system.beta), 0.5 * (system.beta - system.alpha)
        output = close_loop(system.D, middle, attempt.E)
        self.unshift = shift_factor(system, attempt.growth)
        self.loop = centered_loop(system).shifted(attempt.growth).scaled(delta)
        self.into = (attempt.F + (system.B * middle) @ output) / math.sqrt(self.unshift)
        self.direct = (delta * radius)[:, None] * output

    def whole(self) -> StateSpace:
        """Return the loop with input and output attached, channels first."""
        B, C = np.hstack([self.loop.B, self.into]), np.vstack([self.loop.C, self.attempt.H])
        D = np.block([[self.loop.D, self.direct], [np.zeros((len(self.attempt.H), B.shape[1]))]])
        return StateSpace(self.loop.A, B, C, D, self.loop.is_discrete)

    def multipliers(self, s: float) -> Array:
        """Return the multipliers ``L`` of a number s, in the system's own step."""
        return 0.5 * self.unshift * s * s * self.delta * self.delta

    def solution(self, s: float, gain: float) -> Array | None:
        """Return the storage P that proves a gain with a number s, in the system's own step, or ``None``."""
        attempt, loop = self.attempt, self.loop
        if attempt.deadline.over:
            return None
        B = np.hstack([loop.B / s, self.into / gain])
        C = np.vstack([s * loop.C, attempt.H])
        D = np.block([[loop.D, s * self.direct / gain], [np.zeros((len(attempt.H), B.shape[1]))]])
        P = bounded_real(StateSpace(loop.A, B, C, D, loop.is_discrete), 1e-7, deadline=attempt.deadline)
        if P is None:
            return None
        P, unit = self.unshift * P, math.sqrt(self.unshift)
        # if no P proves this gain, the doubling may still converge, to a P that proves nothing
        return P if attempt.least(P, self.multipliers(s), unit * attempt.H) <= 1.01 * unit * gain else None

    def best(self, log_s: float) -> Found | None:
        """Return the smallest gain that is proved with the multipliers of one s."""
        attempt, s, ten = self.attempt, math.exp(log_s), math.log(10.0)
        solution = functools.cache(lambda log_gain: self.solution(s, math.exp(log_gain)))
        start = math.log(1e-3 * (float(np.linalg.norm(self.into)) + float(np.linalg.norm(self.direct)) + 1e-300))
        first = next((u for u in (start + k * ten for k in range(12)) if solution(u) is not None), None)
        if first is None:
            return None
        last = bisect(lambda log_gain: solution(log_gain) is not None, first, first - ten, math.log(1.01))
        more = (1.0, 1.5, 4.0, 16.0) if attempt.mode == "terminal" else (1.0,)  # smaller P, same multipliers
        solutions = [P for P in (solution(last + math.log(x)) for x in more) if P is not None]
        proved = [attempt.polish(P, self.multipliers(s)) for P in solutions]
        return min((x for x in proved if x is not None), key=lambda x: x[0], default=None)

    def best_of_all(self) -> Found | None:
        """Return the smallest gain over all s: a grid of powers of ten, then a search around its best point."""
        deadline = self.attempt.deadline
        at_scale = functools.cache(lambda log_s: None if deadline.over else self.best(log_s))

        def objective(log_s: float) -> float:
            outcome = at_scale(float(log_s))
            return _NONE if outcome is None else math.log(outcome[0] + 1e-300)

        if not len(self.delta):  # linear: no multipliers
            return at_scale(0.0)
        best = minimize_on_grid(objective, np.log(10.0) * np.arange(-2.0, 5.0), xatol=0.05, maxiter=10)
        return at_scale(best) if objective(best) < _NONE else None


def gain_solvers(system: LureSystem, F: Array) -> list[str]:
    """Return the semidefinite solvers for a system with inputs."""
    return solver_order(None, system.states, system.states + system.channels + F.shape[1])


def growths_to_try(
    system: LureSystem, measure: str, horizon: float | None, deadline: Deadline
) -> Iterator[tuple[str, float]]:
    """Yield modes and growths to try: first no growth, for a finite horizon also some growth."""
    yield "running" if measure == "l2" else "terminal", start_rate(system)
    if horizon is None:
        return
    try:
        # no inequality holds with less growth than that under constant slopes
        slowest = rate_ceiling(system, deadline=deadline)
    except np.linalg.LinAlgError:  # overflow in A + B K C
        return
    base = max(0.0, math.log(max(slowest, 1e-300)) if system.is_discrete else -slowest)
    span = max(float(horizon), 1.0)
    exponents = {base + share / span for share in (0.25, 1.0, 3.0)} | {1.3 * base, 2.0 * base, 4.0 * base}
    for exponent in sorted(x for x in exponents if 0.0 < x < 50.0):
        yield "terminal", math.exp(exponent) if system.is_discrete else -exponent


def stable_multipliers(system: LureSystem, growth: float, deadline: Deadline) -> Array | None:
    """Return ``Delta`` of the stability proof at this growth; near one, scales that balance the channels.

    Args:
        system: the system.
        growth: ``rho`` or ``lambda``.
        deadline: time limit of the search.

    Returns:
        ``(m,)`` positive numbers; ``None`` if the loop's gain stayed far above one.
    """
    if system.channels == 0:
        return np.zeros(0)
    if growth != start_rate(system):
        A = system.A / growth if system.is_discrete else system.A + growth * np.eye(system.states)
        B = system.B / growth if system.is_discrete else system.B
        slope = system.alpha, system.beta
        system = LureSystem(A, B, system.C, system.D, slope=slope, dt=1.0 if system.is_discrete else None)
    finding = multiplier_criterion(system, rate="any", solver="riccati", time_limit=deadline)
    if not finding.holds:
        hopeless = finding.margin is not None and finding.margin < -_FAR
        return None if hopeless and not deadline.over else even_channel_scales(system)
    delta = np.sqrt(2.0 * np.asarray(finding.witness["L"]))
    return delta / max(float(delta.max()), 1e-300) if (delta > 0).all() else np.ones(system.channels)
