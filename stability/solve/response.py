"""Frequency responses: transfer matrices on the stability boundary, from balanced coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs, schur

from stability.errors import DimensionError
from stability.solve.coordinates import balancing
from stability.systems import as_matrix

__all__ = ["Response", "balance_state", "clean_matrices", "time_unit"]

Array = np.ndarray
_SMALL = 40
_POWER_STEPS = 12


class Response:
    """Evaluates ``G`` on the stability boundary: a Schur form once, then a triangular solve a frequency."""

    def __init__(self, A: Array, B: Array, C: Array, D: Array, discrete: bool) -> None:
        self.T, U = schur(A, output="complex")[:2]
        self.B, self.C, self.D, self.discrete = U.conj().T @ B, C @ U, D, discrete
        self.poles = np.diag(self.T).copy()
        self._diagonal = np.arange(len(A))
        self.small = max(D.shape) <= _SMALL
        rng = np.random.default_rng(0)
        start = rng.normal(size=(D.shape[1], min(2, D.shape[1])))
        self._direction = np.linalg.qr(start.astype(complex))[0]
        (self._trtrs,) = get_lapack_funcs(("trtrs",), (self.T, self.B))

    def at(self, omega: float) -> Array:
        """``G(i omega)`` or ``G(exp(i omega))``."""
        if np.isinf(omega):
            return self.D + 0j
        point = np.exp(1j * omega) if self.discrete else 1j * omega
        M = -self.T
        M[self._diagonal, self._diagonal] += point
        x, info = self._trtrs(M, self.B)
        if info != 0:  # a pole on the axis
            return np.full(self.D.shape, np.inf + 0j)
        return self.D + self.C @ x

    def gain(self, omega: float) -> float:
        """The largest singular value there."""
        G = self.at(omega)
        if not np.isfinite(G).all():
            return np.inf
        return float(np.linalg.norm(G, 2))

    def estimate(self, omega: float) -> float:
        """A lower bound of the gain: exact for small systems, else by power iterations from the last direction.

        An iteration costs two triangular solves with two vectors instead of one with all and a decomposition.
        """
        if self.small or np.isinf(omega):
            return self.gain(omega)
        point = np.exp(1j * omega) if self.discrete else 1j * omega
        M = -self.T
        M[self._diagonal, self._diagonal] += point
        value, v = 0.0, self._direction
        for _ in range(_POWER_STEPS):
            x, info = self._trtrs(M, self.B @ v)
            if info != 0:
                return np.inf
            y = self.C @ x + self.D @ v
            x, _ = self._trtrs(M, self.C.conj().T @ y, trans=2)
            w = self.B.conj().T @ x + self.D.T @ y
            new = float(np.linalg.norm(y, 2)) / float(np.linalg.norm(v, 2))
            v, _ = np.linalg.qr(w)
            if not np.isfinite(v).all() or abs(new - value) <= 1e-4 * new:
                return max(new, value)
            value = max(new, value)
        self._direction = v
        return value

    def samples(self) -> Array:
        """Frequencies to start from: the ends, the resonances, and points between them."""
        if self.discrete:
            return np.unique(np.concatenate([np.abs(np.angle(self.poles)), np.linspace(0, np.pi, 9)]))
        size = np.abs(self.poles)
        resonances = np.sqrt(np.maximum(size**2 - 2 * np.real(self.poles) ** 2, 0.0))
        finite = size[size > 0]
        spread = np.geomspace(finite.min(), finite.max(), 9) if len(finite) else np.zeros(0)
        return np.unique(np.concatenate([[0.0, np.inf], np.abs(np.imag(self.poles)), resonances, spread]))


def clean_matrices(A: Any, B: Any, C: Any, D: Any) -> tuple[Array, Array, Array, Array]:
    """Checked float64 copies of a state-space system's matrices, D zero where it is ``None``.

    Raises:
        StabilityError: shapes that do not fit, or entries that are not finite real numbers.
    """
    a = as_matrix("A", A)
    n = a.shape[0]
    if a.shape[1] != n:
        raise DimensionError("A", "(n, n)", a.shape)
    b = as_matrix("B", B, (n, None))
    c = as_matrix("C", C, (None, n))
    shape = (c.shape[0], b.shape[1])
    return a, b, c, as_matrix("D", np.zeros(shape) if D is None else D, shape)


def balance_state(A: Array, B: Array, C: Array, D: Array) -> tuple[Array, Array, Array]:
    """A diagonal similarity that evens out the rows and columns of the state, inputs and outputs included."""
    k = max(B.shape[1], C.shape[0])
    b, c = np.zeros((len(A), k)), np.zeros((k, len(A)))
    scale = np.linalg.norm(A) or 1.0
    b[:, : B.shape[1]] = B * (scale / (np.linalg.norm(B) or 1.0))
    c[: C.shape[0]] = C * (scale / (np.linalg.norm(C) or 1.0))
    t, _ = balancing(A, b, c, np.zeros((k, k)))
    return A * t[None, :] / t[:, None], B / t[:, None], C * t[None, :]


def time_unit(A: Array) -> float:
    """A power of two near the largest entry of A: dividing A and B by it changes the unit of time only."""
    peak = float(np.max(np.abs(A), initial=0.0))
    return float(np.exp2(np.round(np.log2(peak)))) if 0.0 < peak < np.inf else 1.0
