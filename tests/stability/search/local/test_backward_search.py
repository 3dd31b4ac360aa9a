"""Margins closed from their end: bends are bounded, no attack succeeds, and no altered closing is accepted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from local_specimens import attacked, classifiers, gated, plain

from stability.kernel.format.claims import Claim, Proof
from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.curvature import curvature
from stability.kernel.reachability.network_stages import stages_of
from stability.kernel.systems.classifier import Classifier
from stability.search.local.largest_radius import largest_balls

RNG = np.random.default_rng(3)
KINDS = {
    **{name: plain(RNG, name) for name in ("tanh", "sigmoid", "relu", "leaky_relu")},
    "lstm": gated(RNG, "lstm"),
    "gru": gated(RNG, "gru"),
    **{name: plain(RNG, name) for name in ("saturation", "deadzone")},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_channel_loses_no_more_than_its_curvature(name):
    head = RNG.normal(size=(3, KINDS[name].outputs))
    for stage in stages_of(Classifier(KINDS[name], head)).stages:
        m, blocks = len(stage.C), len(stage.C) // 3
        rows, low, high = RNG.normal(size=(8, m)), -RNG.uniform(0.0, 1.5, (8, m)), RNG.uniform(0.0, 1.5, (8, m))
        worth = np.tile(RNG.normal(size=(8, 3)), blocks) if name in ("lstm", "gru") else RNG.normal(size=(8, m))
        K, (slope, _) = curvature(stage, rows, worth, low, high), stage.tangents(rows, np.zeros((8, m)))
        part = np.concatenate([RNG.uniform(size=(300, 1, m)), RNG.integers(0, 2, size=(100, 1, m))])
        v = low + part * (high - low)
        one = worth[:, -3:] if name in ("lstm", "gru") else worth
        change = stage.values(rows + v)[0] - stage.values(rows)[0]
        if name in ("lstm", "gru"):  # a unit's channels are one function, in the last block
            change = change.reshape(*change.shape[:-1], blocks, 3).sum(axis=-2)
        gains = (one * change).sum(axis=-1) - (worth * slope * v).sum(axis=-1)
        bends = (K.diagonal * v * v).sum(axis=-1)
        bends += 2.0 * (K.mixed * v[..., K.first] * v[..., K.second]).sum(axis=-1)
        assert (gains >= -bends - 1e-9).all()
        assert (K.diagonal < 0).any() or name not in ("tanh", "sigmoid")  # a bend may help, too
        assert name in ("lstm", "gru") or (gains < -0.5 * bends).any()  # of that size, not far above


def test_curvature_is_that_of_the_function_where_reaches_are_small():
    for name in ("tanh", "sigmoid", "lstm", "gru"):
        stage = stages_of(Classifier(KINDS[name], np.eye(2, KINDS[name].outputs))).stages[-1]
        rows, small = RNG.normal(size=len(stage.C)), np.full(len(stage.C), 1e-3)
        over, under = (curvature(stage, rows, sign * np.ones(len(stage.C)), -small, small) for sign in (1.0, -1.0))
        assert over.diagonal == pytest.approx(-under.diagonal, abs=2e-3)
        assert np.abs(over.diagonal).max() > 0.01


@pytest.fixture(scope="module")
def claims() -> dict[str, tuple[Classifier, Claim]]:
    """One claim of every kind of network that closes a class."""
    found: dict[str, tuple[Classifier, Claim]] = {}
    rng, made, mask = np.random.default_rng(8), classifiers(1), np.array([[True, False], [True, True], [True, True]])
    asked = [(name, some, "total") for name, some in (("tanh", None), ("tanh", mask), ("relu", None), ("lstm", None))]
    asked += [("midpoint", mask, "total"), ("tanh", None, "step"), ("relu", mask, "step"), ("midpoint", None, "step")]
    for name, some, budget in asked:
        for _ in range(4):
            x = rng.normal(size=(1, 3, 2))
            (claim,) = largest_balls(made[name], x, made[name].logits(x).argmax(axis=1), mask=some, budget=budget)
            if claim is not None and claim.proof is not None and "others" in claim.proof.data:
                found[f"{name}{'' if some is None else ', masked'}, {budget}"] = made[name], claim
                break
    return found


def test_closed_classes_hold_against_attacks_and_beyond_the_tube(claims):
    assert {name.split(",")[0] for name in claims} == {"tanh", "relu", "midpoint", "lstm"}
    assert any("masked" in name for name in claims)
    assert sum("step" in name for name in claims) > 1
    for made, claim in claims.values():
        assert claim.proof is not None
        data = claim.proof.data
        mask = data.get("mask")
        some = None if mask is None else mask == 1.0
        assert not attacked(made, data["x"], data["label"], data["radius"], some, step="tau" in data)
        bare = {key: data[key] for key in data if key not in ("others", "points", "prices", "sectors")}
        refused, why = RULES["local_ellipsoids"](made, replace(claim, proof=Proof("local_ellipsoids", bare)))
        assert not refused, why


def test_an_altered_closing_is_refused(claims):
    rule = RULES["local_ellipsoids"]
    for name, (made, claim) in claims.items():
        assert claim.proof is not None
        data, kind = claim.proof.data, claim.proof.kind
        assert rule(made, claim)[0]
        changes = {
            "others": [np.full_like(data["others"], data["label"]), data["others"] + 0.5, data["others"][:0]],
            "points": [data["points"] + 0.5 * data["radius"], data["points"][:, :-1], np.zeros_like(data["points"])],
            "prices": [1e-3 * data["prices"], 30.0 * data["prices"], -data["prices"]],
            "sectors": [-data["sectors"], data["sectors"][..., :-1]],
        }
        if "tau" in data:  # one step's price alone, the price of the whole, and none
            first = np.eye(3)[0]
            changes["prices"] += [data["prices"] * (1.0 - (1 - 1e-3) * first), data["prices"][:, 0]]
            changes["prices"] += [data["prices"] * (1.0 - first)]
            whole = {k: v for k, v in data.items() if k != "tau"}
            assert not rule(made, replace(claim, proof=Proof(kind, whole)))[0]  # prices of steps for one budget
        for key, values in changes.items():
            for value in values:
                forged = replace(claim, proof=Proof(kind, {**data, key: value}))
                assert not rule(made, forged)[0], (name, key)
            gone = {k: v for k, v in data.items() if k != key}
            assert not rule(made, replace(claim, proof=Proof(kind, gone)))[0]
        far = 1.2 * data["radius"]
        assert not rule(made, replace(claim, value=far, proof=Proof(kind, {**data, "radius": far})))[0]


def test_of_a_network_that_bends_little_the_ball_reaches_the_nearest_boundary():
    rng = np.random.default_rng(2)
    made = Classifier(plain(rng), rng.normal(size=(3, 3)), rng.normal(size=3))
    x = rng.normal(size=(4, 3, 2))
    logits = made.logits(x)
    order = np.argsort(logits, axis=1)
    rows, first, second = np.arange(4), order[:, -1], order[:, -2]
    bias = np.zeros((4, 3))
    bias[rows, second] = 0.95 * (logits[rows, first] - logits[rows, second])  # the boundary is near
    for k in range(4):
        near = Classifier(made.recurrent, made.weight, made.bias + bias[k])
        (claim,) = largest_balls(near, x[k : k + 1], first[k : k + 1])
        assert claim is not None
        assert not attacked(near, x[k], int(first[k]), claim.value)
        assert attacked(near, x[k], int(first[k]), 1.03 * claim.value)
