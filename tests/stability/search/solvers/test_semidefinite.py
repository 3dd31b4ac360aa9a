from __future__ import annotations

import numpy as np
import pytest

from stability.errors import ConfigurationError
from stability.kernel.theorems.multiplier_lmi import check_lmi, lmi_matrix
from stability.search.solvers import semidefinite as lmi
from stability.search.solvers.inequality_slack import definite_slack
from stability.search.solvers.multiplier_program import multiplier_lmi
from stability.search.solvers.overshoot import min_overshoot
from stability.search.solvers.scaling import balanced_coordinates
from stability.systems import LureSystem


def slow_form(system, P, L, rate):
    """The multiplier inequality from its definition, as a quadratic form evaluated on basis vectors."""
    n, m = system.B.shape

    def form(x, w):
        step, z = system.A @ x + system.B @ w, system.C @ x + system.D @ w
        energy = step @ P @ step - rate**2 * x @ P @ x if system.is_discrete else 2 * x @ P @ (step + rate * x)
        return energy + 2 * np.sum(L * (w - system.alpha * z) * (system.beta * z - w))

    basis = np.eye(n + m)
    out = np.empty((n + m, n + m))
    for i in range(n + m):
        for j in range(n + m):
            a, b = basis[i] + basis[j], basis[i] - basis[j]
            out[i, j] = 0.25 * (form(a[:n], a[n:]) - form(b[:n], b[n:]))
    return out


def random_system(rng, n, m, discrete, size=0.3):
    A = rng.normal(size=(n, n))
    eigenvalues = np.linalg.eigvals(A)
    A = 0.6 * A / np.abs(eigenvalues).max() if discrete else A - (eigenvalues.real.max() + 0.7) * np.eye(n)
    alpha = rng.uniform(-0.3, 0.3, m)
    D = np.tril(rng.normal(size=(m, m)), -1) * 0.1
    B, C = rng.normal(size=(n, m)), size * rng.normal(size=(m, n))
    return LureSystem(A, B, C, D, (alpha, alpha + rng.uniform(0.0, 0.7, m)), 1.0 if discrete else None)


@pytest.mark.parametrize("discrete", [False, True])
def test_form_is_the_quadratic_form(rng, discrete):
    system = random_system(rng, 3, 4, discrete)
    P = rng.normal(size=(3, 3))
    P, L = P + P.T, rng.uniform(size=4)
    np.testing.assert_allclose(lmi_matrix(system, P, L, 0.7), slow_form(system, P, L, 0.7), atol=1e-12)


@pytest.mark.parametrize(
    ("a", "c", "slope", "dt", "best"),
    [
        (-2.0, 1.0, (0, 1), None, 1.0),
        (-2.0, -1.0, (0, 1), None, 2.0),
        (-3.0, 2.0, (-0.5, 0.25), None, 2.5),
        (0.5, 0.3, (0, 1), 1.0, 0.8),
        (0.1, -0.6, (0, 1), 1.0, 0.5),
        (0.2, 1.0, (-0.25, 0.5), 0.1, 0.7),
    ],
)
def test_scalar_boundary(a, c, slope, dt, best):
    """For one state the worst slope is at an end of the interval, and the inequality is exact."""
    system = LureSystem([[a]], [[1.0]], [[c]], slope=slope, dt=dt)
    inward = -1e-3 if dt is None else 1e-3
    inside, outside = multiplier_lmi(system, best + inward), multiplier_lmi(system, best - inward)
    assert inside.feasible
    assert check_lmi(system, inside.P, inside.L, best + inward)[0]
    assert outside.status == "infeasible"
    assert outside.P is None


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("solver", [None, "SCS", "clarabel"])
def test_feasible_answers_are_proved_and_decay_bounds_every_slope(rng, discrete, solver):
    rate = 0.95 if discrete else 0.05
    found = 0
    for _ in range(4):
        n, m = (int(x) for x in rng.integers(1, 6, size=2))
        system = random_system(rng, n, m, discrete, 0.15)
        result = multiplier_lmi(system, rate, solver=solver)
        if not result.feasible:
            continue
        found += 1
        assert check_lmi(system, result.P, result.L, rate)[0]
        for _ in range(20):
            K = np.where(rng.random(m) < 0.5, system.alpha, system.beta)
            eigenvalues = np.linalg.eigvals(system.jacobian(K))
            assert np.abs(eigenvalues).max() <= rate if discrete else eigenvalues.real.max() <= -rate
    assert found >= 2


def test_badly_scaled_but_well_posed(rng):
    plain = LureSystem.recurrent(-2 * np.eye(4) + 0.5 * rng.normal(size=(4, 4)), 0.4 * rng.normal(size=(4, 4)))
    assert multiplier_lmi(plain, 0.1).feasible
    t, s = 10.0 ** rng.uniform(-5, 5, 4), 10.0 ** rng.uniform(-5, 5, 4)
    for unit in (1e-6, 1.0, 1e6):
        system = LureSystem(
            unit * plain.A * t / t[:, None],
            unit * plain.B / t[:, None] * s,
            plain.C * t / s[:, None] * 1e3,
            slope=(0, 1e-3),
        )
        result = multiplier_lmi(system, 0.1 * unit)
        assert result.feasible
        assert check_lmi(system, result.P, result.L, 0.1 * unit)[0]


def test_a_lying_solver_is_not_believed(monkeypatch):
    """Whatever status and numbers a solver returns, an infeasible rate never becomes feasible."""
    system = LureSystem.recurrent([[-1.0, 0.3], [0.0, -1.0]], [[1.5, 0.0], [0.0, 1.5]])

    def lie(problem, solver, clock, accuracy=0.0):
        for variable in problem.variables():
            variable.value = np.eye(variable.shape[0]) if variable.ndim == 2 else np.ones(variable.shape)
        return "solved"

    monkeypatch.setattr(lmi, "_solve", lie)
    for solver in ("SCS", "CLARABEL"):
        assert not multiplier_lmi(system, 0.5, solver=solver).feasible
    assert min_overshoot(system, 0.5).P is None


def test_a_failing_solver_is_an_answer(monkeypatch):
    import cvxpy as cp

    def fail(self, *args, **kwargs):
        raise cp.error.SolverError("the solver fell over")

    monkeypatch.setattr(cp.Problem, "solve", fail)
    result = multiplier_lmi(LureSystem.recurrent([[-2.0]], [[1.0]]), 0.5)
    assert result.status == "inconclusive"
    assert "fell over" in result.detail


def test_options(rng):
    system = LureSystem.recurrent([[-2.0]], [[1.0]])
    for bad in (np.nan, "x", None):
        with pytest.raises(ConfigurationError):
            multiplier_lmi(system, bad)
    with pytest.raises(ConfigurationError):
        multiplier_lmi(system.euler(0.1), -0.5)
    with pytest.raises(ConfigurationError, match="MOSEK"):
        multiplier_lmi(system, 0.1, solver="MOSEK")
    with pytest.raises(ConfigurationError, match="riccati"):
        multiplier_lmi(LureSystem.recurrent(-np.eye(161), np.eye(161)), 0.1)
    with pytest.raises(ConfigurationError):
        multiplier_lmi(system, 0.1, time_limit=-1.0)
    big = LureSystem.recurrent(-np.eye(70), 0.9 * rng.normal(size=(70, 70)) / np.sqrt(70))
    assert multiplier_lmi(big, 0.05, time_limit=1e-3).status == "time limit"


@pytest.mark.parametrize("discrete", [False, True])
def test_min_overshoot(rng, discrete):
    system = random_system(rng, 3, 2, discrete, 0.1)
    rate = 0.97 if discrete else 0.02
    any_answer, best = multiplier_lmi(system, rate), min_overshoot(system, rate)
    assert check_lmi(system, best.P, best.L, rate)[0]
    values = np.linalg.eigvalsh(best.P)
    assert best.value == pytest.approx(values[-1] / values[0])
    assert best.value <= np.linalg.cond(any_answer.P) * (1 + 1e-6)


def test_min_overshoot_of_a_transient_is_at_least_its_peak():
    A = np.array([[-1.0, 8.0], [0.0, -2.0]])
    result = min_overshoot(LureSystem.linear(A), 0.5)
    from scipy.linalg import expm

    peak = max(np.linalg.norm(expm(A * t), 2) * np.exp(0.5 * t) for t in np.linspace(0, 5, 200))
    assert peak <= np.sqrt(result.value) <= 2 * peak


def test_coordinates_go_there_and_back(rng):
    system = random_system(rng, 3, 2, False)
    at = balanced_coordinates(system, 0.1)
    P = rng.normal(size=(3, 3))
    P, L = P @ P.T + np.eye(3), rng.uniform(0.5, 1, 2)
    p, l = at.back(P, L)
    transform = np.zeros((5, 5))
    transform[:3, :3], transform[3:, 3:] = at.X, np.diag(1 / at.r)
    there = at.time * lmi_matrix(at.system, P, L, at.rate)
    np.testing.assert_allclose(transform.T @ lmi_matrix(system, p, l, 0.1) @ transform, there, atol=1e-10)


def test_definite_slack_counts_rounding():
    assert definite_slack(np.eye(3)) > 0.99
    assert not definite_slack(np.eye(3), lambda s: 1e2 * np.ones((3, 3)) @ s) > 0
    assert definite_slack(np.array([[np.nan]])) == -np.inf
    assert definite_slack(np.zeros((0, 0))) == 1.0
