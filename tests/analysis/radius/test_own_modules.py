"""Radii by a gain of modules of one's own: the recurrent part and the head are found, and give what a layer gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stability.analysis import certified_radius, deepfool
from stability.analysis.radius.certified import logit_gain
from stability.errors import ConfigurationError, UnsupportedError
from stability.models import ElmanRNN, SequenceModel


class Own(nn.Module):
    def __init__(self, cell: type = nn.RNN, mean: bool = False, scale: float = 0.5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head, self.mean = cell(2, 5, batch_first=True), nn.Linear(5, 3), mean
        with torch.no_grad():
            self.rnn.weight_hh_l0.mul_(scale)

    def forward(self, x: Tensor) -> Tensor:
        states = self.rnn(x)[0]
        return self.head(states.mean(1) if self.mean else states[:, -1])


def as_layer(own: Own) -> SequenceModel:
    made = SequenceModel(ElmanRNN(2, 5), 3, "mean" if own.mean else "last")
    with torch.no_grad():
        made.layer.weight_ih.copy_(own.rnn.weight_ih_l0)
        made.layer.weight_hh.copy_(own.rnn.weight_hh_l0)
        made.layer.bias.copy_(own.rnn.bias_ih_l0 + own.rnn.bias_hh_l0)
        made.head.load_state_dict(own.head.state_dict())
    return made


def inputs() -> Tensor:
    return torch.randn(12, 8, 2, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("mean", [False, True])
def test_a_module_of_ones_own_has_the_radii_of_the_layer_with_its_weights(mean: bool) -> None:
    own, x = Own(mean=mean), inputs()
    y = own(x).argmax(1)
    found, same = certified_radius(own, x, y), certified_radius(as_layer(own), x, y)
    np.testing.assert_allclose(found.radius, same.radius, rtol=1e-5)
    gain = logit_gain(own, 8)
    sharper = certified_radius(own, x, y, gain=gain)
    same = certified_radius(as_layer(own), x, y, gain=logit_gain(as_layer(own), 8))
    np.testing.assert_allclose(sharper.radius, same.radius, rtol=1e-3)
    attack = deepfool(own, x, y, norm="l2", bounds=None)
    size = (attack.adversarial - x).flatten(1).norm(dim=1).numpy()
    assert (np.maximum(found.radius, sharper.radius) < size).all()
    assert np.median(found.radius / size) > 0.15  # and no empty promise


def test_what_has_no_gain_is_refused_with_its_own_name() -> None:
    x, y = inputs(), torch.zeros(12, dtype=torch.long)
    with pytest.raises(UnsupportedError):
        certified_radius(Own(nn.GRU), x, y)
    with pytest.raises(UnsupportedError):
        certified_radius(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), x, y)
    tight = nn.Sequential(Own(), nn.Tanh())
    with pytest.raises(UnsupportedError):
        certified_radius(tight, x, y)
    with pytest.raises(ConfigurationError):
        certified_radius(Own(scale=0.6), x, y, gain=logit_gain(Own(), 8))
