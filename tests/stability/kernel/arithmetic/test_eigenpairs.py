"""Arithmetic with radii, and proofs of existence: bounds are bounds, compared with exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from stability.kernel.arithmetic.activation_bounds import activation_slopes, activation_values
from stability.kernel.arithmetic.balls import Ball, row_sum_norm, system_balls
from stability.kernel.arithmetic.eigenpairs import Matrix, closed_loop_pencil, enclose_eigenpair, inverse_iteration
from stability.kernel.arithmetic.krawczyk import enclose_equilibrium
from stability.kernel.arithmetic.unstable_matrices import prove_not_stable
from stability.systems import DrivenSystem, LureSystem


class TestBalls:
    def test_products_and_sums_contain_the_exact_result(self, rng):
        for _ in range(20):
            scale = 10.0 ** rng.uniform(-12, 12, size=(4, 5))
            x, y, z = rng.normal(size=(4, 5)) * scale, rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
            ball = Ball.exact(x) @ y + z
            for i in range(4):
                for j in range(3):
                    exact = sum(Fraction(x[i, k]) * Fraction(y[k, j]) for k in range(5)) + Fraction(z[i, j])
                    assert abs(exact - Fraction(ball.mid[i, j])) <= Fraction(ball.rad[i, j])
            assert ball.rad.max() <= 1e-13 * (np.abs(x) @ np.abs(y) + np.abs(z)).max()

    def test_radii_travel(self, rng):
        for _ in range(50):
            x, y = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
            rx, ry = 10.0 ** rng.uniform(-9, 0, size=(2, 3, 3))
            inside = [x + rx * rng.uniform(-1, 1, (3, 3)), y + ry * rng.uniform(-1, 1, (3, 3))]
            for name in ("__matmul__", "__mul__", "__add__", "__sub__"):
                ball = getattr(Ball(x, rx), name)(Ball(y, ry))
                value = getattr(inside[0], name)(inside[1])
                assert (np.abs(value - ball.mid) <= ball.rad).all(), name

    def test_norm_is_an_upper_bound(self, rng):
        x = rng.normal(size=(6, 6))
        assert row_sum_norm(Ball.exact(x)) >= float(max(sum(Fraction(abs(v)) for v in row) for row in x))

    @pytest.mark.parametrize("name", ["tanh", "sigmoid", "relu", "leaky_relu", "identity", "saturation", "deadzone"])
    def test_activations(self, rng, name):
        exact = {
            "tanh": mpmath.tanh,
            "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)),
            "relu": lambda v: max(v, mpmath.mpf(0)),
            "leaky_relu": lambda v: v if v > 0 else mpmath.mpf(0.1) * v,
            "identity": lambda v: v,
            "saturation": lambda v: max(min(v, mpmath.mpf(1)), mpmath.mpf(-1)),
            "deadzone": lambda v: v - max(min(v, mpmath.mpf(1)), mpmath.mpf(-1)),
        }[name]
        z = np.concatenate([rng.normal(size=40) * 10.0 ** rng.uniform(-8, 2, size=40), [0.0, 19.1, -750.0]])
        rad = np.abs(rng.normal(size=len(z))) * 10.0 ** rng.uniform(-12, 0.5, size=len(z))
        with mpmath.workdps(40):
            for radius in (np.zeros(len(z)), rad):
                values, slopes = (activation_values(name, Ball(z, radius)), activation_slopes(name, Ball(z, radius)))
                for i in range(len(z)):
                    points = [mpmath.mpf(z[i]) + mpmath.mpf(radius[i]) * t for t in (-1, -0.5, 0, 0.3, 1)]
                    images = [exact(p) for p in points]
                    assert all(abs(v - mpmath.mpf(values.mid[i])) <= mpmath.mpf(values.rad[i]) for v in images)
                    for a, b, fa, fb in zip(points, points[1:], images, images[1:]):
                        if a != b:
                            quotient = (fb - fa) / (b - a)
                            assert (
                                abs(quotient - mpmath.mpf(slopes.mid[i]))
                                <= mpmath.mpf(slopes.rad[i]) + mpmath.mpf(10) ** -25
                            )

    def test_discretised_systems_contain_the_exact_formula(self, rng):
        base = LureSystem(rng.normal(size=(3, 3)), rng.normal(size=(3, 2)), rng.normal(size=(2, 3)))
        system = base.euler(0.1)
        ball = system_balls(system)[0]
        for i in range(3):
            for j in range(3):
                exact = Fraction(int(i == j)) + Fraction(0.1) * Fraction(base.A[i, j])
                assert abs(exact - Fraction(ball.mid[i, j])) <= Fraction(ball.rad[i, j])
        A_mid = system_balls(base.midpoint(0.1))[0]
        half, dt = Fraction(0.05), Fraction(0.1)
        for i in range(3):
            for j in range(3):
                square = sum(Fraction(base.A[i, k]) * Fraction(base.A[k, j]) for k in range(3))
                exact = Fraction(int(i == j)) + dt * Fraction(base.A[i, j]) + dt * half * square
                assert abs(exact - Fraction(A_mid.mid[i, j])) <= Fraction(A_mid.rad[i, j])


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
