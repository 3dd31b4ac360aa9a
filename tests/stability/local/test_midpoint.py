"""Midpoint maps of one unit: what the proofs use encloses what it says, and the certified radius is the true one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.kinks import true_radius
from benchmarks.midpoint import network
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.local.coordinates import coordinates
from stability.local.hessians import expansion, weights
from stability.local.worst import Margin
from stability.rules.registry import RULES, accepted, propose
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import ACTIVATIONS, activation
from tests.stability.local.local_specimens import KINKED
from tests.stability.local.test_exact import truth

Array = np.ndarray
NAMES = sorted(ACTIVATIONS)


def label_of(net: Classifier, x: Array) -> int:
    return int(net.logits(x).argmax())


@pytest.mark.parametrize("name", NAMES)
def test_what_a_box_is_given_encloses_its_points(name):
    smooth = activation(name).width is not None
    for seed, reduction in ((1, "last"), (5, "mean")):
        net, x = network(name, seed, reduction)
        x, rng = x[:3], np.random.default_rng(seed)
        ball = coordinates(net, x, 0.5, "l2")
        assert len(ball.low) == 3  # one for each step, however many features it has
        margin, there = weights(ball, 0, 1), Margin(ball, 0, 1)
        way = net.recurrent.E[0] / np.linalg.norm(net.recurrent.E[0])
        low = rng.uniform(-0.5, 0.3, (30, 3))
        high = low + rng.uniform(0.0, 0.2, (30, 3))
        box = expansion(ball, margin, low, high)
        for _ in range(10):
            y = rng.uniform(low, high)
            at = expansion(ball, margin, y, y)
            logits = net.logits(x + y[:, :, None] * way)
            true = (3 if reduction == "mean" else 1) * (logits[:, 0] - logits[:, 1])
            assert np.allclose(true, at.value.low, rtol=0, atol=1e-12)
            assert np.allclose(true, there.value(y), rtol=0, atol=1e-12)
            assert (at.value.high - at.value.low < 1e-12).all()
            assert ((box.value.low <= true + 1e-13) & (true - 1e-13 <= box.value.high)).all()
            slopes = np.array([there.values(y, k)[1] for k in range(len(y))])
            assert ((box.slope.low <= slopes + 1e-12) & (slopes - 1e-12 <= box.slope.high)).all()
            assert ((at.slope.low <= slopes + 1e-12) & (slopes - 1e-12 <= at.slope.high)).all()
            for k in range(3):
                d = 1e-5 * np.eye(3)[k]
                rise = [expansion(ball, margin, y + s * d, y + s * d, second=False).slope.low for s in (-1.0, 1.0)]
                if smooth:
                    assert np.allclose((there.value(y + d) - there.value(y - d)) / 2e-5, slopes[:, k], atol=1e-8)
                    assert np.allclose((rise[1] - rise[0]) / 2e-5, at.hessian.low[:, k], atol=1e-5)
                    assert (box.hessian.low[:, k] <= at.hessian.high[:, k]).all()
                    assert (box.hessian.high[:, k] >= at.hessian.low[:, k]).all()
                else:  # a box without a concave kink has a margin that is nowhere bent downwards
                    fine = (box.bent < 0) & (y[:, k] + 1e-5 <= high[:, k]) & (y[:, k] - 1e-5 >= low[:, k])
                    assert (rise[1][fine, k] >= rise[0][fine, k] - 1e-12).all()


def boxes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stability.local.balls.covers", lambda *_: False)


def beyond_is_refused(net: Classifier, data: dict[str, Any], true: float) -> None:
    for part in (1.0 + 1e-6, 1.01):
        wrong = {"radius": part * true, "prices": 1.1 * data["prices"], "bends": 0.5 + data["bends"]}
        assert accepted(net, "local_hessians", {**data, **wrong}) is None
        assert accepted(net, "local_hessians", {**data, "radius": part * true}) is None


CASES = [
    pytest.param("tanh", 1, "last", "l2", "total", {}, marks=pytest.mark.slow),
    pytest.param("tanh", 4, "mean", "l2", "step", {}, marks=pytest.mark.slow),
    ("sigmoid", 3, "mean", "l2", "total", {"masked": True}),
    ("sigmoid", 1, "last", "linf", "total", {"clipped": True}),
    ("tanh", 3, "last", "l2", "total", {"clipped": True}),
    pytest.param("identity", 5, "last", "l2", "total", {}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "seed", "reduction", "norm", "budget", "more"), CASES)
def test_boxes_give_the_true_radius(monkeypatch, name, seed, reduction, norm, budget, more):
    boxes_alone(monkeypatch)
    monkeypatch.setattr("stability.rules.local_hessians.ROOM", 8000)
    net, x = network(name, seed, reduction)
    rng, label = np.random.default_rng(seed), label_of(net, x)
    free = rng.random(x.shape) < 0.6 if "masked" in more else np.ones(x.shape, dtype=bool)
    bounds = (float(x.min()) - 0.4, float(x.max()) + 0.4) if "clipped" in more else None
    told = {"mask": free} if "masked" in more else {}
    (claim,) = largest_balls(net, x[None], [label], norm=norm, budget=budget, bounds=bounds, **told)
    assert claim is not None
    assert claim.proof is not None
    assert RULES[claim.proof.kind](net, claim)[0]
    true = truth(net, x, label, norm, budget, free, bounds, min(claim.value, 2.0))
    assert claim.value <= true * (1 + 1e-9)
    if np.isfinite(true):
        assert claim.proof.kind == "local_hessians"
        assert claim.value >= true * (1 - 1e-6)
        beyond_is_refused(net, dict(claim.proof.data), true)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("name", KINKED)
def test_boxes_give_the_true_radius_of_all_pieces(monkeypatch, name, norm):
    boxes_alone(monkeypatch)
    monkeypatch.setattr("stability.rules.local_hessians.ROOM", 8000)
    met = 0
    for seed, reduction in ((0, "last"), (1, "mean"), (3, "last"), (6, "last"), (7, "mean")):
        net, x = network(name, seed, reduction)
        x = x[: 3 if len(activation(name).pieces) < 3 else 2]
        label = label_of(net, x)
        true = true_radius(net, x, label, norm)
        if not 1e-6 < true < 1e3:
            continue
        (claim,) = largest_balls(net, x[None], [label], norm=norm)
        assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9), seed
        if claim.proof.kind == "local_hessians":
            beyond_is_refused(net, dict(claim.proof.data), true)
            met += 1
    assert met


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 6), marks=pytest.mark.slow)])
def test_nobody_leaves_a_proved_ball(seeds):
    rng = np.random.default_rng(0)
    for seed in seeds:
        net, x = network(NAMES[seed % len(NAMES)], seed, ("last", "mean")[seed % 2])
        label, norm = label_of(net, x), ("l2", "linf")[seed // 2 % 2]
        (claim,) = largest_balls(net, x[None], [label], norm=norm)
        d = rng.normal(size=(50_000, *x.shape))
        d = np.sign(d) if norm == "linf" else d / np.sqrt((d * d).sum(axis=(1, 2), keepdims=True))
        d *= claim.value * rng.uniform(0.9, 1.0, (len(d), 1, 1))
        assert (net.logits(x + d).argmax(axis=1) == label).all(), seed


def looped(D: Array) -> Classifier:
    own = LureSystem([[0.5]], [[0.3, 0.4]], [[1.0], [0.7]], D, slope=(0.0, 1.0), dt=1.0)
    return Classifier(DrivenSystem(own, "tanh", [[1.0], [1.0]]), [[1.0], [-1.0]], start=[0.3])


def test_channels_in_a_circle_are_no_subject_of_boxes():
    data = {"x": np.ones((2, 1)), "label": 0, "norm": "linf", "radius": 1e-3, "points": np.zeros((1, 2))}
    data |= {"prices": np.zeros((1, 0)), "bends": np.zeros(1)}
    rule = RULES["local_hessians"]
    for D, holds in (([[0, 0], [0.4, 0]], True), ([[0, 0.4], [0, 0]], False), ([[0.3, 0], [0.1, 0]], False)):
        net = looped(np.array(D))
        found, words = rule(net, propose(net, "local_hessians", data))
        assert found is holds
        assert holds or "earlier channels alone" in words


def test_channels_with_rows_of_their_own_have_a_coordinate_for_each_entry():
    net, rng = looped(np.array([[0.0, 0.0], [0.4, 0.0]])), np.random.default_rng(0)
    cell = DrivenSystem(net.recurrent.system, "tanh", [[1.0, 0.5], [1.0, -2.0]], [0.2, -0.1])
    net, x = Classifier(cell, net.weight, start=[0.3]), rng.normal(size=(2, 2))
    ball = coordinates(net, x, 0.5, "l2")
    y = rng.normal(size=(20, 4))
    logits = net.logits(x + y.reshape(-1, 2, 2))
    found = expansion(ball, weights(ball, 0, 1), y, y).value
    assert np.allclose(logits[:, 0] - logits[:, 1], found.low, rtol=0, atol=1e-12)
