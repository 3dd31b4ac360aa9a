"""Growing forms and enclosed eigenpairs at their edges, judged in rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.eigenpairs import (
    Eigenpair,
    Matrix,
    enclose_eigenpair,
)
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.unstable_matrices import (
    _form_from_vectors,
    _is_outside,
    _quadratic_form_grows,
    enclose_unstable,
    prove_not_stable,
    prove_trace,
)

E, SPARE = Fraction(EPS), Fraction(1, 10**6)  # the latter is added to error bounds in proofs of definiteness


def matrix(values, rad=None) -> Matrix:
    mid = np.array(values, dtype=float)
    return Matrix(Ball(mid, np.zeros(mid.shape) if rad is None else np.array(rad, dtype=float)), np.ones(len(mid)))


def scalar(a: float, r: float) -> Ball:
    return Ball(np.array([[a]]), np.array([[r]]))


ONE = np.ones(1)

# ---- forms that grow ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "s"), [(1.0, 0.0), (1.0, 0.5), (1e-6, 1e-7), (3e5, 1.0)])
def test_the_rate_of_growth_of_a_number(a, s, exact):
    """``x' = (a +- r) x`` grows at the rate ``s`` for all of them as long as ``a - r > s``."""
    last = exact.bisect(lambda r: _quadratic_form_grows(scalar(a, r), np.eye(1), s, False, ONE), 0.0, 2 * a)
    room = Fraction(a) - Fraction(s)
    assert Fraction(last) < room
    assert Fraction(last) > room * (1 - 2 * SPARE) - 64 * E * (Fraction(a) + Fraction(s))


@pytest.mark.parametrize(("a", "s"), [(1.5, 1.0), (-1.5, 1.2), (1.0 + 1e-6, 1.0), (300.0, 2.0)])
def test_the_growth_of_a_number_in_one_step(a, s, exact):
    """``|a| - r > s``; the ball of the square is ``2 |a| r + r^2`` wide."""
    last = exact.bisect(lambda r: _quadratic_form_grows(scalar(a, r), np.eye(1), s, True, ONE), 0.0, 2 * abs(a))
    size, r = abs(Fraction(a)), Fraction(last)
    room = size**2 - 2 * size * r - r**2 - Fraction(s) ** 2
    assert size - r > Fraction(s)
    assert 0 < room < 2 * SPARE * (2 * size * r + r**2) + 100 * E * size**2


def test_a_form_that_grows_by_less_than_nothing_proves_nothing():
    """``x' = -x``, ``x+ = x / 2`` satisfy the inequality at a rate below the edge, and are stable."""
    for discrete, a, below, edge in ((False, -1.0, -2.0, 0.0), (True, 0.5, 0.25, 1.0)):
        assert not _quadratic_form_grows(scalar(a, 0.0), np.eye(1), below, discrete, ONE)
        assert not _quadratic_form_grows(
            scalar(edge + 1.0, 0.0), np.eye(1), float(np.nextafter(edge, -1)), discrete, ONE
        )
        assert _quadratic_form_grows(scalar(edge + 1.0, 0.0), np.eye(1), edge, discrete, ONE)
        assert not _quadratic_form_grows(scalar(edge + 1.0, 0.0), np.eye(1), np.nan, discrete, ONE)


@pytest.mark.parametrize("discrete", [False, True])
def test_the_form_must_be_positive_somewhere(discrete):
    """``-x^2`` grows under a stable system: it says nothing without a vector at which it is positive."""
    ball, edge = scalar(0.5 if discrete else -1.0, 0.0), 1.0 if discrete else 0.0
    assert not _quadratic_form_grows(ball, -np.eye(1), edge, discrete, ONE)
    assert not _quadratic_form_grows(ball, -np.eye(1), edge, discrete, 0 * ONE)
    for form in (np.zeros((1, 1)), np.full((1, 1), np.nan), np.full((1, 1), np.inf)):
        assert not _quadratic_form_grows(scalar(3.0, 0.0), form, edge, discrete, ONE)
    two, axis = Ball.exact(np.diag([3.0, 0.1 if discrete else -1.0])), np.eye(2)
    assert _quadratic_form_grows(two, np.diag([1.0, -1.0]), edge, discrete, axis[0])
    assert not _quadratic_form_grows(two, np.diag([1.0, -1.0]), edge, discrete, axis[1])
    assert not _quadratic_form_grows(two, np.diag([1.0, -1.0]), edge, discrete, np.ones(2))  # zero there, exactly


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_every_matrix_of_the_last_accepted_ball_grows(discrete, seed, exact):
    """A form of both signs, radii that differ, a scale that is none: signs of the errors drawn, and all of one kind."""
    rng = np.random.default_rng(seed)
    n, s, scale = 3, 1.3 if discrete else 0.4, 2.0 ** rng.integers(-30, 30)
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0] + 0.2 * rng.normal(size=(n, n))
    values = [2.0, 1.7, 0.6] if discrete else [1.5, 0.9, -1.0]
    mid = basis @ np.diag(values) @ np.linalg.inv(basis)
    form = _form_from_vectors(basis.astype(complex), np.array([1.0, 1.0, -1.0])) * scale
    weights = rng.random((n, n))

    def accepted(r: float) -> bool:
        return _quadratic_form_grows(Ball(mid, r * weights), form, s, discrete, basis[:, 0].copy())

    last = exact.bisect(accepted, 0.0, 2.0)
    assert last > 1e-3
    X = exact.of((form + form.T) / (2 * np.abs(form).max()))
    for signs in (np.ones((n, n)), -np.ones((n, n)), *np.sign(rng.normal(size=(20, n, n)))):
        A = exact.of(mid) + exact.of(signs) * exact.of(last * weights)
        if discrete:
            growth = A.T @ X @ A - Fraction(s * s) * X
        else:
            growth = A.T @ X + X @ A - 2 * Fraction(s) * X
        assert exact.is_definite(growth)


@pytest.mark.parametrize(
    ("values", "discrete"),
    [
        ([2.5, 2.5, 1.0, -9.0], False),  # the form is negative at the slow unstable direction
        ([1.5, 1.5, 1.1, -0.9, -0.9, -0.9], True),
        ([1e-3, 1e-3, -1.0], False),
        ([2.5, 2.5, 1e-17, -9.0], False),  # the slowest one is too near the edge
        ([2.0, -9.0], False),
        ([-9.0, 2.0, 2.0], False),
        ([1.5, -0.9, -0.9], True),
    ],
)
def test_growth_faster_than_the_slower_directions(values, discrete):
    reason = prove_not_stable(matrix(np.diag(values)), discrete, None, strict=True)
    assert reason == "a quadratic form grows along every trajectory and is positive somewhere"


def test_a_jordan_block_needs_the_equation():
    """Too few eigenvectors: the form comes from the Lyapunov (Stein) equation, for both kinds of time."""
    block = np.array([[0.7, 9.0, 0.0], [0.0, 0.7, 0.0], [0.0, 0.0, -5.0]])
    assert prove_not_stable(matrix(block), False, None)
    assert prove_not_stable(matrix(block - np.diag([0.8, 0.8, 0.0])), False, None) is None
    turned = np.zeros((4, 4))
    turned[:2, :2], turned[2:, 2:] = [[1.2, 9.0], [0.0, 1.2]], [[-1.2, 9.0], [0.0, -1.2]]
    assert prove_not_stable(matrix(turned), True, None)
    assert prove_not_stable(matrix(0.8 * turned), True, None) is None


# ---- enclosed eigenpairs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("top", "proved"), [(0.99e-200, False), (1.01e-200, True), (0.99e200, True), (1.01e200, False)]
)
def test_beyond_two_hundred_orders_of_magnitude_nothing_is_proved(top, proved):
    assert (enclose_eigenpair(matrix([[top]]), top, ONE) is not None) is proved


def test_a_ball_beyond_newton_and_kantorovich():
    """``[[e, +-r], [d, -1]]`` holds a stable matrix once ``r d > e``, also where ``|I - R J|`` exceeds one."""
    e, d = 0.1, 0.2
    for r in np.concatenate([np.linspace(0.0, 6.0, 121), [10.0, 50.0]]):
        found = enclose_unstable(matrix([[e, 0.0], [d, -1.0]], [[0.0, r], [0.0, 0.0]]), False, e)
        assert found is None or r * d < e, r
    assert enclose_unstable(matrix([[e, 0.0], [d, -1.0]], [[0.0, 1e-9], [0.0, 0.0]]), False, e)


@pytest.mark.parametrize("scale", [1.0, 0.25, 2.0**40])
@pytest.mark.parametrize("wide", [0.0, 0.3, 0.6, 1.0, 1.3, 1.8])
def test_eigenvalues_of_a_ball_lie_in_the_enclosure(scale, wide):
    """``[[0, 1], [+-r, -1 +- wide]]``: the eigenvalue near zero solves ``s^2 + (1 -+ wide) s = +-r``.

    It is complex from ``r = (1 - wide)^2 / 4`` on, and up to ``r / (1 - wide)`` and more away from zero; from
    ``wide = 1`` on there may be two.
    """
    accepted = 0
    for r in np.concatenate([10.0 ** np.arange(-12.0, -2.0), np.linspace(0.0, 0.6, 61)]):
        ball = matrix(scale * np.array([[0.0, 1.0], [0.0, -1.0]]), scale * np.array([[0.0, 0.0], [r, wide]]))
        pair = enclose_eigenpair(ball, 0.0, np.array([1.0, 0.0]))
        if pair is None:
            continue
        accepted += 1
        assert 4 * r < max(1 - wide, 0.0) ** 2
        for t in (1 - wide, 1.0, 1 + wide):
            for q in (-r, r):
                true = 2 * q / (t + np.sqrt(t * t + 4 * q))
                assert abs(pair.value - scale * true) <= pair.radius * (1 + 1e-12)
                assert abs(pair.vector[1] - true) <= pair.vector_radius * (1 + 1e-12)
    assert (accepted >= 10) == (wide < 1.0)


def test_outside_the_circle_by_more_than_the_radius(rng):
    """``|value| > 1 + radius`` in rationals wherever it is said, at values whose modulus is rounded."""
    said = 0
    for angle in rng.uniform(0.0, 2 * np.pi, 300):
        radius = 10.0 ** rng.uniform(-16, -13)
        value = (1.0 + radius + rng.integers(-4, 9) * 2.0**-52) * np.exp(1j * angle)
        pair = Eigenpair(complex(value), radius, ONE, radius)
        square = Fraction(value.real) ** 2 + Fraction(value.imag) ** 2
        if _is_outside(pair, True):
            said += 1
            assert square > (1 + Fraction(radius)) ** 2
        else:
            assert square < (1 + Fraction(radius) + 8 * E) ** 2
        assert _is_outside(pair, False) == (value.real > radius)
    assert 30 < said < 270
    assert not _is_outside(Eigenpair(0.5, 0.5, ONE, 0.5), False)


def test_the_trace_counts_every_bit_of_its_radii(rng):
    """Sums of numbers and radii that cancel to the last bit: what is said is what rationals say."""
    said = 0
    for _ in range(300):
        n, discrete, strict = int(rng.integers(2, 5)), bool(rng.integers(2)), bool(rng.integers(2))
        diagonal, rad = rng.normal(size=n) + 2.0, rng.random(n)
        rad[0] = max(diagonal.sum() - rad[1:].sum() - n * discrete + rng.integers(-1, 2) * 2.0**-52, 0.0)
        true = sum(map(Fraction, diagonal), Fraction(0)) - sum(map(Fraction, rad), Fraction(0)) - n * discrete
        found = prove_trace(matrix(np.diag(diagonal), np.diag(rad)), discrete, strict)
        assert found == (true > 0 if strict else true >= 0)
        said += found
    assert 50 < said < 250


def test_double_eigenvalues_are_not_enclosed():
    for twice in (np.eye(2), np.array([[1.0, 1.0], [0.0, 1.0]])):
        assert enclose_eigenpair(matrix(twice), 1.0, np.array([1.0, 0.0])) is None
