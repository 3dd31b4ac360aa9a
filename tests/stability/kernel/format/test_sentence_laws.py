"""No sentence is stronger than its proof: a subject drawn *inside the sentence* is certified by the same proof.

The sentence is read back as a reader would read it, its numbers as decimal numbers; what it promises is then put to the
test by the same rule, by exact arithmetic or in simulation.
"""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from specimens import small_cell, specimens

from stability.certification import certify
from stability.kernel.format.claims import Proof, Verdict
from stability.kernel.format.sentences import at_least, at_most, exact_text, slopes_phrase, undecided
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim

INTERVAL = re.compile(r"\[([^\[\],]+), ([^\[\],]+)\]")


def system_with(rng, slope) -> LureSystem:
    n = 4
    W = rng.normal(size=(n, n))
    return LureSystem.recurrent(-1.5 * np.eye(n), 0.9 * W / np.linalg.norm(W, 2), slope=slope)


@pytest.mark.parametrize(
    "slope", [(0.0, 1.0), (0.1, 1.0), (0.0, 1.0 - 1e-7), (1e-9, 0.25), (-0.3, 0.9999996), (1 / 3, 2 / 3)]
)
def test_every_slope_that_the_sentence_admits_is_covered(slope, rng):
    for _ in range(4):
        system = system_with(rng, slope)
        claim = certify(system, rate="any", refute=False).claim
        assert claim.verdict is Verdict.CERTIFIED
        low, high = (float(x) for x in INTERVAL.search(claim.statement).groups())
        assert (low, high) == slope  # read back to the last bit: neither wider than the proof nor narrower than it
        data = claim.proof.data
        for _ in range(5):  # a subject inside the sentence, the same proof
            a, b = np.sort(rng.uniform(low, high, size=(2, 4)), axis=0)
            inside = LureSystem(system.A, system.B, system.C, system.D, (a, b))
            K = rng.uniform(a, b)
            assert np.linalg.eigvals(inside.jacobian(K)).real.max() <= -data["rate"] + 1e-9
        assert check_lmi(
            LureSystem(system.A, system.B, system.C, system.D, (low, high)), data["P"], data["L"], data["rate"]
        )[0]


def test_channels_with_different_slopes_are_not_put_into_one_interval():
    uneven = LureSystem(-np.eye(2), np.eye(2), np.diag([5.0, 0.5]), slope=([0.0, 0.0], [0.1, 1.0]))
    claim = certify(uneven, rate="any", refute=False).claim
    assert claim.verdict is Verdict.CERTIFIED
    assert "every activation with slopes in" not in claim.statement
    assert "channel i lies in [alpha_i, beta_i]" in claim.statement
    assert "2 different intervals: [0, 0.1], [0, 1]" in claim.statement
    even = LureSystem(-np.eye(2), np.eye(2), np.diag([5.0, 0.5]), slope=(0.0, 1.0))
    assert np.linalg.eigvals(even.jacobian(np.ones(2))).real.max() == 4.0  # what the wider words would have claimed
    assert not verify_claim(even, claim).valid
    words = claim.statement.replace(slopes_phrase(uneven), slopes_phrase(even))
    assert words != claim.statement
    assert not verify_claim(uneven, type(claim)(claim.name, words, claim.verdict, claim.proof, claim.value)).valid


def test_a_swap_of_two_intervals_is_another_subject():
    one = LureSystem(-np.eye(2), np.eye(2), np.diag([5.0, 0.5]), slope=([0.0, 0.0], [0.1, 1.0]))
    two = LureSystem(-np.eye(2), np.eye(2), np.diag([5.0, 0.5]), slope=([0.0, 0.0], [1.0, 0.1]))
    claim = certify(one, rate="any", refute=False).claim
    assert slopes_phrase(one) == slopes_phrase(two)  # the words name the file, and the file holds them by channel
    assert not verify_claim(two, claim).valid


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1.0, 0.0, -0.0, 1e-300, 12345.678, 1 - 2**-53, 5e-324, 1e22, -7.5])
def test_exact_decimals_read_back_as_the_same_number(value):
    assert float(exact_text(value)) == value
    assert exact_text(-0.0) != "-0"


def test_bounds_in_words_are_never_stronger_than_the_number(rng):
    for _ in range(2000):
        value = float(rng.normal() * 10.0 ** rng.integers(-8, 12))
        assert Fraction(at_most(value)) >= Fraction(value)
        assert Fraction(at_least(value)) <= Fraction(value)
        rho = 1.0 - abs(value) * 1e-12
        assert Fraction(at_most(rho, near=1.0)) >= Fraction(rho)
        assert (Fraction(at_most(rho, near=1.0)) < 1) == (rho < 1.0)


def test_the_sentence_of_a_rate_is_true_of_the_number_in_it():
    """The decimal rate and overshoot of the sentence, put into the proof, are accepted by the rule."""
    for name, specimen in specimens().items():
        if not name.startswith("contraction of") or specimen.kind != "multiplier_lmi":
            continue
        found = re.search(r" <= ([0-9.e+-]+) \* (?:exp\(-([0-9.e+-]+) t\)|([0-9.e+-]+)\^k)", specimen.claim.statement)
        overshoot, rate = float(found[1]), float(found[2] or found[3])
        data = {**specimen.claim.proof.data, "overshoot": overshoot, "rate": rate}
        claim = type(specimen.claim)("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", data), rate)
        from specimens import remade

        assert verify_claim(specimen.subject, remade(specimen.subject, claim)).valid, name


def test_boxes_and_inputs_stand_in_the_sentence():
    cell = small_cell("gru", box=0.75)
    assert "every input sequence with entries in [-0.75, 0.75]" in certify(cell, refute=False).statement
    w = np.zeros((3, 2)), np.zeros((3, 1))
    uneven = GatedCell("gru", *w, input_low=[0.0, -2.0], input_high=[1.0, 0.5])
    assert "entry j in [low_j, high_j] of its box (all within [-2, 1])" in undecided(uneven)
    assert "for every input sequence is" in undecided(GatedCell("gru", *w))
    assert "[0, 1]" in undecided(LayerStack([GatedCell("gru", *w, input_low=0.0, input_high=1.0)]))


def test_what_is_stored_is_what_is_claimed():
    flow = LureSystem.recurrent(-2.0 * np.eye(2), 0.5 * np.eye(2))
    for subject in (flow, DrivenSystem(flow, "tanh", np.eye(2)), small_cell("lstm"), LayerStack([small_cell("gru")])):
        assert "stored" in undecided(subject)
        assert "exact arithmetic" in undecided(subject)
    assert "Euler map with step 0.1 of the stored matrices" in undecided(flow.euler(0.1))
    assert "midpoint map with step 0.25 of the stored weights" in undecided(
        DrivenSystem(flow.midpoint(0.25), "tanh", np.ones((4, 1)))
    )


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_the_euler_map_is_that_of_the_stored_flow_not_a_rounded_one(scale):
    """``I + dt A`` rounds; the claim is about the exact map, so the same rounded matrices alone are another subject."""
    flow = LureSystem.recurrent(-scale * np.eye(2), 0.1 * np.eye(2))
    euler = flow.euler(0.1)
    rounded = LureSystem(euler.A, euler.B, euler.C, euler.D, (0.0, 1.0), 0.1)
    assert undecided(euler) != undecided(rounded)
    claim = certify(euler, rate="any", refute=False).claim
    assert not verify_claim(rounded, claim).valid
