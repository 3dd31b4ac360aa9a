"""Residual blocks: gain and contraction hold of simulated runs, are tight where they can be, and refuse forgeries."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import erf

from stability import certify
from stability.errors import ConfigurationError, DimensionError
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Refused
from stability.kernel.format.serialization import decode, encode
from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.residual_stack import ResidualStack
from stability.kernel.theorems.residual import norm_above
from stability.proposals import propose
from stability.search.gains.stack import stack_gain
from stability.systems import DrivenSystem, LureSystem, PairwiseSystem
from stability.verification import verify_claim


def pairs(rng, width: int, n: int, rate: float = 0.7) -> PairwiseSystem:
    K = np.linalg.qr(rng.normal(size=(n + width, n)))[0].T
    return PairwiseSystem(rate * K[:, :n], K[:, n:], rng.normal(size=n), "oplu")


def tanh(rng, width: int, n: int) -> DrivenSystem:
    W = rng.normal(size=(n, n))
    system = LureSystem(np.zeros((n, n)), np.eye(n), 0.6 * W / np.linalg.norm(W, 2), dt=1.0)
    return DrivenSystem(system, "tanh", rng.normal(size=(n, width)), rng.normal(size=n))


def drawn(seed: int, between: str = "identity") -> ResidualStack:
    rng = np.random.default_rng(seed)
    layers = [pairs(rng, 3, 4), tanh(rng, 3, 5), pairs(rng, 3, 2)]
    mixing = [0.5 * rng.normal(size=(3, layer.states)) for layer in layers]
    given = {name: rng.normal(size=(3, 3)) for name in ("scales", "shifts", "mixing_bias")}
    return ResidualStack(
        layers, rng.normal(size=(3, 2)), mixing, encoder_bias=rng.normal(size=3), between=between, **given
    )


def written_out(network: ResidualStack, inputs: np.ndarray) -> np.ndarray:
    """The formulas of the class, one unit of time after the other, by nobody else's code."""
    states = [np.zeros(layer.states) for layer in network.layers]
    out = []
    for u in inputs:
        s = network.encoder @ u + network.encoder_bias
        for k, layer in enumerate(network.layers):
            r = network.scales[k] * s + network.shifts[k]
            if isinstance(layer, PairwiseSystem):
                z = (layer.W @ states[k] + layer.V @ r + layer.b).reshape(-1, 2)
                states[k] = np.stack([z.max(1), z.min(1)], 1).ravel()
            else:
                states[k] = np.tanh(layer.system.C @ states[k] + layer.E @ r + layer.b)
            y = states[k]
            psi = 0.5 * y * (1 + erf(y / np.sqrt(2))) if network.between == "gelu" else y
            s = s + network.mixing[k] @ psi + network.mixing_bias[k]
        out.append(s)
    return np.array(out)


@pytest.mark.parametrize("between", [pytest.param("identity", marks=pytest.mark.slow), "gelu"])
def test_a_network_is_what_its_formulas_say_and_no_two_runs_exceed_its_gains(between):
    network, rng = drawn(1, between), np.random.default_rng(0)
    H = rng.normal(size=(2, 3))
    claims = {
        (measure, headed, steps): stack_gain(network, head=H if headed else None, measure=measure, horizon=steps)
        for measure in ("l2", "final")
        for headed in (False, True)
        for steps in (None, 9)
    }
    assert all(verify_claim(network, claim).valid for claim in claims.values())
    largest = dict.fromkeys(claims, 0.0)
    for trial in range(30):
        one = rng.normal(size=(9, 2))
        u = rng.normal(size=(9, 2)) * 10.0 ** rng.uniform(-3, 1)
        if trial % 2:
            u[:-1] = 0.0
        first, second = network.run(one), network.run(one + u)
        if trial == 0:
            np.testing.assert_allclose(first, written_out(network, one), rtol=1e-12, atol=1e-12)
        for measure, headed, steps in claims:
            moved = (second - first) @ (H.T if headed else np.eye(3))
            size = np.linalg.norm(moved if measure == "l2" else moved[-1]) / np.linalg.norm(u)
            largest[measure, headed, steps] = max(largest[measure, headed, steps], size)
    for asked, claim in claims.items():
        assert largest[asked] <= claim.value, asked
    assert claims["final", False, None].value < claims["l2", False, None].value
    assert claims["final", True, None].value < claims["final", False, None].value * np.linalg.norm(H, 2)


def test_the_gain_is_reached_where_every_bound_is():
    """Scalars in one direction: a step of one moves what is put out by 1 + 2 * 0.5 at once, and no less is proved."""
    half = PairwiseSystem(0.0 * np.eye(2), 0.5 * np.eye(2), np.full(2, 5.0), "abs")
    network = ResidualStack([half, half], np.eye(2), [2.0 * np.eye(2), 4.0 * np.eye(2)])
    claim = stack_gain(network, measure="final")
    moved = network.run(np.array([[1.0, 0.0]])) - network.run(np.zeros((1, 2)))
    np.testing.assert_allclose(moved, [[6.0, 0.0]])  # (1 + 2 / 2) (1 + 4 / 2)
    assert 6.0 <= claim.value <= 6.0 * (1 + 1e-6)
    steep = PairwiseSystem(0.0 * np.eye(2), 0.5 * np.eye(2), np.full(2, np.sqrt(2.0)), "abs")  # where GELU is steepest
    network = ResidualStack([steep], np.eye(2), [2.0 * np.eye(2)], between="gelu")
    moved = network.run(np.array([[1e-5, 0.0]])) - network.run(np.array([[-1e-5, 0.0]]))
    reached = moved[0, 0] / 2e-5
    assert reached == pytest.approx(1.0 + 1.1289, abs=1e-4)
    assert reached <= stack_gain(network, measure="final").value <= reached + 2e-4


@pytest.mark.parametrize("between", ["identity", "gelu"])
def test_the_blocks_contract_as_their_certificate_says(between):
    network, rng = drawn(2, between), np.random.default_rng(0)
    network = ResidualStack(**{**vars(network), "mixing": [4.0 * M for M in network.mixing]})
    certificate = certify(network)
    assert certificate.verdict == "certified"
    assert [claim.name for claim in certificate.claims] == ["gain"]
    assert certificate.claims[0].value <= stack_gain(network, measure="final").value * 10
    first, second = (3.0 * rng.normal(size=(100, network.states)) for _ in range(2))
    lowest = network.layers[0].states
    second[:50, lowest:] = first[:50, lowest:]  # what differs in the lowest layer alone spreads to those above
    start, grown = np.linalg.norm(first - second, axis=1), 0.0
    for k in range(40):
        u = rng.normal(size=2)
        first, second = network.advance(first, u), network.advance(second, u)
        gap = np.linalg.norm(first - second, axis=1)
        assert (gap <= certificate.overshoot * certificate.rate ** (k + 1) * start).all()
        grown = max(grown, float((gap / certificate.rate ** (k + 1) / start).max()))
    assert grown > 1.0
    again = decode(encode(network))
    assert encode(again) == encode(network)
    assert verify_claim(again, certificate.claim).valid


def test_what_says_more_than_the_layers_prove_is_refused():
    network = drawn(3)
    gain, contraction = stack_gain(network, measure="final"), certify(network).claim
    layers, weights = gain.proof.data["layers"], contraction.proof.data["weights"]
    final = layers[-1]
    bent = {
        "smaller": {"gain": gain.value * (1 - 1e-6)},
        "the last step below": {"layers": [final_of(layers[0]), *layers[1:]]},
        "the whole output": {"measure": "l2"},
        "a layer less": {"layers": layers[:-1]},
        "another's proof": {"layers": [final, *layers[1:-1], layers[0]]},
        "half a step": {"horizon": 2.5},
        "a head of two columns": {"head": np.eye(2)},
        "a large head": {"head": 1.01 * np.eye(3)},
    }
    refused(network, gain, bent)
    rate, overshoot = contraction.proof.data["rate"], contraction.proof.data["overshoot"]
    bent = {
        "faster": {"rate": rate * (1 - 1e-4)},
        "less overshoot": {"overshoot": overshoot * (1 - 1e-6)},
        "a smaller weight above": {"weights": weights * np.array([1.0, 1.0, 1 - 1e-5])},
        "a larger weight below": {"weights": weights * np.array([1.0 + 1e-5, 1.0, 1.0])},
        "a negative weight": {"weights": -weights},
        "a gain in place of a rate": {"layers": layers},
        "a weight too few": {"weights": weights[:-1]},
    }
    refused(network, contraction, bent)
    for name in ("scales", "mixing", "encoder"):  # the same proofs of a network with larger entries
        larger = [2.0 * M for M in network.mixing] if name == "mixing" else 2.0 * getattr(network, name)
        other = ResidualStack(**{**vars(network), name: larger})
        assert not RULES["residual_gain"](other, propose(other, "residual_gain", gain.proof.data))[0]


def final_of(part):
    return {**part, "data": {**part["data"], "measure": "final"}}


def refused(network: ResidualStack, claim: Claim, bent: dict) -> None:
    kind, data = claim.proof.kind, dict(claim.proof.data)
    assert RULES[kind](network, propose(network, kind, data, value=claim.value))[0]
    for name, changed in bent.items():
        assert not RULES[kind](network, propose(network, kind, {**data, **changed}))[0], name


def test_the_norm_of_a_matrix_is_bounded_from_above_and_nearly_so():
    rng = np.random.default_rng(0)
    for scale in (1e-320, 1e-200, 1.0, 1e90):
        M = scale * rng.normal(size=(5, 7))
        exact = float(np.linalg.norm(M / scale, 2))
        assert exact * (1 - 1e-15) <= norm_above(M) / scale
        assert norm_above(M) / scale <= exact * (1 + (1e-11 if scale > 1e-300 else 1e-2))
    assert norm_above(np.zeros((2, 3))) == 0.0


def test_what_are_no_blocks_is_refused():
    rng = np.random.default_rng(0)
    layer, flow = pairs(rng, 3, 4), DrivenSystem(LureSystem.recurrent(-np.eye(3), np.eye(3)), "tanh", np.eye(3))
    for layers, error in (([], ConfigurationError), ([flow], ConfigurationError), ([3.0], ConfigurationError)):
        with pytest.raises(error):
            ResidualStack(layers, np.eye(3), [np.eye(3)] * len(layers))
    for given in ({"encoder": np.eye(2)}, {"mixing": []}, {"mixing": [np.eye(3)]}, {"scales": np.ones((2, 3))}):
        with pytest.raises(DimensionError):
            ResidualStack(**{"layers": [layer], "encoder": np.eye(3), "mixing": [np.ones((3, 4))], **given})
    with pytest.raises(ConfigurationError, match="gelu"):
        ResidualStack([layer], np.eye(3), [np.ones((3, 4))], between="glu")
    growing = PairwiseSystem(1.2 * np.eye(2), np.eye(2), np.zeros(2), "abs")
    network = ResidualStack([growing], np.eye(2), [np.eye(2)])
    assert certify(network).verdict == "inconclusive"
    assert stack_gain(network).value is None
    assert stack_gain(network, measure="final", horizon=3).value > 1.44


@pytest.mark.parametrize("short", [0.5, 0.9, 1.0 - 1e-6])
def test_a_norm_that_is_computed_too_small_is_not_taken(short, monkeypatch):
    """The inequality proves the norm, however it was computed: the bound is refused or no smaller."""
    M, norm = np.random.default_rng(3).normal(size=(6, 4)), np.linalg.norm
    exact = float(norm(M, 2))
    monkeypatch.setattr(np.linalg, "norm", lambda *given: short * norm(*given))
    with contextlib.suppress(Refused):
        assert norm_above(M) >= exact
    monkeypatch.undo()
    assert exact <= norm_above(M) <= exact * (1 + 1e-9)


def test_what_a_head_loses_by_underflow_counts():
    """A head whose product with the mixing is zero in floats, behind scales that make much of what it is not."""
    head, mixing = np.array([[1.917801972e-170, 1.68165126e-170]]), np.array([[1.75519639], [-2.00167489]])
    mixing[1, 0] = -head[0, 0] * mixing[0, 0] / head[0, 1]
    layer = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.0]], dt=1.0), "tanh", [[1.0, 0.0]])
    net = ResidualStack([layer], [[1.0], [0.0]], [mixing], scales=[[1e24, 1e24]])
    claim = stack_gain(net, head=head)
    exact = [Fraction(float(h)) * Fraction(float(m)) for h, m in zip(head[0], mixing[:, 0])]
    slope = Fraction(float(head[0, 0])) + sum(exact) * 10**24  # at rest, of the step itself
    assert claim.value is not None
    assert claim.value >= abs(float(slope))
    assert verify_claim(net, claim).valid
