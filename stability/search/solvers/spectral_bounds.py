"""Proved bounds of the spectrum of ``P``, hence the overshoot ``sqrt(cond P)``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from stability.kernel.arithmetic.definiteness import spectral_bounds

Array = np.ndarray
_EXACT = 400  # largest matrix whose eigenvalues are all computed
_LOST = 1e-13
"""Ratio of eigenvalues from which on the computed least one has hardly any correct digit."""


def _estimate(p: Array) -> tuple[float, float] | None:
    """Approximate the extreme eigenvalues: all of them for small sizes, power iterations for large ones."""
    if len(p) <= _EXACT:
        values = np.linalg.eigvalsh(p)
        low, high = float(values[0]), float(values[-1])
        return (low if low > _LOST * high else _graded_minimum(p)), high
    try:
        factor = cho_factor(p, lower=True, check_finite=False)
    except LinAlgError:
        return None
    rng = np.random.default_rng(0)
    big, small = rng.standard_normal(len(p)), rng.standard_normal(len(p))
    for _ in range(25):
        big = p @ (big / np.linalg.norm(big))
        small = cho_solve(factor, small / np.linalg.norm(small), check_finite=False)
    return 0.9 / float(np.linalg.norm(small)), 1.1 * float(np.linalg.norm(big))


def _graded_minimum(p: Array) -> float:
    """Approximate the least eigenvalue of a matrix whose rows have very different scales, by its scaled inverse."""
    s = 1.0 / np.sqrt(np.abs(np.diagonal(p)) + 1e-300)
    try:
        inverse = np.linalg.inv(p * s * s[:, None]) * s * s[:, None]
        return 0.9 / float(np.linalg.eigvalsh(0.5 * (inverse + inverse.T))[-1])
    except LinAlgError:
        return 0.0


def spectrum_bracket(p: Array) -> tuple[float, float, float] | None:
    """Prove ``(low, high, overshoot)`` with ``low I < P < high I`` and ``overshoot >= sqrt(high / low)``.

    Args:
        p: ``(n, n)`` symmetric.

    Returns:
        The bracket, a few rounding errors wide for small matrices; ``None`` where ``P > 0`` cannot be proved.

    Example:
        >>> low, high, overshoot = spectrum_bracket(np.diag([1.0, 4.0]))
        >>> round(low, 6), round(high, 6), round(overshoot, 6)
        (1.0, 4.0, 2.0)
        >>> low, high, overshoot = spectrum_bracket(np.diag([1e-20, 1e20]))  # however far apart
        >>> round(overshoot / 1e20, 6)
        1.0
    """
    diagonal = np.diagonal(p)
    if np.count_nonzero(p) == np.count_nonzero(diagonal) and (diagonal > 0).all():
        low, high = (1.0 - 1e-12) * float(diagonal.min()), (1.0 + 1e-12) * float(diagonal.max())
        return (low, high, math.sqrt(high / low) * (1.0 + 1e-13)) if spectral_bounds(p, low, high).holds else None
    estimate = _estimate(p)
    if estimate is None:
        return None
    low, high = estimate
    slack = 1e-12 * len(p) * high
    for _ in range(12):
        top = high + max(slack, 1e-12 * len(p) * high)
        if low - slack > 0 and spectral_bounds(p, low - slack, top).holds:
            return low - slack, top, max(math.sqrt(top / (low - slack)) * (1.0 + 1e-13), 1.0)
        low, slack = low if slack < 0.3 * low else 0.3 * low, slack * 4.0 if slack < 0.1 * low else slack
        if slack >= low:
            low *= 0.5
            slack = 0.1 * low
    return None


def rate_proof(witness: Mapping[str, Any], rate: float | None) -> dict[str, Any] | None:
    """Return the data of a proof at a rate: ``P``, ``L``, bounds of the spectrum of ``P`` and the overshoot.

    Args:
        witness: ``P (n, n)`` and ``L (m,)``, or empty.
        rate: the rate that they prove, or ``None``.

    Returns:
        The data; ``None`` without a witness or where the spectrum of ``P`` cannot be bounded.
    """
    if rate is None or "P" not in witness:
        return None
    P, L = (np.ascontiguousarray(witness[key], dtype=np.float64) for key in ("P", "L"))
    bracket = spectrum_bracket(P)
    if bracket is None:
        return None
    p_min, p_max, overshoot = bracket
    return {"P": P, "L": L, "rate": float(rate), "overshoot": overshoot, "p_min": p_min, "p_max": p_max}
