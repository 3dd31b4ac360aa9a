"""Equilibria and orbits in boxes: what is there is found, what is not there is never proved."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.krawczyk import MOVED, distance, enclose_equilibrium, enclose_orbit
from stability.systems import DrivenSystem, LureSystem

ZERO = np.zeros((1, 1))


def scalar(w, b, dt=None):
    """``-x + tanh(w x + b)``, or the map ``tanh(w x + b)``."""
    system = LureSystem([[-1.0]], [[1.0]], [[w]]) if dt is None else LureSystem([[0.0]], [[1.0]], [[w]], dt=dt)
    return DrivenSystem(system, "tanh", [[0.0]], [b])


def fold(w):
    """The bias beyond which ``x = tanh(w x + b)`` has lost its upper two solutions of three: slope one there."""
    with mpmath.workdps(40):
        x = -mpmath.sqrt(1 - 1 / mpmath.mpf(w))  # w (1 - x^2) = 1
        return mpmath.atanh(x) - w * x


class TestAtTheFold:
    """Two equilibria meet and vanish at a bias that is known in closed form."""

    @pytest.mark.parametrize("w", [1.5, 2.0, 8.0])
    @pytest.mark.parametrize("dt", [None, 1.0])
    def test_none_is_proved_beyond(self, w, dt):
        edge = float(fold(w))
        x_fold = -np.sqrt(1 - 1 / w)
        starts = x_fold + np.concatenate([[0.0], np.outer([1, -1], 10.0 ** -np.arange(1.0, 10.0)).ravel()])
        proved = 0
        with np.errstate(all="ignore"):
            for beyond in (1e-15, 1e-13, 1e-11, 1e-9, 1e-7, 1e-5):
                after, before = scalar(w, edge + beyond * (1 + edge), dt), scalar(w, edge - beyond * (1 + edge), dt)
                for x in starts:
                    box = enclose_equilibrium(after, np.array([x]), np.zeros(1))
                    if box is not None:  # Newton went to the third equilibrium, which stays
                        assert abs(box.states.mid[0, 0] - x) <= MOVED * 2
                        assert box.states.mid[0, 0] > 0.5
                    proved += enclose_equilibrium(before, np.array([x]), np.zeros(1)) is not None
        assert proved > 5

    def test_every_box_holds_the_exact_solution(self):
        with mpmath.workdps(40), np.errstate(all="ignore"):
            for w in (0.5, 2.0, 5.0):
                for b in (-0.3, 0.0, 0.4):
                    for guess in (-0.99, -0.5, 0.0, 0.5, 0.99):
                        x = guess
                        for _ in range(60):
                            x = x - (np.tanh(w * x + b) - x) / (w * (1 - np.tanh(w * x + b) ** 2) - 1)
                        if not np.isfinite(x) or abs(np.tanh(w * x + b) - x) > 1e-12:
                            continue
                        box = enclose_equilibrium(scalar(w, b), np.array([x]), np.zeros(1))
                        exact = mpmath.findroot(lambda t, w=w, b=b: mpmath.tanh(w * t + b) - t, x)
                        assert abs(exact - box.states.mid[0, 0]) <= box.states.rad[0, 0]
                        assert abs(w * exact + b - box.channels.mid[0, 0]) <= box.channels.rad[0, 0]
                        assert box.states.rad[0, 0] < 1e-12


class TestOrbits:
    def test_flip(self):
        """``x+ = tanh(-2 x)``: the orbit of period two solves ``x = tanh(2 x)``."""
        flip = scalar(-2.0, 0.0, 1.0)
        with mpmath.workdps(40):
            exact = mpmath.findroot(lambda t: mpmath.tanh(2 * t) - t, 0.9)
        orbit = enclose_orbit(flip, np.array([[0.9575], [-0.9575]]), ZERO)
        for i, sign in enumerate((1, -1)):
            assert abs(sign * exact - orbit.states.mid[i, 0]) <= orbit.states.rad[i, 0] < 1e-13
        assert enclose_orbit(scalar(-0.9, 0.0, 1.0), np.array([[0.9575], [-0.9575]]), ZERO) is None

    @pytest.mark.parametrize("k", [2, 3, 4])
    def test_linear_map_under_a_periodic_input(self, rng, k):
        """The forced orbit of a linear map: a linear system, solved in higher precision."""
        n = 3
        A, F = 0.4 * rng.normal(size=(n, n)), rng.normal(size=(n, 2))
        driven = DrivenSystem(LureSystem.linear(A, 1.0), "tanh", np.zeros((0, 2)), F=F)
        u = rng.normal(size=(k, 2))
        shift = np.zeros((k * n, k * n))
        for i in range(k):
            shift[i * n : i * n + n, i * n : i * n + n] = -A
            shift[i * n : i * n + n, ((i + 1) % k) * n : ((i + 1) % k) * n + n] += np.eye(n)
        with mpmath.workdps(40):
            exact = mpmath.lu_solve(mpmath.matrix(shift.tolist()), mpmath.matrix((u @ F.T).ravel().tolist()))
            guess = np.array([float(v) for v in exact]).reshape(k, n)
            orbit = enclose_orbit(driven, guess + 1e-5, u)
            for v, mid, rad in zip(exact, orbit.states.mid.ravel(), orbit.states.rad.ravel()):
                assert abs(v - mid) <= rad < 1e-12

    def test_points_are_taken_in_order(self):
        """Under an input of period two: each point belongs to its own input."""
        driven = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        u, x = np.array([[1.0], [-2.0]]), np.zeros(1)
        for t in range(200):
            x = driven.advance(x, u[t % 2])
        points = np.array([x, driven.advance(x, u[0])])
        assert enclose_orbit(driven, points, u) is not None
        assert enclose_orbit(driven, points[::-1].copy(), u) is None
        assert enclose_orbit(driven, points, u[::-1].copy()) is None

    def test_what_does_not_fit_is_refused(self):
        flow, step = scalar(2.0, 0.0), scalar(2.0, 0.0, 1.0)
        assert enclose_orbit(flow, np.zeros((2, 1)), ZERO) is None
        assert enclose_orbit(step, np.zeros((3, 1)), np.zeros((2, 1))) is None
        assert enclose_orbit(step, np.zeros((1, 1)), np.zeros((2, 1))) is None
        assert enclose_orbit(step, np.zeros((2, 1)), np.zeros((2, 1))) is not None

    @pytest.mark.parametrize("away", [0.5, 2.0])
    def test_newton_must_not_go_elsewhere(self, away):
        linear = DrivenSystem(LureSystem.linear([[-1.0]]), "tanh", np.zeros((0, 1)))
        found = enclose_equilibrium(linear, np.array([away * MOVED]), np.zeros(1))
        assert (found is not None) is (away < 1)

    def test_singular_and_not_finite(self):
        with np.errstate(all="ignore"):
            still = DrivenSystem(LureSystem.linear([[0.0]]), "tanh", np.zeros((0, 1)))
            assert enclose_equilibrium(still, np.zeros(1), np.zeros(1)) is None
            assert enclose_equilibrium(scalar(2.0, 0.0), np.zeros(1), np.array([np.nan])) is None
            assert enclose_equilibrium(scalar(2.0, 0.0), np.array([np.inf]), np.zeros(1)) is None

    def test_a_kink_inside_the_box(self):
        """``-x + relu(0.5 x)`` at zero: existence is proved through the kink, all slopes between allowed."""
        for name in ("relu", "leaky_relu"):
            driven = DrivenSystem(LureSystem([[-1.0]], [[1.0]], [[0.5]]), name, [[1.0]])
            assert enclose_equilibrium(driven, np.zeros(1), np.zeros(1)) is not None
        driven = DrivenSystem(LureSystem([[-1.0]], [[1.0]], [[2.0]]), "relu", [[1.0]])  # 0 is kept, slopes -1 and 1
        with np.errstate(all="ignore"):
            assert enclose_equilibrium(driven, np.zeros(1), np.array([1e-300])) is None


class TestDistance:
    def test_boxes_that_meet(self):
        one = Ball(np.array([0.0, 0.0]), np.array([1.0, 1.0]))
        for centre, apart in ((2.5, 0.5), (2.0, 0.0), (1.0, -1.0)):
            other = Ball(np.array([0.0, centre]), np.array([1.0, 1.0]))
            assert distance(one, other) <= apart
            assert distance(one, other) >= apart - 1e-14 * max(1.0, abs(apart)) - 4e-15
        assert distance(one, one) < 0
        assert not distance(Ball.exact(np.array([np.nan])), Ball.exact(np.zeros(1))) > 0
