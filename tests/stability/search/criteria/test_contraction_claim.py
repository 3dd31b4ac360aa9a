"""Overshoot: no more of it than the rate asks for, and slower rates beside the fastest where it is large."""

from __future__ import annotations

import numpy as np
import pytest

from stability import LureSystem, Verdict, certify, multiplier_criterion, smallest_overshoot, verify
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.solvers.loop_transformation import centered_loop
from stability.search.solvers.overshoot import condition_number, well_conditioned
from stability.search.solvers.riccati import bounded_real


def _map(n, seed, norm=0.95, upper=False):
    W = np.random.default_rng(seed).normal(size=(n, n))
    W = np.triu(W) if upper else W
    return LureSystem(np.zeros((n, n)), np.eye(n), norm * W / np.linalg.norm(W, 2), dt=1.0)


def _flow(n, seed, upper=False):
    W = np.random.default_rng(seed).normal(size=(n, n)) / np.sqrt(n)
    W = np.triu(W) if upper else W
    return LureSystem.recurrent(-1.5 * np.eye(n) + 0.5 * (W - W.T), 0.6 * W)


@pytest.mark.parametrize("build", [_map, _flow])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_rate_costs_little_more_overshoot_than_it_must(build, seed):
    system = build(6, seed)
    certificate = certify(system)
    rate = certificate.rate
    slower = rate + 1e-4 * (1.0 - rate) if system.is_discrete else (1.0 - 1e-4) * rate  # what a program still solves
    least = smallest_overshoot(system, slower).overshoot
    assert least <= certificate.overshoot * (1 + 1e-3)
    assert certificate.overshoot < 2.5 * least
    assert verify(certificate).valid


@pytest.mark.parametrize("build", [_map, _flow])
@pytest.mark.parametrize("seed", range(4))
def test_solutions_of_the_transposed_loop_are_inverses_and_the_middle_proves_the_same_rate(build, seed):
    system = build(5, seed)
    rate = 0.97 if system.is_discrete else 0.1
    loop = centered_loop(system).shifted(rate)
    smallest, inverse = bounded_real(loop, 1e-4), bounded_real(loop.transposed(), 1e-4)
    assert smallest is not None
    assert inverse is not None
    assert np.linalg.eigvalsh(np.linalg.inv(inverse) - smallest)[0] > 0
    middle = well_conditioned(loop, smallest)
    assert condition_number(middle) < condition_number(smallest)
    L = np.full(5, 0.5 * (rate * rate if system.is_discrete else 1.0))
    assert check_lmi(system, 0.5 * (middle + middle.T), L, rate)[0]


@pytest.mark.parametrize("build", [_map, _flow])
@pytest.mark.parametrize("seed", range(3))
def test_reducible_networks_reach_the_rates_of_their_diagonal(build, seed):
    """A triangular network contracts as fast as its diagonal; every metric that shows it is far from round."""
    system = build(6, seed, upper=True)
    if system.is_discrete:
        ideal = np.abs(np.diag(system.C)).max()
    else:  # entries of the strict lower triangle of A couple the states again
        system = LureSystem.recurrent(np.triu(system.A), system.C)
        ideal = -np.maximum(np.diag(system.A), np.diag(system.A + system.C)).max()
    finding = multiplier_criterion(system, solver="riccati")
    reached = np.log(finding.rate) / np.log(ideal) if system.is_discrete else finding.rate / ideal
    assert 0.8 < reached <= 1.0 + 1e-9
    assert condition_number(finding.witness["P"]) <= 1e8 * (1 + 1e-6)


@pytest.mark.parametrize("rate", ["any", "best"])
def test_a_large_reducible_map_is_certified_with_an_overshoot(rate):
    """Multipliers driven far apart by the search must not leave a metric that cannot be bracketed."""
    rng = np.random.default_rng(0)
    W = np.triu(rng.standard_normal((48, 48)) / np.sqrt(48))
    W[np.diag_indices(48)] = rng.uniform(-0.7, 0.7, 48)
    certificate = certify(LureSystem(np.zeros((48, 48)), np.eye(48), W, None, (0, 1), 1.0), rate=rate)
    assert certificate.verdict is Verdict.CERTIFIED
    assert certificate.overshoot < 1e6
    assert verify(certificate).valid
