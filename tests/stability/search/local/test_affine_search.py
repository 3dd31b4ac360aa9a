"""Affine networks of any length, expanding ones too, have the true radius; and l_inf where forms' roundings explode."""

from __future__ import annotations

import numpy as np
import pytest

from stability.kernel.reachability.network_stages import stages_of
from stability.kernel.systems.classifier import Classifier
from stability.search.local import affine_search as linear_balls
from stability.search.local.largest_radius import largest_balls
from stability.search.local.request import is_affine
from stability.systems import DrivenSystem, LureSystem

Array = np.ndarray


def turning(size: float, name: str = "identity") -> Classifier:
    """``h+ = phi(R h + E u)`` with a rotation of a given size."""
    rng = np.random.default_rng(0)
    R = size * np.array([[np.cos(0.8), -np.sin(0.8)], [np.sin(0.8), np.cos(0.8)]])
    slope = (1.0, 1.0) if name == "identity" else (0.0, 1.0)
    cell = DrivenSystem(LureSystem(np.zeros((2, 2)), np.eye(2), R, slope=slope, dt=1.0), name, rng.normal(size=(2, 2)))
    return Classifier(cell, rng.normal(size=(3, 2)))


def expanding(steps: int) -> tuple[Classifier, Array]:
    rng = np.random.default_rng(13)
    A = rng.normal(size=(5, 5))
    A *= 1.05 / np.abs(np.linalg.eigvals(A)).max()
    system = LureSystem(np.zeros((5, 5)), np.eye(5), A, slope=(1.0, 1.0), dt=1.0)
    net = Classifier(DrivenSystem(system, "identity", rng.normal(size=(5, 8))), rng.normal(size=(3, 5)))
    return net, rng.normal(size=(steps, 8))


def true_radius(net: Classifier, x: Array, label: int, norm: str, budget: str) -> float:
    """The distance to the nearest boundary of an affine network, by differences of its logits."""
    eye = np.eye(x.size).reshape(x.size, *x.shape)
    slopes = (net.logits(eye) - net.logits(np.zeros(x.shape))).T.reshape(net.classes, *x.shape)
    steep, logits = slopes - slopes[label], net.logits(x)
    if norm == "linf":
        sizes = np.abs(steep).sum(axis=(1, 2))
    elif budget == "total":
        sizes = np.sqrt((steep**2).sum(axis=(1, 2)))
    else:
        sizes = np.sqrt((steep**2).sum(axis=2)).sum(axis=1)
    return min((logits[label] - logits[k]) / sizes[k] for k in range(net.classes) if k != label)


@pytest.fixture
def by_tubes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make networks whose matrices are only enclosed."""
    monkeypatch.setattr(linear_balls, "applies", lambda asked: False)


BALLS = [("linf", "total"), ("l2", "total"), ("l2", "step")]


@pytest.mark.parametrize(("norm", "budget"), BALLS)
@pytest.mark.parametrize(
    "case",
    ["turning, 60 steps", "expanding, 40 steps", "steep, 90 steps"],
)
@pytest.mark.usefixtures("by_tubes")
def test_affine_networks_have_the_true_radius(case, norm, budget):
    steps = int(case.split()[1])
    size = 1.3 if "steep" in case else 0.98  # 1e10 over the sequence
    net, x = (
        expanding(steps) if "expanding" in case else (turning(size), np.random.default_rng(1).normal(size=(steps, 2)))
    )
    label = int(net.logits(x).argmax())
    (claim,) = largest_balls(net, x[None], [label], norm=norm, budget=budget)
    true = true_radius(net, x, label, norm, budget)
    assert claim is not None
    assert claim.value == pytest.approx(true, rel=4e-3 if budget == "step" else 1e-6)
    assert claim.value <= true * (1.0 + 1e-9)


def test_affine_is_what_does_not_bend():
    assert is_affine(stages_of(turning(0.9)))
    assert not is_affine(stages_of(turning(0.9, "tanh")))
    A = 0.5 * np.eye(2)
    idle = LureSystem(A, np.zeros((2, 1)), np.zeros((1, 2)), dt=1.0)
    without = Classifier(DrivenSystem(idle, "tanh", np.ones((1, 1)), None, np.ones((2, 1))), np.eye(2))
    assert is_affine(stages_of(without))


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("ends", [(-np.inf, 1e300), (0.0, 2e100)])
def test_bounds_that_no_ball_reaches_are_as_good_as_none(ends, norm):
    net, x = turning(0.9, "tanh"), np.random.default_rng(1).random((4, 2))
    label = int(net.logits(x).argmax())
    told = {"norm": norm, "epsilon": None}
    (free,) = largest_balls(net, x[None], [label], **told)
    (claim,) = largest_balls(net, x[None], [label], bounds=ends, **told)
    assert claim is not None
    assert free is not None
    assert (claim.value or 0.0) >= (1.0 - 1e-6) * (free.value or 0.0) > 0.0
    if ends[0] < 0.0:
        assert claim.value == free.value
        assert claim.proof is not None
        assert "bounds" not in claim.proof.data
