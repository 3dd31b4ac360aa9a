"""``report --models``: registered layers of a user's own are trained, what a factory gives is examined beside them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stability.analysis.campaign.budgets import BUDGETS
from stability.analysis.training import presets
from stability.models import LAYERS
from stability.models.cells import CELLS
from stability.reports import cli
from stability.reports.formatting import verdict_word
from stability.reports.page import html
from stability.reports.stored.collect import collect

from ..own_nets import SMALL

MODULE = '''
import torch
from torch import nn
from stability.models import ElmanRNN, SequenceModel, register_cell, register_layer
from stability.models.recurrent import RecurrentLayer

@register_layer("quiet")
class Quiet(ElmanRNN):
    pass

class Nameless(ElmanRNN):
    pass

@register_layer("gate")
class Gate(RecurrentLayer):
    """h+ = (1 - z) h + z c with gates z of the input alone: no recurrent matrix, no system of equations."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.gate = nn.Linear(input_size, 2 * hidden_size)

    def prepare(self):
        return None

    def drive(self, x, prepared):
        return self.gate(x)

    def transition(self, drive, state, prepared):
        z, c = drive.chunk(2, dim=-1)
        return state + torch.sigmoid(z) * (c - state)

@register_cell
class Leaky(nn.Module):
    """h+ = (1 - a) h + a tanh(W x)."""

    def __init__(self, p, n, a=1.0):
        super().__init__()
        self.input_size, self.hidden_size, self.a, self.W = p, n, a, nn.Linear(p, n)

    def step(self, x, h):
        return (1 - self.a) * h + self.a * torch.tanh(self.W(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(7, 4, batch_first=True), nn.Linear(4, 10)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])

def net():
    torch.manual_seed(3)
    return Net()

def load():
    torch.manual_seed(3)
    return SequenceModel(ElmanRNN(7, 5), 10)
'''
TINY = ["--quick", "--processes", "1", "--task", "digits"]
TINY += [f"--task-set={size}" for size in ("size=7", "limit=60", "test_limit=20")]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(BUDGETS, "quick", SMALL)
    small = {"hidden_size": 4}
    monkeypatch.setattr(presets, "_units", lambda layer, title, why: presets.Preset(layer, small, {}, title, why))
    monkeypatch.setattr(presets, "QUICK", {"epochs": 1})
    monkeypatch.setattr(html, "_page", lambda *_: "")  # drawn elsewhere
    (tmp_path / "quietnets.py").write_text(MODULE)
    yield tmp_path
    forget()


def forget() -> None:
    """Leave the state of a process that has not imported the module."""
    for kind in ("Leaky",) if (module := sys.modules.pop("quietnets", None)) else ():
        CELLS.pop(getattr(module, kind), None)
    for name in ("quiet", "gate", "Leaky"):
        LAYERS.pop(name, None)


def test_a_layer_is_trained_and_a_factorys_model_examined_on_the_same_task(here: Path) -> None:
    asked = "quietnets:load,quietnets:Quiet"
    assert cli.run(["report", "--models", asked, *TINY, "--out", "r", "-q"]) == 0
    given, trained = collect(here / "r").models
    assert (given.name, given.title) == ("quietnets-load", "quietnets:load")
    assert (trained.name, trained.title) == ("quiet", "Quiet")
    assert trained.run["result"]["epochs"] > 0
    assert not given.run
    assert all(m.frames["noise"].n.iloc[0] == 20 for m in (given, trained))  # of the task of both
    settings = json.loads((here / "r" / "report-settings.json").read_text())
    assert settings["plan"]["sources"] == {"quietnets-load": "quietnets:load"}


def test_a_layer_that_no_theorem_covers_is_measured(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", "--models", "quietnets:Gate", *TINY, "--out", "r"]) == 0
    (model,) = collect(here / "r").models
    assert (model.state, model.verdict, model.run["result"]["epochs"]) == ("inconclusive", "inconclusive", 1)
    assert {"noise", "norms"} <= model.frames.keys()
    assert verdict_word(model.state) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "more", "words"),
    [
        ("quietnets:Nameless", (), "put @register_layer(...)"),
        ("quietnets:Leaky,quietnets.py:Leaky", (), "--models must not repeat"),
        ("quietnets:Quiet,quiet", (), "--models must not repeat"),
        ("elman,quietnets:load", ("--seeds", "2"), "leave quietnets:load out"),
        ("quietnets:nothing", (), "module 'quietnets' has no attribute 'nothing'"),
        ("absentnets:load", (), "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything(
    here: Path, capsys: pytest.CaptureFixture[str], asked: str, more: tuple[str, ...], words: str
) -> None:
    assert cli.run(["report", "--models", asked, *TINY, *more, "--out", "r"]) == 2
    assert words in capsys.readouterr().err
    assert not (here / "r").exists()


OWN = (["--model", "quietnets.py:Leaky", "--set", "a=0.5"], ["--model", "quietnets:Gate"], ["--from", "quietnets:net"])


@pytest.mark.parametrize("asked", OWN, ids=["cell", "layer", "factory"])
def test_a_run_of_ones_own_code_is_read_again_by_every_command(
    here: Path, asked: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--task", "digits", *TINY[5:], "--epochs", "1", *(["--hidden", "4"] if "--model" in asked else [])]
    for folder in ("a", "b"):
        assert cli.run(["train", *asked, *small, "--out", folder, "-q"]) == 0
    forget()
    assert cli.run(["certify", "a", "--json"]) == (0 if "quietnets.py:Leaky" in asked else 1)
    for command in (["attack", "a"], ["radius", "a", "--samples", "1"], ["compare", "a", "b", "--out", "drift"]):
        forget()
        assert cli.run(command) == (2 if command[0] == "radius" and "quietnets:Gate" in asked else 0)
        assert "whose code" not in capsys.readouterr().err
    forget()
    assert cli.run(["train", "--resume", "a", "--epochs", "2", "-q"]) == 0
    assert cli.run(["report", "a", "--quick", "--out", "r", "-q"]) == 0
    assert "noise" in collect(here / "r").models[0].frames
    forget()
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert cli.run(["attack", "../a"]) == 2
    assert "run the command in the folder of the code" in capsys.readouterr().err
    assert "quietnets" not in sys.modules


def test_code_that_travels_inside_of_a_run_is_never_imported(here: Path) -> None:
    assert cli.run(["train", "--model", "quietnets.py:Leaky", *TINY[3:], "--hidden", "4", "--out", "a", "-q"]) == 0
    forget()
    (here / "a" / "planted.py").write_text("raise SystemExit('imported')")
    run = json.loads((here / "a" / "run.json").read_text())
    for code in ("a/planted.py:Leaky", "a.planted:Leaky", "./b/../a/planted.py:Leaky", "os:abort"):
        run["model"]["code"] = code
        (here / "a" / "run.json").write_text(json.dumps(run))
        assert cli.run(["certify", "a"]) == 2
    assert not {"planted", "a.planted"} & set(sys.modules)


def test_a_class_that_is_neither_cell_nor_layer_is_refused_with_what_to_say(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["train", "--model", "quietnets:net"]) == 2
    assert "@register_cell" in capsys.readouterr().err
