"""Long sequences in l_inf: tubes of zonotopes with a tail hold every run, and reach what is known to be true."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from stability.kernel.arithmetic.activations import activation
from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.input_box import input_box
from stability.kernel.reachability.linear_remainder import relaxed
from stability.kernel.reachability.network_stages import stages_of
from stability.kernel.reachability.stages import Activated
from stability.kernel.reachability.zonotope_tube import zonotope_tube
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.local_zonotopes import margin_bounds
from stability.proposals import accepted_claim, propose
from stability.search.local import largest_radius as balls
from stability.systems import DrivenSystem, LureSystem

Array = np.ndarray
KIND = "local_zonotopes"
largest_balls = partial(balls.largest_balls, norm="linf")
ACTIVATIONS = ("tanh", "sigmoid", "relu", "leaky_relu", "saturation", "deadzone", "identity")


def lure(rng: np.random.Generator, n: int, p: int, activation: str = "tanh", gain: float = 0.8) -> DrivenSystem:
    W = gain * rng.normal(size=(n, n)) / np.sqrt(n)
    system = LureSystem(0.3 * np.eye(n), 0.7 * np.eye(n), W, dt=1.0)
    return DrivenSystem(system, activation, rng.normal(size=(n, p)), 0.3 * rng.normal(size=n))


def cell(rng: np.random.Generator, kind: str, n: int, p: int, **options: Any) -> GatedCell:
    gates = n * (4 if kind == "lstm" else 3)
    weights = rng.normal(size=(gates, p)), 0.7 * rng.normal(size=(gates, n)) / np.sqrt(n)
    return GatedCell(kind, *weights, 0.3 * rng.normal(size=gates), 0.3 * rng.normal(size=gates), **options)


def networks() -> dict[str, Classifier]:
    """One of each kind, three classes, two inputs a step."""
    rng = np.random.default_rng(5)
    flow = LureSystem(-np.eye(3), np.eye(3), rng.normal(size=(3, 3)))
    bare = {
        "tanh": lure(rng, 4, 2),
        "relu": lure(rng, 4, 2, "relu"),
        "sigmoid": lure(rng, 4, 2, "sigmoid"),
        "midpoint": DrivenSystem(flow.midpoint(0.3), "tanh", np.tile(rng.normal(size=(3, 2)), (2, 1))),
        "lstm": cell(rng, "lstm", 3, 2),
        "gru": cell(rng, "gru", 3, 2),
        "gru, reset before": cell(rng, "gru", 3, 2, reset_after=False),
        "stack": LayerStack([lure(rng, 3, 2), cell(rng, "gru", 2, 3)]),
    }
    made = {}
    for name, network in bare.items():
        weight = rng.normal(size=(3, network.layers[-1].outputs if name == "stack" else network.outputs))
        reduction = "mean" if name in ("relu", "gru") else "last"
        made[name] = Classifier(network, weight, 0.1 * rng.normal(size=3), reduction)
    return made


NETWORKS = networks()


def sample(name: str, steps: int) -> tuple[Array, int]:
    x = 0.5 * np.random.default_rng(3).normal(size=(steps, 2))
    return x, int(NETWORKS[name].logits(x).argmax())


def lower(subject: Classifier, box: tuple[Array, Array], label: int, window: int, kept: int) -> Array:
    net = stages_of(subject)
    tube = zonotope_tube(net, box, window, kept)
    return (
        np.full(subject.classes, -np.inf)
        if tube is None
        else margin_bounds(subject, net.head, tube, label, len(box[0]))[0]
    )


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_what_a_channel_leaves_of_its_line_is_within_the_ends(name: str) -> None:
    rng = np.random.default_rng(0)
    one = np.eye(400)
    z = rng.normal(size=400) * 10.0 ** rng.uniform(-3, 1, size=400)
    down, up = (10.0 ** rng.uniform(-7, 1.5, size=400) * (rng.random(400) < 0.9) for _ in range(2))
    stage = Activated(0 * one, one, one, 0 * z, None, False, name)
    s, low, high = relaxed(stage, stage.nominal(z), down, up)
    phi = lambda v: stage.values(v)[0]  # noqa: E731
    for part in np.linspace(0.0, 1.0, 301):
        v = -down + part * (down + up)
        e = phi(z + v) - phi(z) - s * v
        loose = 1e-15 * (4.0 + np.abs(z) + np.abs(v))  # of the line above
        assert (e >= low - loose).all()
        assert (e <= high + loose).all()
    width = np.maximum(high - low, 1e-14)
    steep = np.minimum(stage.slopes(z, np.maximum(down, up))[1] - stage.slopes(z, np.maximum(down, up))[0], 1.0)
    assert (
        width <= 1.01 * steep * (down + up) + 1e-11 * (1.0 + np.abs(z) + down + up)
    ).all()  # no worse than what slopes alone say


@pytest.mark.parametrize("name", ["lstm", "gru", "gru, reset before"])
def test_what_gates_leave_of_their_planes_is_within_the_ends(name: str) -> None:
    rng = np.random.default_rng(1)
    for stage in stages_of(NETWORKS[name]).stages:
        for size in (1e-3, 0.1, 1.0, 3.0):
            y = rng.normal(size=stage.A.shape[1])
            at = stage.nominal(y)
            down, up = (size * rng.random(len(at.rows)) for _ in range(2))
            s, low, high = relaxed(stage, at, down, up)
            v = rng.uniform(-down, up, size=(4000, len(down)))
            corner = rng.random(v.shape)
            v = np.where(corner < 0.3, -down, np.where(corner > 0.7, up, v))
            e = (stage.values(at.rows + v)[0] - stage.values(at.rows)[0] - s * v) @ stage.B.T
            B = stage.B
            assert (e <= np.maximum(B * low, B * high).sum(axis=1) + 1e-12).all()
            assert (e >= np.minimum(B * low, B * high).sum(axis=1) - 1e-12).all()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("window", "kept"), [(2, 30), (3, 4), (0, 0)])
def test_no_run_leaves_the_tube(name: str, window: int, kept: int) -> None:
    subject, steps = NETWORKS[name], 12
    x, label = sample(name, steps)
    rng = np.random.default_rng(7)
    scale = steps if subject.reduction == "mean" else 1
    seen = 0
    for radius in (1e-6, 1e-3, 0.02, 0.1):
        low, high = input_box(x, radius, bounds=(float(x.min()) - 0.01, float(x.max()) + 0.02))
        least = lower(subject, (low, high), label, window, kept)
        inputs = np.where(rng.random((600, *x.shape)) < 0.5, low, high)
        way, truth = inputs[0], np.inf
        logits = scale * subject.logits(inputs)
        margins = logits[:, [label]] - logits
        for other in range(3):  # greedy: an entry at a time towards the least margin
            way = inputs[margins[:, other].argmin()]
            for k in range(way.size):
                flipped = way.copy()
                flipped.flat[k] = low.flat[k] + high.flat[k] - flipped.flat[k]
                both = subject.logits(np.stack([way, flipped]))
                way = (way, flipped)[int((both[:, label] - both[:, other]).argmin())]
            logits = scale * subject.logits(way)
            truth = logits[label] - logits[other]
            if other != label:
                assert least[other] <= truth + 1e-13 * scale
                seen += bool(np.isfinite(least[other]))
        assert (margins >= least - 1e-13)[:, np.arange(3) != label].all()
    assert seen >= 4


def test_an_affine_network_is_exact_where_all_inputs_are_kept() -> None:
    rng = np.random.default_rng(2)
    A = 0.9 * np.linalg.qr(rng.normal(size=(4, 4)))[0]
    line = DrivenSystem(LureSystem.linear(A, dt=1.0), "identity", np.zeros((0, 2)), F=rng.normal(size=(4, 2)))
    subject, x = Classifier(line, rng.normal(size=(2, 4))), rng.normal(size=(60, 2))
    w = subject.weight[0] - subject.weight[1]
    true = sum(np.abs(w @ np.linalg.matrix_power(A, k) @ line.F).sum() for k in range(60))
    logits = subject.logits(x)
    margin = logits[0] - logits[1]
    found = lower(subject, input_box(x, 0.1), 0, 0, 60)[1]
    assert found == pytest.approx(margin - 0.1 * true, abs=1e-9)
    assert found <= margin - 0.1 * true


def test_the_tail_of_a_contracting_network_does_not_grow_with_the_sequence() -> None:
    subject = NETWORKS["tanh"]
    for steps in (60, 480):
        x, _ = sample("tanh", steps)
        label = int(subject.logits(x).argmax())
        all_kept, few = (lower(subject, input_box(x, 0.02), label, 0, kept) for kept in (steps, 16))
        other = (label + 1) % 3
        assert few[other] <= all_kept[other] + 1e-9
        assert few[other] > all_kept[other] - 1e-5


@pytest.mark.parametrize(("gain", "skew"), [(0.5, 1.0), (1.5, 1.0), (0.9, 50.0)])
def test_rounding_errors_are_inside(gain: float, skew: float) -> None:
    """Against a run in exact arithmetic: networks that expand, contract, and whose sums cancel."""
    rng = np.random.default_rng(4)
    for _ in range(5):
        W, E = gain * np.linalg.qr(rng.normal(size=(3, 3)))[0], rng.normal(size=(3, 1))
        bend = np.eye(3) + skew * np.triu(rng.normal(size=(3, 3)), 1) * (skew > 1.0)
        W = bend @ W @ np.linalg.inv(bend)
        system = LureSystem(np.zeros((3, 3)), np.eye(3), W, dt=1.0)
        subject = Classifier(
            DrivenSystem(system, "identity" if skew > 1.0 else "leaky_relu", E, np.full(3, 0.1)),
            rng.normal(size=(2, 3)),
        )
        x = rng.normal(size=(40, 1))
        least = lower(subject, (x, x), 0, 0, 40)  # one input alone: all that is left are rounding errors
        state = [Fraction(0)] * 3
        stored = Fraction(1 if skew > 1.0 else activation("leaky_relu").slope[0])
        for u in x[:, 0]:
            z = [
                sum((Fraction(W[i, j]) * state[j] for j in range(3)), Fraction(E[i, 0]) * Fraction(u)) + Fraction(0.1)
                for i in range(3)
            ]
            state = [v if v > 0 else stored * v for v in z]
        exact = sum((Fraction(subject.weight[0, j]) - Fraction(subject.weight[1, j])) * state[j] for j in range(3))
        assert Fraction(float(least[1])) <= exact
        assert skew > 1.0 or float(exact) - least[1] < 1e-8 * max(1.0, abs(float(exact)))


@pytest.fixture(scope="module")
def long() -> tuple[Classifier, Array, int, Any]:
    rng = np.random.default_rng(11)
    subject = Classifier(lure(rng, 12, 1, gain=0.7), rng.normal(size=(3, 12)))
    x = rng.normal(size=(300, 1))
    label = int(subject.logits(x).argmax())
    (claim,) = largest_balls(subject, x[None], [label])
    return subject, x, label, claim


@pytest.mark.slow
def test_long_sequences_get_most_of_what_the_linearisation_allows(long: Any) -> None:
    subject, x, label, claim = long
    assert claim.proof.kind == KIND
    assert RULES[KIND](subject, claim)[0]
    low, high = input_box(x, 1e-7)
    slope, logits = np.zeros(x.shape), subject.logits(x)
    reach = []
    for other in range(3):
        if other == label:
            continue
        for t in range(len(x)):
            up, down = x.copy(), x.copy()
            up[t], down[t] = high[t], low[t]
            ends = subject.logits(np.stack([up, down]))
            slope[t] = (ends[0] - ends[1])[label] - (ends[0] - ends[1])[other]
        reach.append((logits[label] - logits[other]) / (np.abs(slope).sum() / 2e-7))
        attacked = x - np.sign(slope) * 0.999 * claim.value
        assert subject.logits(attacked).argmax() == label
    assert claim.value > 0.5 * min(reach)
    assert claim.value < 1.2 * min(reach)


def test_nothing_larger_is_accepted_and_bad_data_are_refused(long: Any) -> None:
    subject, x, label, claim = long
    data = claim.proof.data

    def reason(**changes: Any) -> str:
        valid, words = RULES[KIND](subject, propose(subject, KIND, {**data, **changes}))
        assert not valid
        return words

    assert "not proved to stay below" in reason(radius=1.3 * claim.value)
    assert reason(radius=1e6)
    assert "not proved to stay below" in reason(label=(label + 1) % 3)
    assert "within the bounds" in reason(bounds=(0.0, 0.5))
    assert "integer from zero" in reason(window=-1)
    assert accepted_claim(subject, KIND, {**data, "mask": np.ones_like(x)}) is not None
    part = np.zeros_like(x)
    part[-3:] = 1.0
    assert (
        accepted_claim(subject, KIND, {**data, "mask": part, "radius": 1.3 * claim.value}) is not None
    )  # fewer may change


def test_one_radius_is_decided_and_time_ends_a_search(long: Any) -> None:
    subject, x, label, claim = long
    (same,) = largest_balls(subject, x[None], [label], epsilon=0.9 * claim.value)
    assert same.value == 0.9 * claim.value
    assert same.proof.kind == KIND
    assert largest_balls(subject, x[None], [label], epsilon=3.0 * claim.value) == [None]
    assert largest_balls(subject, x[None], [label], time_limit=1e-9) == [None]


def test_a_tube_of_forms_that_overflows_proves_nothing_and_raises_nothing() -> None:
    rng = np.random.default_rng(0)
    system = LureSystem(2.0 * np.eye(4), np.eye(4), 9.0 * rng.normal(size=(4, 4)), dt=1.0)
    network = DrivenSystem(system, "tanh", rng.normal(size=(4, 1)))
    subject, x = Classifier(network, rng.normal(size=(2, 4))), rng.normal(size=(1200, 1)) * 0.01
    data = {"x": x, "label": 0, "norm": "linf", "radius": 0.1, "tree": {"classes": []}}
    valid, words = RULES["local_planes"](subject, propose(subject, "local_planes", data))
    assert not valid
    assert "not proved" in words
