"""Bounds over a region of networks that are affine there, so that rationals know them exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stability.kernel.arithmetic.activation_bounds import slope_range
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.reachability import ellipsoid_region as region_module
from stability.kernel.reachability.ellipsoid_region import _inner, _lengths, _square_root, region_bounds, through_loop
from stability.systems import DrivenSystem, LureSystem

E = Fraction(EPS)


def numbers(rng, shape) -> np.ndarray:
    return rng.normal(size=shape) * 10.0 ** rng.integers(-8, 9, size=shape)


def solve(matrix, right):
    """``X`` with ``matrix X = right`` in rationals, by elimination with a non-zero pivot."""
    work = [[*map(Fraction, row), *map(Fraction, other)] for row, other in zip(matrix, right)]
    n = len(work)
    for k in range(n):
        pivot = next(i for i in range(k, n) if work[i][k])
        work[k], work[pivot] = work[pivot], work[k]
        work[k] = [x / work[k][k] for x in work[k]]
        for i in range(n):
            if i != k:
                work[i] = [x - work[i][k] * y for x, y in zip(work[i], work[k])]
    return np.array([row[n:] for row in work], dtype=object)


def test_roots_inner_products_and_lengths_are_above_and_near(exact, rng):
    x, y = numbers(rng, (50, 7)), numbers(rng, (50, 7))
    for scale in (0.0, 1.0):
        rx, ry = scale * np.abs(numbers(rng, (50, 7))), scale * np.abs(numbers(rng, (50, 7)))
        found, length = exact.of(_inner(Ball(x, rx), Ball(y, ry))), exact.of(_lengths(Ball(x, rx)))
        fx, fy, frx, fry = map(exact.of, (x, y, rx, ry))
        most = abs((fx * fy).sum(axis=1)) + (abs(fx) * fry + frx * abs(fy) + frx * fry).sum(axis=1)
        assert (found >= most).all()
        assert (found <= most + 100 * E * ((abs(fx) + frx) * (abs(fy) + fry)).sum(axis=1)).all()
        squares = ((abs(fx) + frx) ** 2).sum(axis=1)
        assert (length**2 >= squares).all()
        assert (length**2 <= squares * (1 + 100 * E)).all()
    root = exact.of(_square_root(np.abs(x)))
    assert (root**2 > abs(exact.of(x))).all()
    assert (root**2 < abs(exact.of(x)) * (1 + 5 * E)).all()


@pytest.mark.parametrize("kind", ["none", "chain", "loop", "steep loop"])
def test_what_goes_through_a_loop(kind, exact, rng):
    gain = np.abs(rng.normal(size=(3, 3)))
    gain = {
        "none": 0.0 * gain,
        "chain": np.tril(gain, -1),
        "loop": 0.3 * gain / gain.sum(axis=1)[:, None],
        "steep loop": 0.9 * gain / gain.sum(axis=1)[:, None],
    }[kind]
    free = np.abs(rng.normal(size=(3, 2)))
    found = exact.of(through_loop(gain, free))
    true = solve(exact.of(np.eye(3)) - exact.of(gain), exact.of(free))
    assert (found >= true).all()
    assert (found <= true * (1 + Fraction(1, 10**10))).all()
    assert (found >= exact.of(free) + exact.of(gain) @ found).all()


def test_a_loop_that_grows_has_no_bound():
    free = np.ones((2, 1))
    for gain in (1.0, 1.0 + 1e-9, 3.0, 1e200):
        with np.errstate(all="ignore"):
            assert through_loop(gain * np.eye(2), free) is None
            assert through_loop(np.diag([0.5, gain]), free) is None


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "identity"])
def test_slopes_beside_and_at_a_kink(name):
    centre, reach = np.array([2.0, -2.0, 2.0, -2.0, 0.0]), np.array([1.0, 1.0, 3.0, 3.0, 0.0])
    low, high = slope_range(name, centre, reach)
    bottom = {"relu": 0.0, "leaky_relu": 0.1, "identity": 1.0}[name]
    assert low.tolist() == pytest.approx([1.0, bottom, bottom, bottom, bottom], abs=1e-15)
    assert high.tolist() == pytest.approx([1.0, bottom, 1.0, 1.0, 1.0], abs=1e-15)
    assert (low >= bottom).all()
    assert (high <= 1.0).all()


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_the_range_of_slopes_grows_with_the_reach(name, rng):
    """Across zero the steepest slope is that at zero; the flattest is that at the far end, on either side."""
    most = 1.0 if name == "tanh" else 0.25
    low, high = slope_range(name, np.array([0.5, -0.5]), np.array([0.75, 0.75]))
    assert (high == most).all()
    assert low[0] == low[1]
    assert low[0] == pytest.approx(slope_range(name, np.array([1.25]), np.zeros(1))[0][0], abs=1e-15)
    assert slope_range(name, np.array([1.0]), np.array([1.0]))[1][0] == most


def case(rng, discrete: bool, channels: int, positive: bool, still: bool):
    n, p = 3, 2
    draw = (lambda *shape: np.abs(rng.normal(size=shape))) if positive else (lambda *shape: rng.normal(size=shape))
    D = np.tril(draw(channels, channels), -1) * 0.5
    system = LureSystem(draw(n, n), draw(n, channels), draw(channels, n), D, dt=1.0 if discrete else None)
    if still:  # the centre is an equilibrium: everything cancels
        system = LureSystem(np.eye(n) * discrete, draw(n, channels), draw(channels, n), D, dt=system.dt)
    b = np.zeros(channels) if still else draw(channels)
    driven = DrivenSystem(system, "identity", draw(channels, p), b, F=draw(n, p))
    half = rng.normal(size=(n, n))
    centre, inputs = (np.zeros(n), np.zeros(p)) if still else (draw(n), draw(p))
    return driven, 0.5 * (half @ half.T + (half @ half.T).T) + np.eye(n), centre, inputs


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize(
    ("channels", "positive", "still"), [(1, True, False), (2, False, False), (2, True, False), (2, True, True)]
)
def test_the_bounds_of_affine_networks(discrete, channels, positive, still, exact, rng):
    driven, P, centre, inputs = case(rng, discrete, channels, positive, still)
    level, bound = 0.7, 0.3
    region = region_bounds(driven, P, 0.9, level, centre, inputs, bound)
    a, b, c, d = exact.discretised(driven.system)
    f, e, x, u = exact.of(driven.F), exact.of(driven.E), exact.of(centre), exact.of(inputs)
    loop = exact.of(np.eye(channels)) - d
    z = solve(loop, (c @ x + e @ u + exact.of(driven.b))[:, None])[:, 0]
    by_x, by_u = solve(loop, c), solve(loop, e)
    square = Fraction(level) * np.diagonal(by_x @ solve(exact.of(P), by_x.T))
    off = abs(z - exact.of(region.centre)) + abs(by_u).sum(axis=1) * Fraction(bound)
    swing = exact.of(region.reach) - off
    assert (swing >= 0).all()
    assert (swing**2 >= square).all()
    right = a @ x + b @ z + f @ u - (x if discrete else 0 * x)
    drift = abs(right) + abs(b @ by_u + f).sum(axis=1) * Fraction(bound)
    assert (exact.of(region.drift) >= drift).all()
    assert (region.low == 1.0).all()
    assert (region.high == 1.0).all()
    if positive:
        assert (exact.of(region.drift) <= drift * (1 + Fraction(1, 10**10)) + 100 * E * abs(b @ z).sum()).all()
    if channels == 1:
        assert (swing**2 <= square * (1 + Fraction(1, 10**10))).all()


def test_the_error_of_the_inverse_counts(exact, monkeypatch):
    """A metric of condition 1e14: the bound stays above the true one, which rationals know."""
    P = np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-46]])
    c = np.array([[1.0, -3.0]])
    driven = DrivenSystem(LureSystem(-np.eye(2), np.ones((2, 1)), c), "identity", [[0.0]])
    region = region_bounds(driven, P, 2.0**-48, 1.0, np.zeros(2), np.zeros(1), 0.0)
    true = (exact.of(c) @ solve(exact.of(P), exact.of(c).T))[0, 0]
    assert true <= Fraction(region.reach[0]) ** 2
    smaller = region_bounds(driven, P, 2.0**-47, 1.0, np.zeros(2), np.zeros(1), 0.0)
    assert smaller.reach[0] <= region.reach[0]
    monkeypatch.setattr(region_module, "inverse_or_none", lambda m: 0.99 * np.linalg.inv(m))  # off by a percent
    region = region_bounds(driven, np.diag([1.0, 4.0]), 1.0, 1.0, np.zeros(2), np.zeros(1), 0.0)
    true = Fraction(1) + Fraction(9, 4)
    assert true <= Fraction(region.reach[0]) ** 2 <= true * Fraction(11, 10)


def test_where_there_are_no_bounds():
    driven = DrivenSystem(LureSystem(-np.eye(1), [[1.0]], [[1.0]]), "identity", [[0.0]])
    zero, one = np.zeros(1), np.eye(1)
    assert region_bounds(driven, one, 1.0, 1.0, zero, zero, 0.0) is not None
    assert region_bounds(driven, 0 * one, 1.0, 1.0, zero, zero, 0.0) is None
    assert region_bounds(driven, 5e-324 * one, 1.0, 1.0, zero, zero, 0.0) is None
    with np.errstate(all="ignore"):
        assert region_bounds(driven, one, 1.0, 1.0, np.array([np.inf]), zero, 0.0) is None
    loop = DrivenSystem(LureSystem(-np.eye(1), [[1.0]], [[1.0]], [[0.99]]), "tanh", [[0.0]])
    assert region_bounds(loop, one, 1.0, 1.0, zero, zero, 0.0) is None
