"""Proofs that every matrix of a ball has an eigenvalue outside the stability region."""

from __future__ import annotations

import math

import numpy as np

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.definiteness import prove_positive_definite
from stability.kernel.arithmetic.eigenpairs import (
    Eigenpair,
    Matrix,
    approximate_solution,
    enclose_eigenpair,
    inverse_iteration,
    inverse_or_none,
    is_near,
)
from stability.kernel.arithmetic.exact_polynomials import has_boundary_eigenvalue
from stability.kernel.arithmetic.floating_point import EPS

Array = np.ndarray


def prove_trace(matrix: Matrix, discrete: bool, strict: bool = False) -> bool:
    """Return True if the trace alone proves instability: ``>= 0`` (continuous) or ``|trace| >= n`` (discrete),
    ``>`` if strict.

    Some eigenvalue is then not in the open left half-plane (not inside the unit circle). This decides the
    systems on the boundary that have it exactly: ``A = 0``, skew-symmetric ``A``, the identity.
    """
    if not matrix.mass.all():
        return False
    diagonal, rad = np.diagonal(matrix.ball.mid), np.diagonal(matrix.ball.rad)
    if not float(np.abs(diagonal).max() + rad.max()) < 1e290:
        return False
    threshold = float(len(diagonal)) if discrete else 0.0
    sides = (diagonal, -diagonal) if discrete else (diagonal,)
    over = max(math.fsum([*side, *-rad, -threshold]) for side in sides)  # rounded once: its sign is the exact one
    return over > 0 if strict else over >= 0


def enclose_unstable(matrix: Matrix, discrete: bool, value: complex) -> Eigenpair | None:
    """Enclose the eigenvalue near ``value`` outside the closed stability region, for every matrix of the ball; or
    return ``None``.

    Args:
        matrix: the pencil.
        discrete: unit circle instead of the imaginary axis.
        value: the eigenvalue to within ``enclosures.NEAR`` of its modulus.

    Returns:
        The enclosed pair, or ``None`` where that is not proved.
    """
    if not np.isfinite(matrix.ball.mid).all():
        return None
    vector = inverse_iteration(matrix, value)
    pair = None if vector is None else enclose_eigenpair(matrix, value, vector)
    return None if pair is None or not (is_near(pair, value) and _is_outside(pair, discrete)) else pair


def _is_outside(pair: Eigenpair, discrete: bool) -> bool:
    size = (abs(pair.value) * (1 - 4 * EPS) - 1.0) if discrete else pair.value.real
    return size > pair.radius


def prove_not_stable(matrix: Matrix, discrete: bool, value: complex | None, strict: bool = False) -> str | None:
    """Prove that every matrix of the ball has an eigenvalue outside the open stability region.

    Where the eigenvalue is named, it is that one which is enclosed, and proved unstable. Without a name three ways
    remain, which know of no single one: the trace and, for small exact matrices, the characteristic polynomial (for
    systems exactly on the boundary), and a quadratic form that grows along every trajectory and is positive somewhere.

    Args:
        matrix: the pencil.
        discrete: unit circle instead of the imaginary axis.
        value: the eigenvalue that a sentence names, or ``None``.
        strict: outside the closed region, not only on its boundary; a named one always is.

    Returns:
        What was proved, in a clause, or ``None``.
    """
    part, edge = ("modulus", 1) if discrete else ("real part", 0)
    if value is not None:
        pair = enclose_unstable(matrix, discrete, value)
        return None if pair is None else f"an eigenvalue of {part} above {edge} {pair.phrase}"
    if not np.isfinite(matrix.ball.mid).all():
        return None
    if prove_trace(matrix, discrete, strict):
        return f"the trace forces an eigenvalue of {part} {'>' if strict else '>='} {edge}"
    exact = matrix.mass.all() and not matrix.ball.rad.any()
    if exact and not strict and has_boundary_eigenvalue(matrix.ball.mid, discrete):
        return f"its characteristic polynomial has a root of {part} >= {edge}"
    if matrix.mass.all() and _expanding_form(matrix.ball, discrete):
        return "a quadratic form grows along every trajectory and is positive somewhere"
    return None


def _expanding_form(ball: Ball, discrete: bool) -> bool:
    r"""Find a symmetric ``X`` with ``A^T X + X A > 2 s X`` (``A^T X A > s^2 X``), ``v^T X v > 0`` and ``s`` on
    the unstable side.

    Then ``V = x^T X x`` grows at least like ``exp(2 s t)`` from ``V(v) > 0``, so the origin is not
    attracting.
    """
    mid = ball.mid
    try:
        eigenvalues, vectors = np.linalg.eig(mid)
    except np.linalg.LinAlgError:
        return False
    measure = np.abs(eigenvalues) if discrete else np.real(eigenvalues)
    edge = 1.0 if discrete else 0.0
    levels = np.sort(np.concatenate([[edge], measure[measure > edge]]))
    if len(levels) < 2:
        return False
    gaps = np.diff(levels)
    at = int(np.argmax(gaps))
    s = 0.5 * (levels[at] + levels[at + 1])
    signs = np.sign(measure - s)
    v = np.ascontiguousarray(np.real(vectors[:, np.argmax(measure)]))
    for form in (_form_from_vectors(vectors, signs), _form_from_equation(mid, s, discrete)):
        if form is not None and _quadratic_form_grows(ball, form, s, discrete, v):
            return True
    return False


def _form_from_vectors(vectors: Array, signs: Array) -> Array | None:
    inverse = inverse_or_none(vectors)
    return None if inverse is None else np.real(inverse.conj().T @ (signs[:, None] * inverse))


def _form_from_equation(mid: Array, s: float, discrete: bool) -> Array | None:
    """Solve the Lyapunov (Stein) equation as a linear system, for small matrices with too few eigenvectors."""
    size = mid.shape[0]
    if size > 24:
        return None
    eye = np.eye(size)
    if discrete:
        operator = np.kron(mid.T / s, mid.T / s) - np.eye(size * size)
    else:
        shifted = (mid - s * eye).T
        operator = np.kron(eye, shifted) + np.kron(shifted, eye)
    solution = approximate_solution(operator, eye.reshape(-1))
    return None if solution is None else solution.reshape(size, size)


def _quadratic_form_grows(ball: Ball, form: Array, s: float, discrete: bool, v: Array) -> bool:
    """Return True if ``V = x^T X x`` grows by a factor of at least ``s^2 >= 1`` per step (at a rate of at least
    ``2 s >= 0``) and ``V(v) > 0``; every such factor proves instability, so its rounding does not matter.
    """
    if not s >= (1.0 if discrete else 0.0):
        return False
    largest = float(np.abs(form).max())
    if not 0.0 < largest < np.inf:
        return False
    form = (form + form.T) / (2.0 * largest)
    X = Ball.exact(form)
    if discrete:
        growth = ball.T @ (X @ ball) - (s * s) * X
    else:
        product = X @ ball
        growth = product + product.T - (2.0 * s) * X
    value = v @ (X @ v)
    if not float(value.mid - value.rad) > 0.0:
        return False
    symmetric = 0.5 * (growth + growth.T)
    return prove_positive_definite(symmetric.mid, lambda w: symmetric.rad @ w).holds
