"""How far a run in float32 is from the map that is certified."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.analysis import rounding_distance
from stability.models import ElmanRNN, SequenceModel


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
