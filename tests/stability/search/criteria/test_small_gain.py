from __future__ import annotations

import numpy as np
import pytest

from stability.errors import ConfigurationError
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.small_gain import bounded_real_slack, circle_criterion
from stability.search.solvers.hinf import hinf_norm
from stability.search.solvers.state_space import StateSpace
from stability.systems import LureSystem


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


def test_unstable_linear_part_and_bad_options():
    unstable = LureSystem([[1.0]], [[1.0]], [[-5.0]])
    found = circle_criterion(unstable)
    assert not found.holds
    assert found.margin == pytest.approx(-1.0)
    with pytest.raises(ConfigurationError):
        circle_criterion(unstable, rate="fast")
    assert circle_criterion(LureSystem.linear([[-1.0]])).holds  # no channel: nothing to fear


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
