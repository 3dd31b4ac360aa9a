"""Enclosures of eigenpairs: proofs that a matrix has an eigenvalue near a given number.

Matrices are balls, and every proof holds for all matrices in the ball, rounding errors included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.kernel.arithmetic.balls import Ball, row_sum_norm, system_balls

Array = np.ndarray
NEAR = 1e-6  # largest relative distance between the eigenvalue that a sentence names and the proved one


@dataclass(frozen=True, eq=False)
class Matrix:
    """Pencil ``M - s diag(mass)`` with ``mass`` of ones and zeros; all ones for an ordinary matrix.

    With a ``D`` the linearized system is kept as the pencil of ``[[A, B K], [C, D K - I]]`` with masses one
    on the states and zero on the channels, which has the same eigenvalues and needs no inverse.
    """

    ball: Ball
    mass: Array


@dataclass(frozen=True, eq=False)
class Eigenpair:
    """Eigenvalue within ``radius`` of ``value``, with its vector entrywise within ``vector_radius``."""

    value: complex
    radius: float
    vector: Array
    vector_radius: float

    @property
    def phrase(self) -> str:
        """The proved place in words."""
        value = f"{self.value:.4g}" if self.value.imag else f"{self.value.real:.4g}"
        return f"within {self.radius:.1e} of {value}"


def closed_loop_pencil(system: Any, slopes: Ball) -> Matrix:
    """Return the pencil with the eigenvalues of ``A + B K (I - D K)^{-1} C`` for every ``K`` in the ball."""
    A, B, C, D = system_balls(system)
    n, m = system.states, system.channels
    if m == 0 or not (slopes.mid.any() or slopes.rad.any()):
        return Matrix(A, np.ones(n))
    k = slopes[None, :]
    if not system.D.any() and not D.rad.any():
        return Matrix(A + (B * k) @ C, np.ones(n))
    block = Ball.stack([[A, B * k], [C, D * k - np.eye(m)]])
    return Matrix(block, np.concatenate([np.ones(n), np.zeros(m)]))


def closed_loop_orbit(system: Any, slopes: Ball) -> Matrix:
    r"""Return the pencil of the linearization along an orbit of a map, one step per block.

    With the Jacobians :math:`J_0, \dots, J_{k-1}` along the orbit it is the matrix that sends
    :math:`(d_0, \dots, d_{k-1})` to :math:`(J_{k-1} d_{k-1}, J_0 d_0, \dots)`; its eigenvalues are the k-th roots
    of those of :math:`J_{k-1} \cdots J_0` (the multipliers), so an eigenvalue lies outside the unit circle exactly when
    a multiplier does.

    Args:
        system: a discrete ``LureSystem``.
        slopes: ball of ``(k, m)``, the activation's slopes at each point.

    Returns:
        The pencil; for ``k = 1`` that of ``closed_loop_pencil``.
    """
    k, n = slopes.shape[0], system.states
    parts = [closed_loop_pencil(system, slopes[i]) for i in range(k)]
    inner = [part.mass.size - n for part in parts]  # channels where D couples them, none otherwise
    size = k * n + sum(inner)
    mid, rad, mass = np.zeros((size, size)), np.zeros((size, size)), np.zeros(size)
    mass[: k * n] = 1.0
    at = k * n
    for i, part in enumerate(parts):
        rows = np.r_[((i + 1) % k) * n : ((i + 1) % k) * n + n, at : at + inner[i]]
        columns = np.r_[i * n : i * n + n, at : at + inner[i]]
        mid[np.ix_(rows, columns)], rad[np.ix_(rows, columns)] = part.ball.mid, part.ball.rad
        at += inner[i]
    return Matrix(Ball(mid, rad), mass)


def inverse_or_none(matrix: Array) -> Array | None:
    """Return the inverse, or ``None`` if it does not exist or overflows."""
    return approximate_solution(matrix, np.eye(len(matrix)))


def approximate_solution(matrix: Array, right: Array) -> Array | None:
    """Return an approximate ``X`` with ``matrix X = right``; ``None`` for a singular matrix or on overflow."""
    try:
        solution = np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return None
    return solution if np.isfinite(solution).all() else None


def enclose_eigenpair(matrix: Matrix, value: complex, vector: Array) -> Eigenpair | None:
    r"""Enclose an eigenpair near ``(value, vector)``, by the Newton-Kantorovich theorem for the bordered system.

    With the largest entry ``k`` of the vector fixed to one, the corrections ``d`` solve
    ``r + J d - d_k diag(mass) d_{-k} = 0``; with ``R`` close to ``J^{-1}``, ``a = |R r|``, ``b = |I - R J|``
    and ``c = |R|`` (infinity norms) a solution within ``2 a / (1 - b)`` exists when ``4 a c <= (1 - b)^2``
    (Brouwer).

    Args:
        matrix: the pencil, with a ball of matrices.
        value: approximate eigenvalue.
        vector: approximate right eigenvector (of the pencil's size).

    Returns:
        The pair with its radii, or ``None`` where nothing is proved (also for multiple eigenvalues).
    """
    ball, mass = matrix.ball, matrix.mass
    size = ball.shape[0]
    norm = row_sum_norm(ball)
    if not (1e-200 < norm < 1e200 and np.isfinite(vector).all() and vector.any()):
        return None
    scale = math.ldexp(1.0, math.frexp(norm)[1])  # a power of two
    ball = ball * (1.0 / scale)
    value = complex(value) / scale
    k = int(np.argmax(np.abs(vector)))
    y = vector / vector[k]
    if value.imag == 0.0 and not np.iscomplexobj(y):
        value = value.real  # type: ignore[assignment]
    index = np.arange(size)
    for _ in range(2):  # Newton steps in plain floating point
        bordered = ball.mid - value * np.diag(mass)
        bordered[:, k] = -mass * y
        correction = approximate_solution(bordered, ball.mid @ y - value * (mass * y))
        if correction is None:
            return None
        value = value - correction[k]
        y = np.where(index == k, 1.0, y - correction)
    shifted = ball - np.diag(mass * value)
    residual = shifted @ y
    mid, rad = shifted.mid.copy(), shifted.rad.copy()
    mid[:, k], rad[:, k] = -mass * y, 0.0
    inverse = inverse_or_none(mid)
    if inverse is None:
        return None
    a = row_sum_norm(Ball.exact(inverse) @ residual)
    b = row_sum_norm(np.eye(size) - Ball.exact(inverse) @ Ball(mid, rad))
    c = row_sum_norm(Ball.exact(inverse))
    if not (b < 0.9 and 4.1 * a * c <= (1.0 - b) ** 2):
        return None
    radius = 2.0 * a / (1.0 - b)  # 4.1 above: radii from 0.87 times this one on are valid too, which covers rounding
    return Eigenpair(complex(value) * scale, math.nextafter(radius * scale, math.inf), y, radius)


def is_near(pair: Eigenpair, value: complex) -> bool:
    """Return True if the enclosed eigenvalue rounds to the stored one, so that a sentence may name it."""
    return abs(pair.value - value) + pair.radius <= NEAR * abs(value)


def inverse_iteration(matrix: Matrix, value: complex) -> Array | None:
    """Return an approximate eigenvector for an approximate eigenvalue."""
    target: Any = value if complex(value).imag else complex(value).real
    mid, size = matrix.ball.mid, matrix.ball.shape[0]
    start = np.cos(np.arange(1.0, size + 1.0))
    nudge = 1e-10 * max(abs(value), float(np.abs(mid).max()))
    for shift in (target + nudge, target + 1e4 * nudge):
        y: Array | None = start
        try:
            for _ in range(3):
                y = np.linalg.solve(mid - shift * np.diag(matrix.mass), matrix.mass * y)
                y = y / np.abs(y).max()
        except np.linalg.LinAlgError:
            y = None
        if y is not None and np.isfinite(y).all():
            return y
    return None
