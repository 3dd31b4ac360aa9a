"""Kinks at the worst input: lines through them bound the margin from below, and the true radius is proved to 1e-6."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.kinks import network, true_radius
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.local.coordinates import Coordinates, coordinates
from stability.local.hessians import expansion, weights
from stability.local.supports import at_kinks
from stability.local.worst import Margin
from stability.rigor.intervals import Interval
from stability.rules.registry import RULES, accepted, propose
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import activation
from tests.stability.local.local_specimens import KINKED

Array = np.ndarray
NAMES = ("relu", "leaky_relu", "saturation", "deadzone")


@pytest.fixture(autouse=True)
def by_boxes(monkeypatch):
    """Without the ranges and least costs of networks of one state."""
    monkeypatch.setattr("stability.local.balls.covers", lambda *_: False)


def arguments(of: Coordinates, y: Array) -> Array:
    """The true runs' arguments ``(N, T m)``, in floats."""
    cell, out = of.classifier.recurrent, list[Array]()
    h = np.tile(of.classifier.start, (len(y), 1))
    for step in of.steps:
        e, f, E, F = (0.5 * (part.low + part.high) for part in (step.e, step.f, step.E, step.F))
        z = h @ cell.system.C.T + e + y[:, step.of] @ E.T
        h = h @ cell.system.A.T + activation(cell.activation).function(z) @ cell.system.B.T + f + y[:, step.of] @ F.T
        out.append(z)
    return np.concatenate(out, axis=1)


@pytest.mark.parametrize(
    ("name", "reduction"),
    [
        pytest.param(name, reduction, marks=[pytest.mark.slow] * (k % 2 == (reduction == "last")))
        for k, name in enumerate(NAMES)
        for reduction in ("last", "mean")
    ],
)
def test_lines_are_nowhere_above_the_margin(name, reduction):
    """Whatever their slopes, on all pieces or on some: where they take the activation's place."""
    phi, met, beyond = activation(name), 0, 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n, m, steps = (int(rng.integers(1, 3)) for _ in range(3))
        own = LureSystem(0.5 * rng.normal(size=(n, n)), rng.normal(size=(n, m)), rng.normal(size=(m, n)), dt=1.0)
        cell = DrivenSystem(own, name, rng.normal(size=(m, 2)), rng.normal(size=m), F=0.3 * rng.normal(size=(n, 2)))
        net = Classifier(cell, rng.normal(size=(2, n)), reduction=reduction)
        ball = coordinates(net, rng.normal(size=(steps + 1, 2)), 1.0, "l2")
        margin, size = weights(ball, 0, 1), len(ball.low)
        middle = rng.uniform(-1.0, 1.0, (80, size))
        wide = rng.choice([0.02, 0.2, 0.6], (80, 1)) * rng.random((80, size))
        low, high = middle - wide, middle + wide
        z = arguments(ball, middle)
        piece = np.searchsorted(np.array(phi.kinks), z, side="right")
        told = rng.random(z.shape) < 0.4
        spread = rng.integers(0, 2, z.shape) * rng.integers(0, 2, z.shape)
        sides = np.where(told, piece, 0), np.where(told, np.minimum(piece + spread, len(phi.kinks)), len(phi.kinks))
        for slopes in (rng.random(z.shape[1]), rng.uniform(-2.0, 3.0, z.shape[1]), rng.choice(phi.pieces, z.shape[1])):
            found = expansion(ball, margin, low, high, sides, lines=(slopes, None))
            used = (found.lines >= 0).any(axis=1)
            for _ in range(12):
                y = rng.uniform(low, high)
                y = np.where(rng.random((80, 1)) < 0.3, np.where(rng.random(y.shape) < 0.5, low, high), y)
                run = arguments(ball, y)
                ends = np.array([-np.inf, *phi.kinks, np.inf])
                there = ((run >= ends[sides[0]]) & (run <= ends[sides[1] + 1])).all(axis=1)
                true = expansion(ball, margin, y, y, second=False).value
                line = expansion(ball, margin, y, y, sides, second=False, lines=(slopes, found.lines))
                assert (line.value.low <= true.high)[there].all(), seed
                assert (found.value.low <= true.high)[there].all()
                assert (found.value.high >= true.low)[there].all()
                assert found.value.contains(line.value)
                assert ((found.slope.low <= line.slope.high) & (line.slope.low <= found.slope.high)).all()
                met += int((used & there & (line.value.high < true.low)).sum())
            outer = (slopes < min(phi.pieces)) | (slopes > max(phi.pieces))
            beyond += int((found.lines[:, outer] >= 0).sum())
    assert met > 300
    assert beyond > 20


@pytest.mark.parametrize("name", NAMES)
def test_lines_at_a_kink_are_on_their_side_of_the_activation(name):
    phi, rng = activation(name), np.random.default_rng(0)
    z = rng.uniform(-2.0, 2.0, (4000, 2)).round(1)
    z.sort(axis=1)
    least = rng.integers(0, len(phi.pieces), 4000)
    most = np.array([rng.integers(a, len(phi.pieces)) for a in least])
    ends, counts = np.array([-np.inf, *phi.kinks, np.inf]), np.zeros(2)
    for slope in (-0.5, 0.0, 0.1, 0.6, 1.0, 1.7):
        which = at_kinks(phi, Interval(z[:, 0], z[:, 1]), slope, (least, most))
        for sign, kinks in zip((1.0, -1.0), which):
            some, kink = kinks >= 0, np.array(phi.kinks)[kinks]
            low, high = np.maximum(z[:, 0], ends[least])[some], np.minimum(z[:, 1], ends[most + 1])[some]
            at = np.linspace(low, np.maximum(low, high), 41)
            line = phi.function(kink[some]) + slope * (at - kink[some])
            assert (sign * (phi.function(at) - line) >= -1e-12)[:, low <= high].all()
            counts[int(sign < 0)] += some.sum()
    assert (counts > 100).all()


SEEDS = range(3)


@pytest.mark.parametrize("norm", [pytest.param("l2", marks=pytest.mark.slow), "linf"])
@pytest.mark.parametrize("name", KINKED)
def test_the_radius_is_the_true_one(monkeypatch, name, norm):
    """That of all pieces by linear and quadratic programs; more is refused, whatever the slopes."""
    met, rng = 0, np.random.default_rng(0)
    for seed in SEEDS:
        net, x = network(name, seed)
        label = int(net.logits(x).argmax())
        true = true_radius(net, x, label, norm)
        if not 1e-6 < true < 1e3:
            continue
        (claim,) = largest_balls(net, x[None], [label], norm=norm)
        assert claim is not None
        assert claim.value is not None
        assert claim.proof is not None
        assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9), seed
        data = dict(claim.proof.data)
        assert RULES[claim.proof.kind](net, claim)[0]
        if claim.proof.kind != "local_hessians":
            continue
        met += 1
        with monkeypatch.context() as patch:
            patch.setattr("stability.rules.local_hessians.ROOM", 150)
            for part in (1.0 + 1e-6, 1.1):
                for slopes in (data["slopes"], rng.uniform(-1.0, 2.0, data["slopes"].shape)):
                    forged = {**data, "radius": part * true, "slopes": slopes}
                    assert accepted(net, "local_hessians", forged) is None, (seed, part)
    assert met >= 2


def kinked() -> tuple[Classifier, dict[str, Any], float]:
    """A network whose worst input lies on a kink: that of the first step, whose argument then stops to count."""
    own = LureSystem([[0.0]], [[1.0]], [[1.0]], slope=(0.0, 1.0), dt=1.0)
    net, x = Classifier(DrivenSystem(own, "relu", [[1.0]]), [[1.0], [0.0]], [-0.5, 0.0]), np.array([[0.3], [2.0]])
    (claim,) = largest_balls(net, x[None], [0])
    assert claim is not None
    assert claim.proof is not None
    return net, dict(claim.proof.data), (0.3**2 + 1.5**2) ** 0.5  # 0.3 down to the kink, and 2.3 - 0.3 down to 0.5


def test_a_worst_input_on_a_kink():
    net, data, true = kinked()
    assert true * (1.0 - 1e-6) <= data["radius"] < true
    assert np.allclose(data["slopes"], [[0.3 / 1.5, 1.0]], atol=1e-6)
    assert np.allclose(data["points"], [[-0.3, -1.5]], atol=1e-5)
    without = {key: value for key, value in data.items() if key != "slopes"}  # as files of before are
    boxes = []
    for told in (data, without):
        claim = accepted(net, "local_hessians", told)
        assert claim is not None
        boxes.append(int(RULES["local_hessians"](net, claim)[1].split(" in ")[1].split()[0]))
    assert 5 * boxes[0] < boxes[1]


def test_slopes_of_a_wrong_kind_are_refused():
    net, data, _ = kinked()
    rule, slopes = RULES["local_hessians"], data["slopes"]
    for wrong, words in (
        (slopes[:, :1], "slopes must be (1, 2)"),
        (slopes[0], "slopes must be"),
        (1e13 * slopes, "1e12"),
    ):
        assert words in rule(net, propose(net, "local_hessians", {**data, "slopes": wrong}))[1]
    smooth = Classifier(DrivenSystem(net.recurrent.system, "tanh", [[1.0]]), net.weight, net.bias)
    assert "slopes must be (1, 0)" in rule(smooth, propose(smooth, "local_hessians", data))[1]


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_descents_find_the_least_margin(norm):
    """The nearest boundary of the pieces is where the least margin of a ball is zero; another local minimum is rare."""
    missed = 0
    for seed in range(4):
        for name in NAMES:
            net, x = network(name, 40 + seed)
            label = int(net.logits(x).argmax())
            true = true_radius(net, x, label, norm)
            if not 1e-6 < true < 1e3:
                continue
            least = []
            for other in set(range(3)) - {label}:
                margin = Margin(coordinates(net, x, true, norm), label, other)
                least.append(margin.least(margin.starts(np.random.default_rng(0), []))[0])
            assert min(least) > -1e-7, (name, seed)
            missed += min(least) > 1e-7
    assert missed <= 2
