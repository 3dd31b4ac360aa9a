"""Arithmetic with radii, and proofs of existence: bounds are bounds, compared with exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.eigenpairs import Matrix, closed_loop_pencil, enclose_eigenpair, inverse_iteration
from stability.kernel.arithmetic.krawczyk import enclose_equilibrium
from stability.kernel.arithmetic.unstable_matrices import prove_not_stable
from stability.systems import DrivenSystem, LureSystem


class TestEnclosures:
    def test_known_eigenvalues_are_inside(self, rng):
        """Triangular matrices hidden by an exact similarity with integer entries."""
        for _ in range(40):
            n = int(rng.integers(2, 7))
            T = np.triu(rng.integers(-4, 5, size=(n, n))).astype(float)
            T[np.diag_indices(n)] = rng.permutation(np.arange(-n, n))[:n]
            S, Sinv = np.eye(n), np.eye(n)
            for _ in range(3):
                i, j = rng.permutation(n)[:2]
                E, F = np.eye(n), np.eye(n)
                E[i, j], F[i, j] = 2.0, -2.0
                S, Sinv = S @ E, F @ Sinv
            M = S @ T @ Sinv
            true = float(np.diagonal(T).max())
            matrix = Matrix(Ball.exact(M), np.ones(n))
            pair = enclose_eigenpair(matrix, true + 1e-7, inverse_iteration(matrix, true + 1e-7))
            assert pair is not None
            assert abs(pair.value - true) <= pair.radius < 1e-6

    def test_every_matrix_of_a_ball_has_an_eigenvalue_inside(self, rng):
        """Balls around nearly defective matrices, where an eigenvalue moves like the root of the radius."""
        proved = 0
        for _ in range(300):
            split = 10.0 ** rng.uniform(-6, 0)
            M = np.array([[1.0, 1.0], [split**2, 1.0]])
            rad = split ** rng.uniform(1.5, 4) * np.ones((2, 2))
            matrix = Matrix(Ball(M, rad), np.ones(2))
            pair = enclose_eigenpair(matrix, 1.0 + split, np.array([1.0, split]))
            if pair is None:
                continue
            proved += 1
            for signs in ((1, 1, 1, 1), (-1, -1, -1, -1), (0, 0, -1, 0), (1, -1, -1, 1), (0, 1, 1, 0)):
                values = np.linalg.eigvals(M + rad * np.reshape(signs, (2, 2)))
                assert np.abs(values - pair.value).min() <= pair.radius + 1e-7 * split + 1e-15 / split
        assert 30 < proved < 270

    def test_stable_matrices_are_never_proved_unstable(self, rng):
        """Spectra at a distance of 1e-15 to 1 from the boundary, of matrices far from normal."""
        for _ in range(300):
            n = int(rng.integers(1, 6))
            discrete = bool(rng.integers(2))
            gap = 10.0 ** rng.uniform(-15, 0)
            edge = 1.0 - gap if discrete else -gap
            T = np.triu(rng.normal(size=(n, n)) * 10.0 ** rng.uniform(-1, 3), 1)
            T[np.diag_indices(n)] = edge - rng.random(n) * (0.5 if discrete else 2.0)
            T[0, 0] = edge
            matrix = Matrix(Ball.exact(T), np.ones(n))  # triangular: its eigenvalues are known without rounding
            for value in (edge, edge + 1e-12, edge + 1e-3, 1.0, -1.0, 1j):
                with np.errstate(all="ignore"):
                    assert prove_not_stable(matrix, discrete, value) is None

    def test_pencil_has_the_eigenvalues_of_the_closed_loop(self, rng):
        for _ in range(10):
            D = np.tril(rng.normal(size=(3, 3)), -1)
            system = LureSystem(rng.normal(size=(4, 4)), rng.normal(size=(4, 3)), rng.normal(size=(3, 4)), D)
            K = rng.random(3)
            values = np.linalg.eigvals(system.jacobian(K))
            value = complex(values[np.argmax(values.real)])
            matrix = closed_loop_pencil(system, Ball.exact(K))
            pair = enclose_eigenpair(matrix, value, inverse_iteration(matrix, value))
            assert abs(pair.value - value) <= pair.radius + 1e-12

    @pytest.mark.parametrize("discrete", [False, True])
    def test_equilibrium_boxes(self, rng, discrete):
        """Equilibria in closed form: choose the state and pre-activation, then the bias."""
        for _ in range(10):
            n = int(rng.integers(1, 6))
            W, Amat = rng.normal(size=(n, n)), rng.normal(size=(n, n))
            system = LureSystem(Amat, np.eye(n), W, dt=1.0 if discrete else None)
            z = rng.normal(size=n)
            drift = Amat - np.eye(n) if discrete else Amat
            x = np.linalg.solve(drift, -np.tanh(z))
            driven = DrivenSystem(system, "tanh", np.zeros((n, 1)), z - W @ x)
            box = enclose_equilibrium(driven, x + 1e-6 * rng.normal(size=n), np.zeros(1))
            assert box is not None
            assert (np.abs(x - box.states.mid[0]) <= box.states.rad[0] + 1e-9 * np.abs(x).max()).all()
            assert enclose_equilibrium(driven, x, np.array([np.nan])) is None

    def test_no_box_where_there_is_no_equilibrium(self):
        driven = DrivenSystem(LureSystem.recurrent([[0.0]], [[1.0]]), "sigmoid", [[1.0]])  # dh/dt > 0 everywhere
        driven = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[1.0]], slope=(0.0, 0.25)), "sigmoid", [[1.0]])
        for x in (-40.0, -20.0, 0.0, 30.0):
            with np.errstate(all="ignore"):
                assert enclose_equilibrium(driven, np.array([x]), np.zeros(1)) is None
