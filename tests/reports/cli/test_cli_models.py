"""Commands that train and measure, on tasks small enough for a test."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from stability.analysis.training.runs import ANALYSIS
from stability.models import ElmanRNN, SequenceModel, save
from stability.reports import cli
from stability.storage.artifacts import ARTIFACTS
from stability.storage.folder import claim_folder

TINY = ["--task-set", "size=7", "--task-set", "limit=60", "--task-set", "test_limit=30", "--hidden", "6"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small trained models, and one that was never trained."""
    folder = tmp_path_factory.mktemp("runs")
    for model in ("elman", "lipschitz"):
        out = str(folder / model)
        assert cli.run(["train", "--model", model, "--epochs", "2", "--quiet", "--out", out, *TINY]) == 0
    torch.manual_seed(0)
    save(SequenceModel(ElmanRNN(7, 5), 10), folder / "untrained.safetensors")
    return folder


def assert_same_weights(one: Path, other: Path) -> None:
    """To the last bit; the files themselves may order their metadata differently."""
    a, b = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_training_leaves_a_run_that_everything_else_reads(runs: Path) -> None:
    document = json.loads((runs / "elman" / "run.json").read_text())
    assert document["result"]["epochs"] == 2
    assert document["task"]["options"]["size"] == 7
    names = {p.name for p in (runs / "elman").iterdir()}
    assert {"model.safetensors", "run.json", "metrics.csv", "spectra.csv", "eigenvalues.csv"} <= names


def test_a_run_is_not_overwritten_by_accident(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (runs / "elman" / "run.json").read_bytes()
    assert cli.run(["train", "--model", "elman", "--out", str(runs / "elman"), *TINY]) == 2
    assert "another folder" in capsys.readouterr().err
    assert (runs / "elman" / "run.json").read_bytes() == before


def test_an_overwritten_run_loses_what_was_said_about_the_old_one(tmp_path: Path) -> None:
    command = ["train", "--model", "elman", "--epochs", "1", "--quiet", "--out", str(tmp_path), *TINY]
    assert cli.run(command) == 0
    assert len(_analysis_files()) >= 12
    with claim_folder(tmp_path, "report") as folder:
        folder.reserve(_analysis_files(), ANALYSIS)
        for name in _analysis_files():
            (tmp_path / name).write_text("about the old run")
    assert cli.run([*command, "--overwrite"]) == 0
    assert not [n for n in _analysis_files() if (tmp_path / n).exists()]


def _analysis_files() -> list[str]:
    """The files that an analysis writes."""
    return [described.name for described in ARTIFACTS if described.step != "training"]


def test_going_on_equals_never_having_stopped(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    command = ["train", "--model", "elman", "--quiet", *TINY]
    cli.run([*command, "--epochs", "3", "--out", str(whole)])
    cli.run([*command, "--epochs", "1", "--out", str(parts)])
    assert cli.run(["train", "--resume", str(parts), "--epochs", "3", "--quiet"]) == 0
    assert_same_weights(whole, parts)


def test_interrupted_training_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(text: str, quiet: bool = False) -> None:
        if text.startswith("epoch 2"):
            raise KeyboardInterrupt

    monkeypatch.setattr("stability.reports.cli.console.status", stop)
    out = tmp_path / "run"
    assert cli.run(["train", "--model", "elman", "--epochs", "4", "--out", str(out), *TINY]) == 130
    line = capsys.readouterr().err
    assert line == (
        f"stability: interrupted: 1 finished epochs are kept in {out}; continue with: stability train --resume {out}\n"
    )
    monkeypatch.undo()
    assert cli.run(["train", "--resume", str(out), "--quiet"]) == 0
    assert json.loads((out / "run.json").read_text())["result"]["epochs"] == 4


def test_noise_and_attack_as_json_and_files(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = str(runs / "elman"), str(tmp_path / "out")
    assert cli.run(["noise", run, "--levels", "0,0.3", "--samples", "20", "--json", "--out", out]) == 0
    noise = json.loads(capsys.readouterr().out)
    assert noise["sizes"] == [0, 0.3]
    assert json.loads((tmp_path / "out" / "noise.json").read_text()) == noise
    assert cli.run(["attack", run, "--epsilons", "0,1", "--samples", "20", "--json"]) == 0
    attack = json.loads(capsys.readouterr().out)
    assert attack["accuracy"][0] == noise["accuracy"][0]
    assert attack["accuracy"][1] <= attack["accuracy"][0]


def test_a_model_without_data_asks_for_a_task(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(runs / "untrained.safetensors")
    assert cli.run(["noise", path]) == 2
    assert "--task" in capsys.readouterr().err
    task = [
        "--task",
        "digits",
        "--task-set",
        "size=7",
        "--task-set",
        "limit=10",
        "--task-set",
        "test_limit=20",
    ]
    assert cli.run(["noise", path, *task, "--quiet"]) == 0
    assert cli.run(["noise", path, "--task", "digits"]) == 2
    assert "input" in capsys.readouterr().err


def test_compare_ranks_by_drift_and_writes_its_figure(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [str(runs / "elman"), str(runs / "lipschitz"), str(runs / "untrained.safetensors")]
    out = tmp_path / "out"
    assert cli.run(["compare", *models, "--time-limit", "2", "--samples", "8", "--json", "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    changes = [abs(math.log(m["norm_factor"])) for m in document["models"]]
    assert changes == sorted(changes)
    assert {m["model"] for m in document["models"]} == {"elman", "lipschitz", "untrained"}
    assert all(m["verdict"] in ("certified", "refuted", "inconclusive") for m in document["models"])
    for kind in ("svg", "pdf", "png", "csv"):
        assert (out / "figures" / f"norm-drift.{kind}").stat().st_size > 1000
    drawn = pd.read_csv(out / "figures" / "norm-drift.csv").groupby("model")["relative_norm"].last()
    assert {m["model"]: pytest.approx(m["norm_factor"]) for m in document["models"]} == dict(drawn)
    page = (out / "compare.html").read_text()
    assert page.count("<table") == page.count("<svg") == 1
    assert all(f"{m['model']} × " in page for m in document["models"])
    accuracies = {m["model"]: m["accuracy"] for m in document["models"]}
    assert cli.run(["compare", models[0], "--time-limit", "0", "--samples", "4"]) == 0
    text = capsys.readouterr().out
    assert "norm changes by a factor" in text
    assert f"{100 * accuracies['elman']:.1f} %" in text or accuracies["elman"] in (0, 1)


def test_a_trained_run_is_certified_or_refuted_by_name(runs: Path, tmp_path: Path) -> None:
    certificate = tmp_path / "c.json"
    code = cli.run(["certify", str(runs / "elman"), "-o", str(certificate), "--quiet"])
    assert code in (0, 1, 3)
    if code != 1:
        assert cli.run(["verify", str(certificate), "--quiet"]) == 0
