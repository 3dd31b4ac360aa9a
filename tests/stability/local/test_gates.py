"""LSTM and GRU of one unit: what the proofs use encloses what it says, and the certified radius is the true one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from benchmarks import gates
from stability.gated.cell import GatedCell
from stability.local import covering, exact, lagrangians
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.local.coordinates import coordinates
from stability.local.hessians import expansion, weights
from stability.local.request import request
from stability.local.worst import Margin
from stability.local.worst import nearest as boundary
from stability.rules.registry import RULES, accepted, propose
from stability.solve.deadline import Deadline

Array = np.ndarray


def network(
    kind: str, seed: int, features: int, reduction: str = "last", *, hidden: int = 1, size: float = 1.0, **more: Any
) -> Classifier:
    rng, rows = np.random.default_rng(seed), gates.GATES[kind] * hidden
    weights = size * rng.normal(size=(rows, features)), size * rng.normal(size=(rows, hidden))
    cell = GatedCell(kind, *weights, 0.7 * rng.normal(size=rows), 0.7 * rng.normal(size=rows), **more)
    start = 0.5 * rng.normal(size=cell.states)
    return Classifier(cell, 2.0 * rng.normal(size=(3, hidden)), 0.3 * rng.normal(size=3), reduction, start=start)


@pytest.mark.parametrize("reduction", ["last", "mean"])
@pytest.mark.parametrize(("kind", "after"), [("gru", True), ("gru", False), ("lstm", True)])
def test_what_a_box_is_given_encloses_its_points(kind, after, reduction):
    for seed, size in ((0, 1.0), (1, 4.0)):
        net, rng = network(kind, seed, 2, reduction, reset_after=after, size=size), np.random.default_rng(seed)
        x = rng.normal(size=(3, 2))
        ball = coordinates(net, x, 0.5, "l2")
        margin, there = weights(ball, 0, 1), Margin(ball, 0, 1)
        low = rng.uniform(-0.5, 0.2, (12, 6))
        high = low + rng.uniform(0.0, 0.4, (12, 1)) * rng.integers(0, 2, (12, 6))
        box = expansion(ball, margin, low, high)
        for _ in range(6):
            y = rng.uniform(low, high)
            at = expansion(ball, margin, y, y)
            logits = net.logits(x + y.reshape(-1, 3, 2))
            true = (3 if reduction == "mean" else 1) * (logits[:, 0] - logits[:, 1])
            assert np.allclose(true, at.value.low, rtol=0, atol=1e-12)
            assert (at.value.high - at.value.low < 1e-12).all()
            assert ((box.value.low <= true + 1e-13) & (true - 1e-13 <= box.value.high)).all()
            slopes = np.array([there.values(y, k)[1] for k in range(len(y))])
            assert np.allclose(slopes, at.slope.low, rtol=0, atol=1e-11)
            assert ((box.slope.low <= slopes + 1e-12) & (slopes - 1e-12 <= box.slope.high)).all()
            for k in range(6):
                d = 1e-5 * np.eye(6)[k]
                assert np.allclose((there.value(y + d) - there.value(y - d)) / 2e-5, slopes[:, k], atol=1e-7 * size**3)
                rise = [expansion(ball, margin, y + s * d, y + s * d, second=False).slope.low for s in (-1.0, 1.0)]
                bend = (rise[1] - rise[0]) / 2e-5
                assert np.allclose(bend, at.hessian.low[:, k], atol=1e-6 * size**4)
                assert (box.hessian.low[:, k] <= at.hessian.high[:, k]).all()
                assert (box.hessian.high[:, k] >= at.hessian.low[:, k]).all()


def nearest(net: Classifier, x: Array, label: int, norm: str, budget: str, near: float) -> float:
    """The least radius of another class that descents from some places find, and a little outside of it."""
    rng, best, count = np.random.default_rng(1), np.inf, x.size

    def room(z: Array) -> Array:
        if norm == "linf":
            return np.concatenate([z[-1] - z[:-1], z[-1] + z[:-1]])
        squares = (z[:-1] ** 2).reshape(x.shape)
        return z[-1] ** 2 - (squares.sum(axis=1) if budget == "step" else squares.sum(keepdims=True)[0])

    for other in set(range(net.classes)) - {label}:

        def lost(z: Array, other: int = other) -> float:
            logits = net.logits(x + z[:-1].reshape(x.shape))
            return float(logits[other] - logits[label])

        for _ in range(4):
            limits = [{"type": "ineq", "fun": lost}, {"type": "ineq", "fun": room}]
            start = np.append(near * rng.normal(size=count) / np.sqrt(count), near)
            found = minimize(
                lambda z: z[-1], start, jac=lambda z: np.eye(len(z))[-1], method="SLSQP", constraints=limits,
                bounds=[(None, None)] * count + [(1e-9, None)], options={"maxiter": 80, "ftol": 1e-13},
            )  # fmt: skip
            if lost(found.x) >= -1e-11 and room(found.x).min() >= -1e-10:
                best = min(best, float(found.x[-1]))
    return best


CASES = [
    ("gru", 1, "last", "linf", "total"),
    ("gru", 0, "last", "l2", "total"),
    ("gru", 2, "last", "l2", "step"),
    ("gru", 0, "mean", "l2", "total"),
    ("lstm", 2, "last", "linf", "total"),
    ("lstm", 2, "mean", "l2", "step"),
]


@pytest.mark.parametrize(("kind", "seed", "reduction", "norm", "budget"), CASES)
def test_the_radius_is_the_true_one(kind, seed, reduction, norm, budget):
    net, x = gates.network(kind, seed, reduction)
    label = int(net.logits(x).argmax())
    (claim,) = largest_balls(net, x[None], [label], norm=norm, budget=budget)
    assert claim is not None
    assert claim.proof is not None
    assert RULES[claim.proof.kind](net, claim)[0]
    true = nearest(net, x, label, norm, budget, claim.value)
    assert true * (1 - 1e-6) <= claim.value <= true * (1 + 1e-9)
    if claim.proof.kind == "local_hessians":
        data = dict(claim.proof.data)
        for part in (1.0 + 1e-6, 1.01):
            wrong = {"radius": part * true, "prices": 1.1 * data["prices"], "bends": 0.5 + data["bends"]}
            assert accepted(net, "local_hessians", {**data, **wrong}) is None


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_what_the_rule_is_not_about_is_refused(kind):
    net, x = network(kind, 0, 1), np.zeros((2, 1))
    label, rule = int(net.logits(x).argmax()), RULES["local_hessians"]
    data: dict[str, Any] = {"x": x, "label": label, "norm": "linf", "radius": 1e-3}
    data |= {"points": np.zeros((2, 2)), "prices": np.zeros((2, 0)), "bends": np.zeros(2)}
    assert accepted(net, "local_hessians", data) is not None
    for changes, words in (
        ({"radius": 1e3}, "not proved"),
        ({"points": np.zeros((2, 3))}, "must be"),
        ({"points": np.full((2, 2), np.nan)}, "finite"),
        ({"slopes": np.zeros((2, 6))}, "slopes must be"),
        ({"label": (label + 1) % 3}, "not proved"),
        ({"x": np.zeros((2, 2)), "points": np.zeros((2, 4))}, "x must be"),
        ({"x": 1e300 * np.ones((2, 1))}, "out of range"),
    ):
        told = rule(net, propose(net, "local_hessians", {**data, **changes}))
        assert not told[0], words
        assert words in told[1], (words, told[1])
    two = network(kind, 0, 1, hidden=2)
    assert "of one unit" in rule(two, propose(two, "local_hessians", data))[1]


@pytest.mark.parametrize("away", [1.002, 1.02])
def test_a_boundary_that_descents_miss_is_met_by_halves(away, monkeypatch):
    net, x = gates.network("gru", 2)
    label = int(net.logits(x).argmax())
    true = nearest(net, x, label, "linf", "total", 1.0)
    found = exact.Exact.boundary
    first = []

    def missed(self, *rest):
        first.append(True)
        return away * true if len(first) == 1 else found(self, *rest)

    monkeypatch.setattr(exact.Exact, "boundary", missed)
    monkeypatch.setattr(exact, "_AGAIN", 0)
    claim, done = exact.exact(request(net, x[None], [label]), 0, "linf", Deadline.after(None))
    assert claim is not None
    assert done
    assert true * (1 - 1e-6) <= claim.value <= true * (1 + 1e-9)


def test_radii_far_beyond_the_input_are_reached_in_few_descents(monkeypatch):
    net, x = network("lstm", 0, 2), np.zeros((1, 2))
    label = int(net.logits(x).argmax())
    sure, looked, least = Classifier(net.recurrent, net.weight, 50.0 * np.eye(3)[label]), [], Margin.least
    monkeypatch.setattr(Margin, "least", lambda self, starts: looked.append(self.of.radius) or least(self, starts))
    far, _ = boundary(
        lambda radius: Margin(coordinates(sure, x, radius, "l2"), label, (label + 1) % 3), 1.0, 1e6,
        np.random.default_rng(0), [],
    )  # fmt: skip
    assert far == np.inf
    assert looked[-1] == 1e6
    assert len(looked) < 10


def test_eigenvalues_are_asked_for_where_slopes_do_not_do(monkeypatch):
    net, x = gates.network("gru", 0)
    label = int(net.logits(x).argmax())
    of, asked, whole = coordinates(net, x, 0.05, "linf"), [], lagrangians.second_order
    other = (label + 1) % 3

    def counted(g, H, c, a, b):
        asked.append(len(c))
        return whole(g, H, c, a, b)

    monkeypatch.setattr(lagrangians, "second_order", counted)
    touch = lagrangians.Touch(np.zeros(len(of.low)), np.zeros(0), 0.0)
    found = covering.covered(of, label, other, touch, 5_000)
    assert found.holds
    assert sum(asked) < found.boxes
