"""Sums that are weighed by constants, and derivatives of what is made of linear functions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from gated_specimens import drawn

from stability.gated.cell import GatedCell
from stability.local.chains import Weights, outer, products, squared, whole
from stability.local.jets import curves, images
from stability.local.togo import gated_moves
from stability.rigor.intervals import Interval

Array = np.ndarray


def ranges(rng: np.random.Generator, shape: tuple[int, ...], size: float) -> Interval:
    middle, half = rng.normal(size=shape), size * rng.uniform(size=shape)
    return Interval(middle - half, middle + half)


def inside(x: Interval, rng: np.random.Generator) -> Array:
    """Ends, as a rule, and numbers between them."""
    part = rng.choice([0.0, 1.0, rng.uniform()], x.low.shape)
    return np.clip(x.low + part * (x.high - x.low), x.low, x.high)


@pytest.mark.parametrize("size", [0.0, 1e-12, 1.0])
@pytest.mark.parametrize("unsure", [0.0, 1e-9, 0.5])
def test_sums_are_in_their_ranges_to_the_last_digit(size, unsure):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        constants, x = ranges(rng, (5, 3), unsure), ranges(rng, (5, 20), size)
        found = Weights(constants)(x)
        for _ in range(5):
            C, own = inside(constants, rng), inside(x, rng)
            for j in range(3):
                for n in range(20):
                    exact = sum(Fraction(float(own[k, n])) * Fraction(float(C[k, j])) for k in range(5))
                    assert Fraction(float(found.low[j, n])) <= exact <= Fraction(float(found.high[j, n]))


def test_sums_are_as_narrow_as_their_terms():
    rng = np.random.default_rng(0)
    C, x = rng.normal(size=(5, 3)), ranges(rng, (5, 20), 1.0)
    found = Weights(Interval.point(C))(x)
    ends = [x.low[:, None] * C[..., None], x.high[:, None] * C[..., None]]
    assert abs(found.low - np.minimum(*ends).sum(axis=0)).max() < 1e-13
    assert abs(found.high - np.maximum(*ends).sum(axis=0)).max() < 1e-13


def test_triangles_are_those_of_products_and_squares():
    rng = np.random.default_rng(0)
    a, b = ranges(rng, (4,), 0.1), ranges(rng, (4,), 0.1)
    x, full = ranges(rng, (4, 50), 2.0), whole(4)
    square, both, own, pairs = squared(x), outer(a, b), outer(a, a), products(x, [0, 1], [2, 2])
    assert (square.low[np.diag(full)] >= 0.0).all()
    for _ in range(20):
        u, v, y = inside(a, rng), inside(b, rng), inside(x, rng)
        for found, true in (
            (square, y[:, None] * y), (both, np.outer(u, v) + np.outer(v, u)), (own, np.outer(u, u)),
        ):  # fmt: skip
            assert (found.low[full] <= true + 1e-14).all()
            assert (true <= found.high[full] + 1e-14).all()
        assert (pairs.low <= y[:2] * y[2] + 1e-14).all()
        assert (y[:2] * y[2] <= pairs.high + 1e-14).all()


@pytest.mark.parametrize("size", [0.0, 1e-6, 1e-2, 1.0, 5.0])
def test_activations_and_their_derivatives_are_in_their_ranges_which_are_narrow(size):
    rng = np.random.default_rng(0)
    middle = np.concatenate([rng.uniform(-1.0, 1.0, (2, 300)), rng.uniform(-9.0, 9.0, (2, 300))], axis=1)
    z = Interval(middle - size * rng.uniform(size=middle.shape), middle + size * rng.uniform(size=middle.shape))
    at = curves(1, z)
    some = images(1, z)
    assert np.array_equal(some.low, at.value.low)
    assert np.array_equal(some.high, at.value.high)
    grid = z.low + np.linspace(0.0, 1.0, 2001)[:, None, None] * (z.high - z.low)
    s, t = 1.0 / (1.0 + np.exp(-grid[:, 0])), np.tanh(grid[:, 1])
    value = np.stack([s, t], axis=1)
    first = np.stack([s * (1.0 - s), 1.0 - t * t], axis=1)
    second = np.stack([first[:, 0] * (1.0 - 2.0 * s), -2.0 * t * first[:, 1]], axis=1)
    for found, true in ((at.value, value), (at.first, first), (at.second, second)):
        assert (found.low <= true.min(axis=0) + 1e-15).all()
        assert (true.max(axis=0) <= found.high + 1e-15).all()
        assert (found.low >= true.min(axis=0) - 1e-13 - 1e-4 * size * size).all()
        assert (found.high <= true.max(axis=0) + 1e-13 + 1e-4 * size * size).all()


def cell_step(cell: GatedCell, x: Array, y: Array) -> Array:
    """The next states, boxes along the last axis."""
    return cell.advance(y[: cell.states].T, x + y[cell.states :].T).T


def differences(of: Callable[[Array], Array], y: Array, near: float) -> Array:
    """Of a function by all entries of ``y``, on an axis before the last."""
    ways = near * np.eye(len(y))[:, :, None]
    return np.stack([(of(y + way) - of(y - way)) / (2.0 * near) for way in ways], axis=-2)


@pytest.mark.parametrize("size", [1e-7, 1e-2, 0.5])
@pytest.mark.parametrize("features", [1, 2])
@pytest.mark.parametrize(("kind", "more"), [("gru", {}), ("gru", {"reset_after": False}), ("lstm", {})])
def test_derivatives_are_those_of_the_step(kind, more, features, size):
    """Slopes and Hessians at states and moves of boxes, by differences of the network's own step and slopes."""
    for seed in range(4):
        net, x = drawn(kind, 1, seed, features, **more)
        (step,), cell = gated_moves(net, x, 1.0), net.recurrent
        assert isinstance(cell, GatedCell)
        rng, n = np.random.default_rng(seed), cell.states
        middle = rng.uniform(-1.5, 1.5, (n + features, 60))
        at = Interval(middle - size, middle + size)
        values, found = step.unit.derivatives(at, 40)
        full = whole(n + features)

        y = middle + size * rng.uniform(-1.0, 1.0, middle.shape)
        led = partial(cell_step, cell, x)
        assert (values.low - 1e-14 <= led(y)).all()
        assert (led(y) <= values.high + 1e-14).all()
        slope, bend = differences(led, y, 1e-5), differences(partial(differences, led, near=1e-4), y, 1e-3)
        for k, own in enumerate(found):
            assert own.bend.low.shape[1] == 40
            wide = own.slope.high - own.slope.low
            assert (own.slope.low - 1e-8 <= slope[k]).all()
            assert (slope[k] <= own.slope.high + 1e-8).all()
            assert wide.max() < 50.0 * size + 1e-11
            low, high = own.bend.low[full], own.bend.high[full]
            assert (low - 1e-4 <= bend[k][..., :40]).all()
            assert (bend[k][..., :40] <= high + 1e-4).all()
            assert (high - low).max() < 200.0 * size + 1e-10
