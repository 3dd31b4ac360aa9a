"""Brent's methods and non-negative least squares go the way of scipy's, step for step or to the same answer."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar, nnls

from stability.search.solvers.nonnegative import nonnegative
from stability.search.solvers.scalar import minimum, root


def functions(count: int):
    """Functions of one number with several extrema and zeros, with ends and an accuracy."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        c = rng.normal(size=6)
        low, high = sorted(3.0 * rng.normal(size=2))
        yield lambda x, c=c: float(np.polyval(c, x) + np.sin(10.0 * c[0] * x)), low, high, 10 ** rng.uniform(-10, -1)


def watched(f):
    seen: list[float] = []
    return seen, lambda x: (seen.append(float(x)), f(x))[1]


@pytest.mark.parametrize("maxiter", [5, 60])
def test_a_minimum_is_found_by_scipys_very_steps(maxiter):
    for f, low, high, tol in functions(150):
        (ours, one), (theirs, two) = watched(f), watched(f)
        found = minimum(one, low, high, xatol=tol, maxiter=maxiter)
        options = {"xatol": tol, "maxiter": maxiter}
        other = minimize_scalar(two, bounds=(low, high), method="bounded", options=options)
        assert ours == theirs
        assert found == (other.x, other.fun)
    for ends in ((0.0, np.inf), (2.0, 1.0)):
        with pytest.raises(ValueError, match="two finite ends in order"):
            minimum(abs, *ends)


def test_a_zero_is_found_by_scipys_very_steps():
    count = 0
    for f, low, high, tol in functions(300):
        if f(low) * f(high) < 0.0:
            (ours, one), (theirs, two) = watched(f), watched(f)
            found = root(one, low, high, xtol=tol, rtol=1e-12, maxiter=200)
            assert found == brentq(two, low, high, xtol=tol, rtol=1e-12, maxiter=200)
            assert ours == theirs
            count += 1
    assert count > 50
    assert root(lambda x: x, 0.0, 1.0, xtol=1e-9, rtol=1e-9, maxiter=9) == 0.0
    assert root(lambda x: x - 1.0, 0.0, 1.0, xtol=1e-9, rtol=1e-9, maxiter=9) == 1.0
    with pytest.raises(ValueError, match="different signs"):
        root(lambda x: x * x + 1.0, -1.0, 1.0, xtol=1e-9, rtol=1e-9, maxiter=9)


def test_non_negative_least_squares_meets_the_conditions_of_optimality():
    rng = np.random.default_rng(1)
    for k in range(60):
        n, m = rng.integers(1, 50, size=2)
        rows = rng.normal(size=(n, m)) * 10.0 ** rng.uniform(-6, 6)
        gram = rows @ rows.T
        gram[np.diag_indices(n)] += 10.0 ** -rng.integers(1, 9) * np.trace(gram) / n
        right = rng.normal(size=n) * 10.0 ** rng.uniform(-6, 6) * (k > 0)
        x = nonnegative(gram, right)
        upper = np.linalg.cholesky(gram).T
        other, _ = nnls(upper, np.linalg.solve(upper.T, right), maxiter=50 * n + 100)
        rounding = 1e-13 * np.abs(gram) @ x  # of one product; unknowns are large where the matrix is nearly singular
        assert (x >= 0.0).all()
        assert x @ gram @ x / 2 - right @ x <= other @ gram @ other / 2 - right @ other + rounding @ x
        slack, size = gram @ x - right, 1e-12 * np.abs(right).max()
        assert (slack >= -rounding - size).all()
        assert (np.abs(slack) <= rounding + size)[x > 0].all()
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        nonnegative(np.eye(2), np.array([np.nan, 1.0]))
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        nonnegative(-np.eye(2), np.ones(2))
    assert nonnegative(np.eye(3), np.ones(3), most=0).tolist() == [0.0, 0.0, 0.0]
