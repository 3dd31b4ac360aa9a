from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.linear import linear_criterion
from stability.systems import LureSystem


def exact(A, discrete):
    eigenvalues = np.linalg.eigvals(A)
    return np.abs(eigenvalues).max() if discrete else -eigenvalues.real.max()


@pytest.mark.parametrize("discrete", [False, True])
def test_rate_is_the_spectral_one(rng, discrete):
    for n in (1, 2, 3, 5, 8, 20):
        A = rng.normal(size=(n, n))
        A = 0.9 * A / exact(A, True) if discrete else A + (exact(A, False) - 0.4) * np.eye(n)
        system = LureSystem.linear(A, 1.0 if discrete else None)
        found = linear_criterion(system)
        assert found.holds
        assert found.rate == pytest.approx(0.9 if discrete else 0.4, abs=1e-8)
        assert check_lmi(system, found.witness["P"], found.witness["L"], found.rate)[0]
        overshoot = np.sqrt(np.linalg.cond(found.witness["P"]))
        for t in (0.5, 1.0, 3.0, 10.0):
            if discrete:
                power = int(np.ceil(t))
                assert np.linalg.norm(np.linalg.matrix_power(A, power), 2) <= overshoot * found.rate**power * (1 + 1e-9)
            else:
                assert np.linalg.norm(expm(A * t), 2) <= overshoot * np.exp(-found.rate * t) * (1 + 1e-9)


@pytest.mark.parametrize("discrete", [False, True])
def test_normal_matrices_need_no_overshoot(rng, discrete):
    Q = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    A = Q @ np.diag(rng.uniform(0.1, 0.9, 6)) @ Q.T
    A = A if discrete else -A
    found = linear_criterion(LureSystem.linear(A, 1.0 if discrete else None))
    assert found.rate == pytest.approx(exact(A, discrete), abs=1e-9)
    assert np.linalg.cond(found.witness["P"]) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_defective_matrix_backs_off(size):
    """A Jordan block attains its spectral abscissa in no quadratic norm."""
    A = -np.eye(size) + np.diag(np.ones(size - 1), 1)
    found = linear_criterion(LureSystem.linear(A))
    assert found.holds
    assert 0.9 <= found.rate < 1.0
    assert check_lmi(LureSystem.linear(A), found.witness["P"], found.witness["L"], found.rate)[0]


@pytest.mark.parametrize(
    ("A", "dt"),
    [
        ([[0.0]], None),
        ([[1.0]], 1.0),
        ([[0.0, 1.0], [-1.0, 0.0]], None),
        ([[2.0]], None),
        ([[0.0, -1.0], [1.0, 0.0]], 1.0),
    ],
)
def test_marginal_and_unstable(A, dt):
    found = linear_criterion(LureSystem.linear(A, dt))
    assert not found.holds
    assert found.margin <= 1e-12
    assert not found.witness


@pytest.mark.parametrize("slope", [(1, 1), (-0.5, -0.5), (0, 0), ((0.5, 1.0), (0.5, 1.0))])
def test_single_slopes_are_absorbed(rng, slope):
    B, C = rng.normal(size=(3, 2)), 0.3 * rng.normal(size=(2, 3))
    system = LureSystem(-2 * np.eye(3), B, C, [[0, 0], [0.3, 0]], slope)
    found = linear_criterion(system)
    assert found.rate == pytest.approx(exact(system.jacobian(system.alpha), False), abs=1e-5)
    assert check_lmi(system, found.witness["P"], found.witness["L"], found.rate)[0]
