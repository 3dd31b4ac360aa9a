"""Reasons for what was not computed come with commands, and each of these does what it says when it is pasted."""

from __future__ import annotations

import html
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis.campaign.budgets import BUDGETS
from stability.models import ElmanRNN, SequenceModel, save
from stability.reports import cli

from ..own_nets import MODULE, SMALL, arrays

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
    """A report of one model of each form, without data: the terminal, the page and the JSON."""
    folder = tmp_path_factory.mktemp("told")
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(BUDGETS, "quick", SMALL)
        (folder / "ownnets.py").write_text(
            MODULE + "\n\ndef plain():\n    return nn.Sequential(nn.Flatten(), nn.Linear(18, 3))\n"
        )
        data = arrays()
        np.savez(folder / "good.npz", x=data["x"], y=data["y"])
        np.savez(folder / "-loop.npz", A=-np.eye(3), W=0.5 * np.eye(3))
        torch.save(nn.LSTM(3, 24).state_dict(), folder / "my lstm's.pt")
        save(SequenceModel(ElmanRNN(3, 4), 3), folder / "elman.safetensors")
        models = ["ownnets:three", "ownnets:plain", "./-loop.npz", "my lstm's.pt", "elman.safetensors"]
        with pytest.MonkeyPatch.context() as capture:
            lines: list[str] = []
            capture.setattr("stability.reports.cli.console.say", lambda text, quiet=False: lines.append(text))
            assert cli.run(["report", *models, "--quick", "--processes", "1", "--out", "r"]) == 0
        yield folder, "\n".join(lines), (folder / "r" / "report.html").read_text(encoding="utf-8")
    sys.modules.pop("ownnets", None)


def test_terminal_page_and_json_give_the_same_commands_and_each_works_when_pasted(told: Any) -> None:
    folder, terminal, page = told
    document = json.loads((folder / "r" / "report.json").read_text())
    listed = {row["command"] for m in document["models"] for row in m["not_shown"] if row["command"]}
    assert any("--input-box LOW HIGH" in c for c in listed)
    assert any("--data FILE.npz" in c for c in listed)
    plain = html.unescape(re.sub(r"<wbr>", "", page))
    for command in listed:
        assert command in terminal
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
