"""The contraction gap: it bounds Jacobians, and training can push on it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import contraction_gap, margin_penalty, train
from stability.errors import UnsupportedError
from stability.models import GRU, ElmanRNN, LipschitzRNN, NeuralODERNN, SequenceModel


def lipschitz(task, **options):
    torch.manual_seed(0)
    return SequenceModel(LipschitzRNN(task.input_size, 12, dt=0.2, **options), task.output_size, task.reduction)


def test_gap_against_sampled_jacobians(rng):
    """The gap bounds the growth of every one-step Jacobian, and for a diagonal layer it is exact."""
    for integrator in ("euler", "midpoint"):
        A, W, U = (torch.from_numpy(s * rng.standard_normal((5, 5))) for s in (0.1, 0.15, 1.0))
        layer = LipschitzRNN.from_matrices(A - 2 * torch.eye(5).double(), W, U, dt=0.2, integrator=integrator)
        gap = contraction_gap(layer).item()
        assert gap > 0
        growth = []
        for _ in range(100):
            system = layer.lure()
            J = system.jacobian(rng.uniform(0, 1, system.channels))
            growth.append(np.linalg.norm(J, 2))
        assert max(growth) <= 1 - 0.2 * gap + 1e-12
    eye = torch.eye(3).double()
    layer = LipschitzRNN.from_matrices(-eye, 0.25 * eye, eye, dt=0.1)
    J = layer.lure().jacobian(np.ones(3))
    assert np.linalg.norm(J, 2) == pytest.approx(1 - 0.1 * contraction_gap(layer).item(), abs=1e-12)


@pytest.mark.slow
def test_training_with_it_reaches_the_target(task):
    common = {"epochs": 20, "lr": 1e-2, "batch_size": 25}
    free, held = (lipschitz(task, gamma=(0.5, 0.001)) for _ in range(2))
    train(free, task, **common)
    result = train(held, task, margin_penalty=2.0, margin_target=0.1, **common)
    assert contraction_gap(free.layer).item() < 0
    assert contraction_gap(held.layer).item() > 0
    assert result.test_metric > task.chance + 0.2


def test_torch_rnn_and_elman():
    rnn = nn.RNN(2, 4, num_layers=2)
    norms = [np.linalg.norm(getattr(rnn, f"weight_hh_l{i}").detach().numpy(), 2) for i in range(2)]
    assert margin_penalty(rnn, 0.5).item() == pytest.approx(max(0, 0.5 - (1 - max(norms))), abs=1e-5)
    elman = ElmanRNN(2, 4, activation="sigmoid")
    norm = np.linalg.norm(elman.weight_hh.detach().numpy(), 2)
    assert contraction_gap(elman).item() == pytest.approx(1 - norm / 4, abs=1e-6)


def test_layers_without_a_gap_are_refused(task, tmp_path):
    model = SequenceModel(NeuralODERNN(task.input_size, 12), task.output_size, task.reduction)
    with pytest.raises(UnsupportedError):
        train(model, task, epochs=1, margin_penalty=1.0)
    for asked in ({"margin_penalty": 1.0}, {"until_certified": True}):
        gated = SequenceModel(GRU(task.input_size, 4), task.output_size, task.reduction)
        with pytest.raises(UnsupportedError, match="bounded_gain"):
            train(gated, task, epochs=1, out=tmp_path / "run", **asked)
        assert not (tmp_path / "run").exists()
    with pytest.raises(UnsupportedError):
        margin_penalty(nn.LSTM(2, 3))
    with pytest.raises(UnsupportedError):
        margin_penalty(nn.Linear(2, 3))
