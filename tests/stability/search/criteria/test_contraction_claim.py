"""Overshoot: no more of it than the rate asks for, and slower rates beside the fastest where it is large."""

from __future__ import annotations

import numpy as np
import pytest

from stability import LureSystem, Verdict, certify, multiplier_criterion, smallest_overshoot, verify
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.contraction_claim import LARGE, contraction_claim, identity_witness, slower_rate_claims
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


def test_a_large_overshoot_brings_slower_rates_of_a_small_one():
    system = _map(8, 5, upper=True)
    certificate = certify(system)
    assert certificate.overshoot > LARGE
    slower = [claim for claim in certificate.claims if claim.name == "contraction"]
    overshoots = [claim.proof.data["overshoot"] for claim in slower]
    assert len(slower) == 2
    assert overshoots[0] <= LARGE
    assert overshoots[1] == pytest.approx(1.0, abs=1e-9)
    assert certificate.rate < slower[0].value < slower[1].value < 1.0
    assert all(claim.verdict is Verdict.CERTIFIED for claim in slower)
    assert verify(certificate).valid


@pytest.mark.parametrize("seed", range(5))
def test_the_steady_rate_is_one_that_no_slope_beats(seed, rng):
    system = (_map if seed % 2 else _flow)(5, seed)
    found = identity_witness(system)
    assert found
    assert np.array_equal(found.data["P"], np.eye(5))
    for _ in range(50):
        J = system.jacobian(rng.uniform(0, 1, size=5))
        if system.is_discrete:
            assert np.linalg.norm(J, 2) <= found.rate
        else:
            assert np.linalg.eigvalsh(J + J.T)[-1] <= -2 * found.rate


def test_the_norm_of_the_weights_is_the_steady_rate_of_a_plain_map():
    assert identity_witness(_map(6, 1, norm=0.8)).rate == pytest.approx(0.8, rel=1e-6)
    assert not identity_witness(_map(6, 1, norm=1.01))
    assert not identity_witness(LureSystem.recurrent([[-1.0, 9.0], [0.0, -1.0]], 0.1 * np.eye(2)))


def test_a_bound_without_overshoot_needs_nothing_beside_it():
    system = LureSystem.recurrent([[-2.0]], [[1.0]])
    certificate = certify(system)
    assert slower_rate_claims(system, certificate.claim) == []


def test_among_witnesses_as_fast_the_one_of_the_smallest_overshoot_is_kept():
    """Theorem 1 proves the rate in the identity metric; the multiplier criterion must not hide it."""
    system = LureSystem.recurrent(-2.0 * np.eye(3), 0.5 * np.eye(3))
    certificate = certify(system)
    assert certificate.overshoot == pytest.approx(1.0, abs=1e-9)
    assert certificate.rate == pytest.approx(1.5, rel=1e-6)


def test_no_claim_without_a_rate():
    from stability.search.criteria.witness import Witness

    assert contraction_claim(_map(2, 0), Witness()) is None


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


def test_triangular_maps_trade_rate_for_overshoot():
    """No rate of this map comes with an overshoot of ten; a slower one still costs far less than the fastest."""
    W = np.triu(np.random.default_rng(3).normal(size=(10, 10)), 1) + 0.5 * np.eye(10)
    certificate = certify(LureSystem(np.zeros((10, 10)), np.eye(10), W, dt=1.0), criterion="schur")
    assert certificate.overshoot > 100.0
    calmer = [c for c in certificate.claims if c.name == "contraction"]
    assert calmer
    assert calmer[0].value > certificate.rate
    assert calmer[0].proof.data["overshoot"] < 0.5 * certificate.overshoot
    assert verify(certificate).valid
