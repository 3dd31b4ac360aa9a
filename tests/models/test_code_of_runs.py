"""Code that a run names runs where its user trained with it; code in an unpacked folder of somebody else never does."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from stability import user_code
from stability.analysis import train
from stability.analysis.tasks import task_from_arrays
from stability.analysis.training.runs import read_run
from stability.errors import FileFormatError
from stability.models import LAYERS, SequenceModel
from stability.models.cells import CELLS
from stability.models.factories import registered_layer
from stability.models.sources import load_subject

CELL = """
import torch
from stability.models import register_cell

@register_cell
class Leaky(torch.nn.Module):
    def __init__(self, p, n):
        super().__init__()
        self.input_size, self.hidden_size, self.W = p, n, torch.nn.Linear(p, n)

    def step(self, x, h):
        return 0.5 * h + 0.5 * torch.tanh(self.W(x))
"""
THEIRS = "import os\nos.environ['RAN'] = 'yes'\n" + CELL + "\ndef load():\n    raise KeyError\n"


def forget() -> None:
    """Module state that a new process does not have."""
    for name in ("cell_that_leaks", "theirs", "evil", "evil.theirs"):
        sys.modules.pop(name, None)
    for kind in [kind for kind in CELLS if kind.__name__ == "Leaky"]:
        del CELLS[kind]
    LAYERS.pop("Leaky", None)
    user_code._NAMED.clear()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes ``evil/a``, a run of the cell that this user trained with, as a new process finds it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAN", raising=False)
    Path("cell_that_leaks.py").write_text(CELL)
    name = registered_layer("cell_that_leaks.py:Leaky")
    x, y = torch.rand(6, 3, 2).numpy(), (torch.arange(6) % 2).numpy()
    train(SequenceModel(LAYERS[name](2, 4), 2), task_from_arrays(x, y), epochs=1, out="a")
    Path("evil").mkdir()
    shutil.move("a", "evil/a")
    Path("evil/theirs.py").write_text(THEIRS)
    file = Path("evil/a/run.json")
    sent = json.loads(file.read_text())

    def changed(**parts: object) -> None:
        forget()
        file.write_text(json.dumps({**sent, **{k: {**sent[k], **v} for k, v in parts.items()}}))

    yield changed
    forget()


@pytest.mark.parametrize("place", ["evil/theirs.py", "evil.theirs"])
def test_code_in_an_unpacked_folder_never_runs(run, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(model={"code": f"{place}:Leaky"})
    with pytest.raises(FileFormatError):
        load_subject("evil/a")
    run(task={"name": "data", "options": {"file": f"{place}:load"}})
    with pytest.raises(FileFormatError):
        read_run("evil/a").task()
    assert "RAN" not in os.environ
    run(model={"code": f"{place}:Leaky"})
    monkeypatch.setenv(user_code.ALLOW, "1")
    load_subject("evil/a")
    assert os.environ.pop("RAN") == "yes"


def test_code_that_one_trained_with_runs_until_it_changes(run) -> None:
    run()
    assert load_subject("evil/a").module is not None
    Path("cell_that_leaks.py").write_text(CELL + "# changed\n")
    run()
    with pytest.raises(FileFormatError):
        load_subject("evil/a")
    registered_layer("cell_that_leaks.py:Leaky")  # named by the user
    run()
    load_subject("evil/a")
