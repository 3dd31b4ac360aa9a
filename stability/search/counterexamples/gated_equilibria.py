r"""Equilibria of a gated cell under constant inputs, and ascent to unstable ones.

With ``x(u)`` the equilibrium at input ``u``, ``J`` and ``J_u`` the Jacobians of the step by state and input, and
``lambda`` an eigenvalue of ``J`` with left and right vectors ``w, v`` scaled to ``w^H v = 1``,

.. math:: \frac{d\lambda}{du} = w^H \partial_v J \, \frac{dx}{du} + w^H \partial_v J_u, \qquad
          \frac{dx}{du} = (I - J)^{-1} J_u ,

since ``w^H J v`` is the derivative of ``w^H F`` along ``v``, whose gradient is again one of ``F`` along ``v``.
Derivatives along ``v`` are taken by central differences of the exact Jacobians.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.eigenpairs import approximate_solution
from stability.kernel.systems.gated_cell import GatedCell
from stability.search.counterexamples.eigenvalue_gradient import eigenvectors
from stability.search.counterexamples.equilibrium_manifold import newton_equilibrium
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.input_range import InputRange

Array = np.ndarray
DENSE = 256  # states up to which all eigenvalues are computed
LEAST = 0.05  # an eigenvalue below has too far to go
FOLLOWED = 4  # eigenvalues worth following, of the largest modulus


@dataclass(frozen=True, eq=False)
class GatedEquilibrium:
    """Approximate equilibrium ``state`` under ``u`` and an eigenvalue of its Jacobian, at first the largest."""

    state: Array
    u: Array
    value: complex

    @property
    def radius(self) -> float:
        """Modulus of the eigenvalue: above one, nearby trajectories leave."""
        return abs(self.value)


def largest_eigenvalues(matrix: Array, count: int = 1) -> list[complex]:
    """Return eigenvalues of largest modulus in the closed upper half-plane, for large matrices by Arnoldi's method."""
    n, values = len(matrix), None
    if n > DENSE:
        from scipy.sparse.linalg import ArpackError, aslinearoperator, eigs

        try:
            action = aslinearoperator(matrix)
            values = eigs(action, k=2 * count, v0=np.ones(n), return_eigenvectors=False)
        except ArpackError:
            values = None
    if values is None:
        values = np.linalg.eigvals(matrix)
    return sorted((x for x in map(complex, values) if x.imag >= 0.0), key=lambda x: -abs(x))[:count]


def equilibrium_near(
    cell: GatedCell, guess: Array, u: Array, deadline: Deadline | None = None
) -> GatedEquilibrium | None:
    """Return the equilibrium near a guess with its largest eigenvalue, or ``None``."""
    point = newton_equilibrium(cell, guess, u, deadline=deadline)
    return None if point is None else GatedEquilibrium(point, u, largest_eigenvalues(cell.jacobian(point, u))[0])


def _eigenpair(matrix: Array, value: complex) -> tuple[complex, Array, Array] | None:
    """Return the eigenvalue next to ``value`` with its vectors, ``w @ v = 1``; ``None`` for a multiple one."""
    pair = eigenvectors(matrix, value, 4)
    if pair is None or abs(pair[1] @ pair[0]) < 1e-8 * len(matrix):
        return None
    v, w = pair
    w = w / (w @ v)
    return complex(w @ (matrix @ v)), v, w


def radius_gradient(cell: GatedCell, at: GatedEquilibrium) -> Array | None:
    """Return the gradient ``(p,)`` of the eigenvalue's modulus by the constant input, along the equilibrium.

    Args:
        cell: the cell.
        at: an equilibrium.

    Returns:
        The gradient, or ``None`` where the eigenvalue is multiple or the equilibrium does not depend smoothly on it.
    """
    x, u = at.state, at.u
    jacobian, entry = cell.jacobian(x, u), cell.input_jacobian(x, u)
    pair = _eigenpair(jacobian, at.value)
    if pair is None or pair[0] == 0:
        return None
    value, v, w = pair
    w = w * (np.conj(value) / abs(value))  # d|lambda| = Re(conj(lambda) d lambda) / |lambda|
    step = 1e-5 * (1.0 + np.abs(x).max())
    by_state, by_input = np.zeros(len(x)), np.zeros(len(u))
    for part, factor in ((np.real(v), 1.0), (np.imag(v), 1j)):
        if not part.any():
            continue
        forward, backward = x + step * part, x - step * part
        by_state += np.real(factor * (w @ (cell.jacobian(forward, u) - cell.jacobian(backward, u)))) / (2 * step)
        by_input += np.real(factor * (w @ (cell.input_jacobian(forward, u) - cell.input_jacobian(backward, u)))) / (
            2 * step
        )
    moved = approximate_solution(np.eye(len(x)) - jacobian.T, by_state)
    if moved is None:
        return None
    total = by_input + entry.T @ moved
    return total if np.isfinite(total).all() else None


def ascend_radius(
    cell: GatedCell, at: GatedEquilibrium, box: InputRange, steps: int, deadline: Deadline
) -> Iterator[GatedEquilibrium]:
    """Yield equilibria of growing eigenvalue, by steps along the signs of its gradient inside an input box.

    The eigenvalue is followed: it need not be the largest one, which may belong to a unit that merely remembers.

    Args:
        cell: the cell.
        at: starting point, with the eigenvalue to follow.
        box: box of inputs.
        steps: most gradients.
        deadline: time limit.

    Yields:
        One equilibrium a successful step.
    """
    low, high, size = box.low, box.high, 0.25
    for _ in range(steps):
        slope = None if deadline.over or not at.radius > LEAST else radius_gradient(cell, at)
        if slope is None:
            return
        while True:
            u = np.clip(at.u + size * (high - low) * np.sign(slope), low, high)
            expected = at.value * (1.0 + float(slope @ (u - at.u)) / at.radius)
            trial = None if deadline.over else _followed(cell, at, u, expected, deadline)
            if trial is not None and trial.radius > at.radius + 1e-6:
                break
            size *= 0.35
            if size < 2e-3:
                return
        at, size = trial, min(1.5 * size, 1.0)
        yield at


def _followed(
    cell: GatedCell, at: GatedEquilibrium, u: Array, expected: complex, deadline: Deadline
) -> GatedEquilibrium | None:
    point = newton_equilibrium(cell, at.state, u, deadline=deadline)
    pair = None if point is None else _eigenpair(cell.jacobian(point, u), expected)
    return (
        None if pair is None or point is None else GatedEquilibrium(point, u, complex(pair[0].real, abs(pair[0].imag)))
    )
