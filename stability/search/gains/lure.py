r"""Incremental gain: largest output difference relative to the input difference.

For two trajectories from one state whose inputs differ by ``u``, the difference ``y`` of their outputs satisfies
``|y|_2 <= g |u|_2``. The bound comes from a multiplier inequality with a supply rate and is proved, rounding errors
included, before it is returned (``gain_lmi``). A classifier that reads ``y`` at the last step keeps its
decision under every input change smaller than ``margin / (sqrt(2) g)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, DimensionError
from stability.kernel.checks import as_choice, as_matrix
from stability.kernel.format.claims import Proof
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.gain_lmi import bound
from stability.search.gains.gain import Gain
from stability.search.gains.pairwise import pairwise_proof
from stability.search.gains.single_storage import PROGRAM_STATES, Found, StorageAttempt, gain_solvers, growths_to_try
from stability.search.gains.stepwise_storage import StepwiseSearch
from stability.search.solvers.deadline import TOO_LATE, Deadline, TimeLimit
from stability.threads import threads_for

Array = np.ndarray
T = TypeVar("T")
_SOLVERS = ("auto", "cvxpy", "riccati")
_LONG = 96
"""Horizon above which gains are also bounded by one storage for all steps."""


def _inputs(subject: Any, E: Any, F: Any) -> tuple[LureSystem, Array, Array]:
    """Return the system and its input matrices; by default through every channel (every state without channels)."""
    if isinstance(subject, DrivenSystem):
        if E is not None or F is not None:
            raise ConfigurationError("the network defines its own input matrices: leave E and F out")
        return subject.system, subject.E, subject.F
    if not isinstance(subject, LureSystem):
        raise ConfigurationError(f"a gain needs a LureSystem or a network with one, got {type(subject).__name__}")
    n, m = subject.states, subject.channels
    if E is None and F is None:
        return (subject, np.eye(m), np.zeros((n, m))) if m else (subject, np.zeros((0, n)), np.eye(n))
    e = as_matrix("E", np.zeros((m, as_matrix("F", F).shape[1])) if E is None else E, (m, None))
    f = as_matrix("F", np.zeros((n, e.shape[1])) if F is None else F, (n, None))
    if e.shape[1] != f.shape[1]:
        raise DimensionError("F", (n, e.shape[1]), f.shape, "E and F need one column per input")
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
    pairs: bool = False,
    worth: float = math.inf,
    time_limit: TimeLimit = None,
) -> Gain:
    r"""Prove an upper bound of the incremental gain from the input sequence to an output.

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
        solver: ``"riccati"`` (multipliers and storage by structured searches, any size; over a number of steps each
            step has its own), ``"cvxpy"`` (one storage for all steps from a semidefinite program, small systems),
            ``"auto"``: the first, and up to 16 states the second where it failed or one storage bounds the output at
            one time.
        E: ``(m, p)`` input to channel, for a bare system; identity by default.
        F: ``(n, p)`` input to state, for a bare system; zero by default (identity without channels).
        pairs: with measure ``"final"``, minimize the differences of pairs of outputs (in the geometric mean over all
            pairs) instead of the norm of all: decisions between two logits. The value is about all of them still;
            ``certified_radius`` takes the bound of each pair from the proof.
        worth: a gain above which the answer is of little use: a search over a number of steps that begins above it is
            short, and proves what it has then. Of the measure ``"final"``.
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
            raise ConfigurationError("the network defines its own input matrices: leave E and F out")
        bound = pairwise_proof(system, H, measure, None if horizon is None else int(horizon))
        if isinstance(bound, str):
            return Gain(math.inf, measure, horizon, system, None, bound)
        return Gain(bound[0], measure, horizon, system, bound[1], f"norms, growth {bound[1].data['growth']:.6g}")
    if solver == "cvxpy":
        gain_solvers(system, cast(Array, f))  # refuses what is too large
    deadline = Deadline.from_limit(time_limit).named("gain")
    question = _Question(system, (np.array(e), np.array(f), H), measure, horizon, solver, pairs, deadline, worth)
    with threads_for(system.states):
        proofs = list(question.proofs())
    best = min(proofs, key=lambda proof: proof[0], default=None)
    if best is None:
        detail = TOO_LATE if deadline.cut else "no bound was proved"
        return Gain(math.inf, measure, horizon, target, None, detail)
    data, words = best[1].data, "storage function and multipliers for each step"
    if best[1].kind == "gain_lmi":
        words = f"{data['mode']} cost, growth {data['growth']:.6g}"
    if deadline.cut:
        words += "; stopped by the time limit: a smaller bound may exist"
    return Gain(best[0], measure, horizon, target, best[1], words)


@dataclass(frozen=True, eq=False)
class _Question:
    """Checked arguments of a gain search."""

    system: LureSystem
    matrices: tuple[Array, Array, Array]
    measure: str
    horizon: float | None
    solver: str
    pairs: bool
    deadline: Deadline
    worth: float

    def proofs(self) -> Iterator[tuple[float, Proof]]:
        """Yield every finite bound that is proved."""
        if self.solver != "cvxpy" and self.system.is_discrete and isinstance(self.horizon, int):
            stepwise = self._stepwise(self.horizon)
            if stepwise is not None:
                yield stepwise
                if self.horizon <= _LONG:
                    return
        yield from self._with_one_storage()

    def _stepwise(self, steps: int) -> tuple[float, Proof] | None:
        search = StepwiseSearch(self.system, self.matrices, steps, self.measure, self.pairs, self.deadline, self.worth)
        return _or_none(search.best) if search.fits else None

    def _with_one_storage(self) -> Iterator[tuple[float, Proof]]:
        """Yield bounds with one storage for increasing growths, until they become worse."""
        best, discrete = math.inf, self.system.is_discrete
        for mode, growth in growths_to_try(self.system, self.measure, self.horizon, self.deadline):
            if self.deadline.over:
                return
            gain = self._found(StorageAttempt(self.system, *self.matrices, mode, growth, self.deadline))
            value = math.inf if gain is None else bound(mode, self.measure, gain[0], growth, self.horizon, discrete)
            if gain is not None and math.isfinite(value):
                data = dict(zip(("P", "L", "E", "F", "H"), (*gain[1:], *self.matrices)))
                data |= {"gain": gain[0], "growth": growth, "horizon": self.horizon}
                yield value, Proof("gain_lmi", {**data, "measure": self.measure, "mode": mode})
            if value > best:
                return
            best = value

    def _found(self, attempt: StorageAttempt) -> Found | None:
        gain = _or_none(lambda: attempt.by_riccati(self.pairs)) if self.solver != "cvxpy" else None
        # at one time the best multipliers may lie on the border of those with a Riccati solution, which descent misses
        use_program = self.system.states <= PROGRAM_STATES and (gain is None or attempt.mode == "terminal")
        if self.solver == "cvxpy" or (self.solver == "auto" and use_program):
            program = _or_none(attempt.by_program)
            gain = min((f for f in (gain, program) if f is not None), key=lambda f: f[0], default=None)
        return _or_none(attempt.by_size) if gain is None and self.solver != "cvxpy" else gain


def _or_none(search: Callable[[], T | None]) -> T | None:
    """Run a search; return ``None`` if LAPACK fails on extreme entries."""
    try:
        return search()
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return None


def _horizon(horizon: Any, discrete: bool) -> float | None:
    if horizon is None:
        return None
    kinds = (int, np.integer) if discrete else (int, float, np.number)
    if isinstance(horizon, bool) or not isinstance(horizon, kinds) or not 0 < horizon < 2**31:
        expected = "a whole number of steps" if discrete else "a time"
        raise ConfigurationError(f"horizon must be None or {expected} > 0, got {horizon!r}")
    return int(horizon) if discrete else float(horizon)
