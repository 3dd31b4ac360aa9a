"""Recovery times and rounding distances against runs by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability import certify
from stability.analysis import measured_recovery, rounding_distance
from stability.errors import ConfigurationError, NonFiniteError
from stability.models import LSTM, ContractingRNN, ElmanRNN, SequenceModel


def test_one_run_by_hand() -> None:
    torch.manual_seed(0)
    layer = ElmanRNN(2, 3)
    x = torch.randn(1, 6, 2)
    found = measured_recovery(layer, x, size=0.5, tol=1e-4, directions=1, seed=3)
    W, U, b = (p.detach().double().numpy() for p in (layer.weight_hh, layer.weight_ih, layer.bias))
    push = torch.randn(1, 1, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64).numpy()[0, 0]
    h = np.zeros(3)
    for u in x[0].double().numpy():
        h = np.tanh(W @ h + U @ u + b)
    g, far = h + 0.5 * push / np.linalg.norm(push), [0.5]
    for k in range(60):
        u = x[0, k % 6].double().numpy()
        h, g = np.tanh(W @ h + U @ u + b), np.tanh(W @ g + U @ u + b)
        far.append(float(np.linalg.norm(h - g)))
    assert found.steps.shape == (1, 1)
    assert found.worst == max(k for k, d in enumerate(far) if d >= 1e-4) + 1


def test_no_measured_recovery_is_longer_than_the_proved_one() -> None:
    torch.manual_seed(1)
    layer = ContractingRNN(1, 6, rate=0.7)
    certificate = certify(layer)
    for size, tol in ((1.0, 1e-3), (20.0, 0.5), (0.1, 0.2)):
        found = measured_recovery(layer, torch.randn(4, 9, 1), size=size, tol=tol, directions=8)
        assert found.recovered == 1.0
        assert found.median <= found.worst <= max(certificate.recovery_time(size, tol).time, 0)


def test_a_latch_does_not_come_back() -> None:
    layer = ElmanRNN(1, 1)
    with torch.no_grad():
        layer.weight_hh.fill_(3.0), layer.weight_ih.fill_(0.0), layer.bias.fill_(0.01)
    found = measured_recovery(layer, torch.zeros(1, 4, 1), size=5.0, directions=8, limit=50)
    assert found.worst is None
    assert 0.0 < found.recovered < 1.0
    assert np.isnan(found.steps).any()


def test_the_complete_state_is_disturbed_and_the_layer_stays_as_it_was() -> None:
    layer, x = LSTM(2, 3), torch.zeros(2, 4, 2)
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    found = measured_recovery(layer, x, directions=2)
    assert found.steps.shape == (2, 2)
    assert all(torch.equal(v, before[k]) for k, v in layer.state_dict().items())
    with pytest.raises(ConfigurationError):
        measured_recovery(layer, x, size=-1.0)
    wild = ElmanRNN(1, 1, activation="relu")
    with torch.no_grad():
        wild.weight_hh.fill_(3.0), wild.bias.fill_(1.0)
    with pytest.raises(NonFiniteError):
        measured_recovery(wild, torch.zeros(1, 3, 1))


def test_the_distance_is_that_of_two_runs_written_out() -> None:
    torch.manual_seed(0)
    model, x = SequenceModel(ElmanRNN(3, 6), 2), torch.randn(4, 30, 3)
    found = rounding_distance(model, x)
    layer = model.layer
    W, U, b = (p.detach() for p in (layer.weight_hh, layer.weight_ih, layer.bias))
    with torch.no_grad():  # as a network runs that nobody trains
        outputs = layer(x)[0]
    exact, apart = torch.zeros(4, 6, dtype=torch.float64), []
    for u, h in zip(x.unbind(1), outputs.unbind(1)):
        exact = torch.tanh(exact @ W.double().T + u.double() @ U.double().T + b.double())
        apart.append(float((h.double() - exact).norm(dim=1).max()))
    np.testing.assert_allclose(found.distance, apart, rtol=1e-6, atol=1e-15)
    assert found.largest == pytest.approx(max(apart))
    assert 1e-9 < found.relative < 1e-5
    assert rounding_distance(model.double(), x.double()).largest == 0.0


def test_a_map_that_stretches_makes_more_of_its_rounding() -> None:
    torch.manual_seed(0)
    x, ends = torch.randn(4, 60, 3), []
    for gain in (0.5, 3.0):
        layer = ElmanRNN(3, 20)
        with torch.no_grad():
            layer.weight_hh.copy_(gain * torch.randn(20, 20) / 20**0.5)
        ends.append(rounding_distance(layer, x).distance[-1])
    assert ends[1] > 100 * ends[0]
