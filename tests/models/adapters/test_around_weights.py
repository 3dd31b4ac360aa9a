"""Weights that run and are no parameters, and networks altered around the layer that is read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from stability import certify
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, UnsupportedError
from stability.models import ElmanRNN, SequenceModel, save
from stability.models.sources import load_subject


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_weights_that_run_and_are_no_parameters_are_refused(kind):
    """``nn.RNN`` runs ``_flat_weights``; the parameters beside them may say anything."""
    module = kind(2, 3)
    module.weight_hh_l0 = nn.Parameter(0.5 * module.weight_hh_l0)  # the list follows
    module._parameters["bias_hh_l0"] = nn.Parameter(2 * module.bias_hh_l0)  # the list follows at the next pass
    assert as_subject(module) is not None
    x, h = torch.randn(4, 1, 2), None
    before = module(x, h)[0]
    module._flat_weights[1] = nn.Parameter(9 * module.weight_hh_l0)
    assert not torch.equal(before, module(x, h)[0])
    with pytest.raises(UnsupportedError):
        as_subject(module)
    parametrize.register_parametrization(untouched := kind(2, 3), "weight_hh_l0", Tenfold())
    assert as_subject(untouched) is not None


class Tenfold(nn.Module):
    def forward(self, W):
        return 10 * W


def test_a_network_altered_around_its_layer_is_certified_as_a_part():
    def feeding_back(x):
        return model.head(model.layer(x)[0])

    for alter in (
        lambda m: setattr(m, "forward", feeding_back),
        lambda m: m.register_forward_hook(lambda *_: None),
        lambda m: m.register_forward_pre_hook(lambda *_: None),
    ):
        model = SequenceModel(ElmanRNN(2, 3), 4)
        assert as_subject(model).part == ""
        alter(model)
        assert as_subject(model).part == "layer of SequenceModel"


def test_a_part_of_what_has_none_is_refused(tmp_path):
    """The text behind # names a part; if nothing reads it, the claim would be about something else."""
    save(SequenceModel(ElmanRNN(2, 3), 4), tmp_path / "m.safetensors")
    np.savez(tmp_path / "s.npz", A=-np.eye(2), W=np.eye(2))
    for name in ("m.safetensors", "s.npz"):
        assert load_subject(tmp_path / name).subject is not None
        with pytest.raises(ConfigurationError):
            load_subject(f"{tmp_path / name}#head")


@pytest.mark.parametrize("layers", [1, 2])
def test_an_input_box_as_wide_as_floats_go(layers):
    torch.manual_seed(0)
    subject = as_subject(nn.GRU(2, 3, num_layers=layers)).with_inputs(-1.7e308, 1.7e308)
    certificate = certify(subject, time_limit=5)
    assert certificate.verdict == "inconclusive"
