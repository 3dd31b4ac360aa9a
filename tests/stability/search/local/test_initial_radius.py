"""A radius to begin with: the boundary where it is known, and balls that the rule accepts where trials are dear."""

from __future__ import annotations

import numpy as np
import pytest
from local_specimens import attacked, classifiers

from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.network_stages import stages_of
from stability.kernel.systems.classifier import Classifier
from stability.search.local import ellipsoid_search as ellipsoids
from stability.search.local.initial_radius import boundary_distance
from stability.search.local.largest_radius import largest_balls
from stability.search.local.request import FARTHEST
from stability.search.local.tube_trials import Task
from stability.systems import DrivenSystem, LureSystem

MADE = classifiers(1)
RNG = np.random.default_rng(8)
X = RNG.normal(size=(3, 4, 2))


def test_the_boundary_of_an_affine_network_is_where_it_is_known_to_be():
    A, F = 0.5 * RNG.normal(size=(3, 3)), RNG.normal(size=(3, 2))
    line = DrivenSystem(LureSystem.linear(A, dt=1.0), "identity", np.zeros((0, 2)), F=F)
    made = Classifier(line, RNG.normal(size=(2, 3)), RNG.normal(size=2))
    logits = made.logits(X)
    label = logits.argmax(axis=1)
    margins = logits[np.arange(3), label][:, None] - logits
    free = np.ones((4, 2))
    free[1, 0] = 0.0
    origin = made.logits(np.zeros((4, 2)))
    kernel = np.stack([made.logits(e) - origin for e in np.eye(8).reshape(8, 4, 2)], axis=1).reshape(2, 4, 2) * free
    found = boundary_distance(Task(stages_of(made), X, label, margins, free, "total"), 1 - label)
    assert found == pytest.approx(margins.max(axis=1) / np.linalg.norm(kernel[0] - kernel[1]), rel=1e-9)


@pytest.mark.parametrize("name", ["tanh", "euler", "gru", "relu"])
def test_where_trials_are_dear_the_balls_hold_too(name, monkeypatch):
    made = MADE[name]
    label = made.logits(X).argmax(axis=1)
    cheap = largest_balls(made, X, label)
    monkeypatch.setattr(ellipsoids, "_SMALL", 0.0)
    dear = largest_balls(made, X, label)
    for x, y, fine, claim in zip(X, label, cheap, dear):
        assert claim is not None
        assert RULES["local_ellipsoids"](made, claim)[0]
        assert not attacked(made, x, y, claim.value)
        assert claim.value > 0.6 * fine.value


def test_a_tube_that_needs_no_class_closed_is_used_up_to_its_own_radius() -> None:
    """A network that is nearly linear: its tube proves nearly the distance of the plane where the margin is zero."""
    rng, n, steps = np.random.default_rng(3), 48, 28
    W, F = rng.normal(size=(n, n)) / n, 0.02 * rng.normal(size=(n, 2))
    system = DrivenSystem(LureSystem(np.zeros((n, n)), np.eye(n), W, dt=1.0), "tanh", F)
    made, x = Classifier(system, rng.normal(size=(2, n))), 0.3 * rng.normal(size=(steps, 2))

    def margin(points: np.ndarray) -> np.ndarray:
        logits = made.logits(points)
        return logits[:, label] - logits[:, 1 - label]

    label = int(made.logits(x[None]).argmax())
    moves = 1e-6 * np.eye(x.size).reshape(-1, *x.shape)
    gradient = (margin(x + moves) - margin(x - moves)) / 2e-6
    (claim,) = largest_balls(made, x[None], [label])
    assert claim is not None
    assert claim.value is not None
    assert 0.95 < claim.value / (float(margin(x[None])[0]) / np.linalg.norm(gradient)) < 1.05


@pytest.mark.parametrize("name", ["tanh", "euler", "relu"])
def test_a_warm_start_loses_nothing_of_what_the_tube_alone_proves(name, monkeypatch):
    made, x = MADE[name], 0.3 * X
    label = made.logits(x).argmax(axis=1)
    monkeypatch.setattr(ellipsoids, "_SMALL", 0.0)
    with monkeypatch.context() as without:
        without.setattr(ellipsoids, "_initial_balls", lambda *told: ([None] * len(x), np.zeros(len(x))))
        without.setattr(ellipsoids, "widen_ball", lambda decide, ball, *told, **more: ball)
        alone = [claim.value for claim in largest_balls(made, x, label)]
    found = largest_balls(made, x, label, upper=[1.02 * radius for radius in alone])
    assert all(claim.value > 0.995 * radius for claim, radius in zip(found, alone))


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_no_search_looks_for_balls_that_dwarf_the_input(norm):
    network = MADE["tanh"].recurrent
    same = Classifier(network, np.ones((2, network.outputs)), [1.0, 0.0])  # no input changes its class
    for x, claim in zip(X, largest_balls(same, X, [0, 0, 0], norm=norm)):
        assert 0.0 < claim.value <= FARTHEST * (1.0 + np.abs(x).max())
