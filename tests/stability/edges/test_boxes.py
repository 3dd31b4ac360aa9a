"""Boxes and where they go, in rationals: the exact image is inside, and no more than rounding is added."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from stability.rigor.balls import Ball
from stability.rigor.boxes import _ball, _values, box_image, is_left_nowhere
from stability.systems import DrivenSystem, LureSystem

NEAR = Fraction(1, 10**12)


def affine(rng, m, discrete, d=None, name="identity") -> DrivenSystem:
    n, p = 3, 2
    system = LureSystem(
        rng.normal(size=(n, n)), rng.normal(size=(n, m)), rng.normal(size=(m, n)), d, dt=1.0 if discrete else None
    )
    return DrivenSystem(system, name, rng.normal(size=(m, p)), rng.normal(size=m), F=rng.normal(size=(n, p)))


def corners(low, high, exact) -> list:
    return [exact.of(corner) for corner in itertools.product(*zip(low, high))]


def exact_next(driven, x, u, exact):
    """``A x + B phi(z) + F u`` of an identity, or of a rectifier, channel after channel, in rationals."""
    a, b, c, d = exact.discretised(driven.system)
    free = c @ x + exact.of(driven.E) @ u + exact.of(driven.b)
    w = exact.of(np.zeros(len(free)))
    for _ in range(len(free)):  # D feeds forwards
        z = free + d @ w
        w = z if driven.activation == "identity" else np.where(z > 0, z, 0 * z)
    return a @ x + b @ w + exact.of(driven.F) @ u


@pytest.mark.parametrize("name", ["identity", "relu"])
@pytest.mark.parametrize("seed", range(5))
def test_the_image_of_a_box_holds_those_of_its_corners(name, seed, exact):
    rng = np.random.default_rng(seed)
    driven = affine(rng, 2, True, name=name)
    low = rng.normal(size=3) * 10.0 ** rng.integers(-6, 6, 3)
    high, u = low + np.abs(rng.normal(size=3)) * (seed > 0), rng.normal(size=2)
    bottom, top = map(exact.of, box_image(driven, low, high, u))
    for x in corners(low, high, exact):
        after = exact_next(driven, x, exact.of(u), exact)
        assert (bottom <= after).all()
        assert (after <= top).all()


@pytest.mark.parametrize("seed", range(3))
def test_one_term_a_row_has_the_image_itself(seed, exact):
    """Without cancellation between the terms the box is the image, to within rounding."""
    rng = np.random.default_rng(seed)
    a, b, f = (float(x) for x in rng.normal(size=3))
    driven = DrivenSystem(LureSystem([[a]], [[abs(b) * np.sign(a)]], [[1.0]], dt=1.0), "identity", [[0.0]], F=[[f]])
    low, high, u = np.array([-0.3]), np.array([1.7]), np.array([0.7])
    ends = sorted(exact_next(driven, exact.of(x), exact.of(u), exact)[0] for x in (low, high))
    bottom, top = box_image(driven, low, high, u)
    assert ends[0] - NEAR <= Fraction(bottom[0]) <= ends[0]
    assert ends[1] <= Fraction(top[0]) <= ends[1] + NEAR


def test_channels_that_feed_channels_are_followed_to_the_last(exact):
    """``z_k = x + z_{k-1}/2`` three deep: exact after as many sweeps, from ``|tanh| <= 1`` on."""
    d = np.diag([0.5, 0.5, 0.5], -1)
    system = LureSystem(np.zeros((1, 1)), [[0.0, 0.0, 0.0, 1.0]], np.ones((4, 1)), d, dt=1.0)
    driven = DrivenSystem(system, "tanh", np.zeros((4, 1)))
    low, high = np.array([0.1]), np.array([0.2])
    bottom, top = box_image(driven, low, high, np.zeros(1))
    for x, end in ((0.1, bottom), (0.2, top)):
        w = 0.0
        for _ in range(4):
            w = np.tanh(x + 0.5 * w)
        assert abs(end[0] - w) < 1e-13
    assert bottom[0] < top[0]


@pytest.mark.parametrize("d", [-0.9, 0.5, 0.9])
def test_a_loop_is_inside_its_box(d):
    """``z = x + d tanh(z)``: whatever the sweeps leave, the solution is in it."""
    driven = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[1.0]], [[d]], dt=1.0), "tanh", [[0.0]])
    for x in (0.0, 0.3, -2.0):
        w = 0.0
        for _ in range(400):
            w = np.tanh(x + d * w)
        bottom, top = box_image(driven, np.array([x]), np.array([x]), np.zeros(1))
        assert bottom[0] <= w <= top[0]
        assert top[0] - bottom[0] < 2.0


def test_a_loop_through_an_activation_without_bounds_has_no_box():
    loop = LureSystem([[0.0]], [[1.0]], [[1.0]], [[0.5]], dt=1.0)
    zero = np.zeros(1)
    assert box_image(DrivenSystem(loop, "relu", [[0.0]]), zero, zero, zero) is None
    assert box_image(DrivenSystem(loop, "tanh", [[0.0]]), zero, zero, zero) is not None
    flow = LureSystem([[-9.0]], [[1.0]], [[1.0]], [[0.5]])
    one = np.ones(1)
    assert not is_left_nowhere(DrivenSystem(flow, "relu", [[0.0]]), -one, one, zero)
    assert is_left_nowhere(DrivenSystem(flow, "tanh", [[0.0]]), -one, one, zero)


@pytest.mark.parametrize("scale", [1.0, 1e-320, 3e7])
def test_a_box_is_a_ball_that_reaches_both_ends(scale, exact, rng):
    """Also where the middle is rounded, where the ends are adjacent floats and below the least normal number."""
    low = scale * rng.normal(size=200)
    for high in (low, np.nextafter(low, np.inf), low + scale * rng.random(200)):
        ball = _ball(low, high)
        mid, rad = exact.of(ball.mid), exact.of(ball.rad)
        assert (mid - rad <= exact.of(low)).all()
        assert (exact.of(high) <= mid + rad).all()
        assert (rad <= (exact.of(high) - exact.of(low)) / 2 * (1 + NEAR) + 3 * exact.of(np.spacing(np.abs(low)))).all()


def test_the_range_over_a_ball_is_that_between_its_ends(exact, rng):
    mid, rad = rng.normal(size=100), np.abs(rng.normal(size=100))
    for name, phi in (("identity", lambda z: z), ("relu", lambda z: np.where(z > 0, z, 0 * z))):
        found = _values(name, Ball(mid, rad))
        low, high = (phi(exact.of(mid) + side * exact.of(rad)) for side in (-1, 1))
        bottom, top = exact.of(found.mid) - exact.of(found.rad), exact.of(found.mid) + exact.of(found.rad)
        assert (bottom <= low).all()
        assert (high <= top).all()
        assert (bottom >= low - NEAR).all()
        assert (top <= high + NEAR).all()


@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_box_that_a_flow_does_not_leave_at_its_edge(side, axis, exact):
    """``x' = -x + c y + u``: at the end of the box the largest speed outwards is ``-h + |c| k + side u``."""
    c, u, k = 0.7, 0.3, 1.1
    a = np.array([[-1.0, c], [0.0, -1.0]]) if axis == 0 else np.array([[-1.0, 0.0], [c, -1.0]])
    push = np.zeros((2, 1))
    push[axis] = side
    driven = DrivenSystem(LureSystem.linear(a), "identity", np.zeros((0, 1)), F=push)

    def kept(h: float) -> bool:
        high = np.full(2, k)
        low = -high
        if side > 0:
            high[axis] = h
        else:
            low[axis] = -h
        # the opposite end is far enough
        (low if side > 0 else high)[axis] = -side * 9.0
        return is_left_nowhere(driven, low, high, np.array([u]))

    least = exact.bisect(kept, 5.0, 0.1)
    speed = Fraction(c) * Fraction(k) + Fraction(u)
    assert Fraction(least) >= speed
    assert Fraction(least) <= speed * (1 + NEAR)


def test_the_far_side_of_a_box_counts_as_well():
    """``x' = 1`` is left at the upper end alone, ``x' = -1`` at the lower one; ``x' = 0`` nowhere."""
    still = LureSystem.linear([[0.0]])
    driven = DrivenSystem(still, "identity", np.zeros((0, 1)), F=[[1.0]])
    one = np.ones(1)
    assert not is_left_nowhere(driven, -one, one, one)
    assert not is_left_nowhere(driven, -one, one, -one)
    assert not is_left_nowhere(driven, -one, one, np.array([1e-290]))
    turning = DrivenSystem(LureSystem.linear(-np.eye(1)), "identity", np.zeros((0, 1)), F=[[1.0]])
    assert is_left_nowhere(turning, -one, one, 0 * one)


@pytest.mark.parametrize("name", ["tanh", "identity"])
def test_channels_push_outwards_at_their_own_end(name, exact):
    """``x' = -a x + phi(2 x)`` over ``|x| <= 1`` is left nowhere from ``a = phi(2)`` on."""
    one = np.ones(1)

    def kept(a: float) -> bool:
        driven = DrivenSystem(LureSystem([[-a]], [[1.0]], [[2.0]]), name, [[0.0]])
        return is_left_nowhere(driven, -one, one, np.zeros(1))

    least, truth = exact.bisect(kept, 5.0, 0.1), np.tanh(2.0) if name == "tanh" else 2.0
    assert truth <= least <= truth * (1 + 1e-13)
