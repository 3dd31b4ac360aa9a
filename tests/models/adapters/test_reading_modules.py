"""Names of subjects, names in the readers' errors, and torch's own modules inside a layer or a class."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.conversion.subjects import as_subject
from stability.errors import NonFiniteError, UnsupportedError
from stability.models import GRU, LSTM, ElmanRNN, recurrent
from stability.models.adapters.modules import _ADAPTERS, register_adapter
from stability.models.adapters.torch_modules import as_array, from_rows
from stability.models.lure import rnn_subject

from .altered import Residual


def test_defaults_of_what_users_call_from_their_adapters():
    subject = rnn_subject(0.5 * np.eye(2), [[1.0], [0.0]])
    assert (subject.name, subject.activation, subject.b.tolist()) == ("RNN", "tanh", [0.0, 0.0])
    assert as_array([[1, 2]]).dtype == np.float64
    np.testing.assert_array_equal(from_rows([[1, 2], [3, 4]]), [[1.0, 3.0], [2.0, 4.0]])
    for read in (as_array, from_rows):
        with pytest.raises(NonFiniteError):
            read([[np.nan]])
        with pytest.raises(NonFiniteError):
            read([[np.inf]], "W")


class Holding(ElmanRNN):
    """A layer that holds a module of torch, and says itself which system it is."""

    def __init__(self, part):
        super().__init__(2, 3)
        self.part = part

    def driven(self, continuous=False):
        return super().driven(continuous)


def test_an_altered_module_of_torch_inside_a_layer_is_refused():
    assert as_subject(Holding(nn.RNNCell(2, 3))).inputs == 2
    with pytest.raises(UnsupportedError):
        as_subject(Holding(Residual(2, 3)))


def test_a_quantised_module_inside_a_layer_is_no_altered_one():
    kind = type("LSTM", (nn.Module,), {"__module__": "torch.ao.nn.quantized.dynamic.modules.rnn"})
    assert as_subject(Holding(kind())).inputs == 2


class Steps(nn.Module):
    """Steps through a method of its own; ``forward`` is left to its children."""

    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(0.5 * torch.eye(2))

    def step(self, x, h):
        return torch.tanh(h @ self.W + x)


class Sequences(Steps):
    def forward(self, x, h):
        for row in x:
            h = self.step(row, h)
        return h


class OtherSteps(Steps):
    def step(self, x, h):
        return 2 * super().step(x, h)


@pytest.fixture
def taught():
    register_adapter(Steps)(lambda m: rnn_subject(from_rows(m.W), np.eye(2)))
    yield
    del _ADAPTERS[Steps]


def test_what_a_class_leaves_to_its_children_they_do_not_override(taught):
    assert as_subject(Sequences()).inputs == 2
    with pytest.raises(UnsupportedError):
        as_subject(OtherSteps())


def test_a_rate_between_layers_that_are_not_there_drops_nothing(taught):
    module = Steps()
    module.dropout = 0.5
    assert as_subject(module).inputs == 2
    module.num_layers = 2
    with pytest.raises(UnsupportedError):
        as_subject(module)
    for harmless in ({"dropout": 0.0}, {"dropout": nn.Identity()}, {"num_layers": 1}, {"num_layers": "two"}):
        module = Steps()
        for name, value in ({"dropout": 0.5, "num_layers": 2} | harmless).items():
            setattr(module, name, value)
        assert as_subject(module).inputs == 2
    layered = Steps()
    layered.num_layers = 3
    assert as_subject(layered).inputs == 2


def test_layers_without_dropout_of_several_levels_are_taken_in_training_mode():
    for layer in (LSTM(2, 3, num_layers=2), GRU(2, 3, num_layers=2)):
        assert layer.training
        assert isinstance(layer, recurrent.RecurrentLayer)
        assert as_subject(layer).inputs == 2
