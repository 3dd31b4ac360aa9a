"""The composition of a stack at its edge: small stacks whose overshoot and input action are known exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from specimens import linear, proof_of_linear

from stability import LayerStack, certify
from stability.errors import ConfigurationError, FileFormatError
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.serialization import decode, encode
from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.theorems.stack_contraction import _merge, compose, layer_norm
from stability.proposals import pack
from stability.systems import DrivenSystem, LureSystem

BIG = 40.0  # a gate with this bias is 0 or 1 to 1e-17


def composed(layers, tolerance=1e-3):
    return compose(LayerStack(layers), [proof_of_linear(layer) for layer in layers], tolerance)


@pytest.mark.parametrize(("a", "b"), [(0.9, 0.3), (0.3, 0.9), (0.8, 0.79), (0.5, 0.01)])
@pytest.mark.parametrize("g", [0.1, 3.0, 50.0])
def test_two_maps(a, b, g):
    """From (1, 0): the lower decays like a^t, the upper reaches ``g a (a^t - b^t) / (a - b)``."""
    rate, overshoot = composed([linear(a, 1.0), linear(b, g)])
    assert max(a, b) <= rate < 1.0
    t = np.arange(1, 600)
    gap = np.hypot(a**t, g * a * (a**t - b**t) / (a - b))
    needed = float((gap / rate**t).max())
    assert overshoot >= needed
    limit = g * max(a, b) / abs(a - b)  # what the geometric sum gives
    assert overshoot <= math.sqrt(2.0 + limit**2) * 1.1


@pytest.mark.parametrize(("a", "b"), [(1.0, 3.0), (3.0, 1.0), (2.0, 2.1)])
@pytest.mark.parametrize("g", [0.1, 3.0, 50.0])
def test_two_flows(a, b, g):
    rate, overshoot = composed([linear(a, 1.0, discrete=False), linear(b, g, discrete=False)])
    assert 0.0 < rate <= min(a, b)
    t = np.linspace(0.0, 30.0, 4000)
    gap = np.hypot(np.exp(-a * t), g * (np.exp(-a * t) - np.exp(-b * t)) / (b - a))
    assert overshoot >= float((gap / np.exp(-rate * t)).max())
    assert overshoot <= math.sqrt(2.0 + (g / abs(a - b)) ** 2) * 1.1


@pytest.mark.parametrize("tolerance", [1e-3, 0.1, 0.5])
def test_equal_rates(tolerance):
    """Both decay like a^t: the upper one is ``g t a^t``, so no bound holds at the rate a itself."""
    a, g = 0.7, 2.0
    rate, overshoot = composed([linear(a, 1.0), linear(a, g)], tolerance)
    assert rate == pytest.approx(a + tolerance * (1 - a), rel=1e-6)
    t = np.arange(1, 20_000)
    assert overshoot >= float((np.hypot(1.0, g * t) * np.exp(t * math.log(a / rate))).max())
    flows = [linear(1.0, 1.0, discrete=False), linear(1.0, g, discrete=False)]
    rate, overshoot = composed(flows, tolerance)
    assert rate == pytest.approx(1.0 - tolerance, rel=1e-6)
    t = np.linspace(0.0, 20.0 / tolerance, 20_000)
    assert overshoot >= float((np.hypot(1.0, g * t) * np.exp((rate - 1.0) * t)).max())


def test_three_maps_add_up():
    """The third level sees what the second makes of the first, and the second itself."""
    layers = [linear(0.9, 1.0), linear(0.5, 4.0), linear(0.2, 5.0)]
    rate, overshoot = composed(layers)
    A = np.array([[0.9, 0.0, 0.0], [3.6, 0.5, 0.0], [18.0, 2.5, 0.2]])
    power, needed = np.eye(3), 1.0
    for t in range(1, 300):
        power = A @ power
        needed = max(needed, float(np.linalg.norm(power, 2)) / rate**t)
    assert needed <= overshoot <= 3 * needed


# ---- what a unit of input adds in one step --------------------------------------------------------------------


def action(cell, low, high, row):
    """Return the rule's bound of the effect of a unit input difference on entry ``row`` of the next state."""
    d = np.full(cell.states, 1e9)
    d[row] = 1.0
    data = {"low": np.asarray(low, float), "high": np.asarray(high, float), "d": d}
    claim = Claim("contraction", "", Verdict.CERTIFIED, Proof("interval_jacobian", data), 0.5)
    norm = layer_norm(cell, claim)
    return norm.gain


def one_gate(kind, name, w, recurrent=0.0, bias=0.0, *, reset_after=True, rest=None) -> GatedCell:
    names = "ifgo" if kind == "lstm" else "rzn"
    w_ih, w_hh, b = (np.zeros((len(names), 1)) for _ in range(3))
    w_ih[names.index(name)] = w
    b_hh = np.zeros(len(names))
    for key, value in (rest or {}).items():
        b[names.index(key)] = value
    if kind == "gru":
        w_hh[2], b_hh[2] = recurrent, bias
    return GatedCell(kind, w_ih, w_hh, b[:, 0], b_hh, reset_after=reset_after)


@pytest.mark.parametrize(
    ("gate", "rest", "row", "state", "expected"),
    [
        ("f", {}, 1, [0.0, 3.0], 0.25 * 3.0),
        ("i", {"g": BIG}, 1, [0.0, 3.0], 0.25),
        ("g", {"i": BIG}, 1, [0.0, 3.0], 1.0),
        ("o", {"f": BIG, "i": -BIG}, 0, [0.0, 30.0], 0.25),
        ("g", {"i": BIG, "o": BIG, "f": -BIG}, 0, [0.0, 0.0], 1.0),
    ],
)
def test_the_input_action_of_an_lstm_is_reached(gate, rest, row, state, expected):
    """One gate reads the input, the others are open or shut: the derivative at a point is the bound over the box."""
    w = 1.7
    cell, x = one_gate("lstm", gate, w, rest=rest), np.array(state)
    reached = abs(cell.input_jacobian(x, np.zeros(1))[row, 0])
    assert reached == pytest.approx(expected * w, rel=1e-9)
    bound = action(cell, -np.abs(x) - np.array([1.0, 0.0]), np.abs(x) + np.array([1.0, 0.0]), row)
    assert reached <= bound * (1 + 1e-12)
    assert bound <= reached * (1 + 1e-6)


@pytest.mark.parametrize(
    ("gate", "rest", "recurrent", "bias", "after", "expected"),
    [
        ("z", {"n": BIG}, 0.0, 0.0, True, 0.25 * (1.0 + 0.6)),
        ("n", {"z": -BIG}, 0.0, 0.0, True, 1.0),
        ("n", {"z": -BIG}, 0.0, 0.0, False, 1.0),
        ("r", {"z": -BIG, "n": 0.5 * 2.0 * 0.6 - 0.35}, 2.0, 0.7, True, 0.25 * (2.0 * 0.6 - 0.7)),
        ("r", {"z": -BIG, "n": 0.5 * 2.0 * 0.6}, 2.0, 0.0, True, 0.25 * 2.0 * 0.6),
        ("r", {"z": -BIG, "n": -0.35}, 0.0, 0.7, True, 0.25 * 0.7),
        ("r", {"z": -BIG, "n": 0.5 * 2.0 * 0.6}, 2.0, 0.0, False, 0.25 * 2.0 * 0.6),
    ],
)
def test_the_input_action_of_a_gru_is_reached(gate, rest, recurrent, bias, after, expected):
    w, h = 1.7, np.array([-0.6])
    cell = one_gate("gru", gate, w, recurrent, bias, reset_after=after, rest=rest)
    reached = abs(cell.input_jacobian(h, np.zeros(1))[0, 0])
    assert reached == pytest.approx(expected * w, rel=1e-6)
    bound = action(cell, [-0.6], [0.6], 0)
    assert reached <= bound * (1 + 1e-12)
    assert bound <= w * 0.25 * (2.0 * 0.6 + 0.7) * (1 + 1e-6) if bias and recurrent else bound <= reached * (1 + 1e-6)


def test_a_cancelled_product_counts_in_full():
    """The midpoint's B holds ``dt^2 / 2 A B``: the float product is a tenth short of the exact one."""
    A = np.array([[1.1, -1.1], [0.0, 0.0]])
    B = np.array([[1.0], [1.0 + 2.0**-52]])
    system = LureSystem(A, B, np.zeros((1, 2))).midpoint(0.5)
    E = np.array([[1.0], [0.0]])  # only the channel of the half step reads the input
    layer = DrivenSystem(system, "tanh", E)
    data = {"P": np.eye(2), "p_min": 1.0, "p_max": 1.0}
    norm = layer_norm(layer, Claim("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", data), 0.5))
    exact = [Fraction(0.125) * sum(Fraction(a) * Fraction(b) for a, b in zip(row, B[:, 0])) for row in A]
    stored = [Fraction(x) for x in system.B[:, 0]]
    assert abs(stored[0]) < abs(exact[0]) * Fraction(95, 100)
    assert Fraction(norm.gain) ** 2 >= sum(x * x for x in exact)


def test_channels_that_feed_channels_pass_the_input_on():
    """z2 = d phi(z1), z1 = e u: with slopes one the input moves x by ``|b1| e + |b2| d e``."""
    system = LureSystem(np.zeros((1, 1)), [[0.3, 0.5]], np.zeros((2, 1)), [[0.0, 0.0], [4.0, 0.0]], dt=1.0)
    layer = DrivenSystem(system, "tanh", [[2.0], [0.0]])
    data = {"P": np.eye(1), "p_min": 1.0, "p_max": 1.0}
    norm = layer_norm(layer, Claim("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", data), 0.5))
    exact = 0.3 * 2.0 + 0.5 * 4.0 * 2.0
    assert not isinstance(norm, str), norm
    seen = float((layer.advance(np.zeros(1), np.array([1e-6])) - layer.advance(np.zeros(1), np.zeros(1)))[0]) / 1e-6
    assert seen == pytest.approx(exact, rel=1e-6)
    assert exact <= norm.gain <= exact * (1 + 1e-6)


def test_a_stack_with_a_midpoint_layer_is_certified(rng):
    below = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.4]], dt=1.0), "tanh", [[1.0]])
    flow = LureSystem.recurrent(-2.0 * np.eye(2), 0.3 * np.eye(2))
    above = DrivenSystem(flow.midpoint(0.1), "tanh", np.ones((4, 1)))
    stack = LayerStack([below, above])
    certificate = certify(stack, rate="any")
    assert certificate.verdict is Verdict.CERTIFIED
    x, y = rng.normal(size=(2, 50, 3))
    start = np.linalg.norm(x - y, axis=1)
    for k in range(1, 40):
        u = rng.normal(size=(50, 1))
        x, y = stack.advance(x, u), stack.advance(y, u)
        assert (np.linalg.norm(x - y, axis=1) <= certificate.overshoot * certificate.rate**k * start).all()


# ---- rates that meet, and roundings -----------------------------------------------------------------------------


@pytest.mark.parametrize("swap", [False, True])
def test_rates_closer_than_the_tolerance_are_kept_apart(swap):
    """In binary fractions everything is exact: ``R`` and ``R / |R - rho|`` (``1 / |R - lambda|``)."""

    def merge(own, below, tolerance, discrete):
        return _merge(*((below, own) if swap else (own, below)), tolerance, discrete)

    assert merge(0.5, 0.375, 0.25, True) == (0.5, 4.0)  # just far enough apart
    assert merge(0.5, 0.375, 0.5, True) == (0.75, 3.0)
    assert merge(0.5, 0.5, 0.25, True) == (0.625, 5.0)
    assert merge(0.5, 0.625, 0.25, False) == (0.5, 8.0)
    assert merge(0.5, 0.625, 0.5, False) == (0.25, 4.0)
    assert merge(2.0, 2.0, 0.25, False) == (1.5, 2.0)
    for discrete in (True, False):  # a tolerance that rounding swallows keeps nothing apart
        assert merge(0.5, 0.5, 1e-300, discrete) == (0.5, math.inf)
    layers = [linear(0.7, 1.0), linear(0.7, 2.0)]
    with np.errstate(invalid="ignore"):  # as in a rule
        assert "finite overshoot" in composed(layers, 1e-300)


def test_a_stack_whose_rates_cannot_be_told_apart_is_refused():
    layers = [linear(0.7, 1.0), linear(0.7, 2.0)]
    parts = [pack(proof_of_linear(layer)) for layer in layers]
    for tolerance, valid in ((0.1, True), (1e-300, False)):
        data = {"layers": parts, "rate": 0.75, "overshoot": 1e3, "tolerance": tolerance}
        claim = Claim("contraction", "", Verdict.CERTIFIED, Proof("cascade", data), 0.75)
        answer = RULES["cascade"](LayerStack(layers), claim)
        assert answer[0] is valid
        assert valid or answer[1] == "the layers' bounds do not give a finite overshoot and a rate"


def test_inputs_by_both_doors_add_up():
    """``x+ = 2 phi(3 u) + 5 u``: the two ways of the input into the state."""
    layer = DrivenSystem(LureSystem([[0.0]], [[2.0]], [[0.0]], dt=1.0), "tanh", [[3.0]], F=[[5.0]])
    data = {"P": np.eye(1), "p_min": 1.0, "p_max": 1.0}
    norm = layer_norm(layer, Claim("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", data), 0.5))
    assert norm.gain == pytest.approx(11.0, rel=1e-14)


def test_channels_that_feed_each_other_in_a_circle_have_no_bound():
    data = {"P": np.eye(1), "p_min": 1.0, "p_max": 1.0}
    claim = Claim("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", data), 0.5)
    for D, known in (([[0.0, 0.0], [0.1, 0.0]], True), ([[0.0, 0.1], [0.1, 0.0]], False), ([[0.1, 0], [0, 0]], False)):
        system = LureSystem([[0.0]], [[1.0, 1.0]], np.zeros((2, 1)), D, dt=1.0)
        norm = layer_norm(DrivenSystem(system, "tanh", [[1.0], [1.0]]), claim)
        assert (norm != "no bound is known for how the input acts on it") is known


def test_both_directions_of_a_level_read_both_of_the_level_below():
    """Rates 1/2 below and 1/4 above: ``h = (1/2) / (1/4) = 2``; the rows of the bound are known entry by entry."""
    below, above = (
        linear(0.5, 1.0),
        DrivenSystem(LureSystem.linear([[0.25]], 1.0), "identity", np.zeros((0, 2)), None, [[3.0, 4.0]]),
    )
    data = {"P": np.eye(1), "L": np.zeros(0), "p_min": 1.0, "p_max": 1.0}
    claims = [
        Claim("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", data), rate)
        for rate in (0.5, 0.5, 0.25, 0.25)
    ]
    rate, overshoot = compose(LayerStack([below, below, above, above], directions=2), claims, 0.1)
    rows = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [10.0, 10.0, 1.0, 0], [10.0, 10.0, 0, 1.0]])
    assert rate == 0.5
    assert overshoot == pytest.approx(float(np.linalg.norm(rows)) * (1 + 1e-9), rel=1e-14)


@pytest.mark.parametrize("discrete", [True, False])
def test_a_stack_decays_no_faster_than_its_slowest_level(discrete):
    layers = [linear(0.7, 1.0, discrete=discrete), linear(0.3, 2.0, discrete=discrete)]
    claims = [proof_of_linear(layer) for layer in layers]
    rate, overshoot = compose(LayerStack(layers), claims, 0.1)
    data = {"layers": [pack(claim) for claim in claims], "overshoot": overshoot, "tolerance": 0.1}

    def answer(rate: float) -> tuple[bool, str]:
        claim = Claim("contraction", "", Verdict.CERTIFIED, Proof("cascade", {**data, "rate": rate}), rate)
        return RULES["cascade"](LayerStack(layers), claim)

    assert answer(rate)[0]
    valid, reason = answer(float(np.nextafter(rate, 0.0 if discrete else 9.0)))
    assert not valid
    assert reason.startswith(f"the layers give the rate {rate}, not ")
    assert answer(0.5 * (rate + 1.0) if discrete else 0.5 * rate)[0]


def test_the_overshoot_of_one_layer_is_rounded_up_once():
    layer = linear(0.5, 1.0)
    data = {"P": np.eye(1), "p_min": 0.3, "p_max": 7.1}
    claim = Claim("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", data), 0.5)
    rate, overshoot = compose(LayerStack([layer]), [claim], 0.1)
    square = Fraction(7.1) / Fraction(0.3)
    assert rate == 0.5
    assert square < Fraction(overshoot) ** 2 < square * (1 + Fraction(3, 10**9))
    cell = GatedCell("gru", np.zeros((3, 1)), np.zeros((3, 1)))
    d = {"low": np.full(1, -0.5), "high": np.full(1, 0.5), "d": np.full(1, 3.0)}
    claim = Claim("contraction", "", Verdict.CERTIFIED, Proof("interval_jacobian", d), 0.75)
    assert compose(LayerStack([cell]), [claim], 0.1) == (0.75, 1.0 + 1e-9)
    assert layer_norm(layer, Claim("contraction", "", Verdict.CERTIFIED)) == "there is no proof"


def test_a_wide_layer_between_the_norms_of_its_entries():
    """``|x|_2 <= sqrt(n) max d V`` and ``V <= |x|_2 / min d``; the gain is the largest ``action / d``."""
    cell = GatedCell("gru", np.array([[0.0], [0.0], [0.0], [0.0], [1.0], [3.0]]), np.zeros((6, 2)))
    data = {"low": np.zeros(2), "high": np.zeros(2), "d": np.array([0.5, 4.0])}
    norm = layer_norm(cell, Claim("contraction", "", Verdict.CERTIFIED, Proof("interval_jacobian", data), 0.5))
    assert (norm.rate, norm.into) == (0.5, 2.0)
    assert norm.out == pytest.approx(math.sqrt(2.0) * 4.0, rel=1e-14)
    assert norm.gain == pytest.approx(2.0, rel=1e-14)
    data = {"P": np.eye(2), "p_min": 0.25, "p_max": 9.0}
    flow = DrivenSystem(LureSystem(-np.eye(2), np.eye(2), np.zeros((2, 2))), "tanh", np.array([[3.0], [4.0]]))
    norm = layer_norm(flow, Claim("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", data), 0.5))
    assert (norm.into, norm.out) == (3.0, 2.0)
    odd = Claim("contraction", "", Verdict.CERTIFIED, Proof("unknown", data), 0.5)
    assert layer_norm(flow, odd) == "a proof of kind unknown states no norm that a stack can use"
    assert norm.gain == pytest.approx(15.0, rel=1e-14)


def test_both_directions_are_promised_one_input():
    """The sentence names one box; the proof of the other direction would rest on another one."""

    def cell(low, high):
        return GatedCell("gru", np.ones((3, 1)), np.zeros((3, 1)), input_low=low, input_high=high)

    plain = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
    for pair in (
        [plain, cell(-1, 1)],
        [cell(-1, 1), plain],
        [cell(-9, 9), cell(-1, 1)],
        [cell(None, None), cell(-1, 1)],
    ):
        with pytest.raises(ConfigurationError, match="same input box"):
            LayerStack(pair, directions=2)
    assert LayerStack([cell(-1, 1), cell(-1, 1)], directions=2).with_inputs(-2, 2).layers[1].input_low[0] == -2
    file = encode(LayerStack([cell(-9, 9), cell(-9, 9)], directions=2))
    file["layers"][1] = encode(cell(-1, 1))
    with pytest.raises(FileFormatError, match="same input box"):
        decode(file)
