"""Reasons for what was not computed come with commands, and each of these does what it says when it is pasted."""

from __future__ import annotations

import html
import json
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis.campaign.budgets import BUDGETS
from stability.analysis.training.planned import DEFAULTS
from stability.analysis.training.runs import Run
from stability.models import ElmanRNN, SequenceModel, save
from stability.reports import cli
from stability.reports.page.next_step import next_step
from stability.reports.stored.collect import collect
from stability.reports.stored.reasons import TRAINING, context_of, data_words

from ..conftest import seal
from ..own_nets import MODULE, SMALL, arrays

REMEMBERS = """

class Remembers(nn.Module):
    def __init__(self, kind=nn.GRU):
        super().__init__()
        self.rnn, self.head = kind(3, 5, batch_first=True), nn.Linear(5, 3)
        with torch.no_grad():
            self.rnn.weight_hh_l0.mul_(9.0)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def remembers():
    torch.manual_seed(0)
    return Remembers()


def plainer():
    torch.manual_seed(0)
    return Remembers(nn.RNN)
"""
TEMPLATES = {"LOW": "-1", "HIGH": "1", "FILE.npz": "good.npz", "SECONDS": "1"}


def pasted(command: str) -> list[str]:
    """The words that a shell makes of a command, templates filled in."""
    words = shlex.split(command)
    assert words[0] == "stability"
    return [TEMPLATES.get(word, word) for word in words[1:]]


def run(command: str, out: str) -> int:
    words = pasted(command)
    if words[0] == "report":
        words += ["--quick", "--processes", "1", "--out", out]
    elif words[0] == "radius":
        words[words.index("--samples") + 1] = "1"
    elif words[0] == "train":
        words += ["--out", out, *(["--epochs", "1"] if "--epochs" not in words else [])]
    elif "--time-limit" in words:  # with more time than this: what is tested is that it is understood
        words[words.index("--time-limit") + 1] = "0.2"
    else:
        words += ["--time-limit", "0.2"]
    with pytest.MonkeyPatch.context() as patch:
        if words[0] == "report":
            patch.setattr("stability.reports.page.html.render", lambda folder, **_: Path(folder) / "report.html")
        return cli.run([*words, "-q"])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory):
    """A report of one model of each form, without data, and its page."""
    folder = tmp_path_factory.mktemp("told")
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(BUDGETS, "quick", SMALL)
        (folder / "ownnets.py").write_text(
            MODULE + REMEMBERS + "\n\ndef plain():\n    return nn.Sequential(nn.Flatten(), nn.Linear(18, 3))\n"
        )
        data = arrays()
        np.savez(folder / "good.npz", x=data["x"], y=data["y"])
        np.savez(folder / "-loop.npz", A=-np.eye(3), W=0.5 * np.eye(3))
        torch.save(nn.LSTM(3, 24).state_dict(), folder / "my lstm's.pt")
        save(SequenceModel(ElmanRNN(3, 4), 3), folder / "elman.safetensors")
        models = [
            "ownnets:remembers",
            "ownnets:three",
            "ownnets:plain",
            "./-loop.npz",
            "my lstm's.pt",
            "elman.safetensors",
        ]
        assert cli.run(["report", *models, "--quick", "--processes", "1", "--out", "r", "-q"]) == 0
        yield folder, (folder / "r" / "report.html").read_text(encoding="utf-8")
    sys.modules.pop("ownnets", None)


def test_page_and_json_give_the_same_commands_and_each_works_when_pasted(told: Any) -> None:
    folder, page = told
    document = json.loads((folder / "r" / "report.json").read_text())
    listed = {row["command"] for m in document["models"] for row in m["not_shown"] if row["command"]}
    assert any("--input-box LOW HIGH" in c for c in listed)
    assert any("--data FILE.npz" in c for c in listed)
    plain = html.unescape(re.sub(r"<[^>]*>", "", page))
    for command in listed:
        assert command in plain
    for k, command in enumerate(sorted(listed)):
        rc = run(command, f"out-{k}")
        assert rc in ((0,) if " report " in command else (0, 1, 3)), command


def test_certify_repeats_the_options_of_the_question(told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--input-box", "-0.123456789", "1", "--criterion", "interval", "--time-limit", "0.02"]
    assert cli.run(["certify", "my lstm's.pt", *options, "--json"]) in (0, 1)
    advice = json.loads(capsys.readouterr().out)["advice"]
    assert advice
    for row in advice:
        words = pasted(row["command"])
        assert words[1] == "my lstm's.pt"
        assert words[2:7] == ["--input-box", "-0.123456789", "1", "--criterion", "interval"]
        assert cli.run([*words, "-q"]) in (0, 1)


DATA = ["--input-box", "data", "--data", "good.npz"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            ["ownnets:remembers"],
            ["contracting --data FILE.npz --hidden 5", "radius ownnets:remembers --data FILE.npz"],
        ),
        (
            ["ownnets:remembers", *DATA],
            ["contracting --data good.npz --hidden 5", "radius ownnets:remembers --data good"],
        ),
        (["ownnets:plainer"], ["--from ownnets:plainer --data FILE.npz --margin-penalty 1", "radius ownnets:plainer"]),
        (["my lstm's.pt"], ["--input-box LOW HIGH"]),
        (["ownnets:gru"], ["--input-box LOW HIGH"]),
    ],
)
def test_commands_after_certify_keep_data_size_and_factory_and_work(
    told: Any, capsys: pytest.CaptureFixture[str], asked: list[str], words: list[str], tmp_path: Path
) -> None:
    rc = cli.run(["certify", *asked, "--json"])
    commands = [row["command"] for row in json.loads(capsys.readouterr().out)["advice"]]
    assert all(any(word in command for command in commands) for word in words)
    assert not (rc == 3 and any("--input-box" in c for c in commands))  # its input is 0, or the box is no other
    for k, command in enumerate(commands):
        assert run(command, str(tmp_path / f"out-{k}")) in ((0, 1, 3) if " certify " in command else (0,)), command


@pytest.mark.parametrize("asked", [["--model", "lstm", "--hidden", "5"], ["--from", "ownnets:remembers"]])
def test_the_command_after_training_works_and_the_page_of_the_run_keeps_its_data(
    told: Any, capsys: pytest.CaptureFixture[str], asked: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "a run"
    assert cli.run(["train", *asked, "--data", "good.npz", "--epochs", "1", "--out", str(out)]) == 0
    (command,) = (line.split("next: ")[1] for line in capsys.readouterr().out.splitlines() if "next: " in line)
    assert command.endswith(" --input-box data")
    assert run(command, "") in (0, 1, 3)
    assert cli.run(["report", str(out), "--quick", "--processes", "1", "--out", str(tmp_path / "r"), "-q"]) == 0
    (model,) = collect(tmp_path / "r").models
    command = next_step(model).command
    assert "contracting" in command
    assert shlex.join(["--data", str(Path("good.npz").absolute())]) in command
    assert "--hidden 5" in command
    assert ("--epochs 1" in command) == (asked[0] == "--model")  # a network that came trained had epochs before
    assert run(command, str(tmp_path / "next")) == 0


def test_advice_about_a_run_keeps_its_data_and_its_settings_and_no_defaults(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    more = ["--epochs", "1", "--seed", "3", "--lr", "0.01", "--batch-size", "16", "--task", "adding"]
    more += [word for option in ("steps=5", "train=8", "test=4") for word in ("--task-set", option)]
    command = ["train", "--model", "lstm", "--hidden", "4", *more, "--out", str(tmp_path / "lstm"), "-q"]
    assert cli.run(command) == 0
    cli.run(["certify", str(tmp_path / "lstm"), "--json"])
    commands = [row["command"] for row in json.loads(capsys.readouterr().out)["advice"]]
    (train,) = (shlex.split(c) for c in commands if c.startswith("stability train"))
    assert sorted(options_in(train)) == sorted([("--model", "contracting"), ("--hidden", "4"), *options_in(more)])
    task = {"name": "digits", "options": {"size": 7, "limit": None}, "data": {"folder": "my data"}}
    run = Run(Path(), {"task": task, "model": {"layer": None}, "training": {"epochs": 1, "seed": 2, "lr": 0.003}})
    assert run.data_options() == [("--task", "digits"), ("--task-set", "size=7"), ("--data-dir", "my data")]
    assert run.training_options() == [("--seed", "2")]  # these epochs came after others
    assert {**{name: DEFAULTS[name] for name in ("epochs", "lr", "batch_size")}, "seed": 0} == TRAINING


def test_advice_on_the_page_keeps_the_settings_of_the_training(small_dir: Path) -> None:
    path = small_dir / "models" / "contracting" / "run.json"
    document = json.loads(path.read_text())
    document["training"] = {"epochs": 10, "lr": 0.01, "batch_size": 16, "seed": 3}
    document["task"] = {"name": "digits", "options": {"size": 7, "layout": "rows", "limit": None}}
    for layer, epochs in (("lstm", 8), (None, 8), ("lstm", 10)):
        document["model"]["layer"], document["training"]["epochs"] = layer, epochs
        path.write_text(json.dumps(document))
        seal(path.parent)
        known, done = context_of(collect(small_dir).models[0]), Run(Path(), document)
        words = [tuple(pair) for pair in options_in(shlex.split(f"{known.data} {known.training}"))]
        assert words == [*done.data_options(), *done.training_options()]


def options_in(words: list[str]) -> list[tuple[str, str]]:
    """Options with their values among the words of a command."""
    return [(name, value) for name, value in pairwise(words) if name.startswith("--")]


def test_the_data_of_a_task_are_named_with_their_options_and_folder() -> None:
    task = {"name": "digits", "options": {"size": 7, "kind": "a b"}, "data": {"folder": "my data"}}
    named = ["--task", "digits", "--task-set", "size=7", "--task-set", "kind=a b", "--data-dir"]
    assert shlex.split(data_words("", task)) == [*named, "my data"]
    assert shlex.split(data_words("stability report runs --data-dir 'other one'", task)) == [*named, "other one"]
    assert shlex.split(data_words("stability report runs --data 'a b.npz'", task)) == ["--data", "a b.npz"]
    assert data_words("an unclosed 'quote", {}) == ""
