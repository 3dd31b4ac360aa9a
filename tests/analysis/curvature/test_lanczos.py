"""The Lanczos iteration against matrices whose spectrum is known."""

from __future__ import annotations

import numpy as np
import pytest

from stability.analysis.curvature.lanczos import lanczos, random_direction


def test_lanczos_has_an_orthonormal_basis_and_no_ghosts(rng):
    values = np.concatenate([np.linspace(-1, 1, 60), [40.0, 41.0]])
    q, _ = np.linalg.qr(rng.standard_normal((62, 62)))
    matrix = q @ np.diag(values) @ q.T
    krylov = lanczos(matrix.dot, random_direction(62, rng), 62)
    assert krylov.basis @ krylov.basis.T == pytest.approx(np.eye(krylov.steps), abs=1e-12)
    assert krylov.ritz()[0] == pytest.approx(values, abs=1e-10)
    few = lanczos(matrix.dot, random_direction(62, rng), 12)
    ritz, vectors = few.ritz()
    for i in range(12):
        v = vectors[:, i] @ few.basis
        assert np.linalg.norm(matrix @ v - ritz[i] * v) == pytest.approx(abs(few.residual * vectors[-1, i]), abs=1e-10)
    early = lanczos(matrix.dot, random_direction(62, rng), 62, tol=1e-3)
    assert early.steps < 62
    assert early.ritz()[0][[0, -1]] == pytest.approx([-1, 41], abs=0.05)


def test_lanczos_stops_in_an_invariant_space(rng):
    v = rng.standard_normal(8)
    matrix = np.outer(v, v)
    krylov = lanczos(matrix.dot, rng.standard_normal(8), 8)
    assert krylov.steps == 2
    assert krylov.residual == 0
    assert krylov.ritz()[0] == pytest.approx([0, v @ v], abs=1e-12)
