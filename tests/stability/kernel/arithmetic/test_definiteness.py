"""Rigorous definiteness: never yes to an indefinite matrix (exact arithmetic judges), yes close to the boundary."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stability.exact_verification import is_positive_definite, rational
from stability.kernel.arithmetic.definiteness import prove_positive_definite


def _near_singular(rng, n, gap):
    q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    values = np.geomspace(1.0, 10.0, n)
    values[0] = gap
    m = (q * values) @ q.T
    return 0.5 * (m + m.T)


def test_never_positive_definite_unless_exact_arithmetic_agrees(rng):
    proved = denied = 0
    for exponent in range(-20, 0):
        for sign in (-1.0, 1.0):
            m = _near_singular(rng, int(rng.integers(1, 9)), sign * 10.0**exponent)
            definite = is_positive_definite(rational(m))
            yes = prove_positive_definite(m).holds
            assert definite or not yes
            proved, denied = proved + yes, denied + (not definite)
    assert 8 < proved < 20
    assert denied >= 20


def test_the_error_bound_is_part_of_the_proof(rng):
    m = _near_singular(rng, 10, 1e-3)
    assert prove_positive_definite(m, lambda s: 1e-5 * np.full((10, 10), 1.0) @ s).holds
    assert not prove_positive_definite(m, lambda s: 1e-2 * np.full((10, 10), 1.0) @ s).holds


@pytest.mark.parametrize(
    "bad",
    [
        np.full((2, 2), np.nan),
        np.array([[1.0, 2.0], [0.0, 1.0]]),
        np.diag([1.0, np.inf]),
        1e70 * np.eye(2),
        1e-70 * np.eye(2),
    ],
)
def test_matrices_beyond_the_theorem_are_refused_not_raised(bad):
    assert not prove_positive_definite(bad).holds


@given(n=st.integers(1, 6), seed=st.integers(0, 500))
def test_exact_criterion_agrees_with_leading_minors_in_fractions(n, seed):
    rng = np.random.default_rng(seed)
    m = rng.integers(-3, 4, size=(n, n)).astype(float)
    m = m + m.T + rng.integers(0, 3 * n) * np.eye(n)

    def determinant(a):
        if len(a) == 1:
            return a[0][0]
        return sum((-1) ** j * a[0][j] * determinant([row[:j] + row[j + 1 :] for row in a[1:]]) for j in range(len(a)))

    exact = [[Fraction(float(x)) for x in row] for row in m]
    minors = [determinant([row[:k] for row in exact[:k]]) for k in range(1, n + 1)]
    assert is_positive_definite(rational(m)) == all(x > 0 for x in minors)
