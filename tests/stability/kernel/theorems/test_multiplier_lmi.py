"""The main inequality at its edge: the last accepted rate is true in rationals, entry by entry and as a whole."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from stretched import absolute, skewed, watched

from stability.kernel.arithmetic.definiteness import LARGEST, gamma
from stability.kernel.theorems import multiplier_lmi
from stability.kernel.theorems.multiplier_lmi import check_lmi, lmi_matrix, majorant
from stability.systems import LureSystem

U = Fraction(1, 2**53)
KINDS = ("flow", "map", "euler", "midpoint")


def general(seed: int, kind: str, n: int = 3, m: int = 2):
    """A system with every part: a loop through D, slopes from -0.3 to 0.9 that differ, a full P."""
    rng = np.random.default_rng(seed)
    d = np.array([[0.0, 0.4], [0.0, 0.0]])
    slopes = (np.array([-0.3, 0.1]), np.array([0.9, 0.7]))
    scale = 0.2 if kind == "map" else 1.0
    system = LureSystem(
        scale * (rng.normal(size=(n, n)) - 3 * np.eye(n)),
        scale * rng.normal(size=(n, m)),
        rng.normal(size=(m, n)),
        d,
        slopes,
        dt=1.0 if kind == "map" else None,
    )
    if kind in ("euler", "midpoint"):
        system = system.discretise(kind, 0.1)
    half = rng.normal(size=(n, n))
    return system, half @ half.T + np.eye(n), rng.uniform(0.5, 2.0, system.channels)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [1, 4])
def test_the_last_accepted_rates_are_true_in_rationals(spread, kind, exact):
    """Without the bound of the rounding errors a quarter of the last rates at spread 4 are false, of every kind."""
    slow, fast = (0.0, 5.0) if kind == "flow" else (1.0, 1e-3)
    judged = 0
    for seed in range(8):
        system, P, L = skewed(seed, kind, spread)[:3]
        if not check_lmi(system, P, L, slow)[0]:
            continue
        judged += 1
        last = exact.bisect(lambda rate: check_lmi(system, P, L, rate)[0], slow, fast)  # noqa: B023
        assert exact.is_definite(exact.of(P))
        assert exact.is_definite(exact.dissipation(system, P, L, last))
        if spread == 1:  # tight: a rate faster by a millionth is false
            beyond = last * (1 + 1e-6) if kind == "flow" else last * (1 - 1e-6)
            assert not exact.is_definite(exact.dissipation(system, P, L, beyond))
    assert judged >= (6 if spread == 1 else 2)


def proved(monkeypatch, system, P, L, rate):
    """The computed matrix and the entrywise bound of its errors, as the check hands them to the proof."""
    (first, none), computed = watched(monkeypatch, multiplier_lmi, check_lmi, system, P, L, rate)[1]
    assert none is None
    assert (first == P).all()
    return computed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [general, lambda seed, kind: skewed(seed, kind, 3)[:3]])
def test_every_entry_is_computed_within_its_bound(make, kind, exact, monkeypatch):
    for seed in range(4):
        system, P, L = make(seed, kind)
        matrix, bound = proved(monkeypatch, system, P, L, 0.875)
        true = exact.dissipation(system, P, L, 0.875)
        assert (np.abs(exact.of(matrix) - true) <= exact.of(bound)).all()
        assert (matrix == matrix.T).all()
        n, m, more = system.states, system.channels, majorant(system).roundings
        expected = Fraction(gamma(2 * (2 * n + 2 * m + 2 * more) + 40)) * absolute(system, P, L, 0.875, exact)
        assert (np.abs(exact.of(bound) - expected) <= expected / 10**9).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_majorant_covers_the_stored_matrices_with_the_roundings_it_names(kind, exact):
    rounded = 0
    for seed in range(6):
        system, _, _ = general(seed, kind)
        big = majorant(system)
        k = big.roundings * U
        for stored, true, size in zip((system.A, system.B, system.C, system.D), exact.discretised(system), big):
            error = np.abs(exact.of(stored) - true)
            assert (error <= k / (1 - k) * exact.of(size)).all()
            assert (np.abs(true) <= exact.of(size) * (1 + 8 * U)).all()
            rounded += int((error > 0).sum())
    assert (rounded > 50) == (kind in ("euler", "midpoint"))
    assert majorant(general(0, kind)[0]).roundings == {"flow": 0, "map": 0, "euler": 3, "midpoint": 3 + 8}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_diagonal_input_matrices_take_the_short_way_to_the_same_matrix(kind, exact):
    rng = np.random.default_rng(7)
    for b in (np.diag([0.5, -0.25, 2.0]), np.diag([1.0, 0.0, 1.0])):
        system = LureSystem(
            0.25 * np.round(4 * rng.normal(size=(3, 3))), b, np.eye(3), dt=1.0 if kind == "map" else None
        )
        if kind in ("euler", "midpoint"):
            system = system.discretise(kind, 0.5)
        P, L = np.diag([1.0, 2.0, 4.0]), np.ones(system.channels)
        true = exact.dissipation(system, P, L, 0.5)
        assert (exact.of(-lmi_matrix(system, P, L, 0.5)) == true).all()  # small dyadic numbers: nothing is rounded


REFUSED = {
    "P of another size": {"P": np.eye(3)},
    "P of single precision": {"P": np.eye(2, dtype=np.float32)},
    "P not symmetric": {"P": np.array([[1.0, 0.0], [1e-3, 1.0]])},
    "P infinite": {"P": np.diag([1.0, np.inf])},
    "P indefinite": {"P": np.diag([1.0, -1.0])},
    "P with an entry too large": {"P": np.diag([1.0, np.nextafter(LARGEST**0.5, np.inf)])},
    "L of another size": {"L": np.ones(1)},
    "L of single precision": {"L": np.ones(2, dtype=np.float32)},
    "L negative": {"L": np.array([1.0, -5e-324])},
    "L not a number": {"L": np.array([1.0, np.nan])},
    "rate not a number": {"rate": np.nan},
}


@pytest.mark.parametrize("kind", ["flow", "map"])
@pytest.mark.parametrize("name", REFUSED)
def test_bad_data_are_refused_not_raised(name, kind):
    factor = 0.1 if kind == "map" else -2.0
    system = LureSystem(factor * np.eye(2), 0.5 * np.eye(2), np.eye(2), dt=1.0 if kind == "map" else None)
    good = {"P": np.eye(2), "L": np.ones(2), "rate": 0.875}
    assert check_lmi(system, *good.values())[0] is True
    valid, reason = check_lmi(system, *{**good, **REFUSED[name]}.values())
    assert valid is False
    assert isinstance(reason, str)


def test_the_range_of_rates():
    still = LureSystem.linear(np.zeros((1, 1)), dt=1.0)  # the state is forgotten at once: every rate is true
    data = np.eye(1), np.zeros(0)
    for rate, valid in ((1.0, True), (np.nextafter(1.0, 2), False), (1e-3, True), (0.0, False), (-0.5, False)):
        assert check_lmi(still, *data, rate)[0] is valid
    assert check_lmi(still, *data, 1.5, limit=1.5)[0]
    assert not check_lmi(still, *data, np.nextafter(1.5, 2), limit=1.5)[0]
    falling = LureSystem.linear([[-1.0]])
    for rate, valid in ((0.0, True), (0.5, True), (-1e-3, False), (np.inf, False)):
        assert check_lmi(falling, *data, rate)[0] is valid
    fast = LureSystem.linear([[-(2.0**90)]])
    assert check_lmi(fast, *data, 2.0**89)[0]
    assert not check_lmi(falling, *data, LARGEST)[0]


@pytest.mark.parametrize("part", ["A", "B", "C", "L"])
def test_entries_beyond_which_rounding_is_not_bounded(part):
    for size, valid in ((LARGEST**0.5, True), (np.nextafter(LARGEST**0.5, np.inf), False)):
        values = {"A": -1e15, "B": 0.0, "C": 0.0, "L": 1.0}
        values[part] = -size if part == "A" else size
        if part == "L":
            values["C"] = 0.0
        system = LureSystem([[values["A"]]], [[values["B"]]], [[values["C"]]])
        P = np.eye(1)
        if part == "B":  # P B must stay small beside A and L
            P, system = 1e-30 * P, LureSystem([[-1e15]], [[size]], [[0.0]])
        assert ("beyond which" in check_lmi(system, P, np.array([values["L"]]), 0.0)[1]) is not valid


def test_what_underflows_in_a_long_step_is_inside_the_error_bound():
    """``A B`` of the midpoint formula is zero in floats, and ``dt^2 / 2`` times it is not: the exact map expands."""
    dt, z, s = 1.3e154, -1.1, 1.1
    base = LureSystem([[z / dt]], [[s * 1e-30 / dt]], [[-1e30]], slope=(1.0, 1.0))
    a, b, c, h = (Fraction(float(x)) for x in (base.A[0, 0], base.B[0, 0], base.C[0, 0], dt))
    step = h * (a + b * c)
    assert 1 + step + step * step / 2 > Fraction(6, 5)
    system = base.midpoint(dt)
    assert system.B[0, 0] == 0.0
    assert not check_lmi(system, np.eye(1), np.array([1e-59, 1e-59]), 0.7)[0]
    assert not check_lmi(system, np.eye(1), np.array([1e-59, 1e-59]), 1.0)[0]
    stored = LureSystem(system.A, system.B, system.C, system.D, (1.0, 1.0), dt)  # as a map of its own it contracts
    assert check_lmi(stored, np.eye(1), np.array([1e-59, 1e-59]), 0.7)[0]
