"""Hessian-vector products of several directions at once are those of one direction after another."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis.curvature import products
from stability.analysis.curvature.products import HessianOperator, cross_entropy, select_parameters
from stability.analysis.kernels.lstm import lstm_states
from stability.analysis.kernels.prefixes import apart, joined
from stability.analysis.kernels.swap import written_out
from stability.models.lipschitz import LipschitzRNN
from stability.models.network import SequenceModel

from .test_written_out import ALIKE, assert_equal, differentiated, problem, product


def several(gradient, at, directions):
    live = [(g, d) for g, d in zip(gradient, directions, strict=True) if g.requires_grad]
    by, along = [g for g, _ in live], tuple(d for _, d in live)
    given = {"retain_graph": True, "materialize_grads": True}
    return torch.vmap(lambda *parts: torch.autograd.grad(by, at, parts, **given))(*along)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("kind", ALIKE)
def test_several_at_once_are_each_for_itself(kind, alike):
    model, x, y = problem(kind)
    if alike:
        x[:3, :2], x[1, :5], x[5] = 0.0, x[0, :5].clone(), x[4].clone()
    x.requires_grad_(not alike)
    at = [*model.parameters(), *([] if alike else [x])]
    with written_out(model) as kernels:
        _, gradient = differentiated(model, x, y, at)
    assert kernels.together
    directions = [torch.randn(3, *p.shape, dtype=p.dtype) for p in at]
    found = several(gradient, at, directions)
    for k in range(3):
        assert_equal([part[k] for part in found], product(gradient, at, [d[k] for d in directions]))


@pytest.mark.parametrize("kind", ["contracting", "lstm"])
def test_directions_that_share_a_part(kind):
    model, x, y = problem(kind)
    at = list(model.parameters())
    with written_out(model):
        _, gradient = differentiated(model, x, y, at)
    shared = [torch.randn_like(p) for p in at]
    one = torch.randn(2, *at[0].shape, dtype=at[0].dtype)
    found = torch.vmap(lambda d: torch.autograd.grad(gradient, at, [d, *shared[1:]], retain_graph=True))(one)
    for k in range(2):
        assert_equal([part[k] for part in found], product(gradient, at, [one[k], *shared[1:]]))


def test_an_operator_takes_them_together_and_counts_them(monkeypatch):
    model, x, y = problem("contracting last")
    operator = HessianOperator(model, [(x, y)], cross_entropy, select_parameters(model, "all"))
    V = np.random.default_rng(0).standard_normal((5, operator.size))
    expected = np.stack([operator.matvec(v) for v in V])
    monkeypatch.setattr(operator, "matvec", lambda *_: pytest.fail("one by one"))
    np.testing.assert_allclose(operator.matvecs_of(V), expected, rtol=1e-12, atol=1e-13)
    assert operator.matvecs == 10
    monkeypatch.setattr(operator, "_together", 2)
    np.testing.assert_allclose(operator.matvecs_of(V[:3]), expected[:3], rtol=1e-12, atol=1e-13)


def test_as_many_together_as_memory_allows(monkeypatch):
    model, x, y = problem("lipschitz")
    for numbers, expected in ((2**24, products._MOST), (x.shape[0] * x.shape[1] * 4 * 3 + 1, 3), (1, 0)):
        monkeypatch.setattr(products, "_NUMBERS", numbers)
        operator = HessianOperator(model, [(x, y)], cross_entropy, select_parameters(model, "all"))
        assert operator._together == expected
        assert operator.matvecs_of(np.eye(operator.size)[:4]).shape == (4, operator.size)


class Alone(torch.autograd.Function):
    """The identity, of one direction at a time."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *grads):
        return (Alone.apply(grads[0]) if torch.is_grad_enabled() else torch.from_numpy(grads[0].numpy().copy()),)


class Stubborn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = SequenceModel(LipschitzRNN(2, 4, dt=0.4), 3)

    def forward(self, x):
        return Alone.apply(self.inner(x))


@pytest.mark.parametrize("kind", ["images", "stubborn", "loader"])
def test_what_takes_one_direction_at_a_time_gets_one(kind):
    torch.manual_seed(0)
    if kind == "images":
        model, x, y = problem("images")
    else:
        model, x, y = Stubborn().double(), torch.randn(7, 6, 2, dtype=torch.float64), torch.arange(7) % 3
    batches = [(x[:4], y[:4]), (x[4:], y[4:])] if kind == "loader" else [(x, y)]
    operator = HessianOperator(model, batches, cross_entropy, select_parameters(model, "all"))
    V = np.random.default_rng(0).standard_normal((3, operator.size))
    found = operator.matvecs_of(V)
    assert operator.matvecs == 3
    np.testing.assert_allclose(found, [operator.matvec(v) for v in V], rtol=1e-12, atol=1e-13)


def test_krylov_spaces_together_are_those_one_after_another():
    model, x, y = problem("lstm")
    operator = HessianOperator(model, [(x, y)], cross_entropy, select_parameters(model, "all"))
    rng = np.random.default_rng(3)
    expected = [operator.krylov(12, rng) for _ in range(3)]
    for found, other in zip(operator.krylovs(3, 12, np.random.default_rng(3)), expected, strict=True):
        np.testing.assert_allclose(found.diagonal, other.diagonal, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(np.abs(found.off_diagonal), np.abs(other.off_diagonal), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("parts", [False, True])
def test_rows_that_come_into_an_lstm_through_a_matrix_are_those_of_their_product(parts):
    """The matrix's gradient and its products, added up time by time, of one direction and of several."""
    torch.manual_seed(8)
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    if parts:
        x[:3, :2], x[1, :4] = 0.0, x[0, :4].clone()
    tree, given = joined(x) if parts else (apart(5, 4), x.transpose(0, 1).flatten(0, 1))
    assert (len(given) < 20) == parts
    start = [None, None] if parts else [torch.randn(4, 2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    U, R = (torch.randn(8, size, dtype=torch.float64, requires_grad=True) for size in (3, 2))
    at = [p for p in (U, R, *start) if p is not None]
    directions, found = [torch.randn(3, *p.shape, dtype=p.dtype) for p in at], []
    for drive in ((given, U), given @ U.mT):
        h, c = lstm_states(drive, *start, R, tree)
        loss = h.square().sum() + (c.sin() * h).sum()
        gradient = torch.autograd.grad(loss, at, create_graph=True)
        one = product(gradient, at, [d[1] for d in directions])
        found.append([loss, *gradient, *one, *several(gradient, at, directions)])
    assert_equal(*found)
    assert all(part.abs().max() > 1e-3 for part in found[0])
