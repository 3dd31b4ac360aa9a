"""Claims about runs in finite precision: worst rounding stays within the bound, and claims of more are refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from specimens import linear, network_map, remade, small_cell, specimens, turning
from worst_rounding import WorstRun, largest_distance

from stability import ExecutionModel, certify, verify
from stability.certificate import Certificate
from stability.errors import ConfigurationError
from stability.kernel.systems.execution import FORMATS
from stability.search.as_it_runs import certify_run
from stability.systems import DrivenSystem, LureSystem, PairwiseSystem
from stability.verification import verify_claim

WITHOUT_FUNCTIONS = ("run of an unbounded map", "run of a linear map", "run of pairs", "run of pairs over steps")
RUNS = sorted(name for name in specimens() if name.startswith("run of"))
MODELS = (
    ExecutionModel("float32"),
    ExecutionModel("bfloat16"),
    ExecutionModel("float32", factors="float16", weight_error=1e-3),
    ExecutionModel("float32", "float8_e5m2", weights="float8_e4m3"),
    ExecutionModel("float16", "int8:3", rounding="stochastic"),
    ExecutionModel("int8", rounding="feedback"),
)


@pytest.mark.parametrize(("steps", "name"), [(None, None), (20, "as_it_runs_steps"), (10**6, None)])
def test_a_slow_network_on_pairs_has_a_bound_up_to_a_length(steps, name) -> None:
    subject, high = specimens()["run of pairs over steps"].subject, np.ones(1)
    claim = certify_run(certify(subject, refute=False), ExecutionModel("bfloat16"), (-high, high), steps)
    assert isinstance(claim, str) == (name is None)
    if not isinstance(claim, str):
        assert "0 <= k <= 20" in claim.statement
        reached = largest_distance(subject, ExecutionModel("bfloat16"), np.ones(2), np.ones((20, 1)))
        assert 0.1 * claim.value < reached <= claim.value


def cases():
    """Every kind of network in every model; then what an analysis of errors forgets, with the model that shows it."""
    field = LureSystem.recurrent(-np.eye(2), [[0.2, 0.3], [-0.3, 0.1]])
    relu = LureSystem(np.zeros((2, 2)), np.eye(2), [[0.5, 0.2], [-0.2, 0.5]], dt=1.0)
    subjects = [
        DrivenSystem(relu, "relu", [[1e3, 0.0], [0.0, 1e-3]], [0.1, 0.0]),
        DrivenSystem(field.euler(0.3), "tanh", np.eye(2)),
        DrivenSystem(field.midpoint(1.5), "tanh", np.tile(np.eye(2), (2, 1))),
        linear(0.9, 1.0),
        *(turning(activation, bias=-0.1, size=0.3) for activation in ("modrelu", "oplu", "abs")),
        *(small_cell("lstm", 3), small_cell("gru"), replace(small_cell("gru", 2), reset_after=False)),
    ]
    yield from ((subject, model, 1.0) for subject in subjects for model in MODELS)
    one = LureSystem([[0.0]], [[1.0]], [[1e-9]], dt=1.0)
    narrow = ExecutionModel("float32", factors="float16")
    yield DrivenSystem(one, "tanh", [[1e3]]), narrow, 1e-8  # inputs that the factors' format loses
    yield DrivenSystem(one, "relu", [[1e-7]]), narrow, 1e4  # weights that it loses
    yield linear(0.5, 1e3), narrow, 1e-8
    yield linear(0.5, 1e-7), ExecutionModel("float16"), 1e4
    yield linear(0.5, 1e5), narrow, 1e-3  # a weight above its largest number
    yield DrivenSystem(one, "tanh", [[1.0]]), ExecutionModel("float32", ulps=64.0), 1.0
    reflected = PairwiseSystem(1e-3 * np.eye(4), np.eye(4, 2), np.zeros(4), "householder", angles=[1.0, 4.0])
    yield reflected, ExecutionModel("int8"), 1.0  # an entry may become as large as its pair
    straddling = PairwiseSystem(1e-3 * np.eye(4), [[0.001]] * 3 + [[1.0]], np.zeros(4), "oplu")
    yield straddling, ExecutionModel("int8:3"), 1.0  # a pair in two blocks


def test_no_run_with_the_worst_rounding_leaves_the_bound() -> None:
    rng, ratios, certificate = np.random.default_rng(0), [], None
    for subject, model, size in cases():
        if certificate is None or certificate.subject is not subject:
            certificate = certify(subject, refute=False)
        high = np.full(subject.inputs, size)
        claim = certify_run(certificate, model, None if hasattr(subject, "w_ih") else (-high, high))
        if isinstance(claim, str):
            continue
        for direction in (np.ones(subject.states), rng.choice([-1.0, 1.0], subject.states)):
            inputs = high * np.where(np.arange(50)[:, None] < 40, 1.0, rng.choice([-1.0, 1.0], (50, len(high))))
            reached = largest_distance(subject, model, direction, inputs)
            assert reached <= claim.value, (subject, model, size, direction, reached, claim.value)
            ratios.append(reached / claim.value)
    assert len(ratios) > 80
    assert max(ratios) > 0.9


@pytest.mark.parametrize(("model", "factor"), [
    (ExecutionModel("float64", "bfloat16"), 1.001), (ExecutionModel("float64", "int8"), 1.001),
    (ExecutionModel("float64", "int6", rounding="stochastic"), 1.001), (ExecutionModel("float32"), 3.0),
])  # fmt: skip
def test_the_least_accepted_bound_is_just_above_what_a_scalar_run_reaches_in_rationals(model, factor) -> None:
    subject, a = linear(0.875, 1.0), Fraction(0.875)
    claim = certify_run(certify(subject, refute=False), model, (-np.ones(1), np.ones(1)))
    accepted, refused = claim.value, 0.0
    for _ in range(50):
        bound = 0.5 * (accepted + refused)
        holds = verify_claim(subject, remade(subject, claim, data={"bound": bound}, value=bound)).valid
        accepted, refused = (bound, refused) if holds else (accepted, bound)
    unit = Fraction(FORMATS[model.format].unit)
    state = Fraction(FORMATS[model.state].unit) if model.state in FORMATS else Fraction(float(WorstRun(
        subject, model, np.ones(1))._quantum(np.ones(1))[0]))  # fmt: skip
    exact = computed = Fraction(0)
    for _ in range(300):
        exact = a * exact + 1
        up = (1 + unit) * (1 + unit)  # a weight and its product
        computed = Fraction(float((a * computed * up + up) * (1 + unit) * (1 + state)))
    reached = computed - exact
    assert reached <= Fraction(accepted) <= reached * Fraction(factor)


def test_factors_whose_last_digits_are_cut_off_stay_within_the_bound_of_tf32() -> None:
    cut, most = lambda v: float(np.floor(np.ldexp(v, 11)) / 2**11), 1.0 + 2.0**-10 - 2.0**-23  # for v in [0.5, 1)
    subject, u, exact, run, model = linear(0.5 * most, 1.0), most, 0.0, 0.0, ExecutionModel(factors="tf32")
    claim = certify_run(certify(subject, refute=False), model, (-u * np.ones(1), u * np.ones(1)))
    for _ in range(60):
        exact, run = 0.5 * most * exact + u, cut(0.5 * most) * 4.0 * cut(run / 4.0) + 2.0 * cut(u / 2.0)
    assert 0.3 * claim.value < exact - run <= claim.value


def test_errors_of_a_step_are_not_below_those_of_rational_steps() -> None:
    rng = np.random.default_rng(1)
    for _ in range(12):
        n = int(rng.integers(2, 4))
        W = rng.integers(-8, 9, (n, n)) / 16.0 / n
        subject = DrivenSystem(LureSystem(np.zeros((n, n)), np.eye(n), W, dt=1.0), "relu", np.eye(n), np.ones(n))
        model = ExecutionModel(str(rng.choice(["float32", "bfloat16", "float16"])), weights="stored")
        unit, sums = (Fraction(FORMATS[name].unit) for name in (model.format, model.accumulation))
        claim = certify_run(certify(subject, refute=False, rate="any"), model, (-np.ones(n), np.ones(n)))
        exact, run = [Fraction(0)] * n, [Fraction(0)] * n
        for _ in range(40):
            exact = [max(sum(Fraction(w) * x for w, x in zip(row, exact)) + 2, Fraction(0)) for row in W]
            after = []
            for row in W:
                terms = sorted((Fraction(w) * x for w, x in zip(row, run)), reverse=True)
                total = Fraction(0)
                for term in terms:
                    total += term + abs(term) * sums
                    total += abs(total) * sums
                total = (total + abs(total) * unit + 2 * (1 + unit)) * (1 + unit)
                after.append(Fraction(float(max(total, Fraction(0)) * (1 + unit))))
            run = after
            distance = sum((x - y) ** 2 for x, y in zip(exact, run))
            assert distance <= Fraction(claim.value) ** 2


def coarser(arithmetic: dict) -> list[dict]:
    """Execution models of which a claim says more."""
    formats = {"float32": "bfloat16", "bfloat16": "float8_e4m3", "float16": "float8_e4m3"}
    other = formats[arithmetic["format"]]
    state = "int4" if arithmetic["state"].startswith("int") else other
    changes = [{"ulps": 64.0}, {"weight_error": 0.01}, {"state": state}, {"format": other}, {"factors": "float8_e5m2"}]
    return [{**arithmetic, **change} for change in (*changes, {"accumulation": other}, {"weights": "float8_e5m2"})]


@pytest.mark.parametrize("name", RUNS)
def test_claims_of_more_are_refused(name) -> None:
    subject, claim = specimens()[name].subject, specimens()[name].claim
    data = claim.proof.data
    changes: list[dict] = [{"bound": 0.999 * data["bound"]}]
    changes += [{"arithmetic": model} for model in coarser(data["arithmetic"])]
    smaller = ("radius", "rate", "sizes", "entries", "gain", "growth")
    changes += [{key: 0.9 * data[key]} for key in smaller if data.get(key) is not None]
    changes += [{"steps": steps} for steps in (0, 21, 10**9) if "steps" in data]
    if data.get("room") is not None:
        changes += [{"room": 0.5 + 0.5 * data["room"]}, {"y_min": 2.0 * data["y_min"]}]
    if data.get("center") is not None:
        changes.append({"center": data["center"] + data["radius"]})
    if data["low"].shape == (subject.inputs,) and not hasattr(subject, "w_ih"):
        changes += [{"low": 2.0 * data["low"]}, {"high": 2.0 * data["high"]}]
    for change in changes:
        value = {"value": change["bound"]} if "bound" in change else {}
        if change.get("arithmetic", {}).get("ulps") == 64.0 and name in WITHOUT_FUNCTIONS:
            continue
        assert not verify_claim(subject, remade(subject, claim, data=change, **value)).valid, change
    shaped = {**data["arithmetic"], "state": "int16", "rounding": "noise_shaping"}  # has another error equation
    assert not verify_claim(subject, remade(subject, claim, data={"arithmetic": shaped, "bound": 1e9}, value=1e9)).valid
    finer = {**data, "arithmetic": {**data["arithmetic"], "ulps": 0.5}}
    assert not verify_claim(
        subject, replace(claim, proof=replace(claim.proof, data=finer))
    ).valid  # under the old sentence


def test_a_claim_is_about_its_subject() -> None:
    claim = specimens()["run of a map"].claim
    assert not verify_claim(network_map(0.6), remade(network_map(0.6), claim)).valid


BAD = (
    ("format", ("float31", 32, "int8:0")), ("state", ("int17", 8)), ("rounding", ("up", "stochastic", ["nearest"])),
    ("accumulation", ("int8",)), ("factors", ("int3",)), ("weights", ("int8",)), ("summation", ("exact",)),
    ("weight_error", (-1e-3, float("nan"), "0")), ("ulps", (0.25, float("nan"), True)), ("flush", (1,)),
)  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD for value in values])
def test_settings_that_say_nothing_are_refused(name, value) -> None:
    with pytest.raises(ConfigurationError):
        ExecutionModel(**{name: value})


def test_settings_round_trip_in_full() -> None:
    for model in MODELS:
        assert ExecutionModel.from_payload(model.payload()) == model
    for change in ({"ulps": 0.0}, {"ulps": 4}, {"state": ""}, {"note": "x"}, {"flush": 0}):
        with pytest.raises(ConfigurationError):
            ExecutionModel.from_payload({**MODELS[0].payload(), **change})


def test_certify_adds_the_claim_or_says_why_not(tmp_path) -> None:
    without = certify(network_map(), arithmetic="float32", refute=False)
    assert "input_box" in without.meta["as_it_runs"]
    found = certify(network_map(), arithmetic=ExecutionModel("int8", rounding="feedback"), input_box=(-1.0, 1.0))
    found.save(tmp_path / "run.json")
    loaded = Certificate.load(tmp_path / "run.json")
    assert [claim.statement for claim in loaded.claims] == [claim.statement for claim in found.claims]
    assert "as_it_runs" in [claim.name for claim in loaded.claims]
    assert verify(loaded).valid
    coarse = certify(network_map(), arithmetic="float8_e5m2", input_box=(-1e9, 1e9), refute=False)
    assert "as_it_runs" in coarse.meta


def test_a_set_that_is_refused_leaves_the_others_to_be_tried() -> None:
    """One block of norm above one, and a contraction in another norm."""
    system = LureSystem([[0.5, 10.0], [0.0, 0.5]], np.zeros((2, 0)), np.zeros((0, 2)), dt=1.0)
    network = DrivenSystem(system, "identity", np.zeros((0, 1)), None, np.ones((2, 1)))
    claim = certify_run(certify(network), ExecutionModel(), (-np.ones(1), np.ones(1)))
    assert not isinstance(claim, str)
    assert verify_claim(network, claim).valid
