"""Long sequences: few tubes, whatever their length, and balls about as large as those of the longer search."""

from __future__ import annotations

import numpy as np
import pytest
from local_specimens import attacked, classifiers

from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.classifier import Classifier
from stability.search.local import (
    backward_search as widening,
)
from stability.search.local import (
    ellipsoid_search as ellipsoids,
)
from stability.search.local import (
    initial_radius as ahead,
)
from stability.search.local import (
    long_sequences as few,
)
from stability.search.local.largest_radius import largest_balls
from stability.systems import DrivenSystem, LureSystem

MADE = classifiers(1)
RNG = np.random.default_rng(8)
X = RNG.normal(size=(3, 4, 2))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The samples of every tube from now on."""
    seen: list[int] = []
    for module in (ellipsoids, few, ahead, widening):
        made = module.ellipsoid_tubes
        monkeypatch.setattr(
            module, "ellipsoid_tubes", lambda *told, made=made: seen.append(len(told[3])) or made(*told)
        )
    return seen


@pytest.mark.parametrize("name", ["tanh", "euler", "relu"])
@pytest.mark.parametrize("near", [None, 0.3])
def test_balls_of_few_tubes_hold_and_are_nearly_as_large(name, near, monkeypatch):
    made = MADE[name]
    label = made.logits(X).argmax(axis=1)
    upper = None
    if near is not None:
        upper = [near * claim.value for claim in largest_balls(made, X, label)]
    monkeypatch.setattr(ellipsoids, "_SMALL", 0.0)
    longer = largest_balls(made, X, label, upper=upper)
    monkeypatch.setattr(ellipsoids, "_LONG", 2)
    begun: list[object] = []
    whole = ellipsoids.long_sequence_balls
    monkeypatch.setattr(ellipsoids, "long_sequence_balls", lambda *told: begun.extend(found := whole(*told)) or found)
    short = largest_balls(made, X, label, upper=upper)
    assert sum(ball is not None for ball in begun) >= 2
    for k, (x, y, old, claim) in enumerate(zip(X, label, longer, short)):
        assert claim is not None
        assert RULES["local_ellipsoids"](made, claim)[0]
        assert not attacked(made, x, y, claim.value)
        assert claim.value > 0.85 * old.value
        assert upper is None or claim.value <= upper[k]


def test_the_number_of_tubes_does_not_grow_with_the_length(monkeypatch):
    n, rng = 24, np.random.default_rng(0)
    A = rng.normal(size=(n, n)) / np.sqrt(n)
    system = LureSystem(np.zeros((n, n)), np.eye(n), 0.7 * A, dt=1.0)
    made = Classifier(
        DrivenSystem(system, "tanh", rng.normal(size=(n, 1)), F=np.zeros((n, 1))), rng.normal(size=(3, n)), np.zeros(3)
    )
    seen = counted(monkeypatch)
    for steps in (220, 440):
        x = rng.normal(size=(1, steps, 1))
        seen.clear()
        (claim,) = largest_balls(made, x, made.logits(x).argmax(axis=1))
        assert claim is not None
        assert claim.value > 0
        assert 0 < len(seen) <= 5
