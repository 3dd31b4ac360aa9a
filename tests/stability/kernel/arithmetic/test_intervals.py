"""Interval arithmetic contains the exact result: rational arithmetic and 200-bit balls as judges."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stability.kernel.arithmetic.intervals import Interval, affine, sigmoid, tanh, upper_product


@pytest.mark.parametrize("size", [1, 7, 60])
def test_dot_products_contain_the_exact_ones(size, rng):
    matrix = rng.normal(size=(3, size)) * 10.0 ** rng.integers(-8, 8, size=(3, size))
    low = rng.normal(size=size)
    x = Interval(low, low + rng.random(size))
    out = affine(matrix, x, Interval.point(np.ones(3)))
    for point in (x.low, x.high, np.where(rng.random(size) < 0.5, x.low, x.high)):
        exact = [
            sum((Fraction(float(m)) * Fraction(float(p)) for m, p in zip(row, point)), Fraction(1)) for row in matrix
        ]
        assert all(Fraction(float(lo)) <= e <= Fraction(float(hi)) for lo, e, hi in zip(out.low, exact, out.high))
    nonnegative, vector = np.abs(matrix), np.abs(low)
    bound = upper_product(nonnegative, vector)
    exact = [sum(Fraction(float(m)) * Fraction(float(v)) for m, v in zip(row, vector)) for row in nonnegative]
    assert all(Fraction(float(b)) >= e for b, e in zip(bound, exact))
    assert (bound <= (nonnegative @ vector) * (1 + 1e-12) + 1e-290).all()


@pytest.mark.parametrize("function", [tanh, sigmoid])
def test_squashing_functions_contain_the_exact_ones(function, rng):
    flint = pytest.importorskip("flint")
    flint.ctx.prec = 200
    points = np.concatenate(
        [rng.normal(size=300) * 10.0 ** rng.integers(-12, 3, size=300), [0.0, 1e-320, 800.0, -800.0]]
    )
    out = function(Interval.point(points))
    for x, low, high in zip(points, out.low, out.high):
        t = flint.arb(float(x))
        exact = t.tanh() if function is tanh else (1 + (-t).exp()) ** -1
        assert not exact < flint.arb(float(low))
        assert not exact > flint.arb(float(high))
        assert high - low <= 1e-14


def test_squashing_functions_of_everything():
    everything = Interval(np.array([-np.inf]), np.array([np.inf]))
    assert (tanh(everything).low, tanh(everything).high) == (-1.0, 1.0)
    assert (sigmoid(everything).low, sigmoid(everything).high) == (0.0, 1.0)


def test_overflow_widens_to_everything():
    out = affine(np.full((1, 2), 1e308), Interval.point([1e300, -1e300]))
    assert out.low[0] == -np.inf
    assert out.high[0] == np.inf
