"""Branches of the rules that refuse: each is reached by a claim that differs from a valid one in a single point."""

from __future__ import annotations

import numpy as np
import pytest
from specimens import refusal, remade, specimens

from stability.certification import certify
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.sentences import undecided
from stability.kernel.systems.layer_stack import LayerStack
from stability.proposals import propose
from stability.search.gains.lure import incremental_gain
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim


@pytest.mark.parametrize(("name", "rates"), [("equilibrium", (0.0, -0.0, -1.0)), ("region", (0.0, -0.0, -0.4))])
def test_a_rate_without_decay_proves_neither_equilibrium_nor_region(name, rates):
    for rate in rates:
        value = None if name == "equilibrium" else rate
        assert "no exponential decay" in refusal(name, data={"rate": rate}, value=value)


def test_an_unbounded_activation_has_no_ball_and_no_box():
    for name in ("box", "ball of a spiral"):
        old = specimens()[name].subject
        loud = DrivenSystem(old.system, "relu", old.E, old.b)
        assert "not bounded" in refusal(name, subject=loud)


def test_inputs_that_enter_the_state_need_a_bound():
    old = specimens()["box"].subject
    pushed = DrivenSystem(old.system, "tanh", old.E, old.b, F=np.eye(2))
    assert "without a bound" in refusal("box", subject=pushed)
    for bound in (-1.0, -1e-300):
        assert "input_bound" in refusal("box", subject=pushed, data={"input_bound": bound})
    claim = remade(pushed, specimens()["box"].claim, data={"input_bound": 0.0})
    assert "entries in [0, 0]" in claim.statement
    claim = remade(pushed, specimens()["box"].claim, data={"input_bound": 0.5})
    assert "entries in [-0.5, 0.5]" in claim.statement


@pytest.mark.parametrize("radius", [0.0, -1.0])
def test_a_radius_is_positive(radius):
    assert "positive" in refusal("box", data={"radius": radius}, value=radius)


@pytest.mark.parametrize(("name", "key"), [("ball of a spiral", "Y"), ("region", "P")])
def test_a_matrix_that_is_not_symmetric_is_refused(name, key):
    matrix = specimens()[name].claim.proof.data[key].copy()
    matrix[0, 1] = np.nextafter(matrix[0, 1], np.inf)
    assert "symmetric" in refusal(name, data={key: matrix})


@pytest.mark.parametrize(
    ("key", "value"),
    [("level", 0.0), ("level", 1e31), ("radius", 0.0), ("input_bound", -1.0), ("p_min", 0.0), ("p_max", 1e31)],
)
def test_the_numbers_of_a_region_lie_in_their_ranges(key, value):
    assert "must be positive" in refusal("region", data={key: value})


def test_a_region_is_no_larger_than_its_ellipsoid():
    data = specimens()["region"].claim.proof.data
    assert "does not fit" in refusal("region", data={"radius": 1.001 * np.sqrt(data["level"] / data["p_min"])})
    assert "smaller than sqrt" in refusal("region", data={"overshoot": 0.999 * np.sqrt(data["p_max"] / data["p_min"])})
    assert "not proved invariant" in refusal("region", data={"input_bound": 1e3})


def test_bounds_of_the_metric_are_its_own():
    for name in ("contraction of flow", "region"):
        data = specimens()[name].claim.proof.data
        wide = {"p_min": 0.5 * data["p_min"], "p_max": 2.0 * data["p_max"], "overshoot": 10.0 * data["overshoot"]}
        wide |= {"radius": 0.1 * data["radius"]} if "radius" in data else {}
        assert verify_claim(
            specimens()[name].subject, remade(specimens()[name].subject, specimens()[name].claim, data=wide)
        ).valid
        assert "does not lie between" in refusal(name, data={**wide, "p_min": 1.01 * data["p_min"]})
        assert "does not lie between" in refusal(name, data={**wide, "p_max": 0.99 * data["p_max"]})
    data = specimens()["contraction of flow"].claim.proof.data
    assert "0 < p_min <= p_max" in refusal("contraction of flow", data={"p_min": 2.0 * data["p_max"]})


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -0.5, 2.0])
def test_the_tolerance_of_a_stack_lies_between_zero_and_one(tolerance):
    assert "tolerance" in refusal("contraction of stack", data={"tolerance": tolerance})


def test_gains_out_of_range_and_other_inputs():
    name = "gain of a map, l2, None"
    for key, value in (("gain", -1.0), ("gain", 1e16), ("growth", 0.0), ("growth", -1.0)):
        assert refusal(name, data={key: value})
    data = specimens()[name].claim.proof.data
    assert "not those of the network" in refusal(name, data={"E": 2.0 * data["E"]})
    assert "not those of the network" in refusal(name, data={"F": data["F"] + 1.0})
    assert "negative" in refusal(name, data={"L": -data["L"]})
    for mode, measure in (("walking", "l2"), ("running", "l1"), ("", "")):
        assert "no theorem" in refusal(name, data={"mode": mode, "measure": measure})


def test_a_discrete_proof_of_nonexpansion_is_about_no_flow():
    flow = LureSystem.recurrent(-2.0 * np.eye(2), np.zeros((2, 2)))
    assert "maps" in refusal("nonexpansive", subject=flow)


def test_an_eigenvalue_on_the_circle_does_not_make_an_equilibrium_or_an_orbit_unstable():
    edge = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[-1.0]], dt=1.0), "tanh", [[1.0]])
    beyond = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[-1.001]], dt=1.0), "tanh", [[1.0]])
    for kind, data in (
        ("unstable_equilibrium", {"state": np.zeros(1), "input": np.zeros(1)}),
        ("unstable_orbit", {"orbit": np.zeros((1, 1)), "input": np.zeros((1, 1))}),
    ):
        assert verify_claim(beyond, propose(beyond, kind, data)).valid
        assert not verify_claim(edge, propose(edge, kind, data)).valid


@pytest.mark.parametrize("a", [-1.0, 1.0])
def test_a_linear_map_on_the_circle_is_exactly_on_it(a):
    """Here no slope is rounded: the trace alone says ``|multiplier| >= 1``, which is not enough."""

    def refuted(a: float, kind: str) -> bool:
        layer = DrivenSystem(LureSystem.linear([[a]], 1.0), "identity", np.zeros((0, 1)), F=[[1.0]])
        data = {
            "unstable_orbit": {"orbit": np.zeros((1, 1)), "input": np.zeros((1, 1))},
            "unstable_equilibrium": {"state": np.zeros(1), "input": np.zeros(1)},
            "unstable_linear": {},
            "stack_unstable": {"state": np.zeros(1), "input": np.zeros(1), "layer": 0},
        }[kind]
        subject = LayerStack([layer]) if kind == "stack_unstable" else layer
        return verify_claim(subject, propose(subject, kind, data)).valid

    for kind in ("unstable_orbit", "unstable_equilibrium", "stack_unstable"):
        assert refuted(a * 1.001, kind)
        assert not refuted(a, kind)
    assert refuted(a, "unstable_linear")  # no uniform rate: that much is true on the circle


def test_an_open_claim_is_about_contraction_and_has_no_value():
    subject = specimens()["contraction of flow"].subject
    words = undecided(subject)
    assert verify_claim(subject, Claim("contraction", words, Verdict.INCONCLUSIVE)).valid
    for name, value in (("equilibrium", None), ("contraction", 0.5), ("gain", 1.0)):
        assert not verify_claim(subject, Claim(name, words, Verdict.INCONCLUSIVE, None, value)).valid


def test_rate_one_a_step_proves_no_equilibrium_of_a_map():
    flow = specimens()["equilibrium"]
    euler = DrivenSystem(flow.subject.system.euler(0.1), "tanh", flow.subject.E, flow.subject.b)
    proof = certify(euler, rate="any", refute=False).claim.proof
    data = {key: proof.data[key] for key in ("P", "L", "rate")}
    draft = Claim("equilibrium", "", Verdict.CERTIFIED, Proof("attracting_equilibrium", data))
    assert verify_claim(euler, remade(euler, draft)).valid
    assert "no exponential decay" in verify_claim(euler, remade(euler, draft, data={"rate": 1.0})).reason
    assert not verify_claim(euler, remade(euler, draft, data={"rate": 1.0})).valid


def test_the_gain_of_a_stack_takes_no_gain_over_a_finite_horizon():
    specimen = specimens()["gain of a stack"]
    first, second = specimen.claim.proof.data["layers"]
    for measure, horizon, valid in (("l2", None, True), ("l2", 5, False), ("final", None, False), ("final", 5, False)):
        gain = incremental_gain(specimen.subject.layers[0], output="state", measure=measure, horizon=horizon)
        part = {"kind": "gain_lmi", "data": dict(gain.claim.proof.data), "rate": gain.claim.value}
        bent = remade(specimen.subject, specimen.claim, data={"layers": [part, second], "gain": 50.0}, value=50.0)
        assert verify_claim(specimen.subject, bent).valid is valid, (measure, horizon)
    assert "that of the last level" in specimen.claim.statement
    head = remade(specimen.subject, specimen.claim, data={"head": np.eye(2)})
    assert "under the linear head" in head.statement
    assert first["rate"] > 0
