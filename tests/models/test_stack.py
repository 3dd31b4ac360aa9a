"""Layers on top of each other against the same layers run by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability import Verdict, certify, verify
from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.models import (
    GRU,
    LRU,
    LSTM,
    ContractingRNN,
    ElmanRNN,
    LipschitzRNN,
    RotRNN,
    SequenceModel,
    Stack,
    build,
    describe,
)
from stability.models.stack import stack_configs


def make():
    return Stack([LipschitzRNN(3, 6, dt=0.2), LSTM(6, 5), GRU(5, 4), ElmanRNN(4, 7)]).double()


def inputs():
    return torch.randn(2, 5, 3, dtype=torch.float64)


def test_layers_in_sequence():
    stack, x = make(), inputs()
    outputs, states = stack(x)
    signal = x
    for layer, state in zip(stack.layers, states):
        signal, own = layer(signal)
        torch.testing.assert_close(own, state)
    assert torch.equal(outputs, signal)
    assert torch.equal(stack.hidden(states), signal[:, -1])
    assert (stack.input_size, stack.hidden_size, stack.output_size) == (3, 7, 7)


def test_the_stack_of_systems_is_the_stack():
    stack, x = make(), inputs()
    systems = stack.driven()
    _, states = stack(x)

    def flat(states):
        parts = [torch.cat(s, dim=1) if isinstance(s, tuple) else s for s in states]
        return torch.cat(parts, dim=1).detach().numpy()

    _, after = stack.step(x[:, 0], states)
    np.testing.assert_allclose(systems.advance(flat(states), x[:, 0].numpy()), flat(after), atol=1e-13)
    assert systems.states == 6 + 10 + 4 + 7
    assert "A_0" in stack.matrices()
    assert "W_3" in stack.matrices()


@pytest.mark.parametrize(("options", "outputs"), [({}, 8), ({"output_size": 5}, 5)])
@pytest.mark.parametrize("layer", [RotRNN, LRU, ElmanRNN])
def test_layers_of_one_kind_fit_on_each_other(layer, options, outputs):
    if layer is ElmanRNN:
        options, outputs = {}, 8
    stack = Stack([layer(**config) for config in stack_configs(layer, 3, 8, 3, **options)])
    assert (stack.input_size, stack.output_size) == (3, outputs)
    assert stack(inputs().float())[0].shape == (2, 5, outputs)


def test_contracting_layers_give_a_stack_of_systems():
    systems = Stack([ContractingRNN(3, 4, rate=0.9), ContractingRNN(4, 5, rate=0.8)]).driven()
    assert systems.is_discrete
    with pytest.raises(UnsupportedError):
        make().lure()
    continuous = Stack([LipschitzRNN(3, 4), LipschitzRNN(4, 5)]).driven(continuous=True)
    assert not continuous.is_discrete


def test_bad_stacks():
    with pytest.raises(DimensionError):
        Stack([ElmanRNN(2, 3), ElmanRNN(4, 3)])
    for layers in ([], None, ElmanRNN(2, 3), [torch.nn.Linear(2, 3)], [Stack([ElmanRNN(2, 3)])]):
        with pytest.raises(ConfigurationError):
            Stack(layers)
    for layers in (None, 3, [], [3], [{"layer": "elman"}]):
        with pytest.raises(ConfigurationError):
            build({"layer": "stack", "config": {"layers": layers}})
    inner = describe(SequenceModel(ElmanRNN(2, 3), 4))
    with pytest.raises(ConfigurationError):
        build({"layer": "stack", "config": {"layers": [inner]}})


def test_contracting_layers_are_certified_from_the_proofs_they_carry():
    torch.manual_seed(0)
    stack = Stack([ContractingRNN(2, 6, rate=0.9), ContractingRNN(6, 5, rate=0.8)])
    own = stack.witness()
    assert own is not None
    certificate = certify(stack, rate="any", refute=False)
    assert certificate.verdict is Verdict.CERTIFIED
    assert [finding.detail for finding in certificate.findings] == ["certified (construction)"] * 2
    for packed, carried in zip(certificate.proof.data["layers"], own["layers"]):
        assert packed["rate"] == carried["rate"]
        np.testing.assert_array_equal(packed["data"]["L"], carried["L"])
    assert certificate.rate <= 0.901
    assert verify(certificate).valid
    model = SequenceModel(stack, 3)
    assert certify(model, rate="any", refute=False).findings[0].detail == "certified (construction)"


def test_a_layer_without_a_proof_of_its_own_is_proved_by_the_ladder():
    torch.manual_seed(0)
    plain = ElmanRNN(5, 4)
    with torch.no_grad():
        plain.weight_hh.mul_(0.5 / torch.linalg.matrix_norm(plain.weight_hh, 2))
    stack = Stack([ContractingRNN(2, 5, rate=0.9), plain])
    assert stack.witness()["layers"][1] is None
    certificate = certify(stack, rate="any")
    assert certificate.verdict is Verdict.CERTIFIED
    assert certificate.findings[0].detail == "certified (construction)"
    assert "construction" not in certificate.findings[1].detail
    assert verify(certificate).valid
    assert Stack([plain]).witness() is None
