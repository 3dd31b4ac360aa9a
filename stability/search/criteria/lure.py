"""Criteria for Lur'e systems: one by its name, or all of them in order of cost until one proves contraction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.errors import StabilityError, UnsupportedError
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.circle import kyp_criterion, kyp_margin
from stability.search.criteria.linear import linear_criterion
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.criteria.schur import schur_criterion
from stability.search.criteria.small_gain import circle_criterion, circle_margin
from stability.search.criteria.theorem1 import theorem1_system
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.loop_transformation import centered_loop, state_scales
from stability.search.solvers.rates import Rate
from stability.search.solvers.scaling import power_of_two

Array = np.ndarray

MAX_STATES_OF_CONTAINED = 256
"""Largest number of states for which ``auto`` evaluates criteria that the multiplier inequality contains: each costs a
dozen eigenvalue problems of a Hamiltonian of twice that size, and adds a margin but no proof.
"""
SHARE_OF_CONTAINED = 0.3
"""Share of the remaining time for these criteria if they search their own best rates; the multiplier needs the rest."""


@dataclass(frozen=True)
class Options:
    """Checked options of one call of ``certify``.

    Attributes:
        criterion: ``"auto"``, or the name of one criterion.
        solver: solver of the multiplier criterion.
        rate: ``"best"``, ``"any"``, or a number: at least this rate.
        tol: relative tolerance of the best rate, or ``None``.
        deadline: time limit of the whole call.
        seed: seed of the searches.
        use: known conditions of use: ``input_range``, ``start``, ``horizon``.
        refute: search for a counterexample where nothing is proved.
        searched: search also for the best rates of criteria that the proved one contains.
        input_box: ``(low, high)``, the range that every input stays in, or ``None``.
    """

    criterion: str
    solver: str
    rate: Rate
    tol: float | None
    deadline: Deadline
    seed: int
    use: Mapping[str, Any]
    refute: bool
    searched: bool = False
    input_box: Any = None


def _construction_finding(system: LureSystem, witness: Any) -> list[Finding]:
    """Check the proof that a model contracting by construction carries, on the system as stored."""
    if not isinstance(witness, dict) or not {"P", "L", "rate"} <= set(witness):
        return []
    p, multipliers, rate = np.array(witness["P"], float), np.array(witness["L"], float), float(witness["rate"])
    p = 0.5 * (p + p.T)
    valid, reason = check_lmi(system, p, multipliers, rate)
    if not valid:
        return [Finding("construction", False, None, f"the proof stored with the model does not hold: {reason}")]
    margin = 1.0 - rate if system.is_discrete else rate
    return [Finding("construction", True, margin, "contracting by construction", rate, {"P": p, "L": multipliers})]


def guarded_findings(name: str, criterion: Callable[[], Iterable[Finding]], deadline: Deadline) -> list[Finding]:
    """Evaluate a criterion; a timeout or a LAPACK failure on extreme entries becomes a finding."""
    if deadline.stops(name):
        return [Finding(name, False, None, "not evaluated: the time limit was reached")]
    try:
        with np.errstate(all="ignore"):
            return list(criterion())
    except StabilityError:
        raise
    except (ArithmeticError, np.linalg.LinAlgError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        return [Finding(name, False, None, f"not evaluated, numerical failure: {reason}")]


def _theorem1(system: LureSystem, options: Options) -> list[Finding]:
    """Evaluate Theorem 1; for a discretized system about its differential equation, without certifying it."""
    behind = system.origin.base if system.origin is not None else system
    findings = theorem1_system(behind, time_limit=options.deadline)
    cases = {"theorem1a": [findings.a], "theorem1b": [findings.b_published, findings.b_sound]}
    out = cases.get(options.criterion, [*cases["theorem1a"], *cases["theorem1b"]])
    if behind is system:
        return out
    about = "about the differential equation, not about the discrete map"
    return [Finding(f.criterion, f.holds, f.margin, f"{about}: {f.detail}", f.rate) for f in out]


_CRITERIA: dict[str, Callable[[LureSystem, Options], list[Finding]]] = {
    "linear": lambda s, o: [linear_criterion(s, rate=o.rate)],
    "theorem1": _theorem1,
    "schur": lambda s, o: [schur_criterion(s, rate=o.rate, time_limit=o.deadline)],
    "small_gain": lambda s, o: [circle_criterion(s, rate=o.rate, time_limit=o.deadline)],
    "circle": lambda s, o: [kyp_criterion(s, rate=o.rate, time_limit=o.deadline)],
    "multiplier": lambda s, o: [
        multiplier_criterion(s, rate=o.rate, solver=o.solver, tol=o.tol, time_limit=o.deadline)
    ],
}
NAMES = ("theorem1a", "theorem1b", "schur", "small_gain", "circle", "multiplier", "linear")
BY_RICCATI = ("linear", "circle", "multiplier")
"""Criteria whose solvers lose all digits in states of very different scales, as in companion forms."""
MOST_BALANCED = 64
"""Largest number of states for this: a second search costs as much as the first."""
UNBALANCED = 2.0**8
"""Ratio of the scales of states from which on these criteria are tried in balanced states; a power of two is exact."""
_MARGINS = {"small_gain": circle_margin, "circle": kyp_margin}
"""Margins of criteria that the multiplier inequality contains."""


def _evaluated(name: str, system: LureSystem, options: Options) -> list[Finding]:
    """Evaluate a criterion, once more in balanced states if it proves nothing for states of very different scales."""
    findings = guarded_findings(name, lambda: _CRITERIA[name](system, options), options.deadline)
    if name not in BY_RICCATI or system.states > MOST_BALANCED or any(f.witness for f in findings):
        return findings
    with np.errstate(all="ignore"):
        t = state_scales(centered_loop(system))
        A, B, C = system.A * t / t[:, None], system.B / t[:, None], system.C * t
    if not t.max() > UNBALANCED * t.min() or not all(np.isfinite(part).all() for part in (A, B, C)):
        return findings
    balanced = LureSystem(A, B, C, system.D, (system.alpha, system.beta), system.dt)
    again = guarded_findings(name, lambda: _CRITERIA[name](balanced, options), options.deadline)
    return [_in_own_states(f, t) for f in again] if any(f.witness for f in again) else findings


def _in_own_states(finding: Finding, t: Array) -> Finding:
    """Return a finding about balanced states ``y``, ``x = t y``, with its witness in the states ``x``."""
    P = finding.witness["P"] / t / t[:, None]
    unit = 1.0 / power_of_two(float(np.abs(P).max()))
    return replace(finding, witness={**finding.witness, "P": unit * P, "L": unit * finding.witness["L"]})


def _has_one_slope(system: LureSystem) -> bool:
    return system.channels == 0 or bool((system.alpha == system.beta).all())


def lure_findings(system: LureSystem, options: Options, witness: Any) -> list[Finding]:
    """Evaluate one criterion by its name, or criteria in order of cost until one answers.

    Args:
        system: the system.
        options: options of the call.
        witness: the proof that a model carries with it, or ``None``.

    Returns:
        The findings; the multiplier criterion, which contains all others, comes last.

    Raises:
        UnsupportedError: the linear criterion for a system with a nonlinear channel.
    """
    if options.criterion == "auto":
        return _in_order_of_cost(system, options, _construction_finding(system, witness))
    if options.criterion == "linear" and not _has_one_slope(system):
        raise UnsupportedError("criterion linear needs a system without nonlinear channels: leave the criterion out")
    return _evaluated("theorem1" if options.criterion.startswith("theorem1") else options.criterion, system, options)


def _in_order_of_cost(system: LureSystem, options: Options, findings: list[Finding]) -> list[Finding]:
    """Evaluate criteria from cheap to strong; for ``rate="any"`` stop at the first that proves one."""
    rated, small = options.rate != "any", system.states <= MAX_STATES_OF_CONTAINED
    if _has_one_slope(system):  # an eigenvalue problem, and exact
        findings += _evaluated("linear", system, options)
        if findings[-1].holds or system.channels == 0:
            return findings
    for name in ("theorem1", "schur") if rated or small else ("schur",):  # singular values; a Perron vector
        findings += _evaluated(name, system, options)
        if not rated and any(f.holds and f.witness for f in findings):
            return findings
    if rated and small and options.searched:
        brief = replace(options, deadline=options.deadline.share(SHARE_OF_CONTAINED))
        findings += [f for name in _MARGINS for f in _evaluated(name, system, brief)]
    multiplier = _evaluated("multiplier", system, options)
    if rated and small and not options.searched:
        for name, margin in _MARGINS.items():  # all that is left to know once the multiplier inequality is proved
            if multiplier[-1].holds and options.rate == "best":
                findings += guarded_findings(
                    name, lambda m=margin: [m(system, time_limit=options.deadline)], options.deadline
                )
            else:
                findings += _evaluated(name, system, options)
    return findings + multiplier
