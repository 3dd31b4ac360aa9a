"""Laws of linear systems: stable ones are certified near their spectral rate, others refuted, at every time scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stability import LureSystem, certify, verify
from stability.kernel.arithmetic.exact_polynomials import has_boundary_eigenvalue
from stability.kernel.theorems.multiplier_lmi import exact_lmi_matrix, lmi_matrix


def matrix_with(rng, eigenvalues, condition):
    """A matrix with these real eigenvalues and eigenvectors of about this condition."""
    n = len(eigenvalues)
    U, V = (np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(2))
    T = U @ np.diag(np.geomspace(1.0, 1.0 / condition, n)) @ V
    return T @ np.diag(eigenvalues) @ np.linalg.inv(T)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 16), st.floats(0.0, 6.0), st.floats(0.0, 1.0), st.booleans(), st.integers(0, 10**6))
def test_stable_systems_are_certified_within_a_thousandth_and_unstable_ones_refuted(n, decades, share, discrete, seed):
    rng, scales = np.random.default_rng(seed), np.geomspace(10.0**-decades, 1.0, n)
    condition = 10.0 ** (share * (11.5 - decades) / 3.0)
    A = matrix_with(rng, 1.0 - 0.9 * scales if discrete else -scales, condition)
    system = LureSystem.linear(A, 1.0 if discrete else None)
    found = certify(system)
    eigenvalues = np.linalg.eigvals(A)
    exact = 1.0 - np.abs(eigenvalues).max() if discrete else -eigenvalues.real.max()
    assert found.verdict == "certified"
    assert verify(found).valid
    assert (1.0 - found.rate if discrete else found.rate) >= 0.999 * exact
    unstable = A + (1.1 * exact * np.eye(n))
    found = certify(LureSystem.linear(unstable, system.dt))
    assert found.verdict == "refuted"
    assert verify(found).valid


@pytest.mark.parametrize(
    ("A", "dt", "expected"),
    [
        ([[0.0, -1.0], [1.0, 0.0]], 1.0, "refuted"),
        ([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], 1.0, "refuted"),
        ([[1.0, 1.0], [0.0, 0.5]], 1.0, "refuted"),
        ([[0.0, 1.0], [0.0, -1.0]], None, "refuted"),
        ([[-1.0, 1.0], [-1.0, -1e-6]], None, "certified"),
        ([[0.28, -0.96], [0.96, 0.28]], 1.0, "inconclusive"),  # the modulus of these floats is 1 - 2.7e-17
    ],
)
def test_on_the_boundary_only_what_is_exact_is_refuted(A, dt, expected):
    found = certify(LureSystem.linear(A, dt))
    assert found.verdict == expected
    assert verify(found).valid == (expected != "inconclusive")
    assert has_boundary_eigenvalue(np.array(A), dt is not None) == (expected == "refuted")


def test_an_integrator_is_told_the_sector_that_would_do():
    loop = LureSystem([[1.0, 0.1], [0.0, 0.9]], [[0.0], [-0.1]], [[1.0, 0.0]], dt=1.0)
    found = certify(loop)
    assert found.verdict == "refuted"
    assert "slope=(" in found.findings[-1].detail
    least = float(found.findings[-1].detail.split("slope=(")[1].split(",")[0])
    assert certify(LureSystem(loop.A, loop.B, loop.C, slope=(least, 1.0), dt=1.0)).verdict == "certified"


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.booleans(), st.integers(-40, 40), st.integers(0, 10**6))
def test_the_exact_matrix_is_the_rounded_one_but_for_rounding(n, discrete, exponent, seed):
    rng = np.random.default_rng(seed)
    A, P = rng.normal(size=(n, n)) * 2.0**exponent, rng.normal(size=(n, n))
    system, P = LureSystem.linear(A, 1.0 if discrete else None), P + P.T
    exact = exact_lmi_matrix(system, P, 0.75)
    size = np.abs(A).max() ** (2 if discrete else 1) + 1.0
    assert exact == pytest.approx(lmi_matrix(system, P, np.zeros(0), 0.75), abs=1e-13 * size * n * n * np.abs(P).max())
    assert (exact == exact.T).all()
