"""Gains over steps at their edge: the least accepted gain is true in rationals, step by step, for its storages."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from stretched import watched

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.theorems import gain_lmi
from stability.kernel.theorems.gain_steps import check_steps, storages
from stability.systems import LureSystem

KINDS = ("map", "euler", "midpoint")
STEPS = 3


def skewed(seed: int, kind: str, spread: float, slope=(0.0, 1.0)):
    """A system with input and output in coordinates stretched by ``10**spread``, and multipliers for three steps."""
    rng = np.random.default_rng(seed)
    n, m, p = 2, 2, 1
    turn = np.linalg.qr(rng.normal(size=(n, n)))[0] @ np.diag([1.0, 10.0**-spread])
    back = np.linalg.inv(turn)
    a = (0.4 if kind == "map" else 1.0) * (-np.eye(n) + 0.3 * rng.normal(size=(n, n)))
    b, c = rng.normal(size=(n, m)), rng.normal(size=(m, n))
    e, f, h = 0.5 * rng.normal(size=(m, p)), rng.normal(size=(n, p)), rng.normal(size=(2, n))
    system = LureSystem(turn @ a @ back, turn @ b, c @ back, slope=slope, dt=1.0 if kind == "map" else None)
    if kind != "map":
        system, e = system.discretise(kind, 0.2), np.vstack([e] * (2 if kind == "midpoint" else 1))
    L = rng.uniform(0.05, 0.1, size=(STEPS, system.channels)) * 0.05 ** np.arange(STEPS)[:, None]
    if kind == "midpoint":  # the second stage reads the first: its multipliers are smaller
        L[:, m:] *= 0.1
    return system, L, e, turn @ f, h @ back


def holds(data, gain: float, slack: float, measure: str, exact) -> bool:
    """All inequalities, in rationals."""
    system, L, E, F, H = data
    n, paid = system.states, H if measure == "l2" else None
    found = list(storages(system, L, (E, F), paid, gain, slack))
    before = None
    for t, P in enumerate(found):
        form = exact.dissipation(system, P, L[t], 0.0, (E, F, paid if t else None, gain))
        if before is None:
            form = form[n:, n:]
        else:
            form[:n, :n] = form[:n, :n] + exact.of(before)
        if not exact.is_definite(form):
            return False
        before = P
    h = exact.of(H)
    return len(found) == STEPS and exact.is_definite(exact.of(before) - h.T @ h)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("measure", ["final", "l2"])
@pytest.mark.parametrize("spread", [0, 2])
def test_the_least_accepted_gain_is_true_in_rationals(spread, measure, kind, exact):
    judged = 0
    for seed in range(3):
        data = skewed(seed, kind, spread)
        system, L, *matrices = data

        def accepts(gain: float, system=system, L=L, matrices=matrices, slack=1e-9 if spread == 0 else 1e-5) -> bool:
            scaled = L * (gain * gain)
            return check_steps(system, scaled, *matrices, gain=gain, slack=slack, measure=measure)[0]

        if not accepts(1e4):
            continue
        judged += 1
        least = exact.bisect(accepts, 1e4, 0.0)
        slack = 1e-9 if spread == 0 else 1e-5
        scaled = system, L * (least * least), *matrices
        assert holds(scaled, least, slack, measure, exact)
        if spread == 0:
            below = least * (1 - 1e-6)
            assert not holds((system, L * (below * below), *matrices), below, slack, measure, exact)
    assert judged >= 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("measure", ["final", "l2"])
def test_every_entry_of_every_step_is_computed_within_its_bound(measure, kind, exact, monkeypatch):
    for seed, slope in enumerate([(0.0, 1.0), (-0.8, 0.6)]):
        system, L, E, F, H = skewed(seed, kind, 2, slope)
        gain, n, paid = 300.0, system.states, H if measure == "l2" else None
        L = L * gain * gain
        options = {"gain": gain, "slack": 1e-3, "measure": measure}
        asked = watched(monkeypatch, gain_lmi, check_steps, system, L, E, F, H, **options)[1]
        before = None
        for t, P in enumerate(list(storages(system, L, (E, F), paid, gain, 1e-3))[: len(asked)]):
            matrix, allowed = asked[t][0], exact.of(asked[t][1])
            true = exact.dissipation(system, P, L[t], 0.0, (E, F, paid if t else None, gain))
            true = true[n:, n:] if before is None else true
            if before is not None:
                true[:n, :n] = true[:n, :n] + exact.of(before)
            error = np.abs(exact.of(matrix) - true)
            assert (error <= allowed).all()
            assert float(allowed.max()) <= 1e-9 * float(np.abs(matrix).max())  # a bound that says something
            if before is not None:  # what is taken off is rounded, too
                assert (allowed[:n, :n] >= Fraction(gamma(60)) * np.abs(exact.of(before))).all()
            before = P
        assert before is not None
