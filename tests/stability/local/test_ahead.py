"""A radius to begin with: the boundary where it is known, and balls that the rule accepts where trials are dear."""

from __future__ import annotations

import numpy as np
import pytest
from local_specimens import attacked, classifiers

from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.network_stages import stages_of
from stability.kernel.systems.classifier import Classifier
from stability.search.local import ellipsoid_search as ellipsoids
from stability.search.local.initial_radius import boundary
from stability.search.local.largest_radius import largest_balls
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
    found = boundary(Task(stages_of(made), X, label, margins, free, "total"), 1 - label)
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
