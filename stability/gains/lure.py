r"""Incremental gains: how much the output can change when the input sequence does.

For two trajectories from one state whose inputs differ by ``u``, the difference ``y`` of their outputs satisfies
``|y|_2 <= g |u|_2``. The bound comes from a multiplier inequality with a supply rate and is proved, rounding errors
included, before it is returned (``stability.rules.gain_lmi``). A classifier that reads ``y`` at the last step keeps its
decision under every input change smaller than ``margin / (sqrt(2) g)``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.certificate import Proof
from stability.criteria.multiplier import multiplier_criterion, rate_ceiling
from stability.errors import ConfigurationError, DimensionError
from stability.gains.gain import Gain
from stability.gains.pairwise import pairwise_proof
from stability.rules.gain_lmi import bound, check_gain, gain_matrix
from stability.solve.coordinates import balanced, evening
from stability.solve.deadline import TOO_LATE, Deadline, TimeLimit
from stability.solve.forms import least_gain
from stability.solve.lmi import pose_gain, solver_order
from stability.solve.loop import centre
from stability.solve.rates import bisect, shift_factor, start_rate
from stability.solve.riccati import bounded_real
from stability.solve.scalar import minimum
from stability.solve.threads import threads_for
from stability.systems import DrivenSystem, LureSystem, PairwiseSystem, as_matrix
from stability.systems.channels import closed
from stability.systems.checks import as_choice
from stability.systems.statespace import StateSpace
from stability.systems.subjects import as_subject

Array = np.ndarray
_PROGRAM_STATES = 16
_SOLVERS = ("auto", "cvxpy", "riccati")
_NONE = 60.0
"""Stands for the logarithm of a gain where none is proved."""
Found = tuple[float, Array, Array]
"""A gain with the ``P`` and ``L`` that prove it."""


@dataclass(frozen=True, eq=False)
class _Attempt:
    """One inequality to be met: a system with its input and output, a mode and a growth."""

    system: LureSystem
    E: Array
    F: Array
    H: Array
    mode: str
    growth: float
    deadline: Deadline

    def polish(self, P: Array, L: Array) -> Found | None:
        """The smallest gain that ``(P, L)`` proves, with what it needs to be proved strictly."""
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
        """The smallest gain for which the inequality holds, rounding aside."""
        with np.errstate(all="ignore"):
            return least_gain(gain_matrix(self.system, P, L, self.E, self.F, H, self.growth), self.F.shape[1])

    def by_program(self) -> Found | None:
        """The least gain by a semidefinite program in balanced coordinates."""
        at, running = balanced(self.system, self.growth), self.mode == "running"
        F = np.linalg.solve(at.X, self.F) / at.time
        E, H = at.v[:, None] * self.E, self.H @ at.X
        into = float(max(np.abs(F).max(initial=0.0), np.abs(E).max(initial=0.0))) or 1.0
        out = float(np.abs(H).max(initial=0.0)) or 1.0
        solver = "CLARABEL" if self.system.states <= _PROGRAM_STATES else _programs(self.system, F)[0]
        for margin in (1e-8, 1e-6, 1e-4) if solver == "CLARABEL" else (1e-3, 1e-2):
            if self.deadline.over:
                break
            _, P, L = pose_gain(at, E / into, F / into, H / out, running, solver, self.deadline, margin)
            if P is None or L is None:
                continue
            p, l = at.back(P, L)
            unit = out * out / (at.time if running else 1.0)
            found = self.polish(unit * p, unit * l)
            if found is not None:
                return found
        return None


class _Attached:
    r"""The centred loop, shifted by the growth and scaled by ``delta``, with input and output attached.

    For one number s its bounded real lemma proves the gain g with the multipliers :math:`2 L = s^2 \Delta^2`:

    .. math:: \begin{bmatrix} B/s & F_c/g \end{bmatrix}, \quad \begin{bmatrix} s C \\ H \end{bmatrix}, \quad
              \begin{bmatrix} D & s E_c/g \\ 0 & 0 \end{bmatrix}, \qquad
              E_c = \Delta R (I - D K)^{-1} E, \quad F_c = F + B K (I - D K)^{-1} E

    with the centre slopes K and their radii R. In discrete time the shift divides the step by rho, and (P, L) by its
    square.
    """

    def __init__(self, attempt: _Attempt, delta: Array) -> None:
        system, self.attempt, self.delta = attempt.system, attempt, delta
        middle, radius = 0.5 * (system.alpha + system.beta), 0.5 * (system.beta - system.alpha)
        seen = closed(system.D, middle, attempt.E)
        self.unshift = shift_factor(system, attempt.growth)
        self.loop = centre(system).shifted(attempt.growth).scaled(delta)
        self.into = (attempt.F + (system.B * middle) @ seen) / math.sqrt(self.unshift)
        self.direct = (delta * radius)[:, None] * seen

    def multipliers(self, s: float) -> Array:
        """``L`` of a number s, in the system's own step."""
        return 0.5 * self.unshift * s * s * self.delta * self.delta

    def solution(self, s: float, gain: float) -> Array | None:
        """P of a gain, in the system's own step, where there is one."""
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
        # above the gain of the loop the doubling may still converge, to a P that proves nothing
        return P if attempt.least(P, self.multipliers(s), unit * attempt.H) <= 1.01 * unit * gain else None

    def best(self, log_s: float) -> Found | None:
        """The smallest gain that is proved with the multipliers of one s."""
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
        """The smallest gain over all s: a grid of powers of ten, then a search between the neighbours of its best."""
        deadline = self.attempt.deadline
        found = functools.cache(lambda log_s: None if deadline.over else self.best(log_s))

        def objective(log_s: float) -> float:
            outcome = found(float(log_s))
            return _NONE if outcome is None else math.log(outcome[0] + 1e-300)

        grid = [float(x) for x in np.log(10.0) * np.arange(-2.0, 5.0)]
        values = [objective(x) for x in grid]
        i = int(np.argmin(values))
        if values[i] >= _NONE:
            return None
        bounds = (grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)])
        inside, _ = minimum(objective, *bounds, xatol=0.05, maxiter=10)
        return found(min((inside, grid[i]), key=objective))


def _programs(system: LureSystem, F: Array) -> list[str]:
    """Semidefinite solvers for a system with inputs."""
    return solver_order(None, system.states, system.states + system.channels + F.shape[1])


def _inputs(subject: Any, E: Any, F: Any) -> tuple[LureSystem, Array, Array]:
    """The system and how inputs enter it; by default through every channel (every state without channels)."""
    if isinstance(subject, DrivenSystem):
        if E is not None or F is not None:
            raise ConfigurationError("a network has its own input matrices: leave E and F out")
        return subject.system, subject.E, subject.F
    if not isinstance(subject, LureSystem):
        raise ConfigurationError(f"a gain needs a Lur'e system or a network, not a {type(subject).__name__}")
    n, m = subject.states, subject.channels
    if E is None and F is None:
        return (subject, np.eye(m), np.zeros((n, m))) if m else (subject, np.zeros((0, n)), np.eye(n))
    e = as_matrix("E", np.zeros((m, as_matrix("F", F).shape[1])) if E is None else E, (m, None))
    f = as_matrix("F", np.zeros((n, e.shape[1])) if F is None else F, (n, None))
    if e.shape[1] != f.shape[1]:
        raise DimensionError("F", (n, e.shape[1]), f.shape, "E and F have one column an input")
    return subject, np.array(e), np.array(f)


@np.errstate(all="ignore")
def incremental_gain(
    subject: Any,
    *,
    output: Any = "state",
    horizon: float | None = None,
    measure: str | None = None,
    solver: str = "auto",
    E: Any = None,
    F: Any = None,
    time_limit: TimeLimit = None,
) -> Gain:
    r"""A proved upper bound of the incremental gain from the input sequence to an output.

    .. math:: |y|_2 \le g |u|_2 \quad\text{or}\quad |y_T| \le g |u|_2, \qquad y = H (x - x')

    where ``u`` is the difference of the inputs.

    Args:
        subject: a network (``DrivenSystem``, a layer, a supported module), a ``LureSystem``, or a ``PairwiseSystem``,
            whose gain follows from the norms of its weights.
        output: ``"state"``, or ``H (k, n)``, such as the weights of a linear head.
        horizon: ``None`` for every horizon; else a number of steps (discrete) or a time: then the system
            need not be contracting.
        measure: ``"l2"`` for the norm of the whole output sequence, ``"final"`` for the output at the end
            alone; by default ``"l2"`` without and ``"final"`` with a horizon.
        solver: ``"cvxpy"`` (the least bound of this kind, small systems), ``"riccati"`` (multipliers of the
            stability proof, any size), ``"auto"``.
        E: ``(m, p)`` input to channel, for a bare system; identity by default.
        F: ``(n, p)`` input to state, for a bare system; zero by default (identity without channels).
        time_limit: seconds; the smallest bound proved until then is the answer.

    Returns:
        The gain, infinite where none was proved.

    Raises:
        DimensionError: ``H`` has another number of columns than the system has states.
        ConfigurationError: an unknown measure or solver.
        StabilityError: bad matrices or options.

    Source:
        J. C. Willems, Dissipative dynamical systems, Arch. Rational Mech. Anal. 45 (1972); A. Megretski, A.
        Rantzer, System analysis via integral quadratic constraints, IEEE TAC 42 (1997).

    Example:
        >>> round(incremental_gain(LureSystem.linear([[-2.0]])).value, 4)  # H-infinity norm of 1 / (s + 2)
        0.5
        >>> network = LureSystem.recurrent([[-2.0]], [[1.0]])
        >>> round(incremental_gain(network).value, 4)  # slope 1: 1 / (s + 1)
        1.0
    """
    target = as_subject(subject)
    system, e, f = (target, None, None) if isinstance(target, PairwiseSystem) else _inputs(target, E, F)
    whole = isinstance(output, str) and output == "state"
    H = np.eye(system.states) if whole else np.array(as_matrix("output", output))
    if H.shape[1] != system.states:
        raise DimensionError("output", f"(k, {system.states})", H.shape)
    horizon = _horizon(horizon, system.is_discrete)
    measure = measure or ("l2" if horizon is None else "final")
    as_choice("measure", measure, ("l2", "final"))
    as_choice("solver", solver, _SOLVERS)
    if isinstance(system, PairwiseSystem):
        if E is not None or F is not None:
            raise ConfigurationError("a network has its own input matrices: leave E and F out")
        return _of_pairs(system, H, measure, horizon)
    if solver == "auto":
        solver = "cvxpy or riccati" if system.states <= _PROGRAM_STATES else "riccati"
    if "cvxpy" in solver:
        _programs(system, f)  # refuses what is too large
    deadline = Deadline.after(time_limit).named("gain")
    with threads_for(system.states):
        proofs = list(_proofs(system, (np.array(e), np.array(f), H), measure, horizon, solver, deadline))
    best = min(proofs, key=lambda proof: proof[0], default=None)
    if best is None:
        detail = TOO_LATE if deadline.cut else "no bound was proved"
        return Gain(math.inf, measure, horizon, target, None, detail)
    words = f"{best[1].data['mode']} cost, growth {best[1].data['growth']:.6g}"
    if deadline.cut:
        words += "; stopped by the time limit: the bound may be better"
    return Gain(best[0], measure, horizon, target, best[1], words)


def _of_pairs(subject: PairwiseSystem, H: Array, measure: str, horizon: float | None) -> Gain:
    """The gain of a network with an activation on pairs, from the norms of its weights."""
    found = pairwise_proof(subject, H, measure, None if horizon is None else int(horizon))
    if isinstance(found, str):
        return Gain(math.inf, measure, horizon, subject, None, found)
    return Gain(found[0], measure, horizon, subject, found[1], f"norms, growth {found[1].data['growth']:.6g}")


def _proofs(
    system: LureSystem,
    matrices: tuple[Array, Array, Array],
    measure: str,
    horizon: float | None,
    solver: str,
    deadline: Deadline,
) -> Iterator[tuple[float, Proof]]:
    """Every finite bound that is proved, growth by growth, until more growth makes it worse."""
    best = math.inf
    for mode, growth in _attempts(system, measure, horizon, deadline):
        if deadline.over:
            return
        attempt = _Attempt(system, *matrices, mode, growth, deadline)
        try:
            found = attempt.by_program() if "cvxpy" in solver else None
            if found is None and "riccati" in solver:
                found = _Attached(attempt, _multipliers(system, growth, deadline)).best_of_all()
        except (np.linalg.LinAlgError, ArithmeticError):  # LAPACK on extreme entries: no candidate
            found = None
        value = math.inf if found is None else bound(mode, measure, found[0], growth, horizon, system.is_discrete)
        if found is not None and math.isfinite(value):
            data = dict(zip(("P", "L", "E", "F", "H"), (*found[1:], *matrices)))
            data |= {"gain": found[0], "growth": growth, "horizon": horizon, "measure": measure, "mode": mode}
            yield value, Proof("gain_lmi", data)
        if value > best:
            return
        best = value


def _horizon(horizon: Any, discrete: bool) -> float | None:
    if horizon is None:
        return None
    kinds = (int, np.integer) if discrete else (int, float, np.number)
    if isinstance(horizon, bool) or not isinstance(horizon, kinds) or not 0 < horizon < 2**31:
        wanted = "a whole number of steps" if discrete else "a time"
        raise ConfigurationError(f"horizon must be None or {wanted} > 0, got {horizon!r}")
    return int(horizon) if discrete else float(horizon)


def _attempts(
    system: LureSystem, measure: str, horizon: float | None, deadline: Deadline
) -> Iterator[tuple[str, float]]:
    """Modes and growths to try: the neutral one, for a finite horizon also some that allow growth."""
    yield "running" if measure == "l2" else "terminal", start_rate(system)
    if horizon is None:
        return
    try:
        # no inequality holds with less growth than the worst constant slopes show
        slowest = rate_ceiling(system, deadline=deadline)
    except np.linalg.LinAlgError:  # overflow in A + B K C
        return
    base = max(0.0, math.log(max(slowest, 1e-300)) if system.is_discrete else -slowest)
    span = max(float(horizon), 1.0)
    exponents = {base + share / span for share in (0.25, 1.0, 3.0)} | {1.3 * base, 2.0 * base, 4.0 * base}
    for exponent in sorted(x for x in exponents if 0.0 < x < 50.0):
        yield "terminal", math.exp(exponent) if system.is_discrete else -exponent


def _multipliers(system: LureSystem, growth: float, deadline: Deadline) -> Array:
    """``Delta`` of the stability proof, where there is one at this growth or better; else one."""
    if system.channels == 0:
        return np.zeros(0)
    finding = None
    if growth == start_rate(system):
        finding = multiplier_criterion(system, rate="any", solver="riccati", time_limit=deadline)
    if finding is None or not finding.holds:
        return evening(system)
    delta = np.sqrt(2.0 * np.asarray(finding.witness["L"]))
    return delta / max(float(delta.max()), 1e-300) if (delta > 0).all() else np.ones(system.channels)
