from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import block_diag

from stability.search.solvers.hinf import hinf_norm, hinf_peak
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


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_extreme_entries(scale):
    assert hinf_norm([[-2.0 * scale]], [[scale]], [[1.0]]) == pytest.approx(0.5, rel=1e-9)
    assert hinf_norm([[-2.0]], [[scale]], [[1.0 / scale]]) == pytest.approx(0.5, rel=1e-9)
