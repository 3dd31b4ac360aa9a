"""The best rate by an exchange of peaks: its derivatives, its quadratic programs, its optima."""

from dataclasses import replace

import numpy as np
import pytest

from stability import LureSystem
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.solvers import riccati
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.hinf import hinf_peak
from stability.search.solvers.loop_transformation import centered_loop
from stability.search.solvers.multiplier_program import multiplier_lmi
from stability.search.solvers.peak_exchange import Exchange
from stability.search.solvers.state_space import StateSpace


def _loop(discrete, seed=1, n=6, m=5):
    rng = np.random.default_rng(seed)
    A = 0.5 * rng.standard_normal((n, n)) / np.sqrt(n) - (0.0 if discrete else 1.0) * np.eye(n)
    B, C = rng.standard_normal((n, m)) / 3, rng.standard_normal((m, n)) / 3
    return StateSpace(A, B, C, 0.1 * rng.standard_normal((m, m)), discrete)


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
