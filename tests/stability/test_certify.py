"""The ladder: implications between criteria, soundness on random systems, the published theorem's failure, options."""

from __future__ import annotations

import numpy as np
import pytest

from stability import (
    DrivenSystem,
    LureSystem,
    Verdict,
    certify,
    circle_criterion,
    multiplier_criterion,
    register_converter,
    theorem1,
    verify,
)
from stability.certificate import Finding

A_CASE = np.array([[-1, 13, 29], [-8, -26, -5], [-30, 18, -2]]) / 40
W_CASE = np.array([[-15, 8, 21], [24, -19, 25], [-9, -31, -16]]) / 8


def _near_boundary(rng):
    n = int(rng.integers(1, 6))
    A, W = rng.normal(size=(n, n)), rng.normal(size=(n, n))
    shift = max(np.linalg.eigvals(A + k * W).real.max() for k in (0.0, 0.5, 1.0)) + rng.uniform(-0.2, 1.5)
    return A - shift * np.eye(n), W


def test_the_published_theorem_1b_is_false():
    """Every published hypothesis holds, and the network with that bias has an unstable equilibrium."""
    found = theorem1(A_CASE, W_CASE)
    assert found.b_published.holds
    assert not found.b_sound.holds
    v = np.array([4.0, 0.0, 4.0])
    h = -np.linalg.solve(A_CASE, np.tanh(v))
    system = LureSystem.recurrent(A_CASE, W_CASE)
    bare = certify(system)
    assert bare.verdict is Verdict.REFUTED
    assert verify(bare).valid
    network = DrivenSystem(system, "tanh", np.zeros((3, 1)), v - W_CASE @ h)
    refuted = certify(network)
    assert refuted.verdict is Verdict.REFUTED
    assert verify(refuted).valid


def test_implications_between_criteria(rng):
    by_theorem = by_another = 0
    for _ in range(15):
        A, W = _near_boundary(rng)
        system = LureSystem.recurrent(A, W)
        found = theorem1(A, W)
        circle = circle_criterion(system, rate="any")
        multiplier = multiplier_criterion(system, rate="any")
        if found.a.holds and found.a.margin > 1e-6:
            by_theorem += 1
            assert circle.holds
        if (circle.holds and circle.margin > 1e-6) or found.b_sound.holds:
            by_another += 1
            assert multiplier.holds
    assert by_theorem >= 1
    assert by_another >= 3


@pytest.mark.parametrize("driven", [False, True])
def test_nothing_unstable_is_certified_and_every_answer_verifies(driven, rng):
    certified = not_stable = 0
    for _ in range(8):
        A, W = _near_boundary(rng)
        system = LureSystem.recurrent(A, W)
        subject = DrivenSystem(system, "tanh", rng.normal(size=(len(A), 2))) if driven else system
        certificate = certify(subject, rate="any")
        assert verify(certificate).valid or certificate.verdict is Verdict.INCONCLUSIVE
        unstable = max(np.linalg.eigvals(A + W * rng.random(len(A))[None, :].T).real.max() for _ in range(50)) > 0
        assert not (unstable and certificate.verdict is Verdict.CERTIFIED)
        certified, not_stable = certified + (certificate.verdict is Verdict.CERTIFIED), not_stable + unstable
    assert certified >= 1
    assert not_stable + certified >= 3


@pytest.mark.parametrize("normal", [np.diag([-0.5, -2.0]), np.array([[-0.3, 2.0], [-2.0, -0.3]])])
def test_linear_and_normal_systems_get_their_exact_rate(normal):
    certificate = certify(LureSystem.linear(normal))
    assert certificate.rate == pytest.approx(-np.linalg.eigvals(normal).real.max(), rel=1e-6)
    assert certificate.overshoot == pytest.approx(1.0, abs=1e-6)
    step = certify(LureSystem.linear(np.eye(2) + 0.1 * normal, dt=0.1))
    assert step.rate == pytest.approx(np.abs(np.linalg.eigvals(np.eye(2) + 0.1 * normal)).max(), rel=1e-6)


@pytest.mark.parametrize("criterion", ["auto", "theorem1a", "small_gain", "circle", "multiplier"])
def test_a_rate_that_is_not_reached_leaves_the_proof_of_the_best_one(criterion):
    system = LureSystem.recurrent([[-2.0]], [[1.0]])  # 1 is the best rate
    slower = certify(system, rate=0.9, criterion=criterion)
    assert slower.rate >= 0.9
    assert (slower.meta["asked_rate"], slower.meta["asked_rate_reached"]) == (0.9, True)
    beyond = certify(system, rate=1.5, criterion=criterion)
    assert beyond.verdict is Verdict.CERTIFIED
    assert beyond.rate == pytest.approx(1.0, rel=1e-5)
    assert (beyond.meta["asked_rate"], beyond.meta["asked_rate_reached"]) == (1.5, False)
    assert verify(beyond).valid
    assert {"equilibrium"} <= {claim.name for claim in beyond.claims}
    assert "asked_rate" not in certify(system, rate="any", criterion=criterion).meta


@pytest.mark.parametrize("solver", ["riccati", "cvxpy"])
@pytest.mark.parametrize("criterion", ["auto", "small_gain", "multiplier", "linear"])
@pytest.mark.parametrize("rate", ["slowest", "best"])
def test_what_holds_at_no_stated_rate_still_has_a_rate_that_verifies(criterion, solver, rate):
    flow = LureSystem.recurrent(-3.0 * np.eye(2), -0.5 * np.eye(2))
    linear = LureSystem.linear(-np.eye(2))
    for system in (flow, flow.euler(0.1), linear, LureSystem.linear(0.5 * np.eye(2), 1.0)):
        if criterion == "linear" and system.channels:
            continue
        asked = rate if rate != "slowest" else 1.0 if system.is_discrete else 0.0
        certificate = certify(system, criterion=criterion, rate=asked, solver=solver, tol=1e-2)
        if certificate.verdict is Verdict.CERTIFIED:
            assert verify(certificate).valid
            assert certificate.rate < 1.0 if system.is_discrete else certificate.rate > 0.0
        assert certificate.verdict is Verdict.CERTIFIED or criterion not in ("auto", "multiplier")


def test_a_rate_asked_of_what_is_not_stable_is_not_reached():
    certificate = certify(LureSystem.recurrent([[-1.0]], [[2.0]]), rate=0.5)
    assert certificate.verdict is Verdict.REFUTED
    assert certificate.meta["asked_rate_reached"] is False


@pytest.mark.parametrize("criterion", ["theorem1a", "theorem1b", "small_gain", "circle", "multiplier"])
def test_each_criterion_alone_certifies_what_it_should(criterion):
    system = LureSystem.recurrent([[-3.0, 0.0], [0.0, -3.0]], [[-1.0, 0.0], [0.0, -1.0]])
    certificate = certify(system, criterion=criterion)
    assert certificate.verdict is Verdict.CERTIFIED
    assert certificate.criterion == criterion
    assert verify(certificate).valid


def test_discrete_findings_of_theorem_1_speak_of_the_differential_equation():
    certificate = certify(LureSystem.recurrent([[-2.0]], [[1.0]]).euler(1.5), rate="any")
    (finding,) = [f for f in certificate.findings if f.criterion == "theorem1a"]
    assert finding.holds
    assert "differential equation" in finding.detail
    assert certificate.verdict is not Verdict.CERTIFIED or certificate.criterion != "theorem1a"


def test_an_euler_step_that_is_too_long_is_refuted_though_the_flow_is_certified():
    flow = LureSystem.recurrent([[-2.0]], [[-1.0]])
    assert certify(flow).verdict is Verdict.CERTIFIED
    assert certify(flow.euler(0.8)).verdict is Verdict.REFUTED


def test_a_users_own_class_enters_by_one_call():
    class Reservoir:
        def __init__(self, matrix):
            self.matrix = matrix  # used as h @ matrix: its transpose is the W of the formulas

    register_converter(
        Reservoir, lambda r: LureSystem(np.zeros_like(r.matrix), np.eye(len(r.matrix)), r.matrix.T, dt=1.0)
    )
    certificate = certify(Reservoir(0.8 * np.eye(3)))
    assert certificate.rate == pytest.approx(0.8, rel=1e-4)


def test_orthogonal_networks_are_non_expansive_and_no_contractions():
    q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))
    cell = DrivenSystem(LureSystem(np.zeros((4, 4)), np.eye(4), q, slope=(0.1, 1.0), dt=1.0), "leaky_relu", np.eye(4))
    certificate = certify(cell, refute=False)
    assert certificate.verdict is not Verdict.CERTIFIED
    (claim,) = [c for c in certificate.claims if c.name == "nonexpansive"]
    assert claim.value <= 1 + 1e-6


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_of_proofs_as_fast_the_one_of_the_smallest_overshoot_counts(order, monkeypatch):
    made = [
        Finding(name, True, 1.0, "", rate, {"P": np.diag([1.0, p]), "L": np.zeros(0)})
        for name, p, rate in (("circle", 100.0, 0.5), ("small_gain", 1.0, 0.5), ("linear", 1.0, 0.3))
    ]
    monkeypatch.setattr("stability.search.certification_stages.lure_findings", lambda *_: [made[i] for i in order])
    certificate = certify(LureSystem.linear(-np.eye(2)))
    assert (certificate.criterion, certificate.rate) == ("small_gain", 0.5)
    assert 1.0 <= certificate.overshoot < 1.0001
