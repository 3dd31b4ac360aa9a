"""The bracket of a spectrum holds in rationals and is tight; where it cannot be had, there is none."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stability.kernel.arithmetic.definiteness import spectral_bounds
from stability.search.solvers.spectral_bounds import spectrum_bracket


def spread(rng, size: int, condition: float) -> np.ndarray:
    q = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrix = (q * np.geomspace(1.0 / condition, 1.0, size)) @ q.T
    return 0.5 * (matrix + matrix.T)


def strictly_inside(p: np.ndarray, low: float, high: float, exact) -> bool:
    one, values = exact.of(np.eye(len(p))), exact.of(p)
    return exact.is_definite(values - Fraction(low) * one) and exact.is_definite(Fraction(high) * one - values)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("condition", [1.0, 1e3, 1e7, 1e11])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 3e12])
def test_the_bracket_holds_in_rationals_and_is_tight(size, condition, scale, exact, rng):
    p = scale * spread(rng, size, condition)
    low, high, number = spectrum_bracket(p)
    assert strictly_inside(p, low, high, exact)
    assert Fraction(number) ** 2 * Fraction(low) >= Fraction(high)
    values = np.linalg.eigvalsh(p)
    assert high <= values[-1] * (1 + 1e-10)
    if condition < 1e9:
        assert low >= values[0] * (1 - 1e-11 * size * condition - 1e-10)
        assert number <= np.sqrt(values[-1] / values[0]) * (1 + 1e-11 * size * condition + 1e-10)
    else:  # the last digits of the smallest one are rounding: within a factor
        assert low >= 0.05 * values[0]
    assert number >= 1.0


@pytest.mark.parametrize("diagonal", [[1.0], [1.0, 1.0], [1e-20, 1e20], [3.0, 0.1, 7.0]])
def test_diagonal_matrices_whatever_their_condition(diagonal, exact):
    low, high, number = spectrum_bracket(np.diag(diagonal))
    assert strictly_inside(np.diag(diagonal), low, high, exact)
    least, most = min(diagonal), max(diagonal)
    assert least * (1 - 1.01e-12) <= low < least
    assert most < high <= most * (1 + 1.01e-12)
    assert Fraction(number) ** 2 * Fraction(low) >= Fraction(high)
    assert number <= np.sqrt(most / least) * (1 + 2e-12)


@pytest.mark.parametrize(
    "bad",
    [
        np.diag([1.0, -1.0]),
        np.diag([1.0, 0.0]),
        -np.eye(2),
        np.zeros((2, 2)),
        np.ones((2, 2)),
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.array([[1.0, 1.0 - 1e-15], [1.0 - 1e-15, 1.0]]),
    ],
)
def test_no_bracket_where_p_is_not_proved_positive(bad):
    assert spectrum_bracket(bad) is None


@pytest.mark.parametrize("condition", [1.0, 1e4])
def test_large_matrices_are_estimated_by_iteration(condition, rng):
    """Beyond 400 states no eigenvalues are computed: the bracket is proved all the same, and a factor wide."""
    size = 401
    p = np.eye(size) + (condition - 1.0) * np.outer(*[np.ones(size) / np.sqrt(size)] * 2)
    p = 0.5 * (p + p.T)
    low, high, number = spectrum_bracket(p)
    assert spectral_bounds(p, low, high).holds
    assert 0.5 <= low < 1.0
    assert condition < high <= 1.3 * condition
    assert number <= 1.6 * np.sqrt(condition)
    indefinite = p - 1.5 * np.eye(size)
    assert spectrum_bracket(indefinite) is None
