"""Networks held to a gain, and repaired ones: the projection is the nearest, its proof verifies, the cost is told."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from stability import Certificate
from stability.analysis import make_task, train
from stability.analysis.training.gains import project_gain, proved_gain
from stability.errors import ConfigurationError, UnsupportedError
from stability.models import GRU, ElmanRNN, SequenceModel, load, save
from stability.reports.cli import run
from stability.verification import verify_claim


def stacked(layer, target):
    return torch.cat([layer.weight_hh, layer.weight_ih / target], 1).detach()


def test_the_projection_is_the_nearest_and_leaves_what_is_inside():
    torch.manual_seed(0)
    layer, target = ElmanRNN(3, 5).double(), 0.5
    before = stacked(layer, target)
    project_gain(layer, target)
    after = stacked(layer, target)
    one = torch.linalg.svdvals(before)
    torch.testing.assert_close(torch.linalg.svdvals(after), one.clamp(max=1 - 1e-5))
    distance = (before - after).norm()
    for _ in range(40):  # no other matrix of such a norm is nearer
        other = after + 0.1 * torch.randn_like(after)
        other /= torch.linalg.matrix_norm(other, 2).clamp(min=1.0)
        assert (before - other).norm() > distance * (1 - 1e-4)
    project_gain(layer, target)
    torch.testing.assert_close(stacked(layer, target), after, rtol=0, atol=1e-12)
    small = ElmanRNN(3, 5)
    with torch.no_grad():
        small.weight_hh.mul_(0.1)
        small.weight_ih.mul_(0.1)
    kept = copy.deepcopy(small.state_dict())
    project_gain(small, 1.0)
    assert all(torch.equal(kept[name], value) for name, value in small.state_dict().items())


class Own(nn.Module):
    """A user's network on torch.nn."""

    def __init__(self, cell: type = nn.RNN, **options) -> None:
        super().__init__()
        self.rnn = cell(28, 8, batch_first=True, **options)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


@pytest.fixture(scope="module")
def digits():
    return make_task("digits", limit=120, test_limit=60)


@pytest.mark.parametrize("options", [{}, {"nonlinearity": "relu"}])
def test_training_with_a_gain_ends_within_it_with_a_proof(options, digits):
    torch.manual_seed(0)
    model = Own(**options)
    train(model, digits, epochs=2, lr=0.05, batch_size=30, gain_target=0.7)
    assert torch.linalg.matrix_norm(torch.cat([model.rnn.weight_hh_l0, model.rnn.weight_ih_l0 / 0.7], 1), 2) < 1.0
    found = proved_gain(model, 0.7)
    assert found.value <= 0.7
    assert verify_claim(found.subject, found.claim).valid
    x = digits.test[0]
    u = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    moved = (model.rnn(x + u)[1] - model.rnn(x)[1])[0].norm(dim=1) / u.flatten(1).norm(dim=1)
    assert moved.max() <= 0.7


def test_networks_of_another_kind_are_refused_before_training(digits):
    for model in (SequenceModel(GRU(28, 8), 10), Own(num_layers=2), Own(bidirectional=False, num_layers=3)):
        with pytest.raises(UnsupportedError):
            train(model, digits, epochs=1, gain_target=1.0)
    with pytest.raises(ConfigurationError):
        train(Own(), digits, epochs=1, gain_target=0.0)


def test_a_refuted_network_is_repaired_and_told_what_it_cost(tmp_path, capsys):
    torch.manual_seed(0)
    model = SequenceModel(ElmanRNN(14, 8), 10)
    with torch.no_grad():
        model.layer.weight_hh.mul_(8.0)
    file = save(model, tmp_path / "wild.safetensors")
    small = ["--task-set", "size=14", "--task-set", "limit=60", "--task-set", "test_limit=30", "--epochs", "1"]
    asked = ["train", "--from", str(file), *small, "--gain-target", "2", "--out", str(tmp_path / "run"), "--json"]
    assert run(asked) == 0
    told = json.loads(capsys.readouterr().out)["repaired"]
    assert told["before"]["verdict"] == "refuted"
    assert told["before"]["gain"] is None
    assert told["after"]["verdict"] == "certified"
    assert 0 < told["after"]["gain"] <= 2.0
    assert {told[moment]["test_metric"] for moment in ("before", "after")} <= {k / 30 for k in range(31)}
    again = load(tmp_path / "run")
    assert proved_gain(again, 2.0).value <= 2.0
    assert torch.equal(load(file).layer.weight_hh, model.layer.weight_hh)
    assert run(["train", "--from", str(file), "--model", "elman", "--quiet"]) == 2
    assert "--model" in capsys.readouterr().err


def own() -> nn.Module:
    """A network of ``torch.nn`` that does not contract."""
    torch.manual_seed(0)
    model = Own()
    with torch.no_grad():
        model.rnn.weight_hh_l0.mul_(8.0)
    return model


def test_a_network_of_the_users_own_is_repaired_and_its_folder_certified(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    small = ["--task-set", "limit=60", "--task-set", "test_limit=30", "--epochs", "1", "--gain-target", "2"]
    folder = str(tmp_path / "run")
    assert run(["train", "--from", f"{Path(__file__).stem}:own", *small, "--out", folder]) == 0
    said = capsys.readouterr().out
    assert "before: proven not stable" in said
    assert "after: proven stable, gain from inputs to states at most 2 (proved)" in said
    (command,) = (line.split("next: stability ")[1] for line in said.splitlines() if "next: " in line)
    assert command == f"certify {folder}"
    assert run([*command.split(), "-o", str(tmp_path / "c.json"), "--quiet"]) == 0
    weights = Certificate.load(tmp_path / "c.json").subject.system.C
    assert np.array_equal(weights, load_file(tmp_path / "run" / "model.safetensors")["rnn.weight_hh_l0"].double())
    assert run(["attack", folder]) == 2  # its code lies elsewhere
    assert "in the folder of the code" in capsys.readouterr().err
    described = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert described["model"].pop("cell") == "rnn_tanh"
    (tmp_path / "run" / "run.json").write_text(json.dumps(described), encoding="utf-8")
    assert run(["certify", folder, "--quiet"]) == 2  # an activation is nothing that weights tell
    assert "--cell rnn_tanh" in capsys.readouterr().err
    fresh = ["train", "--model", "elman", "--hidden", "8", *small, "--out", str(tmp_path / "new")]
    assert run(fresh) == 0
    said = capsys.readouterr().out
    assert "before:" not in said
    assert "gain from inputs to states at most 2 (proved)" in said
