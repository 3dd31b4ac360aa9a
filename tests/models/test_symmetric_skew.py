"""The symmetric-skew parametrisation: its formula, its inverse, and the interval that holds its spectrum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import parametrize

from stability.errors import ConfigurationError, DimensionError, NonFiniteError
from stability.models import (
    SymmetricSkew,
    proposition1_bounds,
    symmetric_skew,
)

BETAS = (0.0, 0.3, 0.5, 0.75, 1.0)


def by_entries(M: np.ndarray, beta: float, gamma: float) -> np.ndarray:
    n = len(M)
    out = np.zeros_like(M)
    for i in range(n):
        for j in range(n):
            out[i, j] = (1 - beta) * (M[i, j] + M[j, i]) + beta * (M[i, j] - M[j, i]) - gamma * (i == j)
    return out


@pytest.mark.parametrize("beta", BETAS)
def test_formula(beta, rng):
    M = rng.normal(size=(6, 6))
    got = symmetric_skew(torch.from_numpy(M), beta, 0.37).numpy()
    np.testing.assert_allclose(got, by_entries(M, beta, 0.37), atol=1e-15)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 12), beta=st.floats(0, 1), gamma=st.floats(0, 5))
def test_corrected_interval_holds_all_real_parts(seed, n, beta, gamma):
    M = np.random.default_rng(seed).normal(size=(n, n))
    low, high = proposition1_bounds(M, beta, gamma)
    real = np.linalg.eigvals(by_entries(M, beta, gamma)).real
    slack = 1e-10 * (1 + np.abs(M).max() + gamma)
    assert low - slack <= real.min()
    assert real.max() <= high + slack


def test_corrected_interval_is_tight_for_symmetric_matrices(rng):
    M = rng.normal(size=(7, 7))
    M = M + M.T
    real = np.linalg.eigvalsh(by_entries(M, 0.6, 0.2))
    np.testing.assert_allclose(proposition1_bounds(M, 0.6, 0.2), (real[0], real[-1]), rtol=1e-12)


@pytest.mark.parametrize("beta", [0.1, 0.5, 0.75, 0.999])
def test_right_inverse_reaches_every_matrix(beta, rng):
    S = torch.from_numpy(rng.normal(size=(5, 5)))
    skew = SymmetricSkew(beta, 0.4)
    assert skew.in_manifold(S)
    torch.testing.assert_close(skew(skew.right_inverse(S)), S, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beta", BETAS)
def test_samples_are_in_the_manifold_and_come_back(beta, dtype):
    skew = SymmetricSkew(beta, 0.4)
    S = skew.sample(9, seed=3, dtype=dtype)
    assert S.dtype == dtype
    assert skew.in_manifold(S)
    tolerance = 100 * torch.finfo(dtype).eps
    torch.testing.assert_close(skew(skew.right_inverse(S)), S, rtol=tolerance, atol=tolerance)
    assert torch.equal(S, skew.sample(9, seed=3, dtype=dtype))
    assert not torch.equal(S, skew.sample(9, seed=4, dtype=dtype))


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_the_ends_refuse_or_project(beta, rng):
    S = torch.from_numpy(rng.normal(size=(5, 5)))
    assert not SymmetricSkew(beta, 0.4).in_manifold(S)
    with pytest.raises(ConfigurationError):
        SymmetricSkew(beta, 0.4).right_inverse(S)
    skew = SymmetricSkew(beta, 0.4, project=True)
    nearest = skew(skew.right_inverse(S))
    # the nearest member: the residual is orthogonal to the directions of the manifold
    for seed in range(5):
        direction = skew.sample(5, seed=seed) - skew.sample(5, seed=seed + 50)
        assert abs(((S - nearest) * direction).sum().item()) < 1e-12


@pytest.mark.parametrize("beta", [0.0, 0.7, 1.0])
def test_parametrize_keeps_the_manifold_through_training(beta):
    linear = torch.nn.Linear(6, 6, bias=False).double()
    skew = SymmetricSkew(beta, 0.3, project=True)
    parametrize.register_parametrization(linear, "weight", skew)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.5)
    start = linear.weight.detach().clone()
    for _ in range(5):
        optimizer.zero_grad()
        (linear.weight @ torch.ones(6, dtype=torch.float64) - 1).square().sum().backward()
        optimizer.step()
    assert (linear.weight - start).abs().max() > 1e-3
    assert skew.in_manifold(linear.weight)


def test_gradient(rng):
    M = torch.from_numpy(rng.normal(size=(4, 4))).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: symmetric_skew(m, 0.7, 0.1), (M,))
    assert torch.autograd.gradgradcheck(lambda m: symmetric_skew(m, 0.7, 0.1).square(), (M,))


@pytest.mark.parametrize("beta", [-0.1, 1.1, float("nan"), float("inf"), "0.5", None, True])
def test_bad_beta(beta):
    with pytest.raises(ConfigurationError):
        SymmetricSkew(beta, 0.1)
    with pytest.raises(ConfigurationError):
        proposition1_bounds(np.eye(2), beta, 0.1)


def test_bad_matrices():
    skew = SymmetricSkew(0.5, 0.1)
    with pytest.raises(DimensionError):
        skew(torch.zeros(2, 3))
    with pytest.raises(DimensionError):
        skew.right_inverse(torch.zeros(0, 0))
    with pytest.raises(ConfigurationError):
        skew(torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(NonFiniteError):
        proposition1_bounds([[float("nan")]], 0.5, 0.1)
    assert not skew.in_manifold(torch.tensor([[float("nan")]]))
