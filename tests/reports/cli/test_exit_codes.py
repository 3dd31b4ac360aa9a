"""Exit codes of commands about several models: 0 means that nothing is missing, whatever else is there."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from stability.analysis.campaign import each
from stability.analysis.campaign.budgets import BUDGETS
from stability.errors import IllPosedError, UnsupportedError
from stability.reports import cli

from ..own_nets import SMALL


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(BUDGETS, "quick", SMALL)
    np.savez(tmp_path / "good.npz", A=-2.0 * np.eye(2), W=0.5 * np.eye(2))
    np.savez(tmp_path / "bad.npz", A=-3.0 * np.eye(2), W=0.5 * np.eye(2))
    return tmp_path


def line(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    captured = capsys.readouterr()
    *before, last = captured.err.splitlines()
    assert last.startswith("stability: error: ")
    assert all(
        re.fullmatch(r"\d+/\d+ \w+: finished after .*", text) for text in before
    )  # models, as they come to an end
    return captured.out, captured.err


@pytest.mark.parametrize("how", [[], ["--quiet"], ["--json"]])
def test_a_report_that_lacks_a_model(here: Path, monkeypatch, capsys, how: list[str]) -> None:
    command = ["report", "good.npz", "bad.npz", "--quick", "--processes", "1", "--out", "r", *how]
    whole = each.analyse

    def fails(folder: Path, *args, **kwargs):
        if kwargs["title"] == "bad":
            raise UnsupportedError("no such luck")
        return whole(folder, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(each, "analyse", fails)
        assert cli.run(command) == 2
    out, err = line(capsys)
    assert "is incomplete: bad: no such luck" in err
    if how == ["--json"]:
        assert json.loads(out)["failed"] == {"bad": "no such luck"}
    assert ("good: PROVEN STABLE" in out.upper().replace("GOOD", "good")) is (how == [])
    assert "good" in (here / "r" / "report.html").read_text()
    assert cli.run(["report", "--redraw", "r", *how]) == 2
    assert "bad: no such luck" in line(capsys)[1]
    assert cli.run(command) == 0  # the same command again finishes it
    capsys.readouterr()
    assert cli.run(["report", "--redraw", "r", *how]) == 0
    assert capsys.readouterr().err == ""


def test_a_redrawn_report_with_a_changed_certificate(here: Path, capsys) -> None:
    assert cli.run(["report", "good.npz", "--quick", "--out", "r", "-q"]) == 0
    path = here / "r" / "models" / "good" / "certificate.json"
    whole = path.read_text()
    path.write_text(whole.replace('"rate": 1.', '"rate": 9.', 1))
    assert path.read_text() != whole
    assert cli.run(["report", "--redraw", "r", "-q"]) == 2
    assert "is incomplete: good: " in line(capsys)[1]
    path.write_text(whole)
    assert cli.run(["report", "--redraw", "r", "-q"]) == 0


@pytest.mark.parametrize(("error", "code"), [(IllPosedError("no single solution"), 2), (UnsupportedError("none"), 0)])
def test_a_comparison_with_a_certificate_that_failed(here: Path, monkeypatch, capsys, error, code) -> None:
    tiny = ["--task-set", "size=7", "--task-set", "limit=20", "--task-set", "test_limit=10", "--epochs", "1", "-q"]
    assert cli.run(["train", "--model", "elman", "--hidden", "2", *tiny, "--out", "run"]) == 0

    def fails(model, **options):
        raise error

    monkeypatch.setattr(sys.modules["stability.certification"], "certify", fails)
    assert cli.run(["compare", "run", "run", "--samples", "3", "--factor", "1", "--out", "c"]) == code
    out = line(capsys)[0] if code else capsys.readouterr().out
    assert f"no certificate ({error})" in out
    rows = json.loads((here / "c" / "compare.json").read_text())["models"]
    assert sorted(row["model"] for row in rows) == ["run (1)", "run (2)"]
    assert all(row["reason"] == str(error) for row in rows)
