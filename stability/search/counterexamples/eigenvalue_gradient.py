r"""Gradient of the leading eigenvalue of ``A + B K (I - D K)^{-1} C`` in the slopes ``K``.

With right and left eigenvectors ``x``, ``y`` (``y^H x = 1``),
:math:`\partial\lambda / \partial K_i = [(I - K D)^{-T} B^T \bar y]_i \, [(I - D K)^{-1} C x]_i`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs

from stability.kernel.systems.lure import LureSystem

Array = np.ndarray
_LAPACK = {kind: get_lapack_funcs(("getrf", "getrs"), dtype=kind) for kind in (float, complex)}


@dataclass(frozen=True, eq=False)
class LeadingEigenvalue:
    """Leading eigenvalue at some slopes.

    Attributes:
        excess: real part (continuous) or modulus less one (discrete): positive where unstable.
        value: the eigenvalue.
        gradient: ``(m,)`` derivative of the excess with respect to the slopes; ``None`` for a defective
            eigenvalue.
    """

    excess: float
    value: complex
    gradient: Array | None


def stability_excess(eigenvalues: Array, discrete: bool) -> Array:
    """Return the signed distance to the stability boundary, positive outside."""
    return np.abs(eigenvalues) - 1.0 if discrete else np.real(eigenvalues)


class Spectrum(NamedTuple):
    """Matrix at some slopes and its eigenvalues; no eigenvalues if the matrix overflows."""

    matrix: Array
    values: Array

    @classmethod
    def at(cls, system: LureSystem, K: Array) -> Spectrum:
        """Return the spectrum of ``A + B K (I - D K)^{-1} C``."""
        matrix = system.jacobian(K)
        return cls(matrix, np.linalg.eigvals(matrix) if np.isfinite(matrix).all() else np.empty(0))

    def largest(self, discrete: bool) -> tuple[float, complex]:
        """Return the largest excess and its eigenvalue; minus infinity on overflow."""
        if not len(self.values):
            return -np.inf, complex(0.0)
        size = stability_excess(self.values, discrete)
        i = int(np.argmax(size))
        return float(size[i]), complex(self.values[i])


def leading_excess(system: LureSystem, K: Array) -> tuple[float, complex]:
    """Return the largest excess and its eigenvalue; minus infinity on overflow."""
    return Spectrum.at(system, K).largest(system.is_discrete)


def leading_eigenvalue(system: LureSystem, K: Array, rank: int = 0, prior: Spectrum | None = None) -> LeadingEigenvalue:
    """Return the eigenvalue of the ``rank``-th largest excess with the gradient of that excess.

    Args:
        system: the system.
        K: ``(m,)`` slopes.
        rank: 0 for the leading one; complex pairs count once.
        prior: the spectrum at ``K``, if it is already computed.

    Returns:
        The eigenvalue and its gradient.
    """
    matrix, values = prior or Spectrum.at(system, K)
    if not len(values):
        return LeadingEigenvalue(-np.inf, complex(0.0), None)
    size = stability_excess(values, system.is_discrete)
    upper = np.flatnonzero(np.imag(values) >= 0)
    order = upper[np.argsort(-size[upper])]
    i = int(order[min(rank, len(order) - 1)])
    value = complex(values[i])
    top = float(size.max()) if rank == 0 else float(size[i])
    pair = eigenvectors(matrix, value)
    if pair is None:
        return LeadingEigenvalue(top, value, None)
    x, y = pair
    scale = y @ x
    if abs(scale) < 1e-14 * float(np.linalg.norm(y)):
        return LeadingEigenvalue(top, value, None)
    p, q = y @ system.B, system.C @ x
    if system.D.any():
        loop = np.eye(system.channels) - system.D * K
        q = np.linalg.solve(loop, q)
        p = np.linalg.solve(np.eye(system.channels) - (K[:, None] * system.D).T, p)
    derivative = p * q / scale
    gradient = np.real(np.conj(value) * derivative) / max(abs(value), 1e-300) if system.is_discrete else derivative.real
    return LeadingEigenvalue(top, value, gradient if np.isfinite(gradient).all() else None)


def eigenvectors(matrix: Array, value: complex, sweeps: int = 2) -> tuple[Array, Array] | None:
    """Return ``x`` and ``y`` with ``matrix x = value x``, ``y^T matrix = value y^T``, from one factorization."""
    n = matrix.shape[0]
    nudge = 1e-9 * (abs(value) + float(np.abs(matrix).max()) + 1e-100)
    shift = value + nudge * (1 + 1j) if value.imag else value.real + nudge
    kind = complex if value.imag else float
    factor, solve = _LAPACK[kind]
    factors, pivots, info = factor(matrix - shift * np.eye(n))
    if info != 0:
        return None
    x = y = np.cos(np.arange(1.0, n + 1.0)).astype(kind)
    for _ in range(sweeps):
        x, y = solve(factors, pivots, x)[0], solve(factors, pivots, y, trans=1)[0]
        x, y = x / np.abs(x).max(), y / np.abs(y).max()
    return (x, y) if np.isfinite(x).all() and np.isfinite(y).all() else None
