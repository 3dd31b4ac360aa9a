"""Lanczos tridiagonalization of a symmetric operator given by its products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from stability.errors import NonFiniteError

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Krylov:
    """Krylov decomposition ``H Q = Q T + beta_k q_{k+1} e_k^T``, ``Q (n, k)`` orthonormal, ``T`` tridiagonal.

    Attributes:
        basis: ``(k, n)``, the rows are the columns of ``Q``.
        diagonal: ``(k,)`` of ``T``.
        off_diagonal: ``(k - 1,)`` of ``T``.
        residual: ``beta_k``; 0 when the space is invariant and the Ritz values are eigenvalues.
    """

    basis: Vector
    diagonal: Vector
    off_diagonal: Vector
    residual: float

    @property
    def steps(self) -> int:
        """Number of products with the operator."""
        return len(self.diagonal)

    def ritz(self) -> tuple[Vector, Vector]:
        """Return the Ritz values ascending ``(k,)`` and the eigenvectors of ``T`` in columns ``(k, k)``."""
        values, vectors = eigh_tridiagonal(self.diagonal, self.off_diagonal)
        return np.asarray(values), np.asarray(vectors)


def random_direction(n: int, rng: np.random.Generator) -> Vector:
    """Return a unit vector ``(n,)`` with a uniformly distributed direction."""
    v = rng.standard_normal(n)
    return v / np.linalg.norm(v)


def _orthogonalise(w: Vector, basis: Vector) -> Vector:
    for _ in range(2):  # "twice is enough": Kahan and Parlett
        w = w - basis.T @ (basis @ w)
    return w


def lanczos(
    matvec: Callable[[Vector], Vector], start: Vector, steps: int, *, tol: float = 0.0, noise: float = 1e-14
) -> Krylov:
    """Run Lanczos with full re-orthogonalization, which prevents ghost copies of converged eigenvalues.

    Stops early when the Krylov space is invariant, or when both extreme Ritz values carry a residual bound
    of at most ``tol`` times their own magnitude.

    Args:
        matvec: ``v (n,) -> H v (n,)``, ``H`` symmetric.
        start: ``(n,)``, not zero.
        steps: at most this many products.
        tol: relative tolerance of the early stop; 0: never for that reason.
        noise: relative accuracy of a product; a residual below it counts as zero.

    Returns:
        The Krylov decomposition.

    Raises:
        NonFiniteError: a product holds NaN or an infinity.

    Source: C. Lanczos (1950); B. Parlett, The Symmetric Eigenvalue Problem, ch. 13.

    >>> H = np.diag([3.0, -1.0, 2.0])
    >>> values, _ = lanczos(H.dot, np.ones(3), 3).ritz()
    >>> np.allclose(values, [-1, 2, 3])
    True
    """
    n = len(start)
    steps = min(steps, n)
    basis = np.empty((steps, n))
    diagonal: list[float] = []
    off: list[float] = []
    q = start / np.linalg.norm(start)
    scale = 0.0
    while True:
        k = len(diagonal)
        basis[k] = q
        w = matvec(q)
        if not np.isfinite(w).all():
            raise NonFiniteError("a Hessian-vector product", "the loss overflows here, or has no second derivative")
        diagonal.append(float(q @ w))
        scale = max(scale, float(np.linalg.norm(w)))
        w = _orthogonalise(w, basis[: k + 1])
        beta = float(np.linalg.norm(w))
        invariant = k + 1 == n or beta <= noise * scale
        if not (invariant or k + 1 == steps) and tol > 0 and k >= 2:
            values, vectors = eigh_tridiagonal(np.array(diagonal), np.array(off))
            ends = np.abs(beta * vectors[-1, [0, -1]])
            converged = bool((ends <= tol * np.abs(values[[0, -1]])).all())
        else:
            converged = False
        if invariant or converged or k + 1 == steps:
            residual = 0.0 if invariant else beta
            return Krylov(basis[: k + 1], np.array(diagonal), np.array(off), residual)
        off.append(beta)
        q = w / beta
