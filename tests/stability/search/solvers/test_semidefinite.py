from __future__ import annotations

import numpy as np
import pytest

from stability.kernel.theorems.multiplier_lmi import check_lmi, lmi_matrix
from stability.search.solvers import semidefinite as lmi
from stability.search.solvers.multiplier_program import multiplier_lmi
from stability.search.solvers.overshoot import min_overshoot
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


def test_a_lying_solver_is_not_believed(monkeypatch):
    """An infeasible rate never becomes feasible, for every status and numbers of a solver."""
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


@pytest.mark.parametrize("discrete", [False, True])
def test_min_overshoot(rng, discrete):
    system = random_system(rng, 3, 2, discrete, 0.1)
    rate = 0.97 if discrete else 0.02
    any_answer, best = multiplier_lmi(system, rate), min_overshoot(system, rate)
    assert check_lmi(system, best.P, best.L, rate)[0]
    values = np.linalg.eigvalsh(best.P)
    assert best.value == pytest.approx(values[-1] / values[0])
    assert best.value <= np.linalg.cond(any_answer.P) * (1 + 1e-6)
