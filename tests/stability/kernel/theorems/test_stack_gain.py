"""Gains at their edge: cells and stacks whose gain is known exactly, and boxes that are read to their ends."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from specimens import linear, proof_of_linear

from stability import LayerStack, certify
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import RULES, worded
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.theorems.stack_contraction import GROW
from stability.kernel.theorems.stack_gain import combined_gain, layer_gain
from stability.proposals import pack
from stability.systems import DrivenSystem, LureSystem

BIG = 40.0


def proof_of(layer) -> Claim:
    claim = certify(layer, rate="any", refute=False).claim
    assert claim.verdict is Verdict.CERTIFIED
    return claim


@pytest.mark.parametrize("a", [0.0625, 0.5, 0.99])
@pytest.mark.parametrize("g", [0.3, 7.0])
def test_one_linear_map(a, g):
    """``x+ = a x + g u`` has the l2 gain ``g / (1 - a)``, reached at frequency zero."""
    gain = layer_gain(linear(a, g), proof_of_linear(linear(a, g)), None)
    assert g / (1 - a) <= gain <= g / (1 - a) * (1 + 1e-4)


@pytest.mark.parametrize("rate", [0.1, 4.0])
def test_one_linear_flow(rate):
    layer = linear(rate, 3.0, discrete=False)
    gain = layer_gain(layer, proof_of_linear(layer), None)
    assert 3.0 / rate <= gain <= 3.0 / rate * (1 + 1e-4)


@pytest.mark.parametrize("forget", [-1.0, 1.0, 3.0])
def test_one_lstm(forget):
    """i = o = 1 and f constant: near rest ``c+ = f c + w u`` and ``h = c``, with the gain ``w / (1 - f)``."""
    w, f = 1e-3, 1.0 / (1.0 + np.exp(-forget))
    b = np.array([BIG, forget, 0.0, BIG])
    cell = GatedCell("lstm", np.array([[0.0], [0.0], [w], [0.0]]), np.zeros((4, 1)), b, None, -0.1, 0.1)
    claim = proof_of(cell)
    assert claim.proof.kind == "interval_jacobian"
    gain = layer_gain(cell, claim, None)
    T, x = 4000, np.zeros((2, 2))
    u, out = np.array([[1e-3], [-1e-3]]), 0.0
    for _ in range(T):
        x = cell.advance(x, u)
        out += float(x[0, 0] - x[1, 0]) ** 2
    reached = np.sqrt(out / (T * 4e-6))
    assert reached == pytest.approx(w / (1 - f), rel=0.02)
    assert reached <= gain
    assert gain <= 1.05 * max(1.0, 1.0 / f) * w / (1 - f)


def test_levels_multiply_and_layers_side_by_side_add_in_squares():
    one, two = linear(0.5, 3.0), linear(0.75, 2.0)
    stack, claims = LayerStack([one, two]), [proof_of_linear(one), proof_of_linear(two)]
    gain = combined_gain(stack, claims, None)
    assert 6.0 * 8.0 <= gain <= 6.0 * 8.0 * (1 + 1e-4)
    pair = LayerStack([one, two], directions=2)
    assert np.hypot(6.0, 8.0) <= combined_gain(pair, claims, None) <= np.hypot(6.0, 8.0) * (1 + 1e-4)
    head = np.array([[2.0, -1.0]])
    assert 12.0 + 8.0 <= combined_gain(pair, claims, head) <= 20.0 * (1 + 1e-4)
    assert 2.0 * 48.0 <= combined_gain(stack, claims, np.array([[-2.0]])) <= 96.0 * (1 + 1e-4)


def told(stack, claims, gain) -> Claim:
    data = {"layers": [pack(claim) for claim in claims], "gain": gain}
    draft = Claim("gain", "", Verdict.CERTIFIED, Proof("stack_gain", data), gain)
    return worded(stack, draft)


def test_the_least_accepted_gain_is_the_bound():
    one, two = linear(0.5, 3.0), linear(0.75, 2.0)
    stack, claims = LayerStack([one, two]), [proof_of_linear(one), proof_of_linear(two)]
    low, high = 1.0, 1000.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        valid = RULES["stack_gain"](stack, told(stack, claims, middle))[0]
        low, high = (low, middle) if valid else (middle, high)
    assert 48.0 <= high <= 48.0 * (1 + 1e-4)


@pytest.mark.parametrize("below", ["tanh", "gru"])
def test_what_a_gated_layer_may_read_lies_in_the_box_of_its_proof(below):
    """The level below puts out all of [-1, 1] (or of its own box): a box that is narrower by an ulp is refused."""
    upper = GatedCell("gru", 0.3 * np.ones((3, 1)), 0.1 * np.ones((3, 1)))
    if below == "tanh":
        lower = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[9.0]])
        end = 1.0
    else:
        lower = GatedCell("gru", 0.3 * np.ones((3, 1)), 0.1 * np.ones((3, 1)), input_low=-1.0, input_high=1.0)
        end = None
    first = proof_of(lower)
    ends = (-1.0, end) if end else (first.proof.data["low"][0], first.proof.data["high"][0])
    for low, high, valid in (
        (*ends, True),
        (ends[0], np.nextafter(ends[1], 0.0), False),
        (np.nextafter(ends[0], 0.0), ends[1], False),
        (0.5 * ends[0], 0.5 * ends[1], False),
    ):
        cell = upper.with_inputs(low, high)
        stack, claims = LayerStack([lower, cell]), [first, proof_of(cell)]
        gain = combined_gain(stack, claims, None)
        outcome = RULES["stack_gain"](stack, told(stack, claims, gain))
        assert outcome[0] is valid, (low, high, outcome)
        assert valid or "outside its input box" in outcome[1]


@pytest.mark.parametrize("size", [1e-170, 1e-200, 1e-300])
def test_an_input_that_hardly_acts_has_a_gain_that_is_not_zero(size):
    """Squares of such weights are zero in float64; the state still moves by ``w / 2`` of what the input does."""
    cell = GatedCell("gru", size * np.ones((3, 1)), 0.1 * np.ones((3, 1)), input_low=-1.0, input_high=1.0)
    lstm = GatedCell("lstm", size * np.ones((4, 1)), 0.1 * np.ones((4, 1)), input_low=-1.0, input_high=1.0)
    maps = linear(0.5, size), DrivenSystem(LureSystem([[0.5]], [[1.0]], [[0.0]], dt=1.0), "tanh", [[size]])
    claims = [proof_of(cell), proof_of(lstm), proof_of_linear(maps[0]), proof_of(maps[1])]
    for layer, claim in zip((cell, lstm, *maps), claims):
        gain = layer_gain(layer, claim, None)
        assert size / 4 <= gain < 1e-100
        stack = LayerStack([layer])
        assert RULES["stack_gain"](stack, told(stack, [claim], 1e-100))[0]
        for less in (0.0, 0.1 * size):
            assert "more than" in RULES["stack_gain"](stack, told(stack, [claim], less))[1]
        assert layer_gain(layer, claim, np.full((1, 1), 1e-200)) > 0.0
    twice = LayerStack([maps[0], maps[0]])
    assert combined_gain(twice, [claims[2]] * 2, None) > 0.0


def test_the_gain_is_rounded_up_once():
    """Parts whose gains are exact numbers: products and roots of them, never below, and by 1e-9 above."""
    one, two = linear(0.5, 3.0), linear(0.75, 2.0)
    gains = []
    for gain in (7.3, 8.9):
        data = {"measure": "l2", "horizon": None, "H": np.eye(1)}
        gains.append(Claim("gain", "", Verdict.CERTIFIED, Proof("gain_lmi", data), gain))
    exact = Fraction(7.3) * Fraction(8.9)
    assert exact < Fraction(combined_gain(LayerStack([one, two]), gains, None)) < exact * (1 + Fraction(2, 10**9))
    square = Fraction(7.3) ** 2 + Fraction(8.9) ** 2
    pair = Fraction(combined_gain(LayerStack([one, two], directions=2), gains, None)) ** 2
    assert square < pair < square * (1 + Fraction(3, 10**9))
    assert GROW == 1 + 1e-9
