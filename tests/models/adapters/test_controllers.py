"""Torch controllers in a loop: the subject runs as plant and module do side by side."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.signal import StateSpace
from torch import nn

from stability import feedback, incremental_gain
from stability.errors import ConfigurationError, DisagreementError, StabilityError, UnsupportedError
from stability.models import LRU, ContractingRNN, ElmanRNN, LipschitzRNN, SequenceModel, export_onnx, save
from stability.models.sources import load_subject
from stability.reports import cli
from stability.reports.stored.records import ModelRecord

PLANT = StateSpace([[-1.2, -0.2], [1.0, 0.0]], [[1.0], [0.0]], [[0.0, 1.0]], [[0.0]])
DT = 0.1


class Own(nn.Module):
    def __init__(self, scale=1.0, batch_first=True) -> None:
        super().__init__()
        self.rnn, self.out, self.scale = nn.LSTM(1, 3, batch_first=batch_first), nn.Linear(3, 1), scale

    def forward(self, y, state=None):
        hidden, state = self.rnn(y, state)
        return self.out(self.scale * hidden), state


def cell(kind, layers):
    rnn, head = kind(1, 3, layers, batch_first=True), nn.Linear(3, 1)

    def run(y):
        return head(rnn(y)[0])

    return nn.Sequential(rnn, head), run


CONTROLLERS = {
    "rnn": lambda: cell(nn.RNN, 2),
    "gru": lambda: cell(nn.GRU, 2),
    "lstm": lambda: cell(nn.LSTM, 1),
    "own": lambda: (own := Own(), lambda y: own(y)[0]),
    "time first": lambda: (own := Own(batch_first=False), lambda y: own(y.transpose(0, 1))[0].transpose(0, 1)),
    "model": lambda: (model := SequenceModel(LipschitzRNN(1, 3), 1, reduction="all"), model),
    "stack": lambda: (model := SequenceModel([ContractingRNN(1, 3), ElmanRNN(3, 2)], 1, reduction="all"), model),
    "scan": lambda: (model := SequenceModel(LRU(1, 4), 1, reduction="all"), model),
    "static": lambda: (model := nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1)), model),
}


def check(loop, run) -> None:
    """Compare a loop with plant and controller; the controller sees the whole past at each step."""
    sampled, x, state = PLANT.to_discrete(DT), np.array([1.0, -2.0]), np.zeros(loop.states)
    state[:2], past = x, []
    for r in np.random.default_rng(0).normal(size=(12, 1)):
        past.append(sampled.C @ x + r)
        with torch.no_grad():
            u = -run(torch.tensor(np.array(past))[None])[0, -1].numpy()
        x = sampled.A @ x + sampled.B @ u
        state = loop.advance(state, r)
        np.testing.assert_allclose(state[:2], x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_torch_controller_runs_in_the_loop(name) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        module, run = CONTROLLERS[name]()
        check(feedback(PLANT, module, dt=DT), run)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_file_is_a_controller_with_its_head(tmp_path) -> None:
    model = SequenceModel(LipschitzRNN(1, 3), 1)
    save(model, tmp_path / "m.safetensors")
    run = SequenceModel(model.layer, 1, reduction="all")
    run.head = model.head
    check(feedback(PLANT, tmp_path / "m.safetensors", dt=DT), run.double())
    pytest.importorskip("onnx")
    export_onnx(model.double(), tmp_path / "m.onnx")  # whose head behind a Scan is not read
    part = load_subject(tmp_path / "m.onnx").info["part"]
    check(feedback(PLANT, [f"{tmp_path / 'm.onnx'}#{part}", model.head], dt=DT), run)


def test_layers_around_the_recurrent_part_of_a_file_are_not_left_out(tmp_path) -> None:
    model = nn.ModuleDict({"rnn": nn.GRU(1, 1, batch_first=True), "head": nn.Linear(1, 1)}).double()
    torch.save(model.state_dict(), tmp_path / "m.pt")
    with pytest.raises(UnsupportedError):
        feedback(PLANT, tmp_path / "m.pt", dt=DT)
    torch.save(model["rnn"].state_dict(), tmp_path / "rnn.pt")
    loop = feedback(PLANT, [tmp_path / "rnn.pt", model["head"]], dt=DT)
    check(loop, lambda y: model["head"](model["rnn"](y)[0]))


def test_what_runs_differently_from_its_parts_is_refused() -> None:
    for module, error in (
        (Own(scale=0.9), DisagreementError),
        (SequenceModel(ElmanRNN(1, 2), 1, reduction="mean"), ConfigurationError),
        (nn.Sequential(nn.RNN(1, 2), nn.LayerNorm(2)), StabilityError),
        (nn.Sequential(nn.RNN(1, 2, bidirectional=True), nn.Linear(4, 1)), StabilityError),
        (nn.RNN(1, 2), StabilityError),  # two outputs, one input
    ):
        with pytest.raises(error):
            feedback(PLANT, module, dt=DT)


def test_the_gain_from_the_reference_bounds_runs(rng) -> None:
    module, _ = cell(nn.RNN, 1)
    module[1].weight.data *= 0.3
    loop = feedback(PLANT, module, dt=DT)
    output = np.eye(1, loop.states, 1)
    gain = incremental_gain(loop, output=output).value
    for r in rng.normal(size=(5, 200, 2, 1)):
        states, seen = np.zeros((2, loop.states)), []
        for now in r:
            states = loop.advance(states, now)
            seen.append(np.diff(states @ output.T, axis=0))
        assert np.linalg.norm(seen) <= gain * np.linalg.norm(np.diff(r, axis=1))


def test_the_command_line_takes_a_loop_from_a_function(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "own_loops.py").write_text(
        "import torch\nfrom scipy.signal import StateSpace\nfrom torch import nn\nfrom stability import feedback\n"
        "def loop(kind, scale):\n"
        "    torch.manual_seed(0)\n"
        "    head = nn.Linear(4, 1)\n"
        "    head.weight.data *= scale\n"
        "    plant = StateSpace([[-1.2, -0.2], [1, 0]], [[1], [0]], [[0, 1]], [[0]])\n"
        "    return feedback(plant, nn.Sequential(kind(1, 4), head), dt=0.1)\n"
        "def stable():\n    return loop(nn.RNN, 1.0)\n"
        "def open_():\n    return loop(nn.GRU, 1.0)\n"
        "def unstable():\n    return loop(nn.GRU, 60.0)\n"
    )
    monkeypatch.chdir(tmp_path)
    for name, code, words in (
        ("stable", 0, "per step of 0.1"),
        ("open_", 1, "measured"),
        ("unstable", 3, "linearization"),
    ):
        assert cli.run(["certify", f"own_loops.py:{name}"]) == code
        assert words in capsys.readouterr().out
    part = {"meta": {"part": "linearization of loop"}}  # the page does not say of the loop what is proved of this part
    assert ModelRecord("own", tmp_path, part, {}, {}).title == "linearization of own"
