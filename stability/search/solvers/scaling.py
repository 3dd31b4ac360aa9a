"""Scaled coordinates for solvers: diagonal similarity, unit slopes, unit time.

A change of coordinates does not change whether an inequality holds. Scaling by powers of two causes no rounding error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import matrix_balance, solve_triangular

from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.state_space import LureMatrices
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray


def power_of_two(size: float) -> float:
    """Return a power of two near a positive finite number; one for any other."""
    return float(np.exp2(np.round(np.log2(size)))) if 0.0 < size < np.inf else 1.0


def _powers_of_two(x: Array) -> Array:
    return np.exp2(np.round(np.log2(np.where(np.isfinite(x) & (x > 0), x, 1.0))))


def balancing_scales(system: StateSpace) -> tuple[Array, Array]:
    """Return scales ``t (n,)``, ``s (m,)``, powers of two, that balance ``[[A, B], [C, D]]``.

    Args:
        system: a system with as many outputs as inputs.

    Returns:
        The scales ``t``, ``s``. The balanced matrices are ``A t / t'``, ``B s / t'``, ``C t / s'``, ``D s / s'``, with
        ``t'``, ``s'`` as columns.

    Example:
        >>> none = np.zeros((2, 0))
        >>> stiff = StateSpace(np.array([[-1.0, 1e6], [1e-6, -1.0]]), none, none.T, none[:0], False)
        >>> t, s = balancing_scales(stiff)
        >>> bool(1e6 * t[1] / t[0] < 10)
        True
    """
    A, B, C, D = system.matrices
    whole = np.block([[A, B], [C, D]])
    scale = np.ones(len(whole))
    peak = float(np.max(np.abs(whole), initial=0.0))
    if 0.0 < peak < np.inf:
        _, (scale, _) = matrix_balance(whole / peak, permute=False, separate=True)
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
    return scale[: len(A)], scale[len(A) :]


def balanced_states(system: StateSpace) -> StateSpace:
    """Balance the rows and columns of the state, inputs and outputs included, by a diagonal similarity."""
    A, B, C, _ = system.matrices
    k = max(B.shape[1], len(C))
    b, c = np.zeros((len(A), k)), np.zeros((k, len(A)))
    scale = np.linalg.norm(A) or 1.0
    b[:, : B.shape[1]] = B * (scale / (np.linalg.norm(B) or 1.0))
    c[: len(C)] = C * (scale / (np.linalg.norm(C) or 1.0))
    return system.rescaled(balancing_scales(StateSpace(A, b, c, np.zeros((k, k)), system.is_discrete))[0])


@dataclass(frozen=True, eq=False)
class Coordinates:
    """System in other coordinates, with the inverse transformation of its witness.

    Attributes:
        system: the transformed matrices.
        rate: the transformed rate.
        X: ``(n, n)`` with ``x = X x~``.
        r: ``(m,)`` with ``w = w~ / r``.
        time: unit of time, by which A, B and the rate were divided (1 in discrete time).
        v: ``(m,)`` with ``z~ = v z``.
    """

    system: LureMatrices
    rate: float
    X: Array
    r: Array
    time: float
    v: Array

    def back(self, P: Array, L: Array) -> tuple[Array, Array]:
        """Return ``(P, L)`` of the original system, P exactly symmetric, L non-negative."""
        inverse = np.linalg.inv(self.X)
        original = inverse.T @ P @ inverse
        return 0.5 * (original + original.T), np.maximum(L, 0.0) * self.r**2 * self.time


def balanced_coordinates(system: LureSystem | LureMatrices, rate: float = 0.0) -> Coordinates:
    """Return balanced states and channels, slopes of at most about one, and (continuous time) A of about unit size.

    Args:
        system: the system.
        rate: ``lambda`` or ``rho``.

    Returns:
        The system in these coordinates.

    Example:
        >>> stiff = LureSystem([[-1e4, 1e6], [0.0, -1e-2]], [[1.0], [1e-3]], [[1.0, 1e3]], slope=(0, 0.25))
        >>> bool(np.abs(balanced_coordinates(stiff).system.A).max() <= 2.0)
        True
    """
    reach = np.maximum(np.abs(system.alpha), np.abs(system.beta))
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        unit = 1.0 / _powers_of_two(reach)  # w~ = unit w, so slopes are multiplied by it
        inner = StateSpace(system.A, system.B / unit, system.C, system.D / unit, system.is_discrete)
        t, s = balancing_scales(inner)
        inner, time = inner.rescaled(t).scaled(1.0 / s), 1.0
        if not system.is_discrete:
            time = power_of_two(max(float(np.max(np.abs(inner.A), initial=0.0)), abs(rate)))
            inner, rate = inner.rescaled(np.ones(len(t)), time), rate / time
        # the columns of B and the rows of C get equal norms, channel by channel
        even = _powers_of_two(even_channel_scales(inner))
        inner = inner.scaled(even)
    at = LureMatrices(*inner.matrices, system.is_discrete, system.alpha * unit, system.beta * unit)
    return Coordinates(at, rate, np.diag(t), unit * even / s, time, even / s)


def even_channel_scales(system: StateSpace | LureSystem) -> Array:
    """Return ``delta (m,)`` that equalizes the norms of B's columns and C's rows of the scaled system, if not zero."""
    b, c = np.linalg.norm(system.B, axis=0), np.linalg.norm(system.C, axis=1)
    return np.sqrt(np.where((b > 0) & (c > 0), b / np.where(c > 0, c, 1.0), 1.0))


def identity_coordinates(old: Coordinates, P: Array) -> Coordinates | None:
    """Return coordinates in which the given positive definite ``P`` (in the old ones) is the identity.

    Args:
        old: coordinates.
        P: ``(n, n)``; eigenvalues below 1e-12 of the largest are lifted.

    Returns:
        The new coordinates, or ``None`` when P is unusable.
    """
    if not np.isfinite(P).all():
        return None
    values, vectors = np.linalg.eigh(0.5 * (P + P.T))
    if values[-1] <= 0:
        return None
    values = np.maximum(values / values[-1], 1e-12)
    upper = np.linalg.qr((vectors * np.sqrt(values)).T, mode="r")  # P / max = upper^T upper
    inverse = solve_triangular(upper, np.eye(len(values)))
    b = old.system
    moved = LureMatrices(upper @ b.A @ inverse, upper @ b.B, b.C @ inverse, b.D, b.is_discrete, b.alpha, b.beta)
    return Coordinates(moved, old.rate, old.X @ inverse, old.r, old.time, old.v)
