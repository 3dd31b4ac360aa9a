"""Networks of one state with heads on the mean: sums are bounded from below and met, the radius is the true one."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.kinks import network as pieces
from benchmarks.kinks import true_radius
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.local.ranges import reached
from stability.local.request import request
from stability.local.scalar import scalar_steps
from stability.local.single import single
from stability.local.sums import least_sum, limits
from stability.rules import local_frontier
from stability.rules.registry import RULES, accepted, propose
from stability.solve.deadline import Deadline
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import ACTIVATIONS, activation
from tests.stability.local.local_specimens import KINKED
from tests.stability.local.test_exact import truth
from tests.stability.local.work import Work

Array = np.ndarray
NAMES = sorted(ACTIVATIONS)


def network(name: str, seed: int, features: int, past: float = 0.0, leak: float = 0.5) -> Classifier:
    rng = np.random.default_rng(seed)
    A, B, C = rng.normal(size=3) * [leak, 1.0, 1.0]
    own = LureSystem([[A]], [[B]], [[C]], slope=activation(name).slope, dt=1.0)
    cell = DrivenSystem(
        own, name, rng.normal(size=(1, features)), rng.normal(size=1), past * rng.normal(size=(1, features))
    )
    return Classifier(cell, rng.normal(size=(3, 1)), 0.3 * rng.normal(size=3), "mean", start=[0.2])


def sums(net: Classifier, x: Array) -> Array:
    """Of the states of many inputs ``(N, T, p)``."""
    h, out = np.tile(net.start, (len(x), 1)), np.zeros(len(x))
    for u in np.moveaxis(x, 1, 0):
        h = net.recurrent.advance(h, u)
        out += h[:, 0]
    return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("features", "past", "norm"), [(1, 0.0, "l2"), (2, 0.8, "l2"), (3, 0.8, "linf"), (2, 0.0, "linf")]
)
def test_nobody_beats_a_least_sum_and_a_run_has_it(name, features, past, norm):
    for seed, price in ((4, -0.7),):
        net, rng = network(name, seed, features, past), np.random.default_rng(seed)
        x, r, paid = rng.normal(size=(4, features)), 0.5, norm == "l2"
        steps, phi = scalar_steps(net, x, r, norm), activation(name)
        paths = np.zeros((0, len(steps) + 1))
        for _ in range(3):
            found = least_sum(steps, phi, 0.2, price, r * r, paths, 3, 10**8, paid=paid, followed=True)
            paths = found.path[None]
        d = rng.normal(size=(20_000, *x.shape))
        size = np.abs(d).max(axis=(1, 2)) if norm == "linf" else np.sqrt((d * d).sum(axis=(1, 2)))
        d *= (r * rng.uniform(0.5, 1.0, len(d)) / size)[:, None, None]
        d[: 2**12] = r * rng.choice([-1.0, 1.0], size=d[: 2**12].shape) if norm == "linf" else d[: 2**12]
        values = price * sums(net, x + d) + (d * d).sum(axis=(1, 2)) * paid
        assert found.value <= values.min()
        own = np.array([step.ends for step in steps])
        met = price * found.path[1:][own].sum() + (found.moves[:, 0] ** 2).sum() * paid
        assert found.value <= met + 1e-12
        assert met - found.value <= 2e-6 * (np.abs(found.path).sum() + 1.0)
        if norm == "linf":
            assert values.min() - found.value <= 0.2 * np.abs(values).max()


CASES = [
    ("tanh", 5, 1, "l2", "total", 101, {}),
    ("sigmoid", 4, 3, "l2", "total", 100, {"past": 1.0}),
    ("tanh", 3, 2, "l2", "total", 101, {"clipped": True}),
    ("tanh", 4, 2, "linf", "total", 101, {"past": 1.0, "masked": True}),
    ("tanh", 4, 3, "l2", "step", 100, {}),
]


@pytest.mark.parametrize(("name", "steps", "features", "norm", "budget", "seed", "more"), CASES)
def test_the_radius_is_the_true_one(name, steps, features, norm, budget, seed, more):
    rng, net = np.random.default_rng(seed), network(name, seed, features, more.get("past", 0.0))
    x = rng.normal(size=(steps, features))
    free = rng.random(x.shape) < 0.6 if "masked" in more else np.ones(x.shape, dtype=bool)
    bounds = (float(x.min()) - 0.1, float(x.max()) + 0.2) if "clipped" in more else None
    label, told = int(net.logits(x).argmax()), {"mask": free} if "masked" in more else {}
    asked = request(net, x[None], [label], budget=budget, bounds=bounds, **told)
    claim, exact = single(asked, 0, norm, Deadline.after(None))
    assert exact
    assert claim is not None
    near = truth(net, x, label, norm, budget, free, bounds, min(claim.value, 2.0))
    assert near * (1.0 - 1e-6) <= claim.value <= near * (1.0 + 1e-9)
    for part in (1.0 + 1e-6, 1.01):
        assert accepted(net, "local_frontier", {**claim.proof.data, "radius": part * near}) is None, part


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("name", KINKED)
def test_the_radius_of_piecewise_linear_networks_is_that_of_all_their_pieces(monkeypatch, name, norm):
    monkeypatch.setattr("stability.local.mean._PARTED", 3_000_000)  # some come to no end with ten times as many
    met, seed = 0, 0
    while met < 1:
        net, x = pieces(name, seed)
        seed += 1
        if net.reduction == "last":
            continue
        label = int(net.logits(x).argmax())
        true = true_radius(net, x, label, norm)
        if not 1e-6 < true < 1e3:
            continue
        claim, exact = single(request(net, x[None], [label]), 0, norm, Deadline.after(None))
        assert claim is None or claim.value <= true * (1.0 + 1e-9), seed
        assert not exact or claim.value >= true * (1.0 - 1e-6), seed
        met += exact
        assert seed < 40


def test_long_sequences_have_the_true_radius():
    """The head's weights and the unit's have signs for which every sum falls with every number."""
    own = LureSystem([[0.2]], [[1.0]], [[0.8]], slope=(0.0, 1.0), dt=1.0)
    bare = Classifier(DrivenSystem(own, "tanh", [[0.7]], [0.1]), [[1.0], [-1.0]], None, "mean")
    x = 0.3 * np.random.default_rng(0).normal(size=(40, 1)) + 0.2
    worst = float((bare.logits(x - 0.35) @ [0.5, -0.5]).item())
    net = Classifier(bare.recurrent, bare.weight, [-worst, worst], "mean")
    (claim,) = largest_balls(net, x[None], [0], norm="linf")
    assert claim.proof.kind == "local_frontier"
    assert 0.35 * (1.0 - 1e-6) <= claim.value <= 0.35
    assert RULES["local_frontier"](net, claim)[0]


def test_where_the_class_changes_is_beyond_a_limit():
    rng = np.random.default_rng(0)
    for seed in range(8):
        net, x = network("tanh", seed, 1), rng.normal(size=(5, 1))
        steps, label = scalar_steps(net, x, 1.5, "linf"), int(net.logits(x).argmax())
        found = limits(net, label, steps, *reached(steps, activation("tanh"), 0.2))
        d = rng.uniform(-1.5, 1.5, size=(50_000, 5, 1))
        wrong, total = net.logits(x + d).argmax(axis=1) != label, sums(net, x + d)
        if found is None:
            continue
        out = np.zeros(len(d), dtype=bool)
        for sign, most in found:
            out |= sign * total <= most
        assert (out >= wrong).all()
        assert (out == wrong).mean() > 0.999


def test_what_the_rule_is_not_about_is_refused():
    net, x, rule = network("tanh", 101, 1), np.random.default_rng(1).normal(size=(3, 1)), RULES["local_frontier"]
    (claim,) = largest_balls(net, x[None], [int(net.logits(x).argmax())])
    assert claim.proof.kind == "local_frontier"
    data = dict(claim.proof.data)
    for changes, words in (
        ({"prices": np.ones(3)}, "prices must be (2,)"),
        ({"prices": -data["prices"]}, "from zero"),
        ({"prices": np.full(2, 1e25)}, "from zero"),
        ({"prices": np.zeros(2)}, "not proved"),
        ({"norm": "linf"}, "prices are for"),
        ({"budget": "step"}, "prices are for"),
        ({"paths": data["paths"][:, 1:]}, "paths must be"),
        ({"paths": np.zeros((9, 4))}, "paths must be"),
        ({"fine": 33}, "fine must"),
        ({"radius": 1.01 * data["radius"]}, "not proved"),
    ):
        assert words in rule(net, propose(net, "local_frontier", {**data, **changes}))[1], words
    for key, words in (("prices", "prices are for"), ("fine", "paths and fine"), ("paths", "paths and fine")):
        bare = {name: value for name, value in data.items() if name != key}
        assert words in rule(net, propose(net, "local_frontier", bare))[1], key
    last = Classifier(net.recurrent, net.weight, net.bias, "last", start=net.start)
    assert "prices are for" in rule(last, propose(last, "local_frontier", data))[1]


def test_a_price_of_another_end_proves_nothing_false():
    rng = np.random.default_rng(0)
    net, x = network("tanh", 101, 1), np.random.default_rng(1).normal(size=(3, 1))
    label = int(net.logits(x).argmax())
    (claim,) = largest_balls(net, x[None], [label])
    for _ in range(8):
        prices = np.abs(rng.normal(size=2)) * 10.0 ** rng.integers(-12, 12, 2)
        wrong = {**claim.proof.data, "prices": prices, "radius": claim.value * (1.0 + 2e-6)}
        assert accepted(net, "local_frontier", wrong) is None


def test_numbers_that_overflow_and_hostile_work_are_refused(monkeypatch):
    rng, rule = np.random.default_rng(0), RULES["local_frontier"]
    monkeypatch.setattr(local_frontier, "ROOM", 300_000)
    Work.at_most(600_000, monkeypatch)
    for size in (1e3, 1e80, 1e99):
        system = LureSystem([[0.5]], [[size]], [[-size]], slope=(0.0, 1.0), dt=1.0)
        cell = DrivenSystem(system, "tanh", size * rng.normal(size=(1, 1)), F=rng.normal(size=(1, 1)))
        net = Classifier(cell, [[size], [-size]], [1.0, 0.0], "mean")
        for more in ({"norm": "linf"}, {"norm": "l2", "prices": np.array([1e20, 1e-300])}):
            data = {"x": np.zeros((4, 1)), "label": 0, "radius": 1e3, "paths": np.zeros((0, 5)), "fine": 1, **more}
            assert not rule(net, propose(net, "local_frontier", data))[0]
    net, x = network("tanh", 0, 1, leak=2.0), rng.normal(size=(600, 1))
    data = {"x": x, "label": int(net.logits(x).argmax()), "norm": "l2", "radius": 300.0, "fine": 32}
    data |= {"paths": rng.normal(size=(8, 601)), "prices": np.ones(2)}
    holds, words = rule(net, propose(net, "local_frontier", data))
    assert not holds
    assert words == "it takes more than 300000 boxes"


def test_a_clipped_ball_of_steps_is_the_same_in_l2_and_in_l_inf():
    net, x = network("sigmoid", 102, 1), np.random.default_rng(3).normal(size=(4, 1))
    asked = {"bounds": (float(x.min()) - 0.3, float(x.max()) + 0.3)}
    label = int(net.logits(x).argmax())
    balls = {"linf": {}, "l2": {"budget": "step"}}
    one, two = (
        single(request(net, x[None], [label], **asked, **told), 0, norm, Deadline.after(None))[0]
        for norm, told in balls.items()
    )
    assert one is not None
    assert two is not None
    assert one.value == pytest.approx(two.value, rel=1e-6)
