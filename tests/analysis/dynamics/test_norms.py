"""Norm drift: constant where it must be, exact where it is known, gradients against products of Jacobians."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import norm_drift
from stability.analysis.dynamics.norms import EXTENSIONS, extend
from stability.errors import ConfigurationError, NonFiniteError, StabilityError
from stability.models import GRU, LSTM, ElmanRNN, LipschitzRNN, SequenceModel


def linear_layer(matrix, dt=1.0):
    """A layer whose map is ``h+ = matrix h + (input)``: the nonlinear part only sees the input."""
    n = len(matrix)
    A = (torch.as_tensor(matrix).double() - torch.eye(n)) / dt
    return LipschitzRNN.from_matrices(A, torch.zeros(n, n).double(), torch.ones(n, 1).double(), dt=dt, gamma=0.0)


def pulse(batch, steps, seed=0):
    x = torch.zeros(batch, steps, 1).double()
    x[:, 0, 0] = torch.linspace(0.5, 2, batch)
    return x


def test_an_orthogonal_layer_keeps_its_norms(rng):
    Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    result = norm_drift(linear_layer(Q), pulse(5, 40), factor=3, extension="zero")
    np.testing.assert_allclose(result.mean, result.mean[:, :1].repeat(120, 1), rtol=1e-10)
    assert result.drift_index == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(result.slope, 0, atol=1e-10)
    np.testing.assert_allclose(result.grad_norm[:40], 1, rtol=1e-10)
    assert np.isnan(result.grad_norm[40:]).all()
    assert result.grad_slope == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_scaling_layer_drifts_by_its_logarithm(factor):
    result = norm_drift(linear_layer(factor * np.eye(4)), pulse(3, 41))
    assert result.slope[0] == pytest.approx(np.log(factor), rel=1e-9)
    assert result.drift_index == pytest.approx(abs(np.log2(factor)) * (41 - 41 // 4 - 1), rel=1e-9)
    assert result.grad_slope == pytest.approx(-np.log(factor), rel=1e-9)
    np.testing.assert_allclose(result.grad_norm, factor ** np.arange(40, -1, -1.0), rtol=1e-9)


@pytest.mark.parametrize("make", [ElmanRNN, LipschitzRNN, LSTM, GRU])
def test_norms_and_gradients_against_a_slow_way(make):
    torch.manual_seed(0)
    layer = make(2, 4).double()
    x = torch.randn(7, 9, 2).double()
    result = norm_drift(layer, x, seed=5)
    outputs = layer(x)[0].detach().norm(dim=2).T.numpy()
    np.testing.assert_allclose(result.mean[0], outputs.mean(1))
    np.testing.assert_allclose(result.quantiles[0], np.quantile(outputs, (0.1, 0.5, 0.9), axis=1).T)
    subject = layer.driven()
    n = 8 if make is LSTM else 4
    v = torch.randn(7, n, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    v = (v / v.norm(dim=1, keepdim=True)).numpy()
    grads = np.zeros((9, 7))
    for i in range(7):
        states = [np.zeros(n)]
        for t in range(9):
            states.append(subject.advance(states[-1], x[i, t].numpy()))
        g = v[i]
        for t in range(8, -1, -1):
            grads[t, i] = np.linalg.norm(g)
            g = subject.jacobian(states[t], x[i, t].numpy()).T @ g
    np.testing.assert_allclose(result.grad_norm, grads.mean(1), rtol=1e-9)


@pytest.mark.parametrize("reduction", ["last", "mean", "all"])
def test_gradients_of_the_task_loss(reduction):
    torch.manual_seed(0)
    model = SequenceModel(ElmanRNN(2, 4), 3, reduction).double()
    x, y = torch.randn(4, 5, 2).double(), torch.randint(0, 3, (4, 5) if reduction == "all" else (4,))

    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())

    result = norm_drift(model, x, y, loss=loss)
    norms = np.zeros((5, 4))
    for t in range(5):  # perturb the state after step t by hand
        shift = torch.zeros(4, 4).double().requires_grad_()
        h, outputs = None, []
        for s in range(5):
            out, h = model.layer.step(x[:, s], h)
            if s == t:
                h = h + shift
                out = h
            outputs.append(out)
        stacked = torch.stack(outputs, 1)
        features = {"last": stacked[:, -1], "mean": stacked.mean(1), "all": stacked}[reduction]
        (grad,) = torch.autograd.grad(4 * loss(model.head(features), y), shift)
        norms[t] = grad.norm(dim=1).numpy()
    np.testing.assert_allclose(result.grad_norm, norms.mean(1), rtol=1e-10)
    assert result.loss == "task loss"


def test_depth_gives_one_curve_a_layer():
    torch.manual_seed(0)
    for make in (nn.LSTM, nn.GRU):
        module = make(2, 5, num_layers=3, batch_first=True)
        x = torch.randn(6, 8, 2)
        result = norm_drift(module, x)
        assert result.mean.shape == (3, 8)
        with torch.no_grad():
            top = module(x)[0].norm(dim=2).mean(0).numpy()
        np.testing.assert_allclose(result.mean[2], top, rtol=1e-5)
        assert set(result.frame().layer) == {0, 1, 2}


def test_extensions():
    x = torch.randn(3, 4, 2)
    for how in EXTENSIONS:
        longer = extend(x, 3, how, seed=1)
        assert longer.shape == (3, 12, 2)
        assert torch.equal(longer[:, :4], x)
        assert torch.equal(longer, extend(x, 3, how, seed=1))
    assert torch.equal(extend(x, 3, "repeat")[:, 8:], x)
    assert (extend(x, 3, "zero")[:, 4:] == 0).all()
    assert torch.equal(extend(x, 2, "hold")[:, 6], x[:, 3])
    noise = extend(torch.randn(200, 50, 2) * torch.tensor([1.0, 5.0]) + 3, 2, "noise")[:, 50:]
    np.testing.assert_allclose(noise.std((0, 1)), [1, 5], rtol=0.05)
    np.testing.assert_allclose(noise.mean((0, 1)), [3, 3], atol=0.2)


def test_the_model_is_left_as_it_was():
    model = SequenceModel(LipschitzRNN(2, 4), 2)
    model.train()
    model.head.weight.grad = torch.ones_like(model.head.weight)
    before = {n: p.clone() for n, p in model.state_dict().items()}
    x = torch.randn(3, 6, 2)
    state = torch.random.get_rng_state()
    norm_drift(model, x, factor=2, extension="noise")
    assert torch.equal(state, torch.random.get_rng_state())
    assert model.training
    assert (model.head.weight.grad == 1).all()
    assert model.layer.M_A.grad is None
    assert all(torch.equal(before[n], p) for n, p in model.state_dict().items())


def test_norms_that_vanish_rank_last():
    dead = ElmanRNN(1, 3)
    with torch.no_grad():
        for p in dead.parameters():
            p.zero_()
    assert norm_drift(dead, torch.zeros(2, 6, 1)).drift_index == 0  # constant zero is constant
    dying = linear_layer(np.zeros((2, 2)))
    x = pulse(2, 8)
    x[:, 3] = 1.0
    result = norm_drift(dying, x)
    assert result.drift_index == np.inf
    assert result.to_dict()["drift_index"] is None


def test_bad_input():
    layer, x = ElmanRNN(2, 3), torch.zeros(1, 4, 2)
    bad = [(layer, x[0]), (layer, None), (layer, x.double()), (layer, x.long()), ("layer", x), (nn.Linear(2, 2), x)]
    for model, sequence in bad:
        with pytest.raises(StabilityError):
            norm_drift(model, sequence)
    for options in ({"factor": 0}, {"factor": 1.5}, {"extension": "mirror"}, {"y": torch.zeros(1)}):
        with pytest.raises(ConfigurationError):
            norm_drift(layer, x, **options)
    wide = ElmanRNN(2, 300)  # whose states are larger than its inputs
    for model, extension in ((layer, "repeat"), (layer, "hold"), (wide, "zero")):
        with pytest.raises(ConfigurationError):
            norm_drift(model, x, factor=2**25 if model is layer else 2**18, extension=extension)
    with pytest.raises(ConfigurationError):
        extend(x, 10**12)
    assert extend(x, 2**10).shape[1] == 2**12
    with pytest.raises(NonFiniteError):
        norm_drift(layer, torch.full((1, 4, 2), float("inf")))
    wild = ElmanRNN(1, 2, activation="relu")
    with torch.no_grad():
        wild.weight_hh.fill_(1e20)
        wild.bias.fill_(1.0)
    with pytest.raises(NonFiniteError):
        norm_drift(wild, torch.ones(1, 9, 1))
