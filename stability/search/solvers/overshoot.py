r"""Overshoot of a quadratic norm: square root of the condition number of ``P``, and its minimization.

For given multipliers the solutions of the bounded real inequality lie between a smallest and a largest one,
:math:`P_- \le P \le P_+`, and form a convex set. :math:`P_-` comes from the Riccati equation of the loop,
:math:`P_+^{-1}` from that of the transposed loop. The condition number is quasi-convex along the segment between them,
and often smaller in its middle than at its ends by orders of magnitude. With free multipliers the smallest condition
number is the value of a semidefinite program.

Source: J. C. Willems, Least squares stationary optimal control and the algebraic Riccati equation, IEEE TAC 16 (1971).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.solvers.deadline import Deadline, TimeLimit
from stability.search.solvers.multiplier_program import ProgramResult, problem_size
from stability.search.solvers.rates import check_rate
from stability.search.solvers.riccati import bounded_real
from stability.search.solvers.scaling import balanced_coordinates
from stability.search.solvers.semidefinite import CLARABEL_STATES, pose_overshoot, solver_order
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
_WORST = 1e3
"""Value that replaces larger logarithms of condition numbers, and those that are not computed for lack of time."""


def condition_number(P: Array) -> float:
    """Return ``lambda_max / lambda_min`` of a symmetric matrix, infinite unless it is positive definite.

    Example:
        >>> condition_number(np.diag([1.0, 4.0]))
        4.0
    """
    values = np.linalg.eigvalsh(P)
    return float(values[-1] / values[0]) if values[0] > 0 else np.inf


def well_conditioned(loop: StateSpace, P: Array, most: int = 24, *, deadline: Deadline | None = None) -> Array | None:
    """Return the best conditioned matrix on the segment from ``P`` to the largest solution.

    Args:
        loop: the shifted and scaled loop.
        P: ``(n, n)``, a solution of its bounded real inequality.
        most: evaluations of the condition number.
        deadline: checked before each evaluation.

    Returns:
        ``(n, n)``, an unchecked candidate, or ``None`` if none is better conditioned than ``P``.

    Cost:
        One to four Riccati attempts and at most ``most`` spectra of symmetric matrices.
    """
    other = loop.transposed()
    deadline = deadline or Deadline()
    slacks = (slack for slack in (1e-4, 1e-6, 1e-8, 1e-10) if not deadline.over)
    attempts = (bounded_real(other, slack, deadline=deadline) for slack in slacks)
    inverse = next((x for x in attempts if x is not None), None)
    if inverse is None:
        return None
    try:
        largest = np.linalg.inv(inverse)
    except np.linalg.LinAlgError:
        return None
    largest = 0.5 * (largest + largest.T)
    if not np.isfinite(largest).all():
        return None

    def mixed(u: float) -> Array:
        share = 1.0 / (1.0 + np.exp(-u))
        return (1.0 - share) * P + share * largest

    def logarithm(u: float) -> float:
        return _WORST if deadline.over else min(float(np.log(condition_number(mixed(u)))), _WORST)

    options = {"xatol": 0.02, "maxiter": most}
    minimum: Any = minimize_scalar(logarithm, bounds=(-18.0, 6.0), method="bounded", options=options)
    best = mixed(minimum.x)
    return best if minimum.fun < _WORST and condition_number(best) < condition_number(P) else None


@np.errstate(all="ignore")
def min_overshoot(
    system: LureSystem, rate: float, *, solver: str | None = None, time_limit: TimeLimit = None
) -> ProgramResult:
    """Minimize the overshoot ``sqrt(cond P)`` at a rate: ``kappa`` subject to ``I <= P <= kappa I``.

    Args:
        system: the system.
        rate: ``lambda`` or ``rho`` for which ``multiplier_lmi`` is feasible.
        solver: see ``multiplier_lmi``.
        time_limit: seconds.

    Returns:
        The result with ``value = kappa = cond(P)``, whose square root is the overshoot.

    Raises:
        ConfigurationError: invalid options, or a system too large for a dense program.

    Example:
        >>> round(min_overshoot(LureSystem.recurrent([[-2.0]], [[1.0]]), 0.5).value, 6)
        1.0
    """
    n = system.states
    rate = check_rate(rate, system.is_discrete)
    deadline = Deadline.from_limit(time_limit).named("overshoot")
    order = solver_order(solver, n, problem_size(system))
    if solver is None and n <= CLARABEL_STATES:
        order = ["CLARABEL", "SCS"]
    at = balanced_coordinates(system, rate)
    box = at.X.T @ at.X
    box = box / float(np.max(box))
    tried: list[str] = []
    for name in order:
        for margin in (1e-7, 1e-5, 1e-3):
            if deadline.over:
                return ProgramResult("time limit", detail="; ".join(tried))
            status, P, L = pose_overshoot(at, box, name, deadline, margin)
            tried.append(f"{name} {status}")
            if P is None or L is None:
                continue
            p, l = at.back(P, L)
            if check_lmi(system, p, l, rate)[0]:
                return ProgramResult("feasible", p, l, condition_number(p), "; ".join(tried))
    return ProgramResult("infeasible" if "infeasible" in tried[-1] else "inconclusive", detail="; ".join(tried))
