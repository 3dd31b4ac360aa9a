"""``stability sweep``: its table, its state, its plan, and what it says when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stability.analysis.sweep import export_run, store_frame
from stability.reports import cli

FILE = """
models = ["elman", "lipschitz"]
tasks = ["digits"]
seeds = [0, 1]
[train]
epochs = 1
hidden = 3
[task]
size = 7
limit = 20
test_limit = 10
[analyses]
certificate = {rate = "any"}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "s.toml").write_text(FILE)
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert cli.run(["sweep", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_it_runs_and_says_how_far_it_is(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.chdir(place)
    plan = said(capsys, "s.toml", "--plan")
    assert not (place / "runs").exists()  # nothing was begun
    assert (plan["jobs"], plan["done"]) == (4, 0)
    assert plan["cpu_seconds"] > 0
    parameters = [line["parameters"] for line in plan["lines"]]
    found = said(capsys, "s.toml", "--workers", "1")
    assert found.keys() == {"jobs", "failed", "table"}
    assert (found["jobs"], found["failed"]) == (4, 0)
    assert [(r["model"], r["seed"]) for r in found["table"]] == [(m, s) for m in ("elman", "lipschitz") for s in (0, 1)]
    assert [row["parameters"] for row in found["table"][::2]] == parameters
    assert {row["verdict"] for row in found["table"]} <= {"certified", "refuted", "inconclusive"}
    assert said(capsys, "s.toml", "--workers", "1") == found
    assert said(capsys, "s.toml", "--plan", "--out", "runs/s")["done"] == 4
    state = said(capsys, "s.toml", "--status")
    assert (state["jobs"], state["done"], state["left"], state["torn"]) == (4, 4, 0, 0)
    assert cli.run(["sweep", "s.toml", "--workers", "1"]) == 0
    text = capsys.readouterr().out
    assert "4 of 4 jobs done" in text
    assert "lipschitz" in text


def test_a_known_plan_is_told_without_what_computes(place: Path) -> None:
    code = "import sys; from stability.reports.cli import run; run(sys.argv[1:]); print('torch' in sys.modules)"
    words = ["sweep", "s.toml", "--status"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=place, check=True)
    assert "4 of 4 jobs done" in done.stdout
    assert done.stdout.endswith("False\n")
    (place / "s.toml").write_text(FILE.replace("[0, 1]", "[0, 1, 2]"))
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=place, check=True)
    assert "4 of 6 jobs done" in done.stdout
    (place / "s.toml").write_text(FILE)


def test_it_does_what_train_does(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = said(capsys, str(place / "s.toml"), "--out", str(place / "runs" / "s"), "--workers", "1")["table"]
    small = ["--task-set", "size=7", "--task-set", "limit=20", "--task-set", "test_limit=10", "--epochs", "1"]
    words = ["train", "--model", "lipschitz", "--hidden", "3", "--seed", "1", *small, "--out", str(tmp_path / "run")]
    assert cli.run([*words, "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    names = ("train_loss", "test_loss", "test_metric", "parameters")
    assert [table[3][name] for name in names] == [trained[name] for name in names]


def test_other_commands_read_the_store(place: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(place)
    table = said(capsys, "s.toml", "--workers", "1")["table"]
    assert cli.run(["compare", "runs/s", "--json", "--out", str(tmp_path / "c")]) == 0
    groups = json.loads(capsys.readouterr().out)["stores"]["runs/s"]["groups"]
    assert [(g["model"], g["trainings"]) for g in groups] == [("elman", 2), ("lipschitz", 2)]
    assert json.loads((tmp_path / "c" / "compare.json").read_text())["stores"]["runs/s"]["groups"] == groups
    losses = [row["test_loss"] for row in table[2:]]
    assert groups[1]["test_loss"] == pytest.approx(sum(losses) / 2)
    half = 12.706204736432095 * abs(losses[0] - losses[1]) / 2  # Student's quantile for one degree of freedom
    assert groups[1]["test_loss.high"] - groups[1]["test_loss"] == pytest.approx(half)
    for command in ("study", "report"):
        assert cli.run([command, "runs/s", "--json", "--out", str(tmp_path / command)]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [row["test_loss"] for row in found["rows"]] == [g["test_loss"] for g in groups]
        page = (tmp_path / command / "study.html").read_text()
        assert "Held-out accuracy while training" in page
        assert "lipschitz" in page
        assert cli.run([command, "runs/s", "--quick", "--out", str(tmp_path / "no")]) == 2
    assert "leave out --quick" in capsys.readouterr().err
    assert cli.run(["compare", "runs/s", "other.npz"]) == 2
    assert "name stores alone" in capsys.readouterr().err
    job = store_frame("runs/s")["job"][3]
    run = export_run("runs/s", job, tmp_path / "run")
    assert cli.run(["certify", str(run), "--json"]) in (0, 1, 3)
    assert json.loads(capsys.readouterr().out)["verdict"] == table[3]["verdict"]


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("models = ['nothing']\ntasks = ['digits']", [], "unknown model 'nothing'"),
        (FILE, ["--status"], "nothing of this sweep"),
        (FILE, ["--workers", "0"], "--workers must be at least 1"),
        (FILE, ["--scheduler", "nowhere"], "no Dask scheduler answers at nowhere"),
        (FILE, ["--tls-ca", "ca.pem"], "none is named"),
        (FILE, ["--out", "."], "not empty and no store"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch, text: str, words: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stability.analysis.running.cluster.PATIENCE", 0.2)
    Path("s.toml").write_text(text)
    assert cli.run(["sweep", "s.toml", *words]) == 2
    told = capsys.readouterr().err
    assert line in told
    assert len(told.strip().splitlines()) == 1


def test_what_fails_is_told_and_the_others_are_shown(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(FILE.replace("hidden = 3", "hidden = 3\nlipschitz = {set = {beta = 'x'}}"))
    found = said(capsys, "s.toml", "--workers", "1", code=2)
    assert found["failed"] == 2
    assert len(found["errors"]) == 2
    assert ["error" in row for row in found["table"]] == [False, False, True, True]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["report", "--quick", "--scheduler", "nowhere"], "no Dask scheduler answers at nowhere"),
        (["report", "--quick", "--tls-key", "k.pem"], "name one with --scheduler"),
        (["report", "--redraw", "runs/s", "--scheduler", "nowhere"], "leave out --scheduler"),
        (["study", "qr-gradients", "--quick", "--scheduler", "nowhere"], "no Dask scheduler answers at nowhere"),
        (["study", "--redraw", "runs/s", "--scheduler", "nowhere"], "leave out --scheduler"),
    ],
)
def test_reports_and_studies_refuse_a_scheduler_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch, words: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stability.analysis.running.cluster.PATIENCE", 0.2)
    assert cli.run(words) == 2
    told = capsys.readouterr().err
    assert line in told
    assert len(told.strip().splitlines()) == 1
    assert not any(tmp_path.iterdir())  # nothing was begun
