r"""Bounds of the states of a stable linear part under bounded signals: sums of absolute impulse responses.

.. math:: x^+ = A x + v, \; x(0) = 0, \; |v| \le \bar v \quad\Longrightarrow\quad
          |x(k)| \le \sum_{j \ge 0} |A^j| \bar v .

With ``v = B w + r`` the sum is taken over ``|A^j B| w`` and ``|A^j| r``. The sum ends at a power ``K`` whose row sums
are at most ``q < 1``: all further terms together are at most ``q / (1 - q)`` times the largest entry of the sum so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.directed_functions import upper
from stability.kernel.arithmetic.floating_point import TINY
from stability.kernel.arithmetic.intervals import upper_product

Array = np.ndarray
SMALL = 2.0**-7
"""Row sums at which a sum of powers ends."""
OPERATIONS = 4e10
"""Multiplications after which the sum is given up."""


def peak_bounds(A: Array, error: Array, terms: Sequence[tuple[Array, Array]]) -> Array | None:
    """Bound ``sum_j |A^j B| w`` over all pairs ``(B, w)``, entry by entry.

    Args:
        A: ``(n, n)``.
        error: ``(n, n)`` bound of the difference of the exact matrix to ``A``.
        terms: pairs of a matrix ``(n, m)`` and a vector ``(m,)`` of non-negative numbers.

    Returns:
        ``(n,)``, or ``None`` where the powers do not become small soon.

    Example:
        >>> A = np.array([[0.5]])
        >>> float(peak_bounds(A, 0.0 * A, [(np.eye(1), np.ones(1))])[0]) >= 2.0
        True
    """
    n = len(A)
    size = np.abs(A)
    power, off = np.eye(n), np.zeros((n, n))
    total = np.zeros(n)
    columns = 3 * n + sum(B.shape[1] for B, _ in terms)
    for _ in range(max(2, int(OPERATIONS / (n * n * columns)))):
        for B, w in terms:
            response = np.abs(power @ B) + gamma(n + 4) * (np.abs(power) @ np.abs(B)) + off @ np.abs(B)
            total = upper(total + upper_product(response, w))
        # exact power within ``off``: off+ = off (|A| + error) + |power| (error + rounding of the product)
        off = (off @ (size + error) + np.abs(power) @ (error + gamma(n + 4) * size)) * (1.0 + gamma(2 * n + 8)) + TINY
        power = power @ A
        rows = float(upper((np.abs(power) + off).sum(axis=1) * (1.0 + gamma(n))).max())
        if rows <= SMALL:
            return upper(total + rows / (1.0 - rows) * total.max(initial=0.0) * (1.0 + gamma(8)))
        if not rows < 1e50:
            return None
    return None
