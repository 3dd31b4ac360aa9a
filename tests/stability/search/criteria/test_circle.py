from __future__ import annotations

import numpy as np
import pytest

from stability.errors import ConfigurationError
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.circle import bounded_real_slack, circle_criterion
from stability.search.criteria.kyp import kyp_criterion
from stability.search.criteria.linear import linear_criterion
from stability.search.criteria.theorem1 import theorem1, theorem1_system
from stability.search.criteria.witness import nested_multiplier
from stability.search.gains.lure import incremental_gain
from stability.search.solvers.hinf import hinf_norm
from stability.search.solvers.multiplier_program import multiplier_lmi
from stability.search.solvers.state_space import StateSpace
from stability.systems import LureSystem
from stability.verification import verify_claim


def random_system(rng, discrete, slope=(0.0, 1.0), gain=None, D=False):
    n, m = (int(x) for x in rng.integers(1, 6, size=2))
    A = rng.normal(size=(n, n))
    eigenvalues = np.linalg.eigvals(A)
    A = 0.7 * A / np.abs(eigenvalues).max() if discrete else A - (eigenvalues.real.max() + 0.5) * np.eye(n)
    B, C = rng.normal(size=(n, m)), rng.normal(size=(m, n))
    dt = 1.0 if discrete else None
    direct = np.tril(rng.normal(size=(m, m)), -1) if D else np.zeros((m, m))
    if gain is not None:
        scale = gain / hinf_norm(A, B, C, direct, dt)
        C, direct = scale * C, scale * direct
    return LureSystem(A, B, C, direct, slope, dt)


def decay(system, K):
    eigenvalues = np.linalg.eigvals(system.jacobian(K))
    return np.abs(eigenvalues).max() if system.is_discrete else eigenvalues.real.max()


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("D", [False, True])
def test_it_holds_where_the_gain_is_below_one(rng, discrete, D):
    for gain in (0.3, 0.97, 1.03, 3.0):
        system = random_system(rng, discrete, gain=gain, D=D)
        finding = circle_criterion(system, rate="any")
        assert bool(finding.witness) == finding.holds == (gain < 1)
        assert finding.margin == pytest.approx(1 - gain, abs=1e-8)
        if finding.holds:
            assert check_lmi(system, finding.witness["P"], finding.witness["L"], finding.rate)[0]


@pytest.mark.parametrize("slope", [(0, 1), (-1, 1), (-0.5, 1), (0.1, 0.25), (1, 1), (-0.3, -0.2), (0, 0)])
@pytest.mark.parametrize("discrete", [False, True])
def test_rate_is_sound_for_every_slope_interval(rng, slope, discrete):
    system = random_system(rng, discrete, slope, gain=0.8 / max(abs(slope[0]), abs(slope[1]), 0.5))
    found = circle_criterion(system)
    assert found.holds
    assert check_lmi(system, found.witness["P"], found.witness["L"], found.rate)[0]
    limit = found.rate if discrete else -found.rate
    for _ in range(30):
        assert decay(system, rng.uniform(system.alpha, system.beta)) <= limit + 1e-9


@pytest.mark.parametrize(
    ("a", "c", "dt", "best"), [(-2.0, 1.5, None, 0.5), (0.3, 0.5, 1.0, 0.8), (-0.2, 0.7, 1.0, 0.9)]
)
def test_scalar_rate_by_hand(a, c, dt, best):
    """For slopes [-1, 1] and one state the circle criterion is exact: |a| + |c| or a + |c|."""
    found = circle_criterion(LureSystem([[a]], [[1.0]], [[c]], slope=(-1, 1), dt=dt))
    assert found.rate == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("discrete", [False, True])
def test_best_rate_is_the_boundary_of_the_shifted_norm(rng, discrete):
    system = random_system(rng, discrete, gain=0.6)
    rate = circle_criterion(system).rate
    for shift, below in ((1e-4, True), (-1e-4, False)):
        at = rate + shift if discrete else rate - shift
        A = system.A / at if discrete else system.A + at * np.eye(system.states)
        B = system.B / at if discrete else system.B
        assert (hinf_norm(A, B, system.C, dt=system.dt) < 1) == below
        assert circle_criterion(system, rate=at).holds == below


def test_implications(rng):
    """theorem 1 (a) => circle => multiplier; circle => kyp for slopes from 0 (the smaller sector)."""
    seen = 0
    for _ in range(20):
        n = int(rng.integers(1, 5))
        A, W = rng.normal(size=(2, n, n))
        A = A - (np.linalg.eigvalsh(0.5 * (A + A.T))[-1] + 1.0) * np.eye(n)
        W = W * rng.uniform(0.3, 2.0) / np.linalg.norm(W, 2)
        system = LureSystem.recurrent(A, W)
        first, circle = theorem1(A, W).a, circle_criterion(system)
        if first.holds:
            assert circle.holds
            assert circle.rate >= first.rate - 1e-6
        if circle.holds:
            seen += 1
            assert kyp_criterion(system, rate="any").holds
            assert multiplier_lmi(system, max(circle.rate - 1e-6, 0.0)).feasible
    assert seen >= 5


def test_lipschitz_constant_argument(rng):
    system = random_system(rng, False, gain=0.4)
    wider = circle_criterion(system, M=2.0)
    assert wider.holds
    assert wider.margin == pytest.approx(0.5 - 0.4, abs=1e-8)
    assert not circle_criterion(system, M=3.0).holds
    for M in (0.5, -1.0, np.nan, "x", True):
        with pytest.raises(ConfigurationError):
            circle_criterion(system, M=M)


def test_unstable_linear_part_and_bad_options():
    unstable = LureSystem([[1.0]], [[1.0]], [[-5.0]])
    found = circle_criterion(unstable)
    assert not found.holds
    assert found.margin == pytest.approx(-1.0)
    with pytest.raises(ConfigurationError):
        circle_criterion(unstable, rate="fast")
    assert circle_criterion(LureSystem.linear([[-1.0]])).holds  # no channel: nothing to fear


def test_larger_systems_climb_by_riccati(rng):
    n = 70
    W = rng.normal(size=(n, n))
    system = LureSystem.recurrent(-np.eye(n), 0.5 * W / np.linalg.norm(W, 2))
    found = circle_criterion(system)
    assert 0.49 <= found.rate <= 0.7
    assert check_lmi(system, found.witness["P"], found.witness["L"], found.rate)[0]


def test_nested_multiplier_is_the_s_lemma(rng):
    """t q_inner <= q_outer as quadratic forms, so no (w, z) may violate it."""
    for _ in range(200):
        a, alpha, beta, b = np.sort(rng.normal(size=(4, 1)), axis=0)
        t = nested_multiplier((a, b), (alpha, beta))
        w, z = rng.normal(size=(2, 200))
        outer, inner = 2 * (w - a * z) * (b * z - w), 2 * (w - alpha * z) * (beta * z - w)
        assert (t * inner <= outer + 1e-7 * (1 + t) * (w * w + z * z) * (1 + b * b + a * a)).all()


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize(("m", "p"), [(2, 2), (1, 3), (3, 1)])
def test_the_slack_of_the_bounded_real_inequality_has_the_sign_of_its_matrix(discrete, m, p, rng):
    n, seen = 3, []
    A = rng.normal(size=(n, n)) / 4 - (0.0 if discrete else 2.0) * np.eye(n)
    for scale in np.geomspace(0.02, 3.0, 40):
        B, C, D = (scale * rng.normal(size=shape) for shape in ((n, m), (p, n), (p, m)))
        step, output = np.hstack([A, B]), np.hstack([C, D])
        energy = step.T @ step if discrete else np.vstack([step, np.zeros((m, n + m))])
        energy = energy - np.diag([1.0] * n + [0.0] * m) if discrete else energy + energy.T
        form = energy + output.T @ output - np.diag([0.0] * n + [1.0] * m)
        slack = bounded_real_slack(StateSpace(A, B, C, D, discrete), np.eye(n))
        assert (slack > 0) == (np.linalg.eigvalsh(form)[-1] < 0)
        seen.append(slack > 0)
    assert 5 < sum(seen) < 35


EXTREME = {
    "huge": LureSystem([[-1e300]], [[1e300]], [[1e300]]),
    "tiny": LureSystem([[-1e-300]], [[1e-300]], [[1e-300]]),
    "mixed": LureSystem([[-1.0, 1e200], [1e-200, -1e250]], np.eye(2), [[1e-250, 0.0], [1e100, 1e-100]]),
    "zero": LureSystem(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2))),
    "no slope": LureSystem([[-1.0]], [[1.0]], [[1.0]], slope=(0, 1e-300)),
    "wide slope": LureSystem([[-1.0]], [[1.0]], [[1.0]], slope=(-1e200, 1e300)),
    "huge map": LureSystem([[0.5, 1e300], [0.0, -0.5]], [[1.0], [1e-300]], [[1e-300, 1e300]], dt=1.0),
}


@pytest.mark.parametrize("name", EXTREME)
def test_extreme_entries_get_an_answer_and_never_a_wrong_witness(name):
    system = EXTREME[name]
    for question in (
        circle_criterion,
        kyp_criterion,
        linear_criterion,
        lambda s: theorem1_system(s).a,
        lambda s: theorem1_system(s).b_sound,
    ):
        found = question(system)
        if found.witness:
            assert found.holds
            assert check_lmi(system, found.witness["P"], found.witness["L"], found.rate)[0]
    result = multiplier_lmi(system, 0.9)
    assert result.status in ("feasible", "infeasible", "inconclusive")
    assert result.P is None or np.isfinite(result.P).all()
    gain = incremental_gain(system)
    assert gain.value == np.inf or verify_claim(system, gain.claim).valid
