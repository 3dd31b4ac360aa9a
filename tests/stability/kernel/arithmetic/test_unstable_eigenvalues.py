"""Unstable eigenvalues: named ones are those of the sentence, and every bound fails just beyond the truth."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.eigenpairs import (
    NEAR,
    Matrix,
    closed_loop_orbit,
    closed_loop_pencil,
    enclose_eigenpair,
    is_near,
)
from stability.kernel.arithmetic.unstable_matrices import enclose_unstable, prove_not_stable, prove_trace
from stability.kernel.theorems.eigenvalue_phrase import eigenvalue_phrase
from stability.systems import LureSystem


def matrix(values, rad=0.0):
    mid = np.atleast_2d(np.array(values, dtype=float))
    return Matrix(Ball(mid, np.full(mid.shape, rad) if np.isscalar(rad) else np.array(rad)), np.ones(len(mid)))


def last(accepts, low, high):
    """The largest accepted number of a bisection, ``accepts(low)`` true and ``accepts(high)`` false."""
    assert accepts(low)
    assert not accepts(high)
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if accepts(middle) else (low, middle)
    return low


class TestTrace:
    @pytest.mark.parametrize("n", [1, 2, 5])
    @pytest.mark.parametrize("trace", [1e-9, 1.0])
    def test_radii_count(self, n, trace):
        """``trace / n`` on the diagonal, each within ``rad``: from ``rad = trace / n`` on a matrix has trace zero."""
        for strict in (False, True):

            def proved(r, strict=strict):
                return prove_trace(matrix(trace / n * np.eye(n), r), False, strict)

            found = last(proved, 0.0, 1.0 + trace)
            assert found <= trace / n
            assert found >= trace / n * (1 - 1e-12)

    @pytest.mark.parametrize("sign", [1.0, -1.0])
    def test_discrete_threshold(self, sign):
        excess = 1e-6
        for n in (1, 3):
            found = last(lambda r, n=n: prove_trace(matrix(sign * (1 + excess) * np.eye(n), r), True), 0.0, 1.0)
            assert found <= (Fraction(1 + excess) - 1) * (1 + Fraction(1, 10**9))
            assert found >= excess * (1 - 1e-6)

    def test_exactly_on_the_boundary(self):
        skew = matrix([[0.0, 1.0], [-1.0, 0.0]])
        assert prove_trace(skew, False)
        assert not prove_trace(skew, False, strict=True)
        assert prove_trace(matrix(np.eye(3)), True)
        assert not prove_trace(matrix(np.eye(3)), True, strict=True)
        assert not prove_trace(matrix(np.diag([1.0, np.nextafter(1.0, 0)])), True)
        assert not prove_trace(matrix([[-5e-324]]), False)
        assert not prove_trace(Matrix(Ball.exact(np.eye(2)), np.array([1.0, 0.0])), False)

    def test_sums_that_cancel_are_exact(self):
        big = np.diag([1e16, 1.0, -1e16, -0.5])
        assert prove_trace(matrix(big), False)
        big[1, 1] = 0.5 - 1e-16
        assert not prove_trace(matrix(big), False, strict=True)
        assert not prove_trace(matrix([[1e300]]), False)


class TestNamed:
    """The eigenvalue that a sentence names is enclosed, near, and itself the unstable one."""

    @pytest.mark.parametrize(
        ("values", "discrete", "value"),
        [
            ([-5.0, 7.0], False, -5.0),
            ([0.0, 0.0, 1e6], False, 90.0),
            ([0.0, 0.0, 1e6], False, -90.0),
            ([1.0, 1.0], True, 1.00009),
            ([2.0, 0.5], True, 0.5),
            ([-0.5, 3.0], False, -0.5),
            ([0.0, 1.0], False, 0.0),
            ([np.nan, 1.0], False, 1.0),
        ],
    )
    def test_others_prove_nothing(self, values, discrete, value):
        with np.errstate(all="ignore"):
            assert prove_not_stable(matrix(np.diag(values)), discrete, value) is None

    def test_near_is_a_millionth_of_the_modulus(self):
        """Diagonal: the eigenvalue is known exactly."""
        for top in (2e-3, 7.0, 3e5):
            system = matrix(np.diag([top, -1.0]))
            found = last(lambda d, s=system, t=top: prove_not_stable(s, False, t * (1 + d)) is not None, 0.0, 1e-3)
            assert 0.99 * NEAR <= found <= NEAR * (1 + 1e-5)
        pair = enclose_eigenpair(matrix(np.diag([7.0, -1.0])), 7.0, np.array([1.0, 0.0]))
        assert is_near(pair, 7.0)
        assert not is_near(pair, 0.0)

    @pytest.mark.parametrize("discrete", [False, True])
    def test_the_edge_of_the_region(self, discrete):
        edge = 1.0 if discrete else 0.0
        for rest in (-0.5, 0.25):
            for sign in (1.0, -1.0) if discrete else (1.0,):

                def proved(excess, rest=rest, sign=sign):
                    value = sign * (edge + excess)
                    return enclose_unstable(matrix(np.diag([value, rest])), discrete, value) is not None

                assert proved(1e-9)
                for excess in (0.0, -1e-16, -1e-9):
                    assert not proved(excess)

    def test_radius_against_excess(self):
        """The ball ``[[e, 0], [0, -1]] +- r`` holds the stable matrix ``e - r`` as soon as ``r >= e``."""
        for e in (1e-3, 0.5):
            found = last(
                lambda r, e=e: enclose_unstable(matrix(np.diag([e, -1.0]), [[r, 0], [0, 0]]), False, e) is not None,
                0.0,
                2 * e,
            )
            assert 0.1 * NEAR * e < found < e

    @pytest.mark.parametrize("discrete", [False, True])
    def test_a_small_excess_under_a_larger_ball(self, discrete):
        """``[[a, w], [-w, a]] +- r I``: beyond ``r`` equal to the excess the ball holds a matrix on the boundary."""
        for excess in (1e-8, 1e-7):
            a, w = (1.0 + excess, 0.0) if discrete else (excess, 1.0)
            mid = np.diag([a, -0.3]) if discrete else np.array([[a, w], [-w, a]])
            weights = np.diag([1.0, 0.0]) if discrete else np.eye(2)

            def proved(r, mid=mid, weights=weights, value=complex(a, w)):
                return enclose_unstable(matrix(mid, r * weights), discrete, value) is not None

            found = last(proved, 0.0, 2 * excess)
            assert 0.2 * excess < found <= excess * (1 + 1e-7)

    def test_newton_kantorovich_at_its_edge(self):
        """``[[1, 1], [s^2 -+ r, 1]]``: eigenvalues ``1 +- sqrt(s^2 -+ r)``, complex beyond ``r = s^2``.

        At every accepted radius all eigenvalues of the ball lie in the enclosure; a threshold ten times weaker accepts
        balls of which they do not.
        """
        for s in (1e-3, 0.1, 1.0):

            def pair_of(r, s=s):
                return enclose_eigenpair(
                    matrix([[1.0, 1.0], [s * s, 1.0]], [[0, 0], [r, 0]]), 1 + s, np.array([1.0, s])
                )

            edge = last(lambda r: pair_of(r) is not None, 0.0, 2 * s * s)
            assert 0.02 * s * s < edge < s * s
            for r in edge * np.array([1.0, 0.999, 0.5, 0.1, 1e-3]):
                pair = pair_of(r)
                for end in (-1.0, -0.3, 1.0):
                    true = 1 + np.sqrt(complex(s * s + end * r))
                    assert abs(pair.value - true) <= pair.radius * (1 + 1e-9)

    def test_complex_pairs(self):
        for a in (0.1, -0.1):
            spin = matrix([[a, 1.0], [-1.0, a]])
            assert (prove_not_stable(spin, False, complex(a, 1.0)) is not None) is (a > 0)
            assert (prove_not_stable(spin, False, complex(a, -1.0)) is not None) is (a > 0)
        assert prove_not_stable(matrix([[0.0, 1.0001], [-1.0001, 0.0]]), True, 1.0001j)
        assert not prove_not_stable(matrix([[0.0, 0.9999], [-0.9999, 0.0]]), True, 0.9999j)


class TestUnnamed:
    def test_multiple_eigenvalues_by_a_form(self):
        for values, discrete in (([2.0, 2.0, -9.0], False), ([1.5, 1.5, -0.9, -0.9], True), ([-1.5, -1.5, 0.9], True)):
            assert "form" in prove_not_stable(matrix(np.diag(values)), discrete, None, strict=True)
        for values, discrete in (([-2.0, -2.0], False), ([0.9, 0.9], True), ([-1e-12, -3.0], False)):
            assert prove_not_stable(matrix(np.diag(values)), discrete, None) is None

    def test_strict_needs_more_than_the_boundary(self):
        for system, discrete in ((np.zeros((2, 2)), False), (np.eye(2), True)):
            assert prove_not_stable(matrix(system), discrete, None)
            assert prove_not_stable(matrix(system), discrete, None, strict=True) is None

    def test_stable_matrices_of_every_shape(self, rng):
        """Triangular: the eigenvalues are on the diagonal."""
        for _ in range(150):
            n, discrete, gap = int(rng.integers(1, 6)), bool(rng.integers(2)), 10.0 ** rng.uniform(-14, 0)
            upper = np.triu(rng.normal(size=(n, n)) * 10.0 ** rng.uniform(-1, 3), 1)
            edge = (1.0 - gap) * rng.choice([-1.0, 1.0]) if discrete else -gap
            upper[np.diag_indices(n)] = edge * rng.uniform(0.5, 1.0, n) if discrete else edge - rng.random(n)
            upper[0, 0] = edge
            with np.errstate(all="ignore"):
                assert prove_not_stable(matrix(upper), discrete, None) is None
                assert prove_not_stable(matrix(upper), discrete, edge) is None

    def test_a_ball_that_holds_a_stable_matrix(self):
        """``diag(e, e, -9) +- r``: with ``r >= e`` it holds ``diag(e - r, e - r, -9)``."""
        e = 0.01
        found = last(
            lambda r: prove_not_stable(matrix(np.diag([e, e, -9.0]), r * np.eye(3)), False, None) is not None, 0.0, 1.0
        )
        assert 0.2 * e < found < e


class TestOrbitPencil:
    @pytest.mark.parametrize("with_d", [False, True])
    @pytest.mark.parametrize("k", [1, 2, 3])
    def test_eigenvalues_are_roots_of_the_multipliers(self, rng, k, with_d):
        n, m = 2, 3
        D = np.tril(rng.normal(size=(m, m)), -1) if with_d else None
        system = LureSystem(rng.normal(size=(n, n)), rng.normal(size=(n, m)), rng.normal(size=(m, n)), D, dt=1.0)
        slopes = rng.random((k, m))
        pencil = closed_loop_orbit(system, Ball.exact(slopes))
        product = np.eye(n)
        for i in range(k):
            product = system.jacobian(slopes[i]) @ product
        for multiplier in np.linalg.eigvals(product).astype(complex):
            root = multiplier ** (1 / k)
            for turn in range(k):
                value = root * np.exp(2j * np.pi * turn / k)
                least, beside = (
                    np.linalg.svd(pencil.ball.mid - x * np.diag(pencil.mass), compute_uv=False)[-1]
                    for x in (value, 1.3 * value)
                )
                assert least < 1e-8 * (1 + abs(value))
                assert beside > 1e-5  # it is an eigenvalue there alone
        if k == 1:
            alone = closed_loop_pencil(system, Ball.exact(slopes[0]))
            assert np.array_equal(alone.ball.mid, pencil.ball.mid)
            assert np.array_equal(alone.mass, pencil.mass)

    def test_radii_come_along(self, rng):
        system = LureSystem(np.zeros((1, 1)), [[1.0]], [[2.0]], dt=1.0)
        pencil = closed_loop_orbit(system, Ball(np.array([[0.5], [0.25]]), np.array([[0.1], [0.2]])))
        assert np.allclose(pencil.ball.mid, [[0.0, 0.5], [1.0, 0.0]])
        assert (pencil.ball.rad >= [[0.0, 0.4], [0.2, 0.0]]).all()
        assert (pencil.ball.rad <= 0.4001).all()


class TestSentences:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ((2.0, 0.0), "the eigenvalue 2 of modulus above 1"),
            ((-1.0164812345, 0.0), "the eigenvalue -1.01648 of modulus above 1"),
            ((0.0, 1.5), "the eigenvalue 1.5i of modulus above 1"),
            ((0.5, 1.25), "the eigenvalue 0.5 + 1.25i of modulus above 1"),
            ((-0.5, -1.25), "the eigenvalue -0.5 - 1.25i of modulus above 1"),
            ((2.0, 1e-9), "the eigenvalue 2 of modulus above 1"),
            ((123456.7, 0.0), "the eigenvalue 123457 of modulus above 1"),
            ((1234567.8, 0.0), "the eigenvalue 1234568 of modulus above 1"),
        ],
    )
    def test_digits(self, value, text):
        assert eigenvalue_phrase(complex(*value), True) == text
