from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import block_diag, expm

from stability.errors import ConfigurationError, DimensionError, NonFiniteError
from stability.search.solvers import hinf
from stability.search.solvers.hinf import hinf_norm, hinf_peak
from stability.search.solvers.positive_real import _hamiltonian_values, _pencil_values, positivity_margin
from stability.search.solvers.state_space import StateSpace
from stability.search.solvers.transfer_function import state_space

slycot = pytest.importorskip("slycot")


def oracle(A, B, C, D, discrete):
    """SLICOT's AB13DD."""
    n, m, p = len(A), B.shape[1], C.shape[0]
    return slycot.ab13dd("D" if discrete else "C", "I", "S", "D", n, m, p, A, np.eye(n), B, C, D, tol=1e-11)[0]


def response(A, B, C, D, omega, discrete):
    """G at one frequency, the slow and obvious way."""
    if np.isinf(omega):
        return D.astype(complex)
    point = np.exp(1j * omega) if discrete else 1j * omega
    return C @ np.linalg.solve(point * np.eye(len(A)) - A, B) + D


def system(rng, n, m, p, discrete, damping):
    A = rng.normal(size=(n, n))
    eigenvalues = np.linalg.eigvals(A)
    if discrete:
        A = A / np.abs(eigenvalues).max() * (1 - damping)
    else:
        A = A - (eigenvalues.real.max() + damping) * np.eye(n)
    return A, rng.normal(size=(n, m)), rng.normal(size=(p, n)), rng.normal(size=(p, m))


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("damping", [0.5, 1e-2, 1e-5])
def test_agrees_with_slicot_and_is_attained(rng, discrete, damping):
    dt = 1.0 if discrete else None
    for _ in range(12):
        n, m, p = (int(x) for x in rng.integers(1, 9, size=3))
        A, B, C, D = system(rng, n, m, p, discrete, damping)
        D = D * float(rng.choice([0.0, 1.0, 100.0]))
        peak = hinf_peak(state_space(A, B, C, D, dt))
        reference = oracle(A, B, C, D, discrete)
        # with a dominant direct term SLICOT stops up to 3e-5 short; being attained decides there
        assert peak.norm >= reference * (1 - 1e-6)
        assert peak.norm <= reference * (1 + 1e-6) or np.linalg.norm(D) > 50
        G = response(A, B, C, D, peak.omega, discrete)
        assert np.linalg.norm(G, 2) == pytest.approx(peak.norm, rel=1e-7)
        grid = np.linspace(0, np.pi, 200) if discrete else np.geomspace(1e-3, 1e3, 200)
        assert all(np.linalg.norm(response(A, B, C, D, w, discrete), 2) <= peak.norm * (1 + 1e-9) for w in grid)


@pytest.mark.parametrize("discrete", [False, True])
def test_lightly_damped_hundred_states(rng, discrete):
    frequency, damping = np.sort(rng.uniform(0.1, 3.0, 50)), 10 ** rng.uniform(-5, -2, 50)
    A = block_diag(*[np.array([[-d, w], [-w, -d]]) for d, w in zip(damping, frequency)])
    A = expm(A) if discrete else A
    Q = np.linalg.qr(rng.normal(size=(100, 100)))[0]
    A, B, C, D = Q @ A @ Q.T, rng.normal(size=(100, 3)), rng.normal(size=(2, 100)), rng.normal(size=(2, 3))
    found = hinf_norm(A, B, C, D, 1.0 if discrete else None)
    assert found == pytest.approx(oracle(A, B, C, D, discrete), rel=1e-6)


def test_many_channels_use_estimates_and_agree(rng):
    A, B, C, D = system(rng, 60, 60, 60, False, 0.1)
    assert hinf_norm(A, B, C, 0.1 * D) == pytest.approx(oracle(A, B, C, 0.1 * D, False), rel=1e-6)


@pytest.mark.parametrize("zeta", [0.5, 0.05, 1e-3, 1e-6])
def test_resonator_in_closed_form(zeta):
    peak = hinf_peak(state_space([[0, 1], [-1, -2 * zeta]], [[0], [1]], [[1, 0]]))
    assert peak.norm == pytest.approx(1 / (2 * zeta * np.sqrt(1 - zeta**2)), rel=1e-8)
    assert peak.omega == pytest.approx(np.sqrt(1 - 2 * zeta**2), rel=1e-6)


@pytest.mark.parametrize(
    ("A", "B", "C", "D", "dt", "norm"),
    [
        ([[-2.0]], [[1.0]], [[1.0]], None, None, 0.5),
        ([[-1.0]], [[1.0]], [[-2.0]], [[1.0]], None, 1.0),  # all-pass (s - 1) / (s + 1)
        ([[-1.0]], [[1.0]], [[0.0]], [[3.0]], None, 3.0),  # direct term alone
        ([[-1.0]], [[0.0]], [[1.0]], None, None, 0.0),
        ([[-1.0]], [[1.0]], [[1.0]], [[5.0]], None, 6.0),
        ([[-1.0]], [[1.0]], [[1.0]], [[-5.0]], None, 5.0),  # reached at infinity only
        ([[0.5]], [[1.0]], [[1.0]], None, 1.0, 2.0),
        ([[-0.999]], [[1.0]], [[1.0]], None, 1.0, 1000.0),  # a pole beside -1
        ([[0.0]], [[1.0]], [[1.0]], None, 1.0, 1.0),  # a delay
        ([[0.0, 1.0], [0.0, 0.0]], np.eye(2), np.eye(2), None, 1.0, (1 + np.sqrt(5)) / 2),  # nilpotent
    ],
)
def test_known_norms(A, B, C, D, dt, norm):
    assert hinf_norm(A, B, C, D, dt) == pytest.approx(norm, rel=1e-9)


def test_unstable_is_infinite_and_no_channels_is_zero():
    assert hinf_norm([[0.0]], [[1.0]], [[1.0]]) == np.inf
    assert hinf_norm([[1.0]], [[1.0]], [[1.0]], dt=0.1) == np.inf
    assert hinf_norm([[1.0]], [[0.0]], [[0.0]]) == np.inf  # a hidden unstable mode counts
    assert hinf_norm([[-1.0]], np.zeros((1, 0)), np.zeros((0, 1))) == 0.0


@pytest.mark.parametrize("discrete", [False, True])
def test_invariances(rng, discrete):
    A, B, C, D = system(rng, 6, 3, 2, discrete, 0.01)
    dt = 1.0 if discrete else None
    norm = hinf_norm(A, B, C, D, dt)
    t = 10.0 ** rng.uniform(-5, 5, 6)
    assert hinf_norm(A * t / t[:, None], B / t[:, None], C * t, D, dt) == pytest.approx(norm, rel=1e-6)
    assert hinf_norm(A.T, C.T, B.T, D.T, dt) == pytest.approx(norm, rel=1e-8)
    assert hinf_norm(A, 1e3 * B, C, 1e3 * D, dt) == pytest.approx(1e3 * norm, rel=1e-8)
    twice = hinf_norm(block_diag(A, A), block_diag(B, B), block_diag(C, C), block_diag(D, D), dt)
    assert twice == pytest.approx(norm, rel=1e-8)  # every imaginary eigenvalue twice
    if not discrete:
        assert hinf_norm(1e6 * A, 1e6 * B, C, D) == pytest.approx(norm, rel=1e-8)  # another unit of time


def test_bad_input():
    with pytest.raises(DimensionError):
        hinf_norm(np.ones((2, 3)), np.ones((2, 1)), np.ones((1, 2)))
    with pytest.raises(DimensionError):
        hinf_norm(-np.eye(2), np.ones((2, 1)), np.ones((1, 3)))
    with pytest.raises(NonFiniteError):
        hinf_norm([[np.nan]], [[1.0]], [[1.0]])
    with pytest.raises(ConfigurationError):
        hinf_norm([[1j]], [[1.0]], [[1.0]])
    with pytest.raises(ConfigurationError):
        hinf_norm([[-1.0]], [[1.0]], [[1.0]], rtol=0.0)


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_extreme_entries(scale):
    assert hinf_norm([[-2.0 * scale]], [[scale]], [[1.0]]) == pytest.approx(0.5, rel=1e-9)
    assert hinf_norm([[-2.0]], [[scale]], [[1.0 / scale]]) == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize("discrete", [False, True])
def test_the_hamiltonian_matrix_has_the_finite_eigenvalues_of_the_pencil(rng, discrete):
    A, B, C, D = system(rng, 5, 3, 3, discrete, 0.3)
    R = D + D.T + 5.0 * np.eye(3)
    G = StateSpace(A, B, C, D, discrete)
    found, pencil = _hamiltonian_values(G, R), _pencil_values(G, R)
    pencil = pencil[np.isfinite(pencil)]
    assert len(found) == len(pencil) == 10
    assert np.abs(found[:, None] - pencil[None, :]).min(axis=0).max() < 1e-9
    assert np.abs(found[:, None] - pencil[None, :]).min(axis=1).max() < 1e-9
    singular = np.diag([1.0, 1.0, 0.0])
    assert discrete or _hamiltonian_values(G, singular) is None


@pytest.mark.parametrize("discrete", [False, True])
def test_positivity_is_the_minimum_over_frequencies(rng, discrete):
    for _ in range(15):
        n, m = (int(x) for x in rng.integers(1, 6, size=2))
        A, B, C, D = system(rng, n, m, m, discrete, 0.3)
        D = D @ D.T * 10 ** rng.uniform(-1, 1)
        found = positivity_margin(StateSpace(A, B, C, D, discrete))
        grid = np.linspace(0, np.pi, 300) if discrete else np.concatenate([[0, np.inf], np.geomspace(1e-2, 1e3, 300)])
        values = [np.linalg.eigvalsh(G + G.conj().T)[0] for G in (response(A, B, C, D, w, discrete) for w in grid)]
        assert found.margin <= min(values) + 1e-9
        assert found.margin >= min(values) - 0.3 * (1 + abs(min(values)))  # the grid misses narrow dips only
        G = response(A, B, C, D, found.omega, discrete)
        assert np.linalg.eigvalsh(G + G.conj().T)[0] == pytest.approx(found.margin, abs=1e-7)


@pytest.mark.parametrize("discrete", [False, True])
def test_a_chart_is_the_same_transfer_matrix_in_another_variable(rng, discrete):
    """Level sets are computed in the chart, the peak is evaluated outside: both have to be one function."""
    for pole in (-1.0 + 0j, 1.0 + 0j, np.exp(0.7j)) if discrete else (0j, 0.3j):
        A, B, C, D = system(rng, 4, 2, 3, discrete, 0.3)
        chart = hinf._chart(state_space(A, B, C, D, 1.0 if discrete else None), pole)
        for imaginary in (-2.0, 0.37, 5.0):
            there = np.linalg.solve(1j * imaginary * np.eye(4) - chart.A, chart.B)
            seen = np.linalg.norm(chart.C @ there + chart.D, 2)
            omega = float(chart.omegas(np.array([imaginary]))[0])
            both = [np.linalg.norm(response(A, B, C, D, w, discrete), 2) for w in (omega, -omega)]
            assert min(abs(seen - x) for x in both) <= 1e-9 * seen
