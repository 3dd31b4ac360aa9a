"""Orthogonal matrices by reflections: from a matrix to its vectors and back, under training, and bad input."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, RankError, UnsupportedError
from stability.models.factorizations import qr
from stability.models.parametrizations.householder import Householder, make_orthogonal
from stability.models.parametrizations.reflections import householder_matrix
from stability.models.parametrizations.vectors import householder_vectors

F64 = torch.float64


def haar(n, seed, determinant=None):
    A = torch.randn(n, n, dtype=F64, generator=torch.Generator().manual_seed(seed))
    Q, R = torch.linalg.qr(A)
    Q = Q * torch.sign(R.diagonal())
    if determinant is not None and torch.linalg.det(Q) * determinant < 0:
        Q[:, 0] = -Q[:, 0]
    return Q


@pytest.mark.parametrize("determinant", [1.0, -1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 33])
def test_right_inverse_reaches_every_orthogonal_matrix_of_both_determinants(n, determinant):
    for seed in range(5):
        Q = haar(n, seed, determinant) if n > 1 else torch.full((1, 1), determinant, dtype=F64)
        U = householder_vectors(Q)
        assert torch.equal(U, U.tril())
        torch.testing.assert_close(torch.linalg.vector_norm(U, dim=0), torch.ones(n, dtype=F64))
        torch.testing.assert_close(householder_matrix(U), Q, rtol=0, atol=20 * n * 2.3e-16)


def special(n):
    flip = torch.eye(n, dtype=F64)
    flip[0, 0] = -1.0
    c, s = 0.6, 0.8
    plane = torch.eye(n, dtype=F64)
    plane[-2:, -2:] = torch.tensor([[c, -s], [s, c]], dtype=F64)
    skew = torch.randn(n, n, dtype=F64).triu(1) * 1e-9
    tiny = torch.matrix_exp(skew - skew.T)
    return {
        "identity": torch.eye(n, dtype=F64),
        "minus identity": -torch.eye(n, dtype=F64),
        "permutation": torch.eye(n, dtype=F64)[torch.arange(n).roll(1)],
        "reversal": torch.eye(n, dtype=F64).flip(0),
        "flip": flip,
        "last plane": plane,
        "almost the identity": tiny,
    }


@pytest.mark.parametrize("name", list(special(4)))
def test_right_inverse_of_special_matrices(name):
    for n in (2, 3, 4, 7):
        Q = special(n)[name]
        torch.testing.assert_close(householder_matrix(householder_vectors(Q)), Q, rtol=0, atol=1e-14 * n)


@pytest.mark.parametrize(("n", "m"), [(3, 1), (6, 2), (6, 5), (20, 4)])
def test_right_inverse_finds_few_reflections_again(n, m):
    W = Householder(n, m).sample(seed=n)
    U = householder_vectors(W, m)
    assert U.shape == (n, m)
    torch.testing.assert_close(householder_matrix(U), W, rtol=0, atol=1e-13)


def test_a_matrix_that_is_not_orthogonal_is_retracted_to_the_q_of_its_qr():
    A = torch.randn(6, 6, dtype=F64)
    torch.testing.assert_close(householder_matrix(householder_vectors(A)), qr(A).Q, rtol=0, atol=1e-13)
    few = householder_vectors(A, 3)
    torch.testing.assert_close(few, householder_vectors(A)[:, :3])


def test_too_few_reflections_are_refused():
    Q = haar(5, 1, determinant=1.0)
    with pytest.raises(UnsupportedError):
        householder_vectors(Q, 3)
    assert not Householder(5, 3).in_manifold(Q)
    assert Householder(5).in_manifold(Q)


# ------------------------------------------------------------------------------------ as a parametrisation


@pytest.mark.parametrize("m", [None, 1, 4])
def test_parametrised_weight_stays_orthogonal_under_training_and_assignment(m):
    linear = nn.Linear(6, 6, dtype=F64)
    make_orthogonal(linear, "weight", m)
    rule = linear.parametrizations.weight[0]
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.3, weight_decay=0.1)
    x = torch.randn(20, 6, dtype=F64)
    target = torch.randn(20, 6, dtype=F64)
    before, losses = linear.weight.detach().clone(), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (linear(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert (linear.weight - before).abs().max() > 1e-3
    assert rule.in_manifold(linear.weight)
    W = rule.sample(seed=3)
    linear.weight = W
    torch.testing.assert_close(linear.weight.detach(), W, rtol=0, atol=1e-13)


def test_bad_matrices_are_refused_on_the_way_back():
    with pytest.raises(RankError):
        householder_vectors(torch.ones(3, 3))
    with pytest.raises(RankError):
        householder_vectors(torch.zeros(2, 2))
    with pytest.raises(NonFiniteError):
        householder_vectors(torch.full((2, 2), float("nan")))
    with pytest.raises(DimensionError):
        householder_vectors(torch.ones(2, 3))
    with pytest.raises(ConfigurationError):
        householder_vectors(torch.eye(2, dtype=torch.complex64))
    for m in (0, 4, -1, True, 2.0, None):
        if m is not None:
            with pytest.raises(ConfigurationError):
                Householder(3, m)
    with pytest.raises(DimensionError):
        Householder(3, 2)(torch.randn(3, 3))
    with pytest.raises(DimensionError):
        Householder(3, 2).right_inverse(torch.eye(4))
    rule = Householder(2)
    assert not rule.in_manifold(torch.full((2, 2), float("nan")))
    assert not rule.in_manifold(torch.eye(3))
    assert not rule.in_manifold(torch.ones(2, 2))
