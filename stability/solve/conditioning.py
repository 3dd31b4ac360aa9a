"""The smallest overshoot that a quadratic certificate can show."""

from __future__ import annotations

import numpy as np

from stability.solve.attempts import CLARABEL_STATES, LmiResult, check_rate, solver_order
from stability.solve.coordinates import balanced
from stability.solve.deadline import Deadline, TimeLimit
from stability.solve.forms import multiplier_slack
from stability.solve.lmi import pose_overshoot
from stability.solve.multiplier import problem_size
from stability.systems import LureSystem

__all__ = ["min_overshoot"]


@np.errstate(all="ignore")
def min_overshoot(
    system: LureSystem, rate: float, *, solver: str | None = None, time_limit: TimeLimit = None
) -> LmiResult:
    """The smallest overshoot ``sqrt(cond P)`` at a rate: minimise ``kappa`` subject to ``I <= P <= kappa I``.

    Args:
        system: the system.
        rate: ``lambda`` or ``rho``, certified (``multiplier_lmi`` feasible).
        solver: as in ``multiplier_lmi``.
        time_limit: seconds.

    Returns:
        The result with ``value = kappa = cond(P)`` of the P returned, so the overshoot is its square root.

    Raises:
        ConfigurationError: bad options, or a system too large for a dense program.

    Example:
        >>> round(min_overshoot(LureSystem.recurrent([[-2.0]], [[1.0]]), 0.5).value, 6)
        1.0
    """
    n = system.states
    rate = check_rate(rate, system.is_discrete)
    deadline = Deadline.after(time_limit).named("overshoot")
    order = solver_order(solver, n, problem_size(system))
    if solver is None and n <= CLARABEL_STATES:
        order = ["CLARABEL", "SCS"]
    at = balanced(system, rate)
    box = at.X.T @ at.X
    box = box / float(np.max(box))
    tried: list[str] = []
    for name in order:
        for margin in (1e-7, 1e-5, 1e-3):
            if deadline.over:
                return LmiResult("time limit", detail="; ".join(tried))
            status, P, L = pose_overshoot(at, box, name, deadline, margin)
            tried.append(f"{name} {status}")
            if P is None or L is None:
                continue
            p, l = at.back(P, L)
            slack = multiplier_slack(system, p, l, rate)
            if slack > 0:
                values = np.linalg.eigvalsh(p)
                cond = float(values[-1] / values[0])
                return LmiResult("feasible", p, l, slack, cond, detail="; ".join(tried))
    return LmiResult("infeasible" if "infeasible" in tried[-1] else "inconclusive", detail="; ".join(tried))
