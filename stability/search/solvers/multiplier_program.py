"""Semidefinite program for multipliers, by one solver after another until an answer is proved.

A solver's solution is scaled back and checked rigorously. If the check fails, the problem is solved again in the
coordinates of the last solution, with a larger margin or a tighter tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.solvers.deadline import Deadline, TimeLimit
from stability.search.solvers.rates import check_rate
from stability.search.solvers.scaling import Coordinates, balanced_coordinates, identity_coordinates
from stability.search.solvers.semidefinite import CLARABEL_STATES, pose_multiplier, solver_order

Array = np.ndarray
_MARGIN = 1e-3
"""Margin of the strict inequality in balanced coordinates; it is homogeneous, so no solution is lost."""


@dataclass(frozen=True, eq=False)
class ProgramResult:
    """Result of a semidefinite program.

    Attributes:
        status: ``feasible`` (proved), ``infeasible`` (a solver's claim), ``inconclusive`` or ``time limit``.
        P: ``(n, n)``, or ``None`` unless feasible.
        L: ``(m,)``, or ``None`` unless feasible.
        value: the minimized quantity, where there is one.
        detail: description of the attempts.
    """

    status: str
    P: Array | None = field(default=None, repr=False)
    L: Array | None = field(default=None, repr=False)
    value: float | None = None
    detail: str = ""

    @property
    def feasible(self) -> bool:
        """True if ``(P, L)`` was found and is proved."""
        return self.status == "feasible"


def problem_size(system: LureSystem) -> int:
    """Return the size of the largest matrix inequality of a multiplier program."""
    n, m = system.B.shape
    return n + m + (n if system.is_discrete and n > CLARABEL_STATES else 0)


@np.errstate(all="ignore")
def multiplier_lmi(
    system: LureSystem, rate: float, *, solver: str | None = None, time_limit: TimeLimit = None
) -> ProgramResult:
    """Find ``(P, L)`` of the multiplier inequality at a given rate.

    The program is ``P >= I``, ``lmi_matrix(P, L, rate) <= -margin I`` in balanced coordinates. Small systems
    maximize the margin at unit trace instead.

    Args:
        system: continuous or discrete, any slopes, any ``B``, ``C``, ``D``.
        rate: ``lambda`` (1/time) or ``rho`` (per step).
        solver: ``"CLARABEL"``, ``"SCS"``, or ``None`` to choose by size.
        time_limit: seconds for all attempts together.

    Returns:
        The result; feasible only if the answer is proved.

    Raises:
        ConfigurationError: bad options, or a system too large for a dense program.

    Example:
        >>> multiplier_lmi(LureSystem.recurrent([[-2.0]], [[1.0]]), 0.9).feasible
        True
        >>> multiplier_lmi(LureSystem.recurrent([[-2.0]], [[1.0]]), 1.1).status
        'infeasible'
    """
    rate = check_rate(rate, system.is_discrete)
    deadline = Deadline.from_limit(time_limit)
    tried: list[str] = []
    outcome = "inconclusive"
    for name in solver_order(solver, system.states, problem_size(system)):
        at: Coordinates | None = balanced_coordinates(system, rate)
        for round_ in range(4):
            if at is None:
                break
            margin, accuracy = _MARGIN * 4.0**round_, 1e-4 if round_ == 0 else 1e-7
            status, P, L, width = pose_multiplier(at, name, deadline, margin, accuracy)
            tried.append(f"{name} {status}")
            if status == "time limit":
                return ProgramResult(status, detail="; ".join(tried))
            if status == "infeasible":
                outcome = status
            if P is None or L is None:
                break
            p, l = at.back(P, L)
            if check_lmi(system, p, l, rate)[0]:
                unit = 2.0 ** -np.round(np.log2(np.abs(p).max()))
                return ProgramResult("feasible", unit * p, unit * l, detail="; ".join(tried))
            if width < -1e-7:  # not even the widest margin is one
                return ProgramResult("infeasible", detail="; ".join(tried))
            if round_ and abs(width) < 1e-9:
                break
            at = identity_coordinates(at, P)
    return ProgramResult(outcome, detail="; ".join(tried))
