"""Exact integer arithmetic on float matrices: characteristic polynomials and their roots on the stability boundary."""

from __future__ import annotations

import math

import numpy as np

from stability.kernel.arithmetic.fixed_point import integers

Array = np.ndarray
MOST_BITS = 2**14
"""Largest number of entries times bits of a matrix whose characteristic polynomial is computed."""


def has_boundary_eigenvalue(A: Array, discrete: bool) -> bool:
    r"""Return True if a matrix has an eigenvalue with :math:`|\lambda| \ge 1` (with :math:`\Re \lambda \ge 0`).

    The characteristic polynomial comes from the recursion of Faddeev and LeVerrier; in continuous time
    :math:`s = (z - 1) / (z + 1)` maps the left half-plane to the unit disc. By Schur and Cohn the roots of
    :math:`p(z) = \sum_k c_k z^k` lie in the open unit disc if and only if :math:`|c_0| < |c_n|` and the roots of
    :math:`(c_n p(z) - c_0 z^n p(1/z)) / z` lie there.

    Args:
        A: ``(n, n)``.
        discrete: whether the boundary is the unit circle instead of the imaginary axis.

    Returns:
        True if there is such an eigenvalue. False if there is none, or if the integers grow too large: beyond about
        16 states with float64 entries of full precision.

    Source:
        E. I. Jury, Theory and Application of the z-Transform Method, 1964, section 3.

    Example:
        >>> has_boundary_eigenvalue(np.array([[0.0, -1.0], [1.0, 0.0]]), True)
        True
        >>> has_boundary_eigenvalue(np.array([[0.0, -1.0], [1.0, -1e-9]]), False)
        False
    """
    k, places = integers(A)
    if k.size * max(int(abs(k).max()).bit_length(), places) > MOST_BITS:
        return False
    n, eye = len(k), np.array(np.eye(len(k), dtype=int).tolist(), dtype=object)
    power, polynomial = eye, [1]  # characteristic polynomial of k, with the roots of A times 2^-exponent
    for degree in range(1, n + 1):
        product = k @ power
        polynomial.append(-int(np.trace(product)) // degree)
        power = product + polynomial[-1] * eye
    polynomial = [c << places * power for power, c in enumerate(reversed(polynomial))]  # of A, lowest degree first
    if not discrete:
        plus, mapped = [1], polynomial[-1:]
        for c in reversed(polynomial[:-1]):  # Horner: sum of c_k (z - 1)^k (z + 1)^(n - k)
            plus = _times(plus, 1)
            mapped = [p + c * q for p, q in zip(_times(mapped, -1), plus, strict=True)]
        polynomial = mapped
    while len(polynomial) > 1:
        first, last = polynomial[0], polynomial[-1]
        if abs(first) >= abs(last):
            return True
        polynomial = [last * c - first * d for c, d in zip(polynomial, reversed(polynomial), strict=True)][1:]
        common = math.gcd(*polynomial) or 1
        polynomial = [c // common for c in polynomial]
    return False


def _times(p: list[int], a: int) -> list[int]:
    """Return the coefficients of ``p(z) (z + a)``, lowest first."""
    return [a * x + y for x, y in zip([*p, 0], [0, *p], strict=True)]
