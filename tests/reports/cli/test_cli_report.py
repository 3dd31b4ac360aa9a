"""``stability report``: given models, trained ones, interruption, and the main job as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from stability.analysis.campaign.budgets import BUDGETS, Budget
from stability.reports import cli
from stability.reports.stored.collect import collect
from stability.verification import verify

SMALL = Budget(
    samples=20, attacked=10, curved=10, certified=6, gated=2, draws=2, levels=(0.0, 0.3), epsilons_linf=(0.0, 0.1),
    epsilons_l2=(0.0, 1.0), steps=2, stretch=3, iterations=5, probes=2, trajectories=2, program_states=0,
)  # fmt: skip
TINY = ["--task-set", "size=7", "--task-set", "limit=60", "--task-set", "test_limit=30"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(BUDGETS, "quick", SMALL)
    np.savez(tmp_path / "stable.npz", A=-2.0 * np.eye(3), W=0.5 * np.eye(3))
    np.savez(tmp_path / "unstable.npz", A=-1.0 * np.eye(3), W=1.5 * np.eye(3))
    return tmp_path


def test_seeds_are_of_trainings_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", "stable.npz", "--seeds", "2", "--out", "r"]) == 2
    assert "--models" in capsys.readouterr().err
    assert cli.run(["report", "--redraw", "r", "--seeds", "2"]) == 2
    assert "leave out --seeds" in capsys.readouterr().err
    assert not (here / "r").exists()


def test_given_models_of_every_kind(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "--model", "elman", "--hidden", "6", "--epochs", "1", "--out", "run", "-q", *TINY]) == 0
    capsys.readouterr()
    command = ["report", "run", "unstable.npz", "stable.npz", "--quick", "--processes", "1", "--out", "r"]
    assert cli.run(command) == 0
    text = capsys.readouterr().out
    assert text.index("stable: Proven stable\n") < text.index("\nunstable: Proven not stable\n")
    assert text.endswith("r/report.html\n")
    report = collect(here / "r")
    assert [m.name for m in report.models] == ["run", "unstable", "stable"]
    assert report.models[0].run["result"]["epochs"] == 1
    assert "spectra" in report.models[0].frames
    for m in report.models:
        if m.verdict != "inconclusive":
            assert verify(m.folder / "certificate.json").valid
    assert "no network to run was given" in (here / "r" / "report.html").read_text()


def test_a_regression_is_measured_by_its_error(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adding = ["--task", "adding", "--task-set", "steps=6", "--task-set", "train=40", "--task-set", "test=20"]
    command = ["train", "--model", "elman", "--hidden", "4", "--epochs", "1", "--out", "run", *adding]
    assert cli.run(command) == 0
    assert "held-out mean squared error " in capsys.readouterr().out
    assert cli.run(["report", "run", "--quick", "--out", "r"]) == 0
    text = capsys.readouterr().out
    assert "held-out mean squared error " in text
    page = (here / "r" / "report.html").read_text(encoding="utf-8")
    assert "needs classes, and task adding has real targets" in page
    body = page[page.index("<main>") : page.index('<section id="method"')]
    assert "mean squared error" in body
    assert "ccuracy" not in body


def test_a_retrained_model_is_never_shown_with_old_results(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["report", "m.npz", "--quick", "--out", "r", "--json"]
    verdicts = []
    for weight in (0.5, 1.5):
        np.savez(here / "m.npz", A=-1.0 * np.eye(2), W=weight * np.eye(2))
        assert cli.run(command) == 0
        verdicts.append(json.loads(capsys.readouterr().out)["models"][0]["verdict"])
    assert verdicts == ["certified", "refuted"]


def test_done_again_it_only_draws(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["report", "stable.npz", "--quick", "--out", "r", "--json"]
    assert cli.run(command) == 0
    first = json.loads(capsys.readouterr().out)
    stamp = (here / "r" / "models" / "stable" / "certificate.json").stat().st_mtime_ns
    assert cli.run(command) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert (here / "r" / "models" / "stable" / "certificate.json").stat().st_mtime_ns == stamp
    (here / "r" / "report.html").unlink()
    assert cli.run(["report", "--redraw", "r", "--quiet"]) == 0
    assert (here / "r" / "report.html").is_file()


def test_other_settings_need_another_place(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", "stable.npz", "--quick", "--out", "r", "--quiet"]) == 0
    assert cli.run(["report", "stable.npz", "--quick", "--out", "r", "--seed", "1"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert cli.run(["report", "stable.npz", "--quick", "--out", "r", "--seed", "1", "--overwrite", "--quiet"]) == 0


@pytest.mark.parametrize("place", ["stable.npz", ".", "stable.npz/below"])
def test_places_that_cannot_be(here: Path, capsys: pytest.CaptureFixture[str], place: str) -> None:
    before = sorted(p.name for p in here.iterdir())
    assert cli.run(["report", "stable.npz", "--out", place]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(p.name for p in here.iterdir()) == before


def test_interrupted_it_says_what_was_kept(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(text: str, quiet: bool = False) -> None:
        if "unstable: " in text:
            raise KeyboardInterrupt

    monkeypatch.setattr("stability.reports.cli.console.status", stop)
    command = ["report", "stable.npz", "unstable.npz", "--quick", "--processes", "1", "--out", "r"]
    monkeypatch.setattr("sys.argv", ["stability", *command])
    assert cli.run(command) == 130
    line = capsys.readouterr().err
    assert "kept in r (stable); continue with: stability report stable.npz" in line
    assert not (here / "r" / "report.html").exists()
    monkeypatch.undo()
    monkeypatch.chdir(here)
    monkeypatch.setitem(BUDGETS, "quick", SMALL)
    assert cli.run([*command, "--quiet"]) == 0
    assert [m.name for m in collect(here / "r").models] == ["stable", "unstable"]


def test_a_bad_model_among_good_ones_stops_before_anything(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", "stable.npz", "missing.npz", "--out", "r"]) == 2
    assert "missing.npz" in capsys.readouterr().err
    assert not (here / "r").exists()


@pytest.mark.parametrize("device", ["nowhere", "meta", "cuda:99"])
@pytest.mark.parametrize("command", [["report", "stable.npz"], ["report"], ["train", "--resume", "run"]])
def test_a_device_that_is_not_there_stops_before_anything(
    here: Path, capsys: pytest.CaptureFixture[str], command: list[str], device: str
) -> None:
    before = sorted(p.name for p in here.iterdir())
    assert cli.run([*command, "--device", device]) == 2
    assert f"device {device} " in capsys.readouterr().err
    assert sorted(p.name for p in here.iterdir()) == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_report_computed_on_a_device(here: Path) -> None:
    """The same verdict and nearly the same numbers as on the processor, of a trained and of a given model."""
    assert cli.run(["train", "--model", "elman", "--hidden", "6", "--epochs", "1", "--out", "run", "-q", *TINY]) == 0
    trained = ["report", "--models", "contracting", "--task", "digits", *TINY]
    for name, command in (("given", ["report", "run", "stable.npz"]), ("trained", trained)):
        found = []
        for device in ("cpu", "cuda"):
            folder = here / f"{name}-{device}"
            common = ["--quick", "--processes", "1", "--device", device, "--out", str(folder), "-q"]
            assert cli.run([*command, *common]) == 0
            found.append(collect(folder).models)
        for cpu, cuda in zip(*found):
            assert cuda.verdict == cpu.verdict
            assert cuda.analysis["steps"].keys() == cpu.analysis["steps"].keys()
            for step, outcome in cpu.analysis["steps"].items():
                assert cuda.analysis["steps"][step]["status"] == outcome["status"], step
            if name == "given" and "noise" in cpu.frames:
                np.testing.assert_allclose(cuda.frames["noise"].accuracy, cpu.frames["noise"].accuracy, atol=0.051)


@pytest.mark.slow
def test_the_main_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All three verdicts, all models well above chance, all certificates verified again."""
    assert cli.run(["report", "--quick", "--out", str(tmp_path / "r")]) == 0
    report = collect(tmp_path / "r")
    assert {m.verdict for m in report.models} == {"certified", "refuted", "inconclusive"}
    for m in report.models:
        assert m.run["result"]["test_metric"] > 0.7
        assert verify(m.folder / "certificate.json").valid or m.verdict == "inconclusive"
    text = (tmp_path / "r" / "models" / "contracting" / "certificate.json").read_text()
    at = text.index('"rate": 0.') + len('"rate": 0.')
    (tmp_path / "changed.json").write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
    assert not verify(tmp_path / "changed.json").valid
