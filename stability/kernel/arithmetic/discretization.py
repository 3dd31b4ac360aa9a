"""Forward Euler and explicit midpoint rule over any matrix arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice, refuse_rounded


def check_integrator(method: Any) -> None:
    """Raise an error for an unknown integrator.

    Raises:
        ConfigurationError: for any other name than ``euler`` and ``midpoint``.
    """
    as_choice("integrator", method, ("euler", "midpoint"))


def as_step(dt: Any, expected: str = "a positive number") -> float:
    """Return a checked step size.

    Raises:
        ConfigurationError: no positive, finite number.
    """
    try:
        step = float(dt)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"dt must be {expected}, got {dt!r}") from error
    refuse_rounded("dt", np.reshape(dt, 1), np.array([step]))
    if not (np.isfinite(step) and step > 0):
        raise ConfigurationError(f"dt must be {expected}, got {step}")
    return step


def step_matrices(
    method: str,
    matrices: tuple[Any, Any, Any, Any],
    dt: Any,
    half: Any,
    *,
    times: Callable[[Any, Any], Any] = operator.matmul,
    block: Callable[[list[list[Any]]], Any] = np.block,
) -> tuple[Any, Any, Any, Any]:
    r"""Return ``A, B, C, D`` of the discrete map, in the arithmetic of the given matrices.

    Euler: :math:`x^+ = (I + dt\,A) x + dt\,B w` with unchanged channels. Midpoint, with ``2 m`` channels:

    .. math:: g = x + \tfrac{dt}{2} (A x + B w_1), \quad x^+ = x + dt (A g + B w_2), \quad
              z_1 = C x + D w_1, \quad z_2 = C g + D w_2 .

    Args:
        method: ``"euler"`` or ``"midpoint"``.
        matrices: ``A (n, n)``, ``B (n, m)``, ``C (m, n)``, ``D (m, m)``.
        dt: the step, a number or what stands for one.
        half: half of it.
        times: the matrix product.
        block: the block matrix of rows of blocks.

    Returns:
        The four matrices of the map.

    Raises:
        ConfigurationError: an integrator that is neither.

    Example:
        >>> one = np.ones((1, 1))
        >>> [x.tolist() for x in step_matrices("euler", (-one, one, one, 0 * one), 0.5, 0.25)]
        [[[0.5]], [[0.5]], [[1.0]], [[0.0]]]
    """
    check_integrator(method)
    a, b, c, d = matrices
    identity = np.eye(a.shape[0])
    if method == "euler":
        return identity + dt * a, dt * b, c, d
    return (
        identity + dt * a + dt * half * times(a, a),
        block([[dt * half * times(a, b), dt * b]]),
        block([[c], [c + half * times(c, a)]]),
        block([[d, d - d], [half * times(c, b), d]]),
    )
