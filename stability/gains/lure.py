r"""Incremental gains: how much the output can change when the input sequence does.

For two trajectories from one state whose inputs differ by ``u``, the difference ``y`` of their outputs
satisfies ``|y|_2 <= g |u|_2``. The bound comes from a multiplier inequality with a supply rate and is
proved, rounding errors included, before it is returned (``stability.rules.gain_lmi``). A classifier that
reads ``y`` at the last step keeps its decision under every input change smaller than ``margin / (sqrt(2)
g)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from stability.certificate import Claim, Proof, Verdict
from stability.criteria.multiplier import multiplier_criterion, rate_ceiling
from stability.errors import ConfigurationError, DimensionError
from stability.rules.gain_lmi import bound, check_gain
from stability.rules.registry import worded
from stability.solve.attempts import solver_order
from stability.solve.coordinates import balanced
from stability.solve.deadline import TOO_LATE, Deadline, TimeLimit
from stability.solve.forms import gain_form, least_gain
from stability.solve.lmi import pose_gain
from stability.solve.loop import Loop, centre
from stability.solve.riccati import bounded_real
from stability.systems import DrivenSystem, LureSystem, as_matrix
from stability.systems.subjects import as_subject

__all__ = ["Gain", "incremental_gain"]

Array = np.ndarray
_PROGRAM_STATES = 16


@dataclass(frozen=True, eq=False)
class Gain:
    """An upper bound of an incremental gain, with its proof.

    Attributes:
        value: the bound; infinite where none was proved.
        measure: ``l2`` (the whole output) or ``final`` (the output at the last step).
        horizon: steps or time, or ``None`` for every horizon.
        subject: the system or network.
        proof: what ``verify`` needs, or ``None`` where the bound is infinite.
        detail: how it was found.
    """

    value: float
    measure: str
    horizon: float | None
    subject: LureSystem | DrivenSystem
    proof: Proof | None = field(default=None, repr=False)
    detail: str = ""

    @property
    def claim(self) -> Claim:
        """The claim that a certificate can carry."""
        if self.proof is None:
            return Claim("gain", "No incremental gain was found.", Verdict.INCONCLUSIVE)
        return worded(self.subject, Claim("gain", "", Verdict.CERTIFIED, self.proof, self.value))

    def radius(self, margin: float) -> float:
        """The l2 radius of input changes that cannot turn a decision with this margin between two outputs.

        Args:
            margin: smallest difference of the winning output and another (logits at the last step).

        Returns:
            ``margin / (sqrt(2) g)``; zero where no gain is known.
        """
        if not math.isfinite(self.value):
            return 0.0
        if self.value == 0.0:
            return math.inf
        return max(float(margin), 0.0) / (math.sqrt(2.0) * self.value)


@dataclass(frozen=True, eq=False)
class _Problem:
    system: LureSystem
    E: Array
    F: Array
    H: Array

    def polish(self, P: Array, L: Array, growth: float, mode: str) -> tuple[float, Array, Array] | None:
        """The smallest gain that ``(P, L)`` proves, with what it needs to be proved strictly."""
        if not (np.isfinite(P).all() and np.isfinite(L).all()):
            return None
        P, L = 0.5 * (P + P.T), np.maximum(L, 0.0)
        if mode == "terminal":
            try:
                half = np.linalg.solve(np.linalg.cholesky(P), self.H.T)
            except np.linalg.LinAlgError:
                return None
            scale = float(np.linalg.norm(half, 2)) ** 2 * (1.0 + 1e-9)
            if not scale > 0:
                return None
            P, L = scale * P, scale * L
            P = 0.5 * (P + P.T)
        with np.errstate(all="ignore"):
            output = self.H if mode == "running" else None
            form = gain_form(self.system, P, L, self.E, self.F, output, growth)
            least = least_gain(form, self.F.shape[1])
        if not math.isfinite(least):
            return None
        for step in (1e-10, 1e-8, 1e-6, 1e-4, 1e-2):
            gain = least * (1.0 + step) + 1e-12
            data = (P, L, self.E, self.F, self.H)
            if check_gain(self.system, *data, gain=gain, growth=growth, mode=mode)[0]:
                return gain, P, L
        return None

    def by_program(self, growth: float, mode: str, deadline: Deadline) -> tuple[float, Array, Array] | None:
        """The least gain by a semidefinite program in balanced coordinates."""
        at = balanced(self.system, growth)
        F = np.linalg.solve(at.X, self.F) / at.time
        E, H = at.v[:, None] * self.E, self.H @ at.X
        into = float(max(np.abs(F).max(initial=0.0), np.abs(E).max(initial=0.0))) or 1.0
        out = float(np.abs(H).max(initial=0.0)) or 1.0
        n = self.system.states
        order = solver_order(None, n, n + self.system.channels + self.F.shape[1])
        solver = "CLARABEL" if n <= _PROGRAM_STATES else order[0]
        for margin in (1e-8, 1e-6, 1e-4) if solver == "CLARABEL" else (1e-3, 1e-2):
            if deadline.over:
                break
            _, P, L = pose_gain(at, E / into, F / into, H / out, mode == "running", solver, deadline, margin)
            if P is None or L is None:
                continue
            p, l = at.back(P, L)
            unit = out * out / (at.time if mode == "running" else 1.0)
            found = self.polish(unit * p, unit * l, growth, mode)
            if found is not None:
                return found
        return None

    def by_riccati(
        self, growth: float, mode: str, delta: Array, deadline: Deadline
    ) -> tuple[float, Array, Array] | None:
        """A gain for given multipliers: the bounded real lemma of the loop with input and output attached."""
        system = self.system
        loop = centre(system).shifted(growth).scaled(delta)
        middle = 0.5 * (system.alpha + system.beta)
        radius = 0.5 * (system.beta - system.alpha)
        inverse = np.linalg.inv(np.eye(system.channels) - system.D * middle)
        into = self.F + (system.B * middle) @ inverse @ self.E
        direct = (delta * radius)[:, None] * (inverse @ self.E)
        size = growth if system.is_discrete else 1.0  # the shift divides the step by rho
        into = into / size

        unshift = size * size

        def attempt(s: float, gain: float) -> Array | None:
            if deadline.over:
                return None
            B = np.hstack([loop.B / s, into / gain])
            C = np.vstack([s * loop.C, self.H])
            D = np.block([[loop.D, s * direct / gain], [np.zeros((len(self.H), B.shape[1]))]])
            with np.errstate(all="ignore"):
                P = bounded_real(Loop(loop.A, B, C, D, loop.is_discrete), 1e-7, deadline=deadline).P
            if P is None or not np.isfinite(P).all():
                return None
            L = 0.5 * unshift * s * s * delta * delta
            with np.errstate(all="ignore"):
                form = gain_form(system, unshift * P, L, self.E, self.F, math.sqrt(unshift) * self.H, growth)
            # above the gain of the loop the doubling may still converge, to a P that proves nothing
            return P if least_gain(form, self.F.shape[1]) <= 1.01 * math.sqrt(unshift) * gain else None

        def best(log_s: float) -> tuple[float, Array, Array] | None:
            s = math.exp(log_s)
            high, found = 1e-3 * (float(np.linalg.norm(into)) + float(np.linalg.norm(direct)) + 1e-300), None
            for _ in range(12):
                P = attempt(s, high)
                if P is not None:
                    found = P
                    break
                high *= 10.0
            if found is None:
                return None
            low = high / 10.0
            for _ in range(24):
                if high <= 1.01 * low:
                    break
                middle_ = math.sqrt(low * high)
                P = attempt(s, middle_)
                low, high, found = (low, middle_, P) if P is not None else (middle_, high, found)
            L = 0.5 * unshift * s * s * delta * delta
            outcomes = [self.polish(unshift * found, L, growth, mode)]
            for more in (1.5, 4.0, 16.0) if mode == "terminal" else ():  # smaller P, same multipliers
                P = attempt(s, more * high)
                outcomes.append(None if P is None else self.polish(unshift * P, L, growth, mode))
            proved = [x for x in outcomes if x is not None]
            return min(proved, key=lambda x: x[0]) if proved else None

        results: dict[float, tuple[float, Array, Array]] = {}

        def objective(log_s: float) -> float:
            outcome = None if deadline.over else best(log_s)
            if outcome is None:
                return 60.0
            results[outcome[0]] = outcome
            return math.log(outcome[0] + 1e-300)

        grid = np.log(10.0) * np.arange(-2.0, 5.0)
        values = [objective(float(x)) for x in grid]
        i = int(np.argmin(values))
        if values[i] >= 60.0:
            return None
        minimize_scalar(
            objective,
            bounds=(grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]),
            method="bounded",
            options={"xatol": 0.05, "maxiter": 10},
        )
        return results[min(results)]


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
    e = None if E is None else as_matrix("E", E, (m, None))
    f = None if F is None else as_matrix("F", F, (n, None))
    width = e.shape[1] if e is not None else f.shape[1] if f is not None else 0
    e = np.zeros((m, width)) if e is None else e
    f = np.zeros((n, width)) if f is None else f
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
        subject: a network (``DrivenSystem``, a layer, a supported module) or a ``LureSystem``.
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
    system, e, f = _inputs(target, E, F)
    whole = isinstance(output, str) and output == "state"
    H = np.eye(system.states) if whole else as_matrix("output", output)
    if H.shape[1] != system.states:
        raise DimensionError("output", f"(k, {system.states})", H.shape)
    horizon = _horizon(horizon, system.is_discrete)
    measure = measure or ("l2" if horizon is None else "final")
    if measure not in ("l2", "final"):
        raise ConfigurationError(f'unknown measure {measure!r}; the known ones are "l2", "final"')
    if solver not in ("auto", "cvxpy", "riccati"):
        raise ConfigurationError(f'unknown solver {solver!r}; the known ones are "auto", "cvxpy", "riccati"')
    problem = _Problem(system, np.array(e), np.array(f), np.array(H))
    use_program = solver == "cvxpy" or (solver == "auto" and system.states <= _PROGRAM_STATES)
    if use_program:
        solver_order(None, system.states, system.states + system.channels + f.shape[1])
    deadline = Deadline.after(time_limit).named("gain")
    best: tuple[float, Proof] | None = None
    for mode, growth in _attempts(system, measure, horizon, deadline):
        if deadline.over:
            break
        try:
            found = problem.by_program(growth, mode, deadline) if use_program else None
            if found is None and solver != "cvxpy":
                found = problem.by_riccati(growth, mode, _multipliers(system, growth, deadline), deadline)
        except (np.linalg.LinAlgError, ArithmeticError):  # LAPACK on extreme entries: no candidate
            continue
        if found is None:
            continue
        value = bound(mode, measure, found[0], growth, horizon, system.is_discrete)
        if math.isfinite(value) and (best is None or value < best[0]):
            data = {
                "P": found[1],
                "L": found[2],
                "E": problem.E,
                "F": problem.F,
                "H": problem.H,
                "gain": found[0],
                "growth": growth,
                "horizon": horizon,
                "measure": measure,
                "mode": mode,
            }
            best = value, Proof("gain_lmi", data)
    if best is None:
        detail = TOO_LATE if deadline.cut else "no bound was proved"
        return Gain(math.inf, measure, horizon, target, None, detail)
    made = best[1].data
    words = f"{made['mode']} cost, growth {made['growth']:.6g}"
    if deadline.cut:
        words += "; stopped by the time limit: the bound may be better"
    return Gain(best[0], measure, horizon, target, best[1], words)


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
    neutral = 1.0 if system.is_discrete else 0.0
    if measure == "l2":
        yield "running", neutral
    else:
        yield "terminal", neutral
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
    neutral = 1.0 if system.is_discrete else 0.0
    finding = None
    if growth == neutral:
        finding = multiplier_criterion(system, rate="any", solver="riccati", time_limit=deadline)
    if finding is None or not finding.holds:
        b = np.linalg.norm(system.B, axis=0)
        c = np.linalg.norm(system.C, axis=1)
        return np.sqrt(np.where((b > 0) & (c > 0), b / np.where(c > 0, c, 1.0), 1.0))
    delta = np.sqrt(2.0 * np.asarray(finding.witness["L"]))
    return delta / max(float(delta.max()), 1e-300) if (delta > 0).all() else np.ones(system.channels)
