r"""Independent check of the circle criterion and the KYP lemma by semidefinite programs.

``certify`` decides both criteria in the frequency domain. Here they are solved as in the textbooks: find a ``P`` with

.. math:: \begin{bmatrix} A^T P + P A + C^T C & P B + C^T D \\ \cdot & D^T D - I \end{bmatrix} \le -t I
          \quad\text{(circle)}, \qquad
          \begin{bmatrix} A^T P + P A & P B - C^T \\ \cdot & -(D + D^T) \end{bmatrix} \le -t I
          \quad\text{(KYP)}, \qquad P \ge t I

and ``t`` above a strictness that rounding cannot make up (in discrete time ``A^T P A - P`` and so on). A solver
returns a status. It is wrong if it is feasible and the returned ``P`` violates the inequality, rounding errors
included, or if it is infeasible and the frequency domain proves feasibility. The number of wrong statuses is measured;
no verdict depends on it.

Source: bounded real and positive real lemma: B. D. O. Anderson, S. Vongpanitlerd, Network Analysis and Synthesis, 1973;
cvxpy: S. Diamond, S. Boyd, JMLR 17 (2016); SCS: B. O'Donoghue et al., JOTA 169 (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from stability.conversion.subjects import as_subject
from stability.kernel.format.claims import finite_or_none
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.lure import LureSystem
from stability.search.criteria.circle import positive_real_slack, transformed_loop
from stability.search.criteria.small_gain import bounded_real_slack, centred_loop
from stability.search.solvers.deadline import Deadline, TimeLimit, TimeOverError
from stability.search.solvers.hinf import hinf_peak
from stability.search.solvers.loop_transformation import state_scales
from stability.search.solvers.positive_real import positivity_margin
from stability.search.solvers.rates import margin_of, spectral_rate
from stability.search.solvers.semidefinite import Terms, pose_strictly
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
MAX_STATES = 64
"""Most states of a system: larger dense programs take minutes."""
CLARABEL_STATES = 12
"""Most states for which Clarabel, an interior-point method, runs beside SCS; up to here it is as fast."""
SECONDS = 20.0  # default time limit of the whole call
STRICTNESS = 1e-6  # smallest ``t`` that rounding cannot produce
YES, NO = ("optimal", "optimal_inaccurate"), ("infeasible", "infeasible_inaccurate")


@dataclass(frozen=True)
class Opinion:
    """Answer of one solver about one criterion, with the frequency-domain result.

    Attributes:
        criterion: ``small_gain`` (the circle inequality above) or ``circle`` (the KYP inequality).
        solver: ``SCS`` or ``CLARABEL``; empty if no solver ran.
        status: status that the solver returned, or the reason why no solver ran.
        says: whether the criterion holds by this status; ``None`` if the status does not decide it, for example
            because the limit of steps or seconds ended the search.
        margin: ``t`` of the solver; ``None`` if it returned none.
        verified: whether the ``P`` of a feasible status satisfies the criterion's inequality beyond rounding errors.
        holds: whether the criterion holds by the frequency domain; ``None`` if that was not decided.
        frequency_margin: margin in the frequency domain, with the sign and unit of the criterion's own result.
        agrees: whether ``says`` equals ``holds``; ``None`` if one of them is ``None``.
        wrong: whether the status alone would have been wrong; ``None`` if it decides nothing.
        seconds: time of posing and solving the program in seconds.
        layer: number of the layer in a stack; ``None`` for a single system.
    """

    criterion: str
    solver: str
    status: str
    says: bool | None = None
    margin: float | None = None
    verified: bool = False
    holds: bool | None = None
    frequency_margin: float | None = None
    agrees: bool | None = None
    wrong: bool | None = None
    seconds: float = 0.0
    layer: int | None = None


@dataclass(frozen=True)
class CrossCheck:
    """Answers of all solvers about one subject.

    Attributes:
        states: states of the subject.
        opinions: one for each criterion and solver; a criterion without a solver has one with the reason.
    """

    states: int
    opinions: tuple[Opinion, ...]

    @property
    def asked(self) -> int:
        """Number of statuses that decide a criterion."""
        return sum(o.wrong is not None for o in self.opinions)

    @property
    def wrong(self) -> int:
        """Number of wrong statuses."""
        return sum(bool(o.wrong) for o in self.opinions)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields in JSON's own types."""
        numbers = ("margin", "frequency_margin")
        opinions = [{k: finite_or_none(v) if k in numbers else v for k, v in asdict(o).items()} for o in self.opinions]
        return {"states": self.states, "asked": self.asked, "wrong": self.wrong, "opinions": opinions}


@dataclass(frozen=True)
class _Question:
    """Criterion as a strict inequality in ``P``, with its frequency-domain result and the slack of a ``P``."""

    loop: StateSpace
    supply: Callable[[StateSpace], Terms]
    by_frequency: Callable[[Deadline], float]
    slack: Callable[[StateSpace, Array], float]


def cross_check(
    subject: Any, *, time_limit: TimeLimit = SECONDS, steps: int = 20_000, largest: int = MAX_STATES
) -> CrossCheck:
    """Evaluate circle criterion and KYP as linear matrix inequalities, and compare with the frequency domain.

    Args:
        subject: a ``LureSystem``, a network with one, a stack of these, or anything that ``certify`` takes.
        time_limit: time limit of the whole call in seconds; the status of a solver that it stops says so.
        steps: most steps of SCS; without a time limit the answers depend on no clock.
        largest: most states of a system that is solved.

    Returns:
        The opinions. If no solver can run (too many states, a gated cell), the status gives the reason.

    Raises:
        UnsupportedError: an object without a known system.

    Example:
        >>> found = cross_check(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> [(o.criterion, o.solver, o.status, o.verified, o.wrong) for o in found.opinions][:2]
        [('small_gain', 'SCS', 'optimal', True, False), ('small_gain', 'CLARABEL', 'optimal', True, False)]
    """
    target, deadline = as_subject(subject), Deadline.from_limit(time_limit)
    if isinstance(target, LayerStack):
        count = len(target.layers)
        opinions = [
            replace(opinion, layer=k)
            for k, layer in enumerate(target.layers)
            for opinion in _opinions(layer, deadline.share(1.0 / (count - k)), steps, largest)
        ]
        return CrossCheck(target.states, tuple(opinions))
    return CrossCheck(getattr(target, "states", 0), tuple(_opinions(target, deadline, steps, largest)))


def _opinions(subject: Any, deadline: Deadline, steps: int, largest: int) -> Iterator[Opinion]:
    """Yield the answers of the solvers about each criterion."""
    system = subject.system if isinstance(subject, DrivenSystem) else subject
    reason = _why_skipped(system, largest)
    if reason:
        yield from (Opinion(name, "", f"not run: {reason}") for name in ("small_gain", "circle"))
        return
    solvers = ("SCS", "CLARABEL") if system.states <= CLARABEL_STATES else ("SCS",)
    for k, (name, pose) in enumerate(_CRITERIA.items()):
        limit = deadline.share(1.0 / (len(_CRITERIA) - k))
        question = pose(system)
        if question is None:
            yield Opinion(name, "", "not run: every channel has a single slope")
            continue
        margin = _margin(question, limit)
        for solver in solvers:
            yield _solver_opinion(name, question, margin, solver, limit, steps)


def _why_skipped(system: Any, largest: int) -> str:
    if not isinstance(system, LureSystem):
        return "these criteria apply to Lur'e systems only"
    if system.states > largest:
        return f"{system.states} states; the limit is {largest}"
    return "" if system.states and system.channels else "the system is linear"


def _margin(question: _Question, deadline: Deadline) -> float | None:
    try:
        return question.by_frequency(deadline)
    except (TimeOverError, ArithmeticError, np.linalg.LinAlgError, ValueError):
        return None


def _solver_opinion(
    name: str, question: _Question, margin: float | None, solver: str, deadline: Deadline, steps: int
) -> Opinion:
    """Run one solver, and compare its status with the check of its ``P`` and with the frequency domain."""
    scales = state_scales(question.loop)
    loop = question.loop.rescaled(scales)
    status, P, t, seconds, stopped = pose_strictly(
        loop, question.supply(loop), solver, deadline, strictness=STRICTNESS, steps=steps
    )
    says = True if status in YES else False if status in NO else None
    if stopped and says is not None:  # the time limit ended the run, so the status is no answer
        status, says = f"{status}, stopped early", None
    verified = False
    if says is True and P is not None:
        P = P / np.outer(scales, scales)
        with np.errstate(all="ignore"):
            verified = question.slack(question.loop, 0.5 * (P + P.T)) > 0
    holds = None if margin is None or np.isnan(margin) else margin > 0
    wrong = None if says is None else not verified if says else bool(holds)
    agrees = None if says is None or holds is None else says == holds
    return Opinion(name, solver, status, says, t, verified, holds, margin, agrees, wrong, round(seconds, 3))


def _circle(system: LureSystem) -> _Question:
    loop, _, unit = centred_loop(system)

    def supply(at: StateSpace) -> Terms:
        return at.C.T @ at.C, at.C.T @ at.D, at.D.T @ at.D - np.eye(at.B.shape[1])

    def margin(deadline: Deadline) -> float:
        room = margin_of(spectral_rate(np.linalg.eigvals(loop.A), loop.is_discrete), loop)
        return unit * (1.0 - hinf_peak(loop, deadline=deadline).norm) if room > 0 else room

    return _Question(loop, supply, margin, bounded_real_slack)


def _kyp(system: LureSystem) -> _Question | None:
    transformed, wide = transformed_loop(system)
    if not wide.any():
        return None

    def margin(deadline: Deadline) -> float:
        return positivity_margin(transformed, deadline=deadline).margin

    def supply(at: StateSpace) -> Terms:
        return np.zeros_like(at.A), -at.C.T, -(at.D + at.D.T)

    return _Question(transformed, supply, margin, positive_real_slack)


_CRITERIA: dict[str, Callable[[LureSystem], _Question | None]] = {"small_gain": _circle, "circle": _kyp}
