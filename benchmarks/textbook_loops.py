"""Thirty control loops from textbooks: stable, integrating, unstable and conditionally stable, of 2 to 12 states."""

from __future__ import annotations

import numpy as np
from numpy.polynomial.polynomial import polyfromroots
from scipy.signal import cont2discrete, tf2ss

Array = np.ndarray


def poles(*roots: complex) -> Array:
    """Return the coefficients of a polynomial with these roots, the highest power first."""
    return polyfromroots(roots)[::-1].real


def delay(time: float, order: int) -> tuple[Array, Array]:
    """Return numerator and denominator of the Padé approximation of ``exp(-time s)``."""
    c = [1.0]
    for k in range(1, order + 1):
        c.append(c[-1] * (order - k + 1) / (k * (2 * order - k + 1)))
    denominator = np.array([c[k] * time**k for k in range(order, -1, -1)])
    return denominator * (-1.0) ** np.arange(order, -1, -1), denominator


def series(*parts: tuple[Array | list[float], Array | list[float]]) -> tuple[Array, Array]:
    """Return numerator and denominator of transfer functions in series."""
    num, den = np.ones(1), np.ones(1)
    for n, d in parts:
        num, den = np.polymul(num, n), np.polymul(den, d)
    return num, den


LOOPS = {
    # stable plants
    "three lags": ([1.0], poles(-1, -1, -1), (0.0, 1.0), None),
    "three lags, constant gain": ([1.0], poles(-1, -1, -1), (1.0, 1.0), None),
    "four lags": ([1.0], poles(-1, -1, -1, -1), (0.0, 1.0), None),
    "eight lags": ([1.0], poles(*[-1.0] * 8), (0.2, 1.0), None),
    "three spread lags": ([1e3], poles(-1, -10, -100), (0.0, 2.0), None),
    "lags of ratio 2, 8 states": ([2.0**28], poles(*(-(2.0**k) for k in range(8))), (0.5, 1.0), None),
    "right zero": ([-0.5, 1.0], poles(-1, -1, -1), (0.0, 1.0), None),
    "resonance": ([1.0], np.polymul([1.0, 0.2, 1.0], [1.0, 1.0]), (0.0, 0.3), None),
    "resonance, constant gain": ([1.0], np.polymul([1.0, 0.2, 1.0], [1.0, 1.0]), (0.3, 0.3), None),
    "two resonances": (poles(-0.1 + 2j, -0.1 - 2j), np.polymul([1.0, 0.2, 1.0], [1.0, 0.3, 9.0]), (0.1, 0.5), None),
    "lag and delay, 6 states": (*series(([2.0], [5.0, 1.0]), delay(1.0, 5)), (0.0, 1.0), None),
    "lag and delay, constant gain, 9 states": (*series(([2.0], [5.0, 1.0]), delay(1.0, 8)), (1.0, 1.0), None),
    "PI control of lag and delay, 12 states": (
        *series(([4.0, 1.0], [5.0, 0.0]), ([1.0], [4.0, 1.0]), delay(1.0, 10)), (0.5, 1.0), None,
    ),
    # integrators
    "motor": ([1.0], [1.0, 1.0, 0.0], (0.5, 1.0), None),
    "integrator and two lags": ([2.0], [1.0, 3.0, 2.0, 0.0], (1.0, 1.0), None),
    "integrator and two lags, sector": ([2.0], [1.0, 3.0, 2.0, 0.0], (0.5, 1.0), None),
    "integrator and two lags, sampled": ([2.0], [1.0, 3.0, 2.0, 0.0], (1.0, 1.0), 0.05),
    "integrator and delay, 5 states": (*series(([0.5], [1.0, 0.0]), delay(1.0, 4)), (0.6, 1.0), None),
    "double integrator with lead": ([3.0, 1.0], np.polymul([1.0, 0.0, 0.0], [0.2, 1.0]), (0.5, 1.0), None),
    "PID control of three lags": (
        *series(([1.0, 2.0, 0.8], [0.1, 1.0, 0.0]), ([1.0], poles(-1, -1, -1))), (0.8, 1.2), None,
    ),
    "flexible arm": (*series(([1.0, 0.1, 1.5], [1.0, 0.1, 2.0]), ([0.5], [1.0, 1.0, 0.0])), (0.7, 1.0), None),
    # unstable plants
    "unstable pole, 2 states": ([4.0], poles(1, -4), (2.0, 3.0), None),
    "unstable pole and lags": ([40.0], poles(1, -5, -10), (2.0, 2.5), None),
    "unstable pole, sampled": ([4.0], poles(1, -4), (2.0, 2.0), 0.05),
    "inverted pendulum with PD": ([10.0, 20.0], np.polymul([1.0, 0.0, -9.81], [0.01, 1.0]), (0.8, 1.0), None),
    "levitation with lead": ([9.0, 27.0], np.polymul([1.0, 0.0, -1.0], [0.05, 1.0]), (0.3, 0.5), None),
    # conditionally stable
    "three integrators": ([1.0, 0.5, 0.05], [1.0, 0.0, 0.0, 0.0], (1.0, 1.0), None),
    "three integrators, sector": ([1.0, 0.5, 0.05], [1.0, 0.0, 0.0, 0.0], (0.5, 1.0), None),
    "unstable pole with a band of gains": (
        [1.0, 1.0], np.polymul([1.0, -1.0, 0.0], [1.0, 4.0, 16.0]), (30.0, 30.0), None,
    ),
    "three integrators and delay, 7 states": (
        *series(([1.0, 0.5, 0.05], [1.0, 0.0, 0.0, 0.0]), delay(0.05, 4)), (0.9, 1.1), None,
    ),
}  # fmt: skip
"""Numerator, denominator, slopes and sampling step of each plant; the feedback is negative."""


def plant(name: str) -> tuple[tuple[Array, ...], tuple[float, float]]:
    """Return ``(A, B, C, D[, dt])`` and the slopes of a loop."""
    numerator, denominator, slope, dt = LOOPS[name]
    matrices = tf2ss(np.atleast_1d(numerator), denominator)
    return (matrices if dt is None else cont2discrete(matrices, dt)), slope
