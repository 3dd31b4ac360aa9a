"""Functions of one number, by ``scipy.optimize``, which is loaded when one is asked about.

It takes as long to load as the rest of the ground floor, and whoever verifies a certificate never asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[[float], float]


def minimum(f: Function, low: float, high: float, *, xatol: float = 1e-5, maxiter: int = 500) -> tuple[float, float]:
    """A local minimum between two ends, by Brent's method.

    Args:
        f: the function.
        low: the left end.
        high: the right end.
        xatol: absolute accuracy of the point.
        maxiter: attempts at most.

    Returns:
        The point and the value there.

    Example:
        >>> point, value = minimum(lambda x: (x - 0.5) ** 2, 0.0, 2.0)
        >>> round(point, 6), round(value, 6)
        (0.5, 0.0)
    """
    from scipy.optimize import minimize_scalar

    options = {"xatol": xatol, "maxiter": maxiter}
    found: Any = minimize_scalar(f, bounds=(low, high), method="bounded", options=options)
    return float(found.x), float(found.fun)


def root(f: Function, low: float, high: float, *, xtol: float, rtol: float, maxiter: int) -> float:
    """A zero between two ends where the function has different signs, by Brent's method.

    Args:
        f: the function.
        low: the left end.
        high: the right end.
        xtol: absolute accuracy.
        rtol: relative accuracy.
        maxiter: attempts at most.

    Raises:
        ValueError: the same sign at both ends.

    Example:
        >>> round(root(lambda x: x * x - 2.0, 0.0, 2.0, xtol=1e-9, rtol=1e-9, maxiter=80), 6)
        1.414214
    """
    from scipy.optimize import brentq

    found: Any = brentq(f, low, high, xtol=xtol, rtol=np.float64(rtol), maxiter=maxiter)
    return float(found)
