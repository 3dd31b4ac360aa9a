"""Networks of one unit: the certified radius is the true one to 1e-6, and what the proofs use encloses what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from stability.local import covering
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.local.clipped import Clipped
from stability.local.coordinates import coordinates
from stability.local.hessians import expansion, weights
from stability.local.minorants import least_eigenvalues
from stability.rules.registry import RULES, accepted, propose
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import activation

Array = np.ndarray


def network(name: str, rng: np.random.Generator, features: int, reduction: str, leak: float = 0.0) -> Classifier:
    own = LureSystem([[leak]], [[1.0]], [[rng.normal()]], slope=activation(name).slope, dt=1.0)
    cell = DrivenSystem(own, name, rng.normal(size=(1, features)), [0.5 * rng.normal()])
    return Classifier(cell, 3.0 * rng.normal(size=(3, 1)), 0.3 * rng.normal(size=3), reduction)


def truth(
    net: Classifier, x: Array, label: int, norm: str, budget: str, free: Array, bounds: Any, near: float
) -> float:
    """The least radius of another class that descents from many places find, in the entries of the input themselves."""
    rng, best, count = np.random.default_rng(1), np.inf, int(free.sum())
    ends = [np.full(count, -np.inf), np.full(count, np.inf)] if bounds is None else [(b - x)[free] for b in bounds]

    def moved(v: Array) -> Array:
        out = np.zeros(x.shape)
        out[free] = v
        return out

    def size(v: Array) -> float:
        squares = moved(v) ** 2
        if norm == "linf":
            return float(np.abs(v).max())
        return float(np.sqrt(squares.sum(axis=1).max() if budget == "step" else squares.sum()))

    def room(z: Array) -> Array:
        if norm == "linf":
            return np.concatenate([z[-1] - z[:-1], z[-1] + z[:-1]])
        squares = moved(z[:-1]) ** 2
        return z[-1] ** 2 - (squares.sum(axis=1) if budget == "step" else squares.sum(keepdims=True)[0])

    for other in set(range(net.classes)) - {label}:

        def lost(z: Array, other: int = other) -> float:
            logits = net.logits(x + moved(z[:count]))
            return float(logits[other] - logits[label])

        for _ in range(3):
            start = np.append(near * rng.normal(size=count) / np.sqrt(count), near)
            limits = [{"type": "ineq", "fun": lost}, {"type": "ineq", "fun": room}]
            options = {"maxiter": 80, "ftol": 1e-13}
            if norm == "l2" and budget == "total":  # without a bound of their size: that is curved, and descents go far
                found = minimize(
                    lambda v: v @ v, start[:-1], jac=lambda v: 2.0 * v, method="SLSQP", constraints=limits[0],
                    bounds=[*zip(*ends)], options=options,
                ).x  # fmt: skip
            else:
                found = minimize(
                    lambda z: z[-1], start, jac=lambda z: np.eye(len(z))[-1], method="SLSQP", constraints=limits,
                    bounds=[*zip(*ends), (1e-9, None)], options=options,
                ).x[:-1]  # fmt: skip
            for more in (0.0, 1e-10, 1e-9, 1e-8, 1e-7):  # what the descent leaves of a constraint is rounding
                v = np.clip((1.0 + more) * found, *ends)
                if lost(v) >= -1e-11:
                    best = min(best, size(v))
                    break
    return best


CASES = [
    ("tanh", 6, 1, "last", "l2", "total", {}),
    ("tanh", 4, 2, "mean", "l2", "total", {}),
    ("sigmoid", 5, 3, "last", "l2", "total", {"masked": True}),
    ("tanh", 5, 2, "mean", "l2", "step", {}),
    ("tanh", 4, 2, "mean", "linf", "total", {"leak": 0.5}),
    ("tanh", 3, 2, "last", "l2", "total", {"clipped": True}),
    ("tanh", 4, 2, "last", "l2", "step", {"clipped": True}),
    ("leaky_relu", 5, 1, "last", "linf", "total", {"leak": -0.3}),
]


@pytest.mark.parametrize(("name", "steps", "features", "reduction", "norm", "budget", "more"), CASES)
def test_the_radius_is_the_true_one(monkeypatch, name, steps, features, reduction, norm, budget, more):
    if reduction == "mean":  # least sums do as well
        monkeypatch.setattr("stability.local.balls.covers", lambda *_: False)
    met = 0
    for seed in range(1):
        rng = np.random.default_rng(seed)
        net = network(name, rng, features, reduction, more.get("leak", 0.0))
        x = 0.7 * rng.normal(size=(steps, features))
        free = rng.random(x.shape) < 0.6 if "masked" in more else np.ones(x.shape, dtype=bool)
        bounds = (float(x.min()) - 0.1, float(x.max()) + 0.2) if "clipped" in more else None
        label = int(net.logits(x).argmax())
        told = {"mask": free} if "masked" in more else {}
        (claim,) = largest_balls(net, x[None], [label], norm=norm, budget=budget, bounds=bounds, **told)
        assert claim is not None
        assert claim.proof is not None
        assert RULES[claim.proof.kind](net, claim)[0]
        found = truth(net, x, label, norm, budget, free, bounds, min(claim.value, 2.0))
        assert claim.value <= found * (1 + 1e-9), seed
        if np.isfinite(found):
            met += 1
            assert claim.value >= found * (1 - 1e-6), (seed, claim.value, found)
            if claim.proof.kind == "local_hessians":
                monkeypatch.setattr("stability.rules.local_hessians.ROOM", 600)
                beyond_is_refused(net, dict(claim.proof.data), found)
                monkeypatch.undo()
    assert met or "clipped" in more


def beyond_is_refused(net: Classifier, data: dict[str, Any], true: float) -> None:
    rng = np.random.default_rng(0)
    for part in (1.0 + 1e-6, 1.01):
        for prices, bends in ((1.0, 1.0), (rng.uniform(0.5, 2.0), 0.0)):
            wrong = {"radius": part * true, "prices": prices * data["prices"], "bends": bends * data["bends"] + bends}
            assert accepted(net, "local_hessians", {**data, **wrong}) is None, part


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "relu", "saturation"])
def test_what_a_box_is_given_encloses_its_points(name):
    rng = np.random.default_rng(3)
    own = LureSystem(0.3 * rng.normal(size=(2, 2)), rng.normal(size=(2, 2)), rng.normal(size=(2, 2)), dt=1.0)
    cell = DrivenSystem(own, name, rng.normal(size=(2, 2)), rng.normal(size=2), F=rng.normal(size=(2, 2)))
    net, x = Classifier(cell, rng.normal(size=(2, 2)), reduction="mean"), rng.normal(size=(3, 2))
    ball = coordinates(net, x, 0.5, "l2")
    margin = weights(ball, 0, 1)
    low = rng.uniform(-0.4, 0.3, (40, 6))
    high = low + rng.uniform(0.0, 0.1, (40, 6))
    box, smooth = expansion(ball, margin, low, high), activation(name).width is not None
    for _ in range(20):
        y = rng.uniform(low, high)
        at = expansion(ball, margin, y, y)
        logits = net.logits(x + y.reshape(-1, 3, 2))
        assert np.allclose(3 * (logits[:, 0] - logits[:, 1]), at.value.low, rtol=0, atol=1e-10)
        assert box.value.contains(at.value)
        assert ((box.slope.low <= at.slope.high) & (at.slope.low <= box.slope.high)).all()
        step = 1e-5
        for k in range(6):
            d = step * np.eye(6)[k]
            rise = [expansion(ball, margin, y + s * d, y + s * d).slope for s in (-1.0, 1.0)]
            if smooth:
                bend = (rise[1].low - rise[0].low) / (2 * step)
                assert np.allclose(bend, at.hessian.low[:, k], atol=1e-5)
                assert (box.hessian.low[:, k] <= at.hessian.high[:, k]).all()
                assert (box.hessian.high[:, k] >= at.hessian.low[:, k]).all()
            else:  # a box without a concave kink has a margin that is nowhere bent downwards
                fine = (box.bent < 0) & (y[:, k] + step <= high[:, k]) & (y[:, k] - step >= low[:, k])
                assert (rise[1].high[fine, k] >= rise[0].low[fine, k] - 1e-12).all()
    assert smooth or ((box.bent < 0).any() and (box.bent >= 0).any())


def test_least_eigenvalues_are_lower_bounds():
    rng = np.random.default_rng(0)
    S = rng.normal(size=(50, 5, 5)) * 10.0 ** rng.integers(-6, 7, (50, 1, 1))
    S = S + S.transpose(0, 2, 1)
    S[0] = np.nan
    bound, true = least_eigenvalues(S), np.linalg.eigvalsh(np.nan_to_num(S))[:, 0]
    assert bound[0] == -np.inf
    size = np.abs(S[1:]).max(axis=(1, 2))
    assert (bound[1:] <= true[1:] + 1e-14 * size).all()
    assert (bound[1:] >= true[1:] - 1e-12 * size).all()


def test_costs_under_clipping():
    rng = np.random.default_rng(0)
    for _ in range(20):
        E, low, high = rng.normal(size=3), -rng.uniform(0.0, 1.0, 3), rng.uniform(0.0, 1.0, 3)
        one, d = Clipped(E, low, high), rng.uniform(low, high, (20000, 3))
        v, cost = d @ E, (d * d).sum(axis=1)
        for at in rng.uniform(v.min(), v.max(), 4):
            a, b, c = one.tangent(float(at))
            assert (cost >= a * v * v + b * v + c).all()
            assert abs(a * at * at + b * at + c - one.cost(np.array(at))[0]) < 1e-9
        for radius in (0.1, 0.5, 3.0):
            least, most = one.reach(radius)
            inside = v[cost <= radius**2]
            assert least <= inside.min(initial=0.0)
            assert most >= inside.max(initial=0.0)
            assert most <= min(np.linalg.norm(E) * radius, np.maximum(E * low, E * high).sum()) * (1 + 1e-9) + 1e-12


def test_what_the_rule_is_not_about_is_refused(monkeypatch):
    monkeypatch.setattr("stability.local.balls.covers", lambda *_: False)
    rng = np.random.default_rng(0)
    net, x = network("tanh", rng, 1, "mean"), np.zeros((2, 1))
    label = int(net.logits(x).argmax())
    (claim,) = largest_balls(net, x[None], [label])
    assert claim is not None
    assert claim.proof is not None
    assert claim.proof.kind == "local_hessians"
    data = claim.proof.data
    for changes, words in (
        ({"norm": "l1"}, "the norm"),
        ({"budget": "month"}, "budget is"),
        ({"norm": "linf", "budget": "step"}, "budget is"),
        ({"points": data["points"][:1]}, "must be"),
        ({"prices": -data["prices"]}, "from zero"),
        ({"bends": data["bends"] + np.array([np.inf, 0.0])}, "finite"),
        ({"radius": 1e9 * data["radius"]}, "not proved"),
    ):
        assert words in RULES["local_hessians"](net, propose(net, "local_hessians", {**data, **changes}))[1], words
    wide = DrivenSystem(LureSystem(np.zeros((4, 4)), np.eye(4), 0.1 * np.eye(4), dt=1.0), "tanh", np.ones((4, 1)))
    large = Classifier(wide, np.ones((3, 4)))
    assert "networks of 3" in RULES["local_hessians"](large, propose(large, "local_hessians", dict(data)))[1]


def test_all_classes_of_a_file_share_boxes_and_work(monkeypatch):
    monkeypatch.setattr("stability.local.balls.covers", lambda *_: False)
    rng = np.random.default_rng(5)
    net, x = network("tanh", rng, 1, "mean", 0.5), 0.7 * rng.normal(size=(5, 1))
    (claim,) = largest_balls(net, x[None], [int(net.logits(x).argmax())])
    assert claim is not None
    assert claim.proof is not None
    assert claim.proof.kind == "local_hessians"
    rule, spent = RULES["local_hessians"], list[float]()
    boxes = int(rule(net, claim)[1].split(" in ")[1].split()[0])
    whole = covering.turn_cost

    def counted(*sizes: Any) -> float:
        spent.append(whole(*sizes))
        return spent[-1]

    monkeypatch.setattr(covering, "turn_cost", counted)
    assert rule(net, claim)[0]
    assert len(spent) > 3
    for name, just in (("ROOM", boxes), ("WORK", sum(spent))):
        for limit, holds in ((just * (1.0 + 1e-9), True), (just * (1.0 - 1e-9), False)):
            with monkeypatch.context() as patch:
                patch.setattr(f"stability.rules.local_hessians.{name}", limit)
                assert rule(net, claim)[0] is holds, name
    spent.clear()
    deep = network("tanh", rng, 1, "mean", 0.9)
    data = dict(claim.proof.data) | {"x": np.zeros((30, 1)), "points": np.zeros((2, 30)), "radius": 2.0}
    data["label"] = int(deep.logits(data["x"]).argmax())
    assert accepted(deep, "local_hessians", data) is None
    assert sum(spent) <= 24e6 + max(spent)  # twenty seconds of a core


def test_long_sequences_of_few_entries_are_refused_before_they_cost_anything(monkeypatch):
    monkeypatch.setattr("stability.rules.local_hessians.coordinates", None)
    net, x = network("tanh", np.random.default_rng(0), 1, "last"), np.zeros((20_000, 1))
    data = {"x": x, "label": 0, "norm": "linf", "radius": 1e-3, "mask": np.eye(len(x), 1)}
    data |= {"points": np.zeros((2, 1)), "prices": np.zeros((2, 0)), "bends": np.zeros(2)}
    rule = RULES["local_hessians"]
    assert "too long" in rule(net, propose(net, "local_hessians", data))[1]
    short = {**data, "x": np.zeros((31, 1)), "mask": np.ones((31, 1))}
    assert "more than 30" in rule(net, propose(net, "local_hessians", short))[1]


@pytest.mark.parametrize("name", ["tanh", "relu", "saturation"])
def test_numbers_that_overflow_prove_nothing_and_raise_nothing(monkeypatch, name):
    monkeypatch.setattr("stability.rules.local_hessians.ROOM", 500)
    rng, rule = np.random.default_rng(0), RULES["local_hessians"]
    for size in (1e3, 1e40, 1e59):
        for bounds in (None, (-1.0, 1.0)):
            slope = activation(name).slope
            cell = DrivenSystem(
                LureSystem([[0.5]], [[size]], [[-size]], slope=slope, dt=1.0), name, size * rng.normal(size=(1, 3))
            )
            net, x = Classifier(cell, [[size], [-size]], [1.0, 0.0]), np.zeros((4, 3))
            for prices in (0.0, 1.0, 1e23):
                data = {"x": x, "label": 0, "norm": "l2", "radius": 1e3, "points": np.zeros((1, 4))}
                data |= {"prices": np.full((1, 1), prices), "bends": np.full(1, prices)}
                data |= {} if bounds is None else {"bounds": bounds}
                assert not rule(net, propose(net, "local_hessians", data))[0]
                none = {**data, "mask": np.zeros((4, 3)), "points": np.zeros((1, 0)), "prices": np.zeros((1, 0))}
                assert "no entry" in rule(net, propose(net, "local_hessians", none))[1]
