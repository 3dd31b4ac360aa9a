"""Rule ``local_cells`` on files that are not what they should be: each is refused, and in few words says why."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from gated_specimens import drawn, label_of, nearest, planes_of, searched

from stability.gated.cell import GatedCell
from stability.local.classifier import Classifier
from stability.local.togo import gated_moves, image
from stability.rules import local_cells
from stability.rules.registry import RULES, accepted, propose
from tests.stability.local.work import Work

Array = np.ndarray
KINDS = {"gru": (3, 3), "lstm": (2, 4)}
"""Steps and seeds."""
ROOM = 40_000
UNPROVED = ("class is not proved", f"more than {ROOM} boxes")


@cache
def proof(kind: str) -> tuple[Classifier, dict[str, Any]]:
    net, x = drawn(kind, *KINDS[kind])
    claim, _ = searched(net, x)
    assert claim is not None
    return net, dict(claim.proof.data)


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """More boxes than what is true takes; what is false takes all that there are."""
    monkeypatch.setattr(local_cells, "ROOM", ROOM)


def told(net: Classifier, data: dict[str, Any]) -> tuple[bool, str]:
    return RULES["local_cells"](net, propose(net, "local_cells", data))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_radii_that_are_too_large_are_refused(kind):
    net, data = proof(kind)
    assert told(net, data)[0]
    for part in (1.0 + 1e-6, 1.0 + 1e-3, 2.0):
        changes = {"radius": part * data["radius"], "reach": part * data["reach"]}
        assert told(net, {**data, **changes})[0] is False
    holds, words = told(net, {**data, "radius": data["radius"] * (1.0 + 1e-6)})
    assert not holds
    assert any(part in words for part in UNPROVED)
    assert told(net, {**data, "radius": 0.5 * data["radius"]})[0]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_not_looked_at_proves_nothing(kind):
    """Within a small reach the class stays, whatever moves beyond it do."""
    net, data = proof(kind)
    true = nearest(net, data["x"])
    for radius in (1.01 * true, 5.0 * true):
        for reach in (0.5 * true, data["reach"]):
            holds, words = told(net, {**data, "radius": radius, "reach": reach})
            assert not holds
            assert words == "reach must not be less than the radius"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_planes_of_every_step_are_checked(kind):
    net, data = proof(kind)
    for own in planes_of(data):
        for change in ("values", "slopes"):
            for size in (1e-3, 1.0):
                wrong = data[change].copy()
                wrong[own] += size * data["radius"] ** 2
                holds, words = told(net, {**data, change: wrong})
                assert not holds, (change, size)
                assert any(part in words for part in UNPROVED)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_plane_is_checked(kind):
    net, data = proof(kind)
    some = np.flatnonzero(data["values"] > 0.3 * data["radius"] ** 2)[::20]
    refused = 0
    for k in some:
        values = data["values"].copy()
        values[k] += 0.1 * data["radius"] ** 2
        refused += not told(net, {**data, "values": values})[0]
    assert len(some) > 1
    assert refused > 0.5 * len(some)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_boxes_that_runs_leave_are_refused(kind):
    net, data = proof(kind)
    wide = data["high"] - data["low"]
    for t in range(len(wide)):
        for j in range(wide.shape[1]):
            for end, sign in (("low", 1.0), ("high", -1.0)):
                for part in (1e-4, 0.3):
                    ends = data[end].copy()
                    ends[t, j] += sign * part * wide[t, j]
                    holds, words = told(net, {**data, end: ends})
                    assert not holds
                    assert words == "moves within reach lead out of low and high"


def test_small_boxes_hide_no_run_that_changes_the_class():
    net, data = proof("gru")
    radius, run = 1.2 * nearest(net, data["x"]), net.start[None]
    low = []
    for u in data["x"][:-1]:
        run = net.recurrent.advance(run, u[None])
        low.append(run[0] - 1e-3)
    count, d = len(low), len(net.start)
    small = {"low": np.array(low), "high": np.array(low) + 2e-3, "cut": np.zeros(count)}
    small |= {"values": np.full(count, 10.0), "slopes": np.zeros((count, d))}
    for values in (10.0, 1.0, radius**2, 0.0):
        small["values"] = np.full(count, values)
        holds, words = told(net, {**data, **small, "radius": radius, "reach": radius})
        assert not holds
        assert "lead out" in words


def changed(data: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    cut, values, slopes, low = (data[name] for name in ("cut", "values", "slopes", "low"))
    one, other = cut.copy(), cut.copy()
    one[-1], other[0] = 1.0, 0.5
    fewer = {"values": values[:-1], "slopes": slopes[:-1]}
    more = {"values": np.append(values, 0.0), "slopes": np.concatenate([slopes, slopes[:1]])}
    deep = np.tile(np.append(1.0, np.zeros(2 ** slopes.shape[1] - 1)), 60)[:-1]
    leaves = int((deep == 0).sum())
    return [
        ({"norm": "linf"}, "more than"),
        ({"norm": "l1"}, "the norm"),
        ({"budget": "step"}, "more than"),
        ({"budget": "month"}, "budget is"),
        ({"bounds": (50.0, 51.0)}, "within the bounds"),
        ({"mask": 0.5 * np.ones_like(data["x"])}, "mask must be"),
        ({"label": 3}, "none of the network's classes"),
        ({"reach": 1e12}, "reach must"),
        ({"reach": float(np.nextafter(data["radius"], 0.0))}, "reach must"),
        ({"low": low[1:]}, "low and high must be"),
        ({"low": data["high"], "high": low}, "low must be below high"),
        ({"cut": cut[:-1]}, "values and slopes must be of"),
        ({"cut": cut[:-1], **fewer}, "cut ends too soon"),
        ({"cut": np.append(cut, 0.0)}, "values and slopes must be of"),
        ({"cut": np.append(cut, 0.0), **more}, "cut goes on"),
        ({"cut": one}, "values and slopes must be of"),
        ({"cut": one, **fewer}, "cut ends too soon"),
        ({"cut": deep, "values": np.zeros(leaves), "slopes": np.zeros((leaves, slopes.shape[1]))}, "too deep"),
        ({"cut": other}, "zeros and ones"),
        ({"cut": cut[None]}, "cut must be"),
        ({"cut": np.zeros(400_001)}, "cut must be"),
        ({"values": values[:-1]}, "values and slopes must be of"),
        ({"slopes": slopes[:, :0]}, "values and slopes must be of"),
        ({"values": values + 1e13}, "below 1e12"),
        ({"slopes": slopes - 1e13}, "below 1e12"),
        ({"low": low - 1e13}, "below 1e12"),
        ({"x": np.zeros((501, 1))}, "more than 500 steps"),
    ]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_does_not_fit_is_refused_in_its_words(kind):
    net, data = proof(kind)
    for changes, words in changed(data):
        holds, said = told(net, {**data, **changes})
        assert not holds, words
        assert words in said, (words, said)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_other_networks_are_refused(kind):
    net, data = proof(kind)
    rows = len(net.recurrent.w_hh)
    wide = Classifier(GatedCell(kind, np.ones((2 * rows, 1)), np.ones((2 * rows, 2))), np.ones((3, 2)))
    mean = Classifier(net.recurrent, net.weight, net.bias, "mean")
    for subject, words in ((wide, "gates of one unit"), (mean, "heads on the mean have prices")):
        holds, said = told(subject, data)
        assert not holds
        assert words in said


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_flags_at_random_are_refused(kind):
    net, data = proof(kind)
    for k in range(0, len(data["cut"]), 7):
        cut = data["cut"].copy()
        cut[k] = 1.0 - cut[k]
        leaves = int((cut == 0).sum())
        rows = np.arange(leaves) % len(data["values"])
        more = {"cut": cut, "values": data["values"][rows], "slopes": data["slopes"][rows]}
        assert not told(net, {**data, **more})[0], k


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(("kind", "seed"), [("gru", 3), ("lstm", 4)])
def test_numbers_that_overflow_prove_nothing_that_is_false(kind, seed, steps):
    met = 0
    for scale in 10.0 ** np.array([3, 20, 76, 99, 140, 150, 155, 160, 290]):
        net, x = drawn(kind, steps, seed, scale=float(scale))
        label, d = label_of(net, x), len(net.start)
        away = np.linspace(-5.0, 5.0, 20_001)[:, None, None] * np.eye(steps)[-1][:, None]
        with np.errstate(all="ignore"):
            other = net.logits(x + away).argmax(axis=1) != label
        met += other.any()
        data = {"x": x, "label": label, "norm": "l2", "radius": 10.0, "reach": 10.0}
        data |= {"low": np.full((steps - 1, d), -9.0), "high": np.full((steps - 1, d), 9.0)}
        data |= {"cut": np.zeros(steps - 1)}
        for value in (0.0, 200.0):
            planes = {"values": np.full(steps - 1, value), "slopes": np.zeros((steps - 1, d))}
            assert accepted(net, "local_cells", {**data, **planes}) is None or not other.any(), (scale, value)
    assert met > 5


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_more_boxes_than_there_is_room_for_are_refused(kind, monkeypatch):
    net, data = proof(kind)
    monkeypatch.setattr(local_cells, "ROOM", 500)
    holds, words = told(net, data)
    assert not holds
    assert words == "it takes more than 500 boxes"


def test_a_file_that_asks_for_all_boxes_is_refused_in_time(monkeypatch):
    net, x = drawn("lstm", 40, 3, 2)
    d, count = 2, 39
    cut = np.tile(np.concatenate([np.ones(1 + 4 + 16 + 64 + 256), np.zeros(1024)]), count)
    data = {"x": x, "label": label_of(net, x), "norm": "l2", "radius": 3.0, "reach": 3.0, "cut": cut}
    low, high, ends = net.start, net.start, list[tuple[Array, Array]]()
    for step in gated_moves(net, x, 3.0)[:-1]:
        low, high = (end + sign for end, sign in zip(image(step, low, high), (-0.01, 0.01)))
        ends.append((low, high))
    data |= {"low": np.array([pair[0] for pair in ends]), "high": np.array([pair[1] for pair in ends])}
    data |= {"values": np.full(1024 * count, 8.9), "slopes": np.zeros((1024 * count, d))}
    Work.at_most(2 * ROOM, monkeypatch)
    holds, words = told(net, data)
    assert not holds
    assert any(part in words for part in UNPROVED)


def at_rest(norm: str, radius: float, **more: Any) -> dict[str, Any]:
    empty = np.zeros((0, 1))
    data = {"x": np.zeros((1, 1)), "label": 0, "norm": norm, "radius": radius, "reach": radius, "low": empty}
    return data | {"high": empty, "cut": np.zeros(0), "values": np.zeros(0), "slopes": empty} | more


@pytest.mark.parametrize("scale", [1.0, 1e-170, 1e-220])
def test_margins_whose_squares_underflow_are_not_taken_for_positive_ones(scale):
    cell = GatedCell("gru", np.array([[0.0], [-2.0], [1.0]]), np.zeros((3, 1)))  # h is -.125 at the move -.5493
    net = Classifier(cell, np.array([[scale], [0.0]]), np.array([0.125 * scale * 0.999, 0.0]))
    assert net.logits(np.array([[[-0.5493]]]))[0].argmax() == 1
    assert not told(net, at_rest("linf", 0.65))[0]
    assert not told(net, at_rest("l2", 0.65, budget="step"))[0]
    safe = Classifier(cell, np.array([[1.0], [0.0]]), np.array([0.1251, 0.0]))
    assert told(safe, at_rest("linf", 0.65))[0]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_moves_so_small_that_their_parts_are_none_are_looked_at(norm):
    small, h, b = 1e-323, 4e-15, 1e-10
    cell = GatedCell("gru", np.array([[0.0], [0.0], [1.7e308]]), np.array([[0.0], [0.0], [1e6]]))
    net = Classifier(cell, np.array([[-1.0], [0.0]]), np.array([b, 0.0]))
    assert net.logits(np.array([[[small], [0.0]]]))[0].argmax() == 1
    planes = np.array([0.99 * b, b - 0.2525 * 1e6 * h]) if norm == "linf" else np.array([2.0, 0.0])
    data = at_rest(norm, 1.0, x=np.zeros((2, 1)), bounds=(-small, small), mask=np.array([[1.0], [0.0]]))
    data |= {"low": np.array([[-h]]), "high": np.array([[h]]), "cut": np.array([1.0, 0.0, 0.0])}
    assert not told(net, data | {"values": planes, "slopes": np.zeros((2, 1))})[0]
