"""The search for witnesses against gated cells: counted, seeded, in the data's range first; where a witness lies."""

from __future__ import annotations

import numpy as np
import pytest
from specimens import random_cell

from stability.kernel.systems.gated_cell import GatedCell
from stability.search.counterexamples.counterexample_search import refute
from stability.search.counterexamples.gated_equilibria import ascend_radius, equilibrium_near, radius_gradient
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.input_range import InputRange


def test_the_search_is_counted_and_seeded():
    cell = random_cell("lstm", True, np.random.default_rng(0), 2.5)
    one, two = (refute(cell, seed=3) for _ in range(2))
    assert one.found
    assert one.statement == two.statement
    for key, value in one.proof.data.items():
        assert np.array_equal(value, two.proof.data[key]), key
    spent = refute(cell, seed=3, time_limit=0.0)
    assert spent.proof is None


def test_inputs_of_the_data_come_first():
    """Bistable for inputs in [2, 3] and in [-3, -2], not between: the range of the data decides which is told."""
    w_ih, w_hh = np.array([[0.0], [0.0], [1.0]]), np.array([[0.0], [0.0], [4.0]])
    cell = GatedCell("gru", w_ih, w_hh, np.array([50.0, 0.0, 2.0]))
    found = refute(cell, input_range=(-2.2, -1.8), horizon=50)
    assert found.found
    assert found.input_in_data_range is True
    assert "entries in [-2.2" in found.statement or "[-2." in found.statement or "[-1." in found.statement
    elsewhere = refute(cell, input_range=(8.0, 9.0))
    assert elsewhere.found
    assert elsewhere.input_in_data_range is False
    assert refute(cell).input_in_data_range is None


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_gradient_of_the_least_stable_eigenvalue(kind):
    rng = np.random.default_rng(2)
    cell = random_cell(kind, True, rng, 1.0, m=3, p=2)
    u = 0.3 * rng.normal(size=2)
    at = equilibrium_near(cell, np.zeros(cell.states), u)
    assert np.abs(cell.advance(at.state, u) - at.state).max() < 1e-10
    slope = radius_gradient(cell, at)
    for j, e in enumerate(np.eye(2)):
        ahead, behind = (equilibrium_near(cell, at.state, u + s * 1e-5 * e) for s in (1, -1))
        assert slope[j] == pytest.approx((ahead.radius - behind.radius) / 2e-5, abs=1e-6)
    path = list(ascend_radius(cell, at, InputRange(-np.ones(2), np.ones(2)), 10, Deadline.from_limit(None)))
    assert path
    assert all(b.radius > a.radius for a, b in zip([at, *path], path))
    assert all((np.abs(p.u) <= 1.0).all() for p in path)
