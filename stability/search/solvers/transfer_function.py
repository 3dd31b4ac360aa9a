"""Transfer functions in balanced coordinates, evaluated on and beside the stability boundary."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs, rsf2csf, schur

from stability.errors import DimensionError, UnsupportedError
from stability.kernel.checks import as_matrix
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.scaling import balanced_states, power_of_two
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
_SMALL = 40  # most inputs or outputs for exact singular values
_POWER_STEPS = 12  # power iterations of a lower bound of the gain
_RESONANCES = 16  # most poles whose frequencies are sampled
_REAL_SCHUR_STATES = 48
"""Number of states from which on the complex Schur form is computed from the real one, in at most half the time."""


def complex_schur(A: Array) -> tuple[Array, Array]:
    """Return ``T`` upper triangular and ``U`` unitary with ``A = U T U*``.

    Args:
        A: ``(n, n)``, real or complex.

    Returns:
        ``T`` and ``U``, complex.

    Source: G. Golub, C. Van Loan, Matrix Computations, 4th ed., sections 7.4 and 7.6: QR iterations in real
    arithmetic, then a rotation for each pair of complex eigenvalues.

    Example:
        >>> T, U = complex_schur(np.array([[0.0, 1.0], [-1.0, 0.0]]))
        >>> np.abs(np.diag(T)).round(6).tolist(), float(np.abs(T[1, 0]))
        ([1.0, 1.0], 0.0)
    """
    if np.isrealobj(A) and len(A) >= _REAL_SCHUR_STATES:
        return rsf2csf(*schur(A, output="real")[:2])
    return schur(A, output="complex")[:2]


class Response:
    """Evaluator of ``G(s) = C (s I - A)^{-1} B + D``: a Schur form once, then one triangular solve per point.

    Example:
        >>> lag = Response(StateSpace(np.array([[-1.0]]), np.eye(1), np.eye(1), np.zeros((1, 1)), False))
        >>> np.abs(lag.values(np.array([0.0, 1j]))).round(3).ravel().tolist()
        [1.0, 0.707]
    """

    def __init__(self, system: StateSpace) -> None:
        self.system, self.discrete = system, system.is_discrete
        self.T, U = complex_schur(system.A)
        self.B, self.C, self.D = U.conj().T @ system.B, system.C @ U, system.D
        self.poles = np.diag(self.T).copy()
        self._diagonal = np.arange(system.states)
        self.small = max(self.D.shape) <= _SMALL
        rng = np.random.default_rng(0)
        start = rng.normal(size=(self.D.shape[1], min(2, self.D.shape[1])))
        self._direction = np.linalg.qr(start.astype(complex))[0]
        (self._trtrs,) = get_lapack_funcs(("trtrs",), (self.T, self.B))

    def point(self, omega: Any) -> Any:
        """Return ``i omega`` or ``exp(i omega)``."""
        return np.exp(1j * omega) if self.discrete else 1j * omega

    def _resolvent(self, s: complex) -> Array:
        """Return ``s I - T``."""
        M = -self.T
        M[self._diagonal, self._diagonal] += s
        return M

    def value(self, s: complex) -> Array:
        """Return ``G(s)``."""
        x, info = self._trtrs(self._resolvent(s), self.B)
        if info != 0 or not np.isfinite(x).all():  # a pole
            return np.full(self.D.shape, np.inf + 0j)
        return self.D + self.C @ x

    def values(self, points: Array, deadline: Deadline | None = None) -> Array:
        """Return ``G(s)`` at many points at once.

        Args:
            points: ``(K,)``.
            deadline: checked before each point.

        Returns:
            ``(K, p, m)``; infinite at poles.

        Raises:
            TimeOverError: when the deadline comes before the last point.

        Cost:
            ``4 n^2 m`` flops a point.
        """
        out = np.empty((len(points), *self.D.shape), dtype=complex)
        for k, s in enumerate(points):
            (deadline or Deadline()).require()
            out[k] = self.value(s)
        return out

    def gains(self, omegas: Array, deadline: Deadline | None = None) -> Array:
        """Return the largest singular values at many frequencies ``(K,)``, infinite ones included."""
        omegas = np.asarray(omegas, dtype=float)
        finite = np.isfinite(omegas)
        G = np.broadcast_to(self.D + 0j, (len(omegas), *self.D.shape)).copy()
        G[finite] = self.values(self.point(omegas[finite]), deadline)
        inside = np.isfinite(G).all(axis=(1, 2))
        out = np.full(len(omegas), np.inf)
        out[inside] = np.linalg.norm(G[inside], 2, axis=(1, 2))
        return out

    def at(self, omega: float) -> Array:
        """Return ``G(i omega)`` or ``G(exp(i omega))``."""
        return self.D + 0j if np.isinf(omega) else self.value(self.point(omega))

    def gain(self, omega: float) -> float:
        """Return the largest singular value at ``omega``."""
        G = self.at(omega)
        return float(np.linalg.norm(G, 2)) if np.isfinite(G).all() else np.inf

    def estimate(self, omega: float) -> float:
        """Return a lower bound of the gain: exact for small systems, else by power iterations from the last direction.

        An iteration costs two triangular solves with two right-hand sides. The exact gain costs a solve with all
        columns of ``B`` and a singular value decomposition.
        """
        if self.small or np.isinf(omega):
            return self.gain(omega)
        M = self._resolvent(self.point(omega))
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

    def estimates(self, omegas: Array, deadline: Deadline | None = None) -> Array:
        """Return ``estimate`` at many frequencies: for small systems all at once, else one after the other."""
        if self.small:
            return self.gains(omegas, deadline)
        estimates = []
        for omega in omegas:
            (deadline or Deadline()).require()
            estimates.append(self.estimate(float(omega)))
        return np.array(estimates)

    def candidates(self, points: Array) -> Array:
        """Return the given increasing frequencies, their midpoints, and the ends of the range, in increasing order."""
        end = np.pi if self.discrete else 2.0 * float(points.max(initial=0.0))
        return np.unique(np.concatenate([points, 0.5 * (points[1:] + points[:-1]), [0.0, end]]))

    def samples(self) -> Array:
        """Return initial frequencies: the ends of the range, the sharpest resonances, and points between them."""
        poles = self.poles[np.imag(self.poles) >= 0.0]  # one pole of each conjugate pair
        if self.discrete:
            poles = poles[np.argsort(-np.abs(poles))][:_RESONANCES]
            return np.unique(np.concatenate([np.abs(np.angle(poles)), np.linspace(0, np.pi, 9)]))
        sharp = np.abs(np.real(poles)) / (np.abs(poles) + 1e-300)
        poles = poles[np.argsort(sharp)][:_RESONANCES]
        size = np.abs(poles)
        resonances = np.sqrt(np.maximum(size**2 - 2 * np.real(poles) ** 2, 0.0))
        finite = np.abs(self.poles)[np.abs(self.poles) > 0]
        spread = np.geomspace(finite.min(), finite.max(), 9) if len(finite) else np.zeros(0)
        return np.unique(np.concatenate([[0.0, np.inf], np.abs(np.imag(poles)), resonances, spread]))


def state_space(A: Any, B: Any, C: Any, D: Any = None, dt: float | None = None) -> StateSpace:
    """Return checked float64 copies of a state-space system's matrices, D zero if it is ``None``.

    Raises:
        DimensionError: ``A`` is not square.
        StabilityError: shapes that do not fit, or entries that are not finite real numbers.
    """
    a = as_matrix("A", A)
    n = a.shape[0]
    if a.shape[1] != n:
        raise DimensionError("A", "(n, n)", a.shape)
    b = as_matrix("B", B, (n, None))
    c = as_matrix("C", C, (None, n))
    shape = (c.shape[0], b.shape[1])
    return StateSpace(a, b, c, as_matrix("D", np.zeros(shape) if D is None else D, shape), dt is not None)


def scaled_response(system: StateSpace, deadline: Deadline) -> tuple[Response, float]:
    """Return the response in balanced coordinates, and its unit of time.

    In continuous time the unit scales the entries of ``A`` to about one; in discrete time it is one.

    Raises:
        UnsupportedError: the scaled matrices overflow.
        TimeOverError: too little time for the Schur form.
    """
    system = balanced_states(system)
    time = 1.0
    if not system.is_discrete:  # dividing A and B by a number changes the unit of time only
        time = power_of_two(float(np.max(np.abs(system.A), initial=0.0)))
        system = system.rescaled(np.ones(system.states), time)
    if not all(np.isfinite(x).all() for x in (system.A, system.B, system.C)):
        raise UnsupportedError("the entries of the matrices span too many orders of magnitude: rescale states or time")
    deadline.require(50.0 * system.states**3)  # the complex Schur form
    return Response(system), time
