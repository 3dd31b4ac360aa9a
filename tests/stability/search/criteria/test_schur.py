from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stability import LureSystem, certify, verify
from stability.search.criteria.schur import schur_criterion
from stability.search.solvers.nonnegative_matrices import ComparisonMatrix
from tests.honesty.constructions import KINDS, draw, triangular


def elman(W, slope=(0.0, 1.0)):
    n = len(W)
    return LureSystem(np.zeros((n, n)), np.eye(n), W, None, slope, 1.0)


def decays(system, witness, rate, rng, steps=40):
    """Admissible Jacobians shrink in the metric P as fast as the rate says, whatever the slopes."""
    p = np.linalg.cholesky(witness["P"])
    for _ in range(steps):
        K = np.where(rng.random(system.channels) < 0.5, system.alpha, system.beta)
        J = p.T @ system.jacobian(K) @ np.linalg.inv(p.T)
        if system.is_discrete:
            assert np.linalg.norm(J, 2) <= rate * (1 + 1e-9)
        else:
            assert np.linalg.eigvalsh(0.5 * (J + J.T))[-1] <= -rate + 1e-9


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("n", [1, 2, 3, 5, 10])
def test_every_construction_is_certified(kind, n):
    rng = np.random.default_rng([n, *kind.encode()])
    for exponent in (1, 2, 4, 6):
        made = draw(kind, rng, n, 10.0**-exponent)
        certificate = certify(made.system, rate="any")
        assert certificate.verdict == "certified", (kind, n, exponent)
        assert verify(certificate).valid
        assert 0.0 < certificate.rate < (1.0 if made.system.is_discrete else np.inf)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"scaled_two_norm"}))
def test_the_best_rate_is_that_of_the_construction(kind):
    rng = np.random.default_rng(list(kind.encode()))
    for exponent in (1, 3, 6):
        made = draw(kind, rng, 6, 10.0**-exponent)
        finding = schur_criterion(made.system)
        assert finding.holds
        assert finding.margin >= made.margin * (1 - 1e-6)
        room = 1.0 - finding.rate if made.system.is_discrete else finding.rate
        # in reducible systems the fastest rates cost overshoots beyond every bound
        share = 0.3 if "triangular" in kind or kind in ("euler", "leaky") else 0.98
        assert room >= (share if exponent < 6 else 0.09) * made.margin, (kind, exponent)
        if exponent == 1:
            decays(made.system, finding.witness, finding.rate, rng)


def test_it_decides_non_negative_weights(rng):
    for n in (2, 6, 12):
        W = rng.exponential(size=(n, n)) * (rng.random((n, n)) < 0.6) + 0.1 * np.eye(n)
        radius = np.abs(np.linalg.eigvals(W)).max()
        system = elman(W * (0.9 / radius))
        assert schur_criterion(system, rate=0.9 * (1 + 1e-6)).holds  # and beyond the radius nothing can hold:
        assert not schur_criterion(system, rate=0.9 * (1 - 1e-6)).holds
        assert not schur_criterion(elman(W * (1.0000001 / radius))).holds


@pytest.mark.parametrize("slope", [(0.0, 1.0), (-1.0, 1.0), (0.3, 1.0), (-0.5, 0.8), (1.0, 1.0), (0.0, 0.0)])
def test_slopes(slope, rng):
    W = triangular(rng, 8, 0.9 / max(abs(slope[0]), abs(slope[1]), 0.5))
    system = elman(W, slope)
    finding = schur_criterion(system, rate=0.97)
    assert finding.holds
    decays(system, finding.witness, finding.rate, rng)


def test_solutions_keep_their_signs_and_digits():
    """Against exact rationals, where a dense factorisation has lost the signs."""
    rng = np.random.default_rng(0)
    n = 40
    M = np.abs(np.triu(2.0 * rng.standard_normal((n, n)), 1)) + np.diag(rng.uniform(0.3, 0.9, n))
    order = rng.permutation(n)
    shuffled = M[np.ix_(order, order)]
    found = ComparisonMatrix(shuffled).solve(1.0, np.ones(n))
    exact = [Fraction(0)] * n
    for i in reversed(range(n)):
        force = 1 + sum(Fraction(M[i, j]) * exact[j] for j in range(i + 1, n))
        exact[i] = force / (1 - Fraction(M[i, i]))
    assert max(exact) > 10**12
    back = np.empty(n)
    back[order] = found
    assert all(abs(Fraction(x) - e) <= e * Fraction(1, 10**12) for x, e in zip(back, exact))
    left = ComparisonMatrix(shuffled).solve_transposed(1.0, np.ones(n))
    np.testing.assert_allclose(left - shuffled.T @ left, 1.0, rtol=0, atol=1e-13 * left.max())
    assert (left > 0).all()


@pytest.mark.parametrize(
    ("criterion", "solver"),
    [(name, "riccati") for name in ("auto", "theorem1a", "schur", "small_gain", "circle", "multiplier")]
    + [("multiplier", "cvxpy")],
)
@pytest.mark.parametrize("rate", ["any", "best", "edge"])
def test_a_rate_that_says_no_more_than_stability_is_never_offered(criterion, rate, solver):
    rng = np.random.default_rng(1)
    for kind in ("flow_two_norm", "two_norm"):
        if criterion == "theorem1a" and kind == "two_norm":
            continue
        system = draw(kind, rng, 3, 1e-3).system
        edge = 1.0 if system.is_discrete else 0.0
        certificate = certify(system, criterion=criterion, rate=edge if rate == "edge" else rate, solver=solver)
        assert certificate.verdict == "certified"
        assert certificate.rate != edge
        assert verify(certificate).valid
