"""Pieces of l2 balls: what holds in them, how near the truth they come, and that nothing else is accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from local_specimens import flow, gated, plain

from stability.certificate import Proof
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.local.cutting import Piecewise
from stability.local.leaves import touched
from stability.local.parabolas import quadratic
from stability.local.pieces import PieceTube, beyond, priced
from stability.local.runs import margins
from stability.rules.registry import RULES
from stability.solve.deadline import Deadline
from stability.stacks.stack import LayerStack

Array = np.ndarray
RULE = RULES["local_pieces"]


def networks(inputs: int, seed: int = 3) -> dict[str, Classifier]:
    """Of every kind, with classes that are balanced on small inputs."""
    rng = np.random.default_rng(seed)
    bare: dict[str, Any] = {
        "tanh": plain(rng, "tanh", inputs, 6), "relu": plain(rng, "relu", inputs, 4),
        "midpoint": flow(rng, "midpoint", inputs, 5), "lstm": gated(rng, "lstm", inputs, 4),
        "gru": gated(rng, "gru", inputs, 4),
        "stack": LayerStack([flow(rng, "midpoint", inputs, 4), gated(rng, "gru", 4, 3)]),
    }  # fmt: skip
    out = {}
    for k, (name, network) in enumerate(bare.items()):
        width = network.layers[-1].outputs if isinstance(network, LayerStack) else network.outputs
        weight, reduction = 2.0 * rng.normal(size=(3, width)), ("last", "mean")[k % 2]
        middle = Classifier(network, weight, reduction=reduction).logits(0.6 * rng.normal(size=(50, 2, inputs)))
        out[name] = Classifier(network, weight, -middle.mean(axis=0), reduction)
    return out


def sample(network: Classifier, steps: int) -> tuple[Array, int]:
    """The input of 20 whose decision is the tenth closest."""
    x = 0.6 * np.random.default_rng(1).normal(size=(20, steps, network.inputs))
    logits = np.sort(network.logits(x), axis=1)
    chosen = x[np.argsort(logits[:, -1] - logits[:, -2])[9]]
    return chosen, int(network.logits(chosen).argmax())


def directions(entries: int, count: int = 1440) -> Array:
    if entries == 2:
        angle = np.linspace(0.0, 2.0 * np.pi, count + 1)[:-1]
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    k = np.arange(4 * count) + 0.5  # a spiral on the sphere
    z, angle = 1.0 - k / (2 * count), np.pi * (1.0 + 5**0.5) * k
    return np.stack([np.sqrt(1 - z * z) * np.cos(angle), np.sqrt(1 - z * z) * np.sin(angle), z], axis=1)


def brute(network: Classifier, x: Array, label: int, ends: tuple[float, float] | None = None) -> float:
    """The smallest l2 norm of a change that changes the class; up to 4."""

    def broken(radius: float) -> bool:
        inputs = x.ravel() + radius * directions(x.size)
        if ends is not None:
            inputs = np.clip(inputs, *ends)
        return bool((network.logits(inputs.reshape(-1, *x.shape)).argmax(axis=1) != label).any())

    grid = np.linspace(0.0, 4.0, 101)[1:]
    high = next((r for r in grid if broken(r)), np.inf)
    low = high - grid[0]
    for _ in range(22 if np.isfinite(high) else 0):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if broken(middle) else (middle, high)
    return float(high)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def found(request: pytest.FixtureRequest) -> dict[str, tuple[Classifier, Array, int, float, Any]]:
    """Networks with an input of two numbers, or up to three, the true radius and the claim."""
    out = {}
    for steps, inputs in ((1, 2), (2, 1), (1, 3))[: request.param]:
        for name, network in networks(inputs).items():
            x, label = sample(network, steps)
            true = brute(network, x, label)
            if not np.isfinite(true) or true > 2.0:
                continue
            claim = largest_balls(network, x[None], [label], upper=[true])[0]
            out[f"{name}, {steps} x {inputs}"] = network, x, label, true, claim
    assert len(out) > 4 * request.param + 1
    return out


def test_radii_are_those_of_brute_force_within_five_percent(found):
    shares = {name: claim.value / true if claim else 0.0 for name, (*_, true, claim) in found.items()}
    assert max(shares.values()) <= 1.0
    assert np.mean(list(shares.values())) > 0.985, shares
    assert min(shares.values()) > 0.94, shares
    kinds = [claim.proof.kind for *_, claim in found.values()]
    assert kinds.count("local_pieces") > 4


def test_nothing_larger_than_the_truth_is_accepted(found):
    """Whatever stands in the tree: with a radius at which brute force changes the class, it is refused."""
    rng, tried = np.random.default_rng(2), 0
    for network, _, _, true, claim in found.values():
        if claim.proof.kind != "local_pieces":
            continue
        assert RULE(network, claim)[0]
        for tree in (claim.proof.data["tree"], spoilt(claim.proof.data["tree"], rng)):
            assert not RULE(network, altered(claim, radius=1.0005 * true, tree=tree))[0]
        tried += 1
    assert tried > 4


def altered(claim: Any, **data: Any) -> Any:
    given = {key: value for key, value in {**claim.proof.data, **data}.items() if value is not None}
    return replace(claim, proof=Proof(claim.proof.kind, given), value=given["radius"])


def spoilt(tree: Any, rng: np.random.Generator) -> Any:
    """The tree with other points, multipliers and prices."""
    if "parts" in tree:
        return {**tree, "parts": [spoilt(part, rng) for part in tree["parts"]]}
    if not tree:
        return {}
    changed = []
    for part in tree["classes"]:
        size = len(part["point"])
        point = np.clip(part["point"] + 0.1 * rng.normal(size=size), -1.0, 1.0)
        scale = np.exp(0.3 * rng.normal())
        more = {"multipliers": scale * part["multipliers"], "price": float(scale * part["price"])}
        changed.append({**part, "point": point, **more})
    return {"classes": changed}


def leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree["parts"] for leaf in leaves(part)] if "parts" in tree else [tree]


def test_a_proof_of_something_else_is_refused(found):
    trees = {name: f for name, f in found.items() if f[-1].proof.kind == "local_pieces"}
    cut = [f for f in trees.values() if len(leaves(f[-1].proof.data["tree"])) > 2]
    assert cut
    network, x, label, _, claim = cut[0]
    data = claim.proof.data
    assert not RULE(network, altered(claim, tree={}))[0]  # the whole ball is not left out
    assert not RULE(network, altered(claim, tree={**data["tree"], "parts": [{}, data["tree"]["parts"][1]]}))[0]
    assert not RULE(network, altered(claim, tree={**data["tree"], "at": float(x.max() + 99.0)}))[0]
    assert not RULE(network, altered(claim, label=(label + 1) % 3))[0]
    assert not RULE(network, altered(claim, norm="linf"))[0]
    other = Classifier(network.recurrent, -network.weight, -network.bias, network.reduction)
    assert not RULE(other, claim)[0]
    priced_one = next(
        f for f in trees.values() if any(leaf.get("classes") for leaf in leaves(f[-1].proof.data["tree"]))
    )
    for price in (-1.0, float("inf"), float("nan"), 1):
        tree = with_prices(priced_one[-1].proof.data["tree"], price)
        assert not RULE(priced_one[0], altered(priced_one[-1], tree=tree))[0]


def with_prices(tree: Any, price: Any) -> Any:
    if "parts" in tree:
        return {**tree, "parts": [with_prices(part, price) for part in tree["parts"]]}
    return {"classes": [{**part, "price": price} for part in tree["classes"]]} if tree else {}


def inside(
    x: Array, radius: float, low: Array, high: Array, rng: np.random.Generator, count: int = 4000, each: bool = False
) -> Array:
    """Inputs of a piece, many of them on the sphere."""
    step = rng.normal(size=(count, len(x) if each else 1, x.shape[1] if each else x.size))
    size = rng.choice([1.0 - 1e-12, 0.7], size=(count, step.shape[1], 1))
    step *= radius * size / np.linalg.norm(step, axis=2, keepdims=True)
    inputs = x + step.reshape(-1, *x.shape)
    return inputs[((inputs >= low) & (inputs <= high)).all(axis=(1, 2))]


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("name", ["tanh", "relu", "midpoint", "lstm", "gru", "stack"])
def test_forms_and_parabolas_of_a_piece_hold_for_all_its_inputs(name, each):
    """Boxes through the middle of a ball, across its edge, and with a masked entry."""
    network, rng = networks(2)[name], np.random.default_rng(4)
    x, label = sample(network, 2)
    radius = 0.5
    boxes = [(x - radius, x + radius), (x - 0.2, x + radius), (x + 0.1, x + radius), (x - radius, x + 0.3 * radius)]
    boxes.append((np.where([[True, False]], x, x - radius), np.where([[True, False]], x, x + radius)))
    others, sharper = np.delete(np.arange(3), label), 0
    for low, high in boxes:
        tube = PieceTube(x=x, ball=radius, each=each)
        margin: Any = margins(network, tube, low, high, label)
        inputs = inside(x, radius, low, high, rng, each=each)
        if not (high > low).all():
            inputs = np.where(high > low, inside(x, radius, x - 9.0, x + 9.0, rng, each=each), x)
            inputs = inputs[((inputs >= low) & (inputs <= high)).all(axis=(1, 2))]
        assert len(inputs) > 20
        logits = network.logits(inputs)
        scale = 2.0 if network.reduction == "mean" else 1.0
        values = scale * (logits[:, [label]] - logits[:, others])
        assert (values >= margin.low).all()
        assert (values <= margin.high).all()
        index, _ = tube.symbols_of_inputs()
        met, _ = touched(network, tube, np.zeros(len(index)), label)
        for row in range(2):
            F = quadratic(tube, margin, row, met)
            for prices in (np.zeros(2), np.full(2, 0.3), np.array([3.0, 0.1])):
                G = priced(F, tube, prices if each else prices[:1])
                D = np.abs(G.hessian()).sum(axis=1) + 0.5 * np.abs(G.slope()) + 0.1
                assert G.least(D) <= values[:, row].min()
                sharper += G.least(D) > F.least(D)
    assert sharper > 0 or each  # for balls of steps: the known minimum below


@pytest.mark.parametrize("steps", [1, 2])
def test_the_price_is_that_of_a_known_minimum(steps):
    """``v`` on the ball of radius 1/2 in the box ``|v| <= 1``: ``v_1 + v_2`` is ``- 2^(-1/2)`` at least, each step."""
    network = Classifier(plain(np.random.default_rng(0), "tanh", 2, 2), np.eye(2))
    box = np.ones((steps, 2))
    tube = PieceTube(x=0.0 * box, ball=0.5, each=steps > 1)
    margin: Any = margins(network, tube, -box, box, 0)
    met, _ = touched(network, tube, np.zeros(2 * steps), 0)
    F = quadratic(tube, margin, 0, met)
    line = replace(F, constant=0.0, linear=0.0 * F.linear, diagonal=0.0 * F.diagonal)
    line.linear[tube.symbols_of_inputs()[0]] = 1.0
    prices, least = np.full(steps, 2**0.5 / (2.0 * 0.5)), -steps * 2.0**-0.5  # |gradient| / (2 radius)
    found = priced(line, tube, prices).least(1e-12 + 0.0 * F.linear)
    assert found == pytest.approx(least, abs=1e-9)
    assert found < least


def test_a_box_is_beyond_a_ball_only_where_it_surely_is():
    x, one = np.zeros((1, 2)), np.ones((1, 2))
    assert not beyond(x, np.sqrt(2.0), one, 2.0 * one)
    assert not beyond(x, np.nextafter(np.sqrt(2.0), 0.0), one, 2.0 * one)
    assert beyond(x, np.sqrt(2.0) * (1 - 1e-12), one, 2.0 * one)
    assert not beyond(x, 1e-9, -one, one)
    two, away = np.zeros((2, 2)), np.array([[1.0, 1.0], [-1.0, -1.0]])
    assert not beyond(two, 1.5, away, away + 2.0, each=True)
    assert beyond(two, 1.4, away, away + 2.0, each=True)
    assert beyond(two, 1.5, away + np.array([[0.1], [0.0]]), away + 2.0, each=True)  # one step is enough
    assert not beyond(two, 1.5, away, away + 2.0)


def of_every_step(network: Classifier, x: Array, label: int) -> float:
    """The smallest length of two changes of two numbers that change the class together, by angles."""
    ways = directions(2, 180)
    steps = np.stack(np.broadcast_arrays(ways[:, None], ways[None]), axis=2).reshape(-1, 2, 2)
    low, high = 0.0, 4.0
    for _ in range(20):
        middle = 0.5 * (low + high)
        wrong = (network.logits(x + middle * steps).argmax(axis=1) != label).any()
        low, high = (low, middle) if wrong else (middle, high)
    return high


def test_a_budget_for_each_step():
    """Two steps of two numbers: radii near the truth, none above it, and none of another budget."""
    near = []
    for name in ("tanh", "relu", "gru"):
        network = networks(2)[name]
        x, label = sample(network, 2)
        true = of_every_step(network, x, label)
        question = Piecewise(network, x, label, None, None, Deadline.after(60.0), True)
        found = question.decide(0.9 * true)
        claim = None if found.tree is None else question.claim(0.9 * true, found.tree)
        near.append(claim is not None)
        if claim is None:
            continue
        assert " at every step" in claim.statement
        assert RULE(network, claim)[0]
        assert not RULE(network, altered(claim, radius=1.001 * true))[0]
        for budget in ("total", "steps", 1, ""):
            assert not RULE(network, altered(claim, budget=budget))[0]
        bad = [
            with_prices(claim.proof.data["tree"], price) for price in (1.0, np.ones(3), -np.ones(2), np.full(2, np.nan))
        ]
        named = [leaf for leaf in leaves(claim.proof.data["tree"]) if leaf.get("classes")]
        assert not named or not any(RULE(network, altered(claim, tree=tree))[0] for tree in bad)
    assert sum(near) > 1


@pytest.mark.parametrize("name", ["tanh", "gru"])
def test_masks_and_bounds(name):
    """Two of four numbers change; perturbed inputs that are clipped may be moved further."""
    network = networks(2)[name]
    x, label = sample(network, 2)
    mask = np.array([[True, False], [False, True]])
    (some,) = largest_balls(network, x[None], [label], mask=mask)
    (whole,) = largest_balls(network, x[None], [label])
    assert some is not None
    assert whole is not None
    assert some.value > whole.value
    short = networks(2)[name]
    x, label = sample(short, 1)
    free = brute(short, x, label)
    ends = float(x.min()), float(x.max())
    clipped = brute(short, x, label, ends)
    assert clipped > free
    (claim,) = largest_balls(short, x[None], [label], bounds=ends, upper=[clipped if np.isfinite(clipped) else 4.0])
    assert claim is not None
    assert claim.value > 1.02 * free
    assert claim.value <= clipped
    assert "under which the input stays in" in claim.statement
    assert not RULE(short, altered(claim, bounds=None))[0]


def test_one_radius_and_many_numbers():
    """A radius that tubes leave open, and more numbers under a time limit."""
    network = networks(1)["relu"]
    x, label = sample(network, 3)
    true = brute(network, x, label)
    (claim,) = largest_balls(network, x[None], [label], epsilon=0.97 * true)
    assert claim is not None
    assert claim.value == 0.97 * true
    assert largest_balls(network, x[None], [label], epsilon=1.001 * true) == [None]
    long, label = sample(network, 9)
    tubes, limited = (
        largest_balls(network, long[None], [label], time_limit=limit)[0] for limit in (None, 4.0)
    )  # fmt: skip
    assert limited is not None
    assert limited.value > 1.2 * (tubes.value if tubes else 0.0)
    assert RULE(network, limited)[0]
