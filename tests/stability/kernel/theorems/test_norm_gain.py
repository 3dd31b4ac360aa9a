"""Gains from the norms of the weights: what the rule accepts last is true in rationals, what is false it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from specimens import turning

from stability.kernel.format.theorem_table import RULES
from stability.kernel.theorems.norm_gain import sequence_bound
from stability.proposals import propose
from stability.search.gains.lure import incremental_gain
from stability.search.gains.pairwise import pairwise_gain_bound, pairwise_proof
from stability.systems import PairwiseSystem
from stability.verification import verify_claim

ACTIVATIONS = ("oplu", "abs", "householder", "modrelu")


def drawn(seed: int, activation: str = "oplu", n: int = 4, p: int = 2, size: float = 0.6) -> PairwiseSystem:
    rng = np.random.default_rng(seed)
    b = -0.3 * rng.random(n // 2 if activation == "modrelu" else n)
    angles = rng.normal(size=n // 2) if activation == "householder" else None
    W = size * np.linalg.qr(rng.normal(size=(n, n)))[0]
    return PairwiseSystem(W, rng.normal(size=(n, p)), b, activation, angles=angles)


def dissipates_exactly(network: PairwiseSystem, weights: np.ndarray, growth: float, gain: float, exact) -> bool:
    """Return True if ``diag(growth^2 D, gain^2 I) - [W V]^T D [W V]`` is positive definite, in rationals."""
    d = np.empty(network.states)
    d[network.pairs] = weights[:, None]
    K, D = exact.of(np.hstack([network.W, network.V])), exact.of(d)
    ends = [*(Fraction(growth) ** 2 * D), *([Fraction(gain) ** 2] * network.inputs)]
    return exact.is_definite(np.diag(ends) - K.T @ (D[:, None] * K))


@pytest.mark.parametrize("seed", range(3))
def test_the_last_accepted_gain_is_true_in_rationals_and_tight(seed, exact):
    network, weights = drawn(seed), np.array([1.0 + 1e-9, 1.2 + 0.3 * seed])
    data = {"weights": weights, "H": np.eye(4), "growth": 1.0, "measure": "final", "horizon": None}
    low, high = 0.0, 100.0
    for _ in range(60):
        gain = 0.5 * (low + high)
        claim = propose(network, "norm_gain", {**data, "gain": gain}, value=1.1 * gain)
        low, high = (low, gain) if RULES["norm_gain"](network, claim)[0] else (gain, high)
    assert high < 100.0
    assert dissipates_exactly(network, weights, 1.0, high, exact)
    assert not dissipates_exactly(network, weights, 1.0, high * (1 - 1e-11), exact)


def ascent(network: PairwiseSystem, steps: int, rng: np.random.Generator) -> tuple[float, float]:
    """The largest ratios found by power iteration along runs: of the last state's difference, of all of them."""
    n, p = network.states, network.inputs
    x, u = rng.normal(size=n), rng.normal(size=(steps, p))
    best = [0.0, 0.0]
    for measure in (0, 1):
        d = rng.normal(size=(steps, p))
        for _ in range(12):
            d *= 1e-4 / np.linalg.norm(d)
            runs, jacobians = [x, x], []
            gaps = []
            for t in range(steps):
                jacobians.append(network.jacobian(runs[0], u[t]))
                sigma = jacobians[-1] @ np.linalg.pinv(network.W)
                runs = [network.advance(runs[0], u[t]), network.advance(runs[1], u[t] + d[t])]
                gaps.append((runs[1] - runs[0], sigma @ network.V))
            ratio = np.linalg.norm(gaps[-1][0] if measure == 0 else [g for g, _ in gaps]) / np.linalg.norm(d)
            best[measure] = max(best[measure], float(ratio))
            back = np.zeros(n)
            for t in reversed(range(steps)):
                back = back + (gaps[t][0] if measure == 1 or t == steps - 1 else 0.0)
                d[t], back = gaps[t][1].T @ back, jacobians[t].T @ back
    return best[0], best[1]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_no_run_exceeds_the_gain_and_some_come_near(activation):
    rng, reached = np.random.default_rng(1), 0.0
    for seed in range(2):
        network = drawn(seed, activation)
        network = replace(network, b=0.0 * network.b) if activation == "modrelu" else network
        final, whole = (incremental_gain(network, measure=m).value for m in ("final", "l2"))
        found = ascent(network, 12, rng)
        assert found[0] <= final * (1 + 1e-9)
        assert found[1] <= whole * (1 + 1e-9)
        reached = max(reached, found[0] / final)
    assert reached > 0.7


def test_bounds_of_a_sequence():
    """Against sums written out: of the squares of a geometric decay, over some steps and over all."""
    for growth in (0.5, 0.9, 1.0, 1.2):
        for T in (1, 7):
            powers = [growth**k for k in range(T)]
            assert sequence_bound("final", 2.0, growth, T) == pytest.approx(2.0 * max(powers), rel=1e-8)
            assert sequence_bound("l2", 2.0, growth, T) == pytest.approx(
                2.0 * math.sqrt(sum(q * q for q in powers)), rel=1e-8
            )
        every = 2.0 * math.sqrt(sum(growth ** (2 * k) for k in range(3000))) if growth < 1 else math.inf
        assert sequence_bound("l2", 2.0, growth, None) == pytest.approx(every, rel=1e-8)
        assert sequence_bound("l2", 2.0, growth, None) >= every * (1 - 1e-15)


def test_the_least_gain_of_a_growth_is_the_norm_of_the_map():
    """``|W d + V u|^2 <= r^2 |d|^2 + g^2 |u|^2`` with equality somewhere: the norm of ``[W/r, V/g]`` is one."""
    network = drawn(5)
    for growth in (0.61, 1.0, 3.0):
        gain = pairwise_gain_bound(network)(growth)
        assert np.linalg.norm(np.hstack([network.W / growth, network.V / gain]), 2) == pytest.approx(1.0, rel=1e-12)
    assert pairwise_gain_bound(network)(0.59) == math.inf


def test_the_best_growth_beats_a_grid():
    network = drawn(2, size=0.9)
    gain = pairwise_gain_bound(network)
    for measure, horizon in (("l2", None), ("l2", 9), ("final", 9)):
        bound = incremental_gain(network, measure=measure, horizon=horizon)
        grid = [sequence_bound(measure, gain(r), r, horizon) for r in np.linspace(0.9001, 1.3, 500)]
        assert bound.value <= min(grid) * (1 + 1e-6)
        assert verify_claim(network, bound.claim).valid
    grown = replace(network, W=1.2 * network.W)  # a norm of 1.08: finite horizons only
    assert incremental_gain(grown).proof is None
    assert incremental_gain(grown).value == np.inf
    over = incremental_gain(grown, horizon=9)
    assert gain(1.0) < over.value < gain(1.0) * 1.2**9
    assert verify_claim(grown, over.claim).valid


def refusal(network: PairwiseSystem, value: float | None = None, **changes) -> str:
    made = pairwise_proof(drawn(0), np.eye(4), "final", None)
    assert not isinstance(made, str)
    data = {**made[1].data, **changes}
    claim = propose(network, "norm_gain", data, value=made[0] if value is None else value)
    check = verify_claim(network, claim)
    assert not check.valid
    return check.reason


def test_forgeries():
    network = drawn(0)
    made = pairwise_proof(network, np.eye(4), "final", None)
    assert not isinstance(made, str)
    data = made[1].data
    assert verify_claim(network, propose(network, "norm_gain", data, value=made[0])).valid
    assert "supports" in refusal(network, value=made[0] * (1 - 1e-11))
    assert "bounded so" in refusal(network, value=1e9, gain=data["gain"] * (1 - 1e-9))
    assert "exceed H^T H" in refusal(network, H=1.001 * np.eye(4))
    assert "exceed H^T H" in refusal(network, weights=np.array([1.0, 0.9]))
    assert "horizon" in refusal(network, horizon=2.5)
    assert "measure" in refusal(network, measure="sum")
    assert "supports inf" in refusal(network, value=1e300, growth=1.01)
    assert "positive" in refusal(network, weights=np.array([1.0, -1.0]))
    assert "pair" in refusal(network, weights=np.ones(4))
    assert "column" in refusal(network, H=np.eye(3))
    assert "too large" in refusal(network, weights=np.full(2, 1e40))
    assert "positive" in refusal(network, gain=0.0)
    assert "jumps" in refusal(replace(drawn(0, "modrelu"), b=np.array([0.1, -0.1])))
    assert "as stored" in refusal(turning("oplu"))
    stretched = replace(network, V=network.V * (1 + 1e-9))
    assert "bounded so" in refusal(stretched)


def test_what_has_no_gain_says_why():
    assert "orthogonal" in incremental_gain(turning("oplu")).detail
    assert "jumps" in incremental_gain(turning(bias=0.1, size=0.5)).detail
    assert incremental_gain(turning("oplu")).radius(1.0) == 0.0
