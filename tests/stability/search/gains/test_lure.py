from __future__ import annotations

import numpy as np
import pytest

from stability.kernel.format.claims import Verdict
from stability.kernel.theorems.gain_lmi import check_gain
from stability.search.gains.lure import incremental_gain
from stability.search.solvers.hinf import hinf_norm
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim


def network(rng, n=4, p=3, gain=0.5, integrator="euler"):
    K = rng.normal(size=(n, n))
    W = rng.normal(size=(n, n))
    system = LureSystem.recurrent(0.3 * (K - K.T) - np.eye(n), gain * W / np.linalg.norm(W, 2))
    E, b = rng.normal(size=(n, p)), rng.normal(size=n)
    stages = 2 if integrator == "midpoint" else 1  # the input is held: every stage sees it
    return DrivenSystem(system.discretise(integrator, 0.2), "tanh", np.tile(E, (stages, 1)), np.tile(b, stages))


def largest_ratio(net, H, steps, rng, final, trials=60):
    """The largest ratio found by simulating pairs of input sequences: a lower bound of the gain."""
    best = 0.0
    n, p = net.system.states, net.inputs
    for trial in range(trials):
        u = rng.normal(size=(steps, p)) * rng.choice([0.0, 1.0, 3.0])
        v = u + rng.normal(size=(steps, p)) * 10.0 ** rng.uniform(-3, 1)
        if trial % 2:
            v = u + 1e-3 * np.outer(np.exp(np.linspace(-2, 0, steps)), rng.normal(size=p))
        x = y = np.zeros(n)
        outputs = []
        for a, b in zip(u, v):
            x, y = net.advance(x, a), net.advance(y, b)
            outputs.append(np.linalg.norm(H @ (x - y)))
        change = outputs[-1] if final else np.linalg.norm(outputs)
        best = max(best, change / np.linalg.norm(u - v))
    return best


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("solver", ["cvxpy", "riccati"])
def test_linear_gain_is_the_hinf_norm(rng, discrete, solver):
    for _ in range(4):
        n, p, k = (int(x) for x in rng.integers(1, 5, size=3))
        A = rng.normal(size=(n, n))
        eigenvalues = np.linalg.eigvals(A)
        A = 0.7 * A / np.abs(eigenvalues).max() if discrete else A - (eigenvalues.real.max() + 0.5) * np.eye(n)
        F, H = rng.normal(size=(n, p)), rng.normal(size=(k, n))
        dt = 1.0 if discrete else None
        norm = hinf_norm(A, F, H, dt=dt)
        found = incremental_gain(LureSystem.linear(A, dt), output=H, F=F, solver=solver)
        assert norm * (1 - 1e-9) <= found.value <= norm * (1 + (1e-3 if solver == "cvxpy" else 2e-2))
        data = {k: found.proof.data[k] for k in ("P", "L", "E", "F", "H")}
        system = LureSystem.linear(A, dt)
        below, above = (
            check_gain(system, **data, gain=g, growth=1.0 if discrete else 0.0, mode="running")[0]
            for g in (0.995 * norm, 1.03 * norm)
        )
        assert above
        assert not below


def test_linear_gain_to_the_last_step(rng):
    """|y_T| / |u|_2 of a linear map is the norm of [H A^(T-1) F, ..., H F]: a lower bound, nearly reached."""
    for _ in range(4):
        n, T = 3, 6
        A = rng.normal(size=(n, n))
        A = 0.8 * A / np.abs(np.linalg.eigvals(A)).max()
        F, H = rng.normal(size=(n, 2)), rng.normal(size=(2, n))
        true = np.linalg.norm(np.hstack([H @ np.linalg.matrix_power(A, j) @ F for j in range(T)]), 2)
        found = incremental_gain(LureSystem.linear(A, 1.0), output=H, F=F, horizon=T)
        assert true * (1 - 1e-9) <= found.value <= 1.3 * true


@pytest.mark.parametrize("integrator", ["euler", "midpoint"])
def test_simulation_never_exceeds_the_gain(rng, integrator):
    net = network(rng, integrator=integrator)
    H = rng.normal(size=(3, 4))
    for horizon in (None, 8):
        found = incremental_gain(net, output=H, horizon=horizon)
        assert np.isfinite(found.value)
        steps = 8 if horizon else 40
        seen = largest_ratio(net, H, steps, rng, final=horizon is not None)
        assert 0.05 * found.value <= seen <= found.value
        assert verify_claim(net, found.claim).valid


def test_a_growing_network_has_a_gain_over_a_finite_horizon_only(rng):
    net = network(rng, gain=6.0)
    none = incremental_gain(net)
    assert none.value == np.inf
    assert none.claim.verdict is Verdict.INCONCLUSIVE
    assert none.radius(1.0) == 0.0
    for measure in ("final", "l2"):
        found = incremental_gain(net, horizon=6, measure=measure)
        assert found.proof.kind == "gain_steps"
        assert largest_ratio(net, np.eye(4), 6, rng, final=measure == "final") <= found.value < np.inf
        assert verify_claim(net, found.claim).valid


def test_continuous_time_final_gain():
    """x' = -x + u: |x(T)|^2 <= (1 - exp(-2 T)) / 2 |u|^2, below 1 / 2 for every T."""
    found = incremental_gain(LureSystem.linear([[-1.0]]), horizon=2.0)
    assert np.sqrt(0.5 * (1 - np.exp(-4.0))) <= found.value <= np.sqrt(0.5) * (1 + 1e-3)
    growing = incremental_gain(LureSystem.linear([[0.5]]), horizon=1.0)
    assert np.sqrt(np.e - 1.0) <= growing.value <= 2.1 * np.sqrt(np.e - 1.0)  # one P for all times costs a factor
    assert verify_claim(LureSystem.linear([[0.5]]), growing.claim).valid


def test_scalar_nonlinear_gain_by_hand():
    """dx/dt = -2 x + phi(x + u), slopes [0, 1]: the worst slope is 1, gain 1 / (2 - 1)."""
    assert incremental_gain(LureSystem.recurrent([[-2.0]], [[1.0]])).value == pytest.approx(1.0, rel=1e-3)


def test_both_solvers_prove_and_the_program_is_tighter(rng):
    net = network(rng, n=6)
    program, riccati = incremental_gain(net, solver="cvxpy"), incremental_gain(net, solver="riccati")
    assert verify_claim(net, program.claim).valid
    assert verify_claim(net, riccati.claim).valid
    assert program.value <= riccati.value * (1 + 1e-6) <= 2 * program.value
