"""Limits of proof data, and of the helpers of the rules: the last value taken, the first refused."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated

import numpy as np
import pytest
from specimens import remade, small_cell, specimens

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.format import theorem_table as registry
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.fields import (
    FIELDS,
    LIMIT,
    LONGEST,
    Count,
    Datum,
    Number,
    ProofData,
    Refused,
    Size,
    State,
)
from stability.kernel.format.theorem_files import KINDS
from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems import stack_witness
from stability.kernel.theorems.gated_orbits import MAX_UNKNOWNS, inputs_of, least_distance, orbit_of
from stability.kernel.theorems.multiplier_lmi import overshoot_fits
from stability.proposals import propose
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim

BEYOND = float(np.nextafter(LIMIT, np.inf))
BIG = 2**53
TAKEN = {
    "number": [0, -1.5, BIG, -BIG, 1.7e308, -5e-324],
    "number or null": [None, 0, -1.5, BIG],
    "count": [1, 2, BIG],
    "index": [0, 1, BIG],
    "array": [np.zeros(0), np.ones((2, 2)), np.full(1, 1.7e308)],
    "pair": [[1, -2.5], (LIMIT, -LIMIT), np.array([-LIMIT, LIMIT]), [0.0, 0.0]],
    "text": ["", "running"],
    "mapping": [{}, {"a": 1}],
    "list": [[], (), [1]],
}
NOT_TAKEN = {
    "number": [True, BIG + 1, -BIG - 1, np.inf, -np.inf, np.nan, "1", None, 1j, [1.0], np.ones(1)],
    "number or null": [True, BIG + 1, np.nan, "null", ()],
    "count": [0, -1, BIG + 1, True, 1.0, None, "1"],
    "index": [-1, BIG + 1, True, False, 0.0, None],
    "array": [[1.0], np.ones(2, dtype=int), np.ones(2, dtype=np.float32), np.array([1.0, np.nan]), np.array([np.inf])],
    "pair": [
        *([1.0], [1.0, 2.0, 3.0], 1.0, "12", None, {0: 1.0, 1: 1.0}, [1.0, True], [np.nan, 1.0], [1.0, "1"]),
        *([BEYOND, 0.0], (0.0, -BEYOND), np.array([BEYOND, 0.0]), np.array([0.0, -BEYOND])),
        *(np.ones(3), np.ones((2, 1)), np.ones(2, dtype=int), np.array([np.nan, 0.0])),
    ],
    "text": [None, b"running", 1],
    "mapping": [None, [], "a"],
    "list": [None, {}, "ab", np.ones(2)],
}


def test_every_type_of_datum_takes_what_its_words_say():
    assert set(FIELDS) == set(TAKEN) == set(NOT_TAKEN)
    for kind, (words, takes) in FIELDS.items():
        assert words
        for value in TAKEN[kind]:
            assert takes(value) is True, (kind, value)
        for value in NOT_TAKEN[kind]:
            assert takes(value) is False, (kind, value)


def test_vectors_and_symmetric_matrices_have_their_size_and_no_entry_beyond_the_limit():
    two, three = (LureSystem.linear(-np.eye(n)) for n in (2, 3))
    for value, subject, good in (
        (np.array([LIMIT, -LIMIT]), two, True),
        (np.array([BEYOND, 0.0]), two, False),
        (np.array([0.0, -BEYOND]), two, False),
        (np.ones(2), three, False),
        (np.ones((2, 1)), two, False),
    ):
        assert Size(("n",)).admits(value, subject) is good
    bent = np.array([[1.0, 0.5], [np.nextafter(0.5, 1.0), 1.0]])
    for value, subject, good in (
        (np.array([[LIMIT, -LIMIT], [-LIMIT, 1.0]]), two, True),
        (np.array([[1.0, BEYOND], [BEYOND, 1.0]]), two, False),
        (np.array([[1.0, -BEYOND], [-BEYOND, 1.0]]), two, False),
        (bent, two, False),
        (bent * LIMIT * 2, two, False),
        (np.eye(2), three, False),
        (np.ones(2), two, False),
    ):
        assert Size(("nn",), symmetric=True).admits(value, subject) is good
    assert Size(("nn",)).admits(bent, two)
    network = DrivenSystem(LureSystem(-np.eye(2), np.ones((2, 3)), np.ones((3, 2))), "tanh", np.ones((3, 4)))
    for axes, length in (("n", 2), ("m", 3), ("p", 4)):
        assert [k for k in range(6) if Size((axes,)).admits(np.ones(k), network)] == [length]


def test_orbits_and_inputs_are_taken_up_to_their_limits():
    two = LureSystem.linear(-np.eye(2))
    wide = np.full((LONGEST, 2), LIMIT)
    assert Size(("kn",)).admits(wide, two)
    for bad in (np.ones((LONGEST + 1, 2)), np.ones((0, 2)), np.ones((3, 1)), np.ones(2), np.full((1, 2), -BEYOND)):
        assert not Size(("kn",)).admits(bad, two)
    assert orbit_of(np.full((4, 2), -LIMIT), 2, 2).shape == (4, 2)
    assert orbit_of(np.zeros(2), 2, 1).shape == (1, 2)
    assert orbit_of(np.zeros((MAX_UNKNOWNS // 2, 2)), 2, 1) is not None
    for bad, period in (
        (np.zeros((3, 2)), 2),
        (np.zeros((2, 3)), 1),
        (np.zeros((1, 1, 2)), 1),
        (np.zeros((0, 2)), 1),
        (np.array([[BEYOND, 0.0]]), 1),
        (np.zeros((MAX_UNKNOWNS // 2 + 1, 2)), 1),
    ):
        assert orbit_of(bad, 2, period) is None
    cell = small_cell("gru", box=None)
    for value, rows in ((np.full(2, LIMIT), 1), (np.full((24, 2), -LIMIT), 24)):
        assert inputs_of(cell, value).shape == (rows, 2)
    for bad, word in (
        (np.zeros((25, 2)), "1 to 24 vectors of 2 entries"),
        (np.zeros((0, 2)), "1 to 24"),
        (np.zeros(3), "1 to 24"),
        (np.zeros((1, 1, 2)), "1 to 24"),
        (np.array([0.0, -BEYOND]), "exceeds 1e+100"),
    ):
        with pytest.raises(Refused, match=re.escape(word)):
            inputs_of(cell, bad)
    boxed = small_cell("gru")
    assert inputs_of(boxed, np.array([-1.0, 1.0])).shape == (1, 2)
    for bad in (np.array([0.0, np.nextafter(1.0, 2.0)]), np.array([[0.0, 0.0], [np.nextafter(-1.0, -2.0), 0.0]])):
        with pytest.raises(Refused, match="outside the cell's input box"):
            inputs_of(boxed, bad)


def test_the_distance_of_two_balls_is_a_lower_bound():
    rng = np.random.default_rng(0)
    for _ in range(300):
        scale = 10.0 ** rng.integers(-3, 2)
        one, two = (Ball(rng.normal(size=1), scale * np.abs(rng.normal(size=1))) for _ in range(2))
        values = [Fraction(float(x[0])) for x in (one.mid, two.mid, one.rad, two.rad)]
        true = abs(values[0] - values[1]) - values[2] - values[3]
        found = Fraction(least_distance(one, two))
        assert true - (abs(true) + values[2] + values[3] + 2) / 10**14 <= found <= true
    far = Ball(np.array([0.0, 5.0]), np.array([1.0, 1.0]))
    assert least_distance(far, Ball(np.zeros(2), np.zeros(2))) == pytest.approx(4.0, rel=1e-12)  # in the one entry


def test_an_overshoot_is_no_smaller_than_the_root_of_the_condition_number():
    rng = np.random.default_rng(0)
    for low, high in np.sort(rng.uniform(0.1, 10.0, size=(100, 2))):
        root = np.sqrt(high / low)
        for ulps in (*range(-40, 41, 5), 200):
            overshoot = float(root * (1 + ulps * 2.0**-52))
            if overshoot_fits(overshoot, low, high):
                assert Fraction(overshoot) ** 2 * Fraction(low) >= Fraction(high)
        assert overshoot_fits(overshoot, low, high)
    assert not overshoot_fits(np.nextafter(1.0, 0.0), 2.0, 1.0)
    assert overshoot_fits(1.0, 2.0, 1.0)


def test_what_speaks_about_a_network_speaks_about_a_stack_that_is_one():
    against = {
        kind
        for kind, rule in RULES.items()
        if DrivenSystem in rule.subject and "contraction" in rule.claim and rule.verdict is Verdict.REFUTED
    }
    assert set(stack_witness.MERGED_KINDS) == against


def test_a_proof_against_a_map_is_one_against_the_stack_of_that_layer():
    seen = set()
    for specimen in specimens().values():
        if specimen.kind not in stack_witness.MERGED_KINDS or not specimen.subject.system.is_discrete:
            continue
        data = {"kind": specimen.kind, "data": dict(specimen.claim.proof.data)}
        claim = propose(stack := LayerStack([specimen.subject]), "merged_stack", data)
        assert claim.verdict is specimen.claim.verdict
        assert verify_claim(stack, claim).valid
        assert "The stack as one network is not: " in claim.statement
        assert not verify_claim(stack, remade(stack, claim, data={"kind": "two_equilibria"})).valid
        seen.add(specimen.kind)
    assert {"unstable_equilibrium", "periodic_orbits", "unstable_orbit"} <= seen


def test_the_table_of_rules_is_closed():
    ball = RULES["ball"]
    with pytest.raises(TypeError):
        RULES["ball"] = ball
    with pytest.raises(TypeError):
        KINDS["new"] = "anywhere"
    for kind in ("ball", "new"):
        with pytest.raises(ValueError, match="there already, or not in its row"):
            registry.certifies(kind, subject=ball.subject, claim=ball.claim, size=ball.size)(ball.data)
    assert RULES["ball"] is ball
    assert "new" not in RULES


def test_a_rule_reads_data_of_known_types_and_refuses_all_else():
    class One(ProofData):
        x: Number

        def check(self, subject, claim):
            return f"{vars(self)}"

    class Two(One):
        y: Count | None = None

    class Sized(One):
        z: State | None = None

    def made_rule(kind: str, data: type[ProofData] = One, **changes):
        return registry.Rule(kind, (LureSystem,), ("contraction",), Verdict.REFUTED, data, **changes)

    made = made_rule("new", Two, value="x")
    assert (made.fields, made.optional, made.value) == ({"x": "number"}, {"y": "count"}, "x")

    class Untyped(ProofData):
        x: float

    class Unknown(ProofData):
        x: Annotated[float, Datum("integer")]

    for data in (Untyped, Unknown):
        with pytest.raises(ValueError, match="has no known type"):
            made_rule("odd", data)
    with pytest.raises(ValueError, match="no words for an array of another size"):
        made_rule("odd", Sized)
    subject = specimens()["contraction of flow"].subject

    def answer(data, value=None, rule=made):
        return rule(subject, Claim("contraction", "", Verdict.REFUTED, Proof("new", data), value))

    assert answer({"x": 1.0}, 1.0) == (True, "{'x': 1.0}")
    assert answer({"x": 1.0, "y": 2}, 1.0)[0]
    assert answer({"x": 1.0, "y": 2.0}, 1.0) == (False, "y must be a positive integer")
    assert answer({"x": 1.0}, 2.0) == (False, "the claim says x 2.0, the proof 1.0")
    assert answer({"x": 1.0}) == (False, "the claim says x None, the proof 1.0")
    assert answer({"x": 1}, 1.0) == (True, "{'x': 1.0}")  # an integer stands for the number
    sized = made_rule("sized", Sized, size="z must have {n} entries")
    assert answer({"x": 1.0, "z": np.ones(2)}, rule=sized)[0]
    assert answer({"x": 1.0, "z": np.ones(3)}, rule=sized) == (False, "z must have 2 entries")
    plain = made_rule("plain")
    assert answer({"x": 1.0}, rule=plain)[0]
    assert answer({"x": 1.0}, 1.0, plain) == (False, "this claim has no value")
    own = made_rule("own", value=registry.BY_CHECK)
    assert answer({"x": 1.0}, 7.0, own)[0]
    assert own(subject, Claim("contraction", "", Verdict.REFUTED)) == (False, "there is no proof")
    bare = Claim("contraction", "", Verdict.REFUTED, Proof("own", [1.0]))
    assert own(subject, bare) == (False, "the proof's data are no mapping")
