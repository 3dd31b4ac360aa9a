"""Affine networks: margins are enclosed by integers, and the radius is the true one whatever the states grow to."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stability.kernel.arithmetic.fixed_point import FixedPoint
from stability.kernel.format.claims import Claim
from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability import affine_network as linear
from stability.kernel.reachability.affine_margin import Margin
from stability.kernel.reachability.affine_network import Kernel, kernel, why_not_applicable
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.local_linear import LocalLinear
from stability.proposals import accepted_claim, propose
from stability.search.local import affine_search as linear_balls
from stability.search.local.largest_radius import largest_balls
from stability.search.local.request import FARTHEST, checked_request
from stability.search.solvers.deadline import Deadline
from stability.systems import DrivenSystem, LureSystem

Array = np.ndarray
KIND = "local_linear"
BALLS = (("l2", "total"), ("l2", "step"), ("linf", "total"))


def true_radius(net: Classifier, x: Array, label: int, norm: str, budget: str) -> float:
    """Return the distance to the nearest decision boundary, by slopes in floating point."""
    slopes = np.zeros((net.classes, *x.shape))
    worth = [np.zeros((net.classes, own.states)) for own in net.layers]
    for t in range(len(x) - 1, -1, -1):
        if net.reduction == "mean" or t == len(x) - 1:
            worth[-1] = worth[-1] + net.weight / (len(x) if net.reduction == "mean" else 1)
        for k in range(len(net.layers) - 1, -1, -1):
            own: Any = net.layers[k]
            s, gained = own.system, worth[k] @ own.system.B
            reads, worth[k] = gained @ own.E + worth[k] @ own.F, gained @ s.C + worth[k] @ s.A
            if k:
                worth[k - 1] = worth[k - 1] + reads
            else:
                slopes[:, t] = reads
    steep, logits = slopes - slopes[label], net.logits(x)
    size = np.abs(steep).max()
    lengths = np.sqrt(((steep / size) ** 2).sum(axis=2)) * size
    sizes = {
        "linf": np.abs(steep).sum(axis=(1, 2)),
        "total": size * np.sqrt(((steep / size) ** 2).sum(axis=(1, 2))),
        "step": lengths.sum(axis=1),
    }["linf" if norm == "linf" else budget]
    return min((logits[label] - logits[k]) / sizes[k] for k in range(net.classes) if k != label)


def layer(rng: np.random.Generator, n: int, p: int, size: float, channels: int = 0) -> DrivenSystem:
    """``x+ = A x + B (C x + E u + b) + F u`` of a spectral radius, with as many channels."""
    A = rng.normal(size=(n, n))
    A *= size / np.abs(np.linalg.eigvals(A)).max()
    F = rng.normal(size=(n, p))
    if not channels:
        return DrivenSystem(LureSystem.linear(A, dt=1.0), "identity", np.zeros((0, p)), F=F)
    B, C = 0.3 * rng.normal(size=(n, channels)), 0.3 * rng.normal(size=(channels, n))
    own = LureSystem(A, B, C, slope=(1.0, 1.0), dt=1.0)
    return DrivenSystem(own, "identity", rng.normal(size=(channels, p)), rng.normal(size=channels), F)


def network(name: str, seed: int = 0) -> tuple[Classifier, Array]:
    rng = np.random.default_rng(seed)
    made: dict[str, tuple[Any, int, str]] = {
        "plain": (layer(rng, 3, 2, 0.9), 6, "last"),
        "mean": (layer(rng, 3, 2, 1.1), 7, "mean"),
        "channels": (layer(rng, 3, 2, 0.8, 2), 6, "mean"),
        "one unit": (layer(rng, 1, 1, 2.0), 60, "last"),
        "doubling": (layer(rng, 3, 2, 2.0), 400, "last"),
        "doubling, mean": (layer(rng, 2, 1, 2.0), 200, "mean"),
        "forgetting": (layer(rng, 3, 2, 1e-3), 90, "last"),
        "stack": (LayerStack([layer(rng, 2, 2, 1.2, 1), layer(rng, 3, 2, 0.9), layer(rng, 2, 3, 1.0)]), 30, "mean"),
    }
    cell, steps, reduction = made[name]
    own = cell.layers[-1] if isinstance(cell, LayerStack) else cell
    start = rng.normal(size=cell.states)
    net = Classifier(cell, rng.normal(size=(3, own.outputs)), rng.normal(size=3), reduction, start=start)
    return net, rng.normal(size=(steps, net.inputs))


NAMES = ["plain", "mean", "channels", "one unit", "doubling", "doubling, mean", "forgetting", "stack"]


def rows(net: Classifier, steps: int) -> tuple[Array, Array]:
    """Logits of zeros ``(k,)``, and by how much every entry counts ``(k, T, p)``, in rational arithmetic."""
    exact = lambda x: np.array([Fraction(float(v)) for v in x.ravel()], object).reshape(x.shape)  # noqa: E731
    width = steps * net.inputs
    eye = np.eye(width).reshape(steps, net.inputs, width)
    states = [np.concatenate([0 * eye[0, :1].repeat(len(s), axis=0), s[:, None]], axis=1) for s in net.starts]
    states, total = [exact(s) for s in states], 0
    for t in range(steps):
        signal = exact(np.concatenate([eye[t], np.zeros((net.inputs, 1))], axis=1))
        for k, own in enumerate(net.layers):
            assert isinstance(own, DrivenSystem)
            s, one = own.system, exact(np.eye(1, width + 1, width))
            z = exact(s.C) @ states[k] + exact(own.E) @ signal + exact(own.b)[:, None] @ one if s.channels else None
            after = exact(s.A) @ states[k] + exact(own.F) @ signal
            states[k] = signal = after if z is None else after + exact(s.B) @ z
        total = total + states[-1] if net.reduction == "mean" else states[-1]
    out = exact(net.weight) @ total / (steps if net.reduction == "mean" else 1)
    return out[:, -1] + exact(net.bias), out[:, :-1].reshape(net.classes, steps, net.inputs)


@pytest.mark.parametrize("name", ["plain", "mean", "channels", "stack"])
def test_the_margins_are_enclosed(name):
    net, x = network(name)
    x = x[:5]
    steps = len(x)
    at, slopes = rows(net, steps)
    found = kernel(net, steps)
    assert found is not None
    scale = Fraction(1, (1 << found.bits) * (steps if net.reduction == "mean" else 1))
    for label, other in ((0, 1), (2, 0)):
        margin = found.margin(x, label, other)
        g = slopes[label] - slopes[other]
        true = at[label] - at[other] + sum(a * Fraction(float(b)) for a, b in zip(g.ravel(), x.ravel()))
        assert margin.value * scale <= true <= (margin.value + 2 * margin.off) * scale
        assert margin.off * scale < 1e-30
        for row, (wrong,), exact in zip(margin.rows, margin.wrong, g):
            assert all(abs(a * scale - b) <= wrong * scale for a, b in zip(row, exact))
            assert wrong * scale < 1e-30


@pytest.mark.parametrize(("norm", "budget"), BALLS)
@pytest.mark.parametrize("name", NAMES)
def test_the_radius_is_the_true_one(name, norm, budget):
    net, x = network(name)
    label = int(net.logits(x).argmax())
    true = true_radius(net, x, label, norm, budget)
    (claim,) = largest_balls(net, x[None], [label], norm=norm, budget=budget)
    assert claim is not None
    assert claim.proof is not None
    assert claim.proof.kind == KIND
    assert claim.value == pytest.approx(true, rel=1e-10)
    for size, holds in ((0.3, True), (1.0 + 1e-9, False)):
        told = largest_balls(net, x[None], [label], norm=norm, budget=budget, epsilon=size * true)[0]
        assert (told is not None) is holds
    data = {**claim.proof.data, "radius": true * (1.0 + 1e-9)}
    assert accepted_claim(net, KIND, data) is None


def clipped_radius(g: Array, value: float, low: Array, high: Array, norm: str, budget: str) -> float:
    """Return the radius at which ``value + g d`` can be zero, ``low <= d <= high``, by a solver; or infinity."""
    import cvxpy as cp

    if value + np.minimum(g * low, g * high).sum() > 0.0:
        return np.inf
    size, d = float(np.abs(g).max()), cp.Variable(g.shape)
    length = cp.max(cp.abs(d)) if norm == "linf" else cp.norm(d, "fro")
    length = cp.max(cp.norm(d, 2, axis=1)) if norm == "l2" and budget == "step" else length
    problem = cp.Problem(cp.Minimize(length), [cp.sum(cp.multiply(g / size, d)) == -value / size, d >= low, d <= high])
    return float(problem.solve(solver="CLARABEL"))


@pytest.mark.parametrize(("norm", "budget"), BALLS)
@pytest.mark.parametrize("name", ["plain", "mean", "channels"])
def test_inputs_that_are_clipped_and_masked_have_the_true_radius_too(name, norm, budget):
    reached = 0
    for seed in range(4):
        net, x = network(name, seed)
        x = x[:4]
        x, label = np.clip(x, -1.0, 1.0), 0
        label = int(net.logits(x).argmax())
        mask = np.random.default_rng(seed).random(x.shape) < 0.8
        zero = net.logits(np.zeros(x.shape))
        eye = np.eye(x.size).reshape(x.size, *x.shape)
        slopes = (net.logits(eye) - zero).T.reshape(net.classes, *x.shape)
        bounds = (-1.1, 1.2)
        low, high = np.where(mask, bounds[0] - x, 0.0), np.where(mask, bounds[1] - x, 0.0)
        margins = net.logits(x)[label] - net.logits(x)
        true = min(
            clipped_radius(slopes[label] - slopes[k], margins[k], low, high, norm, budget)
            for k in range(net.classes) if k != label
        )  # fmt: skip
        told: dict[str, Any] = {"norm": norm, "budget": budget, "mask": mask, "bounds": bounds}
        (claim,) = largest_balls(net, x[None], [label], **told)
        assert claim is not None
        assert claim.proof is not None
        if np.isinf(true):
            assert claim.value > 0.999 * FARTHEST
            continue
        reached += 1
        assert claim.value == pytest.approx(true, rel=1e-6)
        assert accepted_claim(net, KIND, {**claim.proof.data, "radius": true * (1.0 + 1e-6)}) is None
        (wider,) = largest_balls(net, x[None], [label], norm=norm, budget=budget, mask=mask)
        assert wider is not None
        assert wider.value < claim.value * (1.0 + 1e-9)
    assert reached >= 2


def refused(net: Classifier, data: dict[str, Any]) -> str:
    holds, why = RULES[KIND](net, propose(net, KIND, data))
    assert not holds
    return why


def test_other_networks_are_none_of_its():
    rng = np.random.default_rng(0)
    net, x = network("channels")
    own: Any = net.recurrent
    bent = DrivenSystem(LureSystem(own.system.A, own.system.B, own.system.C, dt=1.0), "tanh", own.E, own.b, own.F)
    assert why_not_applicable(net) is None
    idle = DrivenSystem(LureSystem.linear(own.system.A, dt=1.0), "tanh", np.zeros((0, 2)), F=own.F)
    assert why_not_applicable(Classifier(idle, net.weight)) is None
    flow = LureSystem.linear(-np.eye(3) + 0.1 * rng.normal(size=(3, 3))).midpoint(0.1)
    stepped = DrivenSystem(flow, "identity", np.zeros((0, 2)), F=own.F)
    looped = LureSystem(own.system.A, own.system.B, own.system.C, 0.1 * np.eye(2, k=1), slope=(1.0, 1.0), dt=1.0)
    reading = DrivenSystem(looped, "identity", own.E, own.b, own.F)
    for cell, words in ((bent, "without activations"), (stepped, "stored"), (reading, "D = 0")):
        other = Classifier(cell, net.weight, net.bias)
        assert words in str(why_not_applicable(other))
        data = {"x": x, "label": int(other.logits(x).argmax()), "norm": "l2", "radius": 1e-9}
        assert words in refused(other, data)


def test_work_and_memory_have_an_end(monkeypatch):
    net, x = network("doubling")
    data = {"x": x, "label": int(net.logits(x).argmax()), "norm": "l2", "radius": 1e-3}
    assert accepted_claim(net, KIND, data) is not None
    for limit in ("WORK", "MEMORY"):
        with monkeypatch.context() as patch:
            patch.setattr(linear, limit, 1e4)
            again = Classifier(net.recurrent, net.weight, net.bias, start=net.start)  # what was computed is kept
            assert refused(again, data) == "the integers that it takes are too long, or too many"
    grown = DrivenSystem(LureSystem.linear([[1e50]], dt=1.0), "identity", np.zeros((0, 1)), F=[[1.0]])
    assert kernel(Classifier(grown, [[1.0], [-1.0]]), 300) is None  # 1e15000
    monkeypatch.setattr(linear, "WORK", 1e3)
    again = Classifier(net.recurrent, net.weight, net.bias, start=net.start)
    (claim,) = largest_balls(again, x[None, -8:], [int(again.logits(x[-8:]).argmax())])
    assert claim is not None
    (short,) = largest_balls(again, x[None, -30:], [int(again.logits(x[-30:]).argmax())])
    assert short is not None
    assert short.proof is not None
    assert short.proof.kind != KIND  # other searches follow


def test_no_balls_beyond_an_attack_and_none_where_time_is_over():
    net, x = network("plain")
    label = int(net.logits(x).argmax())
    (whole,) = largest_balls(net, x[None], [label])
    assert whole is not None
    (less,) = largest_balls(net, x[None], [label], upper=[0.5 * (whole.value or 0.0)])
    assert less is not None
    assert less.value == pytest.approx(0.5 * (whole.value or 0.0), rel=1e-9)
    assert linear_balls.affine_claim(checked_request(net, x[None], [label]), 0, "l2", Deadline.from_limit(0)) == (
        None,
        False,
    )


@pytest.mark.parametrize("tiny", [1e-160, 1e-310, 5e-324])
@pytest.mark.parametrize(("norm", "budget"), BALLS)
def test_weights_that_nearly_vanish_are_numbers_too(tiny, norm, budget):
    cell = DrivenSystem(
        LureSystem.linear([[0.5, tiny], [0.0, tiny]], dt=1.0), "identity", np.zeros((0, 1)), F=[[1.0], [tiny]]
    )
    net, x = Classifier(cell, [[1.0, 0.0], [-1.0, tiny]], [tiny, 0.0]), np.array([[0.25], [0.5]])
    true = {"linf": 0.625 / 1.5, "total": 0.625 / 1.25**0.5, "step": 0.625 / 1.5}["linf" if norm == "linf" else budget]
    for bounds in (None, (-9.0, 9.0)):
        (claim,) = largest_balls(net, x[None], [0], norm=norm, budget=budget, bounds=bounds)
        assert claim is not None
        assert claim.value == pytest.approx(true, rel=1e-10)


def test_what_all_inputs_share_counts_for_all_of_their_time():
    net, x = network("stack")
    label = int(net.logits(x).argmax())
    need = linear_balls.seconds(net, len(x))
    assert need > 1e-4
    for count in (1, 3):
        for part, holds in ((0.9, False), (1.1, True)):
            asked = checked_request(net, np.tile(x, (count, 1, 1)), [label] * count, time_limit=part * need / count)
            assert linear_balls.applies(asked) is holds


@pytest.mark.parametrize(("norm", "budget"), BALLS)
def test_classes_that_no_input_changes_have_a_large_radius(norm, budget):
    net, x = network("plain")
    same = Classifier(net.recurrent, np.ones((2, 3)), [1.0, 0.0])
    (claim,) = largest_balls(same, x[None], [0], norm=norm, budget=budget)
    assert isinstance(claim, Claim)
    assert claim.value == pytest.approx(FARTHEST * (1.0 + np.abs(x).max()), rel=1e-9)
    data = {"x": x, "label": 1, "norm": norm, "radius": 1e-9} | ({"budget": "step"} if budget == "step" else {})
    assert "logit 0 is not proved" in refused(same, data)
    tied = Classifier(net.recurrent, np.ones((2, 3)))
    assert "logit 1 is not proved" in refused(tied, {**data, "label": 0})


def coarse(rng: np.random.Generator, steps: int = 2) -> Margin:
    """A margin of few binary places, whose rows may be wrong by a good part of what they are."""
    return Margin(4, 900, 5, rng.integers(-40, 40, (steps, 2)).astype(object), np.full((steps, 1), 6, object))


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("kind", ["box", "ball", "both"])
def test_bounds_hold_for_all_rows_that_are_as_near_as_they_say(kind, each):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        margin, radius = coarse(rng), float(rng.uniform(0.3, 2.0))
        low, high = -rng.uniform(0.1, 1.5, (2, 2)), rng.uniform(0.1, 1.5, (2, 2))
        free = np.array([[True, True], [False, True]])
        low, high = np.where(free, low, 0.0), np.where(free, high, 0.0)
        d = rng.normal(size=(4000, 2, 2)) * free
        lengths = np.sqrt((d**2).sum(axis=2 if each else (1, 2), keepdims=True))
        if kind != "box":
            d = d * radius / np.maximum(lengths, 1e-300)
        if kind == "box":
            d = np.where(d < 0, low, high)
        elif kind == "both":
            d = np.clip(d, low, high)
        worst = (margin.value + (margin.rows.astype(float) * d - 6.0 * np.abs(d)).sum(axis=(1, 2))).min()
        box = None if kind == "ball" else (low, high)
        left = margin.left(None if kind == "box" else radius, box, free, each)
        assert left <= worst
        assert left > worst - 8.0 - 0.1 * (900.0 - worst) - 6.0 * np.maximum(-low, high).sum()


@pytest.mark.parametrize("x", [0.1, 1.0 / 3.0, 1e-17, 0.7])
def test_ends_of_clipped_perturbations_are_rounded_outwards(x):
    for low, high in ((-0.3, 0.9), (-1e16, 1e16), (0.0, 1.0)):
        data: dict[str, Any] = {"x": np.full((1, 1), x), "label": 0, "norm": "l2", "radius": 1.0, "bounds": (low, high)}
        box = LocalLinear.of(data)._box(np.ones((1, 1), dtype=bool))
        assert box is not None
        assert Fraction(float(box[0][0, 0])) <= Fraction(low) - Fraction(x)
        assert Fraction(float(box[1][0, 0])) >= Fraction(high) - Fraction(x)


def test_what_rows_are_wrong_by_counts_for_both_classes():
    rng = np.random.default_rng(0)
    rows, wrong = rng.integers(-40, 40, (2, 3, 2)).astype(object), np.full((3, 1), 6, object)
    made = Kernel(4, rows, wrong, FixedPoint(np.array([[900], [100]], object), 3))
    x = np.array([[1.0, -2.0], [0.5, 0.0], [3.0, 1.0]])
    margin, way = made.margin(x, 0, 1), np.sign(x).astype(int)
    least = 900 - 3 - 100 - 3 + int((((rows[0] - 6 * way) - (rows[1] + 6 * way)) * x).sum())
    assert margin.value <= least < margin.value + 4
    assert (margin.wrong == 12).all()
    assert margin.value + 2 * margin.off >= least + 2 * 12 * np.abs(x).sum()


def test_a_ball_that_holds_all_of_a_box_costs_nothing():
    margin, box = coarse(np.random.default_rng(3)), (np.full((2, 2), -30.0), np.full((2, 2), 30.0))
    for each in (False, True):
        assert margin.left(1000.0, box, np.ones((2, 2), dtype=bool), each) == margin.left(None, box, box[0] < 0, each)
