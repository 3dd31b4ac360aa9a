"""Each operation on balls encloses, judged in rationals and to 200 bits, and is not much wider than it must be."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.activation_bounds import activation_slopes, activation_values
from stability.kernel.arithmetic.balls import Ball, _recentered, row_sum_norm, system_balls
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.systems import LureSystem

E = Fraction(EPS)
BITS = 200


def numbers(rng, shape) -> np.ndarray:
    """Draw numbers of both signs, over sixteen orders of magnitude."""
    return rng.normal(size=shape) * 10.0 ** rng.integers(-8, 9, size=shape)


def ends(ball: Ball, exact) -> tuple[np.ndarray, np.ndarray]:
    mid, rad = exact.of(ball.mid), exact.of(ball.rad)
    return mid - rad, mid + rad


def encloses(ball: Ball, values: np.ndarray, exact) -> bool:
    low, high = ends(ball, exact)
    return bool((low <= values).all() and (values <= high).all())


OPERATIONS = {
    "+": (lambda a, b: a + b, lambda x, y: x + y),
    "-": (lambda a, b: a - b, lambda x, y: x - y),
    "*": (lambda a, b: a * b, lambda x, y: x * y),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("fuzzy", ["neither", "left", "right", "both"])
def test_entrywise_operations_enclose_and_are_tight(name, fuzzy, exact, rng):
    operate, truth = OPERATIONS[name]
    a, b = numbers(rng, 400), numbers(rng, 400)
    ra, rb = np.abs(numbers(rng, 400)), np.abs(numbers(rng, 400))
    ra, rb = ra * (fuzzy in ("left", "both")), rb * (fuzzy in ("right", "both"))
    ball = operate(Ball(a, ra), Ball(b, rb))
    fa, fb, fra, frb = map(exact.of, (a, b, ra, rb))
    corners = [truth(fa + s * fra, fb + t * frb) for s in (-1, 1) for t in (-1, 1)]
    assert all(encloses(ball, corner, exact) for corner in corners)
    needed = np.max([np.abs(corner - truth(fa, fb)) for corner in corners], axis=0)
    own = (4 if name == "*" else 2) * E * np.abs(truth(fa, fb))  # documented: twice to four times one rounding
    assert (exact.of(ball.rad) >= (needed + own) * (1 - E)).all()
    assert (exact.of(ball.rad) <= (needed + own) * (1 + 12 * E) + 2 * Fraction(TINY)).all()


@pytest.mark.parametrize("length", [1, 3, 50])
@pytest.mark.parametrize("fuzzy", ["neither", "left", "right", "both"])
def test_products_of_matrices_enclose_and_are_tight(length, fuzzy, exact, rng):
    a, b = numbers(rng, (3, length)), numbers(rng, (length, 2))
    ra, rb = np.abs(numbers(rng, a.shape)), np.abs(numbers(rng, b.shape))
    ra, rb = ra * (fuzzy in ("left", "both")), rb * (fuzzy in ("right", "both"))
    fa, fb, fra, frb = map(exact.of, (a, b, ra, rb))
    spread = np.abs(fa) @ frb + fra @ np.abs(fb) + fra @ frb
    ball = Ball(a, ra) @ Ball(b, rb)
    assert encloses(ball, fa @ fb - spread, exact)  # the spread is reached where all signs agree
    assert encloses(ball, fa @ fb + spread, exact)
    own = (length + 4) * E * (np.abs(fa) @ np.abs(fb))
    assert (exact.of(ball.rad) >= (spread + own) * (1 - 2 * length * E)).all()
    assert (exact.of(ball.rad) <= (spread + own) * (1 + (6 * length + 24) * E) + 2 * length * Fraction(TINY)).all()


@pytest.mark.parametrize("sides", ["left", "right", "both"])
def test_complex_products_stay_within_their_radius(sides, exact, rng):
    def complex_or_real(shape, imaginary):
        return numbers(rng, shape) + (1j * numbers(rng, shape) if imaginary else 0.0)

    a, b = complex_or_real((4, 6), sides != "right"), complex_or_real((6, 3), sides != "left")
    ball = Ball.exact(a) @ b
    re, im = (
        exact.of(a.real) @ exact.of(b.real) - exact.of(a.imag) @ exact.of(b.imag),
        exact.of(a.real) @ exact.of(b.imag) + exact.of(a.imag) @ exact.of(b.real),
    )
    off = (exact.of(ball.mid.real) - re) ** 2 + (exact.of(ball.mid.imag) - im) ** 2
    assert (off <= exact.of(ball.rad) ** 2).all()
    size = 4 * (6 + 4) * EPS * (np.abs(a) @ np.abs(b))
    np.testing.assert_allclose(ball.rad, size, rtol=1e-12)


def test_the_radius_of_a_point_covers_the_rounding_of_its_entries_alone(exact):
    """Cancellation: the result is small, its error is that of the terms."""
    a, b = np.array([[1.0, 1.0]]), np.array([[1 / 3], [-1 / 3 + 2.0**-54]])
    ball = Ball.exact(a) @ b
    assert encloses(ball, exact.of(a) @ exact.of(b), exact)
    assert ball.rad[0, 0] >= 2 * EPS * (2 / 3)


@pytest.mark.parametrize("length", [1, 9])
def test_underflow_is_inside(length, exact):
    tiny = np.full(length, 1e-200)
    square = exact.of(tiny) * exact.of(tiny)
    assert encloses(Ball.exact(tiny) * tiny, square, exact)
    inner = Ball.exact(tiny[None, :]) @ tiny[:, None]
    assert encloses(inner, np.array([[square.sum()]]), exact)
    assert length * TINY <= inner.rad[0, 0] <= 1.01 * length * TINY


def test_nan_and_overflow_prove_nothing():
    with np.errstate(all="ignore"):
        for ball in (Ball.exact(np.array([1e300])) * 1e300, Ball.exact(np.array([[np.inf]])) @ np.zeros((1, 1))):
            assert not (ball.rad < np.inf).any()


def test_mixed_operands_and_their_order(exact):
    plain, ball = np.array([[1.0, 2.0], [3.0, 4.0]]), Ball(np.array([[5.0, 6.0], [7.0, 8.0]]), np.full((2, 2), 0.5))
    assert ((plain + ball).mid == plain + ball.mid).all()
    assert ((plain - ball).mid == plain - ball.mid).all()
    assert ((plain * ball).mid == plain * ball.mid).all()
    assert ((plain @ ball).mid == plain @ ball.mid).all()
    assert ((plain @ ball).rad >= plain @ ball.rad).all()
    assert ((plain - ball).rad >= 0.5).all()
    assert Ball.exact(ball) is ball
    assert Ball.exact(plain).rad.shape == plain.shape
    assert not Ball.exact(plain).rad.any()
    assert ((-ball).mid == -ball.mid).all()
    assert ((-ball).rad == ball.rad).all()
    assert (ball.T.mid == ball.mid.T).all()
    skewed = Ball(ball.mid, plain)
    assert (skewed.T.rad == plain.T).all()
    assert (skewed[0].mid == ball.mid[0]).all()
    assert (skewed[0].rad == plain[0]).all()
    assert skewed.shape == (2, 2)
    block = Ball.stack([[skewed, ball], [ball, skewed]])
    assert (block[2:, 2:].rad == plain).all()
    assert (block[:2, 2:].mid == ball.mid).all()
    assert block.shape == (4, 4)


@pytest.mark.parametrize("imaginary", [0.0, 1.0])
def test_upper_is_above_the_absolute_value(imaginary, exact, rng):
    mid = numbers(rng, 300) + 1j * imaginary * numbers(rng, 300)
    mid = mid if imaginary else mid.real
    rad = np.abs(numbers(rng, 300))
    above = exact.of(Ball(mid, rad).upper()) - exact.of(rad)
    square = exact.of(np.real(mid)) ** 2 + exact.of(np.imag(mid)) ** 2
    assert (above > 0).all()
    assert (above**2 >= square).all()
    assert (above <= exact.of(np.abs(mid)) * (1 + 6 * E) + 4 * E * exact.of(rad)).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (40, 3), (7,), (0,), (0, 3)])
def test_the_row_sum_norm_is_above_and_near(shape, exact, rng):
    ball = Ball(numbers(rng, shape), np.abs(numbers(rng, shape)))
    sizes = np.abs(exact.of(ball.mid)) + exact.of(ball.rad)
    true = max(sizes.sum(axis=1) if sizes.ndim == 2 else sizes, default=Fraction(0))
    assert true <= Fraction(row_sum_norm(ball)) <= true * (1 + (4 * max(shape, default=1) + 20) * E)
    if true:
        assert Fraction(row_sum_norm(ball)) > true


def test_the_row_sum_norm_counts_the_roundings_of_the_sum():
    size = 1000
    row = np.full((1, size), EPS / 4)
    row[0, 0] = 1.0
    true = 1 + (size - 1) * Fraction(EPS / 4)
    assert true <= Fraction(row_sum_norm(Ball.exact(row)))


def high(name: str, z, slope: bool):
    """The activation, or its derivative, to 200 bits."""
    z = flint.arb(z)
    if name == "tanh":
        t = z.tanh()
        return 1 - t * t if slope else t
    s = 1 / (1 + (-z).exp())
    return s * (1 - s) if slope else s


def contains(ball: Ball, index: int, value) -> bool:
    mid, rad = flint.arb(float(ball.mid[index])), flint.arb(float(ball.rad[index]))
    return bool(abs(value - mid) <= rad)


CENTRES = [0.0, 0.6584789484624083, 1.3169578969248166, -0.6584789484624083, -1.3169578969248166, 2.5, -9.0, 1e-9, 40.0]
RADII = [0.0, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 5.0, 100.0]


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
@pytest.mark.parametrize("slope", [False, True])
def test_smooth_activations_enclose_the_ends_of_the_ball(name, slope, rng):
    """The slopes bend fastest where ``phi''`` is largest: at atanh(1/sqrt 3) = 0.658 and twice that."""
    flint.ctx.prec = BITS
    centres = np.concatenate([CENTRES, rng.normal(size=40) * 3])
    for radius in RADII:
        z = Ball(centres, np.full(centres.shape, radius))
        image = (activation_slopes if slope else activation_values)(name, z)
        for i, centre in enumerate(centres):
            mid, rad = flint.arb(float(centre)), flint.arb(radius)
            for part in (-1, -0.5, 0, 0.5, 1):
                assert contains(image, i, high(name, mid + part * rad, slope)), (centre, radius, part)


@pytest.mark.parametrize(
    ("name", "slope", "steepest", "most", "own"),
    [
        ("tanh", False, 1.0, np.inf, 8 * EPS),
        ("sigmoid", False, 0.25, np.inf, 12 * EPS),
        ("tanh", True, 4 / 3**1.5, 1.0, 24 * EPS),
        ("sigmoid", True, 3**-0.5 / 6, 0.25, 24 * EPS),
    ],
)
def test_smooth_activations_are_tight(name, slope, steepest, most, own):
    """The radius is the steepest slope times the radius given, at most the whole range, and the error documented."""
    for radius in RADII:
        image = (activation_slopes if slope else activation_values)(name, Ball(np.array(CENTRES), np.full(9, radius)))
        size = np.abs(np.tanh(CENTRES)) if (name, slope) == ("tanh", False) else 1.0
        assert (
            image.rad <= np.minimum(1.001 * steepest * radius, most) * (1 + 9 * EPS) + 1.01 * own * size + 2 * TINY
        ).all()
        assert (image.rad >= np.minimum(steepest * radius, most) * (1 - EPS) + 0.99 * own * size).all()


def test_a_point_where_tanh_underflows():
    assert activation_values("tanh", Ball.exact(np.array([0.0]))).rad[0] == TINY


@pytest.mark.parametrize(("name", "low"), [("relu", 0.0), ("leaky_relu", 0.1)])
def test_activations_with_a_kink(name, low, exact):
    mid, rad = np.array([2.0, -2.0, 1.0, 1.0, -1.0, 0.0, 0.3]), np.array([0.5, 0.5, 1.0, 2.0, 1.0, 0.0, 0.0])
    values, slopes = activation_values(name, Ball(mid, rad)), activation_slopes(name, Ball(mid, rad))
    for end in (mid - rad, mid, mid + rad):
        true = np.where(end > 0, exact.of(end), Fraction(low) * exact.of(end))
        assert encloses(values, true, exact)
    kinked = np.abs(mid) <= rad
    one = exact.of(np.ones(7))
    assert encloses(slopes, np.where(kinked | (mid > 0), one, Fraction(low) * one), exact)
    assert encloses(slopes, np.where(kinked | (mid < 0), Fraction(low) * one, one), exact)
    assert (slopes.rad[~kinked] == 0.0).all()
    assert (slopes.rad[kinked] <= 0.5 * (1 - low) + 2 * EPS).all()
    assert (values.rad <= (rad + 2 * EPS * np.abs(mid)) * (1 + 8 * EPS) + TINY).all()


def test_the_identity_and_the_unknown():
    z = Ball(np.array([1.5, -2.0]), np.array([0.25, 0.0]))
    assert (activation_values("identity", z).mid == z.mid).all()
    assert (activation_values("identity", z).rad == z.rad).all()
    assert (activation_slopes("identity", z).mid == 1.0).all()
    assert (activation_slopes("identity", z).rad == 0.0).all()
    for function in (activation_values, activation_slopes):
        with pytest.raises(ConfigurationError):
            function("gelu", z)


@pytest.mark.parametrize("kind", ["euler", "midpoint"])
@pytest.mark.parametrize("zero", [False, True])
def test_balls_of_a_discretised_system_hold_the_stored_and_the_exact_one(kind, zero, exact, rng):
    scale = 0.0 if zero else 1.0
    d = np.array([[0.0, 0.7], [0.0, 0.0]])
    flow = LureSystem(scale * rng.normal(size=(3, 3)), rng.normal(size=(3, 2)), rng.normal(size=(2, 3)), d)
    system = flow.discretise(kind, 0.1)
    stored = (system.A, system.B, system.C, system.D)
    off = 0
    for ball, matrix, true in zip(system_balls(system), stored, exact.discretised(system)):
        assert (ball.mid == matrix).all()
        assert encloses(ball, exact.of(matrix), exact)
        assert encloses(ball, true, exact)
        assert (ball.rad <= 100 * EPS * (1 + np.abs(matrix))).all()
        off += int((exact.of(matrix) != true).sum())
    assert off > 3
    assert system_balls(system)[0].rad.any() != zero  # I + 0 is the identity, exactly


def test_balls_of_a_system_given_by_its_matrices_are_points(rng):
    system = LureSystem(rng.normal(size=(2, 2)), rng.normal(size=(2, 1)), rng.normal(size=(1, 2)))
    for ball, matrix in zip(system_balls(system), (system.A, system.B, system.C, system.D)):
        assert (ball.mid == matrix).all()
        assert not ball.rad.any()


def test_a_ball_moved_to_another_centre_holds_what_it_held(exact):
    ball = Ball(np.array([1.0, 1.0, 1.0]), np.array([2.0**-60, 0.0, 2.0**-60]))
    moved = _recentered(ball, np.array([1.0 + 2.0**-30, 1.0, 1.0]))
    assert encloses(moved, ends(ball, exact)[0], exact)
    assert encloses(moved, ends(ball, exact)[1], exact)
    assert moved.rad[1] == 0.0
    assert (moved.rad <= np.array([2.0**-30 + 2.0**-60, 0.0, 2.0**-60]) * (1 + 6 * EPS)).all()
