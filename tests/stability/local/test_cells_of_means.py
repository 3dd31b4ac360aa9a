"""Heads on the mean: tolls and parts are bounds, the radius is that of the nearest run, and wrong files are refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from gated_specimens import GATES, cells_of, drawn, label_of, nearest, planes_of, searched
from test_cells_of_steps import nearest as nearest_of_steps
from test_togo import boxes, points, sloped, spent, step_of

from stability.gated.cell import GatedCell
from stability.local.after import Margins, Tolled
from stability.local.classifier import Classifier
from stability.local.gated_means import Means
from stability.local.gated_runs import GatedRuns
from stability.local.moves import least
from stability.local.parts import Part
from stability.local.togo import gated_moves, sides
from stability.rules import local_cells
from stability.rules.registry import RULES, accepted, propose
from stability.solve.deadline import Deadline
from tests.stability.local.work import Work

Array = np.ndarray
CASES = [("gru", 3, 3, 1), ("lstm", 2, 4, 1), ("gru", 1, 3, 2), ("gru", 2, 3, 2)]
PARTED = [("gru", 2, 19, 1), ("gru", 2, 8, 1), ("gru", 3, 33, 1)]
"""Where no price does for all runs."""
QUICK = [*CASES[:3], ("gru", 2, 8, 1)]
ALL = [pytest.param(*case, marks=[pytest.mark.slow] * (case not in QUICK)) for case in (*CASES, *PARTED)]


def averaged(kind: str, steps: int, seed: int, features: int = 1) -> tuple[Classifier, Array]:
    net, x = drawn(kind, steps, seed, features)
    return replace(net, reduction="mean"), x


@cache
def proof(kind: str, steps: int, seed: int, features: int = 1) -> tuple[Classifier, dict[str, Any], bool]:
    net, x = averaged(kind, steps, seed, features)
    claim, settled = searched(net, x)
    assert claim is not None
    return net, dict(claim.proof.data), settled


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """More boxes than what is true takes; what is false takes all that there are."""
    monkeypatch.setattr(local_cells, "ROOM", 60_000)


def told(net: Classifier, data: dict[str, Any]) -> tuple[bool, str]:
    return RULES["local_cells"](net, propose(net, "local_cells", data))


@pytest.mark.parametrize("toll", [-40.0, -0.5, 0.5])
@pytest.mark.parametrize("sizes", [(-9.0, -3.0), (-3.0, 0.0)])
@pytest.mark.parametrize(("kind", "q"), [("gru", 1), ("gru", 2), ("lstm", 1)])
def test_no_state_and_move_costs_less_with_a_toll(kind, q, sizes, toll):
    met, out = 0, 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        step = step_of(kind, q, rng)
        at, whole = boxes(step, rng, 300, sizes), sloped(step, rng, 1.0)
        middle = 0.5 * (whole.low + whole.high)
        cells = cells_of(rng, whole.low, middle + 0.1 * (whole.high - middle), 7, 5.0)  # a part: some runs leave it
        cells.bottom = -np.inf
        cells.value -= 4.0
        cells.lift()
        for after in (Tolled(cells, toll), Margins.tolled(toll, 0.3, Part.whole(0, 4).cut(4, float(middle[0]))[0])):
            found = least(step, after, at)
            for s, v in points(at, rng, 6):
                to = step.unit.cell.advance(s, v)
                inside = (
                    ((to >= cells.low) & (to <= cells.high)).all(axis=1)
                    if isinstance(after, Tolled) else to[:, 0] <= middle[0]
                )  # fmt: skip
                bound = cells.bound(to) + toll * to[:, 0] if isinstance(after, Tolled) else toll * (to[:, 0] - 4 * 0.3)
                assert (found.cost <= spent(at, s, v) + bound + 1e-10)[inside].all()
                met += int(inside.sum())
            out += int(np.isinf(found.cost).sum())
    assert met > 1000
    assert out > 100


def test_planes_with_a_toll_are_below_those_without_it_and_the_toll():
    rng = np.random.default_rng(0)
    for size in (1e-3, 1.0, 1e9):
        cells = cells_of(rng, np.array([0.3]), np.array([0.3 + 1e-6]), 4, size)
        cells.value = size * (cells.value + 1e3)
        cells.bottom = -np.inf
        cells.lift()
        low = rng.uniform(0.3, 0.3 + 9e-7, (200, 1))
        high = low + 1e-7 * rng.random((200, 1))
        for toll in (-0.7 * size, 0.3 * size, -1e6 / 3.0):
            for plain, own in zip(cells.pieces(low, high), Tolled(cells, toll).pieces(low, high)):
                for k in range(len(low)):
                    exact = Fraction(float(plain.value[k])) + Fraction(toll) * Fraction(float(plain.at[k, 0]))
                    assert Fraction(float(own.value[k])) <= exact
                    assert float(exact - Fraction(float(own.value[k]))) <= 1e-13 * (abs(plain.value[k]) + abs(toll))
                    ends = (Fraction(toll) * Fraction(float(end[k, 0])) for end in (low, high))
                    assert Fraction(float(own.least[k])) <= Fraction(float(plain.least[k])) + min(ends)
                assert (own.there == plain.there).all()
                assert np.allclose(own.slope, plain.slope + toll, rtol=1e-15, atol=0.0)


def test_the_last_toll_is_no_more_than_what_the_run_lacks():
    rng = np.random.default_rng(1)
    for steps in (1, 3, 7):
        for toll, at in rng.normal(size=(50, 2)) * 10.0 ** rng.uniform(-3.0, 5.0, (50, 1)):
            end, h = Margins.tolled(toll, at, Part.whole(0, steps)), rng.uniform(-1.0, 1.0, (20, 1))
            (piece,) = end.pieces(h, h)
            for k in range(len(h)):
                told = Fraction(float(piece.value[k])) + Fraction(float(piece.slope[k, 0])) * Fraction(float(h[k, 0]))
                exact = Fraction(toll) * (Fraction(float(h[k, 0])) - steps * Fraction(at))
                assert told <= exact
                assert float(exact - told) <= 1e-13 * steps * abs(toll) * (1.0 + abs(at))


@pytest.mark.parametrize("seed", range(6))
def test_sides_are_the_ends_of_the_means_that_keep_the_class(seed):
    net, x = averaged("gru", 2, seed)
    label, h = label_of(net, x), np.linspace(-1.0, 1.0, 20_001)
    end = sides(net, label)
    assert end is not None
    own = (h[:, None] * net.weight[:, 0] + net.bias).argmax(axis=1) == label
    inside = (h > end.low) & (h < end.high)
    assert own[inside].all()
    assert (own & ~inside).sum() <= 2
    assert len(end.sides) == (not own[0]) + (not own[-1])


@pytest.mark.parametrize(("kind", "steps", "seed", "features"), ALL)
def test_the_radius_is_that_of_the_nearest_run(kind, steps, seed, features):
    net, data, settled = proof(kind, steps, seed, features)
    true = nearest(net, data["x"])
    assert settled
    assert true * (1.0 - 1e-6) <= data["radius"] <= true * (1.0 + 1e-9)
    assert ("cuts" in data) is ((kind, steps, seed, features) in PARTED)
    assert told(net, data)[0]
    for part in (1.0 + 1e-6, 1.5):
        larger = {**data, "radius": part * true, "reach": max(data["reach"], part * true)}
        assert not told(net, larger)[0]


@pytest.mark.parametrize(
    ("kind", "steps", "seed", "features", "norm"),
    [
        pytest.param(*c, norm, marks=[pytest.mark.slow] * (c[0] == "lstm" or (norm == "l2") == (c[1] == 3)))
        for c in CASES
        for norm in ("l2", "linf")
    ],
)
def test_the_radius_of_steps_is_that_of_the_nearest_run(kind, steps, seed, features, norm):
    net, x = averaged(kind, steps, seed, features)
    more = {} if norm == "linf" else {"budget": "step"}
    claim, settled = searched(net, x, norm=norm, **more)
    true = nearest_of_steps(net, x, norm)
    assert settled
    assert claim is not None
    assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9)
    data = dict(claim.proof.data)
    for part in (1.0 + 1e-6, 1.5):
        assert accepted(net, "local_cells", {**data, "radius": part * true, "reach": part * true}) is None
    for part, kept in ((0.99, True), (1.001, False)) if kind == "gru" else ():
        claim, _ = searched(net, x, norm=norm, epsilon=part * true, **more)
        assert (claim is not None) is kept
    if norm == "l2" and steps > 1:
        del data["budget"]
        assert accepted(net, "local_cells", {**data, "radius": true, "reach": true}) is None


def test_a_radius_that_is_asked_for_is_decided():
    net, data, _ = proof("gru", 3, 3)
    true = nearest(net, data["x"])
    for part in (0.5, 1.0 - 1e-6):
        claim, settled = searched(net, data["x"], epsilon=part * true)
        assert settled
        assert claim.value == part * true
    for part in (1.0 + 1e-6, 2.0):
        assert searched(net, data["x"], epsilon=part * true) == (None, True)


def test_masked_and_clipped_entries_are_what_may_change():
    net, x = averaged("gru", 3, 3)
    mask, free = np.array([[True], [False], [True]]), nearest(net, x)
    true = nearest(net, x, mask)
    claim, _ = searched(net, x, mask=mask)
    assert true > 1.001 * free
    assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9)
    whole = {name: value for name, value in claim.proof.data.items() if name != "mask"}
    assert accepted(net, "local_cells", whole) is None
    bounds = (float(x.min()) - 0.3 * free, float(x.max()) + 0.3 * free)
    true, (claim, _) = nearest(net, x, bounds=bounds), searched(net, x, bounds=bounds)
    assert true > 1.001 * free
    assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("kind", sorted(GATES))
def test_a_class_that_never_changes_is_kept_in_a_large_ball(kind, norm):
    net, x = averaged(kind, 2, 0)
    net = replace(net, weight=0.3 * net.weight, bias=np.array([1.0, 0.0, 0.0]))
    claim, settled = searched(net, x, norm=norm)
    assert claim is not None
    assert claim.value >= 4.0
    assert not settled
    assert not told(net, {**claim.proof.data, "label": 1})[0]


def test_the_mean_is_that_of_all_outputs_and_not_the_last():
    net, data, _ = proof("gru", 3, 3)
    last = replace(net, reduction="last")
    holds, words = told(last, data)
    assert not holds
    assert "for heads on the mean" in words
    plain = {name: value for name, value in data.items() if name != "prices"}
    holds, words = told(net, {**plain, "low": data["low"][0], "high": data["high"][0]})
    assert not holds
    assert "have prices" in words


@pytest.mark.parametrize(("kind", "steps", "seed", "features"), ALL)
def test_planes_of_every_part_and_step_are_checked(kind, steps, seed, features):
    net, data, _ = proof(kind, steps, seed, features)
    checked = 0
    for own in planes_of(data):
        if not np.any(data["values"][own]):
            continue  # of a side where no other class is
        checked += 1
        for size in (1e-2, 1.0):
            values = data["values"].copy()
            values[own] += size * (np.abs(values[own]).max() + data["radius"] ** 2)
            assert not told(net, {**data, "values": values})[0]
    assert checked >= (steps - 1) * (1 + len(data.get("cuts", ())))


def test_a_price_of_another_part_proves_nothing():
    net, data, _ = proof("gru", 3, 33)
    assert len(data["cuts"]) == 1
    used = np.flatnonzero(data["prices"])
    assert len(used) >= 2
    for k in used:
        for part in (0.0, 0.5, 2.0):
            prices = data["prices"].copy()
            prices[k] *= part
            assert not told(net, {**data, "prices": prices})[0]


def test_cuts_that_leave_runs_out_are_refused():
    net, data, _ = proof("gru", 3, 33)
    (which, step, value), wide = data["cuts"][0], data["high"] - data["low"]
    moved = [value + way * part for way in (-1.0, 1.0) for part in (1e-2, 0.3, 5.0)]
    for changed in ([which, step, at] for at in moved):
        assert not told(net, {**data, "cuts": np.array([changed])})[0]
    other = 3.0 - step if step in (1.0, 2.0) else 1.0
    assert not told(net, {**data, "cuts": np.array([[which, other, value]])})[0]
    assert not told(net, {**data, "cuts": np.array([[1.0 - which, step, value]])})[0]
    for end, sign in (("low", 1.0), ("high", -1.0)):
        ends = data[end] + sign * 0.3 * wide
        holds, words = told(net, {**data, end: ends})
        assert not holds
        assert "lead out" in words


def test_what_does_not_fit_is_refused_in_its_words():
    net, data, _ = proof("gru", 3, 33)
    cuts, prices, low = data["cuts"], data["prices"], data["low"]
    for changes, words in (
        ({"prices": prices[:-1]}, "have prices (2,), and one more"),
        ({"prices": -prices}, "numbers from zero"),
        ({"prices": np.full(len(prices), 1e12)}, "numbers from zero, below 1e12"),
        ({"cuts": cuts[:, :2]}, "cuts must be (s, 3)"),
        ({"cuts": cuts[0]}, "cuts are for heads on the mean with a total budget"),
        ({"cuts": np.zeros((0, 3))}, "cuts are for"),
        ({"cuts": np.zeros((257, 3))}, "cuts are for"),
        ({"cuts": np.array([[2.0, 1.0, 0.0]])}, "a part that is there"),
        ({"cuts": np.array([[0.5, 1.0, 0.0]])}, "a part that is there"),
        ({"cuts": np.array([[0.0, 0.0, 0.0]])}, "a step from one on"),
        ({"cuts": np.array([[0.0, 4.0, 0.0]])}, "a step from one on"),
        ({"low": low[0]}, "low and high must be"),
        ({"low": low[:2], "high": data["high"][:2]}, "low and high must be (3, 2, 1)"),
        ({"budget": "step"}, "cuts are for heads on the mean with a total budget"),
    ):
        holds, said = told(net, {**data, **changes})
        assert not holds, words
        assert words in said, (words, said)


def test_a_part_without_runs_needs_no_proof_and_one_with_runs_does():
    net, data, _ = proof("gru", 3, 3)
    side = int(np.flatnonzero(data["prices"])[0])
    spare = 1 - side
    far = float(data["high"][side, 0, 0]) + 1.0
    more = {"prices": np.append(data["prices"], 0.0), "low": np.concatenate([data["low"], data["low"][[spare]]])}
    more |= {"high": np.concatenate([data["high"], data["high"][[spare]]])}
    count = data["low"].shape[1]
    more |= {"cut": np.append(data["cut"], np.zeros(count)), "values": np.append(data["values"], np.zeros(count))}
    more |= {"slopes": np.concatenate([data["slopes"], np.zeros((count, 1))]), "cuts": np.array([[side, 1.0, far]])}
    assert told(net, {**data, **more})[0]
    states = net.recurrent.advance(net.start[None], data["x"][:1])
    for at in (float(states[0, 0]), -1.0):
        holds, _ = told(net, {**data, **more, "cuts": np.array([[side, 1.0, at]])})
        assert not holds


@pytest.mark.parametrize("radius", [1e-150, 1e-160, 1e-170])
def test_squares_that_underflow_prove_nothing(radius):
    cell = GatedCell("gru", np.array([[0.0], [0.0], [1.0]]), np.zeros((3, 1)))  # the next state is about half the input
    net = Classifier(cell, np.array([[-1.0], [0.0]]), np.array([0.1 * radius, 0.0]), "mean")
    x, empty = np.zeros((1, 1)), np.zeros((2, 0, 1))
    assert net.logits(np.array([[[0.5 * radius]]]))[0].argmax() == 1
    data = {"x": x, "label": 0, "norm": "l2", "radius": radius, "reach": radius, "low": empty, "high": empty}
    data |= {"cut": np.zeros(0), "values": np.zeros(0), "slopes": np.zeros((0, 1))}
    for price in (0.0, radius, 1.0, 1e11):
        for norm, more in (("l2", {}), ("l2", {"budget": "step"}), ("linf", {})):
            assert not told(net, {**data, **more, "norm": norm, "prices": np.full(2, price)})[0]


@pytest.mark.parametrize("reduction", ["last", "mean"])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_heads_whose_differences_overflow_prove_nothing(norm, reduction):
    cell = GatedCell("gru", np.array([[0.0], [0.0], [1.0]]), np.zeros((3, 1)))
    net = Classifier(cell, np.array([[-1.2e308], [1.2e308]]), np.array([-1.2e308, 1.2e308]), reduction)
    empty = np.zeros((2, 0, 1) if reduction == "mean" else (0, 1))
    data = {"x": np.zeros((1, 1)), "label": 0, "norm": norm, "radius": 1.0, "reach": 1.0, "low": empty, "high": empty}
    data |= {"cut": np.zeros(0), "values": np.zeros(0), "slopes": np.zeros((0, 1))}
    data |= {"prices": np.ones(2)} if reduction == "mean" else {}
    with np.errstate(all="ignore"):
        assert not told(net, data)[0]
        assert sides(net, 0) is None


def test_many_parts_of_many_steps_are_refused_in_time(monkeypatch):
    net, x = averaged("gru", 500, 3)
    count, steps = 258, 500
    Work.at_most(local_cells.ROOM, monkeypatch)
    data = {"x": x, "label": label_of(net, x), "norm": "l2", "radius": 1e-3, "reach": 1e-3}
    none = (count, steps - 1, 1)
    data |= {"low": np.full(none, -2.0), "high": np.full(none, 2.0), "cut": np.zeros(count * (steps - 1))}
    data |= {"values": np.zeros(count * (steps - 1)), "slopes": np.zeros((count * (steps - 1), 1))}
    cuts = np.array([[0.0, 1.0, -3.0 - k] for k in range(count - 2)])
    holds, words = told(net, {**data, "prices": np.ones(count), "cuts": cuts})
    assert not holds
    assert words == f"it takes more than {local_cells.ROOM} boxes"


def test_runs_read_means_and_their_slopes():
    for kind in GATES:
        net, x = averaged(kind, 5, 1, 2)
        runs = GatedRuns(gated_moves(net, x, 3.0), net.start, True)
        y = np.random.default_rng(0).normal(size=runs.parts[-1].stop)
        moved = x + y.reshape(x.shape)
        mean = net.recurrent.advance
        states, s = [], net.start
        for u in moved:
            s = mean(s, u)
            states.append(s[0])
        read, slope = runs.read(y)
        assert np.isclose(read, np.mean(states), rtol=1e-12)
        near = [(runs.read(y + 1e-6 * e)[0] - runs.read(y - 1e-6 * e)[0]) / 2e-6 for e in np.eye(len(y))]
        assert np.allclose(slope, near, atol=1e-8)


def test_cheapest_runs_stay_in_their_part():
    net, x = averaged("gru", 3, 33)
    runs = GatedRuns(gated_moves(net, x, 3.0), net.start, True)
    zero, part = np.zeros(3), Part.whole(1, 3)
    end = sides(net, label_of(net, x))
    assert end is not None
    (side,) = end.sides[:1]
    free = runs.cheapest(5.0, side, part, zero)
    h = float(runs.states(free.moves)[2, 0])
    for own in part.cut(2, h - 0.05) + part.cut(2, h + 0.05):
        met = runs.cheapest(5.0, side, own, zero)
        state = float(runs.states(met.moves)[2, 0])
        assert own.low[2] - 1e-8 <= state <= own.high[2] + 1e-8
        assert met.at(5.0) >= free.at(5.0) - 1e-9


def test_time_is_kept_and_what_is_proved_by_then_is_told():
    net, x = averaged("lstm", 10, 3)
    claim, settled = searched(net, x, 0.5)
    assert not settled
    assert claim is None or told(net, dict(claim.proof.data))[0]
    end = sides(net, label_of(net, x))
    assert end is not None
    search = Means(GatedRuns(gated_moves(net, x, 3.0), net.start, True), end, Deadline.after(0.0))
    assert not search.raised(None, np.inf, 9.0, 1000).value > 0.0
