"""Laws of RWKV-7: the norm in which its transition contracts, and refutations by periodic inputs."""

import numpy as np
import pytest
from gated_runs import KEYS, UNITS, draw_inputs, input_sets, rwkv7, states, unit_norms
from scipy.optimize import minimize

from stability import certify, verify
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import RULES, worded
from stability.kernel.theorems.gated_linear_bounds import weighted_bounds, weighted_decays
from stability.systems import Affine, GatedLinearLayer, InputBox, NormBall, RWKVGate, RWKVInjection, SiLU

BALL = NormBall(np.ones(6), np.full(6, 0.1), centered=True)


def free_gates(size: int, decay: tuple[float, float], rate: tuple[float, float]) -> GatedLinearLayer:
    """A head whose pre-activations of decays and rates move freely between two ends."""
    box = InputBox(-np.ones(2 * size), np.ones(2 * size))

    def between(ends, first):
        low, high = ends
        weight = np.eye(size, 2 * size, first) * (high - low) / 2.0
        return Affine(weight, box, np.full(size, (low + high) / 2.0))

    keys = Affine(np.ones((size, 2 * size)), box)
    ones = np.ones(size)
    return GatedLinearLayer(
        RWKVGate(between(decay, 0)), RWKVInjection(keys, keys, between(rate, size), ones, ones, 1), "RWKV-7"
    )


@pytest.mark.parametrize("rate", [(-0.2, 0.2), (-1.0, 1.0), (1.0, 3.0), (-6.0, 0.0)])
@pytest.mark.parametrize("decay", [(-4.0, -4.0), (-9.0, 2.0)])
def test_no_transition_exceeds_the_bound_which_is_nearly_reached(decay, rate):
    size, rng = 4, np.random.default_rng(0)
    ends = [1.0 / (1.0 + np.exp(-np.array(x))) for x in (decay, rate)]
    w, a = np.exp(-np.exp(-0.5) * ends[0])[[0, 0, 1, 1]], ends[1][[0, 1, 0, 1]]  # a norm is largest at ends
    p = ends[1].mean()

    def norm(k):
        k = k / np.linalg.norm(k)
        return -np.linalg.norm(np.diag(w) - np.outer(k, a * k / p) * p, 2)

    found = -min(minimize(norm, rng.normal(size=size), method="Nelder-Mead").fun for _ in range(8))
    bound = float(np.exp(weighted_decays(free_gates(size, decay, rate))[0]))
    assert found <= bound * (1 + 1e-12)
    assert bound - w.max() <= 3.0 * (found - w.max()) + 1e-3


def test_runs_from_states_within_the_bound_stay_within_it():
    rng = np.random.default_rng(1)
    for name, inputs in input_sets(rng).items():
        layer = rwkv7(rng, inputs, 0.003)
        bounds = weighted_bounds(layer)
        assert (bounds < np.inf).any(), name
        p = 1.0 / (1.0 + np.exp(-layer.injection.rate.bias.reshape(UNITS, KEYS)))
        start = np.zeros((UNITS, 2, KEYS))
        start[np.arange(UNITS), :, p.argmin(axis=1)] = (
            0.7 * np.where(bounds < np.inf, bounds, 0.0)[:, None]
        )  # the direction that overshoots
        start *= np.sqrt(0.9 * p.min(axis=1) / p.max(axis=1))[:, None, None]
        for _ in range(5):
            u = draw_inputs(inputs, rng, np.vstack([layer.injection.keys.weight, layer.injection.values.weight]))
            assert (unit_norms(layer, states(layer, u, initial=start)) <= bounds).all(), name


def test_the_bound_of_a_single_key_direction():
    inputs, g = NormBall(np.ones(3)), np.array([[1.0, 2.0, -2.0]])
    keys, still = np.vstack([g, 0.0 * g]), np.zeros((2, 3))
    a, mix, w = np.array([0.2, 0.8]), np.array([0.7, 5.0]), np.exp(-np.exp(-0.5) * 0.25)
    rate, gate = Affine(still, inputs, np.log(a / (1 - a))), RWKVGate(Affine(still, inputs, np.full(2, -np.log(3.0))))
    injection = RWKVInjection(Affine(g, inputs), Affine(keys, inputs), rate, np.ones(2), mix, 1)
    bound = weighted_bounds(GatedLinearLayer(gate, injection, "RWKV-7"))
    injected = 27.0 * (1.0 + (a[0] - 1.0) * mix[0]) * np.sqrt(a[1] / a[0])  # |g|^2 d = 27
    assert bound == pytest.approx(injected / (1.0 - w), rel=1e-9)


@pytest.mark.parametrize("inputs", [BALL, NormBall(np.ones(6), offset=1), InputBox(-np.ones(6), np.full(6, 2.0))])
def test_two_runs_of_a_refuted_layer_move_apart_and_forgeries_are_refused(inputs):
    layer = rwkv7(np.random.default_rng(2), inputs, 1.0)
    certificate = certify(layer)
    assert certificate.verdict is Verdict.REFUTED
    assert verify(certificate).valid
    data = dict(certificate.claim.proof.data)
    stored, head, value = data["inputs"], data["head"], abs(complex(*data["eigenvalue"]))
    z = stored - stored.mean(axis=1, keepdims=True) if getattr(inputs, "centered", False) else stored
    u = z * inputs.factor + inputs.bias if isinstance(inputs, NormBall) else z
    start = np.random.default_rng(3).normal(size=(UNITS, 2, KEYS))
    run = np.tile(u, (200, 1))
    sizes = unit_norms(layer, states(layer, run, initial=start) - states(layer, run))[:: len(u), head]
    assert sizes[-1] / sizes[-21] == pytest.approx(value**20, rel=0.2)
    assert sizes[-1] > 10.0 * sizes[0]

    def refused(**changes):
        fake = Claim("state_bound", "", Verdict.REFUTED, Proof("periodic_growth", {**data, **changes}))
        return not RULES["periodic_growth"](layer, worded(layer, fake))[0]

    assert not refused()
    assert refused(eigenvalue=[1.01 * value, 0.0])
    assert refused(eigenvalue=[0.99, 0.0])
    del data["eigenvalue"]
    if isinstance(inputs, InputBox):
        ends = (stored, np.where(stored == stored.max(), np.nextafter(2.0, 3.0), stored))
    else:
        edge = z / np.linalg.norm(z, axis=1, keepdims=True) * np.sqrt(inputs.size)
        ends = 0.999 * edge, 1.001 * edge
        shifted = inputs.points(0.5 * z + 0.1)
        exact = (0.5 * z + 0.1 * (not inputs.centered)) * inputs.factor + inputs.bias
        assert (np.abs(shifted.mid - exact) <= shifted.rad + 1e-15).all()
    assert [refused(inputs=end) for end in ends] == [False, True]
    assert refused(inputs=0.0 * stored)
    assert refused(inputs=stored[:1])
    assert refused(inputs=stored[:, :-1])
    assert refused(head=UNITS)


def test_rules_of_other_layers_do_not_cover_it():
    still = Affine(np.zeros((3, 6)), BALL, np.full(3, -40.0))
    values = Affine(np.ones((3, 6)), BALL)
    layer = GatedLinearLayer(
        RWKVGate(still), RWKVInjection(values, values, values, np.ones(3), np.ones(3), 1), "RWKV-7"
    )
    for name, kind, key, bound in (
        ("forgetting", "accumulator", "units", np.zeros(1)),
        ("state_bound", "delta_bound", "bounds", np.full(1, 1e9)),
        ("state_bound", "series_bound", "bounds", np.full(3, 1e9)),
    ):
        verdict = Verdict.REFUTED if name == "forgetting" else Verdict.CERTIFIED
        most = {} if name == "forgetting" else {"most": 1e9}
        fake = Claim(name, "", verdict, Proof(kind, {key: bound, **most}), most.get("most"))
        assert not RULES[kind](layer, fake)[0], kind
    unknown = Affine(np.ones((3, 3)), SiLU(values))
    odd = GatedLinearLayer(RWKVGate(still), RWKVInjection(values, unknown, values, np.ones(3), np.ones(3), 1), "RWKV-7")
    data = {"head": 0, "inputs": np.full((2, 6), 0.1)}
    assert not RULES["periodic_growth"](odd, Claim("state_bound", "", Verdict.REFUTED, Proof("periodic_growth", data)))[
        0
    ]
