"""Steps whose perturbations add two numbers: the sets are enclosed and met, next states and least sums bounded."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from benchmarks.single import network as drawn
from stability.local import pairs
from stability.local.balls import largest_balls
from stability.local.below import Lines
from stability.local.classifier import Classifier
from stability.local.pairs import Pair
from stability.local.ranges import reached
from stability.local.request import request
from stability.local.scalar import scalar_steps
from stability.local.single import single
from stability.local.spans import Span, minima
from stability.local.sums import least_sum
from stability.rules import local_frontier
from stability.rules.registry import RULES, accepted, propose
from stability.solve.deadline import Deadline
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import ACTIVATIONS, activation
from tests.stability.local.test_exact import truth
from tests.stability.local.test_mean import network, sums
from tests.stability.local.work import Work

Array = np.ndarray
NAMES = sorted(ACTIVATIONS)
SETS = ["disc", "clipped", "box"]


def balls(kind: str, rng: np.random.Generator, features: int) -> tuple[Pair, Array]:
    """A set, and points of the perturbations that it is about, those on the outside among them."""
    r = 0.7 if kind != "box" else np.inf
    low, high = -rng.uniform(0.05, 0.9, features), rng.uniform(0.05, 0.9, features)
    low[0] = 0.0 if kind == "clipped" else low[0]
    pair = Pair(*rng.normal(size=(2, features)), low, high, r, kind != "disc", (0.4,))
    d = rng.normal(size=(60_000, features)) * np.exp(rng.normal(size=(60_000, features)))
    if kind != "disc":  # the nearest points of the box on rays from within
        d = np.clip(3.0 * d / np.abs(d).max(axis=1, keepdims=True), low, high)
        d[:20_000] = np.where(rng.random((20_000, features)) < 0.5, low, high)
    if kind != "box":
        d = d * np.minimum(1.0, r / np.linalg.norm(d, axis=1))[:, None]
        d = d * r / np.linalg.norm(d, axis=1, keepdims=True) if kind == "disc" else d
    return pair, d


@pytest.mark.parametrize("kind", SETS)
def test_sets_of_pairs_lie_below_their_tangents_which_are_met(kind):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        pair, d = balls(kind, rng, 2 + seed % 3)
        y, q = d @ pair.E, d @ pair.F
        assert pair.ends[0] <= y.min()
        assert y.max() <= pair.ends[1]
        assert y.max() - y.min() >= 0.95 * (pair.ends[1] - pair.ends[0])
        for side, sign in zip(pair.sides, (1.0, -1.0)):
            assert (np.diff(side.slopes) < 0.0).all()
            far = 1.0 + np.abs(side.slopes)
            at = np.array([(sign * q - s * y).max() for s in side.slopes[::16]])
            assert (side.tops[::16] >= at).all()
            assert (side.tops[::16] - at <= 0.03 * far[::16]).all()
            mixed = rng.uniform(0.0, 1.0, len(side.slopes) - 1)
            s = mixed * side.slopes[1:] + (1.0 - mixed) * side.slopes[:-1]
            assert (side.top(s)[::16] >= np.array([(sign * q - own * y).max() for own in s[::16]])).all()
            assert (side.height(y) >= sign * q - 1e-12 * (1.0 + np.abs(q))).all()


def test_tops_are_the_true_ones():
    """Of a ball and a box, against a program that is solved: the largest of a linear function."""
    from scipy.optimize import minimize

    for seed in range(4):
        rng = np.random.default_rng(seed)
        pair, _ = balls("clipped", rng, 3)
        side = pair.sides[0]
        for k in range(0, len(side.slopes), 211):
            c = pair.F - side.slopes[k] * pair.E
            found = minimize(lambda d, c=c: -c @ d / np.linalg.norm(c), np.zeros(3), method="SLSQP",
                             bounds=[*zip(pair.low, pair.high)], options={"ftol": 1e-15, "maxiter": 200},
                             constraints={"type": "ineq", "fun": lambda d: 0.49 - d @ d})  # fmt: skip
            true = -found.fun * np.linalg.norm(c)
            assert side.tops[k] == pytest.approx(true, rel=1e-7, abs=1e-9)


def test_many_entries_are_not_all_in_memory_at_once():
    rng = np.random.default_rng(0)
    pair = Pair(*rng.normal(size=(2, 30_000)), *np.zeros((2, 30_000)), 0.5, False)
    tracemalloc.start()
    side = pair.sides[1]
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 2**28
    own = np.linalg.norm(pair.F + side.slopes[::97, None] * pair.E, axis=1)
    assert np.allclose(side.tops[::97], 0.5 * own, rtol=1e-10)


def test_a_polygon_is_close_to_its_disc():
    one = np.ones(2)
    disc = Pair(np.array([2.0, 0.0]), np.array([0.3, 0.7]), -one, one, 0.5, False)
    y = np.linspace(-0.999, 0.999, 5001)
    true = 0.15 * y + 0.7 * np.sqrt(0.25 - (0.5 * y) ** 2)
    lost = disc.sides[0].height(y) - true
    assert lost.min() >= 0.0
    assert lost.max() <= 2e-6
    assert pairs.TANGENTS * 2e-6 < 1.0


def spanned(name: str, kind: str, seed: int) -> tuple[Span, Array]:
    rng = np.random.default_rng(seed)
    net = network(name, seed, 3, 0.8, leak=1.0)
    x = rng.normal(size=(1, 3))
    bounds = (float(x.min()) - 0.1, float(x.max()) + 0.2) if kind == "clipped" else None
    (step,) = scalar_steps(net, x, 0.7, "l2", None, bounds, True)
    d = rng.normal(size=(20_000, 3))
    d *= 0.7 / np.linalg.norm(d, axis=1, keepdims=True)
    if kind == "clipped":
        d = np.clip(d, step.low, step.high)
    pair = step.pair
    assert pair is not None
    assert pair.boxed == (kind == "clipped")
    return Span(step, activation(name), -2.0, 2.0), np.stack([d @ pair.E, d @ pair.F], axis=1)


def after(span: Span, h: Array, moves: Array) -> Array:
    m = span.numbers
    z = (m["C"] * h + m["e"])[:, None] + moves[:, 0]
    return (m["A"] * h + m["f"])[:, None] + m["B"] * span.phi.function(z) + moves[:, 1]


def test_ranges_of_pairs_are_halved_as_long_as_there_is_room():
    (span, _), knots = spanned("deadzone", "disc", 0), np.linspace(-2.0, 2.0, 5)
    for sign in (1.0, -1.0):
        counts = [span.ends(sign, knots, 0.0, room).boxes for room in (np.inf, 0.0)]
        assert counts[1] < counts[0]


@pytest.mark.parametrize("kind", ["disc", "clipped"])
@pytest.mark.parametrize("name", NAMES)
def test_next_states_lie_between_lines(name, kind):
    rng = np.random.default_rng(7)
    for seed in range(3):
        span, moves = spanned(name, kind, seed)
        for size in (2.0, 0.1, 1e-3):
            drawn = rng.uniform(-2.0, 2.0, 200 if size < 1.0 else 10) * (1.0 if size > 0.01 else size)
            knots = np.unique(np.concatenate([[-2.0, 2.0], drawn]))
            for sign in (1.0, -1.0):
                found = span.ends(sign, knots, 1e-9, np.inf)
                h = rng.uniform(-2.0, 2.0, 40) * (1.0 if size > 0.01 else size)
                met = (sign * after(span, h, moves)).max(axis=1)
                above = Lines(knots, found.left, found.right).at(h)
                assert (above >= met).all()
                true = span.furthest(sign, h)[0]
                assert np.abs(true - met).max() <= 1e-2  # of points at random
                assert np.median(above - true) <= {2.0: 0.5, 0.1: 1e-3, 1e-3: 1e-7}[size]


@pytest.mark.parametrize("kind", ["disc", "clipped"])
@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_a_lower_bound_of_the_least_that_follows(name, kind):
    rng = np.random.default_rng(2)
    for seed in range(3):
        span, moves = spanned(name, kind, seed)
        reach = after(span, np.linspace(-2.0, 2.0, 60), moves)
        ends = reach.min() - 0.1, reach.max() + 0.1
        x = np.unique(np.concatenate([ends, rng.uniform(*ends, 30)]))
        u = Lines(x, rng.uniform(0.0, 1.0, len(x) - 1), rng.uniform(0.0, 1.0, len(x) - 1))
        knots = np.unique(np.concatenate([[-2.0, 2.0], rng.uniform(-2.0, 2.0, 150)]))
        lines, best, _ = span.least(u, knots, 1e-9, np.inf)
        h = rng.uniform(-2.0, 2.0, 60)
        assert (lines.at(h) <= u.at(after(span, h, moves)).min(axis=1) + 1e-12).all()
        smooth = Lines(x, (x[:-1] - 0.3) ** 2, (x[1:] - 0.3) ** 2)
        lines, best, _ = span.least(smooth, knots, 1e-9, np.inf)
        true = smooth.at(after(span, h, moves)).min(axis=1)
        assert (lines.at(h) <= true + 1e-12).all()
        assert np.quantile(true - lines.at(h), 0.8) <= 0.05 * np.ptp(smooth.left)
        assert np.isfinite(best).all()


def test_least_values_on_stretches():
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 7, 40):
        x = np.sort(rng.normal(size=count + 1))
        lines = Lines(x, rng.normal(size=count), rng.normal(size=count))
        ends = np.sort(rng.uniform(x[0], x[-1], (80, 2)), axis=1)
        ends[:5, 1] = ends[:5, 0]
        found = minima(lines, *ends.T)
        for k, (low, high) in enumerate(ends):
            inner = (x > low) & (x < high)
            values = [*lines.at(ends[k]), *lines.left[inner[:-1]], *lines.right[inner[1:]]]
            assert found[k] <= min(values)
            assert found[k] >= min(values) - 1e-9


@pytest.mark.parametrize("bounds", [None, 0.15])
@pytest.mark.parametrize("name", NAMES)
def test_nobody_beats_a_least_sum_and_a_run_has_it(name, bounds):
    net, rng = network(name, 4, 2, 0.8), np.random.default_rng(4)
    x, r = rng.normal(size=(4, 2)), 0.5
    told = None if bounds is None else (float(x.min()) - bounds, float(x.max()) + bounds)
    steps, phi = scalar_steps(net, x, r, "l2", None, told, True), activation(name)
    low, high = reached(steps, phi, 0.2)
    scale = float((high - low).sum())
    d = rng.normal(size=(40_000, *x.shape))
    d *= (r * rng.uniform(0.7, 1.0, d.shape[:2]) ** 0.5 / np.linalg.norm(d, axis=2))[..., None]
    d = d if told is None else np.clip(x + d, *told) - x
    for price in (1.0, -0.7):
        paths = np.zeros((0, len(steps) + 1))
        for _ in range(3):
            found = least_sum(steps, phi, 0.2, price, scale, paths, 3, 10**8, paid=False, followed=True)
            paths = found.path[None]
        assert found.value <= (price * sums(net, x + d)).min()
        met = price * found.path[1:].sum()
        assert found.value <= met + 1e-12
        assert met - found.value <= 2e-6 * (np.abs(found.path).sum() + 1.0)


CASES = [
    ("tanh", 4, 2, "mean", "l2", 0, {}),
    ("leaky_relu", 3, 3, "mean", "l2", 1, {"masked": True}),
    ("tanh", 3, 2, "mean", "l2", 1, {"clipped": True}),
    ("tanh", 3, 2, "last", "l2", 2, {"clipped": True}),
    ("saturation", 3, 2, "last", "l2", 4, {"clipped": True}),
    ("tanh", 2, 17, "mean", "linf", 1, {}),
    ("leaky_relu", 4, 2, "mean", "linf", 3, {"masked": True, "still": 2}),
]


@pytest.mark.parametrize(("name", "steps", "features", "reduction", "norm", "seed", "more"), CASES)
def test_the_radius_is_the_true_one(name, steps, features, reduction, norm, seed, more):
    rng, bare = np.random.default_rng(seed), network(name, seed, features, 0.8)
    net = Classifier(bare.recurrent, bare.weight, bare.bias, reduction, start=bare.start)
    x = rng.normal(size=(steps, features))
    free = rng.random(x.shape) < 0.7 if "masked" in more else np.ones(x.shape, dtype=bool)
    free[more.get("still", steps) :] = False
    bounds = (float(x.min()) - 0.1, float(x.max()) + 0.2) if "clipped" in more else None
    label, told = int(net.logits(x).argmax()), {"mask": free} if "masked" in more else {}
    budget = "step" if norm == "l2" else "total"
    asked = request(net, x[None], [label], budget=budget, bounds=bounds, **told)
    claim, exact = single(asked, 0, norm, Deadline.after(None))
    assert exact
    assert claim is not None
    near = truth(net, x, label, norm, budget, free, bounds, min(claim.value, 2.0))
    assert near * (1.0 - 1e-6) <= claim.value <= near * (1.0 + 1e-9)
    for part in (1.0 + 1e-6, 1.01):
        assert accepted(net, "local_frontier", {**claim.proof.data, "radius": part * near}) is None, part


def test_a_total_budget_that_is_clipped_is_not_settled_by_the_whole_ball():
    """The proof of the whole ball, whose radius is the true one without clipping, is no reason not to look for more."""
    for seed, more in ((1, 1.01), (5, 1.05), (2, 1.0)):
        net, x = drawn("tanh", seed, "mean", True)
        bounds, label = (float(x.min()) - 0.1, float(x.max()) + 0.2), int(net.logits(x).argmax())
        alone, settled = single(request(net, x[None], [label], bounds=bounds), 0, "l2", Deadline.after(None))
        (claim,) = largest_balls(net, x[None], [label], bounds=bounds)
        near = truth(net, x, label, "l2", "total", np.ones(x.shape, dtype=bool), bounds, claim.value)
        assert near * (1.0 - 1e-6) <= claim.value <= near * (1.0 + 1e-9)
        assert claim.value >= more * alone.value * (1.0 - 1e-9)
        assert not (settled and more > 1.0)
        asked = request(net, x[None], [label], bounds=bounds, epsilon=0.5 * (alone.value + claim.value))
        assert more == 1.0 or single(asked, 0, "l2", Deadline.after(None)) == (None, False)


def asked(net: Classifier, x: Array, reduction: str, bounds: tuple[float, float] | None) -> dict:
    mean = {"paths": np.zeros((1, len(x) + 1)), "fine": 3} if reduction == "mean" else {}
    clipped = {} if bounds is None else {"bounds": bounds}
    return {"x": x, "label": int(net.logits(x[None]).argmax()), "norm": "l2", "budget": "step", **mean, **clipped}


@pytest.mark.parametrize("reduction", ["last", "mean"])
def test_forged_data_prove_nothing_and_raise_nothing(reduction):
    bare = network("tanh", 0, 2, 0.8)
    net = Classifier(bare.recurrent, bare.weight, bare.bias, reduction, start=bare.start)
    x, rule = np.random.default_rng(0).normal(size=(4, 2)), RULES["local_frontier"]
    bounds = (float(x.min()) - 0.1, float(x.max()) + 0.2)
    (claim,) = largest_balls(net, x[None], [int(net.logits(x).argmax())], budget="step", bounds=bounds)
    assert claim.proof.kind == "local_frontier"
    assert rule(net, claim)[0]
    data = dict(claim.proof.data)
    changes = [
        {"radius": 1.01 * data["radius"]}, {"bounds": None}, {"bounds": (bounds[0] - 1.0, bounds[1] + 1.0)},
        {"x": x[:, :1]}, {"x": x + np.nan}, {"x": np.zeros((0, 2))}, {"budget": None}, {"norm": "linf"},
        {"mask": np.full(x.shape, 0.5)}, {"radius": np.nan}, {"radius": 1e300}, {"label": 9},
    ]  # fmt: skip
    if reduction == "mean":
        changes += [{"paths": data["paths"][:, 1:]}, {"paths": np.full_like(data["paths"], np.nan)}, {"fine": 0},
                    {"paths": np.zeros((0, 5)), "fine": 1, "radius": 1.2 * data["radius"]}]  # fmt: skip
    for change in changes:
        forged = {key: value for key, value in {**data, **change}.items() if value is not None}
        if reduction == "last" and ("bounds" in change or change.get("norm") == "linf"):
            continue  # what it says then may be true
        assert not rule(net, propose(net, "local_frontier", forged))[0], change


@pytest.mark.parametrize("reduction", ["last", "mean"])
@pytest.mark.parametrize("into", [1e-150, 1e-200, 5e-324, 1e160, 1e300])
@pytest.mark.parametrize("past", [1.0, 1e-308, 1e300])
def test_numbers_out_of_range_are_no_fault(into, past, reduction):
    own = LureSystem([[0.3]], [[1.0]], [[0.8]], slope=(0.0, 1.0), dt=1.0)
    cell = DrivenSystem(own, "tanh", np.full((1, 2), into), [0.1], np.array([[past, -past]]))
    net = Classifier(cell, [[1.0], [-1.0]], reduction=reduction, start=[0.2])
    x = np.array([[0.3, 0.2], [0.1, 0.4], [0.2, 0.2]])
    for bounds in (None, (0.0, 0.45)):
        data = {**asked(net, x, reduction, bounds), "radius": 0.1}
        if accepted(net, "local_frontier", data) is not None:
            rng = np.random.default_rng(0)
            d = rng.normal(size=(2000, 3, 2))
            d[:8] = [[[a, -a], [b, -b], [c, -c]] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]
            d *= 0.1 / np.linalg.norm(d, axis=2, keepdims=True)
            inside = x + d if bounds is None else np.clip(x + d, *bounds)
            assert (net.logits(inside).argmax(axis=1) == data["label"]).all()


@pytest.mark.parametrize(
    ("steps", "features", "norm", "why"),
    [
        pytest.param(1500, 2, "l2", "more than 300000 boxes", marks=pytest.mark.slow),
        (8, 128, "l2", "more than 300000 boxes"),
        (2, 3000, "linf", "steps of more than 128 features"),
        (8, 128, "linf", "more than 300000 boxes"),
        (2, 30_000, "l2", "at most 10,000 features"),
    ],
)
def test_hostile_work_is_refused_where_it_goes_too_far(steps, features, norm, why, monkeypatch):
    rng, net = np.random.default_rng(0), network("tanh", 0, features, 0.3, leak=2.0)
    x = rng.normal(size=(steps, features))
    data = {"x": x, "label": int(net.logits(x).argmax()), "norm": norm, "radius": 30.0, "fine": 32}
    data |= {"paths": rng.normal(size=(8, steps + 1)), "bounds": (-9.0, 9.0)}
    data |= {"budget": "step"} if norm == "l2" else {}
    monkeypatch.setattr(local_frontier, "ROOM", 300_000)
    Work.at_most(600_000, monkeypatch)
    rule = RULES["local_frontier"]
    holds, words = rule(net, propose(net, "local_frontier", data))
    assert not holds
    assert why in words
