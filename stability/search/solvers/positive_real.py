r"""Positivity of :math:`\Phi(\omega) = G(i\omega) + G(i\omega)^H` at every frequency, infinity included.

The frequencies at which :math:`\Phi - \mu I` is singular are eigenvalues of a matrix pencil, so that no sign
change can slip through a grid. Where ``D + D^T`` is singular, positivity must hold in the limit as well:
:math:`\Phi = R + H_1/\omega + H_2/\omega^2 + \dots` with ``R = D + D^T``, :math:`H_1 = (CB - (CB)^T)/i`,
:math:`H_2 = -(CAB + (CAB)^T)`; on the null space N of R the terms :math:`N^T H_1 N = 0` and
:math:`N^T (H_2 - H_1 R^+ H_1) N > 0` decide.

Source: P. Ioannou, G. Tao, Frequency domain conditions for strictly positive real functions, IEEE TAC 32
(1987); the pencil: S. Boyd, V. Balakrishnan, P. Kabamba, Math. Control Signals Systems 2 (1989).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigvals

from stability.search.solvers.deadline import Deadline
from stability.search.solvers.state_space import StateSpace
from stability.search.solvers.transfer_function import scaled_response

Array = np.ndarray
_LEVELS = 40
_WELL = 1e6
"""Largest condition number of ``D + D^T`` for its elimination from the pencil."""


@dataclass(frozen=True)
class Positivity:
    """Outcome of the frequency test.

    Attributes:
        margin: smallest eigenvalue of ``G + G^H`` over all frequencies (times ``1 + (omega/a)^2``, a the
            size of A, where ``D + D^T`` is singular); its sign decides. For an unstable system minus the
            distance of its poles from stability.
        omega: frequency of the maximum.
        limit: whether the condition at infinity was needed.
    """

    margin: float
    omega: float
    limit: bool


def _least(matrix: Array) -> float:
    return float(np.linalg.eigvalsh(0.5 * (matrix + matrix.conj().T))[0])


class NullDirections(NamedTuple):
    """Directions ``N`` with ``(D + D^T) N = 0``, those to ``keep``, and the eigenvalues of ``D + D^T`` along these."""

    N: Array
    keep: Array
    values: Array


def null_directions(system: StateSpace) -> NullDirections:
    """Return the input directions in the kernel of ``D + D^T``; none in discrete time, where B sees them.

    Args:
        system: as many outputs as inputs.

    Returns:
        Orthonormal columns; ``keep`` is the identity where there are none.
    """
    R = system.D + system.D.T
    values, vectors = np.linalg.eigh(R)
    null = np.abs(values) <= 64 * np.finfo(float).eps * max(float(np.abs(R).max(initial=0.0)), 1e-300)
    if system.is_discrete or not null.any():
        return NullDirections(np.zeros((len(R), 0)), np.eye(len(R)), values)
    return NullDirections(vectors[:, null], vectors[:, ~null], values[~null])


def interpolant(X: Array, Y: Array) -> tuple[Array, Array] | None:
    """Parametrize all symmetric positive definite ``P`` with ``P X = Y`` as ``P0 + N Z N^T``.

    Args:
        X: ``(n, k)`` of full column rank.
        Y: ``(n, k)``.

    Returns:
        ``P0`` and ``N (n, n - k)``, or ``None`` when no P > 0 exists (``X^T Y`` must be
        symmetric and positive).

    Example:
        >>> P0, N = interpolant(np.array([[1.0], [1.0]]), np.array([[2.0], [1.0]]))
        >>> P0 @ [1.0, 1.0]
        array([2., 1.])
    """
    cross = X.T @ Y
    size = float(np.abs(cross).max(initial=0.0))
    if size == 0.0 or np.abs(cross - cross.T).max() > 1e-9 * size:
        return None
    cross = 0.5 * (cross + cross.T)
    if np.linalg.eigvalsh(cross)[0] <= 1e-13 * size:
        return None
    base = Y @ np.linalg.solve(cross, Y.T)
    u, _, _ = np.linalg.svd(X, full_matrices=True)
    return 0.5 * (base + base.T), u[:, X.shape[1] :]


def _crossings(system: StateSpace, R: Array) -> Array:
    """Return frequencies at which ``G + G^H`` (with ``R`` in place of ``D + D^T``) may be singular."""
    values = _hamiltonian_values(system, R)
    if values is None:
        values = _pencil_values(system, R)
    values = values[np.isfinite(values)]
    if system.is_discrete:
        return np.abs(np.angle(values[np.abs(np.abs(values) - 1.0) < 1e-4]))
    return np.abs(np.imag(values)[np.abs(np.real(values)) < 1e-4 * np.abs(values)])


def _hamiltonian_values(system: StateSpace, R: Array) -> Array | None:
    """Return the pencil's finite eigenvalues from a matrix of size ``2 n``, a dozen times faster, if R allows it.

    In discrete time ``z = sign (1 + s) / (1 - s)`` leads to one in continuous time.
    """
    A, B, C, _ = system.matrices
    sign, eye = 1.0, np.eye(len(A))
    if system.is_discrete:
        sign = 1.0 if np.linalg.cond(A + eye, 1) < np.linalg.cond(A - eye, 1) else -1.0
        inverse = np.linalg.inv(eye + sign * A)
        CX = sign * (C @ inverse)
        R = R - CX @ B - (CX @ B).T
        A, B, C = inverse @ (sign * A - eye), np.sqrt(2.0) * (inverse @ B), np.sqrt(2.0) * CX
    if np.linalg.cond(R, 1) > _WELL:
        return None
    solved = np.linalg.solve(R, np.hstack([C, B.T]))
    RC, RB = solved[:, : len(A)], solved[:, len(A) :]
    values = np.linalg.eigvals(np.block([[A - B @ RC, -B @ RB], [C.T @ RC, C.T @ RB - A.T]]))
    return sign * (1.0 + values) / (1.0 - values) if system.is_discrete else values


def _pencil_values(system: StateSpace, R: Array) -> Array:
    A, B, C, _ = system.matrices
    n, m = B.shape
    zero, eye = np.zeros((n, n)), np.eye(n)
    if system.is_discrete:
        matrix = np.block([[A, zero, B], [zero, eye, np.zeros((n, m))], [-C, -B.T, -R]])
        right = np.block([[eye, zero, np.zeros((n, m))], [zero, A.T, C.T], [np.zeros((m, 2 * n + m))]])
    else:
        matrix = np.block([[A, zero, B], [zero, -A.T, -C.T], [C, B.T, R]])
        right = np.zeros_like(matrix)
        right[: 2 * n, : 2 * n] = np.eye(2 * n)
    return np.asarray(eigvals(matrix, right, check_finite=False))


def _limit(system: StateSpace, null: NullDirections) -> float:
    """Return the smallest eigenvalue of the leading term of ``G + G^H`` where R is zero; ``-inf`` without symmetry."""
    cb = system.C @ system.B
    h1 = (cb - cb.T) / 1j
    if np.abs(null.N.T @ h1 @ null.N).max(initial=0.0) > 1e-9 * max(float(np.abs(cb).max(initial=0.0)), 1e-300):
        return -np.inf
    cab = system.C @ system.A @ system.B
    h2 = -(cab + cab.T)
    coupling = h1 @ null.keep
    return _least(null.N.T @ (h2 - (coupling / null.values) @ coupling.conj().T) @ null.N)


@np.errstate(all="ignore")
def positivity_margin(system: StateSpace, *, deadline: Deadline | None = None) -> Positivity:
    """Return the smallest eigenvalue of ``G + G^H`` on the stability boundary.

    Args:
        system: as many outputs as inputs.
        deadline: checked between factorizations; half a scan of the axis is none.

    Returns:
        The outcome; strictly positive real exactly where its margin is positive.

    Raises:
        TimeOverError: when the deadline came first, for the search that set it.

    Example:
        >>> one = np.ones((1, 1))
        >>> positivity_margin(StateSpace(-one, one, one, 0 * one, False)).margin  # 1 / (s + 1): 2 (1 + w^2) / (1 + w^2)
        2.0
        >>> positivity_margin(StateSpace(-one, one, one, one, False)).margin  # (s + 2) / (s + 1): 2 at infinity
        2.0
    """
    deadline, discrete = deadline or Deadline(), system.is_discrete
    response, time = scaled_response(system, deadline)
    system, poles = response.system, response.poles
    room = 1.0 - float(np.abs(poles).max()) if discrete else -float(np.real(poles).max())
    if not room > 0:
        return Positivity(room * time, np.nan, False)
    R, null = system.D + system.D.T, null_directions(system)
    limit = null.N.shape[1] > 0 and bool((null.values >= 0).all())  # a negative eigenvalue there decides by itself
    unit = float(np.abs(poles).max()) or 1.0

    def values(omegas: Array) -> Array:
        finite = np.isfinite(omegas)
        out = np.empty(len(omegas))
        if not finite.all():
            out[~finite] = _limit(system, null) / unit**2 if limit else _least(R)
        G = response.values(response.point(omegas[finite]), deadline)
        weight = 1.0 + (omegas[finite] / unit) ** 2 if limit else 1.0
        out[finite] = np.linalg.eigvalsh(G + G.conj().transpose(0, 2, 1))[:, 0] * weight
        return out

    samples = response.samples()
    minima = values(samples)
    omega, best = float(samples[minima.argmin()]), float(minima.min())
    for _ in range(_LEVELS):
        deadline.require(70.0 * (2 * system.states + len(R)) ** 3)  # the eigenvalues of the pencil
        level = 0.0 if limit else best - 1e-9 * max(abs(best), float(np.abs(R).max(initial=0.0)))
        points = np.unique(_crossings(system, R - level * np.eye(len(R))))
        tries = response.candidates(points)
        minima = values(tries)
        i = int(np.argmin(minima))
        if minima[i] >= best or (not limit and minima[i] >= level):
            break
        omega, best = float(tries[i]), float(minima[i])
        if limit:
            break
    return Positivity(best, omega * time, limit)
