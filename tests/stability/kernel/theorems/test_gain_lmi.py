"""The gain inequality at its edge: the least accepted gain is true in rationals; the bound it proves, to 200 bits."""

from __future__ import annotations

import math
from fractions import Fraction

import flint
import numpy as np
import pytest
from stretched import absolute, skewed, watched

from stability.kernel.arithmetic.definiteness import LARGEST, gamma
from stability.kernel.theorems import gain_lmi
from stability.kernel.theorems.gain_lmi import bound, check_gain
from stability.kernel.theorems.multiplier_lmi import majorant
from stability.systems import LureSystem

KINDS = ("flow", "map", "euler", "midpoint")


def holds(system, P, L, E, F, H, gain, growth, mode, exact) -> bool:
    """The inequality and the floor below P, in rationals."""
    form = exact.dissipation(system, P, L, growth, (E, F, H if mode == "running" else None, gain))
    floor = exact.of(P) if mode == "running" else exact.of(P) - exact.of(H).T @ exact.of(H)
    return exact.is_definite(form) and exact.is_definite(floor)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["running", "terminal"])
@pytest.mark.parametrize("spread", [1, 4])
def test_the_least_accepted_gain_is_true_in_rationals(spread, mode, kind, exact):
    """Without the bound of the rounding errors some of these gains, at spread 4, are too small."""
    growth = 0.0 if kind == "flow" else 1.0
    judged = 0
    for seed in range(7):
        data = skewed(seed, kind, spread)

        def accepts(gain: float, data=data) -> bool:
            return check_gain(*data, gain=gain, growth=growth, mode=mode)[0]

        if not accepts(100.0):
            continue
        judged += 1
        least = exact.bisect(accepts, 100.0, 0.0)
        assert holds(*data, least, growth, mode, exact)
        if spread == 1:
            assert not holds(*data, least * (1 - 1e-6), growth, mode, exact)
    assert judged >= (5 if spread == 1 else 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["running", "terminal"])
def test_every_entry_is_computed_within_its_bound(mode, kind, exact, monkeypatch):
    for seed, slope in enumerate([(0.0, 1.0), (0.3, 0.7), (-0.8, 0.6)]):
        system, P, L, E, F, H = skewed(seed, kind, 3, slope=slope)
        data, options = (system, P, L, E, F, H), {"gain": 50.0, "growth": 1.0, "mode": mode}
        valid, asked = watched(monkeypatch, gain_lmi, check_gain, *data, **options)
        assert valid == (kind != "flow")
        matrix, allowed = asked[0][0], exact.of(asked[0][1])
        output = H if mode == "running" else None
        error = np.abs(exact.of(matrix) - exact.dissipation(system, P, L, 1.0, (E, F, output, 50.0)))
        assert (error <= allowed).all()
        n, m, p = system.states, system.channels, F.shape[1]
        inner = 2 * (n + m + p) + 2 * majorant(system).roundings + (0 if output is None else len(H))
        size = absolute(system, P, L, 1.0, exact, (E, F, output, 50.0))
        expected = Fraction(gamma(2 * inner + 60)) * size
        assert (np.abs(allowed - expected) <= expected / 10**9).all()
        if kind == "flow":  # this growth is too fast: the floor is not asked for
            continue
        floor, bound = asked[1]
        if mode == "running":
            assert (floor == P).all()
            assert bound is None
        else:
            allowed, h = exact.of(bound), exact.of(H)
            assert (np.abs(exact.of(floor) - exact.of(P) + h.T @ h) <= allowed).all()
            expected = Fraction(gamma(2 * len(H) + 20)) * (np.abs(h).T @ np.abs(h) + np.abs(exact.of(P)))
            assert (np.abs(allowed - expected) <= expected / 10**9).all()


def truth(mode, measure, gain, growth, horizon, discrete):
    """Return the bound of the dissipation inequality, term by term, to 200 bits; ``None`` without one."""
    flint.ctx.prec = 200
    g, r = flint.arb(gain), flint.arb(growth)
    if mode == "running":
        neutral = growth == (1.0 if discrete else 0.0)
        return g if neutral and (discrete or measure == "l2") else None
    if measure == "l2" and horizon is None:
        return None
    grows = growth > 1.0 if discrete else growth < 0.0
    if grows and horizon is None:
        return None
    if measure == "final":
        return g * ((r ** (horizon - 1) if discrete else (-r * horizon).exp()) if grows else 1)
    if discrete:
        return g * sum((r**2) ** k for k in range(horizon)).sqrt()
    return g * flint.arb(horizon).sqrt() * ((-r * horizon).exp() if grows else 1)


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("measure", ["l2", "final"])
@pytest.mark.parametrize("mode", ["running", "terminal", "other"])
def test_the_bound_is_above_the_sum_and_near_it(mode, measure, discrete):
    for growth in (0.3, 0.999, 1.0 - 1e-9, 1.0, 1.0 + 1e-9, 1.0 + 1e-4, 1.3, 2.0, 0.0, -1e-9, -0.2, -2.0):
        if discrete and growth <= 0.0:
            continue
        for horizon in (None, 1, 2, 3, 7, 40):
            number = bound(mode, measure, 1.7, growth, horizon, discrete)
            true = truth(mode, measure, 1.7, growth, horizon, discrete) if mode != "other" else None
            if true is None:
                assert number == math.inf, (growth, horizon)
                continue
            assert flint.arb(number) >= true - flint.arb(2) ** -150, (growth, horizon)
            slack = 1e-4 if abs(growth - 1.0) < 1e-6 and measure == "l2" else 1e-8
            assert flint.arb(number) <= true * (1 + slack), (growth, horizon)


@pytest.mark.parametrize("measure", ["l2", "final"])
def test_the_bound_ends_where_the_power_would_overflow(measure):
    for growth, discrete in ((math.exp(3.0), True), (-3.0, False)):
        assert bound("terminal", measure, 1.0, growth, 99, discrete) < math.inf
        assert bound("terminal", measure, 1.0, growth, 101, discrete) == math.inf
        assert bound("terminal", measure, 1.0, growth, 2**30, discrete) == math.inf


def test_long_sums_lose_nothing_to_rounding():
    for growth in (1.0 + 2e-6, 1.0 + 1e-7, 0.9999):
        true = truth("terminal", "l2", 1.0, growth, 20_000, True)
        assert flint.arb(bound("terminal", "l2", 1.0, growth, 20_000, True)) >= true


GOOD = {
    "P": np.eye(2), "L": np.ones(2), "E": np.zeros((2, 1)), "F": np.ones((2, 1)), "H": 0.5 * np.eye(2),
    "gain": 50.0, "growth": 1.0, "mode": "running",
}  # fmt: skip
REFUSED = {
    "a list": {"P": [[1.0, 0.0], [0.0, 1.0]]},
    "single precision": {"L": np.ones(2, dtype=np.float32)},
    "P of another size": {"P": np.eye(3)},
    "L of another size": {"L": np.ones(3)},
    "E of another size": {"E": np.zeros((1, 1))},
    "E of other inputs": {"E": np.zeros((2, 2))},
    "F of another size": {"F": np.ones((3, 1))},
    "F without columns": {"F": np.ones(2)},
    "H of another size": {"H": np.eye(3)},
    "not finite": {"H": np.full((1, 2), np.nan)},
    "P not symmetric": {"P": np.array([[1.0, 0.0], [0.1, 1.0]])},
    "P negative": {"P": -np.eye(2)},
    "L negative": {"L": np.array([1.0, -1e-300])},
    "an unknown mode": {"mode": "final"},
    "gain negative": {"gain": -1e-9},
    "gain infinite": {"gain": np.inf},
    "growth infinite": {"growth": np.inf},
    "growth zero": {"growth": 0.0},
    "growth too large": {"growth": float(np.nextafter(LARGEST**0.25, np.inf))},
    "an entry too large": {"F": np.array([[np.nextafter(LARGEST**0.25, np.inf)], [0.0]])},
    "P below H^T H": {"H": 1.5 * np.eye(2), "mode": "terminal"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_data_are_refused_not_raised(name):
    system = LureSystem(0.2 * np.eye(2), 0.2 * np.eye(2), np.eye(2), dt=1.0)
    assert check_gain(system, **GOOD)[0] is True
    assert check_gain(system, **{**GOOD, "mode": "terminal"})[0] is True
    valid, reason = check_gain(system, **{**GOOD, **REFUSED[name]})
    assert valid is False
    assert ("exceed H^T H: " in reason) is (name == "P below H^T H")
    assert isinstance(reason, str)


def test_a_storage_that_is_negative_proves_nothing():
    """With an unstable map the inequality itself holds for ``-P``: that ``P`` is positive is half of the theorem."""
    system = LureSystem(2.0 * np.eye(2), 0.1 * np.eye(2), np.eye(2), dt=1.0)
    valid, reason = check_gain(system, **{**GOOD, "P": -np.eye(2)})
    assert not valid
    assert reason.startswith("P is not proved to exceed zero: ")


def test_the_largest_numbers_are_still_bounded():
    system = LureSystem(0.2 * np.eye(2), 0.2 * np.eye(2), np.eye(2), dt=1.0)
    large = float(LARGEST**0.25)
    assert check_gain(system, **{**GOOD, "gain": large})[0] is False
    assert check_gain(system, **{**GOOD, "gain": 0.99 * large})[0] is True
    assert "exceeds" not in check_gain(system, **{**GOOD, "growth": large})[1]
    assert "exceeds" in check_gain(system, **{**GOOD, "growth": 1.01 * large})[1]
    assert "exceeds" not in check_gain(system, **{**GOOD, "H": np.array([[large, 0.0]])})[1]
    flow = LureSystem(-np.eye(2), 0.2 * np.eye(2), np.eye(2))
    assert check_gain(flow, **{**GOOD, "growth": 0.0})[0]
    assert check_gain(flow, **{**GOOD, "growth": -0.5})[0]
