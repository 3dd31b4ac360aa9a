"""Rule ``local_frontier`` on hostile files: numbers whose squares underflow, and as much work as a file can ask for."""

from __future__ import annotations

import numpy as np
import pytest

from stability.local.classifier import Classifier
from stability.local.least import kept_states, least_cost
from stability.local.scalar import scalar_steps
from stability.rules.registry import accepted
from stability.systems import DrivenSystem, LureSystem
from tests.stability.local.work import Work


def network(E: np.ndarray, F: np.ndarray) -> Classifier:
    own = LureSystem([[0.3]], [[1.0]], [[0.8]], slope=(0.0, 1.0), dt=1.0)
    return Classifier(DrivenSystem(own, "tanh", E, [0.1], F), [[1.0], [-1.0]], start=[0.2])


@pytest.mark.parametrize("into", [1e-150, 1e-170, 1e-200, 1e-308, 5e-324, 1e160, 1e300])
@pytest.mark.parametrize("past", [1.0, 1e-308, 1e300])
@pytest.mark.parametrize("budget", ["total", "step"])
def test_columns_whose_squares_underflow_or_overflow_are_no_fault(into, past, budget):
    net, x = network(np.full((1, 2), into), np.array([[past, -past]])), np.array([[0.3, 0.2], [0.1, 0.4], [0.2, 0.2]])
    label = int(net.logits(x[None]).argmax())
    own = {"budget": "step"} if budget == "step" else {"paths": np.zeros((1, 7 if into > 1e-140 else 4)), "fine": 3}
    data = {"x": x, "label": label, "norm": "l2", "radius": 0.1, **own}
    if accepted(net, "local_frontier", data) is not None:
        rng = np.random.default_rng(0)
        d = rng.normal(size=(2000, 3, 2))
        d[:8] = [[[a, -a], [b, -b], [c, -c]] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]
        d /= np.linalg.norm(d, axis=2 if budget == "step" else (1, 2), keepdims=True)
        assert (net.logits(x + 0.1 * d).argmax(axis=1) == label).all()


def test_columns_without_a_direction_in_floating_point_still_have_a_radius():
    net, x = network(np.full((1, 2), 1e-200), np.array([[1.0, -1.0]])), np.array([[0.3, 0.2]])
    label = int(net.logits(x[None]).argmax())
    for size, kept in ((0.9, True), (1.1, False)):  # the margin is gone where d = (-s, s) takes 2 s from the state
        state = float(net.recurrent.advance(net.start[None], x[:1])[0, 0])
        data = {"x": x, "label": label, "norm": "l2", "radius": size * abs(state) / 2.0**0.5, "budget": "step"}
        assert (accepted(net, "local_frontier", data) is not None) is kept, size


def test_clipping_many_entries_counts_as_the_work_that_it_is(monkeypatch):
    rng = np.random.default_rng(0)
    x, net = rng.random((20, 128)), network(rng.normal(size=(1, 128)) / 12.0, np.zeros((1, 128)))
    label, radius, room = int(net.logits(x[None]).argmax()), 0.5, 400_000
    steps = scalar_steps(net, x, 1.5 * radius, "l2", None, (0.0, 1.0))
    assert steps[0].clip is not None
    paths, work = 0.3 + 0.1 * rng.normal(size=(8, 21)), Work.at_most(2 * room, monkeypatch)
    found = least_cost(net, steps, label, radius, paths, 32, room)
    assert found.boxes > room
    assert not found.cost > 0.0
    assert work.done < 2 * room


@pytest.mark.parametrize("reduction", ["last", "mean"])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_heads_whose_differences_overflow_prove_nothing(norm, reduction):
    """The differences are minus infinity, and so where the class changes is not a number."""
    own = LureSystem([[0.0]], [[1.0]], [[0.0]], slope=(0.0, 1.0), dt=1.0)
    cell = DrivenSystem(own, "tanh", [[1.0]])
    net = Classifier(cell, [[-1.2e308], [1.2e308]], [-1.2e308, 1.2e308], reduction)
    data = {"x": np.array([[0.5]]), "label": 0, "norm": norm, "radius": 0.1}
    searched = {"paths": np.zeros((1, 2)), "fine": 3}
    with np.errstate(all="ignore"):
        step, priced = {"budget": "step"}, {"prices": np.ones(2)}
        for more in ({}, step, searched, searched | step, searched | priced):
            assert accepted(net, "local_frontier", data | more) is None
        assert kept_states(net, 0, -1.0, 1.0) is None
        assert kept_states(Classifier(cell, [[1.0], [-1.0]], reduction=reduction), 0, -1.0, 1.0) is not None
