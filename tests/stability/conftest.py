"""Judges in rational arithmetic, which share nothing with the checker; shared modules of these tests are importable."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # specimens.py, local_specimens.py and the like


def exactly(values) -> np.ndarray:
    """The same numbers as ``Fraction`` objects."""
    return np.vectorize(lambda x: Fraction(float(x)), otypes=[object])(np.asarray(values, dtype=np.float64))


def is_definite(matrix: np.ndarray) -> bool:
    """Positive definiteness by elimination in rationals: all pivots are positive."""
    work = [list(map(Fraction, row)) for row in matrix]
    for k, row in enumerate(work):
        if row[k] <= 0:
            return False
        for below in work[k + 1 :]:
            factor = below[k] / row[k]
            for j in range(k, len(work)):
                below[j] -= factor * row[j]
    return True


def bisect(accepts, good: float, bad: float) -> float:
    """The last accepted float between one that is accepted and one that is refused."""
    assert accepts(good), "nothing is accepted: the law would be empty"
    assert not accepts(bad), "everything is accepted: there is no edge here"
    while (middle := good + 0.5 * (bad - good)) not in (good, bad):
        good, bad = (middle, bad) if accepts(middle) else (good, middle)
    return good


def discretised(system) -> list[np.ndarray]:
    """``A, B, C, D`` of a system in rationals; those of a discretised one by the scheme applied to the ODE's.

    One step of the midpoint rule evaluates the right-hand side at x and at x + dt/2 f(x): its channels are both.
    """
    if system.origin is None:
        return [exactly(x) for x in (system.A, system.B, system.C, system.D)]
    base, dt = system.origin.base, Fraction(system.origin.dt)
    a, b, c, d = (exactly(x) for x in (base.A, base.B, base.C, base.D))
    n, m = b.shape
    one, none = exactly(np.eye(n)), exactly(np.zeros((n, m)))
    if system.origin.method == "euler":
        return [one + dt * a, dt * b, c, d]
    half_state, half_channel = one + dt / 2 * a, dt / 2 * b  # x + dt/2 (A x + B w1)
    zero = exactly(np.zeros((m, m)))
    return [
        one + dt * (a @ half_state),
        np.hstack([dt * (a @ half_channel), dt * b + none]),
        np.vstack([c, c @ half_state]),
        np.vstack([np.hstack([d, zero]), np.hstack([c @ half_channel, d])]),
    ]


def dissipation(system, P, L, rate, gain=None) -> np.ndarray:
    """Minus the matrix of the multiplier inequality, from its quadratic form in (x, w) or (x, w, u).

    ``gain``: ``(E, F, H, g)`` adds an input, its cost ``-g^2 |u|^2`` and the output ``|H x|^2``.
    """
    a, b, c, d = discretised(system)
    p, weights, r = exactly(P), exactly(L), Fraction(float(rate))
    alpha, beta = exactly(system.alpha), exactly(system.beta)
    n, m = b.shape
    k = 0 if gain is None else gain[1].shape[1]
    total = n + m + k
    rows = exactly(np.eye(total))
    x, w, u = rows[:n], rows[n : n + m], rows[n + m :]
    after = a @ x + b @ w
    z = c @ x + d @ w
    if gain is not None:
        e, f, h, g = exactly(gain[0]), exactly(gain[1]), gain[2], Fraction(float(gain[3]))
        after, z = after + f @ u, z + e @ u
    if system.is_discrete:
        form = after.T @ p @ after - r * r * (x.T @ p @ x)
    else:
        form = x.T @ p @ after + after.T @ p @ x + 2 * r * (x.T @ p @ x)
    sector = (w - alpha[:, None] * z).T @ (weights[:, None] * (beta[:, None] * z - w))
    form = form + sector + sector.T
    if gain is not None:
        form = form - g * g * (u.T @ u)
        if h is not None:
            form = form + x.T @ exactly(h).T @ exactly(h) @ x
    return -form


@pytest.fixture(scope="session")
def exact() -> SimpleNamespace:
    return SimpleNamespace(
        of=exactly, is_definite=is_definite, bisect=bisect, discretised=discretised, dissipation=dissipation
    )
