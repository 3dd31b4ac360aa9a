"""Laws of gated linear layers: no run leaves a bound, exact bounds are reached, forgeries are refused."""

from dataclasses import replace

import numpy as np
import pytest
from gated_runs import LENGTH, UNITS, decays, draw_inputs, input_sets, layers, signal_values, states, unit_norms

from stability import certify, verify
from stability.errors import ConfigurationError
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import RULES, worded
from stability.kernel.theorems.gated_linear_bounds import BOUNDS, horizons
from stability.systems import (
    Affine,
    ConstantGate,
    ConvexInjection,
    DeltaInjection,
    GatedLinearLayer,
    InputBox,
    LinearInjection,
    NormBall,
    OuterInjection,
    SigmoidGate,
    SiLU,
    SoftplusGate,
    StepInjection,
    Vocabulary,
)  # fmt: skip

SLACK = 1e-9
"""Relative rounding of a plain float64 run."""


def cases(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    for set_name, inputs in input_sets(rng).items():
        for kind, layer in layers(rng, inputs, scale).items():
            yield rng, f"{kind}, {set_name}", inputs, layer


def directions(layer, inputs):
    """Return input directions that push gates and values to their ends."""
    rows = [signal.weight for signal in layer.signals if isinstance(signal, Affine) and signal.source is inputs]
    return np.vstack([*rows, np.eye(inputs.size)])


@pytest.mark.parametrize(("seed", "scale"), [(0, 1.0), (1, 0.1), (2, 8.0)])
def test_no_run_leaves_a_bound(seed, scale):
    for rng, name, inputs, layer in cases(seed, scale):
        for _ in range(3):
            u = draw_inputs(inputs, rng, directions(layer, inputs))
            low, high = layer.gate.log_decay
            with np.errstate(divide="ignore"):
                log = np.log(np.abs(decays(layer.gate, u)))
            assert (log <= high + SLACK * (1 + np.abs(high))).all(), name
            assert (np.maximum(log, -700) >= low - SLACK * (1 + np.abs(low))).all(), name
            for signal in layer.signals:
                x, (least, most) = signal_values(signal, u), signal.bounds
                size = SLACK * (1 + np.abs(least) + np.abs(most))
                assert (x <= most + size).all(), name
                assert (x >= least - size).all(), name
                assert (np.linalg.norm(x, axis=1) <= signal.group_norms(1)[0] * (1 + SLACK) + SLACK).all(), name
            h = unit_norms(layer, states(layer, u, np.random.default_rng(5)))
            kind = next(
                k for k, (types, _) in BOUNDS.items() if k.endswith("bound") and isinstance(layer.injection, types)
            )
            bounds = BOUNDS[kind][1](layer).reshape(h.shape[1], -1)
            assert (
                h <= np.sqrt((bounds**2).sum(1)) * (1 + SLACK)
                if bounds.shape[1] > 1
                else h <= bounds[:, 0] * (1 + SLACK)
            ).all(), name


@pytest.mark.parametrize(("seed", "scale"), [(3, 1.0), (4, 0.1)])
def test_no_pair_of_runs_leaves_the_gain(seed, scale):
    for rng, name, inputs, layer in cases(seed, scale):
        kind = next(
            (k for k, (types, _) in BOUNDS.items() if k.endswith("gain") and isinstance(layer.injection, types)), None
        )
        if kind is None:
            continue
        gains = BOUNDS[kind][1](layer)
        u = draw_inputs(inputs, rng, directions(layer, inputs))
        for other in (draw_inputs(inputs, rng, directions(layer, inputs)), u + 1e-6 * rng.normal(size=u.shape)):
            change = np.linalg.norm(u - other, axis=1).max()
            difference = states(layer, u, np.random.default_rng(5)) - states(layer, other, np.random.default_rng(5))
            sizes = unit_norms(layer, difference).max(axis=0)
            limit = np.sqrt((gains.reshape(len(sizes), -1) ** 2).sum(1)) * change
            assert (sizes <= limit * (1 + 1e-6)).all(), name


def test_direct_gates_are_exact():
    rng = np.random.default_rng(6)
    for name, inputs in input_sets(rng).items():
        signal = Affine(rng.normal(size=(UNITS, inputs.size)), inputs, rng.normal(size=UNITS))
        low, high = signal.bounds
        for i, row in enumerate(signal.weight):
            best = signal_values(signal, draw_inputs(inputs, np.random.default_rng(1), row[None]))[:, i]
            assert np.allclose((best.min(), best.max()), (low[i], high[i]), rtol=1e-9, atol=1e-9), name


def test_average_bound_and_delta_bound_are_reached():
    ball = NormBall(np.ones(4))
    gate = SigmoidGate(Affine(np.zeros((1, 4)), ball, np.array([4.0])))
    layer = GatedLinearLayer(gate, ConvexInjection(Affine(np.ones((1, 4)), ball)), "minGRU")
    u = np.ones((900, 4))
    assert states(layer, u)[-1, 0] == pytest.approx(certify(layer).claim.value, rel=1e-6)


def test_horizon_counts_the_taps_and_never():
    assert horizons(np.array([np.log(0.09), 0.0, -1e-300]), 0.01, 4).tolist() == [5.0, -1.0, -1.0]


def test_certificates_are_valid_and_forgeries_are_refused(tmp_path):
    forged = 0
    for rng, name, _, layer in cases(7):
        certificate = certify(layer)
        assert certificate.verdict is Verdict.CERTIFIED, name
        path = certificate.save(tmp_path / "certificate.json")
        assert verify(path).valid, name
        for claim in (certificate.claim, *certificate.claims):
            data = dict(claim.proof.data)
            for key, value in data.items():
                for factor in (1 - 1e-6, 0.5, 0.0):
                    lower = np.array(value)
                    entry = tuple(rng.integers(n) for n in lower.shape)
                    lower[entry] = lower[entry] * (factor if lower[entry] > 0 else 2.0 - factor)
                    lower = lower if lower.ndim else float(lower)
                    if key == "tol" or np.array_equal(lower, value):
                        continue
                    changed = {**data, key: lower}
                    number = changed.get({"gate_extremes": "decay"}.get(claim.proof.kind, "most"))
                    for stated in (claim.value, number):
                        fake = Claim(claim.name, "", claim.verdict, Proof(claim.proof.kind, changed), stated)
                        assert not RULES[claim.proof.kind](layer, worded(layer, fake))[0], (name, claim.proof.kind, key)
                        forged += 1
    assert forged > 500


def test_refutations_are_proved_again():
    ball = NormBall(np.ones(3))
    signal = Affine(np.zeros((2, 3)), ball, np.array([1.0, -30.0]))
    values = Affine(np.ones((2, 3)), ball)
    keeps = certify(
        GatedLinearLayer(SigmoidGate(Affine(np.zeros((2, 3)), ball, [0.0, 25.0])), ConvexInjection(values), "minGRU")
    )
    assert keeps.verdict is Verdict.REFUTED
    assert keeps.claim.proof.data["units"].tolist() == [1.0]
    assert verify(keeps).valid
    grows = certify(
        GatedLinearLayer(
            SoftplusGate(np.zeros(2), signal, growing=True),
            StepInjection(values, Affine(np.ones((3, 3)), ball)),
            "Mamba-3",
        )
    )
    assert grows.verdict is Verdict.REFUTED
    assert grows.claim.name == "state_bound"
    assert verify(grows).valid
    assert LENGTH > 1


@np.errstate(all="ignore")
def test_underflow_and_overflow_give_no_smaller_bound():
    ball, zero = NormBall(np.ones(2)), np.zeros((1, 2))
    value = Affine(np.ones((1, 2)), ball)
    for log_rate, shift in ((0.5, -800.0), (-689.882, 0.0), (415.0, -1000.0)):
        gate = SoftplusGate([log_rate], Affine(zero, ball, [shift]))
        bounds = BOUNDS["average_bound"][1](GatedLinearLayer(gate, StepInjection(value, value), "Mamba-2"))
        assert (bounds > 0.0).all(), log_rate
    box = InputBox(-np.ones(2), np.ones(2))
    huge = SiLU(Affine(np.full((2, 2), 1e160), box))
    gate = SigmoidGate(Affine(np.full((1, 2), 1e-160), huge), cap=1.0)
    outer = OuterInjection(Affine(np.full((1, 2), 1e-3), box, [1.0]), Affine(zero, box, [1.0]), 1)
    assert not BOUNDS["series_gain"][1](GatedLinearLayer(gate, outer, "GLA"))[0] < 0.8
    with pytest.raises(ConfigurationError):
        Vocabulary(np.array([[1e160, -1e160]]), ball, 1e-5)


def test_a_head_is_as_slow_as_its_slowest_key_channel():
    ball = NormBall(np.ones(2))
    gate = SoftplusGate(np.array([-9.0, 5.0, 5.0, -9.0, 5.0, 5.0]), Affine(np.zeros((6, 2)), ball))
    layer = GatedLinearLayer(
        gate, DeltaInjection(Affine(np.ones((2, 2)), ball), Affine(np.zeros((2, 2)), ball), 3), "KDA"
    )
    decay = next(claim for claim in certify(layer).claims if claim.name == "decay")
    assert decay.proof.data["log_decay"].shape == (2,)
    assert np.exp(decay.proof.data["log_decay"]).min() > 0.999


def test_what_grows_or_has_a_delta_rule_is_no_accumulator():
    ball = NormBall(np.ones(2))
    value = Affine(np.ones((1, 2)), ball)
    grows = GatedLinearLayer(ConstantGate(ball, rate=[800.0]), LinearInjection(np.ones((2, 2))), "S5")
    slow = SoftplusGate([-40.0], Affine(np.zeros((1, 2)), ball))
    delta = GatedLinearLayer(slow, DeltaInjection(value, value, 1), "gated DeltaNet")
    partly = SoftplusGate([[0.0, -9.0]], Affine(np.zeros((1, 2)), ball), growing=True)
    mixed = GatedLinearLayer(partly, StepInjection(value, Affine(np.ones((2, 2)), ball)), "Mamba-3")
    for layer in (grows, delta):
        fake = Claim("forgetting", "", Verdict.REFUTED, Proof("accumulator", {"units": np.zeros(1)}))
        assert not RULES["accumulator"](layer, fake)[0]
    assert certify(grows).claim.proof.kind == "expanding_unit"
    assert certify(mixed).claim.value < 1e-3  # the slower of its two states
    for name in ("", "a" * 25, "in float16 arithmetic and for all", "Mamba, contracting"):
        with pytest.raises(ConfigurationError):
            GatedLinearLayer(slow, DeltaInjection(value, value, 1), name)


def test_a_certificate_that_leaves_out_accumulators_is_refused():
    ball = NormBall(np.ones(3))
    kept = SigmoidGate(Affine(np.zeros((2, 3)), ball, np.full(2, 40.0)))
    layer = GatedLinearLayer(kept, ConvexInjection(Affine(np.ones((2, 3)), ball)), "minGRU")
    certificate = certify(layer)
    assert verify(certificate).valid
    assert certificate.claim.name == "forgetting"
    bound, *others = certificate.claims
    assert bound.name == "state_bound"
    assert not verify(replace(certificate, claim=bound, claims=tuple(others))).valid
