"""The channel equation with cycles in D: against exact solutions and a slow iteration; which D are well posed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stability import UnsupportedError
from stability.kernel.arithmetic.activations import ACTIVATIONS
from stability.kernel.checks import is_well_posed
from stability.kernel.systems.channels import close_loop, solve_channels
from stability.systems import DrivenSystem, LureSystem


def relu(z):
    return np.maximum(z, 0.0)


def step(z):
    return (z > 0) * 1.0


def test_the_known_fixed_point():
    swap = np.array([[0.0, 0.99], [0.99, 0.0]])
    assert solve_channels(np.ones(2), swap, relu, step) == pytest.approx([100.0, 100.0], rel=1e-12)
    system = LureSystem(np.zeros((2, 2)), np.eye(2), np.zeros((2, 2)), swap, (0.0, 1.0), 1.0)
    network = DrivenSystem(system, "relu", np.zeros((2, 1)), np.ones(2))
    assert network.advance(np.zeros(2), np.zeros(1)) == pytest.approx([100.0, 100.0], rel=1e-12)


@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid", "leaky_relu", "saturation", "deadzone"])
@pytest.mark.parametrize("radius", [0.3, 0.95, 0.998])
def test_the_residual_is_at_its_rounding_errors(name, radius):
    phi = ACTIVATIONS[name]
    rng = np.random.default_rng(7)
    for m, batch in ((1, ()), (3, (5,)), (8, (2, 6))):
        D = rng.normal(size=(m, m))
        D *= radius / np.abs(np.linalg.eigvals(np.abs(D))).max()
        free = 3.0 * rng.normal(size=(*batch, m))
        z = solve_channels(free, D, phi.function, phi.derivative)
        assert z.shape == free.shape
        slow = free
        for _ in range(20_000 if radius > 0.99 else 1_000):
            slow = free + phi.function(slow) @ D.T
        assert z == pytest.approx(slow, rel=1e-9, abs=1e-9)


def test_without_cycles_the_sweeps_are_exact():
    rng = np.random.default_rng(1)
    order = rng.permutation(6)
    D = np.tril(rng.normal(size=(6, 6)), -1)[np.ix_(order, order)]
    free = rng.normal(size=(4, 6))
    z = solve_channels(free, D, np.tanh, lambda z: 1 - np.tanh(z) ** 2)
    assert np.array_equal(z, free + np.tanh(z) @ D.T)


def test_rows_that_overflow_are_left_alone():
    D = np.array([[0.0, 0.5], [0.5, 0.0]])
    with np.errstate(all="ignore"):
        z = solve_channels(np.array([[np.inf, 1.0], [1.0, 1.0], [np.nan, 0.0]]), D, relu, step)
    assert z[1] == pytest.approx([2.0, 2.0])


def test_what_cannot_be_solved_is_refused():
    with pytest.raises(UnsupportedError, match="cycles"):
        solve_channels(np.ones(2), np.array([[0.0, 1.0], [1.0, 0.0]]), relu, step)  # no solution at all


def test_a_graph_without_cycles_is_well_posed_whatever_its_weights():
    """Against the definition: the adjacency matrix is nilpotent."""
    rng = np.random.default_rng(3)
    seen = set()
    for _, density in itertools.product(range(60), (0.15, 0.3)):
        m = int(rng.integers(1, 8))
        D = 1e6 * rng.normal(size=(m, m)) * (rng.random((m, m)) < density)
        acyclic = not np.linalg.matrix_power((D != 0).astype(float), m).any()
        seen.add(acyclic)
        assert is_well_posed(D, np.zeros(m), np.ones(m)) == acyclic
    assert seen == {True, False}


def test_the_closed_loop_of_the_channels(rng):
    """Against the inverse: D without cycle of length two (nothing to solve), a longer chain, a cycle, and none."""
    chain = np.diag(rng.normal(size=4), 1)
    hears = np.zeros((5, 5))
    hears[3:, :3] = rng.normal(size=(2, 3))
    alone = np.diag([0.0, 0.3, 0.0])
    for D in (hears, hears.T, chain, alone, 0.2 * rng.normal(size=(4, 4)), np.zeros((3, 3))):
        k, X = rng.uniform(-1.0, 2.0, size=len(D)), rng.normal(size=(len(D), 2))
        expected = np.linalg.inv(np.eye(len(D)) - D @ np.diag(k)) @ X
        assert close_loop(D, k, X) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_sweeps_that_go_round_in_a_circle_by_rounding_end_early_and_where_all_of_them_would():
    D, phi, circles = np.array([[-0.75]]), ACTIVATIONS["leaky_relu"], 0
    for value in np.random.default_rng(0).uniform(1.0, 2.0, 200):
        calls, free = [0], np.array([[value]])

        def counted(z, calls=calls):
            calls[0] += 1
            return phi.function(z)

        found = solve_channels(free, D, counted, phi.derivative)
        slow = free
        for _ in range(201):  # every sweep that there may be
            slow = free + phi.function(slow) @ D.T
        circles += not np.array_equal(free + phi.function(slow) @ D.T, slow)
        assert np.array_equal(found, slow)
        assert calls[0] < 170, "the sweeps should have seen that they were here before"
    assert circles > 5


def test_newton_matrices_are_made_batch_by_batch(monkeypatch):
    swap, free = np.array([[0.0, 0.999], [0.999, 0.0]]), np.random.default_rng(0).uniform(0.5, 1.0, (50, 2))
    whole, solve, most = solve_channels(free, swap, relu, step), np.linalg.solve, []

    def watched(a, b):
        most.append(a.size * 8)
        return solve(a, b)

    monkeypatch.setattr("stability.kernel.systems.channels._BATCH", 256)
    monkeypatch.setattr(np.linalg, "solve", watched)
    assert np.array_equal(solve_channels(free, swap, relu, step), whole)
    assert most
    assert max(most) <= 256
