"""Weights of quantised modules, every number of every layer, direction and scheme."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.conversion.subjects import as_subject
from stability.errors import UnsupportedError
from stability.models.adapters.quantized import _exact, is_quantized, quantized_weights


def quantised(module, dtype=torch.qint8):
    try:
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(module), {type(module)}, dtype=dtype)[0]
    except (AttributeError, RuntimeError) as error:
        pytest.skip(f"this torch does not quantise: {error}")


def by_hand(weight):
    codes = weight.int_repr().double().numpy() - weight.q_zero_point()
    return codes * np.float64(np.float32(weight.q_scale()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("make", "kind"), [(nn.LSTM, "lstm"), (nn.GRU, "gru")])
def test_every_layer_and_direction(make, kind, bidirectional):
    torch.manual_seed(0)
    module = quantised(make(3, 4, 2, bidirectional=bidirectional))
    found = quantized_weights(module)
    assert (found.kind, found.directions, found.activation) == (kind, 1 + bidirectional, "tanh")
    assert "(qint8 weights" in found.label
    stored, biases = module.get_weight(), module.get_bias()
    suffixes = [f"_l{k}{r}" for k in range(2) for r in ("", "_reverse")[: 1 + bidirectional]]
    assert len(found.layers) == len(suffixes)
    for (w_ih, w_hh, b_ih, b_hh), suffix in zip(found.layers, suffixes):
        np.testing.assert_array_equal(w_ih, by_hand(stored[f"weight_ih{suffix}"]))
        np.testing.assert_array_equal(w_hh, by_hand(stored[f"weight_hh{suffix}"]))
        np.testing.assert_array_equal(b_ih, biases[f"bias_ih{suffix}"].detach().double().numpy())
        np.testing.assert_array_equal(b_hh, biases[f"bias_hh{suffix}"].detach().double().numpy())
    assert (as_subject(module).levels, as_subject(module).directions) == (2, 1 + bidirectional)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
def test_a_cell_and_its_activation(activation, dtype):
    torch.manual_seed(0)
    module = quantised(nn.RNNCell(3, 4, nonlinearity=activation), dtype)
    found = quantized_weights(module)
    assert (found.kind, found.directions, found.activation) == ("rnn", 1, activation)
    # torch gives half-precision weights back as the same numbers in float32
    stored_as = "qint8" if dtype is torch.qint8 else "float32"
    stored = module.get_weight()["weight_hh"]
    expected = by_hand(stored) if stored.is_quantized else stored.detach().double().numpy()
    np.testing.assert_array_equal(found.layers[0][1], expected)
    subject = as_subject(module)
    assert subject.activation == activation
    assert subject.name == (f"RNNCell ({stored_as} weights dequantised exactly; rounding of activations not modelled)")
    np.testing.assert_array_equal(subject.system.C, found.layers[0][1])


def test_weights_with_a_scale_for_each_channel(rng):
    values, scales = (
        torch.tensor(rng.normal(size=(4, 3))).float(),
        torch.tensor([0.01, 0.02, 0.03, 0.05], dtype=torch.float64),
    )
    for axis, count in ((0, 4), (1, 3)):
        points = torch.arange(count)
        weight = torch.quantize_per_channel(values, scales[:count], points, axis, torch.qint8)
        codes = weight.int_repr().numpy().astype(float)
        shape = (-1, 1) if axis == 0 else (1, -1)
        expected = scales[:count].numpy().reshape(shape) * (codes - points.numpy().reshape(shape))
        np.testing.assert_array_equal(_exact(weight), expected)
    weight = torch.quantize_per_tensor(values, 0.1, 7, torch.quint8)
    np.testing.assert_array_equal(
        _exact(weight), np.float64(np.float32(0.1)) * (weight.int_repr().numpy().astype(float) - 7)
    )
    np.testing.assert_array_equal(_exact(values.half()), values.half().double().numpy())
    odd = torch.quantize_per_channel(values, scales.float(), torch.zeros(4), 0, torch.quint8)
    if odd.qscheme() not in (torch.per_tensor_affine, torch.per_channel_affine):
        with pytest.raises(UnsupportedError):
            _exact(odd)


def test_what_is_quantised():
    assert not is_quantized(nn.LSTM(2, 3))
    assert not is_quantized(3)
