"""Bounds that a rule compares with numbers of the proof: equality is enough, one unit of the last place less is not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from specimens import plain_map, remade, small_cell, specimens

from stability.kernel.arithmetic.intervals import Interval
from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.gated_bounds import JacobianBound
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.multiplier_lmi import LARGEST_FACTOR
from stability.kernel.theorems.periodic_orbits import MAX_UNKNOWNS
from stability.kernel.theorems.stack_contraction import CONTRACTING, compose, layer_claim
from stability.proposals import propose
from stability.systems import DrivenSystem, LureSystem


def answer(name: str, **changes) -> tuple[bool, str]:
    """Return the rule's answer to a specimen with other data; a claim's value follows its datum."""
    specimen = specimens()[name]
    value = RULES[specimen.kind].value
    if value and value in changes.get("data", {}):
        changes["value"] = changes["data"][value]
    return RULES[specimen.kind](specimen.subject, remade(specimen.subject, specimen.claim, **changes))


def why(name: str, **changes) -> str:
    """Return the reason of the rule's refusal, and require one."""
    valid, reason = answer(name, **changes)
    assert not valid
    return reason


def below(x: float) -> float:
    return float(np.nextafter(x, -np.inf))


def above(x: float) -> float:
    return float(np.nextafter(x, np.inf))


def test_rate_and_overshoot_of_a_stack_are_those_of_its_layers():
    specimen = specimens()["contraction of stack"]
    data = specimen.claim.proof.data
    claims = [layer_claim(part) for part in data["layers"]]
    rate, overshoot = compose(specimen.subject, claims, data["tolerance"])
    name, (first, second) = "contraction of stack", data["layers"]
    assert answer(name, data={"rate": rate, "overshoot": overshoot})[0]
    assert "the layers give the rate" in why("contraction of stack", data={"rate": below(rate)})
    assert "the layers give the overshoot" in why("contraction of stack", data={"overshoot": below(overshoot)})
    misfit = [first, {**second, "rate": 1}], [first, {**second, "note": 1.0}], [{}, second], [first, None]
    for layers in misfit:
        assert "a part of a proof holds" in (reason := why(name, data={"layers": layers})) or "and rate a" in reason
    for odd in (0.0, 1.0, -0.5):
        assert "exponential decay" in why("contraction of stack", data={"rate": odd})
    for layers in ([], [first], [first, second, second]):
        assert "one part for each of the 2 layers" in why("contraction of stack", data={"layers": layers})
    assert "layer 0: " in why("contraction of stack", data={"layers": [{**first, "rate": 1e-9}, second]})
    assert "layer 1: " in why("contraction of stack", data={"layers": [first, {**second, "rate": 1e-9}]})
    for kind in ("gain_lmi", "cascade", "ball", ""):
        reason = answer("contraction of stack", data={"layers": [first, {**second, "kind": kind}]})[1]
        assert reason == f"layer 1: no layer is proved to contract by a {kind}"
    inner = {**first, "data": {**first["data"], "rate": 0.3}, "rate": 0.3}
    for layers in ([second, first], [first, first], [{**first, "rate": 0.3}, second], [inner, second]):
        assert why("contraction of stack", data={"layers": layers})
    loud = GatedCell("gru", 9.0 * np.ones((3, 2)), np.zeros((3, 1)))
    assert not RULES["cascade"](LayerStack([plain_map(), loud]), specimen.claim)[0]
    assert set(CONTRACTING) == {"multiplier_lmi", "interval_lmi", "interval_jacobian", "pair_norm"}


def test_a_factor_of_growth_is_one_to_rounding():
    assert answer("nonexpansive", data={"factor": LARGEST_FACTOR})[0]
    for factor in (above(LARGEST_FACTOR), below(1.0), 0.5, -1.0):
        assert "the factor must lie in" in why("nonexpansive", data={"factor": factor})
    assert "the factor must lie in" not in answer("nonexpansive", data={"factor": 1.0})[1]
    assert LARGEST_FACTOR == 1.000001


def test_the_weights_of_a_cell_bound_its_overshoot():
    name = "contraction of gru box"
    data = specimens()[name].claim.proof.data
    d, rng = data["d"], np.random.default_rng(0)
    for scale in rng.uniform(0.9, 1.1, size=20):
        weights = d * np.array([scale, 1.0])
        ratio, seen = Fraction(float(weights.max())) / Fraction(float(weights.min())), []
        for ulps in (-2, -1, 0, 1, 2, 4):
            overshoot = float(weights.max() / weights.min() * (1 + ulps * 2.0**-52))
            reason = answer(name, data={"d": weights, "overshoot": overshoot})[1]
            seen.append("is smaller than max d / min d" not in reason)
            assert not seen[-1] or Fraction(overshoot) >= ratio
        assert seen[-1]
    for rate in (0.0, 1.0, -0.1, 1.5):
        assert "the rate must lie in (0, 1)" in why(name, data={"rate": rate})
    for bad in (-d, np.array([1.0, 0.0]), np.array([1.0, 1e-100]), np.array([-1.0, -2.0])):
        assert why(name, data={"d": bad}) == "d must be positive"
    assert "must be a vector of 2 entries" in why(name, data={"d": np.ones(3)})
    crossed = {"low": data["high"] + 0.1, "high": data["high"]}
    assert "with low <= high" in why(name, data=crossed)
    assert "not proved in row" in why(name, data={"rate": 1e-3})
    higher = np.where(data["low"] < 0, 0.0, data["low"])
    assert why(name, data={"low": higher + 1e-3}) == (
        "the state box is not proved to be invariant, or does not contain the zero state"
    )


def test_orbits_are_as_long_as_their_equations_can_be_solved():
    def problem(rows: int, width: int = 20, period: int = 1) -> str:
        network = DrivenSystem(
            LureSystem(np.zeros((width, width)), np.eye(width), np.eye(width), dt=1.0), "tanh", np.eye(width)
        )
        data = {"first": np.zeros((rows, width)), "input": np.zeros((period, width))}
        return RULES["periodic_orbits"](network, propose(network, "periodic_orbits", data))[1]

    assert problem(MAX_UNKNOWNS // 40) == "an orbit is not proved to exist"
    assert problem(MAX_UNKNOWNS // 40 + 1) == "an orbit has more than 1600 unknowns"
    assert problem(4, period=2) == "an orbit is not proved to exist"
    assert problem(3, period=2) == "the period of an orbit must be a multiple of the input's"
    for bad in ({"first": np.zeros((1, 3))}, {"second": np.zeros((65, 2))}, {"input": np.zeros((0, 2))}):
        data = {"first": np.zeros((1, 2)), "input": np.zeros((1, 2)), **bad}
        assert RULES["periodic_orbits"](plain_map(), propose(plain_map(), "periodic_orbits", data)) == (
            False,
            "orbits and input must hold 1 to 64 finite rows of the network's sizes",
        )
    flow = DrivenSystem(LureSystem.recurrent(-np.eye(2), np.eye(2)), "tanh", np.eye(2))
    data = {"first": np.zeros((1, 2)), "input": np.zeros((1, 2))}
    reason = RULES["periodic_orbits"](flow, propose(flow, "periodic_orbits", data))[1]
    assert reason == "orbits step by step are for maps"


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_difference_outgrows_what_the_activation_can_do(channels, discrete, exact):
    """``|y| (|lambda| - 1) > 2 sum |w^T B|`` (``|y| Re lambda``), exactly: below it two trajectories may meet."""
    b = np.linspace(0.5, 1.5, channels)[None, :]
    system = LureSystem([[1.5 if discrete else 0.5]], b, np.zeros((channels, 1)), dt=1.0 if discrete else None)
    network = DrivenSystem(system, "tanh", np.zeros((channels, 1)))
    edge = 4 * sum(exact.of(b)[0])

    def accepts(size: float) -> bool:
        data = {"eigenvalue": [1.5 if discrete else 0.5, 0.0], "difference": np.full(1, size)}
        return RULES["unstable_linear"](network, propose(network, "unstable_linear", data))[0]

    last = Fraction(exact.bisect(accepts, 100.0, 0.0))
    assert edge < last < edge * (1 + Fraction(1, 10**9))
    assert not accepts(-1.0)
    bare = DrivenSystem(LureSystem.linear([[1.5]], 1.0), "identity", np.zeros((0, 1)), F=[[1.0]])
    for size, valid in ((1e-9, True), (-1e-9, True), (0.0, False)):
        data = {"eigenvalue": [1.5, 0.0], "difference": np.full(1, size)}
        assert RULES["unstable_linear"](bare, propose(bare, "unstable_linear", data))[0] is valid


def test_an_equilibrium_under_every_input_is_left_strictly():
    """``x' = tanh(W x)``: eigenvalues ``+-i`` are on the boundary, and nothing leaves."""
    for bend, valid in ((0.0, False), (1e-3, True), (-1e-3, False)):
        system = LureSystem.recurrent(np.zeros((2, 2)), [[bend, 1.0], [-1.0, bend]])
        network = DrivenSystem(system, "tanh", np.eye(2))
        claim = propose(network, "unstable_everywhere", {})
        assert RULES["unstable_everywhere"](network, claim)[0] is valid


@pytest.mark.parametrize("name", ["orbits", "orbits of a stack"])
def test_each_of_two_orbits_has_the_right_size(name):
    data = specimens()[name].claim.proof.data
    for key in ("first", "second"):
        assert "must be orbits of the" in why(name, data={key: np.zeros((1, 7))})
    assert "must be longer" in why(name, without=["second"])
    assert "may be the same" in why(name, data={"second": data["first"]})


def test_a_jacobian_that_is_just_the_rate_is_enough():
    cell = small_cell("gru")
    one = specimens()["contraction of gru box"].claim
    low, high = one.proof.data["low"], one.proof.data["high"]
    image = JacobianBound(cell, Interval(low, high)).apply(np.ones(2))
    rate = above(float(image.max()))  # the rule takes one unit of the last place off
    data = {"low": low, "high": high, "d": np.ones(2), "overshoot": 1.1}
    for number, valid in ((rate, True), (below(rate), False)):
        claim = remade(cell, one, data={**data, "rate": number}, value=number)
        assert RULES["interval_jacobian"](cell, claim)[0] is valid
