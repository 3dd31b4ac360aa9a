"""QR and LQ: the factors, the gauge, first and second derivatives, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, RankError
from stability.models.factorizations import lq, lstsq, pivoted_qr, qr

SHAPES = [(3, 3), (5, 3), (3, 5), (1, 1), (1, 4), (4, 1), (2, 4, 3), (2, 3, 4), (2, 1, 3, 3)]
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
EXACT = [torch.float64, torch.complex128]


def draw(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    A = torch.randn(shape, generator=generator, dtype=wide)
    k = min(shape[-2:])
    eye = torch.eye(shape[-2], shape[-1], dtype=wide)
    return (A + (2.0 if k > 1 else 1.0) * eye).to(dtype)


def tolerance(dtype, shape):
    return 20 * max(shape[-2:]) * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors_multiply_back_in_the_stated_gauge(shape, dtype):
    A = draw(shape, dtype)
    m, n = shape[-2:]
    k = min(m, n)
    eye, tol = torch.eye(k, dtype=dtype), tolerance(dtype, shape)
    Q, R = qr(A)
    assert Q.shape == (*shape[:-2], m, k)
    assert R.shape == (*shape[:-2], k, n)
    L, P = lq(A)
    assert L.shape == (*shape[:-2], m, k)
    assert P.shape == (*shape[:-2], k, n)
    for left, right, orthonormal, triangular in ((Q, R, Q.mH @ Q, R), (L, P, P @ P.mH, L.mH)):
        torch.testing.assert_close(left @ right, A, rtol=0, atol=tol * A.abs().max().item())
        torch.testing.assert_close(orthonormal, eye.expand_as(orthonormal), rtol=0, atol=tol)
        assert torch.equal(triangular, triangular.triu())
        diagonal = triangular.diagonal(dim1=-2, dim2=-1)
        assert (diagonal.real > 0).all()
        assert torch.equal(diagonal, diagonal.real.to(dtype))


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lq_is_the_conjugate_transpose_of_qr(shape, dtype):
    A = draw(shape, dtype, seed=1)
    L, Q = lq(A)
    q, r = qr(A.mH)
    torch.testing.assert_close(L, r.mH.resolve_conj(), rtol=0, atol=1e-13)
    torch.testing.assert_close(Q, q.mH.resolve_conj(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("factorise", [qr, lq], ids=["qr", "lq"])
@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_first_and_second_derivatives_against_finite_differences(shape, dtype, factorise):
    A = draw(shape, dtype, seed=2).requires_grad_()
    assert gradcheck(factorise, (A,), atol=1e-6)
    small = A if A.numel() <= 12 else draw((*shape[-2:],), dtype, seed=2).requires_grad_()
    assert gradgradcheck(factorise, (small,), atol=1e-5)


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (4, 4), (5, 3), (2, 3, 4)], ids=str)
def test_pivoted_derivatives(shape, dtype):
    A = draw(shape, dtype, seed=3).requires_grad_()
    assert gradcheck(lambda X: pivoted_qr(X)[:2], (A,), atol=1e-6)
    if len(shape) == 2:
        assert gradgradcheck(lambda X: pivoted_qr(X)[:2], (A,), atol=1e-5)


def through(factors, seed=7):
    """A real scalar that every entry of every factor enters with its own weight."""
    generator = torch.Generator().manual_seed(seed)
    total = 0.0
    for factor in factors:
        weight = torch.randn(factor.shape, generator=generator, dtype=factor.dtype)
        total = total + (weight.conj() * factor).real.sum() + (factor.abs() ** 3).sum()
    return total


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (2, 5, 4), (2, 4, 5)], ids=str)
def test_gradient_equals_torchs_own(shape, dtype):
    """torch differentiates its QR in its own gauge; the phases are moved by differentiable operations."""

    def reference(A):
        Q, R = torch.linalg.qr(A)
        phase = torch.sgn(R.diagonal(dim1=-2, dim2=-1)).detach()
        return Q * phase.unsqueeze(-2), R * phase.conj().unsqueeze(-1)

    A = draw(shape, dtype, seed=4).requires_grad_()
    (ours,) = torch.autograd.grad(through(qr(A)), A)
    (theirs,) = torch.autograd.grad(through(reference(A)), A)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (3, 2, 4)], ids=str)
def test_pivoted_factors(shape, dtype):
    A = draw(shape, dtype, seed=8)
    Q, R, P = result = pivoted_qr(A)
    tol = tolerance(dtype, shape) * 10
    torch.testing.assert_close(A @ P, Q @ R, rtol=0, atol=tol)
    gathered = torch.gather(A, -1, result.permutation.unsqueeze(-2).expand(A.shape))
    assert torch.equal(gathered, A @ P)
    diagonal = R.diagonal(dim1=-2, dim2=-1).real
    assert (diagonal > 0).all()
    assert (diagonal[..., 1:] <= diagonal[..., :-1] * (1 + tol)).all()


def test_pivoted_gradient_is_transposed_back():
    """Erratum of the source: with ``B = A P`` the gradient is ``B_bar P^T``; ``B_bar P`` fails."""
    A = draw((4, 4), torch.float64, seed=12).requires_grad_()
    Q, R, P = pivoted_qr(A)
    order = pivoted_qr(A).permutation
    assert not torch.equal(P, P.T), "the case must tell P from its transpose"
    (gradient,) = torch.autograd.grad(through((Q, R)), A)
    B = A.detach()[:, order].requires_grad_()
    (inner,) = torch.autograd.grad(through(qr(B)), B)
    torch.testing.assert_close(gradient, inner @ P.T, rtol=1e-12, atol=1e-12)
    assert (gradient - inner @ P).abs().max() > 0.1
    step, numeric = 1e-6, torch.zeros(4, 4, dtype=torch.float64)
    with torch.no_grad():
        for i, j in np.ndindex(4, 4):
            E = torch.zeros(4, 4, dtype=torch.float64)
            E[i, j] = step
            numeric[i, j] = (through(pivoted_qr(A + E)[:2]) - through(pivoted_qr(A - E)[:2])) / (2 * step)
    torch.testing.assert_close(gradient, numeric, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_least_squares_solves_the_normal_equations_and_differentiates(dtype):
    for shape in ((6, 3), (3, 6), (4, 4), (2, 5, 3)):
        A = draw(shape, dtype, seed=10).requires_grad_()
        b = draw((*shape[:-1], 2), dtype, seed=11).requires_grad_()
        x = lstsq(A, b)
        residual = A.mH @ (A @ x - b)
        torch.testing.assert_close(residual, torch.zeros_like(residual), rtol=0, atol=1e-12)
        torch.testing.assert_close(x, torch.linalg.pinv(A) @ b, rtol=0, atol=1e-12)
        assert gradcheck(lstsq, (A, b), atol=1e-6)
    A, b = draw((4, 2), dtype).requires_grad_(), draw((4, 1), dtype, seed=1).requires_grad_()
    assert gradgradcheck(lstsq, (A, b))


@pytest.mark.parametrize("factorise", [qr, lq, pivoted_qr], ids=["qr", "lq", "pivoted"])
def test_rank_is_required_and_the_element_named(factorise):
    A = draw((3, 4, 4), torch.float64)
    A[2] = torch.ones(4, 4, dtype=torch.float64)
    with pytest.raises(RankError):
        factorise(A)
    with pytest.raises(RankError):
        factorise(torch.zeros(2, 2))
    with pytest.raises(RankError):
        factorise(torch.ones(3, 5))


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_rank_check_ignores_scales(scale):
    A = draw((4, 4), torch.float64) * scale * torch.tensor([1.0, 1e-12, 1e12, 1.0], dtype=torch.float64)
    Q, R = qr(A)
    torch.testing.assert_close(Q @ R / scale, A / scale)
    pivoted_qr(A)


@pytest.mark.parametrize("factorise", [qr, lq, pivoted_qr], ids=["qr", "lq", "pivoted"])
def test_bad_input_is_refused_with_typed_errors(factorise):
    for bad in (None, [[1.0]], torch.ones(2, 2, dtype=torch.int64), torch.ones(2, 2, dtype=torch.float16)):
        with pytest.raises(ConfigurationError):
            factorise(bad)
    for shape in ((3,), (), (0, 3), (3, 0), (0, 3, 3)):
        with pytest.raises(DimensionError):
            factorise(torch.ones(shape))
    for value in (float("nan"), float("inf")):
        with pytest.raises(NonFiniteError):
            factorise(torch.full((2, 2), value))
    with pytest.raises(NonFiniteError):
        factorise(torch.tensor([[float("inf"), 1.0], [2.0, -float("inf")]]))


def test_least_squares_refuses_what_does_not_fit():
    with pytest.raises(DimensionError):
        lstsq(torch.eye(3), torch.ones(2, 1))
    with pytest.raises(ConfigurationError):
        lstsq(torch.eye(3), torch.ones(3, 1, dtype=torch.float64))
    with pytest.raises(RankError):
        lstsq(torch.ones(3, 2), torch.ones(3, 1))
