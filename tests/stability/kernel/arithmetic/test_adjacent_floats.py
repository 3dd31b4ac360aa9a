"""The floats next to given ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stability.kernel.arithmetic.adjacent_floats import next_down, next_up

LARGEST, LEAST = float(np.finfo(np.float64).max), 5e-324


@given(st.floats(allow_nan=False, min_value=-LARGEST, max_value=np.nextafter(LARGEST, 0.0)))
def test_above_is_the_next_float_or_where_these_are_smallest_the_one_after_it(x):
    found, following = float(next_up(np.array(x))), float(np.nextafter(x, np.inf))
    assert found >= following
    assert found == following or (abs(x) < 1e-306 and found <= np.nextafter(following, np.inf))
    assert float(next_down(np.array(-x))) == -found


@pytest.mark.parametrize("x", [2.0**k for k in range(-1074, 1024, 7)] + [0.0, -0.0, LEAST, 1.0 - 2.0**-53])
def test_powers_of_two_have_their_two_neighbours(x):
    """There the floats below are nearer than those above."""
    assert next_down(np.array([x]))[0] <= np.nextafter(x, -np.inf)
    assert next_up(np.array([x]))[0] >= np.nextafter(x, np.inf)
    if abs(x) > 1e-306 or x == 0.0:
        assert next_down(np.array([x]))[0] == np.nextafter(x, -np.inf)
        assert next_up(np.array([x]))[0] == np.nextafter(x, np.inf)


def test_what_overflowed_is_beyond_the_largest_floats_and_what_is_no_number_stays_none():
    ends, almost = np.array([-np.inf, np.inf, np.nan]), float(np.nextafter(LARGEST, 0.0))
    assert np.array_equal(next_down(ends), [-np.inf, almost, np.nan], equal_nan=True)
    assert np.array_equal(next_up(ends), [-almost, np.inf, np.nan], equal_nan=True)
