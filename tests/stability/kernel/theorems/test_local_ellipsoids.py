"""The mask of a proof in l2 is part of what is proved: with it more holds than without it, and nothing beside it."""

from __future__ import annotations

import numpy as np
import pytest
from local_specimens import classifiers

from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.ellipsoid_tube import next_ellipsoid
from stability.kernel.reachability.network_stages import stages_of
from stability.kernel.theorems import local_ellipsoids
from stability.proposals import propose
from stability.search.local.largest_radius import largest_balls

KIND = "local_ellipsoids"
MADE = classifiers(1)
X = np.random.default_rng(8).normal(size=(2, 4, 2))
MASK = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])


def check(name: str, data: dict) -> tuple[bool, str]:
    given = {key: value for key, value in data.items() if value is not None}
    return RULES[KIND](MADE[name], propose(MADE[name], KIND, given))


@pytest.mark.parametrize("name", ["sigmoid", "midpoint", "gru"])
def test_what_the_mask_leaves_alone_is_not_counted(name):
    """Tubes and what is closed from its end: each proof needs its mask."""
    closed = False
    for claim in largest_balls(MADE[name], X, MADE[name].logits(X).argmax(axis=1), mask=MASK > 0):
        data = claim.proof.data
        assert check(name, data)[0]
        assert not check(name, {**data, "mask": None})[0]
        assert not check(name, {**data, "mask": 1.0 - MASK})[0]
        if "points" in data:
            closed, points = True, data["points"].copy()
            points[0, 2, 0] += 1e-9  # where x may not change
            assert "differ where x may change" in check(name, {**data, "points": points})[1]
    assert closed


def test_nor_by_weights():
    """The same of a tube of bends: where the first step alone may change, a larger radius is proved."""
    name, first = "gru, reset before", np.zeros((4, 2))
    first[0] = 1.0
    label = int(MADE[name].logits(X[:1]).argmax())
    columns = sum(len(stage.A) for stage in stages_of(MADE[name]).stages)
    data = {"x": X[0], "label": label, "norm": "l2", "weights": np.ones((4, columns)), "radius": 0.3}
    assert check(name, {**data, "mask": first})[0]
    assert not check(name, data)[0]
    assert check(name, {**data, "radius": 0.1})[0]


@pytest.mark.parametrize("name", ["tanh", "gru"])
def test_sizes_and_names_are_those_of_the_network(name):
    """Each with its own words, before anything is computed."""
    (claim, _) = largest_balls(MADE[name], X, MADE[name].logits(X).argmax(axis=1))
    data = claim.proof.data
    wrong = {
        "label": (3, "none of the network's classes"),
        "x": (X[0][:, :1], r"x must be (T, 2)"),
        "mask": (np.full((4, 2), 0.5), "zeros and ones"),
        "norm": ("linf", "norm of such a proof is l2"),
        "radius": (0.0, "out of range"),
    }
    for key, (value, words) in wrong.items():
        valid, reason = check(name, {**data, key: value})
        assert not valid
        assert words in reason, key
    assert "x must be" in check(name, {**data, "x": X[0][None]})[1]
    assert "x must be" in check(name, {**data, "x": X[0][:0]})[1]


def test_closings_name_other_classes_each_once():
    """Class numbers beyond the network's, the class itself, one twice: refused before they are used."""
    (claim, _) = largest_balls(MADE["sigmoid"], X, MADE["sigmoid"].logits(X).argmax(axis=1), mask=MASK > 0)
    data = claim.proof.data
    count = len(data["others"])
    twice = {key: np.concatenate([data[key], data[key]]) for key in ("others", "points", "prices", "sectors")}
    for change in (
        {"others": np.full(count, 3.0)},
        {"others": np.full(count, float(data["label"]))},
        {"others": np.full(count, 0.5)},
        twice,
    ):
        assert "others must be" in check("sigmoid", {**data, **change})[1]
    for key in ("others", "points", "prices", "sectors"):
        assert "come together" in check("sigmoid", {**data, key: None})[1]
    for key in ("prices", "sectors"):
        assert "must be positive" in check("sigmoid", {**data, key: 0.0 * data[key]})[1]


@pytest.mark.parametrize("name", ["tanh", "gru"])
def test_an_ellipsoid_that_is_too_small_is_not_taken(name, monkeypatch):
    """The inequality proves the next ellipsoid, however it was computed; a looser one is taken."""
    (claim, _) = largest_balls(MADE[name], X, MADE[name].logits(X).argmax(axis=1))
    data = {**claim.proof.data, "radius": 0.5 * claim.value}
    assert check(name, data)[0]
    tried = [
        (lambda stage, Y, of, rho, T: 1.02 * next_ellipsoid(stage, Y, of, rho, T), True),
        (lambda stage, Y, of, rho, T: 0.98 * next_ellipsoid(stage, Y, of, rho, T), False),
        (lambda stage, Y, of, rho, T: next_ellipsoid(stage, Y, of, 1.05 * rho, T), True),
        (lambda stage, Y, of, rho, T: next_ellipsoid(stage, Y, of, 0.95 * rho, T), False),
    ]
    for each, holds in tried:
        monkeypatch.setattr(local_ellipsoids, "next_ellipsoid", each)
        valid, reason = check(name, data)
        assert valid is holds
        assert holds or "do not prove the next ellipsoid" in reason
