"""Floors of the steps: what is measured lies within what is certified, and floors shorten the certified memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.analysis.floors import set_floors
from stability.analysis.gated_layers import measure_layers
from stability.checkpoint_certificate import LayerClaims
from stability.errors import UnsupportedError
from stability.models import RGLRU, S5, GatedDeltaNet, Mamba, Mamba2, MinGRU, SequenceModel, load, save
from stability.search.gated_linear import layer_claims

LAYERS = {Mamba: {}, Mamba2: {}, GatedDeltaNet: {}, RGLRU: {}, MinGRU: {}, S5: {}}
TAPS, TOL = 4, 0.01


def network(kind, *, scale=1.0):
    torch.manual_seed(0)
    model = SequenceModel([kind(3, 16), kind(16, 16)], 4)
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(scale)
    return model


def claims_of(layer):
    return LayerClaims(0, layer.name, layer.digest, "norm", layer_claims(layer), layer.taps)


@pytest.mark.parametrize("kind", LAYERS)
def test_measurements_lie_within_the_certified_bounds(kind):
    model, x = network(kind), torch.randn(4, 150, 3)
    records = measure_layers(model, [x[:3], x[3:]])
    assert [record.layer for record in records] == [0, 1]
    for record, layer in zip(records, model.layer.layers):
        subject = layer.gated_linear()
        claims = claims_of(subject)
        assert (record.decay <= np.exp(claims.units("decay")) + 1e-6).all()
        assert (record.horizon <= claims.horizons()).all()
        assert (record.state <= claims.units("state_bound") * (1 + 1e-5)).all()
        low, high = subject.input_set.bounds
        assert (low - 1e-5 <= record.low).all()
        assert (record.low < record.high).all()
        assert (record.high <= high + 1e-5).all()


def test_a_horizon_is_the_largest_age_at_which_an_input_still_counts():
    model = network(S5)
    with torch.no_grad():
        model.layer.layers[0].mixer.Lambda_re.fill_(-1.0)
        model.layer.layers[0].mixer.log_step.fill_(np.log(0.1))
    record = measure_layers(model, [torch.randn(2, 200, 3)], tol=TOL)[0]
    assert (record.horizon == np.ceil(-np.log(TOL) / 0.1)).all()
    np.testing.assert_allclose(record.decay, np.exp(-0.1), rtol=1e-6)


@pytest.mark.parametrize("kind", [Mamba, Mamba2, GatedDeltaNet])
def test_floors_bound_the_certified_horizon_and_survive_a_file(kind, tmp_path):
    model, x = network(kind, scale=2.0), torch.randn(6, 120, 3)
    records = measure_layers(model, [x], quantile=0.05)
    repair = set_floors(model, [x], lambda net: float(net(x).square().mean()), quantile=0.05)
    assert len(repair.layers) == 2
    again = load(save(model, tmp_path / "floored.safetensors"))
    assert torch.equal(again(x), model(x))
    for floored, record, layer in zip(repair.layers, records, again.layer.layers):
        np.testing.assert_array_equal(floored.floors, record.step)
        rate = np.exp(layer.mixer.A_log.detach().double().numpy())
        rate = rate.min(1) if rate.ndim == 2 else rate
        formula = np.ceil(-np.log(TOL) / (rate * floored.floors)) + TAPS - 1
        assert (floored.horizons_after <= formula + 1).all()
        assert (floored.horizons_after <= floored.horizons_before).all()
        assert (claims_of(layer.gated_linear()).horizons() == floored.horizons_after).all()
    steps = measure_layers(again, [x], quantile=0.0)
    for floored, record in zip(repair.layers, steps):
        assert (record.step >= floored.floors * (1 - 1e-6)).all()


@pytest.mark.parametrize("kind", [MinGRU, RGLRU, S5])
def test_layers_without_steps_take_no_floors(kind):
    with pytest.raises(UnsupportedError):
        set_floors(network(kind), [torch.randn(2, 10, 3)], lambda net: 0.0)
    with pytest.raises(UnsupportedError):
        kind(3, 8).set_floors(torch.zeros(8))
