"""A model's name, its path and its state dict in a call of Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from stability import LureSystem, certify, verify
from stability.errors import ConfigurationError, FileFormatError, UnsupportedError
from stability.models import named_subject


@pytest.fixture
def gru():
    torch.manual_seed(0)
    module = torch.nn.GRU(2, 3)
    with torch.no_grad():
        module.weight_hh_l0.mul_(0.1)
    return module


@pytest.mark.parametrize("form", [str, Path])
def test_a_path_is_the_model_in_it(form, tmp_path, gru):
    """The answer is that about the module, and the file is compared with by its name."""
    path = tmp_path / "gru.pt"
    torch.save(gru.state_dict(), path)
    certificate = certify(form(path), input_box=(-1, 1))
    of_module = certify(gru, input_box=(-1, 1))
    assert (certificate.statement, certificate.rate) == (of_module.statement, of_module.rate)
    saved = tmp_path / "certificate.json"
    certificate.save(saved)
    assert verify(saved).valid
    assert named_subject(form(path)).states == 3


def test_a_state_dict_is_the_module(gru):
    """The kind of the weights is read from their names and shapes."""
    read, of_module = certify(gru.state_dict(), input_box=(-1, 1)), certify(gru, input_box=(-1, 1))
    assert (read.statement, read.rate) == (of_module.statement, of_module.rate)


def test_what_weights_do_not_tell_is_asked_for():
    """An RNN needs tanh or ReLU; a mapping without weights needs everything."""
    with pytest.raises(ConfigurationError):
        certify(torch.nn.RNN(2, 3).state_dict())
    with pytest.raises(FileFormatError):
        certify({"a": 1})


def test_a_missing_path_says_so(tmp_path):
    """In the words of the command line."""
    with pytest.raises(FileFormatError):
        certify(tmp_path / "absent.npz")


@pytest.mark.parametrize("value", [np.eye(2), [[0.5]], None, b"x"])
def test_what_is_no_model_is_refused_with_what_to_do(value):
    """Arrays get the constructors that take them."""
    with pytest.raises(UnsupportedError):
        certify(value)
    assert LureSystem.linear(np.eye(2)).states == 2


def test_a_part_is_named_with_its_article():
    """The sentence names the part and its kind."""
    holder = torch.nn.Module()
    holder.rnn, holder.head = torch.nn.LSTM(2, 3), torch.nn.Linear(3, 2)
    assert "Part `rnn` of Module, an LSTM cell (stored weights" in certify(holder, rate="any").statement
    holder.rnn = torch.nn.GRU(2, 3)
    assert "Part `rnn` of Module, a GRU cell (stored weights" in certify(holder, rate="any").statement
