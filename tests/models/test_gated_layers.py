"""LSTM and GRU behind the layer contract: each gate is called by its own name."""

from __future__ import annotations

import pytest
import torch

from stability.models import GRU, LSTM


def unforced(layer):
    """No inputs, no biases: only the recurrent matrices act."""
    with torch.no_grad():
        for name, value in layer.rnn.named_parameters():
            if "weight_hh" not in name:
                value.zero_()
    return layer


def test_the_gates_of_a_gru_by_their_equations():
    torch.manual_seed(0)
    layer = unforced(GRU(2, 4).double())
    W = layer.matrices()
    assert list(W) == ["W_r", "W_z", "W_n"]
    h = torch.randn(3, 4, dtype=torch.float64)
    r, z = torch.sigmoid(h @ W["W_r"].T), torch.sigmoid(h @ W["W_z"].T)
    n = torch.tanh(r * (h @ W["W_n"].T))
    _, after = layer.step(torch.zeros(3, 2, dtype=torch.float64), h)
    torch.testing.assert_close(after, (1 - z) * n + z * h)


def test_the_gates_of_an_lstm_by_their_equations():
    torch.manual_seed(0)
    layer = unforced(LSTM(2, 4).double())
    W = layer.matrices()
    assert list(W) == ["W_i", "W_f", "W_g", "W_o"]
    h, c = torch.randn(2, 3, 4, dtype=torch.float64)
    i, f, o = (torch.sigmoid(h @ W[f"W_{gate}"].T) for gate in "ifo")
    after = f * c + i * torch.tanh(h @ W["W_g"].T)
    _, (out, cell) = layer.step(torch.zeros(3, 2, dtype=torch.float64), (h, c))
    torch.testing.assert_close(cell, after)
    torch.testing.assert_close(out, o * torch.tanh(after))


@pytest.mark.parametrize(("make", "gates"), [(LSTM, "ifgo"), (GRU, "rzn")])
def test_gates_of_several_layers(make, gates):
    layer = make(3, 5, num_layers=2)
    W = layer.matrices()
    assert list(W) == [f"W_{gate}_l{k}" for k in range(2) for gate in gates]
    for k in range(2):
        stacked = torch.cat([W[f"W_{gate}_l{k}"] for gate in gates])
        assert torch.equal(stacked, getattr(layer.rnn, f"weight_hh_l{k}"))
        cell = layer.driven().layers[k]
        assert (cell.w_hh == stacked.detach().double().numpy()).all()
        assert (cell.w_ih == getattr(layer.rnn, f"weight_ih_l{k}").detach().double().numpy()).all()
        assert (cell.b_ih == getattr(layer.rnn, f"bias_ih_l{k}").detach().double().numpy()).all()
        assert (cell.b_hh == getattr(layer.rnn, f"bias_hh_l{k}").detach().double().numpy()).all()
