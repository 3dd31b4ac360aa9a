"""Rates of decay: ``lambda >= 0`` per unit of time, ``0 < rho <= 1`` per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from stability.errors import ConfigurationError
from stability.kernel.systems.lure import LureSystem
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
Rate = str | float


def check_rate(rate: Any, discrete: bool) -> float:
    """Return the rate as a float.

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


def parse_rate(rate: Rate, system: Any) -> Rate:
    """Check the argument ``rate``: ``"any"``, ``"best"`` or a number valid for the time base.

    The number that means no more than stability (0, or 1 per step) is ``"any"``.

    Args:
        rate: the user's value.
        system: any subject with ``is_discrete``.

    Returns:
        The word, or the number as a float.

    Raises:
        ConfigurationError: for anything else.
    """
    if rate in ("any", "best"):
        return rate
    if isinstance(rate, (int, float, np.floating)) and not isinstance(rate, bool):
        value = float(rate)
        if value == start_rate(system):  # no more than stability: the rate that is found lies strictly inside
            return "any"
        if system.is_discrete and 0.0 < value <= 1.0:
            return value
        if not system.is_discrete and 0.0 <= value < 1e30:
            return value
    expected = "in (0, 1] per step" if system.is_discrete else ">= 0 per unit of time"
    raise ConfigurationError(f'rate must be "any", "best" or a number {expected}, got {rate!r}')


def start_rate(system: Any) -> float:
    """Return the rate of mere stability: 0 in continuous, 1 in discrete time."""
    return 1.0 if system.is_discrete else 0.0


def slow_rate(system: LureSystem) -> float:
    """Return a very slow exponential rate: strictly inside, and far below every other time scale."""
    if system.is_discrete:
        return 1.0 - 2.0**-30
    size = float(np.linalg.norm(system.A)) / np.sqrt(system.states)
    return float(2.0 ** np.floor(np.log2(min(max(size, 1e-200), 1e200)) - 24.0))


def reaches_rate(rate: float, target: Rate, discrete: bool) -> bool:
    """Return True if a rate reaches the requested one, or none was requested.

    Example:
        >>> reaches_rate(0.8, 0.9, True), reaches_rate(0.8, 0.9, False), reaches_rate(0.8, "best", False)
        (True, False, True)
    """
    if isinstance(target, str):
        return True
    return rate <= target if discrete else rate >= target


def shift_factor(system: Any, rate: float) -> float:
    """Return the factor of the shifted loop's multipliers: in discrete time ``A/rho, B/rho`` divides by ``rho^2``."""
    return rate * rate if system.is_discrete else 1.0


def margin_of(rate: float, system: Any) -> float:
    """Return the distance of a rate from the stability boundary: ``lambda``, or ``1 - rho``."""
    return 1.0 - rate if system.is_discrete else rate


def spectral_rate(eigenvalues: Array, discrete: bool) -> float:
    """Return the rate of a linear system: its spectral radius, or minus its spectral abscissa."""
    return float(np.abs(eigenvalues).max()) if discrete else -float(np.real(eigenvalues).max())


def quadratic_rate(A: Array, P: Array, discrete: bool) -> float:
    """Return the best rate of ``x' = A x`` in the norm of ``P``.

    Args:
        A: ``(n, n)``.
        P: ``(n, n)`` symmetric positive definite.
        discrete: whether time is discrete.

    Returns:
        The largest ``lambda`` with ``A^T P + P A + 2 lambda P <= 0``, or the smallest ``rho`` with
        ``A^T P A <= rho^2 P``; NaN when P is not positive definite.

    Example:
        >>> quadratic_rate(np.array([[-2.0]]), np.eye(1), False)
        2.0
        >>> quadratic_rate(np.array([[0.5]]), np.eye(1), True)
        0.5
    """
    try:
        R = np.linalg.cholesky(P).T
    except np.linalg.LinAlgError:
        return float("nan")
    moved = np.linalg.solve(R.T, (R @ A).T).T  # R A R^{-1}
    if discrete:
        return float(np.linalg.norm(moved, 2))
    return -float(np.linalg.eigvalsh(0.5 * (moved + moved.T))[-1])


def bisect(
    holds: Callable[[float], bool], inside: float, outside: float, tol: float, deadline: Deadline | None = None
) -> float:
    """Bisect for the last number that holds.

    Args:
        holds: monotone between the two.
        inside: holds.
        outside: does not.
        tol: absolute.
        deadline: checked before each step.

    Returns:
        The last number seen to hold.

    Example:
        >>> bisect(lambda x: x * x < 2.0, 1.0, 2.0, 1e-2)
        1.4140625
    """
    while abs(outside - inside) > tol and not (deadline is not None and deadline.over):
        middle = 0.5 * (inside + outside)
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def minimize_on_grid(function: Callable[[float], float], grid: Array, **options: Any) -> float:
    """Minimize a function on a grid, then by bounded search between the neighbors of the best point.

    Args:
        function: function of one number.
        grid: ``(k,)`` increasing points.
        options: options of ``scipy.optimize.minimize_scalar``.

    Returns:
        The better one of both points.
    """
    values = [function(float(x)) for x in grid]
    i = int(np.argmin(values))
    bounds = (grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)])
    minimum: Any = minimize_scalar(function, bounds=bounds, method="bounded", options=options)
    return min((float(minimum.x), float(grid[i])), key=function)
