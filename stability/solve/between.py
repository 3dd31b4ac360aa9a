r"""A metric of small overshoot among all that prove one rate with the same multipliers.

For given multipliers the solutions of the bounded real inequality lie between a smallest and a largest one,
:math:`P_- \le P \le P_+`, and form a convex set. :math:`P_-` comes from the Riccati equation of the loop,
:math:`P_+^{-1}` from that of the transposed loop. The condition number is quasi-convex along the segment between them,
and in its middle often smaller by orders of magnitude than at either end.

Source: J. C. Willems, Least squares stationary optimal control and the algebraic Riccati equation, IEEE TAC 16 (1971).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from stability.solve.deadline import Deadline, TimeOverError
from stability.solve.loop import Loop
from stability.solve.riccati import bounded_real

__all__ = ["condition_number", "transposed", "well_conditioned"]

Array = np.ndarray


def transposed(loop: Loop) -> Loop:
    """The loop with the transposed transfer matrix; its solutions are the inverses of the loop's.

    Args:
        loop: the loop.

    Returns:
        The transposed loop.
    """
    return Loop(loop.A.T, loop.C.T, loop.B.T, loop.D.T, loop.is_discrete)


def condition_number(P: Array) -> float:
    """``lambda_max / lambda_min`` of a symmetric matrix, infinite where it is not positive definite.

    Example:
        >>> condition_number(np.diag([1.0, 4.0]))
        4.0
    """
    values = np.linalg.eigvalsh(P)
    return float(values[-1] / values[0]) if values[0] > 0 else np.inf


def well_conditioned(loop: Loop, P: Array, most: int = 24, *, deadline: Deadline | None = None) -> Array | None:
    """The best conditioned matrix on the segment from ``P`` to the largest solution.

    Args:
        loop: the shifted and scaled loop.
        P: ``(n, n)``, a solution of its bounded real inequality.
        most: evaluations of the condition number.
        deadline: asked before each of them; the best so far is the answer.

    Returns:
        ``(n, n)``, a candidate as any other, or ``None`` where none better than ``P`` was found.

    Cost:
        One to four Riccati attempts and at most ``most`` spectra of symmetric matrices.
    """
    other = transposed(loop)
    deadline = deadline or Deadline()
    slacks = (slack for slack in (1e-4, 1e-6, 1e-8, 1e-10) if not deadline.over)
    attempts = (bounded_real(other, slack, deadline=deadline).P for slack in slacks)
    inverse = next((x for x in attempts if x is not None), None)
    if inverse is None or not np.isfinite(inverse).all():
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

    seen: dict[float, float] = {}

    def logarithm(u: float) -> float:
        deadline.require()
        seen[u] = min(float(np.log(condition_number(mixed(u)))), 1e3)
        return seen[u]

    try:
        minimize_scalar(logarithm, bounds=(-18.0, 6.0), method="bounded", options={"maxiter": most, "xatol": 0.02})
    except TimeOverError:
        if not seen:
            return None
    best = mixed(min(seen, key=lambda u: seen[u]))
    return best if condition_number(best) < condition_number(P) else None
