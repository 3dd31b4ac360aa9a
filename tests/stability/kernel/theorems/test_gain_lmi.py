"""The gain inequality at its edge: the least accepted gain is true in rationals; the bound it proves, to 200 bits."""

from __future__ import annotations

import math
from fractions import Fraction

import flint
import numpy as np
import pytest

from stability.kernel.arithmetic.definiteness import LARGEST, gamma
from stability.kernel.theorems import gain_lmi
from stability.kernel.theorems.gain_lmi import bound, check_gain
from stability.kernel.theorems.multiplier_lmi import majorant
from stability.systems import LureSystem

KINDS = ("flow", "map", "euler", "midpoint")


def skewed(seed: int, kind: str, spread: float, n: int = 2, m: int = 2, p: int = 1, slope=(0.0, 1.0)):
    """A contracting system with input and output in coordinates stretched by ``10**spread``."""
    rng = np.random.default_rng(seed)
    one, two = (np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(2))
    turn = one @ np.diag(10.0 ** np.linspace(0, -spread, n)) @ two
    back = np.linalg.inv(turn)
    a = (0.3 if kind == "map" else 1.0) * (-np.eye(n) + 0.15 * rng.normal(size=(n, n)))
    b, c = 0.2 * rng.normal(size=(n, m)), 0.2 * rng.normal(size=(m, n))
    e, f, h = 0.2 * rng.normal(size=(m, p)), rng.normal(size=(n, p)), 0.3 * rng.normal(size=(2, n))
    system = LureSystem(turn @ a @ back, turn @ b, c @ back, slope=slope, dt=1.0 if kind == "map" else None)
    if kind in ("euler", "midpoint"):
        system, e = system.discretise(kind, 0.1), np.vstack([e] * (2 if kind == "midpoint" else 1))
        f, h = 0.1 * f, 0.2 * h
    P = 2.0 * back.T @ back
    return system, 0.5 * (P + P.T), np.ones(system.channels), e, turn @ f, h @ back


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
        asked, prove = [], gain_lmi.prove_positive_definite

        def watch(matrix, action=None, asked=asked, prove=prove, **options):
            asked.append((matrix.copy(), action))
            return prove(matrix, action, **options)

        monkeypatch.setattr(gain_lmi, "prove_positive_definite", watch)
        assert check_gain(system, P, L, E, F, H, gain=50.0, growth=1.0, mode=mode)[0] == (kind != "flow")
        monkeypatch.undo()
        matrix, action = asked[0]
        output = H if mode == "running" else None
        error = np.abs(exact.of(matrix) - exact.dissipation(system, P, L, 1.0, (E, F, output, 50.0)))
        allowed = exact.of(np.column_stack([action(row) for row in np.eye(len(matrix))]))
        assert (error <= allowed).all()
        n, m, p = system.states, system.channels, F.shape[1]
        inner = 2 * (n + m + p) + 2 * majorant(system).roundings + (0 if output is None else len(H))
        size = absolute(system, P, L, E, F, output, exact)
        expected = Fraction(gamma(2 * inner + 60)) * size
        assert (np.abs(allowed - expected) <= expected / 10**9).all()
        if kind == "flow":  # this growth is too fast: the floor is not asked for
            continue
        (floor, action) = asked[1]
        if mode == "running":
            assert (floor == P).all()
            assert action is None
        else:
            allowed = exact.of(np.column_stack([action(row) for row in np.eye(n)]))
            h = exact.of(H)
            assert (np.abs(exact.of(floor) - exact.of(P) + h.T @ h) <= allowed).all()
            expected = Fraction(gamma(2 * len(H) + 20)) * (np.abs(h).T @ np.abs(h) + np.abs(exact.of(P)))
            assert (np.abs(allowed - expected) <= expected / 10**9).all()


def absolute(system, P, L, E, F, H, exact) -> np.ndarray:
    """The expression with all signs plus and all entries absolute, at growth one and gain fifty."""
    big = majorant(system)
    a, b, c, d = (exact.of(x) for x in (big.A, big.B, big.C, big.D))
    p, e, f, weights = exact.of(np.abs(P)), exact.of(np.abs(E)), exact.of(np.abs(F)), exact.of(L)
    product = 2 * abs(exact.of(system.alpha) * exact.of(system.beta)) * weights
    total = abs(exact.of(system.alpha) + exact.of(system.beta)) * weights
    n, m, k = system.states, system.channels, F.shape[1]
    rows = exact.of(np.eye(n + m + k))
    x, w, u = rows[:n], rows[n : n + m], rows[n + m :]
    z, step = c @ x + d @ w + e @ u, a @ x + b @ w + f @ u
    out = z.T @ (product[:, None] * z) + z.T @ (total[:, None] * w) + w.T @ (total[:, None] * z)
    out = out + 2 * w.T @ (weights[:, None] * w) + 2500 * u.T @ u
    if H is not None:
        h = exact.of(np.abs(H))
        out = out + x.T @ h.T @ h @ x
    if system.is_discrete:
        return out + step.T @ p @ step + x.T @ p @ x
    return out + step.T @ p @ x + x.T @ p @ step + 2 * x.T @ p @ x


def truth(mode, measure, gain, growth, horizon, discrete):
    """What the dissipation inequality gives, term by term, to 200 bits; ``None`` where it gives nothing."""
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
