"""The head on a recurrent layer, and the layers whose options the common contract does not reach."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.systems.gated_cell import GatedCell
from stability.models import GRU, LSTM, ContractingRNN, ElmanRNN, LipschitzRNN, SequenceModel


@pytest.mark.parametrize("reduction", ["last", "mean", "all"])
def test_reductions(reduction):
    model = SequenceModel(ElmanRNN(3, 5), 4, reduction=reduction).double()
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    outputs = model.layer(x)[0]
    W, b = model.head.weight, model.head.bias
    expected = {
        "last": outputs[:, 6] @ W.T + b,
        "mean": sum(outputs[:, t] for t in range(7)) / 7 @ W.T + b,
        "all": torch.stack([outputs[:, t] @ W.T + b for t in range(7)], dim=1),
    }[reduction]
    torch.testing.assert_close(model(x), expected)


def test_sizes_and_questions_are_the_layers():
    layer = LipschitzRNN(3, 5)
    model = SequenceModel(layer, 4)
    assert (model.input_size, model.hidden_size, model.output_size) == (3, 5, 4)
    assert np.array_equal(model.lure().A, layer.lure().A)
    assert np.array_equal(model.driven().b, layer.driven().b)
    assert model.matrices().keys() == layer.matrices().keys()
    assert model.witness() is None
    contracting = SequenceModel(ContractingRNN(3, 5, rate=0.9), 4)
    assert contracting.witness()["rate"] <= 0.9


@pytest.mark.parametrize("layer", [None, torch.nn.LSTM(2, 3), ElmanRNN, "lipschitz"])
def test_only_layers(layer):
    with pytest.raises(ConfigurationError):
        SequenceModel(layer, 4)


@pytest.mark.parametrize("arguments", [(0,), (True,), (2.5,), (None,), (4, "first"), (4, None)])
def test_bad_options(arguments):
    with pytest.raises(ConfigurationError):
        SequenceModel(ElmanRNN(2, 3), *arguments)


def test_bad_inputs_are_refused_at_the_front():
    model = SequenceModel(ElmanRNN(2, 3), 4)
    with pytest.raises(DimensionError):
        model(torch.zeros(1, 5, 3))
    with pytest.raises(ConfigurationError):
        model(torch.zeros(1, 5, 2, dtype=torch.float64))


@pytest.mark.parametrize("activation", ["tanh", "relu", "leaky_relu", "sigmoid", "saturation", "deadzone"])
def test_elman_follows_its_formula(activation, rng):
    layer = ElmanRNN(3, 5, activation=activation).double()
    phi = {
        "tanh": np.tanh,
        "relu": lambda z: np.maximum(z, 0),
        "leaky_relu": lambda z: np.maximum(z, 0.1 * z),
        "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
        "saturation": lambda z: np.sign(z) * np.minimum(np.abs(z), 1),
        "deadzone": lambda z: np.sign(z) * np.maximum(np.abs(z) - 1, 0),
    }[activation]
    W, U, b = (p.detach().numpy() for p in (layer.weight_hh, layer.weight_ih, layer.bias))
    x, h = rng.normal(size=(6, 3)), np.zeros(5)
    for x_t in x:
        h = phi(W @ h + U @ x_t + b)
    np.testing.assert_allclose(layer(torch.from_numpy(x[None]))[1][0].detach().numpy(), h, rtol=1e-12)
    assert layer.lure().slope == (
        0.1 if activation == "leaky_relu" else 0.0,
        0.25 if activation == "sigmoid" else 1.0,
    )


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize(("cls", "reference"), [(LSTM, torch.nn.LSTM), (GRU, torch.nn.GRU)])
def test_gated_layers_are_torchs(cls, reference, layers):
    layer = cls(3, 5, num_layers=layers)
    other = reference(3, 5, num_layers=layers, batch_first=True)
    other.load_state_dict(layer.rnn.state_dict())
    x = torch.randn(2, 6, 3)
    outputs, state = layer(x)
    expected, final = other(x)
    assert torch.equal(outputs, expected)
    first = final[0] if cls is LSTM else final
    own = state[0] if cls is LSTM else state
    assert torch.equal(own, torch.cat(list(first), dim=1))
    assert torch.equal(layer.hidden(state), first[-1])
    cut, state = layer(x[:, :2])
    rest, _ = layer(x[:, 2:], state)
    torch.testing.assert_close(torch.cat([cut, rest], dim=1), expected)


def test_forget_bias():
    n = 5
    for layer in (0, 1):
        rnn = LSTM(3, n, num_layers=2, forget_bias=2.5).rnn
        total = getattr(rnn, f"bias_ih_l{layer}") + getattr(rnn, f"bias_hh_l{layer}")
        assert torch.equal(total[n : 2 * n], torch.full((n,), 2.5))
        assert total[:n].abs().max() < 2 / n**0.5
    torch.manual_seed(0)
    own = LSTM(3, n, forget_bias=None).state_dict()
    torch.manual_seed(0)
    for key, value in torch.nn.LSTM(3, n).state_dict().items():
        assert torch.equal(own[f"rnn.{key}"], value)
    with pytest.raises(ConfigurationError):
        LSTM(3, n, forget_bias=float("nan"))


@pytest.mark.parametrize("cls", [LSTM, GRU])
def test_cells_of_a_stack_chain_to_the_stack(cls):
    layer = cls(3, 5, num_layers=2).double()
    cells = layer.driven().layers
    assert all(isinstance(cell, GatedCell) for cell in cells)
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    width = 10 if cls is LSTM else 5
    states = [np.zeros((2, width)), np.zeros((2, width))]
    for t in range(4):
        below = x[:, t].numpy()
        for k, cell in enumerate(cells):
            states[k] = cell.advance(states[k], below)
            below = states[k][:, :5]
    np.testing.assert_allclose(layer(x)[0][:, -1].detach().numpy(), below, rtol=1e-12, atol=1e-13)
    systems = layer.driven()
    got = systems.advance(np.concatenate(states, axis=1), x[:, 0].numpy())
    width = cells[0].states
    one = cells[0].advance(states[0], x[:, 0].numpy())
    np.testing.assert_allclose(got[:, :width], one, atol=1e-14)
    np.testing.assert_allclose(got[:, width:], cells[1].advance(states[1], one[:, :5]), atol=1e-14)


def test_the_name_of_a_layer_is_not_taken_over_in_silence():
    from stability.models import LAYERS, ElmanRNN, register_layer

    class Mine(ElmanRNN):
        pass

    with pytest.raises(ConfigurationError):
        register_layer("elman")(Mine)
    assert LAYERS["elman"] is ElmanRNN
    assert Mine.layer_name == "elman", "the name of its base, not its own"
    assert register_layer("elman")(ElmanRNN) is ElmanRNN
    try:
        register_layer("elman", replace=True)(Mine)
        assert LAYERS["elman"] is Mine
    finally:
        LAYERS["elman"] = ElmanRNN
