"""Functions of one number: Brent's two methods, written out.

``scipy.optimize`` has them, too, and takes as long to load as numpy and ``scipy.linalg`` together. The steps are the
same ones, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Function = Callable[[float], float]
_GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
_ROUNDING = math.sqrt(2.2e-16)


def minimum(f: Function, low: float, high: float, *, xatol: float = 1e-5, maxiter: int = 500) -> tuple[float, float]:
    """A local minimum between two ends, by Brent's method: parabolas where they help, golden sections elsewhere.

    Args:
        f: the function.
        low: the left end.
        high: the right end.
        xatol: absolute accuracy of the point.
        maxiter: attempts at most.

    Returns:
        The point and the value there.

    Raises:
        ValueError: ends that are not finite or crossed.

    Source:
        R. P. Brent, Algorithms for minimization without derivatives (1973), chapter 5.

    Example:
        >>> point, value = minimum(lambda x: (x - 0.5) ** 2, 0.0, 2.0)
        >>> round(point, 6), round(value, 6)
        (0.5, 0.0)
    """
    a, b = float(low), float(high)
    if not (math.isfinite(a) and math.isfinite(b) and a <= b):
        raise ValueError(f"a minimum is looked for between two finite ends in order, got {low} and {high}")
    x = a + _GOLDEN * (b - a)
    best = second = third = (x, float(f(x)))  # by value, not by place
    last = before = 0.0  # the last step and the one before it
    for _ in range(maxiter - 1):
        x, middle = best[0], 0.5 * (a + b)
        tol = _ROUNDING * abs(x) + xatol / 3.0
        if not abs(x - middle) > 2.0 * tol - 0.5 * (b - a):
            break
        step = _parabola(best, second, third, a, b, before) if abs(before) > tol else None
        if step is None:
            before = a - x if x >= middle else b - x
            last = _GOLDEN * before
        else:
            before, last = last, step
            if x + step - a < 2.0 * tol or b - (x + step) < 2.0 * tol:
                last = math.copysign(tol, middle - x) if middle != x else tol
        size = max(abs(last), tol)
        trial = x + (size if last >= 0.0 else -size)
        new = (trial, float(f(trial)))
        if new[1] <= best[1]:
            a, b = (x, b) if trial >= x else (a, x)
            best, second, third = new, best, second
            continue
        a, b = (trial, b) if trial < x else (a, trial)
        if new[1] <= second[1] or second[0] == x:
            second, third = new, second
        elif new[1] <= third[1] or third[0] in (x, second[0]):
            third = new
    return best


def _parabola(
    best: tuple[float, float],
    second: tuple[float, float],
    third: tuple[float, float],
    a: float,
    b: float,
    before: float,
) -> float | None:
    """The step to the vertex through three points, where it lies inside and is less than half of an earlier step."""
    x = best[0]
    r = (x - second[0]) * (best[1] - third[1])
    q = (x - third[0]) * (best[1] - second[1])
    p = (x - third[0]) * q - (x - second[0]) * r
    q = 2.0 * (q - r)
    p, q = (-p, q) if q > 0.0 else (p, -q)
    inside = abs(p) < abs(0.5 * q * before) and q * (a - x) < p < q * (b - x)
    return p / q if inside else None


def root(f: Function, low: float, high: float, *, xtol: float, rtol: float, maxiter: int) -> float:
    """A zero between two ends where the function has different signs, by Brent's method.

    Args:
        f: the function.
        low: the left end.
        high: the right end.
        xtol: absolute accuracy.
        rtol: relative accuracy.
        maxiter: attempts at most.

    Returns:
        The zero, or the best point after so many attempts.

    Raises:
        ValueError: the same sign at both ends.

    Source:
        R. P. Brent, chapter 4.

    Example:
        >>> round(root(lambda x: x * x - 2.0, 0.0, 2.0, xtol=1e-9, rtol=1e-9, maxiter=80), 6)
        1.414214
    """
    previous, now = (low, float(f(low))), (high, float(f(high)))
    if 0.0 in (previous[1], now[1]):
        return previous[0] if previous[1] == 0.0 else now[0]
    if not previous[1] * math.copysign(1.0, now[1]) < 0.0:
        raise ValueError(f"a zero needs different signs at its ends, got {previous[1]} and {now[1]}")
    other, last = previous, 0.0
    step = last
    for _ in range(maxiter):
        if math.copysign(1.0, previous[1]) != math.copysign(1.0, now[1]):
            other = previous
            last = step = now[0] - previous[0]
        if abs(other[1]) < abs(now[1]):
            previous, now, other = now, other, now
        accuracy, half = 0.5 * (xtol + rtol * abs(now[0])), 0.5 * (other[0] - now[0])
        if now[1] == 0.0 or abs(half) < accuracy:
            break
        trial = math.inf
        if abs(last) > accuracy and abs(now[1]) < abs(previous[1]):
            trial = _interpolated(previous, now, other)
        close = 2.0 * abs(trial) < min(abs(last), 3.0 * abs(half) - accuracy)
        last, step = (step, trial) if close else (half, half)
        x = now[0] + (step if abs(step) > accuracy else math.copysign(accuracy, half))
        previous, now = now, (x, float(f(x)))
    return now[0]


def _interpolated(previous: tuple[float, float], now: tuple[float, float], other: tuple[float, float]) -> float:
    """The step of the secant, or of the inverse quadratic through three points."""
    if previous[0] == other[0]:
        return -now[1] * (now[0] - previous[0]) / (now[1] - previous[1])
    one = (previous[1] - now[1]) / (previous[0] - now[0])
    two = (other[1] - now[1]) / (other[0] - now[0])
    return -now[1] * (other[1] * two - previous[1] * one) / (two * one * (other[1] - previous[1]))
