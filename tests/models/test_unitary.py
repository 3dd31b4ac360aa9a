"""Unitary matrices: by reflections over C^n, as the product of the first uRNN; real forms; bad input."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.utils import parametrize

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, RankError, UnsupportedError
from stability.models.parametrizations.unitary import (
    Unitary,
    arjovsky_matrix,
    fixed_permutation,
    real_form,
    unitary_matrix,
    unitary_vectors,
)
from stability.models.parametrizations.vectors import orthogonality_error

C128 = torch.complex128


def haar(n, seed):
    generator = torch.Generator().manual_seed(seed)
    Q, R = torch.linalg.qr(torch.randn(n, n, dtype=C128, generator=generator))
    return Q * torch.sgn(R.diagonal())


def explicit(U, theta):
    n, p = U.shape
    W = torch.eye(n, dtype=U.dtype)
    for j in range(p):
        u = torch.cat([torch.zeros(j, dtype=U.dtype), U[j:, j]])
        W = W - 2.0 * torch.outer(W @ u, u.conj()) / torch.vdot(u, u).real
    return W @ torch.diag(torch.exp(1j * theta))


@pytest.mark.parametrize(("n", "p"), [(1, 0), (2, 1), (4, 2), (4, 3), (20, 19)])
def test_unitary_matrix_is_its_definition(n, p):
    U, theta = torch.randn(n, p, dtype=C128), torch.randn(n, dtype=torch.float64)
    W = unitary_matrix(U, theta)
    torch.testing.assert_close(W, explicit(U, theta), rtol=0, atol=1e-13)
    assert orthogonality_error(W) < 1e-13


@pytest.mark.parametrize("n", [1, 2, 3, 8, 21])
def test_every_unitary_matrix_is_reached(n):
    for seed in range(5):
        W = haar(n, seed)
        U, theta = unitary_vectors(W)
        assert U.shape == (n, n - 1)
        torch.testing.assert_close(unitary_matrix(U, theta), W, rtol=0, atol=20 * n * 2.3e-16)


@pytest.mark.parametrize(
    "W",
    [
        torch.eye(3, dtype=C128),
        -torch.eye(3, dtype=C128),
        1j * torch.eye(3, dtype=C128),
        torch.eye(3, dtype=C128)[[1, 2, 0]],
        torch.diag(torch.tensor([1.0, 1.0j, -1.0], dtype=C128)),
        torch.eye(3, dtype=C128).flip(0) * 1j,
    ],
    ids=["I", "-I", "iI", "permutation", "diagonal", "reversal"],
)
def test_special_unitary_matrices(W):
    torch.testing.assert_close(unitary_matrix(*unitary_vectors(W)), W, rtol=0, atol=1e-14)


def test_few_reflections_are_found_again_or_refused():
    rule = Unitary(12, 3)
    W = rule.sample(seed=2)
    U, theta = unitary_vectors(W, 3)
    torch.testing.assert_close(unitary_matrix(U, theta), W, rtol=0, atol=1e-13)
    with pytest.raises(UnsupportedError):
        unitary_vectors(haar(12, 0), 3)


def test_a_matrix_that_is_not_unitary_is_retracted():
    A = torch.randn(5, 5, dtype=C128)
    W = unitary_matrix(*unitary_vectors(A))
    R = W.mH @ A
    assert R.tril(-1).abs().max() < 1e-13
    assert orthogonality_error(W) < 1e-13


def test_derivatives():
    U = torch.randn(4, 2, dtype=C128, requires_grad=True)
    theta = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(unitary_matrix, (U, theta))
    assert gradgradcheck(unitary_matrix, (U, theta))
    phases = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    v = torch.randn(2, 4, dtype=C128, requires_grad=True)
    order = fixed_permutation(4)
    assert gradcheck(lambda a, b: arjovsky_matrix(a, b, order), (phases, v))
    assert gradgradcheck(lambda a, b: arjovsky_matrix(a, b, order), (phases, v))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_product_of_the_first_urnn_factor_by_factor(n):
    theta, v = torch.randn(3, n, dtype=torch.float64), torch.randn(2, n, dtype=C128)
    order = fixed_permutation(n)
    k = torch.arange(n, dtype=torch.float64)
    F = torch.exp(-2j * torch.pi * torch.outer(k, k) / n) / n**0.5
    D = [torch.diag(torch.exp(1j * t)) for t in theta]
    R = [torch.eye(n, dtype=C128) - 2 * torch.outer(u, u.conj()) / torch.vdot(u, u).real for u in v]
    P = torch.eye(n, dtype=C128)[order]
    expected = D[2] @ R[1] @ F.conj() @ D[1] @ P @ R[0] @ F @ D[0]
    W = arjovsky_matrix(theta, v, order)
    torch.testing.assert_close(W, expected, rtol=0, atol=1e-13)
    assert orthogonality_error(W) < 1e-13


def test_permutation_is_one_and_scrambles():
    for n in (1, 2, 7, 64):
        assert sorted(fixed_permutation(n).tolist()) == list(range(n))
    order = fixed_permutation(64)
    assert (order == torch.arange(64)).sum() < 8


def test_real_form_is_orthogonal_and_acts_as_the_complex_matrix():
    W = haar(5, 1)
    R = real_form(W)
    assert orthogonality_error(R) < 1e-14
    h = torch.randn(5, dtype=C128)
    image = R @ torch.cat([h.real, h.imag])
    torch.testing.assert_close(torch.complex(image[:5], image[5:]), W @ h)
    assert torch.equal(R[:5, :5] + 1j * R[5:, :5], W)
    assert torch.linalg.det(R).item() == pytest.approx(1.0)  # |det W|^2
    torch.testing.assert_close(real_form(W @ W), R @ R)


def test_as_a_parametrisation_of_a_complex_weight():
    linear = nn.Linear(4, 4, bias=False, dtype=C128)
    parametrize.register_parametrization(linear, "weight", Unitary(4))
    optimizer = torch.optim.Adam(linear.parameters(), lr=0.05)
    target = haar(4, 3)
    for _ in range(150):
        optimizer.zero_grad()
        loss = (linear.weight - target).abs().square().sum()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1.0  # 2 n = 8 for unrelated matrices
    assert linear.parametrizations.weight[0].in_manifold(linear.weight)
    linear.weight = target
    torch.testing.assert_close(linear.weight.detach(), target, rtol=0, atol=1e-13)


def test_bad_input_is_refused():
    theta = torch.zeros(3, dtype=torch.float64)
    with pytest.raises(RankError):
        unitary_matrix(torch.zeros(3, 1, dtype=C128), theta)
    with pytest.raises(DimensionError):
        unitary_matrix(torch.randn(3, 3, dtype=C128), theta)
    with pytest.raises(DimensionError):
        unitary_matrix(torch.randn(4, 2, dtype=C128), theta)
    with pytest.raises(NonFiniteError):
        unitary_matrix(torch.randn(3, 1, dtype=C128), theta * float("nan"))
    with pytest.raises(ConfigurationError):
        unitary_matrix(torch.randn(3, 1), theta)
    with pytest.raises(ConfigurationError):
        unitary_vectors(torch.eye(2))
    with pytest.raises(RankError):
        unitary_vectors(torch.ones(2, 2, dtype=C128))
    with pytest.raises(NonFiniteError):
        unitary_vectors(torch.full((2, 2), float("nan"), dtype=C128))
    with pytest.raises(DimensionError):
        unitary_vectors(torch.ones(2, 3, dtype=C128))
    for m in (0, 4, True, 1.5):
        with pytest.raises(ConfigurationError):
            Unitary(3, m)
    with pytest.raises(ConfigurationError):
        Unitary(0)
    order, phases = fixed_permutation(3), torch.zeros(3, 3, dtype=torch.float64)
    with pytest.raises(RankError):
        arjovsky_matrix(phases, torch.zeros(2, 3, dtype=C128), order)
    with pytest.raises(NonFiniteError):
        arjovsky_matrix(phases * float("inf"), torch.ones(2, 3, dtype=C128), order)
    assert not Unitary(2).in_manifold(torch.full((2, 2), float("nan"), dtype=C128))
    assert not Unitary(2).in_manifold(torch.eye(2))
