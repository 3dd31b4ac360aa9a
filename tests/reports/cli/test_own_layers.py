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
from stability.reports import cli
from stability.reports.page import html
from stability.reports.stored.collect import collect

from ..own_nets import SMALL

MODULE = """
import torch
from stability.models import ElmanRNN, SequenceModel, register_layer

@register_layer("quiet")
class Quiet(ElmanRNN):
    pass

class Nameless(ElmanRNN):
    pass

def load():
    torch.manual_seed(3)
    return SequenceModel(ElmanRNN(7, 5), 10)
"""
TINY = [
    "--quick",
    "--processes",
    "1",
    "--task",
    "digits",
    "--task-set",
    "size=7",
    "--task-set",
    "limit=60",
    "--task-set",
    "test_limit=20",
]


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
    sys.modules.pop("quietnets", None)
    LAYERS.pop("quiet", None)


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


@pytest.mark.parametrize(
    ("asked", "more", "words"),
    [
        ("quietnets:Nameless", (), "put @register_layer(...)"),
        ("quietnets:Quiet,quiet", (), "names a layer twice"),
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
