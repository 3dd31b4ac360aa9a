"""Networks of one state: ranges are exact, least costs are the true ones, and the radius is the true one to 1e-6."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.kinks import network as pieces
from benchmarks.kinks import true_radius
from benchmarks.single import drawn, nearest_run
from stability.local.balls import largest_balls
from stability.local.bellman import Stage, bellman
from stability.local.below import Lines, Table
from stability.local.classifier import Classifier
from stability.local.curves import curvature, slopes, values
from stability.local.least import cells, kept_states, least_cost
from stability.local.priced import Runs
from stability.local.ranges import reached
from stability.local.request import request
from stability.local.scalar import scalar_steps
from stability.local.single import single
from stability.rules import local_frontier
from stability.rules.registry import RULES, accepted, propose
from stability.solve.deadline import Deadline
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import ACTIVATIONS, activation
from tests.stability.local.test_exact import truth
from tests.stability.local.work import Work

Array = np.ndarray
SMOOTH = sorted(name for name, phi in ACTIVATIONS.items() if phi.width is not None)
NAMES = sorted(ACTIVATIONS)


def network(
    name: str, rng: np.random.Generator, features: int, past: float = 0.0, leak: float = 0.5, classes: int = 3
) -> Classifier:
    A, B, C = rng.normal(size=3) * [leak, 1.0, 1.0]
    own = LureSystem([[A]], [[B]], [[C]], slope=activation(name).slope, dt=1.0)
    E, b, F = rng.normal(size=(1, features)), [rng.normal()], past * rng.normal(size=(1, features))
    cell = DrivenSystem(own, name, E, b, F)
    return Classifier(cell, rng.normal(size=(classes, 1)), 0.3 * rng.normal(size=classes), start=[0.2])


def runs(net: Classifier, x: Array) -> Array:
    """States after every step of many inputs ``(N, T, p)``."""
    h, out = np.tile(net.start, (len(x), 1)), []
    for u in np.moveaxis(x, 1, 0):
        h = net.recurrent.advance(h, u)
        out.append(h[:, 0])
    return np.stack(out, axis=1)


@pytest.mark.parametrize("name", NAMES)
def test_ranges_enclose_what_is_reached_and_are_met(name):
    for seed, (features, past, norm) in enumerate([(1, 0.0, "linf"), (2, 0.0, "l2"), (2, 1.0, "linf"), (2, 1.0, "l2")]):
        rng = np.random.default_rng(seed)
        net, x, r, each = network(name, rng, features, past), rng.normal(size=(3, features)), 0.4, norm == "l2"
        low, high = reached(scalar_steps(net, x, r, norm, each=each), activation(name), 0.2)
        assert np.isfinite(low).all()
        assert np.isfinite(high).all()
        states = np.array([0.2])
        for t, u in enumerate(x):  # densely, step by step
            angle = np.linspace(0.0, 2.0 * np.pi, 400)
            way = np.stack([np.cos(angle), np.sin(angle)], axis=1)
            way = way / np.abs(way).max(axis=1, keepdims=True) if norm == "linf" else way
            way = (np.linspace(-1.0, 1.0, 800)[:, None] if features == 1 else way) * r
            way = np.concatenate([way, 0.5 * way, 0.1 * way])
            at = np.linspace(states.min(), states.max(), 80)
            states = net.recurrent.advance(np.repeat(at, len(way))[:, None], u + np.tile(way, (len(at), 1)))[:, 0]
            assert low[t + 1] <= states.min() + 1e-13
            assert high[t + 1] >= states.max() - 1e-13
            wide = max(high[t + 1] - low[t + 1], 1e-9)
            assert high[t + 1] - states.max() <= 2e-2 * wide
            assert states.min() - low[t + 1] <= 2e-2 * wide


CASES = [
    ("tanh", 6, 1, "l2", "total", {}),
    pytest.param("sigmoid", 5, 2, "l2", "total", {"masked": True}, marks=pytest.mark.slow),
    pytest.param("leaky_relu", 5, 2, "l2", "total", {"past": 1.0}, marks=pytest.mark.slow),
    pytest.param("tanh", 4, 3, "l2", "total", {"past": 1.0}, marks=pytest.mark.slow),
    pytest.param("relu", 6, 1, "l2", "total", {}, marks=pytest.mark.slow),
    pytest.param("saturation", 4, 2, "l2", "total", {}, marks=pytest.mark.slow),
    ("deadzone", 5, 1, "l2", "total", {"past": 0.5}),
    ("tanh", 3, 2, "l2", "total", {"clipped": True}),
    pytest.param("identity", 5, 2, "l2", "total", {"past": 1.0}, marks=pytest.mark.slow),
    ("tanh", 5, 2, "linf", "total", {"past": 1.0, "masked": True}),
    ("leaky_relu", 5, 2, "linf", "total", {"clipped": True}),
    pytest.param("saturation", 4, 2, "l2", "step", {"past": 1.0}, marks=pytest.mark.slow),
    pytest.param("tanh", 5, 3, "l2", "step", {"clipped": True}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "steps", "features", "norm", "budget", "more"), CASES)
def test_the_radius_is_the_true_one(name, steps, features, norm, budget, more):
    met, seeds = 0, (1, 2, 5) if norm == "linf" or budget == "step" else (1, 5)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        net, x = network(name, rng, features, more.get("past", 0.0)), rng.normal(size=(steps, features))
        free = rng.random(x.shape) < 0.6 if "masked" in more else np.ones(x.shape, dtype=bool)
        bounds = (float(x.min()) - 0.1, float(x.max()) + 0.2) if "clipped" in more else None
        label = int(net.logits(x).argmax())
        told = {"mask": free} if "masked" in more else {}
        (claim,) = largest_balls(net, x[None], [label], norm=norm, budget=budget, bounds=bounds, **told)
        if claim is None:
            continue
        near = truth(net, x, label, norm, budget, free, bounds, min(claim.value, 2.0))
        assert claim.value <= near * (1 + 1e-9), seed
        if np.isfinite(near) and near < 20.0:
            met += claim.value >= near * (1 - 1e-6)
            if claim.proof.kind == "local_frontier":
                beyond_is_refused(net, dict(claim.proof.data), near)
    assert met or "clipped" in more


def beyond_is_refused(net: Classifier, data: dict[str, Any], true: float) -> None:
    for part in (1.0 + 1e-6, 1.01):
        wrong = {"radius": part * true}
        assert accepted(net, "local_frontier", {**data, **wrong}) is None, part
        if "paths" in data and part == 1.01:
            shaken = data["paths"] + 0.01 * np.random.default_rng(0).normal(size=data["paths"].shape)
            assert accepted(net, "local_frontier", {**data, **wrong, "paths": shaken, "fine": 5}) is None, part


def leaves(net: Classifier, x: Array, label: int, radius: float) -> bool:
    """Whether a perturbation of every step by so much changes the class: densely, step by step."""
    low, high = 0.2, 0.2
    for u in x[:, 0]:
        h, v = np.linspace(low, high, 100), u + np.linspace(-radius, radius, 101)
        reached = net.recurrent.advance(np.repeat(h, len(v))[:, None], np.tile(v, len(h))[:, None])
        low, high = float(reached.min()), float(reached.max())
    last = np.linspace(low, high, 2000)[:, None]
    return bool(((last * net.weight[:, 0] + net.bias).argmax(1) != label).any())


def least(net: Classifier, x: Array, label: int) -> float:
    """The least radius in l2, nearly: dynamic programming on a grid of states and of perturbations."""
    states, moves = np.linspace(-1.5, 1.5, 2001), np.linspace(-2.5, 2.5, 801)
    costs = np.where((states[:, None] * net.weight[:, 0] + net.bias).argmax(1) != label, 0.0, 1e9)
    for u in x[::-1, 0]:
        before = []
        for part in np.array_split(states, 20):
            met = net.recurrent.advance(np.repeat(part, len(moves))[:, None], np.tile(u + moves, len(part))[:, None])
            after = np.interp(met[:, 0], states, costs).reshape(len(part), -1)
            before.append((after + moves**2).min(axis=1))
        costs = np.concatenate(before)
    return float(np.sqrt(np.interp(0.2, states, costs)))


@pytest.mark.parametrize("norm", [pytest.param("l2", marks=pytest.mark.slow), "linf"])
def test_sequences_of_more_than_thirty_steps_have_the_true_radius(norm):
    rng = np.random.default_rng(11)
    net, x = network("tanh", rng, 1), rng.normal(size=(40, 1))
    label = int(net.logits(x).argmax())
    (claim,) = largest_balls(net, x[None], [label], norm=norm)
    assert claim.proof.kind == "local_frontier"
    assert RULES["local_frontier"](net, claim)[0]
    if norm == "linf":
        assert not leaves(net, x, label, claim.value)
        assert leaves(net, x, label, claim.value * (1 + 1e-6))
    else:
        assert claim.value == pytest.approx(least(net, x, label), rel=5e-3)


@pytest.mark.parametrize(
    ("steps", "seed"),
    [(30, 4), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((30, 10), (60, 7)))],
)
def test_long_sequences_have_the_radius_of_the_nearest_run_and_are_known_to(steps, seed):
    """Some of these networks expand: what changes the class is a move of the last few steps."""
    net, x = drawn(steps, seed, "last")
    label = int(net.logits(x).argmax())
    claim, settled = single(request(net, x[None], [label]), 0, "l2", Deadline())
    assert settled
    true = nearest_run(net, x, label, claim.value)
    assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9)


def test_the_sum_of_a_run_is_that_of_its_last_state_where_it_is_asked_for():
    net, x = drawn(5, 3, "last")
    steps, v = scalar_steps(net, x, 1.0, "l2"), np.random.default_rng(0).normal(size=(4, 5))
    last, whole = (Runs(steps, activation("tanh"), 0.0, last=way) for way in (True, False))
    states = last.path(v)
    assert np.allclose(last.slope(v)[0], states[:, -1])
    assert np.allclose(whole.slope(v)[0], states[:, 1:].sum(axis=1))
    for k in range(5):
        moved = v + 1e-6 * np.eye(5)[k]
        assert np.allclose(last.slope(v)[1][:, k], (last.path(moved)[:, -1] - states[:, -1]) / 1e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        pytest.param(name, norm, marks=[pytest.mark.slow] * (norm == "l2" and name in ("relu", "deadzone")))
        for name in ("relu", "leaky_relu", "saturation", "deadzone")
        for norm in ("l2", "linf")
    ],
)
def test_the_radius_of_piecewise_linear_networks_is_that_of_all_their_pieces(name, norm):
    met, seed = 0, 0
    while met < 2:
        net, x = pieces(name, seed)
        seed += 1
        label, true = int(net.logits(x).argmax()), 0.0
        if net.reduction == "last":
            true = true_radius(net, x, label, norm)
        if not 1e-6 < true < 1e3:
            continue
        (claim,) = largest_balls(net, x[None], [label], norm=norm)
        assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9), seed
        if claim.proof.kind == "local_frontier":
            beyond_is_refused(net, dict(claim.proof.data), true)
            met += 1


def test_nobody_beats_a_lower_bound_of_costs():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        name = NAMES[seed % len(NAMES)]
        net, x = network(name, rng, 2, seed % 2), rng.normal(size=(4, 2))
        label, radius = int(net.logits(x).argmax()), 1.5
        steps = scalar_steps(net, x, 1.5 * radius, "l2")
        paths = rng.normal(size=(1, len(steps) + 1))
        found = least_cost(net, steps, label, radius, paths, 3, 10**7)
        d = rng.normal(size=(200_000, 4, 2))
        d *= rng.uniform(0.0, 1.5, (len(d), 1, 1)) / np.sqrt((d * d).sum(axis=(1, 2), keepdims=True))
        wrong = net.logits(x + d).argmax(axis=1) != label
        squares = (d * d).sum(axis=(1, 2))[wrong]
        assert found.cost <= squares.min(initial=2.25 * radius**2)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_of_dynamic_programming_is_a_lower_bound(name):
    rng, phi = np.random.default_rng(2), activation(name)
    for seed in range(4):
        net = network(name, np.random.default_rng(seed), 1, 0.3, leak=1.0)
        (step,) = scalar_steps(net, rng.normal(size=(1, 1)), 1.0, "l2")
        stage = Stage(step, phi, -2.0, 2.0)
        reach = stage.after(np.linspace(-2, 2, 400)[:, None], np.linspace(*stage.ends, 400))[2]
        ends = reach.min() - 0.1, reach.max() + 0.1
        x = np.unique(np.concatenate([ends, rng.uniform(*ends, 40)]))
        after = Lines(x, rng.uniform(0.0, 1.0, len(x) - 1), rng.uniform(0.0, 1.0, len(x) - 1))
        knots = np.unique(np.concatenate([[-2.0, 2.0], rng.uniform(-2, 2, 30)]))
        lines, (best, _), _ = bellman(stage, after, knots, 1e-9, np.inf)
        h = rng.uniform(-2.0, 2.0, 500)
        v = np.linspace(*stage.ends, 3001)
        true = (stage.cost(v) + after.at(stage.after(h[:, None], v)[2])).min(axis=1)
        assert (lines.at(h) <= true + 1e-12).all()
        assert np.median(best - 0.5 * (lines.left + lines.right)) < 0.5  # of a rough function


def test_ranges_are_halved_as_long_as_there_is_room():
    net, knots = network("tanh", np.random.default_rng(0), 1, 0.3, leak=1.0), np.linspace(-2.0, 2.0, 31)
    (step,) = scalar_steps(net, np.ones((1, 1)), 1.0, "l2")
    rough = Lines(np.linspace(-9.0, 9.0, 400), *np.random.default_rng(1).random((2, 399)))
    stage = Stage(step, activation("tanh"), -2.0, 2.0)
    counts = [bellman(stage, rough, knots, 0.0, room)[2] for room in (np.inf, 4000)]
    assert 4000 < counts[1] < counts[0]


def test_lines_below_stretches():
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 7, 20):
        x = np.sort(rng.normal(size=count + 1))
        lines = Lines(x, rng.normal(size=count), rng.normal(size=count))
        table = Table.of(lines)
        ends = np.sort(rng.uniform(x[0], x[-1], (60, 2)), axis=1)
        there = table.stretches(ends[:, 0], ends[:, 1])
        for slope in (-1.0, 0.0, 2.0):
            at = rng.normal(size=60)
            value = there.below(at, np.full(60, slope))
            for part in np.linspace(0.0, 1.0, 50):
                z = ends[:, 0] + part * (ends[:, 1] - ends[:, 0])
                assert (value + slope * (z - at) <= lines.at(z) + 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
def test_curves_of_activations(name):
    rng, phi = np.random.default_rng(1), activation(name)
    low = rng.normal(size=500) * 2
    high = low + rng.uniform(0.0, 2.0, 500) ** 3
    least, most = values(phi, low, high)
    flat, steep = slopes(phi, low, high)
    for part in np.linspace(0.0, 1.0, 21):
        z = low + part * (high - low)
        assert (least <= phi.function(z)).all()
        assert (phi.function(z) <= most).all()
        if name in SMOOTH:
            for weight in (-2.0, 1.0):
                bent = -weight * phi.second_derivative(z)
                assert (bent <= curvature(phi, low, high, np.full(500, weight)) + 1e-12).all()
            assert (flat - 1e-15 <= phi.derivative(z)).all()
            assert (phi.derivative(z) <= steep + 1e-15).all()


def test_states_that_keep_the_class():
    rng = np.random.default_rng(0)
    for _ in range(50):
        net = network("tanh", rng, 1, classes=4)
        label, h = int(rng.integers(4)), np.linspace(-3.0, 3.0, 4001)
        logits = h[:, None] * net.weight[:, 0] + net.bias
        safe = logits.argmax(axis=1) == label
        kept = kept_states(net, label, -3.0, 3.0)
        inside = np.zeros(len(h), dtype=bool) if kept is None else (h >= kept[0]) & (h <= kept[1])
        assert not (inside & ~safe).any()
        assert (safe & ~inside).sum() <= 2


def test_cells_cover_their_range():
    knots = cells(-1.0, 2.0, np.array([0.3, 5.0]), np.array([0.1, 1e-3]), 3)
    assert knots[0] == -1.0
    assert knots[-1] == 2.0
    assert (np.diff(knots) > 0.0).all()
    assert np.diff(knots)[np.searchsorted(knots, 0.3) - 1] < 1e-5
    assert cells(1.0, 1.0, np.zeros(1), np.ones(1), 3).tolist() == [1.0, 1.0]


def test_what_the_rule_is_not_about_is_refused():
    rng = np.random.default_rng(3)
    net, x = network("tanh", rng, 1), np.zeros((2, 1))
    label, rule = int(net.logits(x).argmax()), RULES["local_frontier"]
    (claim,) = largest_balls(net, x[None], [label])
    assert claim.proof.kind == "local_frontier"
    data = claim.proof.data
    for changes, words in (
        ({"norm": "l1"}, "the norm"),
        ({"budget": "month"}, "budget is"),
        ({"norm": "linf"}, "total budget"),
        ({"budget": "step"}, "total budget"),
        ({"paths": data["paths"][:, 1:]}, "paths must be"),
        ({"paths": np.zeros((9, 3))}, "paths must be"),
        ({"paths": 1e13 + data["paths"]}, "out of range"),
        ({"fine": 0}, "fine must"),
        ({"fine": 33}, "fine must"),
        ({"radius": 1.01 * data["radius"]}, "not proved"),
        ({"x": np.zeros((2001, 1))}, "more than 2000"),
    ):
        assert words in rule(net, propose(net, "local_frontier", {**data, **changes}))[1], words
    bare = {key: value for key, value in data.items() if key not in ("paths", "fine")}
    assert "total budget" in rule(net, propose(net, "local_frontier", bare))[1]
    wide = DrivenSystem(LureSystem(np.zeros((2, 2)), np.eye(2), 0.1 * np.eye(2), dt=1.0), "tanh", np.ones((2, 1)))
    for subject, words in (
        (Classifier(wide, np.ones((3, 2))), "one state"),
        (Classifier(net.recurrent, net.weight, net.bias, "mean"), "prices are for"),
    ):
        assert words in rule(subject, propose(subject, "local_frontier", dict(data)))[1]


def test_hostile_data_are_refused_where_they_go_too_far(monkeypatch):
    rng = np.random.default_rng(0)
    net, x = network("tanh", rng, 1, leak=2.0), rng.normal(size=(1500, 1))
    data = {"x": x, "label": int(net.logits(x).argmax()), "norm": "l2", "radius": 2.0, "fine": 32}
    monkeypatch.setattr(local_frontier, "ROOM", 300_000)
    Work.at_most(600_000, monkeypatch)
    paths = rng.normal(size=(8, 1501))
    data["paths"] = paths
    holds, words = RULES["local_frontier"](net, propose(net, "local_frontier", data))
    assert not holds
    assert words == "it takes more than 300000 boxes"


@pytest.mark.parametrize("name", ["tanh", "relu", "saturation"])
def test_numbers_that_overflow_prove_nothing_and_raise_nothing(name, monkeypatch):
    monkeypatch.setattr(local_frontier, "ROOM", 100_000)
    rng, rule = np.random.default_rng(0), RULES["local_frontier"]
    for size in (1e3, 1e80, 1e99):
        slope = activation(name).slope
        system = LureSystem([[0.5]], [[size]], [[-size]], slope=slope, dt=1.0)
        cell = DrivenSystem(system, name, size * rng.normal(size=(1, 3)), F=rng.normal(size=(1, 3)))
        net, x = Classifier(cell, [[size], [-size]], [1.0, 0.0]), np.zeros((4, 3))
        for more in ({"norm": "linf"}, {"norm": "l2", "budget": "step"},
                     {"norm": "l2", "paths": np.zeros((0, 9)), "fine": 1}):  # fmt: skip
            for bounds in ({}, {"bounds": (-1.0, 1.0)}):
                data = {"x": x, "label": 0, "radius": 1e3, **more, **bounds}
                assert not rule(net, propose(net, "local_frontier", data))[0]
