from __future__ import annotations

import numpy as np
import pytest

from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.theorem1 import theorem1
from stability.search.solvers.multiplier_program import multiplier_lmi
from stability.systems import LureSystem


def symmetric_pair(rng, n):
    """A, W with W symmetric negative definite and A^T W + W A > 0."""
    X, K, Y = rng.normal(size=(3, n, n))
    P = X @ X.T + 0.2 * np.eye(n)  # P = -W
    return np.linalg.solve(P, -(0.2 * np.eye(n) + Y @ Y.T / n) + K - K.T), -P


def assert_sound(finding, A, W, slope=(0.0, 1.0), rng=None):
    """The witness is proved, and no constant slopes decay slower than the rate says."""
    system = LureSystem.recurrent(A, W, slope)
    assert check_lmi(system, finding.witness["P"], finding.witness["L"], finding.rate)[0]
    rng = rng or np.random.default_rng(0)
    for _ in range(50):
        K = rng.uniform(system.alpha, system.beta)
        assert np.linalg.eigvals(system.jacobian(K)).real.max() <= -finding.rate + 1e-9


def test_case_a_rate_and_boundary(rng):
    for _ in range(20):
        n = int(rng.integers(1, 7))
        A, W = rng.normal(size=(2, n, n))
        A = A - (np.linalg.eigvalsh(0.5 * (A + A.T))[-1] + 1.0) * np.eye(n)  # sigma_min(A_sym) = 1
        W = W / np.linalg.norm(W, 2)
        inside = theorem1(A, 0.9 * W).a
        assert inside.holds
        assert inside.margin == pytest.approx(0.1, abs=1e-9)
        assert inside.rate == pytest.approx(0.1, abs=1e-8)
        np.testing.assert_array_equal(inside.witness["P"] / inside.witness["P"][0, 0], np.eye(n))
        assert_sound(inside, A, 0.9 * W, rng=rng)
        outside = theorem1(A, 1.1 * W).a
        assert not outside.holds
        assert outside.margin == pytest.approx(-0.1, abs=1e-9)
        assert not outside.witness


@pytest.mark.parametrize("slope", [(0.0, 1.0), (-1.0, 1.0), (0.1, 1.0), (-0.5, 0.25), (1.0, 1.0), (0.0, 0.0)])
def test_case_a_witness_fits_the_slopes(rng, slope):
    A, W = -2 * np.eye(3), rng.normal(size=(3, 3))
    W = 1.5 * W / np.linalg.norm(W, 2)
    assert_sound(theorem1(A, W, 1.0, slope=slope).a, A, W, slope, rng)


def test_lipschitz_constant_scales(rng):
    A, W = -2 * np.eye(3), rng.normal(size=(3, 3))
    one, two = theorem1(A, 2 * W), theorem1(A, W, 2.0)
    assert one.a.margin == pytest.approx(two.a.margin)
    assert theorem1(A, np.zeros((3, 3))).a.rate == pytest.approx(2.0, abs=1e-6)


def test_case_b_symmetric_is_sound_and_contained(rng):
    for _ in range(15):
        n = int(rng.integers(1, 6))
        A, W = symmetric_pair(rng, n)
        found = theorem1(A, W).b_sound
        assert found.holds
        assert found.margin > 0
        assert_sound(found, A, W, rng=rng)
        assert multiplier_lmi(LureSystem.recurrent(A, W), found.rate * 0.999).feasible
        P = -W
        exact = 0.5 * np.linalg.eigvals(np.linalg.solve(P, -(A.T @ P + P @ A))).real.min()
        assert found.rate == pytest.approx(exact, rel=1e-6)


def test_case_b_finds_the_diagonal_scaling(rng):
    for _ in range(15):
        n = int(rng.integers(2, 7))
        A, S = symmetric_pair(rng, n)
        L = np.exp(rng.normal(size=n))
        W = S / L[:, None]
        found = theorem1(A, W).b_sound
        assert found.holds
        assert "diagonal L" in found.detail
        assert_sound(found, A, W, rng=rng)
        assert found.rate == pytest.approx(theorem1(A, S).b_sound.rate, rel=1e-6)


@pytest.mark.parametrize(
    ("A", "W"),
    [
        (-np.eye(2), np.array([[-2.0, 1.0], [0.0, -2.0]])),  # one-sided
        (-np.eye(2), np.array([[-2.0, 1.0], [-1.0, -2.0]])),  # opposite signs
        (-np.eye(3), np.array([[-4.0, 1, 1], [2, -4, 1], [1, 1, -4.0]])),  # ratios disagree round the cycle
        (-np.eye(2), np.array([[1.0, 0.0], [0.0, -1.0]])),  # not negative definite
        (-np.eye(2), np.zeros((2, 2))),
        (np.eye(2), -np.eye(2)),  # A not stable
    ],
)
def test_case_b_does_not_hold(A, W):
    found = theorem1(A, W).b_sound
    assert not found.holds
    assert not found.witness


def test_case_b_needs_a_monotone_activation():
    A, W = np.array([[-1.0]]), np.array([[-3.0]])
    assert theorem1(A, W).b_sound.holds
    assert not theorem1(A, W, slope=(-1, 1)).b_sound.holds
    assert not theorem1(A, W, slope=(-1, 1)).b_published.holds
