"""Transfer matrices at many points at once, against a dense solve of each, and against one point after the other."""

from __future__ import annotations

import numpy as np
import pytest

from stability.search.solvers.transfer_function import Response, state_space


def system(n: int, m: int, p: int, seed: int = 0, dt: float | None = None):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n)) / (2 * np.sqrt(n)) - (np.eye(n) if dt is None else 0.0)
    return state_space(A, rng.normal(size=(n, m)), rng.normal(size=(p, n)), rng.normal(size=(p, m)), dt)


def dense(system, points):
    n = system.states
    resolvent = np.linalg.solve(points[:, None, None] * np.eye(n) - system.A, system.B + 0j)
    return system.C @ resolvent + system.D


@pytest.mark.parametrize("dt", [None, 1.0])
@pytest.mark.parametrize(("n", "m", "p"), [(1, 1, 1), (5, 2, 3), (16, 1, 2), (17, 4, 1), (50, 50, 3)])
def test_all_points_at_once_are_those_of_a_dense_solve(n, m, p, dt):
    G = system(n, m, p, n, dt)
    response, omegas = Response(G), np.append(np.linspace(0.0, 3.0, 9), np.inf if dt is None else np.pi)
    points = response.point(omegas[:-1])
    found, expected = response.values(points), dense(G, points)
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()
    one = np.array([response.value(complex(s)) for s in points])
    assert np.abs(found - one).max() <= 1e-13 * np.abs(expected).max()
    gains = response.gains(omegas)
    assert gains == pytest.approx([response.gain(w) for w in omegas], rel=1e-12)
    assert response.estimates(omegas) == pytest.approx(gains, rel=1e-2)


def test_a_pole_is_infinite_and_spoils_no_other_point():
    A = np.array([[0.0, 1.0, 3.0], [-4.0, 0.0, 1.0], [0.0, 0.0, -1.0]])
    G = state_space(A, np.eye(3), np.eye(3))
    response = Response(G)
    pole = response.poles[np.abs(response.poles.imag - 2.0).argmin()]
    points = np.array([1j, pole, 3j])
    found = response.values(points)
    assert np.isinf(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()
    assert np.abs(found[[0, 2]] - dense(G, points[[0, 2]])).max() < 1e-12
    integrator = Response(state_space([[0.0]], [[1.0]], [[1.0]]))
    assert integrator.gains(np.array([0.0, 2.0, np.inf])).tolist() == [np.inf, 0.5, 0.0]
