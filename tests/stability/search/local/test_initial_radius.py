"""A radius to begin with: the boundary where it is known, and balls that the rule accepts where trials are dear."""

from __future__ import annotations

import numpy as np
import pytest
from local_specimens import attacked, classifiers

from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.classifier import Classifier
from stability.search.local import ellipsoid_search as ellipsoids
from stability.search.local.largest_radius import largest_balls
from stability.systems import DrivenSystem, LureSystem

MADE = classifiers(1)
RNG = np.random.default_rng(8)
X = RNG.normal(size=(3, 4, 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu"])
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
