"""What every semidefinite program here shares: its result, its limits, the choice of a solver by size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.errors import ConfigurationError

__all__ = ["CLARABEL_STATES", "MAX_SIZE", "MAX_STATES", "LmiResult", "check_rate", "solver_order"]

Array = np.ndarray
MAX_STATES = 160
"""Above, the dense program needs more memory than a workstation has."""
MAX_SIZE = 400
CLARABEL_STATES = 32
"""Above, an interior-point method takes minutes."""


@dataclass(frozen=True, eq=False)
class LmiResult:
    """What became of a semidefinite program.

    Attributes:
        status: ``feasible`` (re-checked in float64), ``infeasible`` (a solver's claim, proved where ``dual``
            is there), ``inconclusive`` or ``time limit``.
        P: ``(n, n)``, or ``None`` unless feasible.
        L: ``(m,)``, or ``None`` unless feasible.
        residual: slack of the inequalities at ``(P, L)`` beyond rounding errors, positive when feasible; when
            infeasible, minus the margin by which they cannot be met; NaN when unknown.
        value: the minimised quantity (squared overshoot, gain, ...), where there is one.
        dual: a matrix that proves infeasibility (``stability.solve.forms.dual_slack``), or ``None``.
        detail: what was tried, for a reader.
    """

    status: str
    P: Array | None = field(default=None, repr=False)
    L: Array | None = field(default=None, repr=False)
    residual: float = float("nan")
    value: float | None = None
    dual: Array | None = field(default=None, repr=False)
    detail: str = ""

    @property
    def feasible(self) -> bool:
        """Whether ``(P, L)`` is there and passed the check."""
        return self.status == "feasible"


def solver_order(solver: str | None, n: int, size: int) -> list[str]:
    """Which solvers to try, in order.

    Args:
        solver: a name, or ``None`` to choose by size.
        n: size of P.
        size: size of the inequality.

    Returns:
        Names of solvers.

    Raises:
        ConfigurationError: an unknown solver, or a problem too large for a dense program.

    Example:
        >>> solver_order(None, 8, 16), solver_order("scs", 8, 16)
        (['CLARABEL'], ['SCS'])
    """
    if n > MAX_STATES or size > MAX_SIZE:
        raise ConfigurationError(
            f"a semidefinite program with {n} states and an inequality of size {size} needs too much memory "
            f'(limits {MAX_STATES} and {MAX_SIZE}); use solver="riccati", which has no such limit'
        )
    if solver is None:
        if n <= 12 and size <= 40:
            return ["CLARABEL"]
        return ["SCS", "CLARABEL"] if n <= CLARABEL_STATES and size <= 2 * CLARABEL_STATES else ["SCS"]
    if not isinstance(solver, str) or solver.upper() not in ("CLARABEL", "SCS"):
        raise ConfigurationError(f"unknown semidefinite solver {solver!r}; the known ones are CLARABEL, SCS")
    return [solver.upper()]


def check_rate(rate: Any, discrete: bool) -> float:
    """The rate as a float.

    Raises:
        ConfigurationError: when it is not a finite number, or not positive in discrete time.
    """
    try:
        value = float(rate)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"rate must be a number, got {rate!r}") from error
    if not np.isfinite(value) or (discrete and value <= 0):
        raise ConfigurationError(f"rate must be finite, and positive per step in discrete time; got {rate!r}")
    return value
