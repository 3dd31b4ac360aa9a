"""A module as the step of a layer, and what a step is refused for before it runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stability import LureSystem, certify
from stability.analysis import norm_drift
from stability.errors import ConfigurationError
from stability.models import ElmanRNN, HouseholderRNN, StepLayer


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


@pytest.mark.parametrize("held", [False, True])
def test_a_module_is_a_step_and_what_is_held(held):
    cell = Called()
    layer = StepLayer(cell, 2, 3, **({"held": cell} if held else {}))
    assert str(certify(layer).verdict) == "certified"
    assert certify(layer).rate == certify(StepLayer(lambda own, x, h: own.step(x, h), 2, 3, held=Plain())).rate
    assert list(layer.matrices()) == ["W.weight"]
    assert len(list(layer.parameters())) == 3
    assert layer.name == "Called"
    assert norm_drift(layer, torch.ones(2, 4, 2)).mean.shape == (1, 4)


@pytest.mark.parametrize(
    ("step", "held"), [(Plain(), None), (lambda x, h: h, Plain()), (lambda own, x, h: h, None), ("no function", None)]
)
def test_a_step_that_cannot_be_called_is_refused_before_it_runs(step, held):
    with pytest.raises(ConfigurationError):
        StepLayer(step, 2, 3, held=held)


def test_slopes_other_than_an_interval_are_refused():
    plant = ([[-1.0]], [[1.0]], [[0.5]], [[0.0]])
    with pytest.raises(ConfigurationError):
        LureSystem.from_state_space(plant, slope=3.0)
    assert LureSystem.from_state_space(plant, slope=(0, 3)).slope == (0.0, 3.0)
    for layer in (ElmanRNN, HouseholderRNN):
        with pytest.raises(ConfigurationError):
            layer(2, 4, activation=("tanh", 3.0))
