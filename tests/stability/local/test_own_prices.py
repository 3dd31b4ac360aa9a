"""Boxes of a ball have prices of their own: sound where others are, and what ends searches."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.single import gated
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.local.coordinates import Coordinates, coordinates
from stability.local.covering import covered
from stability.local.hessians import expansion, weights
from stability.local.lagrangians import Boxes, Touch, by_own_prices
from stability.local.worst import Margin, nearest
from stability.systems import DrivenSystem, LureSystem

Array = np.ndarray


def of_tanh(seed: int) -> tuple[Classifier, Array]:
    rng = np.random.default_rng(seed)
    cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[1.2]], dt=1.0), "tanh", rng.normal(size=(1, 2)), [0.1])
    return Classifier(cell, [[1.0], [-1.0]], [0.1, 0.0]), rng.normal(size=(4, 2))


def near(net: Classifier, x: Array, label: int, each: bool, bounds: tuple[float, float] | None) -> tuple[float, Array]:
    """How far the nearest other class is, and the perturbation."""
    found = (
        nearest(
            lambda radius, k=k: Margin(coordinates(net, x, radius, "l2", None, bounds, each), label, k),
            1.0, 8.0, np.random.default_rng(0), [],
        ) for k in range(net.classes) if k != label
    )  # fmt: skip
    radius, points = min(found, key=lambda pair: pair[0])
    return radius, points[0]


def within(of: Coordinates, y: Array) -> Array:
    """Which points are in the balls."""
    costs = of.cost(y.copy())[0]
    return np.all([costs[:, part].sum(axis=1) <= of.radius**2 for part in of.balls], axis=0)


def unnamed(of: Coordinates) -> Touch:
    return Touch(np.zeros(len(of.low)), np.zeros(len(of.balls)), 0.0)


@pytest.mark.parametrize(
    ("kind", "each", "bounds", "reduction"),
    [
        pytest.param(*case, reduction, marks=[pytest.mark.slow] * (case[1] or (case[0], reduction) == ("lstm", "last")))
        for case in [
            *(("lstm", False, None), ("gru", False, None), ("lstm", True, None)),
            *(("tanh", False, None), ("tanh", False, (-2, 2))),
        ]
        for reduction in ("last", "mean")
    ],
)
def test_boxes_with_an_input_of_another_class_are_not_done(kind, each, bounds, reduction):
    """The ball goes a little beyond the nearest such input; boxes without one are done, also where margins change."""
    rng = np.random.default_rng(0)
    net, x = of_tanh(1) if kind == "tanh" else gated(kind, 5, reduction)
    label = int(net.logits(x).argmax())
    radius, worst = near(net, x, label, each, bounds)
    for part, crossed in ((1.0002, True), (0.98, False)):
        of = coordinates(net, x, part * radius, "l2", None, bounds, each)
        other = min(set(range(net.classes)) - {label}, key=lambda k: Margin(of, label, k).value(worst[None])[0])
        margin, own = Margin(of, label, other), weights(of, label, other)
        c = np.clip(worst * rng.uniform(1.0 if crossed else 0.9, part, (40_000, 1)), of.low, of.high)
        c = margin.inside(
            c + (0.003 if crossed else 0.03) * radius * rng.normal(size=c.shape) * rng.random((len(c), 1))
        )
        wrong = within(of, c) & (margin.value(c) <= 0.0)
        c = c[wrong][:3000] if crossed else c[:3000]
        assert (len(c) > 500) if crossed else not wrong.any()
        ends = rng.random((2, *c.shape)) * (0.3 * rng.random((len(c), 1)) ** 3 * (of.high - of.low))
        none = np.zeros((len(c), of.bent), dtype=int)
        boxes = Boxes(np.maximum(c - ends[0], of.low), np.minimum(c + ends[1], of.high), (none, none))
        middles = 0.5 * boxes.low + 0.5 * boxes.high
        boxes = boxes.some(~(within(of, middles) & (margin.value(middles) <= 0.0)))  # what ends a search at once
        found = expansion(of, own, boxes.low, boxes.high, boxes.sides)
        done, broken = by_own_prices(of, own, unnamed(of), boxes, found)
        assert broken is None
        assert len(boxes) > 50
        assert not done.any() if crossed else (done & ~(found.value.low > 0.0)).sum() > 20


def test_a_ball_comes_to_an_end_though_the_worst_input_is_not_named():
    net, x = gated("gru", 1, "last")
    label = int(net.logits(x).argmax())
    (claim,) = largest_balls(net, x[None], [label])
    for part, ends in ((0.999, True), (1.001, False)):
        of = coordinates(net, x, part * claim.value, "l2")
        assert all(covered(of, label, k, unnamed(of), 4200).holds for k in range(3) if k != label) is ends


@pytest.mark.slow
def test_an_lstm_of_a_large_radius_has_the_true_one():
    """Its nearest run is one of several that are nearly as near; descents from a few places come to another."""
    net, x = gated("lstm", 104, "mean")
    label = int(net.logits(x).argmax())
    (claim,) = largest_balls(net, x[None], [label])
    assert claim.proof.kind == "local_hessians"
    assert claim.value == pytest.approx(6.1797939, rel=1e-6)
    y = np.array([[-2.4426906, -3.31436266, -3.8621707, -2.33269564, 1.14665266, 0.57332633]])
    start = Margin(coordinates(net, x, 7.0, "l2"), label, 0)
    radius = min(np.linalg.norm(p) for p in np.linspace(0.98, 1.0, 2001)[:, None, None] * y if start.value(p)[0] <= 0.0)
    assert claim.value <= radius < 1.011 * claim.value
