"""Balls in l_inf: tubes and parabolas hold every run, radii reach what brute force finds, and no further."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from stability.kernel.reachability.affine_forms import AffineArithmetic, Form, Term
from stability.kernel.reachability.classifier_run import Numbers, margins
from stability.kernel.reachability.gate_units import Box, Parabola, Unit, lower_bound
from stability.kernel.reachability.input_box import count_perturbed, evaluate_at, input_box
from stability.kernel.reachability.quadratic_relaxation import quadratic, tangent_parabola
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.proposals import accepted_claim
from stability.search.local import largest_radius as balls
from stability.search.local import linf_search as planes
from stability.search.local.quadratic_multipliers import best_multipliers
from stability.systems import DrivenSystem, LureSystem

Array = np.ndarray
largest_balls = partial(balls.largest_balls, norm="linf")
UNITS = [Unit(name) for name in ("tanh", "sigmoid", "relu", "leaky_relu", "saturation", "deadzone")]
GATED = [Unit("tanh", gated=True), Unit("identity", gated=True)]


def lure(rng: np.random.Generator, n: int, p: int, activation: str = "tanh") -> DrivenSystem:
    system = LureSystem(np.zeros((n, n)), np.eye(n), rng.normal(size=(n, n)) / np.sqrt(n), dt=1.0)
    return DrivenSystem(system, activation, 2.0 * rng.normal(size=(n, p)), 0.3 * rng.normal(size=n))


def cell(rng: np.random.Generator, kind: str, n: int, p: int, **options: Any) -> GatedCell:
    gates = n * (4 if kind == "lstm" else 3)
    weights = 2.0 * rng.normal(size=(gates, p)), rng.normal(size=(gates, n)) / np.sqrt(n)
    return GatedCell(kind, *weights, 0.3 * rng.normal(size=gates), 0.3 * rng.normal(size=gates), **options)


def midpoint(rng: np.random.Generator) -> DrivenSystem:
    flow = LureSystem(-np.eye(2), np.eye(2), 1.5 * rng.normal(size=(2, 2)))
    return DrivenSystem(flow.midpoint(0.3), "tanh", np.tile(2.0 * rng.normal(size=(2, 1)), (2, 1)))


def networks() -> dict[str, Classifier]:
    """One of each kind, three classes."""
    rng = np.random.default_rng(5)
    bare = {
        "lstm": cell(rng, "lstm", 2, 1),
        "gru": cell(rng, "gru", 2, 1),
        "gru, reset before": cell(rng, "gru", 2, 1, reset_after=False),
        "relu": lure(rng, 3, 1, "relu"),
        "midpoint": midpoint(rng),
        "stack": LayerStack([lure(rng, 2, 1, "sigmoid"), lure(rng, 2, 2)]),
    }
    out = {}
    for k, (name, network) in enumerate(bare.items()):
        outputs = network.layers[-1].outputs if isinstance(network, LayerStack) else network.outputs
        weight = 2.0 * rng.normal(size=(3, outputs))
        bare_head = Classifier(network, weight, reduction="mean" if k % 3 == 2 else "last")
        middle = bare_head.logits(0.6 * rng.normal(size=(50, 2, 1))).mean(axis=0)
        out[name] = Classifier(network, weight, -middle, bare_head.reduction)  # so that no class is that of every input
    return out


NETWORKS = networks()


def brute(
    network: Classifier, x: Array, label: int, *, top: float = 3.0, free: Array | None = None, ends=None
) -> float:
    """The smallest l_inf norm of a change of two numbers that changes the class, among 160 directions."""
    side = np.linspace(-1.0, 1.0, 41)
    faces = [np.stack([side, np.full(41, s)], axis=1) for s in (-1.0, 1.0)]
    steps = np.concatenate(faces + [face[:, ::-1] for face in faces]) * (1.0 if free is None else free.ravel())

    def broken(radius: float) -> bool:
        inputs = x.ravel() + radius * steps
        inputs = inputs if ends is None else np.clip(inputs, *ends)
        return bool((network.logits(inputs.reshape(-1, *x.shape)).argmax(axis=1) != label).any())

    grid = np.linspace(0.0, top, 61)[1:]
    high = next((r for r in grid if broken(r)), np.inf)
    low = high - grid[0]
    for _ in range(25 if np.isfinite(high) else 0):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if broken(middle) else (middle, high)
    return float(high)


def sample(network: Classifier, seed: int = 1) -> tuple[Array, int]:
    """The input of 20 whose decision is the fifth closest."""
    x = 0.6 * np.random.default_rng(seed).normal(size=(20, 2, network.inputs))
    logits = np.sort(network.logits(x), axis=1)
    chosen = x[np.argsort(logits[:, -1] - logits[:, -2])[4]]
    return chosen, int(network.logits(chosen).argmax())


@pytest.fixture(scope="module")
def found() -> dict[str, tuple[float, Any]]:
    """Return the radius by brute force, and the claim, by network."""
    out = {}
    for name in ("lstm", "gru", "relu", "midpoint", "stack"):
        network = NETWORKS[name]
        x, label = sample(network)
        radius = brute(network, x, label)
        assert np.isfinite(radius), name
        out[name] = radius, largest_balls(network, x[None], [label], upper=[radius])[0]
    return out


def some_boxes(rng: np.random.Generator, m: int = 40) -> Box:
    a, b = rng.normal(size=m) * 2.0, rng.normal(size=m) * 2.0
    wide_a, wide_b = rng.exponential(size=m), rng.exponential(size=m)
    wide_a[:3] = 0.0
    wide_b[2:5] = 0.0
    return Box(a - wide_a, a + wide_a, b - wide_b, b + wide_b)


@pytest.mark.parametrize("unit", UNITS + GATED, ids=str)
def test_a_lower_bound_of_a_unit_holds_and_is_near(unit):
    rng = np.random.default_rng(3)
    box, m = some_boxes(rng), 40
    sign = np.where(rng.normal(size=m) > 0, 1.0, -1.0)
    bent = rng.normal(size=(3, m)) * unit.is_smooth * np.array([[unit.gated], [unit.gated], [True]])
    below = Parabola(rng.normal(size=m) * unit.gated, rng.normal(size=m), box.a_low, box.b_high, *bent)
    low = lower_bound(unit, sign, below, box)
    a, b = box.grid(np.linspace(-1.0, 1.0, 161))
    da, db = a - below.a0[:, None, None], b - below.b0[:, None, None]
    p = {name: getattr(below, name)[:, None, None] for name in ("alpha", "beta", "aa", "ab", "bb")}
    there = sign[:, None, None] * unit.value(a, b) - p["alpha"] * a - p["beta"] * b
    there = there - p["aa"] * da**2 - 2.0 * p["ab"] * da * db - p["bb"] * db**2
    least_seen = there.min(axis=(1, 2))
    assert (low <= least_seen + 1e-12).all()
    size = 1.0 + np.abs(there).max(axis=(1, 2))
    assert ((least_seen - low) / size < 0.05).all()


@pytest.mark.parametrize("unit", GATED + UNITS[:2], ids=str)
def test_a_parabola_touches_its_unit_and_stays_nearly_below(unit):
    rng = np.random.default_rng(4)
    box, zero = some_boxes(rng), np.zeros((40, 0))
    at = rng.uniform(size=40)
    a0, b0 = box.a_low + at * (box.a_high - box.a_low), box.b_high - at * (box.b_high - box.b_low)
    a, b = (Form(low, zero, 0 * low, low, high) for low, high in ((box.a_low, box.a_high), (box.b_low, box.b_high)))
    term = Term(unit, a if unit.gated else None, b)
    sign = np.where(rng.normal(size=40) > 0, 1.0, -1.0)
    p = tangent_parabola(term, sign, a0, b0)
    fa, fb = unit.gradient(a0, b0)
    assert np.array_equal(p.beta, sign * fb)
    assert np.array_equal(p.alpha, sign * fa)
    here = sign * unit.value(a0, b0) - p.alpha * a0 * unit.gated - p.beta * b0
    assert (here - lower_bound(unit, sign, p, box) < 0.02).all()
    assert (here >= lower_bound(unit, sign, p, box)).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_tube_holds_every_run_and_parabolas_stay_below_every_margin(name):
    network, rng = NETWORKS[name], np.random.default_rng(7)
    x, label = sample(network)
    low, high = input_box(x, 0.3)
    tube = AffineArithmetic()
    margin = margins(network, tube, low, high, label)
    point = rng.choice([-1.0, 1.0], size=count_perturbed(tube))
    met, there = evaluate_at(network, tube, point, label)
    F = quadratic(tube, margin, 0, met)
    logits = network.logits(x + 0.3 * point.reshape(x.shape))
    scale = len(x) if network.reduction == "mean" else 1.0
    assert np.allclose(there, scale * (logits[label] - np.delete(logits, label)))
    bound = F.least(best_multipliers(F).D)
    for _ in range(200):
        inputs = rng.uniform(low, high) if rng.random() < 0.5 else np.where(rng.random(x.shape) < 0.5, low, high)
        value = margins(network, Numbers(), inputs, inputs, label).c
        assert (margin.low <= value).all()
        assert (value <= margin.high).all()
        assert bound <= value[0]
        assert (
            np.abs(margin.c + margin.L[:, : tube.symbols] @ np.zeros(tube.symbols) - value) <= 2 * margin.size
        ).all()


def test_radii_are_those_of_brute_force_within_five_percent(found):
    shares = {name: claim.value / radius if claim else 0.0 for name, (radius, claim) in found.items()}
    assert max(shares.values()) <= 1.0
    assert np.mean(list(shares.values())) > 0.95, shares
    assert min(shares.values()) > 0.8, shares


def test_nothing_larger_than_the_truth_is_accepted(found):
    """A proof with a radius at which brute force changes the class is refused, for every tree."""
    rng = np.random.default_rng(2)
    tried = 0
    for name, (radius, claim) in found.items():
        data = {**claim.proof.data, "radius": 1.0001 * radius}
        assert accepted_claim(NETWORKS[name], "local_planes", data) is None
        bent = _spoilt(data["tree"], rng)
        assert accepted_claim(NETWORKS[name], "local_planes", {**data, "tree": bent}) is None
        other = {**claim.proof.data, "label": (claim.proof.data["label"] + 1) % 3}
        assert accepted_claim(NETWORKS[name], "local_planes", other) is None
        tried += 1
    assert tried == 5


def _spoilt(tree: Any, rng: np.random.Generator) -> Any:
    if "classes" in tree:
        return {"classes": [{**c, "multipliers": c["multipliers"] * rng.uniform(0.5, 2.0)} for c in tree["classes"]]}
    return {**tree, "parts": [_spoilt(part, rng) for part in tree["parts"]]}


def test_masks_and_bounds_change_the_question():
    network = NETWORKS["gru"]
    x, label = sample(network)
    whole = brute(network, x, label)
    mask = np.array([[True], [False]])
    free, kept = (
        brute(network, x, label, free=1.0 * mask),
        brute(network, x, label, ends=(x.min() - 0.1, x.max() + 0.1)),
    )
    (masked,) = largest_balls(network, x[None], [label], mask=mask, upper=[min(free, 3.0)], epsilon=1.001 * whole)
    assert (masked is not None) is (free > 1.05 * whole)
    bounds = (x.min() - 0.1, x.max() + 0.1)
    (bounded,) = largest_balls(network, x[None], [label], bounds=bounds, epsilon=1.001 * whole)
    assert (bounded is not None) is (kept > 1.05 * whole)
    assert bounded is None or "the input stays in [" in bounded.statement
    assert masked is None or "zero outside the mask" in masked.statement


@pytest.mark.slow
def test_affine_forms_go_beyond_zonotopes_on_small_problems_alone(monkeypatch):
    network = NETWORKS["lstm"]
    x, label = sample(network)
    (small,) = largest_balls(network, x[None], [label])
    monkeypatch.setattr(planes, "SYMBOLS", 0)
    (large,) = largest_balls(network, x[None], [label])
    assert small is not None
    assert large is not None
    assert (small.proof.kind, large.proof.kind) == ("local_planes", "local_zonotopes")
    assert small.value > large.value
