"""Lipschitz and contracting networks held to a gain, and networks trained until they are certified."""

from __future__ import annotations

import json

import pytest
import torch

from stability import certify
from stability.analysis import make_task, train
from stability.analysis.training.gains import proved_gain, pull_to_contraction, scale_to_gain
from stability.errors import ConfigurationError, UnsupportedError
from stability.models import ContractingRNN, LipschitzRNN, NeuralODERNN, SequenceModel, save
from stability.reports.cli import run
from stability.verification import verify_claim

SMALL = [part for o in ("limit=60", "test_limit=20", "size=14") for part in ("--task-set", o)]


TARGET = 0.2


@pytest.fixture(scope="module")
def digits():
    return make_task("digits", limit=60, test_limit=20, size=14)


@pytest.mark.slow
@pytest.mark.parametrize("layer", [LipschitzRNN, ContractingRNN])
def test_every_epoch_ends_within_the_gain_with_a_proof(layer, digits):
    torch.manual_seed(0)
    options = {"gamma": (1.0, 0.001), "dt": 0.2} if layer is LipschitzRNN else {}
    model = SequenceModel(layer(14, 4, **options), 10)
    assert proved_gain(model, TARGET).value > TARGET
    seen = []

    def told(news):
        if news.finished is not None:
            seen.append(proved_gain(model, TARGET))

    train(model, digits, epochs=1, lr=0.05, batch_size=15, gain_target=TARGET, progress=told)
    assert len(seen) == 1
    assert all(found.value <= TARGET and verify_claim(found.subject, found.claim).valid for found in seen)
    x = digits.test[0]
    u = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    assert ((model.layer(x + u)[1] - model.layer(x)[1]).norm(dim=1) <= TARGET * u.flatten(1).norm(dim=1)).all()


@pytest.mark.parametrize("integrator", ["euler", "midpoint"])
def test_a_layer_is_pulled_no_further_than_it_must(integrator):
    torch.manual_seed(0)
    layer = LipschitzRNN(3, 6, gamma=(0.5, 0.01), dt=0.1, init_std=0.5, integrator=integrator).double()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    assert layer.contraction_gap() < 0
    share = pull_to_contraction(layer)
    assert 0 < share < 1
    assert layer.contraction_gap() > 0
    after = {name: value.clone() for name, value in layer.state_dict().items()}
    torch.testing.assert_close(after["M_W"], (1 - share) * before["M_W"])
    assert torch.equal(after["weight_ih"], before["weight_ih"])
    with torch.no_grad():  # half of the way back is not enough
        for name in ("M_A", "M_W"):
            getattr(layer, name).copy_(0.5 * (before[name] + after[name]))
    assert layer.contraction_gap() < 0
    layer.load_state_dict(after)
    assert pull_to_contraction(layer) == 0.0


def test_what_no_weights_make_contracting_is_refused(digits):
    for layer in (NeuralODERNN(14, 4), LipschitzRNN(14, 4, beta=1.0)):
        with pytest.raises(UnsupportedError):
            train(SequenceModel(layer, 10), digits, epochs=1, gain_target=1.0)
    loose = LipschitzRNN(14, 4, gamma=(1.0, 8.0), dt=0.1, init_std=5.0)
    with pytest.raises(UnsupportedError):
        scale_to_gain(loose, 1.0)


def test_training_until_certified_stops_there_and_says_so_where_it_does_not_come(digits):
    def made() -> SequenceModel:
        torch.manual_seed(0)
        return SequenceModel(LipschitzRNN(14, 6, gamma=(1.0, 0.001), dt=0.2, init_std=0.8), 10)

    model = made()
    assert str(certify(model, rate="any", refute=False).verdict) != "certified"
    asked = {"lr": 0.05, "batch_size": 10, "until_certified": True}
    result = train(model, digits, epochs=30, margin_penalty=5.0, margin_target=0.1, **asked)
    assert result.stopped == "certified"
    assert 0 < result.epochs < 30
    assert str(certify(model, rate="any").verdict) == "certified"
    short = train(made(), digits, epochs=1, **asked)
    assert short.stopped == "epochs"
    assert "not certified" in short.detail
    with pytest.raises(ConfigurationError):
        train(made(), digits, epochs=1, patience=1, **asked)


@pytest.mark.slow
def test_a_repair_runs_until_certified_and_tells_the_cost(tmp_path, capsys):
    torch.manual_seed(0)
    model = SequenceModel(LipschitzRNN(14, 6, gamma=(1.0, 0.001), dt=0.2, init_std=1.0), 10)
    file = save(model, tmp_path / "wild.safetensors")
    asked = ["train", "--from", str(file), *SMALL, "--epochs", "40", "--lr", "0.05", "--batch-size", "10"]
    asked += ["--margin-penalty", "5", "--set", "margin_target=0.1", "--set", "until_certified=true", "--json"]
    assert run([*asked, "--out", str(tmp_path / "run")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["stopped"] == "certified"
    assert told["repaired"]["before"]["verdict"] == "refuted"
    assert told["repaired"]["after"]["verdict"] == "certified"
    assert all(0 <= told["repaired"][moment]["test_metric"] <= 1 for moment in ("before", "after"))
