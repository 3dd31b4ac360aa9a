"""Claims about runs of gated linear layers: worst rounding stays within the bound, and claims of more are refused."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from gated_runs import KEYS, UNITS, decays, draw_inputs, input_sets, layers, states
from worst_gated_runs import WorstGatedRun

from stability import ExecutionModel, certify, verify
from stability.kernel.format.claims import Proof
from stability.kernel.format.theorem_table import RULES, worded
from stability.kernel.theorems.gated_step_errors import drive_error, gate_error
from stability.search.gated_runs import gated_run_claim
from stability.systems import (
    Affine,
    ConvexInjection,
    DeltaInjection,
    GatedLinearLayer,
    InputBox,
    RatioGate,
    RGLRUGate,
    RootInjection,
    SigmoidGate,
    SiLU,
    SoftplusGate,
    StepInjection,
)
from stability.verification import verify_claim

MODELS = (
    ExecutionModel("float32"), ExecutionModel("float32", factors="tf32"), ExecutionModel("float16", ulps=32.0),
    ExecutionModel("float64", "bfloat16"), ExecutionModel("float64", "int8:4", rounding="stochastic"),
    ExecutionModel("int8"), ExecutionModel("int8", rounding="feedback"),
    ExecutionModel("float64", "int4", rounding="noise_shaping"),
)  # fmt: skip
COVERED = ("mamba", "mamba2", "mingru", "minlstm", "rg_lru", "gated_deltanet", "kda")


def share_of_bound(layer, model, u, keys=None, gates=1.0):
    """Return the largest error of runs with the worst rounding over the proved bounds, or ``None`` without a claim."""
    claim = gated_run_claim(layer, model)
    if isinstance(claim, str):
        return None
    assert verify_claim(layer, claim).valid
    most = 0.0
    for way in (1.0, -1.0):
        error = WorstGatedRun(layer, model, way, gates * way).errors(u, keys)
        delta = isinstance(layer.injection, DeltaInjection)
        units = np.sqrt((error**2).sum(2)) if delta else error.reshape(len(u), layer.units, -1)
        most = max(most, np.sqrt((error.reshape(len(u), -1) ** 2).sum(1)).max() / claim.value)
        most = max(most, (units.max(axis=(0, 2)) / claim.proof.data["units"]).max())
    return most


def random_cases():
    """Return random layers with inputs that push their gates and values, and keys."""
    rng = np.random.default_rng(0)
    sets = list(input_sets(rng).values())
    for index, kind in enumerate(COVERED):
        inputs = sets[index % len(sets)]
        layer = layers(rng, inputs, 0.2)[kind]
        rows = [x.weight for x in layer.signals if isinstance(x, Affine) and x.source is inputs]
        u = np.repeat(draw_inputs(inputs, rng, np.vstack([*rows, np.eye(inputs.size)]), 6), 3, axis=0)
        keys = rng.normal(size=(1, UNITS, KEYS)) + 0.3 * rng.normal(size=(len(u), UNITS, KEYS))
        yield kind, layer, u, (1.0 - 1e-12) * keys / np.linalg.norm(keys, axis=2, keepdims=True)


def test_no_run_with_the_worst_rounding_leaves_the_bound() -> None:
    found = {}
    for kind, layer, u, keys in random_cases():
        for model in MODELS:
            share = share_of_bound(layer, model, u, keys)
            if share is not None:
                assert share <= 1.0, (kind, model)
                found.setdefault(model.rounding, []).append(share)
    assert len(found["nearest"]) > 25
    assert min(max(shares) for shares in found.values()) > 0.7


@pytest.mark.parametrize(("n", "ulps"), [(48, 0.5), (1, 64.0)])
def test_a_gate_and_an_addend_are_off_by_at_most_their_bounds(n, ulps) -> None:
    """Long sums that cancel, or functions of many ulps, in gate, value or key of fast and slow decays."""
    box, model, shares = InputBox(np.ones(n), np.ones(n)), ExecutionModel("float32", ulps=ulps), []
    long, flat, u = np.where(np.arange(n) % 2, 1.0, -1.0)[None], np.zeros((1, n)), np.ones((2, n))
    for p in (-2.0, 2.0):
        for where in range(3):
            gate, value, key = (Affine(long if where == k else flat, box, [b]) for k, b in enumerate((p, 1.0, 1.0)))
            deep = Affine([[3.0]], gate)
            for layer in (
                GatedLinearLayer(SigmoidGate(deep), ConvexInjection(value)),
                GatedLinearLayer(SoftplusGate([0.0], deep), StepInjection(SiLU(value), key)),
                GatedLinearLayer(RGLRUGate(gate, [0.0]), RootInjection(value, key)),
                GatedLinearLayer(RatioGate(gate, key), ConvexInjection(value, "min_gru")),
            ):
                exact, found = decays(layer.gate, u)[1], gate_error(layer.gate, model)
                share, fixed = (part.ravel() for part in drive_error(layer, model, found)[1:])
                b = states(layer, u)
                b = b[1].ravel() - exact * b[0].ravel()
                for way, gates in product((-1.0, 1.0), repeat=2):
                    run = WorstGatedRun(layer, model, way, gates)
                    a, step = run.decay(layer.gate, u, 1, gates)
                    of_gate = np.abs(a - exact) / (found.share * (1.0 - exact) + found.fixed)
                    of_addend = np.abs(run.addend(layer, u, 1, a, step).ravel() - b) / (share * (1.0 - exact) + fixed)
                    assert max(of_gate, of_addend) <= 1.0, (p, where, layer.gate)
                    shares.append((float(of_gate[0]), float(of_addend[0])))
    assert (np.max(shares, axis=0) > 0.2).all()


def test_errors_of_slow_gates_and_of_shaped_residuals_add_up_to_the_bound() -> None:
    """Steps of many ulps at a decay near one; a delta rule that turns the sign of what it keeps."""
    box, u = InputBox([-1.0], [1.0]), np.where(np.arange(300) % 2, 1.0, -1.0)[:, None]
    one, slow, rate = (Affine([[0.0]], box, [p]) for p in (1.0, -4.0, 3.0))
    layer = GatedLinearLayer(SoftplusGate([0.0], slow), StepInjection(one, one))
    assert 0.25 < share_of_bound(layer, ExecutionModel("float32", ulps=64.0), u) <= 1.0
    keys, model = np.full((300, 1, 1), 1.0 - 1e-12), ExecutionModel("float64", "int8", rounding="noise_shaping")
    for scale, fast in ((1.0, 4.0), (2.0, -1.4)):
        gate = SoftplusGate([0.0], Affine([[0.0]], box, [fast]))
        layer = GatedLinearLayer(gate, DeltaInjection(Affine([[1.0]], box), rate, 1, scale))
        assert 0.5 < share_of_bound(layer, model, u, keys) <= 1.0


def test_nearer_runs_and_other_arithmetic_are_refused(tmp_path) -> None:
    for kind, layer, *_ in random_cases():
        certificate = certify(layer, arithmetic="int8")
        claim = certificate.claims[-1]
        assert verify(certificate.save(tmp_path / "run.json")).valid
        data = claim.proof.data
        units, bound = data["units"], data["bound"]
        least = np.where(np.arange(len(units)) == units.argmin(), 0.99 * units, units)
        other = {**data["arithmetic"], "state": "int7"}
        for change in ({"units": least}, {"bound": 0.99 * bound}, {"arithmetic": other}, {"units": units[:-1]}):
            fake = replace(claim, proof=Proof(claim.proof.kind, {**data, **change}), value=change.get("bound", bound))
            assert not RULES[claim.proof.kind](layer, worded(layer, fake))[0], (kind, change)


def test_no_claim_where_errors_need_not_fade_or_are_not_covered() -> None:
    rng = np.random.default_rng(0)
    made = layers(rng, InputBox(-np.ones(2), np.ones(2)), 0.2)
    for kind in set(made) - set(COVERED):
        assert "not covered" in certify(made[kind], arithmetic="float32").meta["as_it_runs"], kind
    still = Affine([[0.0, 0.0]], made["mingru"].input_set, [20.0])
    layer = GatedLinearLayer(SigmoidGate(still), ConvexInjection(still))
    assert "need not fade" in certify(layer, arithmetic="float32").meta["as_it_runs"]
