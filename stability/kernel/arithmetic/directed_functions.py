r"""Rounded enclosures of the functions in gates, and upper bounds of norms.

Every function returns bounds of the exact value at float64 arguments. The library's ``exp``, ``log1p``, ``expm1`` and
``tanh`` are assumed to be within ``TANH_ULPS`` units in the last place; each bound allows four times that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.kernel.arithmetic.activations import TANH_ULPS
from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.floating_point import EPS, LOST, TINY

Array = np.ndarray
RELATIVE = 4.0 * TANH_ULPS * EPS
"""Relative error allowed for a function below: a few roundings of well-conditioned library calls."""
MOST = 1.7e308
"""Largest number used as a lower bound of a result that overflowed to infinity."""
SILU_MINIMUM, SILU_MINIMIZER = -0.2784645428, -1.2784645428
"""Lower bound of ``x sigmoid(x)``, and its minimizer to ten digits."""
SILU_SLOPE = 1.0999
"""Upper bound of ``|d/dx x sigmoid(x)|``; the maximum is 1.09984."""


def upper(value: Array, relative: float = RELATIVE) -> Array:
    """Return an upper bound of an exact value that was computed within a relative error."""
    value = np.maximum(value, -MOST)  # NaN stays NaN
    return value + np.abs(value) * relative + TINY


def lower(value: Array, relative: float = RELATIVE) -> Array:
    """Return a lower bound of an exact value that was computed within a relative error."""
    value = np.minimum(value, MOST)
    return value - np.abs(value) * relative - TINY


def add_up(first: Any, *others: Any) -> Array:
    """Return an upper bound of a sum; every addition is rounded up, so that cancellation loses no accuracy."""
    total = first
    for term in others:
        total = upper(total + term, 4.0 * EPS)
    return total


def softplus(low: Array, high: Array) -> tuple[Array, Array]:
    """Enclose ``log(1 + exp(p))`` for ``low <= p <= high``.

    Example:
        >>> bounds = softplus(np.array([0.0]), np.array([0.0]))
        >>> bool(bounds[0][0] < np.log(2.0) < bounds[1][0])
        True
    """

    def value(p: Array) -> Array:
        return np.maximum(p, 0.0) + np.log1p(np.exp(-np.abs(p)))

    return np.maximum(lower(value(low)), 0.0), upper(value(high))


def logistic(low: Array, high: Array) -> tuple[Array, Array]:
    """Enclose ``1 / (1 + exp(-p))`` for ``low <= p <= high``, with a small relative error at both tails."""

    def value(p: Array) -> Array:
        tail = np.exp(-np.abs(p))
        return np.where(p >= 0.0, 1.0, tail) / (1.0 + tail)

    return np.maximum(lower(value(low)), 0.0), np.minimum(upper(value(high)), 1.0)


def exponential(low: Array, high: Array) -> tuple[Array, Array]:
    """Enclose ``exp(p)`` for ``low <= p <= high``; the upper bound may be infinite."""
    return np.maximum(lower(np.exp(low)), 0.0), upper(np.exp(high))


def silu(low: Array, high: Array) -> tuple[Array, Array]:
    """Enclose ``x sigmoid(x)`` for ``low <= x <= high``.

    The function falls to the left of its minimum and rises to the right of it, so its maximum is at an end.
    """

    def value(x: Array) -> Array:
        tail = np.exp(-np.abs(x))
        return x * np.where(x >= 0.0, 1.0, tail) / (1.0 + tail)

    ends = value(low), value(high)
    # within 1e-9 of the minimizer the function exceeds its minimum by less than a rounding error
    inside = (low < SILU_MINIMIZER + 1e-9) & (high > SILU_MINIMIZER - 1e-9)
    least = np.where(inside, SILU_MINIMUM, np.minimum(*map(lower, ends)))
    return np.maximum(least, SILU_MINIMUM), upper(np.maximum(*ends))


def silu_excess(size: Array) -> Array:
    """Return an upper bound of ``e(x) = silu(x) - x / 2 = (x / 2) tanh(x / 2)`` for ``|x| <= size``."""
    return upper(0.5 * size * np.tanh(0.5 * size))


def norm_above(array: Array) -> Array:
    """Return an upper bound of the Euclidean norm along the last axis.

    Example:
        >>> bool(norm_above(np.array([3.0, 4.0])) >= 5.0)
        True
    """
    return np.sqrt(np.einsum("...i,...i->...", array, array)) * (1.0 + gamma(array.shape[-1] + 8)) + LOST


SQUARINGS = {64: 5, 256: 4, 2048: 2}
"""Squarings of a Gram matrix by its largest number of rows: ``k`` of them leave a factor of ``rows^(1 / 2^(k + 2))``
at most, 1.04 at 64, 1.10 at 256, 1.61 at 2,048 equal eigenvalues; beyond that row sums bound the norm."""


def gram_norms(gram: Array, error: Array) -> Array:
    r"""Return upper bounds of the largest eigenvalues of symmetric positive semidefinite matrices.

    With ``G_0 = G`` and ``G_{i+1} = G_i^2``, :math:`\|G\|_2 \le \|G_k\|_F^{1 / 2^k}`. The error of each computed square
    has a bounded Frobenius norm: :math:`e^+ = (2 t + e) e + \gamma t^2` for a computed matrix of norm ``t``.

    Args:
        gram: ``(..., k, k)`` computed matrices.
        error: ``(...,)`` bound of the Frobenius norm of their errors.

    Returns:
        ``(...,)`` upper bounds.

    Example:
        >>> bool(2.0 <= gram_norms(np.diag([2.0, 1.0]), np.array(0.0)) < 2.03)
        True
    """
    rows = gram.shape[-1]
    count = next((k for most, k in SQUARINGS.items() if rows <= most), None)
    if count is None:
        return upper((np.abs(gram).sum(axis=-1) * (1.0 + gamma(rows))).max(axis=-1) + error)

    def frobenius(matrix: Array) -> Array:
        return norm_above(matrix.reshape(*matrix.shape[:-2], -1))

    scale = np.exp2(np.ceil(np.log2(np.maximum(frobenius(gram), LOST))))  # powers of two: exact
    total = scale
    matrix, error = gram / scale[..., None, None], upper(error / scale)
    for step in range(1, count + 1):
        size = frobenius(matrix)
        matrix = matrix @ matrix
        error = upper((2.0 * size + error) * error + gamma(rows + 2) * size * size, 16 * EPS)
        power = np.exp2(np.ceil(np.log2(np.maximum(frobenius(matrix), 1e-60))))
        matrix, error = matrix / power[..., None, None], upper(error / power)
        total = total * power ** (0.5**step)
    bound = total * (frobenius(matrix) + error) ** (0.5**count) * (1.0 + 64 * RELATIVE)
    return np.where(np.isnan(bound), np.inf, bound)
