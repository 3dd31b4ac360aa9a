"""Krawczyk's test at its edge: any map whose step is known exactly, judged in rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.krawczyk import MOVED, _Shooting, distance, enclose_orbit, invariant_radius
from stability.kernel.reachability.gated_orbits import _shooting, enclose
from stability.kernel.reachability.stack_orbits import layer_step
from stability.systems import DrivenSystem, LureSystem

E = Fraction(EPS)


def test_a_kept_radius_goes_into_itself_and_shrinks(exact, rng):
    """``move + spread(r) r < r`` in rationals, up to the last spread that is accepted."""
    for move in [1.0, 3.0, 1e-300, *10.0 ** rng.uniform(-250, 250, 60)]:
        last = exact.bisect(lambda b, a=move: invariant_radius(a, lambda r: b) is not None, 0.0, 1.0)
        radius = invariant_radius(move, lambda r, b=last: b)
        assert Fraction(move) + Fraction(last) * Fraction(radius) < Fraction(radius)
        assert radius >= 64.0 * move  # the widest trial takes the largest spread
        assert last >= 1 - Fraction(move) / Fraction(radius) - 24 * E
        narrow = invariant_radius(move, lambda r: 0.3)
        assert narrow == 1.5 * move + 1e-290


def test_a_map_that_does_not_shrink_keeps_no_radius():
    for spread in (1.0, 1.5, np.inf, np.nan):
        assert invariant_radius(1e-9, lambda r, b=spread: b) is None
        assert invariant_radius(0.0, lambda r, b=spread: b) is None
    for move in (np.inf, np.nan):
        assert invariant_radius(move, lambda r: 0.5) is None
    assert invariant_radius(0.0, lambda r: 0.5) == 1e-290


# ---- periodic orbits of affine maps ------------------------------------------------------------------------------

SLOPES, SHIFTS = [0.5, -0.75, 2.0], [1.0, 3.0, -0.625]


def scalar_step(i: int, x: Ball) -> tuple[Ball, Ball]:
    return SLOPES[i] * x + SHIFTS[i], Ball.exact(np.array([[SLOPES[i]]]))


def orbit_of(slopes, shifts) -> list[Fraction]:
    """The orbit of ``x_{i+1} = a_i x_i + c_i``: its first point solves ``x = (prod a) x + rest``."""
    gain, rest = Fraction(1), Fraction(0)
    for a, c in zip(slopes, shifts):
        gain, rest = Fraction(a) * gain, Fraction(a) * rest + Fraction(c)
    points = [rest / (1 - gain)]
    for a, c in zip(slopes[:-1], shifts[:-1]):
        points.append(Fraction(a) * points[-1] + Fraction(c))
    return points


@pytest.mark.parametrize("period", [1, 2, 3])
def test_every_point_of_an_orbit_is_followed_by_its_image(period):
    true = orbit_of(SLOPES[:period], SHIFTS[:period])
    guess = np.array([[float(x)] for x in true]) * (1 + 1e-5)
    box = enclose(scalar_step, guess)
    for x, mid, rad in zip(true, box.mid[:, 0], box.rad[:, 0]):
        assert abs(x - Fraction(mid)) <= Fraction(rad) <= Fraction(1, 10**13)
    if period == 3:
        assert enclose(scalar_step, guess[[0, 2, 1]]) is None


@pytest.mark.parametrize("period", [1, 2, 3])
def test_the_derivative_of_the_shooting_equations(period, exact, rng):
    """Jacobians on the diagonal, minus the identity at the next point; radii where Jacobians have them."""
    n = 2
    mids, rads = rng.normal(size=(period, n, n)), np.abs(rng.normal(size=(period, n, n)))
    points = Ball(rng.normal(size=(period, n)), np.abs(rng.normal(size=(period, n))))
    images = Ball(rng.normal(size=(period, n)), np.abs(rng.normal(size=(period, n))))
    value, slope = _shooting(lambda i, x: (images[i], Ball(mids[i], rads[i])), points)
    true, spread = exact.of(np.zeros((period * n, period * n))), np.zeros((period * n, period * n))
    for i in range(period):
        rows, ahead = slice(i * n, i * n + n), (i + 1) % period
        true[rows, rows] = true[rows, rows] + exact.of(mids[i])
        spread[rows, rows] = rads[i]
        columns = slice(ahead * n, ahead * n + n)
        true[rows, columns] = true[rows, columns] - exact.of(np.eye(n))
        apart = exact.of(images.mid[i]) - exact.of(points.mid[ahead])
        reach = exact.of(images.rad[i]) + exact.of(points.rad[ahead])
        assert (abs(apart - exact.of(value.mid[rows])) + reach <= exact.of(value.rad[rows])).all()
        assert (exact.of(value.rad[rows]) <= (reach + 4 * E * abs(apart)) * (1 + 12 * E)).all()
    assert value.shape == (period * n,)
    off = abs(exact.of(slope.mid) - true)
    assert (off + exact.of(spread) <= exact.of(slope.rad)).all()
    assert (exact.of(slope.rad) <= (exact.of(spread) + 4 * E * abs(true)) * (1 + 12 * E)).all()


def test_the_slopes_of_the_whole_box_count(exact):
    """``x -> x/2 + c x^2`` has slopes ``1/2 + 2 c x``: over a box in which they reach one nothing is proved."""
    a = 1e-3

    def proved(curve: float) -> bool:
        def step(i: int, x: Ball) -> tuple[Ball, Ball]:
            widened = Ball(np.array([0.0]), np.array([a])) if not x.rad.any() else Ball(np.zeros(1), x.rad)
            return widened, Ball(np.array([[0.0]]), np.array([[curve * float(x.rad[0])]]))

        return enclose(step, np.zeros((1, 1))) is not None

    last = exact.bisect(proved, 0.0, 1e4)
    # a + c r^2 < r at r = 1.5 a, 4 a or 64 a: c < 2/9/a at best
    assert last <= 2 / (9 * a)
    assert last >= 2 / (9 * a) * (1 - 1e-9)


@pytest.mark.parametrize("away", [0.99, 1.01])
@pytest.mark.parametrize("centre", [0.0, 3.0])
def test_the_orbit_lies_where_it_was_sought(away, centre):
    """Newton's method on an affine map goes to the orbit at once, however far that is."""
    step = lambda i, x: (0.5 * x + 0.5 * centre, Ball.exact(np.array([[0.5]])))  # noqa: E731
    found = enclose(step, np.array([[centre + away * MOVED * (1.0 + centre)]]))
    assert (found is not None) is (away < 1)


def test_where_newtons_method_breaks_down_there_is_no_orbit():
    one = np.ones((1, 1))
    still = lambda i, x: (x, Ball.exact(np.eye(1)))  # noqa: E731 - every point is one: singular
    assert enclose(still, one) is None
    with np.errstate(all="ignore"):
        lost = lambda i, x: (x * np.nan, Ball.exact(np.zeros((1, 1))))  # noqa: E731
        assert enclose(lost, one) is None
        wide = lambda i, x: (Ball(0.5 * x.mid, np.array([np.inf])), Ball.exact(np.array([[0.5]])))  # noqa: E731
        assert enclose(wide, np.zeros((1, 1))) is None


# ---- orbits of networks ------------------------------------------------------------------------------------------


def network(rng, discrete: bool) -> DrivenSystem:
    """Affine, with a channel that feeds the other one."""
    n, m, p = 2, 2, 1
    system = LureSystem(
        0.3 * rng.normal(size=(n, n)), 0.3 * rng.normal(size=(n, m)), rng.normal(size=(m, n)), [[0.0, 0.0], [0.6, 0.0]],
        dt=1.0 if discrete else None,
    )  # fmt: skip
    return DrivenSystem(system, "identity", rng.normal(size=(m, p)), rng.normal(size=m), F=rng.normal(size=(n, p)))


def defects(driven, x, z, u, exact):
    """Return the residual of the orbit equations in rationals: the rows of all steps, then all channels."""
    a, b, c, d = exact.discretised(driven.system)
    rows, channels, k = [], [], len(x)
    for i in range(k):
        v = exact.of(u[i % len(u)])
        after = a @ x[i] + b @ z[i] + exact.of(driven.F) @ v
        rows.append(after - x[(i + 1) % k] if driven.system.is_discrete else after)
        channels.append(c @ x[i] + d @ z[i] + exact.of(driven.E) @ v + exact.of(driven.b) - z[i])
    return np.concatenate(rows + channels)


@pytest.mark.parametrize(("period", "turns", "discrete"), [(1, 1, False), (1, 1, True), (2, 1, True), (3, 3, True)])
def test_the_equations_of_an_orbit_and_their_derivative(period, turns, discrete, exact, rng):
    driven, n, m = network(rng, discrete), 2, 2
    x, z, u = rng.normal(size=(period, n)), rng.normal(size=(period, m)), rng.normal(size=(turns, 1))
    equations = _Shooting(driven, u, period)
    residual, _ = equations(Ball.exact(np.concatenate([x.ravel(), z.ravel()])))
    slope = equations.derivative(Ball(z, np.ones(z.shape)))
    true = defects(driven, exact.of(x), exact.of(z), u, exact)
    assert (abs(exact.of(residual.mid) - true) <= exact.of(residual.rad)).all()
    assert (residual.rad < 1e-13).all()
    for j in range(period * (n + m)):
        moved = exact.of(np.concatenate([x.ravel(), z.ravel()]))
        moved[j] = moved[j] + 1
        away = defects(driven, moved[: period * n].reshape(period, n), moved[period * n :].reshape(period, m), u, exact)
        assert (abs(exact.of(slope.mid[:, j]) - (away - true)) <= exact.of(slope.rad[:, j])).all()
        assert (slope.rad[:, j] < 1e-13).all()
    found = enclose_orbit(driven, np.zeros((period, n)), u)
    assert found is None  # Newton's method goes farther than it may


def test_the_step_of_a_layer_of_a_stack_and_its_jacobian(exact, rng):
    """States and inputs in balls: the corners' images are inside, and the Jacobian is that of an affine map."""
    driven = network(rng, True)
    a, b, c, d = exact.discretised(driven.system)
    f, e = exact.of(driven.F), exact.of(driven.E)
    loop = exact.of(np.eye(2)) + d  # the inverse of I - D: D feeds forwards once
    x, u = Ball(rng.normal(size=2), np.abs(rng.normal(size=2))), Ball(rng.normal(size=1), np.abs(rng.normal(size=1)))
    image, jacobian = layer_step(driven, x, u)
    by_x, by_u = a + b @ loop @ c, f + b @ loop @ e
    assert (abs(exact.of(jacobian.mid) - by_x) <= exact.of(jacobian.rad)).all()
    assert (jacobian.rad < 1e-13).all()
    centre = by_x @ exact.of(x.mid) + by_u @ exact.of(u.mid) + b @ loop @ exact.of(driven.b)
    reach = abs(by_x) @ exact.of(x.rad) + abs(by_u) @ exact.of(u.rad)
    assert (abs(exact.of(image.mid) - centre) + reach <= exact.of(image.rad)).all()
    assert (abs(exact.of(image.mid) - centre) <= Fraction(1, 10**13)).all()
    assert layer_step(network(rng, False), x, u) is None


def test_a_flow_has_equilibria_alone():
    flow = DrivenSystem(LureSystem([[-1.0]], [[1.0]], [[0.5]]), "tanh", [[0.0]])
    zero = np.zeros((1, 1))
    assert enclose_orbit(flow, zero, zero) is not None
    for k in (2, 3):
        assert enclose_orbit(flow, np.zeros((k, 1)), zero) is None


@pytest.mark.parametrize("centre", [0.0, 100.0])
@pytest.mark.parametrize("away", [0.99, 1.01])
def test_an_equilibrium_lies_where_it_was_sought(away, centre):
    linear = DrivenSystem(LureSystem.linear([[-1.0]]), "tanh", np.zeros((0, 1)), F=[[1.0]])
    start = np.array([[centre + away * MOVED * (1.0 + centre)]])
    assert (enclose_orbit(linear, start, np.array([[centre]])) is not None) is (away < 1)


# ---- boxes apart ---------------------------------------------------------------------------------------------------


def test_the_distance_of_boxes_is_below_the_true_one(exact, rng):
    for _ in range(200):
        a, b = rng.normal(size=(2, 3)) * 10.0 ** rng.integers(-8, 9)
        ra, rb = np.abs(rng.normal(size=(2, 3))) * 10.0 ** rng.integers(-18, 1) * (rng.random() < 0.8)
        found = Fraction(distance(Ball(a, ra), Ball(b, rb)))
        gap = abs(exact.of(a) - exact.of(b))
        true = max(gap - exact.of(ra) - exact.of(rb))
        assert true - 16 * E * max(gap) - 16 * E * max(exact.of(ra) + exact.of(rb)) - Fraction(5e-324) <= found
        assert found < true


def test_boxes_that_touch_are_not_apart():
    one = np.ones(1)
    assert not distance(Ball(0 * one, one), Ball(3 * one, 2 * one)) > 0
    assert not distance(Ball.exact(one), Ball.exact(one)) > 0
    assert distance(Ball.exact(one), Ball.exact(np.nextafter(one, 2))) > 0
