r"""Proofs of positive definiteness in floating point, rounding errors included.

The proofs rest on two facts, with :math:`u = 2^{-53}` and :math:`\gamma_k = k u / (1 - k u)`:

* a product computed with any order of summation satisfies
  :math:`|\mathrm{fl}(X Y) - X Y| \le \gamma_k |X| |Y|`, k the inner dimension (Higham 2002, section 3.5);
* if the floating-point Cholesky factorization of a symmetric :math:`H` runs to completion, then
  :math:`\lambda_{\min}(H) \ge -\sum_i \gamma_{i+1} / (1 - \gamma_{i+1}) h_{ii}` (Rump 2006, theorem 2.3).

An interval matrix is given by its midpoint and the *action* of an entrywise error bound on a positive vector:
for symmetric ``E >= 0`` and ``s > 0``, :math:`\|S E S\|_2 \le \max_i s_i (E s)_i`, so the bound itself is never
formed. The constants are rounded up generously (a factor of four) to cover reciprocals in triangular solves.

This module uses only numpy: no solver, and no code of the search for certificates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.floating_point import UNIT

Array = np.ndarray
LARGEST = 1e60
"""Largest entry that is accepted: within it, total underflow stays far below one unit of rounding."""


FLUSHED = (
    "this thread rounds numbers below 2.2e-308 to zero, so rounding errors cannot be bounded: call "
    "torch.set_flush_denormal(False), or do not load the library that was built with -ffast-math"
)


def flushes_small_numbers() -> bool:
    """Return True if the processor flushes subnormal numbers to zero, which invalidates every proof.

    Example:
        >>> flushes_small_numbers()
        False
    """
    return not (np.full(1, 2.0**-1000) * 2.0**-60).any()


@dataclass(frozen=True)
class Definiteness:
    """Outcome of an attempt to prove positive definiteness.

    Attributes:
        holds: whether positive definiteness is proved.
        shift: number subtracted from the scaled matrix to cover every rounding error.
        reason: explanation in one clause.
    """

    holds: bool
    shift: float
    reason: str


def gamma(k: int) -> float:
    """Return an upper bound of ``4 k u / (1 - 4 k u)``, the error constant of ``k`` roundings with a safety factor.

    Example:
        >>> 0 < gamma(100) < 1e-13
        True
    """
    if k > 2**40:
        return float("inf")
    return 4.0 * (k + 1) * UNIT / (1.0 - 4.0 * (k + 1) * UNIT) * (1.0 + 1e-12)


def round_up(value: float) -> float:
    """Return a float at least as large as any number that rounded to ``value >= 0`` in a few operations."""
    return value * (1.0 + 64 * UNIT) + 5e-324


def is_symmetric(matrix: Array) -> bool:
    """Return True if a square matrix is symmetric to the last bit."""
    return matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and bool((matrix == matrix.T).all())


def _scaling(diagonal: Array) -> Array:
    """Return powers of two ``s`` with ``s_i^2 diagonal_i`` near one; scaling by them is exact."""
    _, exponent = np.frexp(diagonal)
    return np.ldexp(1.0, -(exponent // 2))


def _cholesky_succeeds(matrix: Array) -> bool:
    try:
        factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    diagonal = np.diagonal(factor)
    return bool(np.isfinite(diagonal).all() and (diagonal > 0).all())


def prove_positive_definite(
    matrix: Array, error_action: Callable[[Array], Array] | None = None, *, overwrite: bool = False
) -> Definiteness:
    """Prove that every symmetric matrix within an error bound of ``matrix`` is positive definite.

    Args:
        matrix: ``(k, k)`` computed midpoint; it must be symmetric to the last bit.
        error_action: ``s -> E s`` for an entrywise bound ``E >= 0`` of the error, at most ``1e-6``
            relatively below its exact value; ``None`` when the matrix is exact.
        overwrite: True to overwrite ``matrix``, which saves one copy.

    Returns:
        The outcome, with the shift used and the reason.

    Source:
        S. M. Rump, Verification of positive definiteness, BIT 46 (2006), theorem 2.3 and corollary 2.4.

    Example:
        >>> prove_positive_definite(np.eye(3)).holds
        True
        >>> prove_positive_definite(np.array([[1.0, 1.0], [1.0, 1.0]])).holds
        False
    """
    size = matrix.shape[0]
    if size == 0:
        return Definiteness(True, 0.0, "empty")
    diagonal = np.diagonal(matrix).copy()
    if not np.isfinite(diagonal).all() or not (diagonal > 0).all():
        return Definiteness(False, 0.0, "a diagonal entry is not positive")
    if diagonal.max() > LARGEST or diagonal.min() < 1.0 / LARGEST:
        return Definiteness(False, 0.0, f"diagonal entries lie outside [{1 / LARGEST:.0e}, {LARGEST:.0e}]")
    if not is_symmetric(matrix):
        return Definiteness(False, 0.0, "the matrix is not symmetric or holds NaN")
    scale = _scaling(diagonal)
    work = matrix if overwrite else matrix.copy()
    work *= scale[:, None]
    work *= scale[None, :]
    error = 0.0
    if error_action is not None:
        bound = scale * error_action(scale)
        if not np.isfinite(bound).all():
            return Definiteness(False, float("inf"), "the rounding-error bound overflows")
        error = float(bound.max()) * (1.0 + 1e-6)
    trace = float(np.diagonal(work).sum())
    rump = gamma(size + 2) * trace * (1.0 + 1e-6)
    shift = round_up(error + rump + 8 * UNIT)  # last: rounding of the subtraction from entries below two, and underflow
    work[np.diag_indices(size)] -= shift
    if not (np.diagonal(work) > 0).all():
        return Definiteness(False, shift, "the rounding-error bound exceeds a diagonal entry")
    if _cholesky_succeeds(work):
        return Definiteness(True, shift, "the shifted Cholesky factorization succeeds")
    return Definiteness(False, shift, "the shifted Cholesky factorization breaks down")


def prove_gram(K: Array, weights: Array, diagonal: Array, *, above: bool) -> Definiteness:
    """Prove ``K^T diag(weights) K`` above or below ``diag(diagonal)``, with all rounding errors included.

    Args:
        K: ``(k, n)``, entries up to 1e15.
        weights: ``(k,)`` positive numbers up to 1e15.
        diagonal: ``(n,)``.
        above: the side to prove.
    """
    size, sign = np.abs(K), 1.0 if above else -1.0
    if not max(size.max(initial=0.0), weights.max(initial=0.0)) <= LARGEST**0.25:
        return Definiteness(False, 0.0, "an entry is too large for its rounding to be bounded here")
    product, factor = K.T @ (weights[:, None] * K), gamma(len(K) + 8)
    matrix = (0.5 * sign) * (product + product.T)
    matrix[np.diag_indices_from(matrix)] -= sign * diagonal

    def error(s: Array) -> Array:
        return factor * (diagonal * s + size.T @ (weights * (size @ s)))

    return prove_positive_definite(matrix, error, overwrite=True)


def spectral_bounds(matrix: Array, low: float, high: float) -> Definiteness:
    """Prove ``low I < matrix < high I`` for a symmetric matrix.

    Args:
        matrix: ``(k, k)``, symmetric to the last bit.
        low: claimed lower bound of the spectrum.
        high: claimed upper bound of the spectrum.

    Returns:
        The outcome; the reason names the side that fails.

    Example:
        >>> spectral_bounds(np.diag([1.0, 2.0]), 0.9, 2.1).holds
        True
        >>> spectral_bounds(np.diag([1.0, 2.0]), 1.1, 2.1).reason
        'the lower bound fails: a diagonal entry is not positive'
    """
    if not is_symmetric(matrix) or not np.abs(matrix).max(initial=0.0) <= LARGEST:
        return Definiteness(False, 0.0, "the matrix is not symmetric, not finite or too large")
    size = matrix.shape[0]
    eye = np.diag_indices(size)
    diagonal = np.diagonal(matrix).copy()
    lower = matrix.copy()
    lower[eye] -= low
    rounding = 2 * UNIT * (np.abs(diagonal) + abs(low))
    outcome = prove_positive_definite(lower, lambda s: rounding * s, overwrite=True)
    if not outcome.holds:
        return Definiteness(False, outcome.shift, f"the lower bound fails: {outcome.reason}")
    del lower
    norm_bound = float(np.abs(matrix).sum(axis=1).max(initial=0.0)) * (1.0 + gamma(size))  # needs no factorization
    if norm_bound < high:
        return Definiteness(True, outcome.shift, "row sums bound the norm")
    upper = -matrix
    upper[eye] += high
    rounding = 2 * UNIT * (np.abs(diagonal) + abs(high))
    outcome = prove_positive_definite(upper, lambda s: rounding * s, overwrite=True)
    if not outcome.holds:
        return Definiteness(False, outcome.shift, f"the upper bound fails: {outcome.reason}")
    return outcome
