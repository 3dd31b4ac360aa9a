"""Channels with a single slope, or that no state reaches: the search leaves them out, the proof does not."""

from __future__ import annotations

import numpy as np
import pytest

from stability import LureSystem, certify, multiplier_criterion, verify
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.circle import kyp_criterion


def _mixed(seed, width=0.0):
    """A random system some of whose channels have slopes no more than ``width`` apart, and which ones."""
    rng = np.random.default_rng(seed)
    n, m, discrete = int(rng.integers(2, 6)), int(rng.integers(2, 7)), bool(seed % 2)
    A, B, C = rng.normal(size=(n, n)), rng.normal(size=(n, m)), rng.normal(size=(m, n))
    D = 0.2 * np.tril(rng.normal(size=(m, m)), -1) if seed % 3 == 0 else np.zeros((m, m))
    single = np.zeros(m, dtype=bool)
    single[rng.choice(m, size=int(rng.integers(1, m)), replace=False)] = True
    slope = rng.uniform(-0.5, 1.0, size=m)
    alpha, beta = np.where(single, slope, 0.0), np.where(single, slope + width, 1.0)
    A = 0.3 * A / np.sqrt(n) if discrete else A / np.sqrt(n) - 2.5 * np.eye(n)
    scale = 0.3 if discrete else 0.7
    system = LureSystem(A, scale * B / np.sqrt(n), scale * C / np.sqrt(m), D, (alpha, beta), 1.0 if discrete else None)
    return system, single


def _folded(system, single):
    """The same system with ``w = c z`` solved for and put into the matrices."""
    c, free = system.alpha[single], ~single
    inverse = np.linalg.inv(np.eye(len(c)) - c[:, None] * system.D[np.ix_(single, single)])
    by_x = inverse @ (c[:, None] * system.C[single])
    by_w = inverse @ (c[:, None] * system.D[np.ix_(single, free)])
    return LureSystem(
        system.A + system.B[:, single] @ by_x,
        system.B[:, free] + system.B[:, single] @ by_w,
        system.C[free] + system.D[np.ix_(free, single)] @ by_x,
        system.D[np.ix_(free, free)] + system.D[np.ix_(free, single)] @ by_w,
        (system.alpha[free], system.beta[free]),
        system.dt,
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_best_rate_is_that_of_the_system_with_its_linear_channels_folded_in(seed):
    system, single = _mixed(seed)
    folded = multiplier_criterion(_folded(system, single), solver="riccati")
    finding = multiplier_criterion(system, solver="riccati")
    assert folded.holds
    assert finding.holds
    assert finding.rate == pytest.approx(folded.rate, rel=1e-4)
    assert check_lmi(system, finding.witness["P"], finding.witness["L"], finding.rate)[0]
    weaker = kyp_criterion(system)
    if weaker.rate is not None:
        ahead = weaker.rate - finding.rate if system.is_discrete else finding.rate - weaker.rate
        assert ahead > -1e-5


@pytest.mark.parametrize("seed", range(6))
def test_a_sector_of_almost_no_width_costs_almost_nothing(seed):
    finding = multiplier_criterion(_mixed(seed, 1e-11)[0], solver="riccati")
    exact = multiplier_criterion(_mixed(seed)[0], solver="riccati")
    assert finding.rate == pytest.approx(exact.rate, rel=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_with_single_slopes_alone_the_rate_is_that_of_the_eigenvalues(seed):
    system, _ = _mixed(seed)
    c = np.where(system.alpha == system.beta, system.alpha, 0.4)
    system = LureSystem(system.A, system.B, system.C, system.D, (c, c), system.dt)
    eigenvalues = np.linalg.eigvals(system.jacobian(c))
    exact = np.abs(eigenvalues).max() if system.is_discrete else -eigenvalues.real.max()
    finding = multiplier_criterion(system, solver="riccati")
    assert finding.rate == pytest.approx(exact, rel=1e-5)
    assert finding.rate >= exact if system.is_discrete else finding.rate <= exact
    certificate = certify(system)
    assert certificate.rate == pytest.approx(exact, rel=1e-5)
    assert verify(certificate).valid


def test_a_linear_channel_does_not_hide_the_rate_of_the_others():
    A = np.array([[0.5, 0.2], [0.0, 0.3]])
    system = LureSystem(A, np.eye(2), 0.2 * np.eye(2), slope=([0.0, 0.7], [1.0, 0.7]), dt=1.0)
    assert multiplier_criterion(system, solver="riccati").rate == pytest.approx(0.7, abs=1e-4)
