"""The second verifier: each condition of the theorem, one unit in the last place on either side of it."""

from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np
import pytest

from stability.exact_verification import check_exact, is_positive_definite, rational
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.systems import LureSystem

UP, DOWN = np.inf, -np.inf


def one_above(x: float) -> float:
    return float(np.nextafter(x, UP))


def one_below(x: float) -> float:
    return float(np.nextafter(x, DOWN))


def decide(system, **changes) -> bool:
    n, m = system.states, system.channels
    data = {"P": np.eye(n), "L": np.ones(m), "rate": 0.5, "overshoot": 2.0, "p_min": 0.5, "p_max": 2.0, **changes}
    valid, reason = check_exact(system, data)
    assert isinstance(reason, str)
    assert type(valid) is bool
    return valid


FLOW = LureSystem([[-1.0]], [[1.0]], [[0.25]])
MAP = LureSystem([[0.25]], [[1.0]], [[0.125]], dt=1.0)


def test_the_honest_claims_are_accepted():
    assert decide(FLOW)
    assert decide(MAP)


REFUSED = {
    "overshoot a little small": {"overshoot": one_below(2.0)},
    "overshoot negative": {"overshoot": -2.0},
    "overshoot below one": {"overshoot": 0.99, "p_min": 0.9999, "p_max": 1.0001},
    "p_min zero": {"p_min": 0.0, "overshoot": 1e9},
    "p_min negative": {"p_min": -1.0},
    "p_min an eigenvalue": {"p_min": 1.0},
    "p_max an eigenvalue": {"p_max": 1.0},
    "p_max below": {"p_max": one_below(1.0)},
    "P not symmetric": {"P": np.array([[1.0, 0.0], [1e-300, 1.0]])},
    "P of another size": {"P": np.eye(2)},
    "P no matrix": {"P": np.ones(1)},
    "L of another size": {"L": np.ones(2)},
    "L negative": {"L": np.array([-5e-324])},
    "P negative": {"P": -np.eye(1)},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_theorem_does_not_cover_is_refused(name):
    assert not decide(FLOW, **REFUSED[name])
    assert not decide(MAP, **REFUSED[name])


def test_each_condition_has_its_own_reason():
    """A multiplier may be zero: then it is the inequality that fails, as it must."""
    for changes, reason in (
        ({"L": np.zeros(1)}, "the matrix inequality does not hold (exact arithmetic)"),
        ({"L": np.array([-5e-324])}, "P must be a symmetric n x n matrix, and L a vector of m numbers >= 0"),
        ({"rate": 0.0}, "the rate must be below 1 per step, or positive in continuous time"),
        ({"p_min": 0.0}, "P does not lie strictly between p_min and p_max (exact arithmetic)"),
        ({"overshoot": one_below(2.0)}, "the overshoot is below 1 or below sqrt(p_max / p_min)"),
    ):
        data = {"P": np.eye(1), "L": np.ones(1), "rate": 0.5, "overshoot": 2.0, "p_min": 0.5, "p_max": 2.0, **changes}
        assert check_exact(FLOW, data) == (False, reason)


def test_symmetry_is_to_the_last_bit():
    two = LureSystem.linear(-np.eye(2))
    assert decide(two, P=np.array([[1.0, 0.25], [0.25, 1.0]]))
    assert not decide(two, P=np.array([[1.0, 0.25], [one_above(0.25), 1.0]]))


def test_the_bounds_of_p_may_come_as_near_as_a_float():
    assert decide(FLOW, p_min=one_below(1.0), p_max=one_above(1.0), overshoot=1.0 + 2**-50)
    assert decide(FLOW, overshoot=2.0)  # sqrt(2 / 0.5), exactly


@pytest.mark.parametrize("rate", [0.0, -0.5])
def test_rates_that_are_none(rate):
    assert not decide(FLOW, rate=rate)
    assert not decide(MAP, rate=rate)


def test_a_map_that_forgets_nothing():
    still = LureSystem.linear([[0.0]], dt=1.0)
    assert decide(still, rate=one_below(1.0))
    assert not decide(still, rate=1.0)
    assert not decide(still, rate=1.5)
    assert decide(LureSystem.linear([[-2.0]]), rate=1.5)


@pytest.mark.parametrize("kind", ["flow", "map", "euler", "midpoint"])
def test_the_edge_is_exact(kind, exact, rng):
    """The last rate accepted is true, and the next float is false: nothing is lost to rounding."""
    discrete = kind != "flow"
    for _ in range(2):
        a = (0.2 if kind == "map" else 1.0) * (0.2 * rng.normal(size=(2, 2)) - np.eye(2))
        b, c = 0.2 * rng.normal(size=(2, 2)), 0.2 * rng.normal(size=(2, 2))
        d, slope = [[0.0, 0.3], [0.0, 0.0]], ([-0.25, 0.0], [1.0, 0.5])
        system = LureSystem(a, b, c, d, slope, dt=1.0 if kind == "map" else None)
        system = system.discretise(kind, 0.25) if kind in ("euler", "midpoint") else system
        accepts = lambda rate, s=system: decide(s, rate=rate)  # noqa: E731
        good, bad = (one_below(1.0), 1e-3) if discrete else (1e-3, 5.0)
        last = exact.bisect(accepts, good, bad)
        L = np.ones(system.channels)
        assert exact.is_definite(exact.dissipation(system, np.eye(2), L, last))
        assert not exact.is_definite(
            exact.dissipation(system, np.eye(2), L, one_below(last) if discrete else one_above(last))
        )
        # the float check stops a little earlier
        assert not check_lmi(system, np.eye(2), L, last)[0]
        assert check_lmi(system, np.eye(2), L, last * (1 + 1e-9 if discrete else 1 - 1e-9))[0]


@pytest.mark.parametrize("library", ["flint", "integers"])
def test_definiteness_of_random_integers(library, exact, rng, monkeypatch):
    if library == "integers":
        monkeypatch.setitem(sys.modules, "flint", None)
    definite = 0
    for _ in range(120):
        n = int(rng.integers(1, 6))
        half = rng.integers(-3, 4, size=(n, n))
        matrix = (half @ half.T + rng.integers(-1, 2) * np.eye(n)) * 2.0 ** rng.integers(-40, 40)
        assert is_positive_definite(rational(matrix)) == exact.is_definite(exact.of(matrix))
        definite += is_positive_definite(rational(matrix))
    assert 20 < definite < 100


def test_definiteness_at_scales_that_no_float_product_has(exact):
    tiny = rational([[1e-300, 1e-300], [1e-300, 1e-300]])
    assert not is_positive_definite(tiny)
    wide = rational([[1e300, 1.0], [1.0, 1e-300]])
    wide_exact = Fraction(1e300) * Fraction(1e-300) > 1
    assert is_positive_definite(wide) == wide_exact == exact.is_definite(wide)
    assert not is_positive_definite(rational([[5e-324, 0.0], [0.0, -5e-324]]))
    assert is_positive_definite(rational([[5e-324]]))
    assert is_positive_definite(rational(np.zeros((0, 0))))
