"""Integers over a power of two: matrices are exact, and products are within what they say."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stability.kernel.arithmetic.fixed_point import ExactMatrix, FixedPoint, integer_root, rounded_ratio

NUMBERS = st.floats(-1e60, 1e60, allow_subnormal=True)


def fractions(ints: np.ndarray, places: int) -> list[Fraction]:
    return [Fraction(int(v), 1 << places) for v in ints.ravel()]


@given(arrays(np.float64, (2, 3), elements=NUMBERS))
def test_matrices_are_exact(matrix):
    whole = ExactMatrix.of(matrix)
    assert fractions(whole.ints, whole.places) == [Fraction(float(v)) for v in matrix.ravel()]
    columns = [sum(abs(Fraction(float(v))) for v in column) for column in matrix.T]
    assert Fraction(whole.size, 1 << whole.places) == max(columns)


@pytest.mark.parametrize("extreme", [5e-324, 2.2e-308, 1.7e308, -0.0, 1.0])
def test_extreme_numbers_are_exact(extreme):
    whole = ExactMatrix.of(np.array([[extreme, 1.0]]))
    assert fractions(whole.ints, whole.places) == [Fraction(extreme), Fraction(1)]


SMALL = st.floats(-1e3, 1e3)


@given(
    arrays(np.float64, (2, 3), elements=SMALL), arrays(np.float64, (3, 2), elements=SMALL),
    st.integers(0, 40), st.integers(0, 1000),
)  # fmt: skip
def test_products_are_within_what_they_say(left, right, bits, off):
    rows, matrix = FixedPoint.of(left, bits), ExactMatrix.of(right)
    assert all(
        abs(a - Fraction(float(b))) * (1 << bits) <= rows.off for a, b in zip(fractions(rows.ints, bits), left.ravel())
    )
    exact = np.array([Fraction(float(v)) for v in right.ravel()], object).reshape(right.shape)
    for sign in (1, -1):  # all entries as wrong as they may be, to one side
        moved = (rows.ints + sign * off).astype(object)
        true = np.array(fractions(moved, bits), object).reshape(left.shape) @ exact
        found = FixedPoint(rows.ints, off) @ matrix
        wrong = [abs(a - b) * (1 << bits) for a, b in zip(fractions(found.ints, bits), true.ravel())]
        assert max(wrong) <= found.off


def test_sums_and_multiples_add_their_errors():
    one = FixedPoint(np.array([[3]], object), 2)
    assert ((one + one).ints[0, 0], (one + one).off) == (6, 4)
    assert (one.times(5).ints[0, 0], one.times(5).off) == (15, 10)


@given(st.integers(0, 10**60))
def test_roots_are_from_above(square):
    found = integer_root(square)
    assert found * found >= square
    assert found == 0 or (found - 1) ** 2 < square


def test_ratios_beyond_the_range_are_infinite():
    assert (rounded_ratio(1, 3), rounded_ratio(10**400, 1), rounded_ratio(-(10**400), 1)) == (
        1 / 3,
        float("inf"),
        float("-inf"),
    )
