"""One unit over a few steps, whose worst input is known: the certified radius is the true one to 1e-6.

The unit's input weights and what it does to the margin have signs for which the margin falls with (or, where the
recurrent weight is negative, alternates in) every number, so that the worst input of a box, or of one ball a step, is a
corner; that of an l2 ball of two numbers is found along a circle.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.rules.registry import RULES, propose
from stability.systems import DrivenSystem, LureSystem

Array = np.ndarray
NAMES = ("tanh", "relu")
TRUE = 0.35


def unit(name: str, w: float, features: int, seed: int) -> DrivenSystem:
    rng = np.random.default_rng(seed)
    own = LureSystem([[0.0]], [[1.0]], [[w]], slope=(0.0, 1.0), dt=1.0)
    return DrivenSystem(own, name, rng.uniform(0.4, 1.0, (1, features)), [0.8])


def corners(network: Classifier, x: Array, radius: float, free: Array, norm: str) -> float:
    """The least margin where every step moves as far as it may, one way or the other."""
    E = network.recurrent.E[0] * free
    way = E / np.maximum(np.linalg.norm(E, axis=1, keepdims=True), 1e-300) if norm == "l2" else np.sign(E)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(x))))
    logits = network.logits(x + radius * signs[:, :, None] * way)
    return float((logits[:, 0] - logits[:, 1]).min())


def circle(network: Classifier, x: Array, radius: float, free: Array) -> float:
    """The least margin on a circle, in the plane of the two directions that count."""
    E = network.recurrent.E[0] * free
    way = E / np.linalg.norm(E, axis=1, keepdims=True)
    low, high = 0.0, 2.0 * np.pi
    least = np.inf
    for _ in range(6):
        angle = np.linspace(low, high, 2001)
        part = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        logits = network.logits(x + radius * part[:, :, None] * way)
        margin = logits[:, 0] - logits[:, 1]
        k, step = int(margin.argmin()), angle[1] - angle[0]
        low, high, least = angle[k] - step, angle[k] + step, min(least, float(margin[k]))
    return least


def known(
    name: str, w: float, steps: int, reduction: str, norm: str, budget: str, free: Array, seed: int
) -> tuple[Classifier, Array]:
    """A network and an input whose true radius is ``TRUE``."""
    x = 0.3 * np.random.default_rng(100 + seed).normal(size=(steps, free.shape[1])) + 0.3
    bare = Classifier(unit(name, w, free.shape[1], seed), [[1.0], [-1.0]], reduction=reduction)
    of = circle if (norm, budget) == ("l2", "total") and steps > 1 else corners
    last = of(bare, x, TRUE, free, *(() if of is circle else (norm,)))
    network = Classifier(bare.recurrent, bare.weight, [-0.5 * last, 0.5 * last], reduction)
    short = of(network, x, 0.999 * TRUE, free, *(() if of is circle else (norm,)))
    assert short > 1e-6  # no plateau: the margin ends where it should
    return network, x


KINDS = [
    (steps, reduction, norm, budget)
    for steps in (1, 2, 3)
    for reduction in ("last", "mean")
    for norm, budget in (("l2", "total"), ("l2", "step"), ("linf", "total"))
    if not (steps == 3 and budget == "total" and norm == "l2")
]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("steps", "reduction", "norm", "budget"), KINDS)
def test_the_radius_is_the_true_one(steps, reduction, norm, budget, masked):
    for name, w in itertools.product(NAMES, (0.9, -0.4) if reduction == "last" else (0.9,)):
        free = np.ones((steps, 1)) if not masked else np.tile([[1.0, 0.0]], (steps, 1))
        network, x = known(name, w, steps, reduction, norm, budget, free, seed=steps)
        told = {"mask": free > 0} if masked else {}
        (claim,) = largest_balls(network, x[None], [0], norm=norm, budget=budget, **told)
        assert claim is not None
        assert claim.value <= TRUE * (1 + 1e-12), (name, w)
        assert claim.value >= TRUE * (1 - 1e-6), (name, w, 1 - claim.value / TRUE)
        assert claim.proof is not None
        assert RULES[claim.proof.kind](network, claim)[0]
        assert (" at every step" in claim.statement) is (budget == "step")


def test_nothing_beyond_the_true_radius_is_accepted(monkeypatch):
    """Closings from the end, with the prices, points and multipliers that prove the true radius or nearly."""
    monkeypatch.setattr("stability.local.balls.pays", lambda *_: False)  # tubes alone
    monkeypatch.setattr("stability.local.balls.covers", lambda *_: False)
    closed = 0
    for name, w, steps, seed in itertools.product(NAMES, (0.9, -0.4), (2,), range(4)):
        network, x = known(name, w, steps, "last", "l2", "step", np.ones((steps, 2)), seed)
        (claim,) = largest_balls(network, x[None], [0], budget="step")
        assert claim is not None
        assert claim.proof is not None
        data = claim.proof.data
        if "others" not in data:
            continue
        closed += claim.value > 0.97 * TRUE
        for part in (1.0002, 1.01, 1.1):
            stretch = part * TRUE / data["radius"]
            for power in (0, -1):  # prices as they are, and those of the larger ball
                wrong = {"radius": part * TRUE, "points": x + stretch * (data["points"] - x)}
                wrong["prices"] = data["prices"] * stretch**power
                forged = propose(network, "local_ellipsoids", {**data, **wrong})
                assert not RULES["local_ellipsoids"](network, forged)[0], (name, w, part)
    assert closed > 1
