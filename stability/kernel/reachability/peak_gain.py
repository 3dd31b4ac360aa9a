r"""Bounds of the states of a stable linear part under bounded signals: sums of absolute impulse responses.

.. math:: x^+ = A x + v, \; x(0) = 0, \; |v| \le \bar v \quad\Longrightarrow\quad
          |x(k)| \le \sum_{j \ge 0} |A^j| \bar v .

With ``v = B w + r`` the sum is taken over ``|A^j B| w`` and ``|A^j| r``; call it ``T``. The computed powers ``M_k``
obey :math:`M_{k+1} = M_k A - R_k` with ``R_k`` the rounding, so

.. math:: A^k = M_k + \sum_{j < k} R_j A^{k-1-j} \;(k \le K), \quad
          A^k = M_K A^{k-K} + \sum_{j < K} R_j A^{k-1-j} \;(k \ge K)
          \quad\Longrightarrow\quad T \le \sum_{k < K} |M_k B| w + \bigl(|M_K| + \sum_j |R_j|\bigr) T .

If the row sums of the last bracket are at most ``q < 1``, ``T`` is at most the computed sum plus ``q / (1 - q)`` times
its largest entry. (The same holds for every finite part of ``T``, so ``T`` is finite.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.directed_functions import upper
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
    size, power = np.abs(A), np.eye(n)
    total, rounding = np.zeros(n), np.zeros(n)
    ones, rounded = np.ones(n), gamma(n + 4)
    columns = 2 * n + sum(B.shape[1] for B, _ in terms)
    for _ in range(max(2, int(OPERATIONS / (n * n * columns)))):
        weight = np.abs(power)
        for B, w in terms:
            response = upper_product(np.abs(power @ B), w)
            total = upper(total + response + upper(rounded * upper_product(weight, upper_product(np.abs(B), w))))
        changed = upper(upper_product(error, ones) + rounded * upper_product(size, ones))
        rounding = upper(rounding + upper_product(weight, changed))
        power = power @ A
        rows = float(upper(upper_product(np.abs(power), ones) + rounding).max(initial=0.0))
        if rows <= SMALL:
            return upper(total + rows / (1.0 - rows) * float(total.max(initial=0.0)) * (1.0 + gamma(8)))
        if not rows < 1e50:
            return None
    return None
