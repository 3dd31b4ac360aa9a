"""The best rate by an exchange of peaks: its derivatives, its quadratic programs, its optima."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from stability import LureSystem, certify, verify
from stability.errors import ConfigurationError
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.solvers import riccati
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.frequency_peaks import FrequencyAxis
from stability.search.solvers.hinf import hinf_peak
from stability.search.solvers.loop_transformation import centered_loop
from stability.search.solvers.multiplier_program import multiplier_lmi
from stability.search.solvers.peak_exchange import Exchange, _maxima, _step, _summit, _updated
from stability.search.solvers.state_space import StateSpace
from tests.stability.reference_systems import systems

REFERENCE = {int(k): v for k, v in json.loads((Path(__file__).parent / "reference_rates.json").read_text()).items()}


def _loop(discrete, seed=1, n=6, m=5):
    rng = np.random.default_rng(seed)
    A = 0.5 * rng.standard_normal((n, n)) / np.sqrt(n) - (0.0 if discrete else 1.0) * np.eye(n)
    B, C = rng.standard_normal((n, m)) / 3, rng.standard_normal((m, n)) / 3
    return StateSpace(A, B, C, 0.1 * rng.standard_normal((m, m)), discrete)


def _gain(loop, omega, rate, x):
    s = rate * np.exp(1j * omega) if loop.is_discrete else 1j * omega - rate
    G = loop.C @ np.linalg.solve(s * np.eye(loop.states) - loop.A, loop.B) + loop.D
    return np.linalg.svd(np.exp(x)[:, None] * G * np.exp(-x), compute_uv=False)


@pytest.mark.parametrize("discrete", [False, True])
def test_triplets_are_those_of_the_scaled_transfer_matrix_and_their_derivatives_are_right(discrete):
    loop, rate = _loop(discrete), 0.9 if discrete else 0.1
    axis, x = FrequencyAxis(loop, block=3), np.random.default_rng(2).normal(size=5)
    omega = np.array([0.0, 0.4, 2.5])
    found, _ = axis.triplets(omega, rate, x, axis.start(3), 200)
    for k, w in enumerate(omega):
        np.testing.assert_allclose(np.exp(found.log[k]), _gain(loop, w, rate, x)[:3], rtol=1e-8)
        h, top = 1e-6, lambda rate, x, w=w: np.log(_gain(loop, w, rate, x)[0])
        by_scale = [(top(rate, x + h * e) - top(rate, x - h * e)) / (2 * h) for e in np.eye(5)]
        np.testing.assert_allclose(found.by_scale[k, 0], by_scale, atol=1e-7)
        along = (np.log(_gain(loop, w + h, rate, x)[0]) - np.log(_gain(loop, w - h, rate, x)[0])) / (2 * h)
        assert found.by_omega[k, 0] == pytest.approx(along, abs=1e-6)
        assert found.by_rate[k, 0] == pytest.approx((top(rate + h, x) - top(rate - h, x)) / (2 * h), abs=1e-6)


@pytest.mark.parametrize("discrete", [False, True])
def test_more_channels_than_are_decomposed_give_the_same_triplets(discrete):
    loop, rate = _loop(discrete, n=24, m=20), 0.9 if discrete else 0.1
    axis, omega = FrequencyAxis(loop), np.array([0.0, 0.7])
    x = 0.3 * np.random.default_rng(2).normal(size=20)
    found, v = axis.triplets(omega, rate, x, axis.start(2), 30)
    for k, w in enumerate(omega):
        np.testing.assert_allclose(np.exp(found.log[k]), _gain(loop, w, rate, x)[:5], rtol=1e-8)
    np.testing.assert_allclose(np.einsum("mkr,mks->krs", v.conj(), v), np.tile(np.eye(5), (2, 1, 1)), atol=1e-10)


def test_eigenvectors_that_do_not_serve_are_seen():
    loop = StateSpace(np.array([[-1.0, 1.0], [0.0, -1.0 + 1e-14]]), np.eye(2), np.eye(2), np.zeros((2, 2)), False)
    assert not FrequencyAxis(loop).usable
    assert FrequencyAxis(StateSpace(-np.eye(2), np.eye(2), np.eye(2), np.zeros((2, 2)), False)).usable


@pytest.mark.parametrize("seed", range(5))
def test_a_step_solves_its_quadratic_program(seed):
    rng = np.random.default_rng(seed)
    factor, slopes = rng.standard_normal((4, 4)), rng.standard_normal((6, 4))
    slopes[:, :3] -= slopes[:, :3].mean(axis=1, keepdims=True)  # as a common factor of all scales changes nothing
    hessian, values = factor @ factor.T + 0.1 * np.eye(4), -0.5 * rng.random(6)
    step, multipliers = _step(hessian, values, slopes)
    peer = minimize(
        lambda d: 0.5 * d @ hessian @ d - d[-1],
        np.zeros(4),
        constraints={"type": "ineq", "fun": lambda d: -(values + slopes @ d)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert (multipliers >= 0).all()
    assert (values + slopes @ step).max() < 1e-6
    gradient = hessian @ peer.x - np.eye(4)[3] + slopes.T @ multipliers  # stationary at the same point
    np.testing.assert_allclose(gradient, 0.0, atol=1e-4)


def test_updates_satisfy_the_secant_equation_and_stay_positive_definite():
    rng = np.random.default_rng(0)
    step, change = rng.standard_normal(4), rng.standard_normal(4)
    change *= np.sign(step @ change)
    np.testing.assert_allclose(_updated(0.01 * np.eye(4), step, change) @ step, change, atol=1e-12)
    assert np.linalg.eigvalsh(_updated(np.eye(4), step, -change))[0] > 0


def test_a_summit_is_where_the_cubic_between_two_points_is_largest():
    rng, seen = np.random.default_rng(0), 0
    while seen < 20:
        cubic, ends = np.poly1d(rng.standard_normal(4)), np.sort(rng.standard_normal(2))
        slope = cubic.deriv()
        if slope(ends[0]) <= 0.0 or slope(ends[1]) >= 0.0:
            continue
        grid = np.linspace(*ends, 20001)
        one, other = (np.array([[w], [cubic(w)], [slope(w)]]) for w in ends)
        for pair in ((one, other), (other, one)):
            assert _summit(*pair).item() == pytest.approx(grid[cubic(grid).argmax()], abs=1e-3)
        seen += 1


def test_a_peak_that_the_search_did_not_see_is_taken_in():
    loop = _loop(False, n=8, m=4)
    exchange = Exchange(replace(loop, C=0.7 * loop.C), Deadline(), np.zeros(4))
    exchange._frequencies = lambda: np.array([3.0, 4.0])  # where little happens
    exchange._missed = lambda *_: (np.zeros(0), -1.0)
    share = exchange.run(1e-4)
    seen = [share]
    del exchange._missed
    for _ in range(4):
        scaled = exchange.loop.shifted(exchange.at(share * (1.0 - 1e-4))).scaled(np.exp(exchange.x))
        peak = hinf_peak(scaled)
        if peak.norm < 1.0:
            break
        share = exchange.run_on(peak.omega, 1e-4, share)
        seen.append(share)
    assert peak.norm < 1.0
    assert len(seen) > 1


@pytest.mark.parametrize("discrete", [False, True])
def test_doubling_finds_a_solution_up_to_the_norm_and_stops_at_once_beyond(discrete, monkeypatch):
    steps = []
    monkeypatch.setattr(riccati, "_LU", lambda matrix, made=riccati._LU: steps.append(0) or made(matrix))
    for seed in range(4):
        loop = _loop(discrete, seed, n=7, m=3)
        loop = loop if not discrete else replace(loop, A=0.5 * loop.A)
        norm = hinf_peak(loop).norm
        for level, found in ((1.0 - 1e-6, True), (1.0 + 1e-3, False)):
            steps.clear()
            scaled = replace(loop, C=level / norm * loop.C, D=level / norm * loop.D)
            assert (riccati.bounded_real(scaled, 1e-9) is not None) == found
            assert len(steps) < 40  # of 60


def test_local_maxima_come_in_order_with_the_ends():
    assert _maxima(np.array([3.0, 1.0, 5.0, 2.0, 4.0])) == [2, 4, 0]


@pytest.mark.parametrize("dt", [None, 0.5])
@pytest.mark.parametrize("seed", range(2))
def test_no_semidefinite_program_reaches_a_better_rate(dt, seed):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((5, 5)) / np.sqrt(5)
    A = -1.5 * np.eye(5) + 0.5 * (W - W.T)
    flow = LureSystem.recurrent(A, 0.6 * W)
    system = flow if dt is None else LureSystem(np.eye(5) + dt * A, dt * np.eye(5), W, dt=dt)
    found = multiplier_criterion(system)
    better = found.rate + 2e-5 if dt is None else found.rate - 2e-5
    assert multiplier_lmi(system, better).P is None


def test_a_deadline_that_is_over_ends_the_search_with_what_it_has():
    loop = centered_loop(LureSystem.recurrent(-np.eye(4), 0.1 * np.ones((4, 4))))
    exchange = Exchange(loop, Deadline.from_limit(1e-9), np.zeros(4))
    assert 0.0 <= exchange.run(1e-6) <= 1.0


def test_criteria_that_the_multipliers_contain_are_evaluated_not_searched_unless_asked_for():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((4, 4)) / 2
    system = LureSystem.recurrent(-1.5 * np.eye(4) + 0.5 * (W - W.T), 0.4 * W)
    needed, every = (
        {f.criterion: f for f in certify(system, criteria=criteria).findings} for criteria in ("needed", "all")
    )
    assert list(needed) == list(every)
    for name in ("circle", "kyp"):
        assert needed[name].holds
        assert needed[name].rate is None
        assert 0.0 < every[name].rate <= every["multiplier"].rate * (1 + 1e-6)
        assert needed[name].margin == every[name].margin
    with pytest.raises(ConfigurationError, match="criteria"):
        certify(system, criteria="some")


def _never_worse(chosen):
    seen = 0
    for number, system in systems(max(chosen) + 1):
        if number not in chosen:
            continue
        rate, overshoot = REFERENCE[number]
        certificate = certify(system, refute=False)
        assert verify(certificate).valid
        span = 1.0 - rate if system.is_discrete else rate
        gained = (rate - certificate.rate if system.is_discrete else certificate.rate - rate) / span
        assert gained > -3e-6, number  # both are good to about 1e-6
        assert certificate.overshoot < overshoot * (1.05 if gained < 2e-6 else 1.5), number  # a faster rate may cost
        seen += 1
    assert seen == len(chosen)


def test_rates_and_overshoots_are_never_worse_than_those_of_the_search_before():
    _never_worse([k for k in REFERENCE if k % 30 == 1 or k == 34])


@pytest.mark.slow
def test_two_hundred_rates_and_overshoots_are_never_worse_than_before():
    _never_worse(list(REFERENCE))
