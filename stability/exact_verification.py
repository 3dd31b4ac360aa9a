"""Verification of the multiplier inequality in exact rational arithmetic.

Every float64 is a dyadic rational, so a matrix inequality at stored matrices is an inequality between integers
once everything is multiplied by a power of two. Fraction-free elimination (Bareiss) gives the leading principal
minors; Sylvester's criterion decides. Only Python integers are used (python-flint's when it is installed, for
speed): nothing is shared with the floating-point verifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from stability.errors import UnsupportedError
from stability.kernel.systems.lure import LureSystem

MAX_STATES = 64  # the cost of rational arithmetic grows with the bits of the entries
Matrix = np.ndarray


def rational(matrix: Any) -> Matrix:
    """Return an object array of ``Fraction`` with exactly the values of a float array."""
    flat = np.asarray(matrix, dtype=np.float64)
    out = np.empty(flat.shape, dtype=object)
    for index, value in np.ndenumerate(flat):
        out[index] = Fraction(float(value))
    return out


def _exact_system(system: LureSystem) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return the matrices without rounding: a discretized system is formed again from its continuous one."""
    if system.origin is None:
        return tuple(rational(x) for x in (system.A, system.B, system.C, system.D))  # type: ignore[return-value]
    base = system.origin.base
    a, b, c, d = (rational(x) for x in (base.A, base.B, base.C, base.D))
    dt = Fraction(system.origin.dt)
    half = dt / 2
    identity = rational(np.eye(base.states))
    if system.origin.method == "euler":
        return identity + dt * a, dt * b, c, d
    if system.origin.method != "midpoint":
        raise UnsupportedError(f"the integrator must be euler or midpoint, got {system.origin.method!r}")
    zero = rational(np.zeros(base.D.shape))
    return (
        identity + dt * a + dt * half * (a @ a),
        np.hstack([dt * half * (a @ b), dt * b]),
        np.vstack([c, c + half * (c @ a)]),
        np.vstack([np.hstack([d, zero]), np.hstack([half * (c @ b), d])]),
    )


def is_positive_definite(matrix: Matrix) -> bool:
    """Evaluate Sylvester's criterion for a symmetric matrix of ``Fraction``, by fraction-free elimination.

    Example:
        >>> is_positive_definite(rational([[2.0, 1.0], [1.0, 1.0]]))
        True
        >>> is_positive_definite(rational([[1.0, 1.0], [1.0, 1.0]]))
        False
    """
    n = matrix.shape[0]
    scale = 1
    for value in matrix.flat:
        scale = max(scale, value.denominator)  # powers of two: the largest is a common multiple
    try:
        from flint import fmpz as integer
    except ImportError:
        integer = int
    rows = [[integer(int(matrix[i, j] * scale)) for j in range(i + 1)] for i in range(n)]
    previous = integer(1)
    for k in range(n):  # only the lower triangle is kept: the matrix stays symmetric
        pivot = rows[k][k]
        if pivot <= 0:
            return False
        column = [rows[i][k] for i in range(k + 1, n)]
        for i in range(k + 1, n):
            factor, row = column[i - k - 1], rows[i]
            for j in range(k + 1, i + 1):
                row[j] = (pivot * row[j] - factor * column[j - k - 1]) // previous
        previous = pivot
    return True


def _lmi(system: LureSystem, P: Matrix, L: Matrix, rate: Fraction) -> Matrix:
    a, b, c, d = _exact_system(system)
    alpha, beta = rational(system.alpha), rational(system.beta)
    n, m = system.states, system.channels
    channel = np.hstack([c, d])
    slope = np.hstack([rational(np.zeros((m, n))), rational(np.eye(m))])
    low = slope - alpha[:, None] * channel  # w - alpha z and beta z - w, as linear maps of (x, w)
    high = beta[:, None] * channel - slope
    product = low.T @ (L[:, None] * high)
    out = product + product.T
    flow = np.hstack([a, b])
    if system.is_discrete:
        out = out + flow.T @ (P @ flow)
        out[:n, :n] = out[:n, :n] - rate * rate * P
    else:
        pf = P @ flow
        out[:n, :] = out[:n, :] + pf
        out[:, :n] = out[:, :n] + pf.T
        out[:n, :n] = out[:n, :n] + 2 * rate * P
    return out


def check_exact(system: LureSystem, data: Mapping[str, Any]) -> tuple[bool, str]:
    """Decide exactly whether the data of a ``multiplier_lmi`` proof prove their rate and overshoot.

    Args:
        system: the system that the inequality is about.
        data: ``P``, ``L``, ``rate``, ``overshoot``, ``p_min`` and ``p_max``.

    Returns:
        True if they do, and the reason.
    """
    if system.states > MAX_STATES:
        return False, f"exact arithmetic is limited to {MAX_STATES} states; this system has {system.states}"
    P, L, rate = rational(data["P"]), rational(data["L"]), Fraction(float(data["rate"]))
    n, m = system.states, system.channels
    if P.shape != (n, n) or L.shape != (m,) or (P != P.T).any() or any(x < 0 for x in L):
        return False, "P must be a symmetric n x n matrix, and L a vector of m numbers >= 0"
    if not 0 < rate < 1 if system.is_discrete else rate <= 0:
        return False, "the rate must be below 1 per step, or positive in continuous time"
    p_min, p_max, overshoot = (Fraction(float(data[k])) for k in ("p_min", "p_max", "overshoot"))
    identity = rational(np.eye(n))
    if p_min <= 0 or not is_positive_definite(P - p_min * identity) or not is_positive_definite(p_max * identity - P):
        return False, "P does not lie strictly between p_min and p_max (exact arithmetic)"
    if overshoot < 1 or overshoot * overshoot * p_min < p_max:
        return False, "the overshoot is below 1 or below sqrt(p_max / p_min)"
    if not is_positive_definite(-_lmi(system, P, L, rate)):
        return False, "the matrix inequality does not hold (exact arithmetic)"
    return True, "the matrix inequality holds (exact arithmetic)"
