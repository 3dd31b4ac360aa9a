"""Lower bounds in boxes are below what they are about, and steps that are known up to an interval are covered whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stability.local.bellman import Stage, bellman
from stability.local.below import Lines
from stability.local.classifier import Classifier
from stability.local.coordinates import coordinates
from stability.local.covering import covered
from stability.local.lagrangians import Boxes, Touch
from stability.local.minorants import first_order, second_order
from stability.local.ranges import greatest
from stability.local.scalar import ScalarStep, scalar_steps
from stability.rigor.intervals import Interval
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import ACTIVATIONS, activation
from tests.stability.local.test_single import network

Array = np.ndarray


def boxes(rng: np.random.Generator, count: int, size: int) -> tuple[Array, Array, Array]:
    """Boxes ``[a, b]`` with points ``c`` in them, some of which do not move in one coordinate."""
    a, b = np.sort(rng.normal(size=(2, count, size)), axis=0)
    still = rng.random((count, size)) < 0.1
    b = np.where(still, a, b)
    return a, b, a + rng.random((count, size)) * (b - a)


def drawn(rng: np.random.Generator, a: Array, b: Array, count: int = 400) -> Array:
    """``(count, N, k)`` points of boxes, corners among them."""
    share = rng.random((count, *a.shape))
    share[::2] = np.clip(3.0 * share[::2] - 1.0, 0.0, 1.0)
    return a + share * (b - a)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_bound_by_hessians_is_below_all_functions_with_such_hessians(size):
    rng = np.random.default_rng(size)
    for bent in (0.03, 0.5, 4.0):
        a, b, c = boxes(rng, 60, size)
        g, H = rng.normal(size=(60, size)), bent * rng.normal(size=(60, size, size))
        H = H + H.transpose(0, 2, 1) + bent * rng.integers(0, 4) * np.eye(size)
        wide = 0.2 * bent * rng.random(H.shape)
        ends = Interval(H - wide, H + wide.transpose(0, 2, 1)), Interval(g - 0.1, g + 0.1)
        bound = second_order(ends[1], ends[0], c, a, b)
        y = drawn(rng, a, b) - c
        for _ in range(8):
            own = H + rng.uniform(-1.0, 1.0) * np.minimum(wide, wide.transpose(0, 2, 1))
            own = 0.5 * (own + own.transpose(0, 2, 1))
            slope = g + 0.1 * rng.choice([-1.0, 1.0], g.shape)
            values = (slope * y).sum(axis=2) + 0.5 * np.einsum("nbi,bij,nbj->nb", y, own, y)
            assert (bound <= values.min(axis=0) + 1e-12).all()


def test_a_bound_by_hessians_is_met_where_these_are_a_number_times_one():
    rng = np.random.default_rng(3)
    for bend in (-0.7, 0.04, 0.6, 1.0, 7.0):
        a, b, c = boxes(rng, 200, 1)
        g, far = rng.normal(size=(200, 1)), np.maximum(b - c, c - a)
        H = np.full((200, 1, 1), bend)
        bound = second_order(Interval.point(g), Interval.point(H), c, a, b)
        y = np.clip(-g / bend if bend > 0.0 else 0.0 * g, a - c, b - c)
        ends = [g * end + 0.5 * bend * end * end for end in (a - c, b - c, y)]
        true = np.minimum.reduce(ends).sum(axis=1)
        moved = far[:, 0] > 0.0
        assert np.allclose(bound[moved], true[moved], rtol=0.0, atol=1e-9)


def test_a_bound_by_slopes_is_below_all_functions_with_such_slopes_and_met():
    rng = np.random.default_rng(4)
    for price in (0.0, 0.3, 5.0):
        a, b, c = boxes(rng, 100, 3)
        low, high = np.sort(rng.normal(size=(2, 100, 3)), axis=0)
        prices = price * np.ones(3)
        bound = first_order(Interval(low, high), Interval.point(prices), c, a, b)
        y = drawn(rng, a, b, 3000)
        rises = np.where(y >= c, low, high) * (y - c)  # the least that the slopes allow
        values = (rises + prices * (y * y - c * c)).sum(axis=2)
        assert (bound <= values.min(axis=0) + 1e-12).all()
        assert np.median(values.min(axis=0) - bound) < 0.2


def toy(features: int = 1) -> Classifier:
    """A network of one unit."""
    cell = DrivenSystem(
        LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", np.ones((1, features)), F=np.eye(1, features)
    )
    return Classifier(cell, [[1.0], [-1.0]])


@pytest.mark.parametrize("budget", ["total", "step"])
def test_no_point_of_a_ball_is_lost_where_boxes_are_drawn_in(budget):
    rng, none = np.random.default_rng(5), np.zeros((200, 0), dtype=int)
    of = coordinates(toy(2), rng.normal(size=(3, 2)), 0.7, "l2", each=budget == "step")
    a, b = np.sort(rng.uniform(-1.0, 1.0, (2, 200, len(of.low))), axis=0)
    a[::3] *= 0.1  # ends of less than one, and of both signs
    points = rng.normal(size=(2000, len(of.low)))
    for part in of.balls:
        points[:, part] *= 0.7 / np.linalg.norm(points[:, part], axis=1, keepdims=True)
    points *= rng.choice([0.2, 0.7, 1.0], (2000, 1)) * (1.0 - 1e-15)
    left, lost = Boxes(a, b, (none, none)).within(of), 0
    for low, high in zip(a, b):
        inside = points[((points >= low) & (points <= high)).all(axis=1)]
        for y in inside:
            lost += not ((left.low <= y) & (y <= left.high)).all(axis=1).any()
    assert lost == 0
    assert 0 < len(left) < 200


def test_what_breaks_a_ball_is_in_it():
    rng, met = np.random.default_rng(6), 0
    for seed in range(12):
        net, x = network("tanh", np.random.default_rng(seed), 2, 1.0), rng.normal(size=(2, 2))
        label = int(net.logits(x).argmax())
        bounds = None if seed % 2 else (float(x.min()) - 0.2, float(x.max()) + 0.2)
        of = coordinates(net, x, 1.2, "l2", bounds=bounds)
        for other in {0, 1, 2} - {label}:
            touch = Touch(np.zeros(len(of.low)), np.ones(len(of.balls)), 0.0)
            found = covered(of, label, other, touch, 20_000)
            if found.broken is not None:
                met += 1
                assert of.cost(found.broken)[0].sum() <= 1.2**2 * (1.0 + 1e-12)
    assert met > 5


def widened(step: ScalarStep) -> ScalarStep:
    """A step that is known to a few hundredths alone."""
    wide = {"A": 0.02, "B": 0.03, "C": 0.01, "e": 0.05, "f": 0.04}
    return replace(
        step, **{k: Interval(getattr(step, k).low - size, getattr(step, k).high + size) for k, size in wide.items()}
    )


def after(step: ScalarStep, phi, h: Array, v: Array, ends: tuple[str, ...]) -> Array:
    """The next states of one of the steps that are meant, at ends of its numbers."""
    A, B, C, e, f = (float(getattr(getattr(step, name), end).ravel()[0]) for name, end in zip("ABCef", ends))
    S, g = step.S.low[0], step.g.low[0]
    return A * h + B * phi.function(C * h + e + S * v) + f + g * v


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in ("tanh", "leaky_relu", "deadzone")))
        for name in sorted(ACTIVATIONS)
    ],
)
def test_dynamic_programming_covers_steps_that_are_known_to_an_interval_alone(name):
    rng, phi = np.random.default_rng(7), activation(name)
    for seed in range(3):
        net = network(name, np.random.default_rng(seed), 1, 0.3, leak=1.0)
        (one,) = scalar_steps(net, rng.normal(size=(1, 1)), 1.0, "l2")
        step = widened(one)
        stage, h = Stage(step, phi, -1.0, 1.0), rng.uniform(-1.0, 1.0, 200)
        v = np.linspace(*stage.ends, 2001)
        whole = [after(step, phi, h[:, None], v, tuple(rng.choice(["low", "high"], 5))) for _ in range(24)]
        x = np.linspace(min(map(np.min, whole)) - 0.1, max(map(np.max, whole)) + 0.1, 300)
        dips = rng.random(300) * (rng.random(300) < 0.05)  # a next state that is missed may be the only cheap one
        lines = Lines(x, 5.0 - 5.0 * dips[:-1], 5.0 - 5.0 * dips[1:])
        for cells in (30, 1000):
            found = bellman(stage, lines, np.linspace(-1.0, 1.0, cells), 1e-9, np.inf)[0]
            for reach in whole:
                assert (found.at(h) <= (v * v + lines.at(reach)).min(axis=1) + 1e-9).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_ranges_cover_steps_that_are_known_to_an_interval_alone(name, norm):
    rng, phi = np.random.default_rng(8), activation(name)
    for seed in range(4):
        net = network(name, np.random.default_rng(seed), 1, 0.3, leak=1.0)
        (one,) = scalar_steps(net, rng.normal(size=(1, 1)), 0.5, norm, each=True)
        step = widened(one)
        h, v = np.linspace(-0.4, 1.0, 50)[:, None], np.linspace(-0.5, 0.5, 201)
        found = [after(step, phi, h, v, tuple(ends)) for ends in rng.choice(["low", "high"], (32, 5))]
        assert greatest(step, phi, -0.4, 1.0, 1.0) >= max(map(np.max, found)) - 1e-12
        assert -greatest(step, phi, -0.4, 1.0, -1.0) <= min(map(np.min, found)) + 1e-12


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_ranges_of_discs_cover_steps_that_are_known_to_an_interval_alone(name):
    """Several features go to the state, too: what they add lies in a set of pairs."""
    rng, phi = np.random.default_rng(9), activation(name)
    for seed in range(4):
        net = network(name, np.random.default_rng(seed), 2, 0.7, leak=1.0)
        (one,) = scalar_steps(net, rng.normal(size=(1, 2)), 0.5, "l2", each=True)
        assert one.pair is not None
        step, turn = widened(one), np.linspace(0.0, 2.0 * np.pi, 400)
        d = 0.5 * np.stack([np.cos(turn), np.sin(turn)])
        y, q, h = net.recurrent.E[0] @ d, net.recurrent.F[0] @ d, np.linspace(-0.4, 1.0, 50)[:, None]
        found = list[Array]()
        for ends in rng.choice(["low", "high"], (32, 5)):
            A, B, C, e, f = (float(getattr(getattr(step, n), end).ravel()[0]) for n, end in zip("ABCef", ends))
            found.append(A * h + B * phi.function(C * h + e + y) + f + q)
        assert greatest(step, phi, -0.4, 1.0, 1.0) >= max(map(np.max, found)) - 1e-12
        assert -greatest(step, phi, -0.4, 1.0, -1.0) <= min(map(np.min, found)) + 1e-12
