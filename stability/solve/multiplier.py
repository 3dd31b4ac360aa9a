"""The multiplier program: solver after solver until an answer passes.

What a solver returns is scaled back, its inequality evaluated in float64, and accepted only when the smallest
eigenvalue exceeds the rounding errors; otherwise the problem is posed again in the coordinates of the last answer, with
a larger margin or a tighter tolerance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.solve.attempts import CLARABEL_STATES, LmiResult, check_rate, solver_order
from stability.solve.coordinates import Coordinates, balanced, recentred
from stability.solve.deadline import Deadline, TimeLimit
from stability.solve.forms import Blocks, dual_slack, multiplier_slack
from stability.solve.lmi import pose_multiplier
from stability.systems import LureSystem

__all__ = ["multiplier_lmi", "problem_size"]

Array = np.ndarray


def problem_size(system: LureSystem | Blocks) -> int:
    """Size of the largest matrix inequality of a multiplier program."""
    n, m = system.B.shape
    return n + m + (n if system.is_discrete and n > CLARABEL_STATES else 0)


@np.errstate(all="ignore")
def multiplier_lmi(
    system: LureSystem,
    rate: float,
    *,
    solver: str | None = None,
    margin: float = 1e-3,
    fixed_multiplier: Any = None,
    time_limit: TimeLimit = None,
) -> LmiResult:
    """Existence of ``(P, L)`` for the multiplier inequality at a given rate.

    The program is ``P >= I``, ``multiplier_form(P, L, rate) <= -margin I`` in balanced coordinates; being
    homogeneous it loses no solution by the margin. Small systems maximise the margin at unit trace instead,
    which also yields the dual matrix that proves infeasibility (``stability.solve.forms.dual_slack``).

    Args:
        system: continuous or discrete, any slopes, any ``B``, ``C``, ``D``.
        rate: ``lambda`` (1/time) or ``rho`` (per step).
        solver: ``"CLARABEL"``, ``"SCS"``, or ``None`` to choose by size.
        margin: explicit margin of the strict inequality, in balanced coordinates.
        fixed_multiplier: ``(m,)`` non-negative; then L is this vector times a free number.
        time_limit: seconds for all attempts together.

    Returns:
        The result; feasible only if the answer passed the float64 check.

    Raises:
        ConfigurationError: bad options, or a system too large for a dense program.

    Example:
        >>> multiplier_lmi(LureSystem.recurrent([[-2.0]], [[1.0]]), 0.9).feasible
        True
        >>> multiplier_lmi(LureSystem.recurrent([[-2.0]], [[1.0]]), 1.1).status
        'infeasible'
    """
    n, m = system.B.shape
    rate = check_rate(rate, system.is_discrete)
    deadline = Deadline.after(time_limit)
    order = solver_order(solver, n, problem_size(system))
    start = balanced(system, rate)
    fixed = None
    if fixed_multiplier is not None:
        fixed = np.asarray(fixed_multiplier, dtype=np.float64)
        if fixed.shape != (m,) or not np.isfinite(fixed).all() or (fixed < 0).any():
            raise ConfigurationError(f"fixed_multiplier must hold {m} finite numbers >= 0")
        fixed = fixed / start.r**2
        fixed = fixed / max(float(fixed.max(initial=0.0)), np.finfo(float).tiny)
    return _climb(system, rate, start, order, deadline, margin, fixed)


def _climb(
    system: LureSystem,
    rate: float,
    start: Coordinates,
    order: list[str],
    deadline: Deadline,
    margin: float,
    fixed: Array | None,
) -> LmiResult:
    """Try solver after solver, each answer giving the coordinates of the next attempt, until one passes."""
    tried: list[str] = []
    claim, best = "", -np.inf
    for solver in order:
        at: Coordinates | None = start
        for round_ in range(4):
            if at is None:
                break
            widest = solver == "CLARABEL"
            status, P, L, width, dual = pose_multiplier(
                at,
                solver,
                deadline,
                margin * 4.0**round_,
                fixed,
                widest,
                1e-4 if round_ == 0 else 1e-7,
            )
            tried.append(f"{solver} {status}")
            if status == "time limit":
                return LmiResult(status, residual=best, detail="; ".join(tried))
            if status == "infeasible":
                claim = status
                break
            if P is None or L is None:
                break
            p, l = at.back(P, L)
            slack = multiplier_slack(system, p, l, rate)
            best = max(best, slack)
            if slack > 0:
                unit = 2.0 ** -np.round(np.log2(np.abs(p).max()))
                return LmiResult("feasible", unit * p, unit * l, slack, detail="; ".join(tried))
            if widest and width < -1e-7:
                return _infeasible(at, width, dual, tried)
            if widest and round_ and abs(width) < 1e-9:
                break
            at = recentred(at, P)
    status = "infeasible" if claim else "inconclusive"
    return LmiResult(status, residual=best if np.isfinite(best) else float("nan"), detail="; ".join(tried))


def _infeasible(at: Coordinates, width: float, dual: Array | None, tried: list[str]) -> LmiResult:
    """Infeasible by a negative widest margin; with the dual matrix in original coordinates when it checks."""
    size = sum(at.blocks.B.shape)
    proved = dual is not None and dual_slack(at.blocks, dual[:size, :size], at.rate) > 0
    proof = at.dual_back(dual[:size, :size]) if proved and dual is not None else None
    return LmiResult("infeasible", residual=width, dual=proof, detail="; ".join(tried))
