"""Linear bounds traced back through a driven network: no trajectory leaves them, zonotopes are wider."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from stability.kernel.arithmetic.activation_lines import Lines
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.reachability.backward_bounds import BackwardBounds, Schedule
from stability.kernel.reachability.invariant_zonotope import InvariantZonotope
from stability.systems import DrivenSystem, LureSystem

LOW, HIGH = np.array([-0.5, 0.2]), np.array([0.3, 0.2])
WIDE = np.outer([2.0, -2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0])
CELLS = Schedule(3, 4, 1, 2, 2)


def network(rng: np.random.Generator, n: int, name: str, leak: float, mixed: bool) -> DrivenSystem:
    W = rng.normal(size=(n, n)) * 1.3 / np.sqrt(n)
    B = leak * np.eye(n) + (0.1 * leak * rng.normal(size=(n, n)) if mixed else 0.0)
    system = LureSystem((1 - leak) * np.eye(n), B, W, None, activation(name).slope, 1.0)
    return DrivenSystem(system, name, rng.normal(size=(n, 2)), rng.normal(size=n), 0.1 * leak * rng.normal(size=(n, 2)))


def from_a_box(driven: DrivenSystem, leak: float) -> tuple[BackwardBounds, np.ndarray, InvariantZonotope]:
    """Bounds that begin with a box that no step leaves, its half widths, and zonotopes that begin there."""
    reach = np.abs(driven.system.B).sum(axis=1) + np.abs(driven.F) @ np.maximum(np.abs(LOW), np.abs(HIGH))
    box = np.nextafter(reach / leak * (1 + 1e-9), np.inf)
    tube = InvariantZonotope(driven, LOW, HIGH, box, window=20)
    return BackwardBounds(driven, LOW, HIGH, (tube.low, tube.high), tube.states()), box, tube


def ascending(driven: DrivenSystem, x: np.ndarray, row: np.ndarray, steps: int) -> np.ndarray:
    """Starts whose runs end far in one direction: each input the one after which ``row @ z`` is larger."""
    for _ in range(steps):
        tried = [driven.advance(x, np.array([[u, 0.2]])) for u in (LOW[0], HIGH[0])]
        better = (driven.channel(tried[1], HIGH) - driven.channel(tried[0], HIGH)) @ row > 0
        x = np.where(better[:, None], tried[1], tried[0])
    return x


@pytest.mark.parametrize("seed", range(12))
def test_no_trajectory_leaves_the_bounds(seed):
    rng = np.random.default_rng(seed)
    name, leak, mixed = ("tanh", "sigmoid")[seed % 2], (1.0, 0.4)[seed // 2 % 2], seed % 3 == 0
    driven = network(rng, 4, name, leak, mixed)
    bounds, box, _ = from_a_box(driven, leak)
    before = bounds.high - bounds.low
    for schedule in (Schedule(3, 4, 2), CELLS):
        bounds.follow(schedule)
    assert bounds.steps == 30
    assert (bounds.high - bounds.low < before).all()
    x = box * rng.choice([-1.0, 1.0], size=(300, 4))
    for row in (*np.eye(4), *-np.eye(4)):
        y = ascending(driven, x, row, bounds.steps)
        for u in (LOW, HIGH):
            z = driven.channel(y, u)
            assert ((z >= bounds.low) & (z <= bounds.high)).all()


def test_bounds_touch_what_one_step_reaches():
    """One unit that forgets its state: after a step the bounds are those of the input, to rounding."""
    driven = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[1e-9]], dt=1.0), "tanh", [[1.0, 0.0]], [0.5])
    bounds, _, _ = from_a_box(driven, 1.0)
    bounds.follow(Schedule(1, 1, 1))
    assert bounds.low[0] == pytest.approx(0.0, abs=1e-8)
    assert bounds.high[0] == pytest.approx(0.8, abs=1e-8)


def test_free_lines_and_cells_each_narrow_what_zonotopes_leave_wide():
    driven = DrivenSystem(network(np.random.default_rng(0), 8, "tanh", 1.0, False).system, "tanh", WIDE, np.ones(8))
    bounds, _, tube = from_a_box(driven, 1.0)
    for _ in range(40):
        tube.step()
    widths = [float(np.mean(tube.high - tube.low))]
    for schedule in (Schedule(15, 4, 0), Schedule(15, 4, 3), Schedule(8, 4, 1, 2, 2)):
        bounds.follow(schedule)
        widths.append(float(np.mean(bounds.high - bounds.low)))
    assert widths[1] < 0.9 * widths[0]
    assert widths[2] < 0.9 * widths[1]
    assert widths[3] < 0.95 * widths[2]


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
@pytest.mark.parametrize("scale", [1e-12, 0.3, 3.0, 1e3])
def test_lines_hold_the_activation_in_forty_digits(name, scale):
    rng = np.random.default_rng(int(10 * scale))
    low, high = np.sort(scale * rng.normal(size=(2, 6)) + rng.normal(size=6), axis=0)
    low[0] = high[0]
    lines = Lines.over(activation(name), low[None, None], high[None, None])
    up = np.array([[[True], [False]]])
    for points in (lines.start(up), scale * rng.normal(size=(1, 2, 6))):
        slope, offset = (v[0] for v in lines.at(points, up))
        for i in range(6):
            for z in np.linspace(low[i], high[i], 25):
                with mpmath.workdps(40):
                    s = mpmath.mpf(float(z))
                    value = mpmath.tanh(s) if name == "tanh" else 1 / (1 + mpmath.exp(-s))
                    assert mpmath.mpf(slope[0, i]) * s + mpmath.mpf(offset[0, i]) >= value
                    assert mpmath.mpf(slope[1, i]) * s + mpmath.mpf(offset[1, i]) <= value


@pytest.mark.parametrize("moved", ["A", "B", "C"])
def test_every_matrix_within_its_radius_is_inside(moved, monkeypatch):
    """Radii far beyond rounding: matrices of a ball leave the bounds of its middle, and none those of the ball."""
    rng = np.random.default_rng(3)
    driven = network(rng, 4, "tanh", 0.5, mixed=False)
    middle = {k: getattr(driven.system, k) for k in "ABCD"}
    start = 5.0 * np.ones(4)

    def bounds(radius: float) -> BackwardBounds:
        balls = tuple(Ball(v, np.full(v.shape, radius if k == moved else 0.0)) for k, v in middle.items())
        monkeypatch.setattr("stability.kernel.reachability.backward_bounds.system_balls", lambda _: balls)
        wide = 50.0 * np.ones(4)
        found = BackwardBounds(driven, LOW, HIGH, (-wide, wide), (-start, start))
        found.follow(Schedule(1, 2, 1))
        return found

    plain, wide = bounds(0.0), bounds(0.1)
    escaped = 0
    for _ in range(300):
        own = {**middle, moved: middle[moved] + 0.1 * rng.choice([-1.0, 1.0], size=(4, 4))}
        system = LureSystem(own["A"], own["B"], own["C"], None, (0.0, 1.0), 1.0)
        one, x = (
            DrivenSystem(system, "tanh", driven.E, driven.b, driven.F),
            start * rng.choice([-1.0, 1.0], size=(60, 4)),
        )
        for _ in range(2):
            x = one.advance(x, np.array([rng.choice([-0.5, 0.3]), 0.2]))
        z = one.channel(x, HIGH)
        assert ((z >= wide.low) & (z <= wide.high)).all()
        escaped += int(((z < plain.low) | (z > plain.high)).any())
    assert escaped > 10
