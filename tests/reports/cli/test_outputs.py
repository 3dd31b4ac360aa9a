"""``stability certify -o``: a certificate replaces a certificate, and nothing that would be lost."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

from stability.certificate import Certificate
from stability.models import ElmanRNN, SequenceModel, save
from stability.reports import cli


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("ok.npz", A=-2.0 * np.eye(2), W=0.5 * np.eye(2), U=np.eye(2))
    np.savez("other.npz", A=-3.0 * np.eye(2), W=0.5 * np.eye(2))
    np.savez("data.npz", x=np.zeros((2, 3, 2)), y=np.zeros(2, dtype=int))
    Path("box.txt").write_text("0 1\n0 1\n")
    os.symlink("ok.npz", "link.json")
    os.link("ok.npz", "hard.json")
    run = tmp_path / "runs" / "victim"
    run.mkdir(parents=True)
    save(SequenceModel(ElmanRNN(2, 3), 2), run / "model.safetensors")
    os.link(run / "model.safetensors", "weights.json")
    Path("notes.json").write_text("{}\n")
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refused(here: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """A command that must leave all as it is; returns its one line."""
    before = files(here)
    assert cli.run(["certify", *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert files(here) == before
    return err


@pytest.mark.parametrize(
    "words",
    [
        ["ok.npz", "-o", "ok.npz"],
        ["ok.npz", "-o", "./runs/../ok.npz"],
        ["ok.npz", "-o", "link.json"],
        ["ok.npz", "-o", "hard.json"],
        ["link.json", "-o", "ok.npz"],
        ["runs/victim", "-o", "runs/victim/model.safetensors"],
        ["runs/victim", "-o", "weights.json"],
        ["runs/victim/model.safetensors", "-o", "weights.json"],
        ["ok.npz", "--input-box", "data", "--data", "data.npz", "-o", "data.npz"],
        ["ok.npz", "--input-box", "box.txt", "-o", "box.txt"],
    ],
)
@pytest.mark.parametrize("allowed", [[], ["--overwrite"]])
def test_what_is_read_is_never_written_to(
    words: list[str], allowed: list[str], here: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(
        importlib.import_module("stability.certification"),
        "certify",
        lambda *a, **k: pytest.fail("it was computed first"),
    )
    assert "would replace an input" in refused(here, capsys, *words, *allowed)


def test_a_file_that_is_no_certificate_is_replaced_on_request_only(here: Path, monkeypatch, capsys) -> None:
    assert "--overwrite" in refused(here, capsys, "ok.npz", "-o", "notes.json")
    assert "--overwrite" in refused(here, capsys, "ok.npz", "-o", "other.npz")
    assert cli.run(["certify", "ok.npz", "-o", "notes.json", "--overwrite", "-q"]) == 0
    assert Certificate.load("notes.json").rate is not None


def test_a_certificate_and_an_empty_file_are_replaced(here: Path, capsys) -> None:
    Path("empty").touch()
    assert cli.run(["certify", "ok.npz", "-o", "empty", "-q"]) == 0
    rate = Certificate.load("empty").rate
    assert cli.run(["certify", "other.npz", "-o", "empty", "-q"]) == 0
    assert Certificate.load("empty").rate != rate
    inside = "runs/victim/certificate.json"
    codes = {cli.run(["certify", "runs/victim", "-o", inside, "-q", "--no-refute", "--time-limit", "5"]) for _ in "ab"}
    assert codes < {0, 1}
    Certificate.load(inside)


def test_of_several_models_the_folder_keeps_what_is_no_certificate(here: Path, capsys) -> None:
    Path("out").mkdir()
    Path("out/001-other.certificate.json").write_text("mine")
    err = refused(here, capsys, "ok.npz", "other.npz", "-o", "out")
    assert "001-other" in err
    assert "cannot create the folder" in refused(here, capsys, "ok.npz", "other.npz", "-o", "ok.npz")
    assert cli.run(["certify", "ok.npz", "other.npz", "-o", "out", "--overwrite", "-q"]) == 0
    assert cli.run(["certify", "ok.npz", "other.npz", "-o", "out", "-q"]) == 0
    assert len(list(Path("out").iterdir())) == 2
