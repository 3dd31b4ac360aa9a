"""Measured recovery: against one run by hand, and against what is proved."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability import certify
from stability.analysis import measured_recovery
from stability.errors import ConfigurationError, NonFiniteError
from stability.models import LSTM, ContractingRNN, ElmanRNN


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
