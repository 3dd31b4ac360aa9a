"""Activations on pairs of units: what their rules accept is true at the edge, what differs in one point is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from specimens import turning

from stability import certify, verify
from stability.certificate import Certificate
from stability.errors import ConfigurationError, DimensionError, FileFormatError, UnsupportedError
from stability.kernel.format.serialization import decode, digest_of, encode, seal
from stability.kernel.format.theorem_table import RULES
from stability.proposals import propose
from stability.systems import PairwiseSystem
from stability.verification import verify_claim


def drawn(seed: int, activation: str, n: int = 4, size: float = 1.0, bias: float = -0.3) -> PairwiseSystem:
    rng = np.random.default_rng(seed)
    W = size * rng.normal(size=(n, n)) / np.sqrt(n)
    b = bias * rng.random(n // 2 if activation == "modrelu" else n)
    return PairwiseSystem(W, rng.normal(size=(n, 2)), b, activation)


def slow_step(network: PairwiseSystem, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The same step by complex numbers and by sorting, unit by unit."""
    n, z = len(x), network.W @ x + network.V @ u
    if network.activation == "oplu":
        z = z + network.b
        return np.array([pick(z[i], z[i + 1]) for i in range(0, n, 2) for pick in (max, min)])
    numbers = [complex(z[i], z[i + n // 2]) for i in range(n // 2)]
    out = [max(abs(c) + b, 0.0) * c / abs(c) if c else 0j for c, b in zip(numbers, network.b)]
    return np.array([c.real for c in out] + [c.imag for c in out])


def shrinks_exactly(network: PairwiseSystem, weights: np.ndarray, rate: float, exact) -> bool:
    """Return True if ``rate^2 D - W^T D W`` is positive definite, in rationals."""
    d = np.empty(network.states)
    d[network.pairs] = weights[:, None]
    W, D = exact.of(network.W), exact.of(d)
    return exact.is_definite(np.diag(Fraction(rate) ** 2 * D) - W.T @ (D[:, None] * W))


@pytest.mark.parametrize("activation", ["modrelu", "oplu"])
def test_the_step_is_the_one_of_the_definition(activation):
    rng = np.random.default_rng(0)
    network = drawn(1, activation, n=6, bias=1.0)
    for x, u in zip(rng.normal(size=(20, 6)), rng.normal(size=(20, 2))):
        np.testing.assert_allclose(network.advance(x, u), slow_step(network, x, u), atol=1e-14)
    x, u = rng.normal(size=(3, 5, 6)), rng.normal(size=(3, 5, 2))
    np.testing.assert_allclose(network.advance(x, u)[1, 2], slow_step(network, x[1, 2], u[1, 2]), atol=1e-14)
    assert not np.isnan(network.advance(np.zeros(6), np.zeros(2))).any()


@pytest.mark.parametrize("activation", ["modrelu", "oplu"])
@pytest.mark.parametrize("seed", range(4))
def test_the_last_accepted_rate_is_true_in_rationals_and_tight(seed, activation, exact):
    network = drawn(seed, activation, size=0.2)
    weights = np.array([1.0, 0.5 + seed])
    low, high = 0.0, 1.0
    rule, data = RULES["pair_norm"], {"weights": weights, "overshoot": 4.0}
    for _ in range(60):
        rate = 0.5 * (low + high)
        claim = propose(network, "pair_norm", {**data, "rate": rate}, value=rate)
        accepted = rule(network, claim)[0]
        low, high = (low, rate) if accepted else (rate, high)
    assert high < 1.0
    assert shrinks_exactly(network, weights, high, exact)
    assert not shrinks_exactly(network, weights, high * (1 - 1e-11), exact)
    d = np.empty(4)
    d[network.pairs] = weights[:, None]
    rng = np.random.default_rng(seed)
    x, y, u = rng.normal(size=(500, 4)), rng.normal(size=(500, 4)), rng.normal(size=(500, 2))
    before, after = ((d * v * v).sum(axis=1) for v in (x - y, network.advance(x, u) - network.advance(y, u)))
    assert (after <= high**2 * before * (1 + 1e-12)).all()


def test_the_last_accepted_factor_of_growth_is_true_in_rationals(exact):
    rounded = turning("oplu", size=1.0)
    low, high = 0.0, 1e-6
    for _ in range(40):
        middle = 0.5 * (low + high)
        claim = propose(rounded, "pair_growth", {"factor": 1.0 + middle})
        low, high = (low, middle) if verify_claim(rounded, claim).valid else (middle, high)
    assert high < 1e-12
    assert shrinks_exactly(rounded, np.ones(2), 1.0 + high, exact)
    grown = turning("oplu", size=1.0 + 2e-7)
    assert not verify_claim(grown, propose(grown, "pair_growth", {"factor": 1.0 + 1e-7})).valid


def test_an_overshoot_covers_the_ratio_of_the_weights():
    network = drawn(0, "oplu", size=0.3)
    for overshoot, valid in ((2.0 * (1 + 1e-13), True), (2.0 * (1 - 1e-13), False), (0.5, False)):
        data = {"weights": np.array([4.0, 1.0]), "rate": 0.99, "overshoot": overshoot}
        assert verify_claim(network, propose(network, "pair_norm", data, value=0.99)).valid is valid
    for weights in (np.array([1.0, 0.0]), np.array([1.0, -1.0]), np.ones(4), np.ones((2, 1)), np.full(2, 1e20)):
        data = {"weights": weights, "rate": 0.99, "overshoot": 9.0}
        assert not verify_claim(network, propose(network, "pair_norm", data, value=0.99)).valid


def test_what_is_proved_of_stored_weights_is_not_claimed_of_the_orthogonal_matrix_beside_them():
    """The stored W shrinks everything by 4e-7, the orthogonal one nothing: a proof about one is none about both."""
    stored = turning("oplu", size=1.0 - 4e-7)
    data = {"weights": np.ones(2), "rate": 1.0 - 1e-7, "overshoot": 1.0}
    claim = propose(stored, "pair_norm", data, value=1.0 - 1e-7)
    assert verify_claim(stored, claim).valid
    beside = PairwiseSystem(stored.W, stored.V, stored.b, "oplu", orthogonal=True)
    said = propose(beside, "pair_norm", data, value=1.0 - 1e-7)
    assert "orthogonal W shrinks no difference" in verify_claim(beside, said).reason
    assert verify_claim(beside, propose(beside, "pair_isometry", {})).valid
    assert not verify_claim(stored, propose(stored, "pair_isometry", {})).valid
    assert certify(stored).verdict == "certified"
    assert certify(beside).verdict == "refuted"


@pytest.mark.parametrize("kind", ["pair_norm", "pair_growth"])
def test_a_positive_bias_stretches(kind):
    for bias, valid in ((0.0, True), (5e-324, False)):
        network = turning(bias=bias, size=0.5 if kind == "pair_norm" else None)
        data = {"weights": np.ones(2), "rate": 0.9, "overshoot": 1.0} if kind == "pair_norm" else {"factor": 1.0}
        value = data.get("rate", data.get("factor"))
        check = verify_claim(network, propose(network, kind, data, value=value))
        assert check.valid is valid, check.reason
    near = turning(bias=0.1)
    x = near.W.T @ np.array([1e-9, 0.0, 0.0, 0.0])
    gap = np.linalg.norm(near.advance(x, np.zeros(2)) - near.advance(-x, np.zeros(2)))
    assert gap > 0.19  # what the refusal is about: points 2e-9 apart


@pytest.mark.parametrize("activation", ["modrelu", "oplu"])
def test_an_isometry_keeps_more_than_half_of_a_large_distance(activation):
    """The witness's sentence, played with the constant of its proof: 300 steps, inputs and biases that pull inwards."""
    rng, steps = np.random.default_rng(3), 300
    network = turning(activation, bias=-0.2)
    u = rng.normal(size=(steps, 2))
    pull = np.linalg.norm(network.b) + np.abs(u).max() * np.linalg.norm(network.V) * np.sqrt(2)
    x = rng.normal(size=4)
    x *= 4.1 * steps * pull / np.linalg.norm(x)
    first, second, start = x, np.zeros(4), np.linalg.norm(x)
    for now in u:
        first, second = network.advance(first, now), network.advance(second, now)
        assert np.linalg.norm(first - second) > 0.5 * start


def test_isometry_and_powers_at_the_edge():
    """An expansion is proved down to rounding, and never of a W that shrinks something."""
    for size, valid in ((1.0 + 1e-12, True), (1.0, False), (1.0 - 1e-12, False)):
        network = turning(size=size)
        assert verify_claim(network, propose(network, "pair_isometry", {})).valid is valid
    named = {"eigenvalue": [0.6, 0.8]}
    for size, valid in ((1.0 + 1e-9, True), (1.0 - 1e-9, False)):
        network = turning(size=size)
        assert verify_claim(network, propose(network, "pair_linear", named)).valid is valid
    identity = PairwiseSystem(np.eye(2), np.eye(2), [-1.0], "modrelu")  # on the circle: the trace decides
    assert verify_claim(identity, propose(identity, "pair_linear", {})).valid
    sorts = turning("oplu", size=1.1)
    assert "covers modReLU only" in verify_claim(sorts, propose(sorts, "pair_linear", named)).reason
    assert "as stored" in verify_claim(turning(), propose(turning(), "pair_linear", named)).reason


def test_a_jump_needs_its_pair():
    network = PairwiseSystem(0.5 * np.eye(4), np.eye(4), [0.1, -0.1], "modrelu")
    assert verify_claim(network, propose(network, "pair_jump", {"pair": 0})).valid
    assert "not positive" in verify_claim(network, propose(network, "pair_jump", {"pair": 1})).reason
    assert "2 pairs" in verify_claim(network, propose(network, "pair_jump", {"pair": 2})).reason
    flat = np.array([[0.5, 0.1], [0.5, 0.1]])  # both rows the same: an input can keep the pair away from zero
    stuck = PairwiseSystem(flat, np.eye(2), [0.1], "modrelu")
    assert "not proved independent" in verify_claim(stuck, propose(stuck, "pair_jump", {"pair": 0})).reason
    sorts = turning("oplu")
    assert "covers modReLU only" in verify_claim(sorts, propose(sorts, "pair_jump", {"pair": 0})).reason


def test_whoever_asks_gets_one_of_three_answers():
    triangular = PairwiseSystem(np.triu(np.full((4, 4), 0.6)), np.eye(4), np.zeros(4), "oplu")
    certificate = certify(triangular)  # |W| > 1, contracting in another norm
    assert certificate.verdict == "certified"
    assert certificate.criterion == "pairwise"
    assert np.linalg.norm(triangular.W, 2) > 1 > certificate.rate > 0.6
    assert verify(certificate).valid
    open_one = certify(drawn(0, "modrelu", size=1.1))
    assert open_one.verdict == "inconclusive"
    assert certify(turning(size=1.1)).criterion == "pair_isometry"
    assert certify(turning(bias=0.1, size=0.5)).criterion == "pair_jump"
    for network, names in ((turning(), ["nonexpansive"]), (turning(bias=0.1), [])):
        certificate = certify(network, input_range=(0, 1), horizon=9)
        assert (certificate.verdict, certificate.criterion) == ("refuted", "pair_isometry")
        assert [claim.name for claim in certificate.claims] == names
        assert all(claim.value == 1.0 for claim in certificate.claims)
        assert verify(certificate).valid
    with pytest.raises(UnsupportedError):
        certify(turning(), criterion="small_gain")
    assert certify(turning(size=0.5), criterion="pairwise", rate=0.6).meta["asked_rate_reached"] is True


def test_a_file_keeps_every_bit_and_forgets_no_word(tmp_path):
    certificate = certify(turning())
    path = certificate.save(tmp_path / "c.json")
    again = Certificate.load(path).subject
    assert digest_of(again) == digest_of(certificate.subject)
    assert verify(path).valid
    document = json.loads(path.read_text())
    for changes in ({"orthogonal": False}, {"orthogonal": 1}, {"activation": "oplu"}, {"more": 1}, {"part": "a of b"}):
        forged = {**document, "subject": {**document["subject"], **changes}}
        path.write_text(seal(forged))
        assert not verify(path).valid, changes
    with pytest.raises(FileFormatError, match="incomplete"):
        decode({key: value for key, value in encode(turning()).items() if key != "orthogonal"})


def test_what_is_no_such_network_is_refused():
    good = turning()
    with pytest.raises(ConfigurationError, match="far from orthogonal"):
        replace(good, W=(1 + 1e-6) * good.W)
    for bad in ({"activation": "tanh"}, {"activation": None}, {"orthogonal": 1}, {"W": np.eye(3)}):
        with pytest.raises(ConfigurationError):
            replace(good, **bad)
    for bad in ({"b": np.zeros(4)}, {"V": np.eye(2)}, {"W": np.ones((4, 2))}):
        with pytest.raises(DimensionError):
            replace(good, **bad)
