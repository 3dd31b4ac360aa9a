"""Each operation on intervals encloses, and is wider than it must be by its documented rounding and no more."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.arithmetic.activations import TANH_ULPS
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.arithmetic.intervals import Interval, affine, hull, sigmoid, tanh, upper_product

E = Fraction(EPS)
SLACK = TANH_ULPS * EPS


def numbers(rng, shape) -> np.ndarray:
    return rng.normal(size=shape) * 10.0 ** rng.integers(-8, 9, size=shape)


def drawn(rng, shape) -> Interval:
    """Intervals of every kind: below, above and across zero, points, ends of very different size."""
    a, b = numbers(rng, shape), numbers(rng, shape)
    return Interval(np.minimum(a, b), np.where(rng.random(shape) < 0.2, np.minimum(a, b), np.maximum(a, b)))


def test_sums_and_differences_are_one_float_wider_than_rounded(rng):
    x, y = drawn(rng, 500), drawn(rng, 500)
    for out, low, high in (
        (x + y, x.low + y.low, x.high + y.high),
        (x - y, x.low - y.high, x.high - y.low),
    ):
        assert (out.low == np.nextafter(low, -np.inf)).all()
        assert (out.high == np.nextafter(high, np.inf)).all()
    assert (-x).low.tolist() == (-x.high).tolist()
    assert (-x).high.tolist() == (-x.low).tolist()


def test_products_and_squares_are_one_float_wider_than_rounded(exact, rng):
    x, y = drawn(rng, 800), drawn(rng, 800)
    ends = [exact.of(s) * exact.of(t) for s in (x.low, x.high) for t in (y.low, y.high)]
    low, high = np.min(ends, axis=0), np.max(ends, axis=0)
    out = x * y
    assert (exact.of(out.low) <= low).all()
    assert (exact.of(out.high) >= high).all()
    assert (exact.of(out.low) >= low - 2 * E * np.abs(low)).all()
    assert (exact.of(out.high) <= high + 2 * E * np.abs(high)).all()
    own = [exact.of(s) * exact.of(s) for s in (x.low, x.high)]
    across = (x.low <= 0) & (x.high >= 0)
    least, most = np.where(across, Fraction(0), np.min(own, axis=0)), np.max(own, axis=0)
    square = x.square()
    assert (exact.of(square.low) <= least).all()
    assert (exact.of(square.low) >= least * (1 - 2 * E)).all()
    assert (exact.of(square.high) >= most).all()
    assert (exact.of(square.high) <= most * (1 + 2 * E)).all()


def test_magnitude_and_mignitude():
    x = Interval(np.array([-3.0, -3.0, 1.0, 0.0, -2.0]), np.array([-1.0, 2.0, 4.0, 5.0, 0.0]))
    assert x.magnitude.tolist() == [3.0, 3.0, 4.0, 5.0, 2.0]
    assert x.mignitude.tolist() == [1.0, 0.0, 1.0, 0.0, 0.0]


def test_what_an_interval_contains():
    x = Interval(np.array([0.0, -1.0]), np.array([1.0, 1.0]))
    assert x.contains(x)
    for low, high, inside in (
        ([0.0, -1.0], [1.0, 1.0], True),
        ([np.nextafter(0.0, -1), -1.0], [1.0, 1.0], False),
        ([0.0, -1.0], [1.0, np.nextafter(1.0, 2)], False),
        ([0.5, 0.0], [0.5, 0.0], True),
        ([2.0, 0.0], [2.0, 0.0], False),
        ([-1.0, 0.0], [-1.0, 0.0], False),
    ):
        assert x.contains(Interval(np.array(low), np.array(high))) is inside, (low, high)
    whole = hull(x, Interval(np.array([-5.0, 0.0]), np.array([0.5, 9.0])))
    assert (whole.low.tolist(), whole.high.tolist()) == ([-5.0, -1.0], [1.0, 9.0])
    assert Interval.point(2).low == Interval.point(2).high == 2.0


def test_bad_ends_are_refused():
    with pytest.raises(DimensionError):
        Interval(np.zeros(2), np.zeros(3))
    for low, high in ((1.0, 0.0), (np.nan, 1.0), (0.0, np.nan)):
        with pytest.raises(ConfigurationError):
            Interval(np.array([0.0, low]), np.array([0.0, high]))


@pytest.mark.parametrize("function", ["tanh", "sigmoid"])
def test_images_of_points_have_the_documented_width(function, rng):
    """tanh: sixteen units of its own size; sigmoid: sixteen of one. Both clipped to their range."""
    x = np.concatenate([rng.normal(size=200), 10.0 ** rng.uniform(-12, 1, 100), [0.0, -0.0, 3e-320, -30.0, 30.0]])
    out = tanh(Interval.point(x)) if function == "tanh" else sigmoid(Interval.point(x))
    value = np.tanh(x) if function == "tanh" else 0.5 * (1 + np.tanh(0.5 * x))
    slack = SLACK * (np.abs(value) if function == "tanh" else 1.0)
    floor = -1.0 if function == "tanh" else 0.0
    low, high = np.maximum(value - slack, floor), np.minimum(value + slack, 1.0)
    spare = 3 * np.spacing(np.maximum(np.abs(value), slack)) + 1e-323
    assert (out.low <= low).all()
    assert (out.low >= np.maximum(low - spare, floor)).all()
    assert (out.high >= high).all()
    assert (out.high <= np.minimum(high + spare, 1.0)).all()
    with flint.ctx.workprec(200):
        for point, a, b in zip(x, out.low, out.high):
            true = flint.arb(float(point)).tanh() if function == "tanh" else 1 / (1 + (-flint.arb(float(point))).exp())
            assert flint.arb(float(a)) <= true <= flint.arb(float(b)) or point == 0.0


@pytest.mark.parametrize("function", [tanh, sigmoid])
def test_images_of_intervals_are_those_of_their_ends(function, rng):
    x = drawn(rng, 200)
    out = function(x)
    assert (out.low == function(Interval.point(x.low)).low).all()
    assert (out.high == function(Interval.point(x.high)).high).all()
    ends = function(Interval(np.array([-np.inf]), np.array([np.inf])))
    assert ends.high[0] == 1.0
    assert ends.low[0] == (-1.0 if function is tanh else 0.0)


@pytest.mark.parametrize("length", [1, 4, 60])
@pytest.mark.parametrize("columns", [None, 3])
def test_upper_products(length, columns, exact, rng):
    a = np.abs(numbers(rng, (5, length)))
    b = np.abs(numbers(rng, (length,) if columns is None else (length, columns)))
    out, true = exact.of(upper_product(a, b)), exact.of(a) @ exact.of(b)
    terms = length + 4
    assert (out >= true * (1 + (2 * terms - length) * E)).all()  # more than every order of summation needs
    assert (out <= true * (1 + (2 * terms + length + 4) * E) + 2 * terms * Fraction(TINY)).all()
    zero = upper_product(np.zeros((1, length)), np.zeros(length))[0]
    assert terms * TINY <= zero <= terms * TINY * (1 + 1e-12) + 1e-323


@pytest.mark.parametrize("length", [1, 4, 60])
@pytest.mark.parametrize("shifted", [False, True])
def test_affine_maps(length, shifted, exact, rng):
    matrix, x = numbers(rng, (6, length)), drawn(rng, length)
    offset = drawn(rng, 6) if shifted else None
    out = affine(matrix, x, offset)
    m, low, high = exact.of(matrix), exact.of(x.low), exact.of(x.high)
    least = np.sum(np.where(matrix >= 0, m * low, m * high), axis=1)
    most = np.sum(np.where(matrix >= 0, m * high, m * low), axis=1)
    size = np.abs(m) @ exact.of(x.magnitude)
    own = 2 * (2 * length + 8) * E * size
    if offset is not None:
        least, most = least + exact.of(offset.low), most + exact.of(offset.high)
    spare = own * Fraction(1, 4) + 6 * E * (size + np.abs(least) + np.abs(most)) + 9 * length * Fraction(TINY)
    rounding = length * E * size  # of the products themselves
    assert (exact.of(out.low) <= least - own + rounding).all()
    assert (exact.of(out.low) >= least - own - rounding - spare).all()
    assert (exact.of(out.high) >= most + own - rounding).all()
    assert (exact.of(out.high) <= most + own + rounding + spare).all()


def test_an_affine_map_that_overflows_is_everything():
    out = affine(np.array([[1e300, -1e300], [1.0, 0.0]]), Interval(np.full(2, -1e300), np.full(2, 1e300)))
    assert (out.low[0], out.high[0]) == (-np.inf, np.inf)
    assert np.isfinite([out.low[1], out.high[1]]).all()
