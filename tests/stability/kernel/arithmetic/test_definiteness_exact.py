"""Definiteness at its edge: what is accepted last, on matrices whose smallest eigenvalue is known exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stability import LureSystem, certify, verify
from stability.errors import ConfigurationError
from stability.kernel.arithmetic import definiteness as rigor
from stability.kernel.arithmetic.definiteness import (
    LARGEST,
    Definiteness,
    gamma,
    prove_positive_definite,
    round_up,
    spectral_bounds,
)

U = Fraction(1, 2**53)
SIZES = (1, 2, 3, 8, 40)


def equal_correlations(size: int, gap: float) -> np.ndarray:
    """Ones on the diagonal, ``1 - gap`` beside it: the eigenvalues are exactly gap (size - 1 times) and
    ``size - (size - 1) gap``, as long as ``1 - gap`` is a float.
    """
    matrix = np.full((size, size), 1.0 - gap)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def rump_bound(size: int) -> Fraction:
    """Return the shift of theorem 2.3 for a unit diagonal, with the textbook's constants."""
    return sum(((i + 1) * U / (1 - 2 * (i + 1) * U) for i in range(1, size + 1)), Fraction(0))


def documented_shift(size: int, error: Fraction = Fraction(0)) -> Fraction:
    """Four times the constant of ``size + 3`` roundings for each diagonal entry, the error, the subtraction."""
    k = 4 * (size + 3) * U
    return error * (1 + Fraction(1, 10**6)) + k / (1 - k) * size + 8 * U


@pytest.mark.parametrize("size", SIZES[1:])
def test_the_last_accepted_gap_lies_between_rumps_bound_and_the_shift(size):
    def accepts(steps: int) -> bool:
        return prove_positive_definite(equal_correlations(size, steps * 2.0**-53)).holds

    bad, good = 0, 2**40
    assert accepts(good)
    assert not accepts(bad)
    while good - bad > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if accepts(middle) else (good, middle)
    assert good * U >= rump_bound(size)
    assert good * U <= documented_shift(size) * Fraction(5, 4)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("error", [0.0, 2.0**-40, 1e-3, 0.25])
def test_the_shift_is_what_is_documented(size, error):
    outcome = prove_positive_definite(2.0 * np.eye(size) / 2.0, lambda s: error * s)
    assert outcome.holds is True
    shift = Fraction(outcome.shift)
    assert documented_shift(size, Fraction(error)) <= shift
    assert shift <= documented_shift(size, Fraction(error)) * (1 + Fraction(1, 10**5))


@pytest.mark.parametrize("size", SIZES[1:])
def test_no_matrix_within_the_error_is_indefinite_at_the_last_accepted_error(size, exact):
    """``E = e`` everywhere: the worst matrix is ``M - e v v^T`` with signs ``v`` of sum zero or one."""
    gap = 2.0**-10
    matrix = equal_correlations(size, gap)
    signs = exact.of((-1.0) ** np.arange(size))

    def accepts(e: float) -> bool:
        return prove_positive_definite(matrix, lambda s: np.full(size, e * s.sum())).holds

    last = exact.bisect(accepts, 0.0, 1.0)
    assert exact.is_definite(exact.of(matrix) - Fraction(last) * np.outer(signs, signs))
    assert last * size >= 0.99999 * gap  # and the edge is nearly reached: v^T M v = gap |v|^2


@pytest.mark.parametrize("size", [2, 5, 9])
@pytest.mark.parametrize("kind", ["random", "hilbert", "arrow"])
def test_the_last_accepted_shift_of_any_matrix_is_definite_in_rationals(size, kind, exact, rng):
    if kind == "random":
        half = rng.normal(size=(size, size)) * 10.0 ** rng.uniform(-4, 4, size)[:, None]
        matrix = half @ half.T
    elif kind == "hilbert":
        matrix = 1.0 / (1.0 + np.arange(size)[:, None] + np.arange(size))
    else:
        matrix = np.diag(10.0 ** rng.uniform(0, 6, size))
        matrix[0, 1:] = matrix[1:, 0] = rng.uniform(0.1, 0.9, size - 1)
    matrix = 0.5 * (matrix + matrix.T)
    index = np.diag_indices(size)

    def shifted(t: float) -> np.ndarray:
        out = matrix.copy()
        out[index] -= t
        return out

    last = exact.bisect(lambda t: prove_positive_definite(shifted(t)).holds, -1e-9, float(matrix.diagonal().min()))
    assert exact.is_definite(exact.of(shifted(last)))


@pytest.mark.parametrize("powers", [[0, 1, 2, 3], [-7, 9, 0, 12], [40, -40, 3, -3]])
def test_powers_of_two_change_nothing(powers):
    scale = 2.0 ** np.array(powers)
    plain = equal_correlations(4, 2.0**-45)
    for e in (0.0, 2.0**-48, 2.0**-46):
        a = prove_positive_definite(plain, lambda s, e=e: np.full(4, e * s.sum()))
        b = prove_positive_definite(
            scale[:, None] * plain * scale, lambda s, e=e: scale * np.full(4, e * (scale * s).sum())
        )
        assert a == b


def test_the_matrix_stays_as_it_is_unless_it_may_be_overwritten(rng):
    half = rng.normal(size=(4, 4))
    matrix = half @ half.T + np.eye(4)
    matrix = 0.5 * (matrix + matrix.T)
    before = matrix.copy()
    kept = prove_positive_definite(matrix)
    assert (matrix == before).all()
    assert prove_positive_definite(matrix, overwrite=True) == kept
    assert kept.holds is True
    assert (matrix != before).any()  # which saves a copy of large matrices


def test_an_error_beyond_the_diagonal_is_refused_before_the_factorisation(monkeypatch):
    monkeypatch.setattr(rigor, "_cholesky_succeeds", lambda work: pytest.fail("factorised"))
    assert prove_positive_definite(np.eye(2), lambda s: 1.0 * s).holds is False
    assert prove_positive_definite(np.eye(2), lambda s: 1.0 * s).shift > 1.0


@pytest.mark.parametrize("pivot", [np.nan, np.inf, 0.0, -1.0])
def test_a_factor_with_a_bad_pivot_proves_nothing(pivot, monkeypatch):
    """A library may continue through NaN instead of breaking down."""
    monkeypatch.setattr(np.linalg, "cholesky", lambda work: np.diag([1.0, pivot]))
    assert prove_positive_definite(np.eye(2)).holds is False


def test_the_empty_matrix_is_definite():
    assert prove_positive_definite(np.zeros((0, 0))) == Definiteness(True, 0.0, "empty")
    assert spectral_bounds(np.zeros((0, 0)), 1.0, 2.0).holds


@pytest.mark.parametrize("k", [0, 1, 7, 1000, 2**30, 2**40])
def test_gamma_is_four_times_the_constant_of_one_rounding_more(k):
    exact = 4 * (k + 1) * U / (1 - 4 * (k + 1) * U)
    assert exact <= Fraction(gamma(k)) <= exact * (1 + Fraction(2, 10**12))


def test_gamma_ends_where_the_formula_would():
    assert gamma(2**40 + 1) == float("inf")


@pytest.mark.parametrize("value", [0.0, 5e-324, 1e-310, 1.0, 3.7, 1e300])
def test_up_covers_sixty_roundings_and_little_more(value):
    exact = Fraction(value)
    assert exact * (1 + 62 * U) <= Fraction(round_up(value))
    assert Fraction(round_up(value)) <= exact * (1 + Fraction(129, 2) * U) + 2 * Fraction(5e-324)
    assert round_up(value) > value


def test_symmetric_means_to_the_last_bit_and_square():
    assert rigor.is_symmetric(np.eye(3))
    assert not rigor.is_symmetric(np.ones((2, 3)))
    assert not rigor.is_symmetric(np.ones(3))
    assert not rigor.is_symmetric(np.ones((1, 1, 1)))
    assert not rigor.is_symmetric(np.array([[1.0, 1.0], [np.nextafter(1.0, 2), 1.0]]))


def both_ends(low: Fraction, high: Fraction, matrix: np.ndarray, exact) -> bool:
    one, m = exact.of(np.eye(len(matrix))), exact.of(matrix)
    return exact.is_definite(m - low * one) and exact.is_definite(high * one - m)


@pytest.mark.parametrize("size", [1, 2, 6])
@pytest.mark.parametrize("centre", [0.0, 3.0, -1e3])
def test_the_last_accepted_bounds_of_a_spectrum_hold_in_rationals(size, centre, exact, rng):
    half = rng.normal(size=(size, size))
    matrix = 0.5 * (half + half.T) + centre * np.eye(size)
    values = np.linalg.eigvalsh(matrix)
    wide = 1.0 + np.abs(values).max()
    low = exact.bisect(lambda t: spectral_bounds(matrix, t, values[-1] + wide).holds, values[0] - wide, values[-1])
    high = exact.bisect(lambda t: spectral_bounds(matrix, low, t).holds, values[-1] + wide, values[0])
    assert both_ends(Fraction(low), Fraction(high), matrix, exact)
    near = 1e-12 * wide
    assert low >= values[0] - near
    assert high <= values[-1] + near
    assert spectral_bounds(matrix, low, high).holds is True


def test_a_spectrum_that_touches_its_bound_is_refused():
    ends = np.diag([1.0, 2.0])
    assert not spectral_bounds(ends, 1.0, 3.0).holds
    assert not spectral_bounds(ends, 0.5, 2.0).holds
    assert spectral_bounds(ends, 0.5, 2.0 + 1e-14).reason == "row sums bound the norm"
    assert spectral_bounds(0.125 * ends, 0.0625, 0.2500001).reason == "row sums bound the norm"


def test_row_sums_are_rounded_up():
    """Sums of a row that round to one although they exceed it: the norm of the first matrix is its row sum."""
    size = 64
    tiny = 2.0**-54
    matrix = np.zeros((size, size))
    matrix[0, 0] = 1.0 - 2.0**-53
    matrix[0, 1:] = matrix[1:, 0] = tiny
    row = sum(map(Fraction, matrix[0]), Fraction(0))
    assert row > 1
    outcome = spectral_bounds(matrix, -1.0, 1.0)
    assert not (outcome.holds and outcome.reason == "row sums bound the norm")


@pytest.mark.parametrize("side", ["low", "high"])
def test_the_rounding_of_the_shifted_diagonal_is_inside(side):
    """``d - t`` with ``d`` and ``t`` far larger than their difference: the shift must cover both."""
    big = 2.0**20 + 1.0
    sign = 1.0 if side == "low" else -1.0
    outcome = spectral_bounds(sign * np.array([[big]]), *((big - 1, 2 * big) if side == "low" else (-2 * big, 1 - big)))
    assert outcome.holds
    needed = 2 * U * (2 * Fraction(big) - 1)
    assert needed <= Fraction(outcome.shift) <= needed * (1 + Fraction(1, 1000)) + 2 * documented_shift(1)


@pytest.mark.parametrize(
    "matrix",
    [np.array([[1.0, 2.0], [0.0, 1.0]]), np.full((2, 2), np.nan), np.nextafter(LARGEST, np.inf) * np.eye(1)],
)
def test_spectra_beyond_the_theorem_are_refused(matrix):
    assert spectral_bounds(matrix, -np.inf, np.inf) == Definiteness(
        False, 0.0, "the matrix is not symmetric, not finite or too large"
    )


def test_nothing_is_proved_where_small_numbers_are_taken_for_zero():
    """Torch can make the processor flush subnormal numbers, which invalidates the bounds."""
    torch = pytest.importorskip("torch")
    system = LureSystem.recurrent([[-2.0]], [[1.0]])
    certificate = certify(system)
    assert verify(certificate).valid
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    try:
        outcome = verify(certificate)
        assert not outcome.valid
        assert "set_flush_denormal" in outcome.reason
        with pytest.raises(ConfigurationError, match="set_flush_denormal"):
            certify(system)
    finally:
        torch.set_flush_denormal(False)
    assert verify(certificate).valid
