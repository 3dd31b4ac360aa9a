from __future__ import annotations

import numpy as np
import pytest

from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.circle import kyp_criterion, kyp_lmi
from stability.search.solvers.positive_real import positivity_margin
from stability.search.solvers.state_space import StateSpace
from stability.systems import LureSystem


def spectrum(A, B, C, D, discrete, points=400):
    """Smallest eigenvalue of G + G^H on a grid: the slow, obvious test."""
    grid = np.linspace(0, np.pi, points) if discrete else np.concatenate([[0.0], np.geomspace(1e-3, 1e4, points)])
    out = []
    for w in grid:
        G = C @ np.linalg.solve((np.exp(1j * w) if discrete else 1j * w) * np.eye(len(A)) - A, B) + D
        out.append(np.linalg.eigvalsh(G + G.conj().T)[0])
    return np.array(out)


def stable(rng, n, discrete):
    A = rng.normal(size=(n, n))
    eigenvalues = np.linalg.eigvals(A)
    return 0.7 * A / np.abs(eigenvalues).max() if discrete else A - (eigenvalues.real.max() + 0.5) * np.eye(n)


@pytest.mark.parametrize(
    ("A", "B", "C", "D", "holds"),
    [
        ([[-1.0]], [[1.0]], [[1.0]], None, True),  # 1 / (s + 1)
        ([[-1.0]], [[1.0]], [[-1.0]], None, False),
        ([[-1.0]], [[1.0]], [[1.0]], [[1.0]], True),
        ([[-1.0]], [[1.0]], [[-1.0]], [[1.1]], True),  # 1.1 - 1 / (s + 1)
        ([[-1.0]], [[1.0]], [[-1.0]], [[0.9]], False),
        ([[-1.0]], [[1.0]], [[1.0]], [[-0.1]], False),  # negative at infinity
        ([[1.0]], [[1.0]], [[1.0]], [[5.0]], False),  # unstable
        ([[0.0, 1.0], [-2.0, -3.0]], [[0.0], [1.0]], [[1.0, 1.0]], None, True),  # (s + 1) / ((s + 1)(s + 2))
        ([[0.0, 1.0], [-2.0, -3.0]], [[0.0], [1.0]], [[1.0, 0.0]], None, False),  # relative degree two
        ([[0.0, 1.0], [-1.0, -1.0]], [[0.0], [1.0]], [[1.0, 1.0]], None, False),  # (s+1)/(s^2+s+1): limit is zero
    ],
)
def test_known_transfer_functions(A, B, C, D, holds):
    found = kyp_lmi(A, B, C, D)
    assert found.holds == holds
    assert bool(found.witness) == holds


@pytest.mark.parametrize("discrete", [False, True])
def test_two_ways_agree_with_a_grid(rng, discrete):
    dt = 1.0 if discrete else None
    seen = set()
    for _ in range(12):
        n, m = (int(x) for x in rng.integers(1, 5, size=2))
        A, B, C = stable(rng, n, discrete), rng.normal(size=(n, m)), rng.normal(size=(m, n))
        D = rng.normal(size=(m, m))
        D = D @ D.T
        D += np.eye(m) * (rng.choice([-0.5, 0.5]) - 0.5 * spectrum(A, B, C, D, discrete).min())
        found = kyp_lmi(A, B, C, D, dt)
        assert "disagree" not in found.detail
        assert found.holds == (spectrum(A, B, C, D, discrete).min() > 0)
        assert found.margin == pytest.approx(spectrum(A, B, C, D, discrete).min(), abs=0.05)
        seen.add(found.holds)
        if found.holds:
            P, R = found.witness["P"], D + D.T
            assert np.linalg.eigvalsh(P)[0] > 0
            if discrete:
                form = [[A.T @ P @ A - P, A.T @ P @ B - C.T], [B.T @ P @ A - C, B.T @ P @ B - R]]
            else:
                form = [[A.T @ P + P @ A, P @ B - C.T], [B.T @ P - C, -R]]
            assert np.linalg.eigvalsh(np.block(form))[-1] < 0
    assert seen == {True, False}


def test_singular_direct_term_solves_the_equality(rng):
    """Built to be strictly positive real: P B = C^T and A^T P + P A < 0."""
    for partial in (False, True):
        n, m = 5, 3
        X, Q, K = rng.normal(size=(3, n, n))
        P = X @ X.T + 0.1 * np.eye(n)
        A = np.linalg.solve(P, -0.5 * (Q @ Q.T + 0.1 * np.eye(n)) + K - K.T)
        B = rng.normal(size=(n, m))
        C, D = B.T @ P, np.diag([2.0, 0.0, 0.0]) if partial else np.zeros((m, m))
        found = kyp_lmi(A, B, C, D)
        assert found.holds
        W = found.witness["P"]
        null = slice(1, None) if partial else slice(None)
        np.testing.assert_allclose((W @ B)[:, null], C.T[:, null], atol=1e-9 * np.abs(C).max())
        assert np.linalg.eigvalsh(A.T @ W + W @ A)[-1] < 0
        assert positivity_margin(StateSpace(A, B, C, D, False)).limit
        broken = kyp_lmi(A, B, C + 0.5 * np.abs(C).max() * rng.normal(size=C.shape), D)
        assert not broken.holds


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("slope", [(0, 1), (-0.5, 0.5), (0.1, 0.4), (0, (0.5, 1.0)), ((0, 0.2), (1, 0.2))])
def test_criterion_gives_a_proved_rate(rng, discrete, slope):
    system = LureSystem(
        stable(rng, 3, discrete),
        rng.normal(size=(3, 2)),
        0.1 * rng.normal(size=(2, 3)),
        [[0, 0], [0.1, 0]],
        slope,
        1.0 if discrete else None,
    )
    found = kyp_criterion(system)
    assert found.holds
    assert check_lmi(system, found.witness["P"], found.witness["L"], found.rate)[0]
    for _ in range(20):
        eigenvalues = np.linalg.eigvals(system.jacobian(rng.uniform(system.alpha, system.beta)))
        assert np.abs(eigenvalues).max() <= found.rate if discrete else eigenvalues.real.max() <= -found.rate
    open_ = system.beta > system.alpha
    ratio = (found.witness["L"] * (system.beta - system.alpha))[open_]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)  # its multiplier is fixed: 1 / k


@pytest.mark.parametrize(("a", "c", "best"), [(-2.0, 1.0, 1.0), (-2.0, -3.0, 2.0), (-1.0, 0.25, 0.75)])
def test_scalar_rate_is_exact(a, c, best):
    found = kyp_criterion(LureSystem([[a]], [[1.0]], [[c]]))
    assert found.rate == pytest.approx(best, abs=1e-5)
