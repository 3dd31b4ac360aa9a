"""The multiplier criterion: exact where the truth is known, never beyond it elsewhere, equal to the SDP if small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from stability import LureSystem, certify, multiplier_criterion
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.multiplier import rate_ceiling
from stability.search.solvers.multiplier_program import multiplier_lmi


def _random(rng, n, m, slope=(0.0, 1.0), dt=None):
    A = rng.normal(size=(n, n)) / np.sqrt(n)
    B, C = rng.normal(size=(n, m)) / np.sqrt(n), rng.normal(size=(m, n)) / np.sqrt(m)
    if dt is None:
        return LureSystem(A - 2.5 * np.eye(n), B, C, None, slope)
    return LureSystem(0.3 * A, 0.5 * B, 0.5 * C, None, slope, dt)


@given(a=st.floats(0.1, 10), w=st.floats(-5, 5))
def test_scalar_systems_get_their_exact_rate(a, w):
    exact = a - max(w, 0.0)
    finding = multiplier_criterion(LureSystem.recurrent([[-a]], [[w]]))
    if exact > 1e-3 * a:
        assert finding.rate == pytest.approx(exact, rel=1e-5)
    elif exact < 0:
        assert not finding.holds
    if finding.holds:
        assert finding.rate <= exact


@given(a=st.floats(-0.9, 0.9), w=st.floats(-1.5, 1.5))
def test_scalar_maps_get_their_exact_rate(a, w):
    exact = max(abs(a), abs(a + w))
    finding = multiplier_criterion(LureSystem([[a]], [[1.0]], [[w]], dt=1.0))
    if 1e-3 < exact < 0.999:
        assert finding.rate == pytest.approx(exact, abs=2e-5)
    elif exact > 1:
        assert not finding.holds
    if finding.holds:
        assert finding.rate >= exact


@pytest.mark.parametrize(
    "slope", [(0.0, 1.0), (0.1, 1.0), (-1.0, 1.0), (0.3, 0.3), ([0.0, 0.2, -0.5], [1.0, 0.3, 0.5])]
)
@pytest.mark.parametrize("dt", [None, 1.0])
def test_best_rate_agrees_with_the_sdp(slope, dt, rng):
    system = _random(rng, 4, 3, slope, dt)
    finding = multiplier_criterion(system, solver="riccati")
    assert finding.holds
    step = 2e-3 if dt is None else -2e-3
    assert multiplier_lmi(system, finding.rate - step).P is not None
    assert multiplier_lmi(system, finding.rate + 5 * step).P is None


@given(n=st.integers(1, 7), m=st.integers(1, 7), seed=st.integers(0, 10_000), discrete=st.booleans())
def test_no_rate_beyond_what_constant_slopes_show(n, m, seed, discrete):
    rng = np.random.default_rng(seed)
    system = _random(rng, n, m, dt=1.0 if discrete else None)
    finding = multiplier_criterion(system, rate="best", tol=1e-2, solver="riccati")
    if not finding.holds:
        return
    bound = rate_ceiling(system)
    assert finding.rate >= bound if discrete else finding.rate <= bound
    assert check_lmi(system, finding.witness["P"], finding.witness["L"], finding.rate)[0]


def test_trajectories_obey_the_certified_envelope(rng):
    A = rng.normal(size=(6, 6)) / 2
    system = LureSystem.recurrent(A - A.T - 1.2 * np.eye(6), rng.normal(size=(6, 6)) * 0.3)
    certificate = certify(system)
    u = rng.normal(size=(6, 3))

    def field(t, x):
        push = u @ np.array([1.0, np.sin(3 * t), np.cos(t)])
        return np.concatenate([system.A @ h + np.tanh(system.C @ h + push) for h in (x[:6], x[6:])])

    start = rng.normal(size=12)
    run = solve_ivp(field, (0, 5), start, rtol=1e-9, atol=1e-12, t_eval=np.linspace(0, 5, 60))
    gap = np.linalg.norm(run.y[:6] - run.y[6:], axis=0)
    envelope = certificate.overshoot * np.exp(-certificate.rate * run.t) * gap[0]
    assert (gap <= envelope * (1 + 1e-6)).all()


@pytest.mark.parametrize("method", ["euler", "midpoint"])
def test_maps_obey_their_certified_envelope(method, rng):
    A = rng.normal(size=(5, 5)) / 2
    system = LureSystem.recurrent(A - A.T - np.eye(5), rng.normal(size=(5, 5)) * 0.3).discretise(method, 0.1)
    certificate = certify(system, criterion="multiplier")
    assert certificate.rate < 1

    def step(x, push):
        z1 = system.C[:5] @ x + push
        if method == "euler":
            return system.A @ x + system.B @ np.tanh(z1)
        w1 = np.tanh(z1)
        w2 = np.tanh(system.C[5:] @ x + system.D[5:, :5] @ w1 + push)
        return system.A @ x + system.B @ np.concatenate([w1, w2])

    x, y = rng.normal(size=5), rng.normal(size=5)
    first = np.linalg.norm(x - y)
    for k in range(1, 60):
        push = rng.normal(size=5)
        x, y = step(x, push), step(y, push)
        assert np.linalg.norm(x - y) <= certificate.overshoot * certificate.rate**k * first * (1 + 1e-9)


def test_the_known_hard_instance_is_certified_by_this_alone():
    """sigma_min(A_sym) far below sigma_max(W), gain above one: nothing weaker applies."""
    n, rng = 128, np.random.default_rng(0)

    def matrix(beta, gamma):
        m = rng.standard_normal((n, n)) / np.sqrt(n)
        return (1 - beta) * (m + m.T) + beta * (m - m.T) - gamma * np.eye(n)

    a = matrix(0.75, 1.2)
    system = LureSystem.recurrent(a, matrix(0.75, 0.3))
    certificate = certify(system, rate="any")
    assert certificate.criterion == "multiplier"
    assert not any(f.holds for f in certificate.findings if f.criterion != "multiplier")
