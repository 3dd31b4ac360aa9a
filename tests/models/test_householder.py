"""Products of Householder reflections: every way to one product, its gradients, its cost, and bad input."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, RankError
from stability.models.parametrizations.householder import random_reflections
from stability.models.parametrizations.reflections import (
    compact_wy,
    householder_apply,
    householder_matrix,
)
from stability.models.parametrizations.vectors import orthogonality_error

F64 = torch.float64
SIZES = [(1, 1), (2, 1), (2, 2), (3, 2), (5, 1), (5, 3), (5, 4), (5, 5), (8, 8), (40, 13), (60, 60), (70, 55)]


def with_dtypes(sizes):
    """Each size, real and complex; complex vectors leave H_1 to the phases, so not for ``m = n``."""
    return [(n, m, d) for n, m in sizes for d in (F64, torch.complex128) if m < n or not d.is_complex]


def explicit(U):
    """The product of reflections as its definition says, one dense matrix after the other."""
    n, m = U.shape
    W = torch.eye(n, dtype=U.dtype)
    for j in range(m):
        H = torch.eye(n, dtype=U.dtype)
        if n - j == 1 and not U.is_complex():
            H[-1, -1] = 1.0 if U[-1, -1] > 0 else -1.0
        else:
            u = torch.cat([torch.zeros(j, dtype=U.dtype), U[j:, j]])
            H = H - 2.0 * torch.outer(u, u.conj()) / torch.vdot(u, u).real
        W = W @ H
    return W


def forms(U):
    """W by every way there is."""
    eye = torch.eye(U.shape[0], dtype=U.dtype)
    V, X, sign = compact_wy(U)
    thin = eye - V @ X
    if sign is not None:
        thin[:, -1] = thin[:, -1] * sign
    return {
        "matrix": householder_matrix(U),
        "thin": thin,
        "algorithm 1": householder_apply(U, eye).mT,
    }


@pytest.mark.parametrize(("n", "m", "dtype"), with_dtypes(SIZES))
def test_every_way_gives_the_explicit_product(n, m, dtype):
    U = torch.randn(n, m, dtype=dtype)
    expected = explicit(U)
    for name, W in forms(U).items():
        assert (W - expected).abs().max() <= 1e-12, name
    gap = expected.mH @ expected - torch.eye(n, dtype=dtype)
    assert gap.abs().max() < 1e-12
    if not dtype.is_complex:  # one reflection turns orientation around; H_1 by its sign
        flips = m if m < n else n - 1 + int(U[-1, -1] <= 0)
        assert torch.linalg.det(expected).item() == pytest.approx((-1.0) ** flips)


@pytest.mark.parametrize(("n", "m", "dtype"), with_dtypes([s for s in SIZES if s[0] > 1]))
def test_gradients_of_theorem_2_equal_autograd_through_the_explicit_product(n, m, dtype):
    U = torch.randn(n, m, dtype=dtype).tril().requires_grad_()
    h = torch.randn(4, n, dtype=dtype, requires_grad=True)
    g = torch.randn(4, n, dtype=dtype)
    dU, dh = torch.autograd.grad(h @ explicit(U).mT, (U, h), g)
    if m == n:
        dU[-1, -1] = 0.0  # only the sign of the scalar counts: its derivative is zero
    for name, apply in {
        "algorithm 1": householder_apply,
        "matrix": lambda U, h: h @ householder_matrix(U).mT,
    }.items():
        gU, gh = torch.autograd.grad(apply(U, h), (U, h), g)
        scale = max(1.0, float(dU.abs().max()))
        assert (gU - dU).abs().max() <= 1e-12 * scale, name
        assert (gh - dh).abs().max() <= 1e-12, name
        assert torch.equal(gU, gU.tril()), name


@pytest.mark.parametrize(("n", "m", "dtype"), with_dtypes([(2, 1), (4, 2), (3, 3), (4, 3)]))
def test_first_and_second_derivatives_of_products(n, m, dtype):
    U = torch.randn(n, m, dtype=dtype, requires_grad=True)
    h = torch.randn(2, n, dtype=dtype, requires_grad=True)
    assert gradcheck(householder_apply, (U, h))
    assert gradgradcheck(householder_apply, (U, h))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (4, 2), (4, 4)])
def test_first_and_second_derivatives_of_the_matrix(n, m):
    U = torch.randn(n, m, dtype=F64, requires_grad=True)
    assert gradcheck(householder_matrix, (U,))
    assert gradgradcheck(householder_matrix, (U,))
    if m < n:
        assert gradcheck(lambda U: compact_wy(U).V @ compact_wy(U).X, (U,))
        assert gradgradcheck(lambda U: compact_wy(U).V @ compact_wy(U).X, (U,))


def test_what_stands_above_the_diagonal_counts_for_nothing():
    U = torch.randn(5, 3, dtype=F64)
    assert torch.equal(householder_matrix(U), householder_matrix(U.tril()))
    V = U.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(householder_matrix(V).sum(), V)
    assert torch.equal(gradient, gradient.tril())
    assert gradient.tril().abs().sum() > 0


@pytest.mark.parametrize("scalar", [2.0, 0.3, 1e-30, 0.0, -0.0, -1e-30, -4.0])
def test_the_scalar_of_the_last_factor_counts_by_its_sign_and_zero_is_negative(scalar):
    U = torch.randn(3, 3, dtype=F64)
    U[-1, -1] = scalar
    W = householder_matrix(U)
    unsigned = householder_matrix(U[:, :2])
    expected = 1.0 if scalar > 0 else -1.0
    torch.testing.assert_close(W, unsigned @ torch.diag(torch.tensor([1.0, 1.0, expected], dtype=F64)))


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
@pytest.mark.parametrize("length", [1e-37, 1e-20, 1.0, 1e20, 1e37])
def test_lengths_of_vectors_do_not_matter_not_even_extreme_ones(length, dtype):
    U = torch.randn(6, 4, dtype=dtype)
    W = householder_matrix(U * length)
    torch.testing.assert_close(W, householder_matrix(U), rtol=0, atol=40 * torch.finfo(dtype).eps)
    assert orthogonality_error(W) < 60 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
@pytest.mark.parametrize(("n", "m"), [(64, 8), (64, 64), (128, 128)])
def test_orthogonal_to_rounding(n, m, dtype):
    W = householder_matrix(random_reflections(n, m, dtype=dtype))
    assert orthogonality_error(W) < 10 * n * torch.finfo(dtype).eps
    nearly_parallel = torch.ones(n, m, dtype=dtype) + 1e-3 * torch.randn(n, m, dtype=dtype)
    assert orthogonality_error(householder_matrix(nearly_parallel)) < 10 * n * torch.finfo(dtype).eps


# ------------------------------------------------------------------------------------ cost


# ------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("function", [householder_matrix, compact_wy, lambda U: householder_apply(U, torch.ones(4))])
def test_bad_vectors_are_refused_with_typed_errors(function):
    zero = torch.randn(4, 3)
    zero[1:, 1] = 0.0  # the entry above the diagonal does not count
    zero[0, 1] = 5.0
    with pytest.raises(RankError):
        function(zero)
    with pytest.raises(DimensionError):
        function(torch.randn(3, 4))
    for value in (float("nan"), float("inf")):
        U = torch.randn(4, 2)
        U[2, 1] = value
        with pytest.raises(NonFiniteError):
            function(U)
    with pytest.raises(DimensionError):
        function(torch.zeros(3, 0))
    with pytest.raises(DimensionError):
        function(torch.randn(3))
    with pytest.raises(ConfigurationError):
        function(torch.ones(3, 2, dtype=torch.int64))
    with pytest.raises(DimensionError):
        householder_matrix(torch.randn(3, 3, dtype=torch.complex64))
    with pytest.raises(ConfigurationError):
        householder_matrix(None)


def test_bad_rows_are_refused():
    apply = householder_apply
    U = torch.randn(4, 2)
    with pytest.raises(DimensionError):
        apply(U, torch.randn(3, 5))
    with pytest.raises(DimensionError):
        apply(U, torch.zeros(0, 4))
    with pytest.raises(ConfigurationError):
        apply(U, torch.randn(4, dtype=F64))
    with pytest.raises(ConfigurationError):
        apply(U, [1.0])
    assert apply(U, torch.randn(2, 3, 4)).shape == (2, 3, 4)


@pytest.mark.parametrize("block", [1, 2, 3, 5])
@pytest.mark.parametrize(("n", "m", "dtype"), with_dtypes([(7, 7), (7, 4), (9, 8), (3, 1)]))
def test_blocks_of_any_size_give_the_same_matrix_and_gradient(n, m, block, dtype, monkeypatch):
    U = torch.randn(n, m, dtype=dtype, requires_grad=True)
    g = torch.randn(n, n, dtype=dtype)
    results = []
    for size in (block, n):
        monkeypatch.setattr("stability.models.parametrizations.reflection_kernels.BLOCK", size)
        W = householder_matrix(U)
        results.append((W.detach(), *torch.autograd.grad(W, U, g)))
    for ours, whole in zip(*results):
        torch.testing.assert_close(ours, whole, rtol=0, atol=1e-13 * max(1.0, float(whole.abs().max())))


def test_algorithm_1_keeps_nothing_of_the_size_of_all_intermediate_states():
    n, m, rows = 32, 24, 50
    U = torch.randn(n, m, requires_grad=True)
    h = torch.randn(rows, n, requires_grad=True)
    kept = {}

    def pack(x):
        kept[x.data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        householder_apply(U, h)
    assert sum(kept.values()) == 2 * rows * n + n * m  # h, the result and U; not rows * n * m
