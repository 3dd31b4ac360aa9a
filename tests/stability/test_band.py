"""From both sides of the band between proofs and counter-examples: sequences of slopes, vertices of slopes, limits."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from stability import DrivenSystem, LureSystem, certify, verify
from stability.certificate import Verdict
from stability.claims.limit import rate_limit
from stability.criteria.multiplier import multiplier_criterion
from stability.criteria.vertices import vertices_criterion
from stability.refute import sequences
from stability.refute.sequences import search_sequences
from stability.refute.slopes import search_slopes
from stability.rules import slope_sequence
from stability.rules.registry import RULES, accepted, propose
from stability.solve.deadline import Deadline
from stability.verify import verify_claim


def gaussian(n: int, seed: int, gain: float) -> LureSystem:
    W = gain * np.random.default_rng(seed).normal(size=(n, n)) / np.sqrt(n)
    return LureSystem(np.zeros((n, n)), np.eye(n), W, None, (0.0, 1.0), 1.0)


@pytest.fixture(scope="module")
def split_proof():
    """A system that diagonal multipliers leave open, and the proof by vertices of its slopes."""
    system = gaussian(16, 2, 0.84)
    assert not multiplier_criterion(system, rate="any", solver="riccati").holds
    return certify(system, rate="any")


def growth(system: LureSystem, K: np.ndarray) -> float:
    product = np.eye(system.states)
    for k in K:
        product = (system.A + (system.B * k) @ system.C) @ product
    return float(np.abs(np.linalg.eigvals(product)).max() ** (1 / len(K)))


def test_sequences_find_what_constant_slopes_do_not() -> None:
    system = gaussian(16, 1, 0.98)
    constant = search_slopes(system, rng=np.random.default_rng(0), deadline=Deadline())
    assert constant.excess < 0
    certificate = certify(system, rate="any")
    assert (certificate.verdict, certificate.criterion) == (Verdict.REFUTED, "slope_sequence")
    K = certificate.proof.data["K"]
    assert len(K) > 1
    assert growth(system, K) > 1.0
    assert verify(certificate).valid
    tame = gaussian(16, 1, 0.98 * 0.99 / growth(system, K))  # the same slopes, a little less gain
    assert accepted(tame, "slope_sequence", certificate.proof.data) is None


def test_the_search_reaches_what_all_vertices_do() -> None:
    """Against every sequence of three steps of a small system, one by one."""
    system = gaussian(3, 5, 1.0)
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
    best = max(growth(system, np.array(K)) for q in (1, 2, 3) for K in itertools.product(corners, repeat=q))
    found = search_sequences(
        system, rng=np.random.default_rng(0), deadline=Deadline(), first=np.ones(3), starts=8, periods=(2, 3)
    )
    assert found.radius == pytest.approx(best, rel=1e-9)
    assert growth(system, found.K) == pytest.approx(found.radius, rel=1e-9)


def test_a_metric_common_to_vertices_of_slopes(split_proof) -> None:
    """It decreases along every slope, not only at vertices: against random slopes and trajectories."""
    assert (split_proof.verdict, split_proof.criterion) == (Verdict.CERTIFIED, "vertices")
    assert verify(split_proof).valid
    system, data, rng = split_proof.subject, split_proof.proof.data, np.random.default_rng(0)
    root = np.linalg.cholesky(data["P"]).T
    for k in range(400):
        K = rng.integers(0, 2, 16) if k % 2 else rng.random(16)
        step = root @ (system.A + (system.B * K) @ system.C) @ np.linalg.inv(root)
        assert np.linalg.norm(step, 2) <= data["rate"]
    assert rate_limit(system).value <= split_proof.rate


def test_what_the_rule_of_vertices_refuses(split_proof) -> None:
    data, system = split_proof.proof.data, split_proof.subject

    def reason(about: LureSystem = system, **changes) -> str:
        valid, words = RULES["vertex_lmi"](about, propose(about, "vertex_lmi", {**data, **changes}))
        assert not valid
        return words

    for split in (data["split"][::-1].copy(), data["split"] + 0.5, data["split"] + 15, np.zeros(0), np.arange(9.0)):
        assert "split must name" in reason(split=split)
    assert "L must be" in reason(L=data["L"][:-1])
    assert "negative" in reason(L=-data["L"])
    assert "vertex" in reason(rate=0.9)
    assert "vertex" in reason(L=np.tile(data["L"].mean(axis=0) * (data["L"].max(axis=0) < 1), (len(data["L"]), 1)))
    steeper = LureSystem(system.A, system.B, 1.1 * system.C, None, (0.0, 1.0), 1.0)
    assert "vertex" in reason(steeper)


def test_flows_and_systems_that_it_is_not_about() -> None:
    assert "does not apply" in vertices_criterion(gaussian(41, 0, 0.5)).detail
    flow = LureSystem.recurrent(-np.eye(2), [[0.0, 0.5], [-0.5, 0.0]])
    found = vertices_criterion(flow)
    assert found.holds
    data = {**found.witness, "rate": found.rate, "overshoot": 1e3, "p_min": 1e-3, "p_max": 1.0}
    assert accepted(flow, "vertex_lmi", data) is not None
    assert accepted(flow.euler(0.1), "vertex_lmi", {**data, "rate": 0.9999}) is None


def test_no_system_is_proved_and_refuted() -> None:
    """Small systems across the band: the limit from below never passes a rate from above."""
    for seed in range(8):
        system = gaussian(4, seed, 0.7 + 0.08 * seed)
        certificate = certify(system, seed=seed)
        if certificate.verdict is Verdict.CERTIFIED:
            limit = next(c for c in certificate.claims if c.name == "rate_limit")
            assert limit.value <= certificate.rate
            assert growth(system, limit.proof.data["K"]) == pytest.approx(limit.value, rel=1e-2)
        elif certificate.verdict is Verdict.REFUTED:
            assert not vertices_criterion(system).holds


def test_a_network_forgets_no_faster_than_along_an_orbit() -> None:
    W = np.array([[0.5, -0.6], [0.7, 0.2]])
    system = LureSystem(np.zeros((2, 2)), np.eye(2), W, None, (0.0, 1.0), 1.0)
    network = DrivenSystem(system, "tanh", np.eye(2), [0.3, -1.0])
    claim = rate_limit(network)
    assert verify_claim(network, claim).valid
    orbit, inputs = claim.proof.data["orbit"], claim.proof.data["input"]
    product = np.eye(2)
    for x, u in zip(orbit, inputs):
        product = network.jacobian(x, u) @ product
    seen = float(np.abs(np.linalg.eigvals(product)).max() ** (1 / len(inputs)))
    assert claim.value == pytest.approx(seen, rel=1e-6)
    assert claim.value > 0.7  # inputs take the biases away: the slopes are nearly one
    more = dataclasses.replace(claim.proof, data={**claim.proof.data, "rate": 1.001 * seen})
    assert not verify_claim(network, dataclasses.replace(claim, proof=more, value=1.001 * seen)).valid
    boxed = rate_limit(network, inputs=(-0.2, 0.2))
    assert np.abs(boxed.proof.data["input"]).max() <= 0.2
    assert boxed.value < claim.value


def test_a_search_over_sequences_solves_no_more_eigenvalue_problems_than_it_may(monkeypatch) -> None:
    system, leading, radii, counts = gaussian(20, 2, 1.0), sequences._leading, [], []
    for most in (0, 1, 7, 40, 10**9):
        solved: list[int] = []
        monkeypatch.setattr(sequences, "_leading", lambda product, solved=solved: solved.append(1) or leading(product))
        told = {"deadline": Deadline(), "first": np.ones(20), "starts": 2, "periods": (2, 3), "most": most}
        radii.append(search_sequences(system, rng=np.random.default_rng(0), **told).radius)
        counts.append(len(solved))
        assert len(solved) <= 1 + most  # one is that of the slopes given
    assert radii == sorted(radii)
    assert counts == sorted(counts)
    assert counts[-1] > 41


def test_what_an_enclosure_leaves_open_is_no_rate(monkeypatch) -> None:
    """The modulus that counts is the least inside the enclosure: a wider one proves less, and at some width nothing."""
    shift = LureSystem(np.zeros((2, 2)), np.eye(2), np.diag([1.0, 0.5]), None, (0.0, 1.0), 1.0)
    K = np.ones((2, 2))  # over two steps 1 and 1 / 4
    data = {"K": K, "eigenvalue": [1.0, 0.0], "rate": 0.999999}
    kind = "slope_sequence_rate"

    def valid(rate: float) -> bool:
        return RULES[kind](shift, propose(shift, kind, {**data, "rate": rate}))[0]

    assert valid(1.0 - 1e-9)
    assert not valid(1.0 + 1e-9)
    enclose = slope_sequence.enclose_eigenpair

    def wider(*given):
        pair = enclose(*given)
        return dataclasses.replace(pair, radius=pair.radius + 1e-8)

    monkeypatch.setattr(slope_sequence, "enclose_eigenpair", wider)
    assert valid(1.0 - 1.1e-8)
    assert not valid(1.0 - 0.9e-8)
    assert not valid(1.0)
