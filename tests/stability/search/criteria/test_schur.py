from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stability import LureSystem, Verdict, certify, verify
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.schur import schur_criterion, schur_tests
from stability.search.solvers.nonnegative_matrices import ComparisonMatrix, ordered_components
from stability.search.solvers.spectral_bounds import spectrum_bracket
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


def test_the_search_missed_these_triangular_maps():
    """Dense triangular maps of 6 to 20 units, margins down to 1e-3: all are certified, and the proof re-checks."""
    rng = np.random.default_rng(5)
    for n in (6, 12, 20):
        for margin in (0.3, 1e-2, 1e-3):
            W = np.triu(rng.standard_normal((n, n)) * rng.uniform(1, 3), 1)
            W += np.diag((1 - margin) * np.append(rng.uniform(-1, 1, n - 1), 1.0))
            certificate = certify(elman(W), rate="any")
            assert certificate.verdict == "certified"
            assert certificate.criterion == "schur"
            assert verify(certificate).valid


def test_a_slower_rate_costs_less_overshoot():
    rng = np.random.default_rng(3)
    W = triangular(rng, 10, 0.5)
    system = elman(W)
    overshoots = []
    for rate in (0.55, 0.7, 0.9, 0.99):
        finding = schur_criterion(system, rate=rate)
        assert finding.rate == rate
        overshoots.append(spectrum_bracket(finding.witness["P"])[2])
    assert (np.diff(overshoots) < 0).all()


def test_a_norm_just_below_one(rng):
    for n in (2, 5, 20):
        Q = (1 - 1e-9) * np.linalg.qr(rng.standard_normal((n, n)))[0]
        finding = schur_criterion(elman(Q), rate="any")
        assert finding.holds
        np.testing.assert_array_equal(finding.witness["P"], finding.witness["P"][0, 0] * np.eye(n))
    assert not schur_criterion(elman(np.linalg.qr(rng.standard_normal((5, 5)))[0] * (1 + 1e-9))).holds


def test_parts_in_series(rng):
    """Neither the norm nor the entries of the whole are small; each part has a small norm of its own."""
    Q = [0.9 * np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(3)]
    W = np.zeros((12, 12))
    for k, q in enumerate(Q):
        W[4 * k : 4 * k + 4, 4 * k : 4 * k + 4] = q
        W[4 * k : 4 * k + 4, : 4 * k] = 3.0 * rng.standard_normal((4, 4 * k))
    order = rng.permutation(12)
    system = elman(W[np.ix_(order, order)])
    assert [test.words for test in schur_tests(system, 1.0)] == ["norms of connected parts"]
    finding = schur_criterion(system, rate=0.95)
    assert finding.holds
    decays(system, finding.witness, 0.95, rng)


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


def test_parts_in_order(rng):
    for _ in range(30):
        n = int(rng.integers(2, 15))
        graph = rng.random((n, n)) < 0.15
        parts = ordered_components(graph)
        assert sorted(np.concatenate(parts)) == list(range(n))
        place = np.empty(n, dtype=int)
        for k, part in enumerate(parts):
            place[part] = k
        i, j = np.nonzero(graph)
        assert (place[j] <= place[i]).all()  # i is driven by j
        reach = np.linalg.matrix_power(np.eye(n) + graph, n) > 0
        for part in parts:
            assert reach[np.ix_(part, part)].all()
        for a in range(n):
            for b in range(n):
                assert (place[a] == place[b]) == (reach[a, b] and reach[b, a])


def test_tops_of_reducible_and_cyclic_matrices(rng):
    for _ in range(20):
        n = int(rng.integers(2, 12))
        M = rng.exponential(size=(n, n)) * (rng.random((n, n)) < 0.3)
        exact = np.abs(np.linalg.eigvals(M)).max()
        assert ComparisonMatrix(M).top == pytest.approx(exact, abs=1e-6 * max(exact, 1e-2))
    cycle = np.roll(np.eye(6), 1, axis=0) * 0.8
    assert ComparisonMatrix(cycle).top == pytest.approx(0.8, rel=1e-9)
    assert ComparisonMatrix(cycle - 2 * np.eye(6)).top == pytest.approx(-1.2, rel=1e-9)


def test_overshoots_of_diagonal_metrics_are_bracketed_however_large():
    low, high, overshoot = spectrum_bracket(np.diag([1e-25, 1.0, 1e25]))
    assert low < 1e-25 < 1e25 < high
    assert overshoot == pytest.approx(1e25, rel=1e-9)
    assert spectrum_bracket(np.diag([1.0, -1.0])) is None


def test_the_rule_decides(rng):
    """A criterion that proposes nonsense is not believed."""
    system = elman(triangular(rng, 5, 0.9))
    finding = schur_criterion(system, rate=0.95)
    P, L = finding.witness["P"], finding.witness["L"]
    assert check_lmi(system, P, L, 0.95)[0]
    assert not check_lmi(system, np.linalg.inv(P), L, 0.95)[0]
    assert not check_lmi(system, P, 0.4 * L, 0.95)[0]


@pytest.mark.parametrize(
    ("criterion", "solver"),
    [(name, "riccati") for name in ("auto", "theorem1a", "schur", "circle", "kyp", "multiplier")]
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


def test_linear_systems_too():
    for system in (LureSystem.linear([[-1.0, 1.0], [0.0, -1.0]]), LureSystem.linear([[0.5, 1.0], [0.0, 0.5]], dt=1.0)):
        edge = 1.0 if system.is_discrete else 0.0
        for rate in ("any", edge):
            certificate = certify(system, rate=rate)
            assert certificate.verdict == "certified"
            assert certificate.rate != edge


def test_layers_without_gaps_though_a_channel_is_gone():
    """The first layer's only channel has a single slope: what is left still counts from zero."""
    D = [[0.0, 0.0], [0.4, 0.0]]
    system = LureSystem(-2 * np.eye(2), np.eye(2), 0.3 * np.ones((2, 2)), D, ([0.5, 0.0], [0.5, 1.0]))
    finding = schur_criterion(system, rate="any")
    assert finding.holds
    assert check_lmi(system, finding.witness["P"], finding.witness["L"], finding.rate)[0]


def test_a_metric_that_spans_fifty_orders_of_magnitude_is_bracketed():
    """All twelve units are slow, one drives the next: the overshoot is beyond 1e20, and it is stated."""
    sign = np.random.default_rng(1).choice([-1.0, 1.0], 12)
    W = np.triu(np.random.default_rng(0).normal(size=(12, 12)), 1) + np.diag(0.99 * sign)
    certificate = certify(LureSystem(np.zeros((12, 12)), np.eye(12), W, dt=1.0), rate="any")
    assert certificate.verdict is Verdict.CERTIFIED
    assert verify(certificate).valid
    assert certificate.overshoot > 1e20
