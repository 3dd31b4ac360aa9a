"""``stability sweep``: its table, its state and its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stability.analysis.sweep import Sweep
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


def test_it_runs_and_counts_its_jobs(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.chdir(place)
    found = said(capsys, "s.toml", "--workers", "1")
    assert found.keys() == {"jobs", "failed", "table"}
    assert (found["jobs"], found["failed"]) == (4, 0)
    assert [(r["model"], r["seed"]) for r in found["table"]] == [(m, s) for m in ("elman", "lipschitz") for s in (0, 1)]
    assert {row["verdict"] for row in found["table"]} <= {"certified", "refuted", "inconclusive"}
    assert said(capsys, "s.toml", "--workers", "1") == found
    state = said(capsys, "s.toml", "--status")
    assert (state["jobs"], state["done"], state["left"]) == (4, 4, 0)
    assert cli.run(["sweep", "s.toml", "--workers", "1"]) == 0
    text = capsys.readouterr().out
    assert "4 of 4 jobs done" in text
    assert "lipschitz" in text


@pytest.mark.slow
def test_a_cluster_prints_the_table_of_this_process(place: Path, tmp_path: Path, capsys) -> None:
    from distributed import LocalCluster

    file = str(place / "s.toml")
    here = said(capsys, file, "--workers", "1", "--out", str(tmp_path / "here"))
    assert said(capsys, file, "--workers", "2", "--out", str(tmp_path / "local")) == here
    with LocalCluster(2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as made:
        words = ["--scheduler", made.scheduler_address, "--out", str(tmp_path / "there")]
        assert said(capsys, file, *words) == here


def test_it_does_what_train_does(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = said(capsys, str(place / "s.toml"), "--out", str(place / "runs" / "s"), "--workers", "1")["table"]
    small = ["--task-set", "size=7", "--task-set", "limit=20", "--task-set", "test_limit=10", "--epochs", "1"]
    words = ["train", "--model", "lipschitz", "--hidden", "3", "--seed", "1", *small, "--out", str(tmp_path / "run")]
    assert cli.run([*words, "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    names = ("train_loss", "test_loss", "test_metric", "parameters")
    assert [table[3][name] for name in names] == [trained[name] for name in names]


def test_other_commands_take_a_training_of_a_sweep(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = said(capsys, str(place / "s.toml"), "--workers", "1", "--out", str(place / "runs" / "s"))["table"]
    job = list(Sweep.read(place / "s.toml").rows())[3].job
    assert cli.run(["certify", str(place / "runs" / "s" / "runs" / job.id), "--json"]) in (0, 1, 3)
    assert json.loads(capsys.readouterr().out)["verdict"] == table[3]["verdict"]


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("models = ['nothing']\ntasks = ['digits']", [], "unknown model 'nothing'"),
        (FILE, ["--status"], "no results of a sweep"),
        (FILE, ["--workers", "0"], "--workers must be at least 1"),
        (FILE, ["--scheduler", "nowhere"], "no Dask scheduler at nowhere"),
        (FILE, ["--out", "."], "not empty and holds no sweep"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch, text: str, words: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stability.analysis.jobs.CONNECT_SECONDS", 0.2)
    Path("s.toml").write_text(text)
    assert cli.run(["sweep", "s.toml", *words]) == 2
    told = capsys.readouterr().err
    assert line in told
    assert len(told.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["report", "--quick", "--scheduler", "nowhere"], "no Dask scheduler at nowhere"),
        (["report", "--redraw", "runs/s", "--scheduler", "nowhere"], "leave out --scheduler"),
    ],
)
def test_reports_refuse_a_scheduler_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch, words: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stability.analysis.jobs.CONNECT_SECONDS", 0.2)
    assert cli.run(words) == 2
    told = capsys.readouterr().err
    assert line in told
    assert len(told.strip().splitlines()) == 1
