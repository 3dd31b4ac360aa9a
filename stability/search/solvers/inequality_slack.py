"""Slack of matrix inequalities in float64, and the smallest gain that a solution proves.

The inequality and the bound of its rounding errors come from the rule that proves it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from stability.kernel.systems.state_space import LureMatrices
from stability.kernel.theorems.multiplier_lmi import error_action, lmi_matrix

Array = np.ndarray
EPS = float(np.finfo(np.float64).eps)


def definite_slack(matrix: Array, error_action: Callable[[Array], Array] | None = None) -> float:
    """Return a lower bound of the smallest eigenvalue of a symmetric float64 matrix, scaled to unit diagonal.

    Scaling does not change the sign of the smallest eigenvalue. The bounds of the errors of the matrix and of the
    eigenvalue computation are subtracted.

    Args:
        matrix: ``(k, k)`` symmetric.
        error_action: ``s -> E s`` for an entrywise bound ``E >= 0`` of the error made in forming ``matrix``; a few
            roundings of every entry by default.

    Returns:
        A number in (-inf, 1]; a positive one means that the matrix is positive definite. ``-inf`` for a matrix that is
        not finite or has a diagonal entry <= 0.

    Example:
        >>> definite_slack(np.diag([1e-200, 1e200])) > 0.99
        True
        >>> definite_slack(np.array([[1.0, 1.0], [1.0, 1.0]])) < 0
        True
    """
    k = matrix.shape[0]
    if k == 0:
        return 1.0
    diagonal = np.diag(matrix)
    if not np.isfinite(matrix).all() or (diagonal <= 0).any():
        return -np.inf
    d = 1.0 / np.sqrt(diagonal)
    if not np.isfinite(d).all():
        return -np.inf
    scaled = matrix * d[:, None] * d
    error = d * error_action(d) if error_action is not None else (k + 8) * EPS * np.abs(scaled).sum(axis=1)
    if not (np.isfinite(scaled).all() and np.isfinite(error).all()):
        return -np.inf
    return float(np.linalg.eigvalsh(scaled)[0] - error.max() - k * EPS * np.linalg.norm(scaled))


def multiplier_slack(system: LureMatrices, P: Array, L: Array, rate: float) -> float:
    """Return the smaller slack of ``P > 0`` and the multiplier inequality at ``(P, L, rate)``; see ``definite_slack``.

    The bounded real and the positive real lemma are this inequality for certain slopes and multipliers.

    Args:
        system: the matrices and slopes.
        P: ``(n, n)`` symmetric.
        L: ``(m,)`` non-negative.
        rate: ``lambda`` or ``rho``.

    Returns:
        Positive only if both hold.

    Example:
        >>> one, none = np.ones((1, 1)), np.zeros((1, 1))
        >>> loop = LureMatrices(-2 * one, one, one, none, False, np.zeros(1), np.ones(1))
        >>> multiplier_slack(loop, one, np.ones(1), 0.5) > 0, multiplier_slack(loop, one, np.ones(1), 1.5) > 0
        (True, False)
    """
    form = -lmi_matrix(system, P, L, rate)
    return min(definite_slack(P), definite_slack(form, error_action(system, P, L, rate)))


def schur_complement(form: Array, k: int) -> Array | None:
    r"""Return ``N22 - N21 N11^{-1} N12`` of a symmetric matrix with negative definite ``N11 (k, k)``, else ``None``.

    Args:
        form: the matrix.
        k: size of the leading block.

    Returns:
        The complement; ``None`` if the block is not negative definite, or entries are not finite.

    Example:
        >>> schur_complement(np.array([[-1.0, 1.0], [1.0, 0.0]]), 1)
        array([[1.]])
    """
    diagonal = -np.diag(form)[:k]
    if not (np.isfinite(form).all() and (diagonal > 0).all()):
        return None
    d = 1.0 / np.sqrt(diagonal)
    cross = d[:, None] * form[:k, k:]
    try:
        return form[k:, k:] + cross.T @ cho_solve(cho_factor(-form[:k, :k] * d[:, None] * d), cross)
    except (np.linalg.LinAlgError, ValueError):  # not definite, or an overflow
        return None


def least_gain(form: Array, inputs: int) -> float:
    """Return the smallest ``g`` for which ``form - g^2 |u|^2`` is negative semidefinite, with ``u`` the last
    coordinates.

    Args:
        form: ``(k, k)`` symmetric.
        inputs: number of coordinates of ``u``.

    Returns:
        ``g``; infinite if there is no such number.

    Example:
        >>> least_gain(np.array([[-1.0, 1.0], [1.0, 0.0]]), 1)
        1.0
    """
    top = schur_complement(form, form.shape[0] - inputs)
    if top is None or not np.isfinite(top).all():
        return np.inf
    return float(np.sqrt(max(float(np.linalg.eigvalsh(0.5 * (top + top.T))[-1]), 0.0))) if inputs else 0.0
