"""Sets that follow a driven network: no trajectory leaves them, and they become points where nothing moves."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from stability.kernel.arithmetic.activation_lines import relaxation
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.reachability.invariant_zonotope import InvariantZonotope
from stability.systems import DrivenSystem, LureSystem

RNG = np.random.default_rng(0)


def exact(name: str, z: float) -> mpmath.mpf:
    with mpmath.workdps(40):
        return mpmath.tanh(mpmath.mpf(z)) if name == "tanh" else 1 / (1 + mpmath.exp(-mpmath.mpf(z)))


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
@pytest.mark.parametrize("scale", [1e-12, 1e-3, 0.3, 2.0, 30.0, 1e4])
def test_a_relaxation_holds_the_activation_in_forty_digits(name, scale):
    rng = np.random.default_rng(int(1e3 * scale))
    ends = np.sort(scale * rng.normal(size=(2, 12)) + rng.normal(size=12), axis=0)
    ends[:, 0] = ends[0, 0]  # one interval is a point
    slope, offset, error = relaxation(activation(name), *ends)
    for i in range(12):
        touch = np.arctanh(np.sqrt(1 - min(slope[i] / activation(name).slope[1], 1.0)) * (1 - 1e-15))
        touch /= activation(name).width
        points = [*np.linspace(ends[0, i], ends[1, i], 9), *np.clip([touch, -touch], *ends[:, i])]
        for z in points:
            with mpmath.workdps(40):
                gap = abs(exact(name, float(z)) - mpmath.mpf(slope[i]) * mpmath.mpf(float(z)) - mpmath.mpf(offset[i]))
                assert gap <= error[i]
    assert error[0] < 1e-11 * (1 + abs(ends[0, 0]))


def test_a_relaxation_is_no_wider_than_the_best_offset_for_its_slope():
    low, high = RNG.normal(size=200) - 1.0, RNG.normal(size=200) + 2.0
    low, high = np.minimum(low, high), np.maximum(low, high)
    slope, _, error = relaxation(activation("tanh"), low, high)
    z = np.linspace(low, high, 4001)
    rest = np.tanh(z) - slope * z
    spread = 0.5 * (rest.max(axis=0) - rest.min(axis=0))
    assert (error <= spread * (1 + 1e-5) + 1e-9).all()


def network(rng: np.random.Generator, n: int, p: int, name: str, leak: float, mixed: bool) -> DrivenSystem:
    W = rng.normal(size=(n, n)) * 1.3 / np.sqrt(n)
    B = leak * np.eye(n) + (0.1 * leak * rng.normal(size=(n, n)) if mixed else 0.0)
    system = LureSystem((1 - leak) * np.eye(n), B, W, None, activation(name).slope, 1.0)
    return DrivenSystem(system, name, rng.normal(size=(n, p)), rng.normal(size=n), 0.1 * leak * rng.normal(size=(n, p)))


def assert_no_run_leaves(driven, low, high, box, rng, steps: int, held: bool = False) -> None:
    """Runs from corners of a box under inputs at their ends, some of them ``held`` for a while, stay in the tube."""
    tube = InvariantZonotope(driven, low, high, box, window=4)
    x = box * rng.choice([-1.0, 1.0], size=(300, driven.states))
    for k in range(steps):
        for end in (low, high):
            z = driven.channel(x, end[None])
            assert ((z >= tube.low) & (z <= tube.high)).all()
        u = np.where(rng.random((300, len(low))) < 0.5, low, high)
        if held and k % 8 >= 6:
            u[:] = high if k % 16 < 8 else low
        x = driven.advance(x, u)
        tube.step()
        least, most = tube.states()
        assert ((x >= least) & (x <= most)).all()


@pytest.mark.parametrize("seed", range(6))
def test_no_trajectory_leaves_the_tube(seed):
    rng = np.random.default_rng(seed)
    name, leak, mixed = ("tanh", "sigmoid")[seed % 2], (1.0, 0.4)[seed // 2 % 2], seed % 3 == 0
    driven = network(rng, 5, 2, name, leak, mixed)
    low, high = np.array([-0.5, 0.2]), np.array([0.3, 0.2])
    reach = np.abs(driven.system.B).sum(axis=1) + np.abs(driven.F) @ np.maximum(np.abs(low), np.abs(high))
    box = np.nextafter(reach / leak * (1 + 1e-9), np.inf)
    assert_no_run_leaves(driven, low, high, box, rng, 30)


def test_a_box_that_is_left_gives_each_step_bounds_of_its_own():
    """A sign that turns every step: no bound of one step holds at the next, and each holds at its own."""
    rng = np.random.default_rng(3)
    driven = DrivenSystem(LureSystem(np.zeros((2, 2)), np.eye(2), -1.5 * np.eye(2), dt=1.0), "tanh", np.eye(2))
    tube = InvariantZonotope(
        driven, -np.full(2, 0.01), np.full(2, 0.01), np.full(2, 0.9), 9, -np.full(2, 0.7), stays=False
    )
    x = rng.uniform(0.7, 0.9, size=(500, 2))
    for _ in range(6):
        u = rng.uniform(-0.01, 0.01, size=(500, 2))
        z = -1.5 * x + u
        assert ((tube.low <= z) & (z <= tube.high)).all()
        assert (tube.high - tube.low).max() < 0.5
        tube.step()
        x = np.tanh(z)


def test_without_moving_inputs_a_contracting_network_ends_in_a_point():
    rng = np.random.default_rng(1)
    driven = network(rng, 5, 1, "tanh", 1.0, False)
    driven = DrivenSystem(
        LureSystem(driven.system.A, driven.system.B, 0.4 * driven.system.C, None, (0, 1), 1.0),
        "tanh",
        driven.E,
        driven.b,
    )
    tube = InvariantZonotope(driven, np.array([0.3]), np.array([0.3]), np.ones(5), window=10)
    for _ in range(150):
        tube.step()
    assert (tube.high - tube.low).max() < 1e-9
    x = np.zeros(5)
    for _ in range(400):
        x = driven.advance(x, np.array([0.3]))
    z = driven.channel(x, np.array([0.3]))
    assert ((tube.low <= z) & (z <= tube.high)).all()


def test_the_stored_rounding_of_a_discretised_network_is_inside():
    base = LureSystem(-np.eye(3), 0.1 * np.eye(3), np.full((3, 3), 1 / 3), None, (0, 1))
    driven = DrivenSystem(base.discretise("euler", 1 / 3), "tanh", np.ones((3, 1)), np.zeros(3))
    plain = driven.system
    bare = LureSystem(plain.A, plain.B, plain.C, None, (0, 1), 1 / 3)
    wide = InvariantZonotope(driven, np.zeros(1), np.ones(1), np.ones(3), 5)
    narrow = InvariantZonotope(
        DrivenSystem(bare, "tanh", np.ones((3, 1)), np.zeros(3)), np.zeros(1), np.ones(1), np.ones(3), 5
    )
    for _ in range(5):
        wide.step()
        narrow.step()
    assert (wide.low < narrow.low).all()
    assert (wide.high > narrow.high).all()


def escaped(
    plain: InvariantZonotope,
    wide: InvariantZonotope,
    runs: list[tuple[DrivenSystem, np.ndarray]],
    steps: int,
    inputs: Callable[[], np.ndarray],
) -> int:
    """Count runs of networks within a radius that leave the tube of its middle; none leaves that of the radius."""
    count = 0
    for _ in range(steps):
        plain.step()
        wide.step()
        runs = [(one, one.advance(x, inputs())) for one, x in runs]
        states = np.array([x for _, x in runs])
        least, most = wide.states()
        assert ((states >= least) & (states <= most)).all()
        least, most = plain.states()
        count += int(((states < least) | (states > most)).any(axis=1).sum())
    return count


@pytest.mark.parametrize("moved", ["A", "B", "C"])
def test_every_matrix_within_its_radius_is_inside(moved, monkeypatch):
    """Radii far beyond rounding: corners of a matrix' ball leave the tube of its middle, and none that of the ball."""
    rng = np.random.default_rng(3)
    driven = network(rng, 4, 1, "tanh", 0.5, mixed=False)
    middle = {k: getattr(driven.system, k) for k in "ABCD"}
    low, high, start = np.array([-0.3]), np.array([0.4]), 0.3 * np.ones(4)

    def tube(radius: float) -> InvariantZonotope:
        balls = tuple(Ball(v, np.full(v.shape, radius if k == moved else 0.0)) for k, v in middle.items())
        monkeypatch.setattr("stability.kernel.reachability.invariant_zonotope.system_balls", lambda _: balls)
        return InvariantZonotope(driven, low, high, start, window=3)

    plain, wide = tube(0.0), tube(0.3)
    runs = []
    for _ in range(300):
        own = {**middle, moved: middle[moved] + 0.3 * rng.choice([-1.0, 1.0], size=(4, 4))}
        system = LureSystem(own["A"], own["B"], own["C"], None, (0.0, 1.0), 1.0)
        one = DrivenSystem(system, "tanh", driven.E, driven.b, driven.F)
        runs.append((one, start * rng.choice([-1.0, 1.0], size=4)))
    assert escaped(plain, wide, runs, 3, lambda: rng.choice([-0.3, 0.4], size=1)) > 10


def test_what_inputs_reach_through_a_matrix_with_a_radius_is_inside(monkeypatch):
    """``x+ = B u`` where the activation is the identity: ``B`` of [0.7, 1.3] takes it to 1.3, with a middle of one."""
    zero, one = np.zeros((1, 1)), np.ones((1, 1))
    driven = DrivenSystem(LureSystem(zero, one, zero, None, (0.0, 1.0), 1.0), "saturation", one, [0.0])
    balls = Ball.exact(zero), Ball(one, np.full((1, 1), 0.3)), Ball.exact(zero), Ball.exact(zero)
    monkeypatch.setattr("stability.kernel.reachability.invariant_zonotope.system_balls", lambda _: balls)
    tube = InvariantZonotope(driven, -np.ones(1), np.ones(1), 2.0 * np.ones(1), window=3)
    tube.step()
    assert 1.3 <= tube.states()[1][0] < 1.3 + 1e-9


def feeding(rng: np.random.Generator, name: str = "tanh", n: int = 4, size: float = 0.6) -> DrivenSystem:
    """Channels that feed later ones, a leak and inputs into the state."""
    W, D = rng.normal(size=(n, n)) / np.sqrt(n), size * np.tril(rng.normal(size=(n, n)), -1)
    system = LureSystem(0.4 * np.eye(n), 0.4 * np.eye(n), W, D, activation(name).slope, 1.0)
    return DrivenSystem(system, name, rng.normal(size=(n, 1)), rng.normal(size=n), 0.1 * rng.normal(size=(n, 1)))


def midpoint(rng: np.random.Generator, name: str = "tanh", n: int = 4) -> DrivenSystem:
    """Return the midpoint of an antisymmetric part and one without a sign."""
    M, W = rng.normal(size=(2, n, n)) / np.sqrt(n)
    system = LureSystem(-np.eye(n) + 0.3 * (M - M.T), np.eye(n), 1.5 * W, slope=activation(name).slope)
    step = system.midpoint(0.6)
    E = np.tile(rng.normal(size=(n, 1)), (step.channels // n, 1))
    b = np.tile(rng.normal(size=n), step.channels // n)
    return DrivenSystem(step, name, E, b, np.zeros((n, 1)))


def box_of(driven: DrivenSystem) -> np.ndarray:
    """Half widths of a box that no step leaves."""
    A, B = np.abs(driven.system.A), np.abs(driven.system.B)
    added = B.sum(axis=1) + 0.5 * np.abs(driven.F).sum(axis=1) + 1e-6
    return np.linalg.solve(np.eye(len(A)) - A, added) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "saturation"])
@pytest.mark.parametrize("make", [feeding, midpoint])
@pytest.mark.parametrize("seed", range(2))
def test_no_trajectory_leaves_the_tube_of_channels_that_feed_one_another(seed, make, name):
    rng = np.random.default_rng(seed)
    driven = make(rng, name)
    assert_no_run_leaves(driven, np.array([-0.5]), np.array([0.3]), box_of(driven), rng, 40, held=True)


@pytest.mark.slow
def test_channels_that_are_solved_for_leave_narrow_sets():
    """An interval of what they feed leaves these sets 2.7 to 150 times as wide as runs."""
    shares = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        driven = midpoint(rng)
        tube = InvariantZonotope(driven, np.array([-0.1]), np.array([0.1]), box_of(driven), window=20)
        x, runs = rng.normal(size=(200, driven.states)), []
        for k in range(250):
            tube.step()
            x = driven.advance(x, rng.choice([-0.1, 0.1], size=(200, 1)))
            runs.append(x if k > 150 else x[:0])
        seen = np.concatenate(runs)
        least, most = tube.states()
        shares.append(float((most - least).sum() / (seen.max(axis=0) - seen.min(axis=0)).sum()))
    assert min(shares) >= 1.0
    assert max(shares) < 3.0


def test_an_inverse_that_is_none_leaves_the_sets_true(monkeypatch):
    """``R`` may be anything: what it misses is bounded."""
    inverse = np.linalg.inv
    rng = np.random.default_rng(5)
    spoilt = {
        "near": lambda M: inverse(M) + 0.05 * np.random.default_rng(1).normal(size=M.shape),
        "none": lambda M: np.full_like(M, np.nan),
        "identity": lambda M: np.eye(len(M)),
    }
    for wrong in spoilt.values():
        monkeypatch.setattr(np.linalg, "inv", wrong)
        driven = feeding(rng)
        assert_no_run_leaves(driven, np.array([-0.5]), np.array([0.3]), box_of(driven), rng, 25)


@pytest.mark.parametrize("moved", ["B", "D"])
def test_every_matrix_within_its_radius_is_inside_where_channels_feed_one_another(moved, monkeypatch):
    rng, radius = np.random.default_rng(8), 0.05
    driven = feeding(rng, size=0.4)
    middle = {k: getattr(driven.system, k) for k in "ABCD"}
    low, high = np.array([-0.05]), np.array([0.05])
    mask = np.tril(np.ones((4, 4)), -1) if moved == "D" else np.ones((4, 4))
    A, B = (np.abs(middle[k]) + radius for k in "AB")
    box = np.linalg.solve(np.eye(4) - A, B.sum(axis=1) + np.abs(driven.F).sum(axis=1))  # of all within the radius

    def tube(size: float) -> InvariantZonotope:
        balls = tuple(Ball(v, size * mask if k == moved else np.zeros(v.shape)) for k, v in middle.items())
        monkeypatch.setattr("stability.kernel.reachability.invariant_zonotope.system_balls", lambda _: balls)
        return InvariantZonotope(driven, low, high, box, window=10)

    plain, wide, runs = tube(0.0), tube(radius), []
    for _ in range(200):
        own = {**middle, moved: middle[moved] + radius * mask * rng.choice([-1.0, 1.0], size=(4, 4))}
        system = LureSystem(own["A"], own["B"], own["C"], own["D"], (0.0, 1.0), 1.0)
        runs.append((DrivenSystem(system, "tanh", driven.E, driven.b, driven.F), box * rng.choice([-1.0, 1.0], 4)))
    assert escaped(plain, wide, runs, 60, lambda: rng.choice([-0.05, 0.05], size=1)) > 10
