"""The ladder of criteria for Lur'e systems: from cheap to strong, up to the one that answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from stability.certificate import Finding
from stability.errors import StabilityError, UnsupportedError
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.circle import circle_criterion, circle_margin
from stability.search.criteria.kyp import kyp_criterion, kyp_margin
from stability.search.criteria.linear import linear_criterion
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.criteria.schur import schur_criterion
from stability.search.criteria.theorem1 import theorem1_system
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.rates import Rate

_LARGE = 256
"""Beyond this many states, ``auto`` leaves out the criteria that the multiplier inequality contains."""


@dataclass(frozen=True)
class Question:
    """The options of one call of ``certify``, checked."""

    criterion: str
    solver: str
    rate: Rate
    tol: float | None
    deadline: Deadline
    seed: int
    use: Mapping[str, Any]  # what is known of it: range of inputs, initial state, number of steps
    refute: bool  # search for a witness where nothing is proved
    searched: bool = False  # criteria that the proved one contains look for their own best rates, too
    further: bool = True  # claims beside the main one are wanted


def _own_finding(system: LureSystem, witness: Any) -> list[Finding]:
    """The proof that a model contracting by construction carries, if it holds for the system as stored."""
    if not isinstance(witness, dict) or not {"P", "L", "rate"} <= set(witness):
        return []
    p, multipliers, rate = np.array(witness["P"], float), np.array(witness["L"], float), float(witness["rate"])
    p = 0.5 * (p + p.T)
    valid, reason = check_lmi(system, p, multipliers, rate)
    if not valid:
        return [Finding("construction", False, None, f"the model's own witness does not hold: {reason}")]
    margin = 1.0 - rate if system.is_discrete else rate
    return [Finding("construction", True, margin, "contracting by construction", rate, {"P": p, "L": multipliers})]


def tried(name: str, criterion: Callable[[], Iterable[Finding]], deadline: Deadline) -> list[Finding]:
    """A criterion's findings; on entries so extreme that LAPACK gives up, or with no time left, one that says so."""
    if deadline.stops(name):
        return [Finding(name, False, None, "not tried: the time limit came first")]
    try:
        with np.errstate(all="ignore"):
            return list(criterion())
    except StabilityError:
        raise
    except (ArithmeticError, np.linalg.LinAlgError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        return [Finding(name, False, None, f"numerically out of reach: {reason}")]


def _theorem1(system: LureSystem, question: Question) -> list[Finding]:
    """Theorem 1; for a discretised system about the differential equation behind it, and then it cannot certify."""
    behind = system.origin.base if system.origin is not None else system
    found = theorem1_system(behind, time_limit=question.deadline)
    cases = {"theorem1a": [found.a], "theorem1b": [found.b_published, found.b_sound]}
    out = cases.get(question.criterion, [*cases["theorem1a"], *cases["theorem1b"]])
    if behind is system:
        return out
    about = "about the differential equation, not the map that runs"
    return [Finding(f.criterion, f.holds, f.margin, f"{about}: {f.detail}", f.rate) for f in out]


def _has_one_slope(system: LureSystem) -> bool:
    return system.channels == 0 or bool((system.alpha == system.beta).all())


class _Rung(NamedTuple):
    """One criterion of the ladder for Lur'e systems, or a group of them: who asks for it by name gets it."""

    name: str
    find: Callable[[LureSystem, Question], Iterable[Finding]]
    auto: Callable[[LureSystem, bool], bool]
    """Which systems ``auto`` tries it on, by whether a rate is wanted."""
    share: float = 1.0
    """Of the time left, in ``auto``."""
    margin: Callable[..., Finding] | None = None
    """Of one that the multiplier inequality contains: where that is proved, this evaluation serves."""


def _alone(criterion: Callable[..., Finding]) -> Callable[[LureSystem, Question], list[Finding]]:
    return lambda system, question: [criterion(system, rate=question.rate, time_limit=question.deadline)]


def _multiplier(system: LureSystem, question: Question) -> list[Finding]:
    options: dict[str, Any] = {"rate": question.rate, "solver": question.solver, "tol": question.tol}
    return [multiplier_criterion(system, **options, time_limit=question.deadline)]


_LADDER = (
    # cost at one rate: an eigenvalue problem
    _Rung("linear", lambda s, q: [linear_criterion(s, rate=q.rate)], lambda system, rated: _has_one_slope(system)),
    # singular values
    _Rung("theorem1", _theorem1, lambda system, rated: rated or system.states <= _LARGE),
    # eigenvectors of a non-negative matrix
    _Rung("schur", _alone(schur_criterion), lambda system, rated: True),
    # H-infinity norms: a dozen Hamiltonian eigenvalue problems each
    _Rung(
        "circle", _alone(circle_criterion), lambda system, rated: rated and system.states <= _LARGE, 0.3, circle_margin
    ),
    _Rung("kyp", _alone(kyp_criterion), lambda s, rated: rated and s.states <= _LARGE, 0.3, kyp_margin),
    # Riccati equations in a search for multipliers, or a semidefinite program
    _Rung("multiplier", _multiplier, lambda system, rated: True),
)
"""From cheap to strong: the last contains all the others; those that it makes needless leave it most of the time."""


def lure_findings(system: LureSystem, question: Question, witness: Any) -> list[Finding]:
    """The ladder, up to the rung that answers."""
    auto, rated = question.criterion == "auto", question.rate != "any"
    if question.criterion == "linear" and not _has_one_slope(system):
        raise UnsupportedError("the linear criterion is for systems without a nonlinear channel")
    findings, ends = _own_finding(system, witness) if auto else [], {1.0: question.deadline}
    rungs = [r for r in _LADDER if (r.auto(system, rated) if auto else question.criterion.startswith(r.name))]
    contained = [r for r in rungs if r.margin is not None and auto and not question.searched]
    for rung in rungs:
        if rung in contained:
            continue
        if auto and rung.share not in ends:
            ends[rung.share] = question.deadline.share(rung.share)
        asked = replace(question, deadline=ends.get(rung.share, question.deadline))
        findings += tried(rung.name, lambda rung=rung, asked=asked: rung.find(system, asked), question.deadline)
        exact = rung.name == "linear" and (findings[-1].holds or system.channels == 0)
        if exact or (rung.name != "linear" and not rated and any(f.holds and f.witness for f in findings)):
            return findings
    proved = bool(contained) and findings[-1].holds  # the last rung's finding
    for rung in contained:

        def find(rung: _Rung = rung) -> Iterable[Finding]:
            if rung.margin is not None and proved and question.rate == "best":
                return [rung.margin(system, time_limit=question.deadline)]
            return rung.find(system, question)

        findings[-1:-1] = tried(rung.name, find, question.deadline)
    return findings


def fast_enough(rate: float, wanted: Rate, discrete: bool) -> bool:
    """Whether a rate reaches the one that was asked for, if one was.

    Example:
        >>> fast_enough(0.8, 0.9, True), fast_enough(0.8, 0.9, False), fast_enough(0.8, "best", False)
        (True, False, True)
    """
    if isinstance(wanted, str):
        return True
    return rate <= wanted if discrete else rate >= wanted
