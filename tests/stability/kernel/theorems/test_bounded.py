"""Bounded networks at their edge: the last accepted ellipsoid, weights, box and radius, judged in rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import RULES
from stability.kernel.theorems.bounded import forcing_bounds
from stability.systems import DrivenSystem, LureSystem

KINDS = ("flow", "map", "euler", "midpoint")
TAU = np.full(1, 1.0 - 2.0**-48)  # room for the rounding of a sum


def answer(driven, kind: str, **data) -> tuple[bool, str]:
    """Return the rule's answer to a claim: True if proved, and the reason."""
    return RULES[kind](driven, Claim("bounded", "", Verdict.CERTIFIED, Proof(kind, data), data["radius"]))


def why(driven, kind: str, **data) -> str:
    """Return the reason of the rule's refusal, and require one."""
    valid, reason = answer(driven, kind, **data)
    assert not valid
    return reason


def scalar(a: float, g: float, discrete: bool) -> DrivenSystem:
    """``x' = -a x + g phi`` or ``x+ = a x + g phi``."""
    system = LureSystem([[a if discrete else -a]], [[g]], [[0.5]], dt=1.0 if discrete else None)
    return DrivenSystem(system, "tanh", [[1.0]])


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize(("a", "g"), [(0.5, 1.0), (0.25, 3.0), (0.75, 0.1)])
def test_the_least_ellipsoid_is_what_the_push_adds_up_to(a, g, discrete, exact):
    """``|x| <= g / (1 - |a|)`` (``g / a``): no weight gives a smaller bound, since the state can reach it."""
    reached = Fraction(g) / (1 - Fraction(a) if discrete else Fraction(a))
    for sign in (1.0, -1.0) if discrete else (1.0,):
        driven = scalar(sign * a, g, discrete)
        for mu, best in ((1.0 - a if discrete else a, True), (0.05, False)):

            def accepts(y: float, mu=mu, driven=driven) -> bool:
                return answer(driven, "ball", Y=np.full((1, 1), y), mu=mu, tau=TAU, radius=1e6)[0]

            least = Fraction(exact.bisect(accepts, 1e9, 0.0))
            assert least > reached**2
            assert (least < reached**2 * (1 + Fraction(1, 10**9))) is best


def skewed(seed: int, kind: str, spread: float) -> DrivenSystem:
    rng = np.random.default_rng(seed)
    n, m, p = 2, 2, 1
    turn = np.linalg.qr(rng.normal(size=(n, n)))[0] @ np.diag([1.0, 10.0**-spread])
    a = (0.3 if kind == "map" else 1.0) * (-np.eye(n) + 0.3 * rng.normal(size=(n, n)))
    b, f = turn @ rng.normal(size=(n, m)), turn @ rng.normal(size=(n, p))
    system = LureSystem(turn @ a @ np.linalg.inv(turn), b, np.eye(n), dt=1.0 if kind == "map" else None)
    if kind in ("euler", "midpoint"):
        system = system.discretise(kind, 0.2)
    return DrivenSystem(system, "tanh", np.zeros((system.channels, p)), F=f)


def slack(driven, Y, mu, tau, exact) -> np.ndarray:
    """Return the matrix that must be positive definite, in rationals."""
    A, B, _, _ = exact.discretised(driven.system)
    G, y, mu = np.hstack([B, exact.of(driven.F)]), exact.of(Y), Fraction(mu)
    reach = (G / exact.of(tau)[None, :]) @ G.T / mu
    if driven.system.is_discrete:
        return y - A @ y @ A.T / (1 - mu) - reach
    return -(A @ y + y @ A.T + mu * y + reach)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [0, 3])
def test_the_least_accepted_ellipsoid_is_true_in_rationals(spread, kind, exact):
    judged = 0
    for seed in range(3):
        driven = skewed(seed, kind, spread)
        rng = np.random.default_rng(100 + seed)
        bounds = forcing_bounds(driven, 0.7)[1]
        tau = rng.uniform(0.5, 1.0, size=len(bounds))
        tau *= 0.99 / float((tau * bounds * bounds).sum())
        mu = 0.1 if driven.system.is_discrete else 0.4
        shape = np.diag([1.0, 10.0 ** (-2 * spread)])
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(2, 2)))[0]
        shape = turn @ shape @ turn.T
        shape = 0.5 * (shape + shape.T)

        def accepts(size: float, driven=driven, mu=mu, tau=tau, shape=shape) -> bool:
            data = {"Y": size * shape, "mu": mu, "tau": tau, "radius": 1e8, "input_bound": 0.7}
            return answer(driven, "ball", **data)[0]

        if not accepts(1e9):
            continue
        judged += 1
        least = exact.bisect(accepts, 1e9, 0.0)
        assert exact.is_definite(slack(driven, least * shape, mu, tau, exact))
        if not spread:
            assert not exact.is_definite(slack(driven, (1 - 1e-9) * least * shape, mu, tau, exact))
    assert judged >= 2


def test_the_weights_of_channels_and_inputs_add_up_to_one_at_most(exact):
    """``sum tau_j b_j^2 <= 1``, exactly, where rounding of the sum could tell otherwise."""
    rng = np.random.default_rng(0)
    m = 24
    system = LureSystem([[0.5]], rng.normal(size=(1, m)), np.zeros((m, 1)), dt=1.0)
    driven = DrivenSystem(system, "tanh", np.zeros((m, 1)), F=[[1.0]])
    accepted = 0
    for _ in range(40):
        tau, bound = rng.uniform(0.1, 1.0, size=m + 1), float(rng.uniform(0.1, 3.0))
        squares = np.append(np.ones(m), bound * bound)
        tau /= float((tau * squares).sum())
        for ulps in (-40, -10, 0, 10, 40):
            weights = tau * (1 + ulps * 2.0**-52)
            data = {"Y": np.full((1, 1), 1e6), "mu": 0.3, "tau": weights, "radius": 1e6, "input_bound": bound}
            total = sum(exact.of(weights)[:m]) + Fraction(weights[m]) * Fraction(bound) ** 2
            valid = answer(driven, "ball", **data)[0]
            accepted += valid
            assert valid <= (total <= 1)
            assert valid or total >= 1 - Fraction(80, 2**52)
    assert accepted >= 30


def test_the_radius_is_no_smaller_than_the_ellipsoid():
    driven = scalar(0.5, 1e-3, True)
    rng = np.random.default_rng(0)
    for y in rng.uniform(0.5, 2.0, size=20):
        seen = []
        for ulps in (*range(-4, 9), 100):
            radius = float(np.sqrt(y) * (1 + ulps * 2.0**-52))
            seen.append(answer(driven, "ball", Y=np.full((1, 1), y), mu=0.3, tau=TAU, radius=radius)[0])
            assert not seen[-1] or Fraction(radius) ** 2 > Fraction(float(y))
        assert seen[-1]
    bent = np.array([[1.0, 0.9], [0.9, 1.0]])  # the largest eigenvalue counts, not an entry
    pair = DrivenSystem(LureSystem(0.1 * np.eye(2), 1e-3 * np.eye(2), np.eye(2), dt=1.0), "tanh", np.zeros((2, 1)))
    for radius, valid in ((np.sqrt(1.9) * (1 + 1e-9), True), (np.sqrt(1.9) * (1 - 1e-9), False)):
        data = {"Y": bent, "mu": 0.3, "tau": np.full(2, 0.49), "radius": float(radius)}
        assert answer(pair, "ball", **data)[0] is valid


BALL = {"Y": np.full((1, 1), 100.0), "mu": 0.3, "tau": np.array([0.5, 0.25]), "radius": 11.0, "input_bound": 1.0}
REFUSED = {
    "radius must be positive": [{"radius": -11.0}, {"radius": 0.0}],
    "input_bound must be": [{"input_bound": -1.0}, {"input_bound": -5e-324}],
    "of the network's sizes": [{"Y": np.eye(2)}, {"tau": np.array([0.5])}, {"tau": np.array([[0.5, 0.25]])}],
    "tau must be positive": [
        *({"tau": tau} for tau in (np.array([0.5, -0.25]), np.array([0.0, 0.5]), np.array([-1.0, -1.0]))),
        *({"mu": mu} for mu in (0.0, -0.3, 1e-30)),
    ],
    "do not admit": [{"tau": np.array([0.5, 0.51])}, {"tau": np.array([1.01, 1e-9])}, {"input_bound": 1.5}],
    "does not lie between": [{"radius": 9.99}],
    "is not proved": [{"Y": np.full((1, 1), 1e-3)}, {"Y": np.full((1, 1), -100.0)}],
}


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("reason", REFUSED)
def test_an_ellipsoid_that_says_nothing_is_refused(reason, discrete):
    old = scalar(0.5, 1.0, discrete)
    driven = DrivenSystem(old.system, "tanh", [[1.0]], F=[[0.5]])
    assert answer(driven, "ball", **BALL)[0]
    for bad in REFUSED[reason]:
        assert reason in why(driven, "ball", **{**BALL, **bad}), bad
    for mu in (1.0, 1.5) if discrete else (1e30, -1e30):
        assert "tau must be positive and mu" in why(driven, "ball", **{**BALL, "mu": mu})
    free = {key: value for key, value in BALL.items() if key != "input_bound"}
    assert "without a bound" in why(driven, "ball", **free)
    loud = DrivenSystem(old.system, "relu", [[1.0]], F=[[0.5]])
    assert "not bounded" in why(loud, "ball", **BALL)


@pytest.mark.parametrize("discrete", [True, False])
def test_numbers_that_overflow_on_the_way_are_refused_without_a_warning(discrete):
    """Warnings are errors in these tests; a rule must not be stopped by one."""
    for size in (1e100, 1e60, 1e-100):
        driven = scalar(0.5, 1e200, discrete)
        for mu in (0.3, 1e-29):
            data = {"Y": np.full((1, 1), size), "mu": mu, "tau": np.full(1, 1e-99), "radius": 1e60}
            reason = why(driven, "ball", **data)
            assert "is not proved" in reason, reason


@pytest.mark.parametrize("kind", KINDS)
def test_the_least_accepted_box_is_true_in_rationals(kind, exact):
    """``|A| r + s <= r`` with ``s = |B| 1 + |F| b`` (in continuous time with the diagonal's own sign, ``<= 0``)."""
    judged = 0
    for seed in range(3):
        driven = skewed(seed, kind, 0)
        r = np.random.default_rng(seed).uniform(0.8, 1.2, size=2)

        def accepts(size: float, driven=driven, r=r) -> bool:
            return answer(driven, "box", r=size * r, radius=1e12, input_bound=0.7)[0]

        if not accepts(1e6):
            continue
        judged += 1
        least = exact.bisect(accepts, 1e6, 0.0)
        A, B, _, _ = exact.discretised(driven.system)
        ends = exact.of(least * r)
        push = np.abs(B) @ exact.of(np.ones(B.shape[1])) + np.abs(exact.of(driven.F)) @ exact.of([0.7])
        size = np.abs(A)
        if not driven.system.is_discrete:
            size = size - np.diag(np.diagonal(size)) + np.diag(np.diagonal(A))
        over = size @ ends + push - (ends if driven.system.is_discrete else 0)
        assert (over < 0).all()
        assert (over > -ends / 10**9).any()
    assert judged >= 2


def test_the_radius_of_a_box_is_its_half_diagonal_at_least(exact):
    driven = DrivenSystem(LureSystem(np.zeros((3, 3)), 1e-3 * np.eye(3), np.eye(3), dt=1.0), "tanh", np.zeros((3, 1)))
    rng = np.random.default_rng(0)
    for r in rng.uniform(0.5, 2.0, size=(20, 3)):
        square, seen = sum(exact.of(r) ** 2), []
        for ulps in (*range(-4, 9), 100):
            radius = float(np.linalg.norm(r) * (1 + ulps * 2.0**-52))
            seen.append(answer(driven, "box", r=r, radius=radius)[0])
            assert not seen[-1] or Fraction(radius) ** 2 >= square
        assert seen[-1]


def test_a_box_too_small_for_squares_still_has_a_diagonal():
    driven = DrivenSystem(LureSystem([[0.0]], [[1e-201]], [[1.0]], dt=1.0), "tanh", [[1.0]])
    r = np.array([1e-200])
    assert answer(driven, "box", r=r, radius=1e-100)[0]
    assert answer(driven, "box", r=r, radius=0.99e-200) == (
        False,
        "the radius is smaller than the half diagonal of the box",
    )
