"""A dual matrix that rules out a rate: on scalar systems what it may rule out is known exactly.

For ``Z = [[1, t], [t, w]]`` the two numbers that must be positive are ``S`` (state) and ``q`` (channel); the function
first adds some ``s I`` with ``s >= 0`` to ``Z``, so every law here is one that holds for each such ``s``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stability.solve.forms import dual_slack
from stability.systems import LureSystem

TINY = Fraction(1, 2**45)


@pytest.mark.parametrize("weak", [1e-5, 0.5])
def test_no_flow_is_ruled_out_at_a_rate_that_it_has(weak, exact, rng):
    """``x' = -a x + b phi(c x)``: ``S = 2 (b t - (a - rate) (1 + s))``, so a rate below ``a - b t`` is none."""
    for a, b, c in rng.uniform(0.5, 2.0, (60, 3)):
        b, t = b * weak, 0.5 * c
        Z = np.array([[1.0, t], [t, 0.375 * c * c]])
        system = LureSystem([[-a]], [[b]], [[c]])
        least = exact.bisect(lambda rate, s=system, Z=Z: dual_slack(s, Z, rate) > 0, 2.0 * a, -10.0)
        edge = Fraction(a) - Fraction(b) * Fraction(t)
        assert edge <= Fraction(least) <= edge + TINY


@pytest.mark.parametrize("weak", [1e-5, 0.2])
def test_no_map_is_ruled_out_at_a_rate_that_it_has(weak, exact, rng):
    """``x+ = a x + b phi(c x)``: ``S = a^2 + 2 a b t + b^2 w - rate^2`` but for ``s``, which adds ``b^2 s`` at most."""
    for a, b, c in rng.uniform(0.2, 0.8, (60, 3)):
        b, t = b * weak, 0.5 * c
        Z = np.array([[1.0, t], [t, 0.375 * c * c]])
        system = LureSystem([[a]], [[b]], [[c]], dt=1.0)
        last = exact.bisect(lambda rate, s=system, Z=Z: dual_slack(s, Z, rate) > 0, 0.0, 2.0)
        a, b, t, w = map(Fraction, (a, b, t, Z[1, 1]))
        edge = a * a + 2 * a * b * t + b * b * w
        assert edge - TINY <= Fraction(last) ** 2 <= edge + b * b * Fraction(1, 2**48)


@pytest.mark.parametrize("slope", [(-1.0, 1.0), (-0.5, 2.0)])
def test_no_multiplier_is_ruled_out_that_would_do(slope, exact, rng):
    """With ``t = 0`` and slopes of product -1, ``q = 2 (c^2 (1 + s) - w - s)``: positive below ``w = c^2`` near 1."""
    for c in rng.uniform(1.0, 1.001, 150 if slope == (-1.0, 1.0) else 20):
        system = LureSystem([[-1.0]], [[1e-3]], [[c]], slope=slope)
        largest = exact.bisect(lambda w, s=system: dual_slack(s, np.array([[1.0, 0.0], [0.0, w]]), 3.0) > 0, 0.5, 2.0)
        edge = Fraction(c) ** 2
        if slope == (-1.0, 1.0):
            assert Fraction(largest) <= edge + Fraction(1, 2**60)
        assert edge - 4 * TINY <= Fraction(largest) <= edge + Fraction(1, 2**50)


def test_the_loop_through_the_channel_counts(exact, rng):
    """``v = c x + d w``: with slopes in [0, 1], ``q = 2 (c t - (1 - d) (w + s))``, positive below ``c t / (1 - d)``."""
    for c, d, share in rng.uniform(0.2, 0.8, (30, 3)):
        t = share * c / (1 - d)  # below it there is room between t^2 and the edge
        system = LureSystem([[-1.0]], [[1e-3]], [[c]], [[d]])
        largest = exact.bisect(
            lambda w, s=system, t=t: dual_slack(s, np.array([[1.0, t], [t, w]]), 3.0) > 0, 1.01 * t * t, 10.0
        )
        edge = Fraction(c) * Fraction(t) / (1 - Fraction(d))
        assert edge - 1024 * TINY <= Fraction(largest) <= edge


def test_an_indefinite_matrix_is_shifted_first():
    """``[[1, 2], [2, 1]]`` is no dual: only with ``I`` added, which undoes the effect of its corner."""
    system = LureSystem([[-1.0]], [[1.0]], [[4.0]])
    assert dual_slack(system, np.array([[1.0, 2.0], [2.0, 4.0]]), 0.0) > 0
    assert dual_slack(LureSystem([[-1.2]], [[1.0]], [[4.0]]), np.array([[1.0, 2.0], [2.0, 1.0]]), 0.0) < 0


def test_what_is_not_finite_rules_nothing_out():
    system = LureSystem([[-1.0]], [[1.0]], [[0.5]])
    assert dual_slack(system, np.full((2, 2), np.nan), 0.0) == -np.inf
