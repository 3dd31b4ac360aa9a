"""Equilibria of networks: all are found, others are excluded by proof, degenerate ones are reported as undecided."""

from __future__ import annotations

import numpy as np
import pytest

from stability import DrivenSystem, GatedCell, LureSystem, fixed_points
from stability.errors import StabilityError
from stability.search.counterexamples.equilibrium_manifold import equilibrium_residual, newton_equilibrium


def tanh_map(weights: np.ndarray, bias: np.ndarray | None = None) -> DrivenSystem:
    n = len(weights)
    return DrivenSystem(LureSystem(np.zeros((n, n)), np.eye(n), weights, dt=1.0), "tanh", np.zeros((n, 1)), bias)


def test_a_memory_of_two_bits_has_nine_equilibria() -> None:
    found = fixed_points(tanh_map(2 * np.eye(2)), starts=0)  # from boxes alone
    assert found.complete
    assert found.types == 4 * ["stable"] + 4 * ["saddle"] + ["unstable"]
    h = found.points[0, 0]
    assert h == pytest.approx(np.tanh(2 * h), abs=1e-12)
    assert np.abs(found.points / h).round(9).tolist() == np.abs(found.points / h).round().tolist()
    assert np.allclose(found.eigenvalues[-1], 2.0)
    assert (found.radii < 1e-12).all()


def random_network(kind: str, rng: np.random.Generator) -> DrivenSystem | GatedCell:
    n, gain = int(rng.integers(2, 6)), rng.uniform(0.5, 4.0)
    if kind in ("lstm", "gru"):
        gates = 4 if kind == "lstm" else 3
        weights, after = gain * rng.normal(size=(gates * n, n)) / np.sqrt(n), bool(rng.integers(2))
        weights[2 * n : 3 * n] += gain * np.eye(n)
        return GatedCell(
            kind, rng.normal(size=(gates * n, 1)), weights, 0.3 * rng.normal(size=gates * n), reset_after=after
        )
    m = n + 2 if kind == "wide" else n
    W = gain * rng.normal(size=(m, n)) / np.sqrt(n)
    W = (4.0 if kind == "sigmoid" else 1.0) * (W + gain * np.eye(m, n))
    B, E, bias = rng.normal(size=(n, m)) if kind == "wide" else np.eye(n), np.ones((m, 1)), 0.3 * rng.normal(size=m)
    flow = LureSystem(-np.diag(rng.uniform(0.5, 2.0, n)), B, W)
    system = flow.midpoint(0.3) if kind == "midpoint" else flow
    name = {"sigmoid": "sigmoid", "relu": "relu", "saturation": "saturation"}.get(kind, "tanh")
    times = system.channels // m
    return DrivenSystem(system, name, np.tile(E, (times, 1)), np.tile(bias, times))


@pytest.mark.parametrize("kind", ["tanh", "midpoint", "wide", "sigmoid", "saturation", "relu", "lstm", "gru"])
def test_none_is_missed_where_the_list_is_proved_complete(kind: str, rng: np.random.Generator) -> None:
    complete = several = 0
    for _ in range(8):
        network, u = random_network(kind, rng), 0.3 * rng.normal(size=1)
        box = (-30, 30) if kind == "relu" else None
        found = fixed_points(network, u, box=box, starts=4, max_boxes=20_000)
        complete, several = complete + found.complete, several + (len(found.points) > 1)
        for point, radius, values in zip(found.points, found.radii, found.eigenvalues):
            assert np.abs(equilibrium_residual(network, point, u)).max() < 1e-9
            assert radius < 1e-7 * (1.0 + np.abs(point).max())  # cell states of an LSTM may be badly conditioned
            expected = np.linalg.eigvals(network.jacobian(point, u))
            assert all(np.abs(values - value).min() < 1e-6 for value in expected)
        if not found.complete:
            continue
        for start in rng.uniform(*found.box, size=(40, network.states)):
            with np.errstate(all="ignore"):
                state = newton_equilibrium(network, start, u)
            if state is None or np.abs(equilibrium_residual(network, state, u)).max() > 1e-12:
                continue
            inside = ((found.box[0] - 1e-9 <= state) & (state <= found.box[1] + 1e-9)).all()
            # the default box contains every equilibrium; a gate of a GRU far outside rounds to 1, which is no proof
            assert inside or kind in ("relu", "gru")
            assert not inside or np.abs(found.points - state).max(axis=1).min(initial=np.inf) < 1e-6
    assert complete >= 6
    assert several >= 1


@pytest.mark.parametrize(
    ("network", "box"),
    [
        (tanh_map(np.diag([1.0, 0.5])), None),  # the eigenvalue 1 at zero, which is isolated
        (DrivenSystem(LureSystem([[0.0]], [[1.0]], [[1.0]], dt=1.0), "saturation", [[0.0]]), None),  # a continuum
        (DrivenSystem(LureSystem([[1.0]], [[1.0]], [[0.0]], dt=1.0), "tanh", [[1.0]]), (-1, 1)),  # an integrator
    ],
)
def test_degenerate_equilibria_end_in_undecided_boxes(network, box) -> None:
    found = fixed_points(network, box=box, max_boxes=5_000)
    assert not found.complete
    assert found.boxes <= 5_000
    zero = np.zeros(network.states)
    assert ((found.undecided[:, 0] <= zero) & (zero <= found.undecided[:, 1])).all(axis=1).any()


def test_a_box_excludes_the_equilibria_outside_and_an_unbounded_activation_needs_one() -> None:
    memory = tanh_map(2 * np.eye(2))
    assert len(fixed_points(memory, box=(0.5, 1.0)).points) == 1
    empty = fixed_points(memory, box=(0.2, 0.9))
    assert empty.complete
    assert empty.points.shape == empty.eigenvalues.shape == (0, 2)
    linear = DrivenSystem(LureSystem([[0.5]], [[1.0]], [[0.2]], dt=1.0), "relu", [[1.0]])
    assert not fixed_points(linear).complete
    assert fixed_points(linear, [1.0], box=(-9, 9)).points == pytest.approx(1 / 0.3)


def test_a_ghost_of_a_saddle_node_is_a_slow_point() -> None:
    network = tanh_map(np.array([[1.5]]), np.array([0.22]))  # one equilibrium far right, a bottleneck left of zero
    found = fixed_points(network, slow=50)
    assert found.complete
    assert found.types == ["stable"]
    assert len(found.slow_points) == 1
    assert -1 < found.slow_points[0, 0] < 0
    assert 0 < found.speeds[0] < 0.02
    axes = found.plot(trajectories=np.linspace(-1, 1, 5)[:, None])
    assert len(axes.collections) == 2


@pytest.mark.parametrize(
    "options",
    [{"input": [1.0, 2.0]}, {"box": (1, 0)}, {"starts": -1}, {"max_boxes": 0.5}, {"states": np.zeros((3, 1))}],
)
def test_bad_options_are_refused(options) -> None:
    with pytest.raises(StabilityError):
        fixed_points(tanh_map(np.eye(2)), **options)


@pytest.mark.parametrize("subject", [LureSystem.linear([[0.5]]), np.eye(2)])
def test_what_has_no_activation_is_refused(subject) -> None:
    with pytest.raises(StabilityError):
        fixed_points(subject)
