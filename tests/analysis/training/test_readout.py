"""Read-outs by least squares: against numpy's, whatever the blocks; reservoirs have a proved echo state property."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import fit_readout, make_task, task_from_arrays, train
from stability.certification import certify
from stability.errors import ConfigurationError, DimensionError, RankError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.models import EchoStateRNN, ElmanRNN, SequenceModel


def per_step(n=30, steps=12):
    """Values at every step: the input two steps ago, and its square."""
    x = torch.rand(n, steps, 1, generator=torch.Generator().manual_seed(0)) - 0.5
    y = torch.cat([torch.zeros(n, 2, 1), x[:, :-2]], 1)
    return task_from_arrays(x, torch.cat([y, y**2], -1), held_out=0.2)


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_it_is_the_least_squares_solution_whatever_the_blocks(ridge, batch_size):
    task = per_step()
    torch.manual_seed(0)
    model = SequenceModel(EchoStateRNN(1, 9, leak=0.7), 2, "all").double()
    result = fit_readout(model, task, ridge=ridge, washout=3, batch_size=batch_size)
    x, y = (part.double() for part in task.train)
    read = model.layer(x)[0][:, 3:].reshape(-1, 9).numpy()
    phi = np.hstack([read, np.ones((len(read), 1))])
    target = y[:, 3:].reshape(-1, 2).numpy()
    stacked = np.vstack([phi, np.sqrt(ridge * len(phi)) * np.eye(10)])
    w = np.linalg.lstsq(stacked, np.vstack([target, np.zeros((10, 2))]), rcond=None)[0]
    np.testing.assert_allclose(model.head.weight.detach().numpy(), w[:-1].T, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.head.bias.detach().numpy(), w[-1], rtol=1e-7, atol=1e-9)
    assert (result.rows, result.features) == (len(phi), 10)
    penalised = np.sum((phi @ w - target) ** 2) + ridge * len(phi) * np.sum(w**2)
    assert result.residual == pytest.approx(np.sqrt(penalised / target.size), rel=1e-6)
    assert result.test_metric < 0.02 < task.chance


def test_dependent_features_need_a_ridge():
    task = per_step()
    model = SequenceModel(EchoStateRNN(1, 6, radius=0.0, input_scale=0.0), 2, "all")
    with pytest.raises(RankError):
        fit_readout(model, task, ridge=0.0)
    fit_readout(model, task, ridge=1e-9)
    few = per_step(n=2, steps=4)
    with pytest.raises(RankError):
        fit_readout(SequenceModel(EchoStateRNN(1, 20), 2, "all"), few, ridge=0.0)


def test_what_it_refuses():
    task = per_step()
    with pytest.raises(UnsupportedError):
        fit_readout(nn.Linear(1, 2), task)
    with pytest.raises(ConfigurationError):
        fit_readout(SequenceModel(ElmanRNN(1, 4), 2, "all"), task, washout=12)
    with pytest.raises(DimensionError):
        fit_readout(SequenceModel(ElmanRNN(1, 4), 3, "all"), task)


def test_a_reservoir_is_certified_and_its_weights_are_not_trained():
    """The orthogonal kind contracts by ``1 - a + a radius``, a proved rate; training moves the head alone."""
    torch.manual_seed(1)
    layer = EchoStateRNN(14, 12, radius=0.9, leak=0.4)
    certificate = certify(layer)
    assert certificate.verdict is Verdict.CERTIFIED
    assert certificate.rate <= 1 - 0.4 + 0.4 * 0.9 + 1e-6
    assert float(layer.contraction_gap()) == pytest.approx(0.4 * 0.1, abs=1e-6)
    radii = [np.abs(np.linalg.eigvals(EchoStateRNN(2, 20, radius=1.2, kind="gaussian").weight_hh)).max()]
    assert radii[0] == pytest.approx(1.2, rel=1e-5)
    task = make_task("digits", size=14, limit=100, test_limit=40)
    model = SequenceModel(layer, 10)
    kept = {n: p.clone() for n, p in model.named_parameters()}
    solved = fit_readout(model, task)
    assert solved.test_metric > 3 * task.chance
    train(model, task, epochs=1)
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, kept[n])}
    assert moved == {"head.weight", "head.bias"}
