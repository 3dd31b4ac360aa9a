r"""Bounded real lemma by structured doubling, O(n^3) and without an SDP.

For a strictly stable loop with gain below one the Riccati equation

.. math:: \tilde A^T P + P \tilde A + P G P + Q + S = 0 \quad\text{or}\quad
          P = \tilde A^T P (I - G P)^{-1} \tilde A + Q + S,

with ``G = B R^{-1} B^T``, ``R = I - D^T D``, ``Q = C^T (I - D D^T)^{-1} C``, ``\tilde A = A + B R^{-1} D^T C`` and a
small slack ``S > 0``, has a stabilizing solution ``P > 0``, and that ``P`` satisfies the matrix inequality strictly.
Doubling squares the closed loop's transition matrix in every step, so a handful of steps suffice.

Source: E. K.-W. Chu, H.-Y. Fan, W.-W. Lin, A structure-preserving doubling algorithm for continuous-time
algebraic Riccati equations, Linear Algebra Appl. 396 (2005); the same for discrete time with W.-W. Lin, C.-S. Wang.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from stability.search.solvers.deadline import Deadline
from stability.search.solvers.loop_transformation import multiply_diagonal
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
_STEPS = 60
_INDEFINITE = 1e-6
"""Negative diagonal entry of a step of ``X``, relative to the largest entry, that proves that there is no solution:
steps are positive semidefinite as long as there is one.
"""
_GEMM = {kind: get_blas_funcs(("gemm",), dtype=kind)[0] for kind in "fd"}
_LU_FUNCS = {kind: get_lapack_funcs(("getrf", "getrs"), dtype=kind) for kind in "fd"}


def _mul(x: Array, y: Array, tx: bool = False, ty: bool = False) -> Array:
    """Return a product in column-major order without copies (all arrays here are Fortran-ordered)."""
    return _GEMM[x.dtype.char](1.0, x, y, trans_a=tx, trans_b=ty)


class _Singular(ArithmeticError):
    pass


class _LU:
    """LU factorization with solves on either side."""

    def __init__(self, matrix: Array) -> None:
        getrf, self._getrs = _LU_FUNCS[matrix.dtype.char]
        self.lu, self.pivot, info = getrf(matrix, overwrite_a=True)
        if info != 0 or not np.isfinite(self.lu.ravel(order="K")[:: max(1, self.lu.size // 64)]).all():
            raise _Singular

    def solve(self, right: Array, transposed: bool = False) -> Array:
        out, info = self._getrs(self.lu, self.pivot, right, trans=1 if transposed else 0)
        if info != 0:
            raise _Singular
        return out


def _start_continuous(a: Array, g: Array, h: Array, shift: float) -> tuple[Array, Array, Array]:
    """Return the Cayley transform of the Hamiltonian: the initial (E, G, H) of doubling (G enters as -G)."""
    n = a.shape[0]
    eye = np.diag_indices(n)
    moved = a.copy(order="F")
    moved[eye] -= shift
    lu = _LU(moved)
    y = lu.solve(g)  # (A - shift)^{-1} G
    w = _mul(h, y)
    np.subtract(a.T, w, out=w)
    w[eye] -= shift
    right = _LU(w)  # A^T - shift - H (A - shift)^{-1} G
    inverse = right.solve(np.asfortranarray(np.eye(n, dtype=a.dtype)))
    e = 2.0 * shift * inverse.T
    e[eye] += 1.0
    big_g = 2.0 * shift * _mul(y, inverse)
    hz = lu.solve(np.asfortranarray(h), transposed=True).T  # H (A - shift)^{-1}
    big_h = 2.0 * shift * _mul(inverse, np.asfortranarray(hz))
    return np.asfortranarray(e), _symmetric(big_g), _symmetric(big_h)


def _symmetric(x: Array) -> Array:
    return np.asfortranarray(0.5 * (x + x.T))


def _double(e: Array, g: Array, h: Array, tolerance: float, deadline: Deadline) -> Array | None:
    """Run doubling for ``X = E^T X (I - G X)^{-1} E + H`` with ``G, H >= 0``, until X converges."""
    eye = np.diag_indices(len(e))
    ceiling = (1e30 if e.dtype == np.float64 else 1e15) * max(float(np.abs(h).max()), 1e-30)
    least = _INDEFINITE if e.dtype == np.float64 else 1e3 * _INDEFINITE
    for _ in range(_STEPS):
        if deadline.over:
            return None
        w = _mul(g, h)
        np.negative(w, out=w)
        w[eye] += 1.0
        lu = _LU(w)
        ve = lu.solve(e)
        vg = lu.solve(g)
        step = _mul(e, _mul(h, ve), tx=True)
        size = float(np.abs(step).max())
        if not size <= ceiling or np.diagonal(step).min() < -least * size:
            return None
        h = h + 0.5 * (step + step.T)
        if size <= tolerance * float(np.abs(h).max()):
            return h
        new_g = _mul(_mul(e, vg), e, ty=True)
        g = g + 0.5 * (new_g + new_g.T)
        e = _mul(e, ve)
    return None  # the gain is at or above one


@np.errstate(all="ignore")
def bounded_real(
    loop: StateSpace, slack: float = 1e-6, *, dtype: type = np.float64, deadline: Deadline | None = None
) -> Array | None:
    """Return a candidate ``P`` for the strict bounded real inequality of a loop at gain one, not yet verified.

    Args:
        loop: the scaled, shifted loop.
        slack: size of ``S`` relative to ``Q``; the candidate's margin.
        dtype: ``numpy.float32`` halves the time; the candidate is verified in float64 anyway.
        deadline: checked before each doubling step: near the boundary there are dozens of them.

    Returns:
        A finite matrix, or ``None``, which proves nothing.

    Cost:
        About ``17 n^3`` flops a step and 6 to 12 steps; memory about ``10 n^2`` numbers.
    """
    try:
        return _bounded_real(loop, slack, dtype, deadline or Deadline())
    except _Singular:
        return None


def _bounded_real(loop: StateSpace, slack: float, dtype: type, deadline: Deadline) -> Array | None:
    n = loop.states
    a, b, c, d = loop.matrices
    if d.any():
        if not deadline.affords(0.3 * (d.shape[0] ** 3 + d.shape[1] ** 3)):
            return None
        r = np.eye(d.shape[1]) - d.T @ d
        try:
            rb = np.linalg.solve(r, b.T).T
            q = c.T @ np.linalg.solve(np.eye(d.shape[0]) - d @ d.T, c)
            np.linalg.cholesky(r)
        except np.linalg.LinAlgError:  # the direct term's gain is at or above one
            return None
        a = a + rb @ (d.T @ c)
        g = rb @ b.T
    else:
        g, q = multiply_diagonal(b, b.T), c.T @ c
    level = float(np.trace(q)) / n
    weight = float(np.trace(g)) / n
    size = float(np.linalg.norm(a)) / np.sqrt(n) + 1e-300
    if not (np.isfinite(level) and np.isfinite(weight) and np.isfinite(size)):
        return None
    # Scale P so that G and Q have one size: doubling in float32 needs it, and slack gets a meaning.
    unit = np.sqrt(max(level, 1e-30 * size) / max(weight, 1e-30 * size)) if level > 0 and weight > 0 else 1.0
    g = g * unit
    q = q / unit
    floor = max(level / unit, 1e-3 * size if not loop.is_discrete else 1e-3)
    q[np.diag_indices(n)] += slack * floor
    a, g, q = (np.asfortranarray(x, dtype=dtype) for x in (a, g, q))
    tolerance = 1e-13 if dtype == np.float64 else 3e-3  # steps shrink quadratically: the rest is below the slack
    start = (a, g, q) if loop.is_discrete else _start_continuous(a, g, q, size)
    p = _double(*start, tolerance, deadline)
    if p is None or not np.isfinite(p).all():
        return None
    return np.ascontiguousarray(p, dtype=np.float64) * unit
