"""Certificates of modules with gated linear layers: bounded states, checked against the module that runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stability import Certificate, certify, verify
from stability.errors import DisagreementError, StabilityError, UnsupportedError
from stability.models import LAYERS, ElmanRNN, Mamba2, MinGRU, SequenceModel, certify_all, save
from stability.models.gated_linear.block import GatedLinearBlock

BLOCKS = [name for name, kind in LAYERS.items() if issubclass(kind, GatedLinearBlock)]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_network_is_certified_and_its_file_verifies(name, tmp_path):
    """The claim is that of the saved network, and random numbers are drawn as if nothing had been certified."""
    torch.manual_seed(0)
    network = SequenceModel(LAYERS[name](3, 8), 2)
    state = torch.get_rng_state()
    certificate = certify(network)
    assert torch.equal(torch.get_rng_state(), state)
    assert (str(certificate.verdict), certificate.claim.name, certificate.rate) == ("certified", "state_bound", None)
    loaded = Certificate.load(certificate.save(tmp_path / "certificate.json"))
    assert verify(loaded).valid
    assert loaded.subject.digest == certificate.subject.digest
    assert certify(save(network, tmp_path / "network.safetensors")).layers[0].digest == loaded.subject.digest


@pytest.mark.parametrize(
    "network",
    [
        SequenceModel([MinGRU(3, 4), Mamba2(4, 4)], 2),
        nn.ModuleDict({"a": MinGRU(3, 4), "b": MinGRU(3, 4)}),
    ],
)
def test_several_layers_are_read_again_from_the_module(network):
    certificate = certify(network)
    assert str(certificate.verdict) == "certified"
    assert verify(certificate, weights=network).valid
    with torch.no_grad():
        next(network.parameters()).mul_(2.0)  # an input map, about which nothing is claimed
        assert verify(certificate, weights=network).valid
        next(part for part in network.modules() if isinstance(part, MinGRU)).norm.weight.mul_(2.0)
    assert not verify(certificate, weights=network).valid


def test_layers_of_other_kinds_leave_the_whole_undecided(tmp_path):
    network = SequenceModel([MinGRU(3, 4), ElmanRNN(4, 4)], 2)
    assert str(certify(network).verdict) == "inconclusive"
    assert str(certify(save(network, tmp_path / "network.safetensors")).verdict) == "inconclusive"
    with pytest.raises(UnsupportedError):
        certify(nn.ModuleDict({"a": MinGRU(3, 4), "b": nn.GRU(3, 4), "c": MinGRU(3, 4)}))


def other_decay(layer):
    layer.mixer.recurrence = lambda gates, state: (torch.full_like(gates[0], 2.0), gates[0])


@pytest.mark.parametrize(
    ("alter", "error"),
    [
        (other_decay, DisagreementError),
        (lambda layer: setattr(layer.norm, "eps", -0.5), DisagreementError),
        (lambda layer: setattr(layer, "norm", nn.Identity()), UnsupportedError),
        (lambda layer: setattr(layer.norm, "forward", lambda x: 9.0 * x), DisagreementError),
        (lambda layer: layer.norm.register_forward_hook(lambda *args: 9.0 * args[-1]), UnsupportedError),
        (lambda layer: setattr(layer.mixer, "advance", lambda u, h: h), DisagreementError),
    ],
)
def test_a_layer_that_computes_something_else_is_refused(alter, error):
    layer = MinGRU(3, 4)
    alter(layer)
    for network in (SequenceModel(layer, 2), SequenceModel([layer], 2)):
        with pytest.raises(error):
            certify(network)
    with pytest.raises(StabilityError):
        certify(SequenceModel([layer, MinGRU(4, 4)], 2))


def test_questions_about_contraction_are_refused():
    layer = MinGRU(3, 4)
    for options in ({"criterion": "multiplier"}, {"rate": 0.9}):
        for network in (layer, SequenceModel([layer, MinGRU(4, 4)], 2)):
            with pytest.raises(UnsupportedError):
                certify(network, **options)
    parts = certify_all(nn.ModuleDict({"gated": layer, "plain": nn.RNN(3, 4)}))
    assert {path: part.claim.name for path, part in parts.items()} == {"gated": "state_bound", "plain": "contraction"}
