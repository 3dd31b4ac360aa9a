"""Runs in a given arithmetic: they stay within the proved bound, and formats are compared by their bounds."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch

from stability import ExecutionModel, certify
from stability.analysis import run_in, state_formats
from stability.analysis.dynamics.decisions import decision_margin, logit_change, run_claim
from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.models import GRU, LRU, LSTM, AntisymmetricRNN, BoundedGainRNN, ContractingRNN, RotRNN, SequenceModel
from stability.search.as_it_runs import certify_run

STATES = ("float64", "float32", "bfloat16", "int8", "int8:4", "int8 stochastic", "int6 feedback")


def execution(name: str, weight_error: float) -> ExecutionModel:
    state, _, rounding = name.partition(" ")
    base = "float64" if state == "float64" else "float32"
    return ExecutionModel(base, state, rounding or "nearest", weight_error=weight_error)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return SequenceModel(ContractingRNN(2, 12, rate=0.8), 3)


@pytest.mark.parametrize("name", STATES)
def test_a_run_stays_within_its_proved_bound(name, model):
    asked = execution(name, model.weight_error("float32"))
    certificate = certify(model, arithmetic=asked, input_box=(-1.0, 1.0))
    (claim,) = (claim for claim in certificate.claims if claim.name == "as_it_runs")
    x = torch.rand(4, 200, 2, generator=torch.Generator().manual_seed(1)) * 2.0 - 1.0
    x[0] = x[0].sign()
    run = run_in(model, x, asked, seed=3, certificate=certificate)
    assert 0.0 < run.largest <= claim.value or name == "float64"
    assert run.largest < run.proved < run.largest + 1e-10
    assert torch.equal(run.outputs, run_in(model, x, asked, seed=3).outputs)
    exact = model.double()(x.double())
    model.float()
    assert torch.allclose(run.reference, exact)


def test_errors_of_computed_weights_cover_those_of_the_inputs():
    torch.manual_seed(1)
    for layer in (BoundedGainRNN(20, 32), RotRNN(20, 32), LRU(20, 32)):
        network, V = layer.driven(), layer.prepare()[1]
        exact = network.V if hasattr(network, "V") else network.F
        error = np.abs(V.detach().double().numpy() - exact).max() / np.abs(exact).max()
        assert 0.0 < 2.0 * error <= layer.weight_error("float32") < 1e-4
    layer = AntisymmetricRNN(2, 3)
    with torch.no_grad():  # a cast rounds the two parameters whose difference is a weight
        layer.M_W.copy_(10.0 + torch.linspace(0.0, 5.1, 9).reshape(3, 3))
    exact, cast = (deepcopy(layer).to(dtype).matrices()["W"].double() for dtype in (torch.float64, torch.bfloat16))
    error = float(((exact - cast).abs().max() / exact.abs().max()).detach())
    assert 2.0**-7 < error <= layer.weight_error("bfloat16")
    with torch.no_grad():
        layer.M_W.copy_(10.0 + torch.linspace(0.0, 0.2, 9).reshape(3, 3))
    with pytest.raises(UnsupportedError):
        certify(layer, arithmetic="bfloat16", input_box=(-1.0, 1.0))


def test_more_bits_have_smaller_bounds_and_errors(model):
    x, y = torch.rand(6, 40, 2), torch.zeros(6, dtype=torch.long)
    table = state_formats(model, x, y, tol=1e-3, formats=["int16", "int12", "int8"])
    assert table["bits"].is_monotonic_decreasing
    assert table["bound"].is_monotonic_increasing
    assert table["measured"].is_monotonic_increasing
    assert (table["measured"] <= table["bound"]).all()
    assert ((table["bound"] < table["margin"]) & (table["margin"] <= 2.0 * table["bound"])).all()
    assert (table["enough"] == (table["bound"] <= 1e-3)).all()


@pytest.mark.parametrize("layer", [lambda: ContractingRNN(2, 6, rate=0.8), lambda: LRU(2, 6, output_size=5, r_max=0.8)])
def test_the_margin_of_decisions_is_what_the_proved_distance_of_states_does_to_logits(layer):
    torch.manual_seed(0)
    model = SequenceModel(layer(), 3).double()
    certificate = certify(model, arithmetic="int8", input_box=(-1.0, 1.0))
    change, distance = logit_change(model, certificate, run_claim(certificate)), run_claim(certificate).value
    prepared, state = model.layer.begin(torch.ones(1, 1, 2).double())
    drive = model.layer.drive(torch.ones(1, 1, 2).double(), prepared)[:, 0]
    slopes = torch.autograd.functional.jacobian(lambda h: model.head(model.layer.output(h, drive, prepared)), state)
    slopes = slopes.reshape(3, -1)
    one, two = (float(x.norm(dim=-1).max()) * distance for x in (slopes, slopes[:, None] - slopes))
    assert one <= change.logit < 1.001 * one
    assert two <= change.difference < 1.001 * two


def test_no_logit_of_a_run_in_a_narrow_format_leaves_its_bound():
    torch.manual_seed(0)
    model = SequenceModel(ContractingRNN(3, 16, rate=0.5), 4)
    torch.nn.init.normal_(model.head.bias, std=100.0)  # the head rounds its own weights and sums
    formats = [ExecutionModel("bfloat16"), ExecutionModel("float32", "int8", weights="float16")]
    table = state_formats(model, torch.rand(50, 10, 3), torch.zeros(50, dtype=torch.long), tol=0.1, formats=formats)
    assert (table["measured"] <= table["bound"]).all()
    model.head.weight.data *= 1e6
    certificate = certify(model, arithmetic="float16", input_box=(-1.0, 1.0))
    assert decision_margin(SequenceModel(model.layer, 3), certificate) is not None
    assert decision_margin(model, certificate) is None  # its logits may exceed the largest number


def test_a_state_of_several_tensors_is_rounded_as_one():
    torch.manual_seed(0)
    x = torch.rand(2, 10, 3)
    coarse, fine = (run_in(LSTM(3, 6), x, f"int{bits}").relative for bits in (4, 8))
    assert 0.0 < fine < coarse


def test_a_certificate_bounds_a_run_of_its_network_with_inputs_in_its_box_only():
    torch.manual_seed(0)
    layer, x = GRU(2, 3), torch.rand(2, 5, 2)
    for parameter in layer.parameters():
        parameter.data *= 0.3
    certificate, ends = certify(layer, input_box=(-1.0, 1.0)), np.ones(2)
    proved = [certify_run(certificate, ExecutionModel(), (-most * ends, most * ends)) for most in (1.0, 1.1)]
    assert [isinstance(claim, str) for claim in proved] == [False, True]
    assert run_in(layer, 9.0 * x, "int8", certificate=certificate).proved < 1.0
    parameter.data += 0.1
    with pytest.raises(ConfigurationError):
        run_in(layer, x, "int8", certificate=certificate)


def test_what_cannot_run_or_be_compared_is_refused(model):
    for wrong in (torch.rand(2, 0, 2), torch.rand(5, 2), torch.rand(2, 5, 3)):
        with pytest.raises(DimensionError):
            run_in(model, wrong, "int8")
    x, y = torch.rand(2, 5, 2), torch.zeros(2, dtype=torch.long)
    with pytest.raises(UnsupportedError):
        run_in(model, x, ExecutionModel(factors="tf32"))
    with pytest.raises(ConfigurationError):
        state_formats(SequenceModel(ContractingRNN(2, 4), 3, "all"), x, y, tol=0.1)
    with pytest.raises(ConfigurationError):
        state_formats(model, x, y, tol=0.0)
    with pytest.raises(UnsupportedError):
        state_formats(SequenceModel(LRU(2, 4), 3), x, y, tol=0.1)


def test_two_biases_of_opposite_sign_both_count():
    torch.manual_seed(0)
    rnn = torch.nn.RNN(2, 4, batch_first=True)
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(0.3)
        rnn.bias_ih_l0.fill_(3000.3)
        rnn.bias_hh_l0.fill_(-3000.2)
    certificate = certify(rnn, arithmetic="float32", input_box=(-1.0, 1.0))
    (claim,) = (claim for claim in certificate.claims if claim.name == "as_it_runs")
    x = torch.rand(1, 100, 2) * 2.0 - 1.0
    exact, distance = torch.zeros(4, dtype=torch.float64), 0.0
    weights = [p.detach().double() for p in rnn.parameters()]
    with torch.no_grad():
        outputs = rnn(x)[0][0].double()
    for step, y in zip(x[0].double(), outputs):
        exact = torch.tanh(weights[0] @ step + weights[1] @ exact + (weights[2] + weights[3]))
        distance = max(distance, float((y - exact).norm()))
    assert 1e-5 < distance <= claim.value
