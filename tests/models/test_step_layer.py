"""A module as the step of a layer, and what a step is refused for before it runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stability import LureSystem, certify
from stability.analysis import norm_drift
from stability.errors import ConfigurationError
from stability.models import ElmanRNN, HouseholderRNN, StepLayer, register_cell
from stability.models.cells import CELLS


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.W, self.U = nn.Linear(3, 3, bias=False), nn.Linear(2, 3)
        with torch.no_grad():
            self.W.weight.mul_(0.3)

    def step(self, x, h):
        return torch.tanh(self.W(h) + self.U(x))


class Called(Plain):
    def forward(self, x, h):
        return self.step(x, h)


class Registered(Plain):
    pass


@pytest.fixture(autouse=True)
def registered():
    register_cell(Registered, input_size=lambda m: 2, hidden_size=lambda m: 3)
    yield
    del CELLS[Registered]


@pytest.mark.parametrize("kind", [Called, Registered])
@pytest.mark.parametrize("held", [False, True])
def test_a_module_is_a_step_and_what_is_held(kind, held):
    cell = kind()
    layer = StepLayer(cell, 2, 3, **({"held": cell} if held else {}))
    assert str(certify(layer).verdict) == "certified"
    assert certify(layer).rate == certify(StepLayer(lambda own, x, h: own.step(x, h), 2, 3, held=Plain())).rate
    assert list(layer.matrices()) == ["W.weight"]
    assert len(list(layer.parameters())) == 3
    assert layer.name == kind.__name__
    assert norm_drift(layer, torch.ones(2, 4, 2)).mean.shape == (1, 4)


def test_a_module_that_cannot_be_called_is_refused_with_what_to_do():
    with pytest.raises(ConfigurationError, match=r"Plain, which has no forward\(x, h\).*register_cell\(Plain\)"):
        StepLayer(Plain(), 2, 3)


@pytest.mark.parametrize(
    ("step", "held", "words"),
    [
        (lambda x, h: h, Plain(), r"called as step\(held, x, h\), since something is held, and takes \(x, h\)"),
        (lambda own, x, h: h, None, r"called as step\(x, h\), and takes \(own, x, h\)"),
    ],
)
def test_a_function_of_other_arguments_is_refused_before_it_runs(step, held, words):
    with pytest.raises(ConfigurationError, match=words):
        StepLayer(step, 2, 3, held=held)


def test_other_slopes_are_refused_with_what_to_do():
    plant = ([[-1.0]], [[1.0]], [[0.5]], [[0.0]])
    with pytest.raises(ConfigurationError, match=r"for slopes from 0 to 3 say slope=\(0, 3\)"):
        LureSystem.from_state_space(plant, slope=3.0)
    assert LureSystem.from_state_space(plant, slope=(0, 3)).slope == (0.0, 3.0)
    for layer in (ElmanRNN, HouseholderRNN):
        with pytest.raises(ConfigurationError, match=r"with its gain in the weights that read it"):
            layer(2, 4, activation=("tanh", 3.0))
