"""Proved brackets of the spectrum, small and large, and the claim of non-expansiveness against forgeries."""

from __future__ import annotations

import numpy as np
import pytest

from stability.search.solvers.spectral_bounds import spectrum_bracket


@pytest.mark.parametrize("n", [1, 7, 420])
def test_bracket_contains_the_spectrum_and_is_not_loose(n, rng):
    q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    p = (q * np.geomspace(1.0, 50.0, n)) @ q.T
    p = 0.5 * (p + p.T)
    low, high, overshoot = spectrum_bracket(p)
    values = np.linalg.eigvalsh(p)
    assert 0 < low < values[0]
    assert values[-1] < high
    assert np.sqrt(values[-1] / values[0]) <= overshoot <= 2.0 * np.sqrt(values[-1] / values[0])


@pytest.mark.parametrize("n", [3, 420])
def test_no_bracket_without_positive_definiteness(n):
    p = np.eye(n)
    p[0, 0] = -1.0
    assert spectrum_bracket(p) is None
    assert spectrum_bracket(np.zeros((n, n))) is None
