"""``stability radius --proofs`` into a folder with proofs: none is lost that is not asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from stability.analysis.radius import local
from stability.local.balls import ENGINES
from stability.local.files import verify_folder
from stability.models.files import save
from stability.models.lru import LRU
from stability.models.network import SequenceModel
from stability.reports import cli

from ...stability.local.affine_toy import engine, toy_rule
from .test_radius import answer, here

__all__ = ["here", "toy_rule"]


def held(folder: str = "p") -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(folder).iterdir() if file.name != ".stability.json"}


def radii() -> dict[int | None, float | None]:
    return {s.index: s.radius for s in verify_folder("p").samples}


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """A run that must end before it computes, with the folder as it was; its line."""
    before = held()
    with monkeypatch.context() as patch:
        patch.setattr(local, "attack_radii", lambda *a, **k: pytest.fail("it was computed first"))
        assert cli.run(["radius", "net.safetensors", "--data", "data.npz", "--proofs", "p", *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "--overwrite" in err
    assert held() == before
    return err


def test_fewer_samples_keep_the_proofs_of_more(here: Path, capsys) -> None:
    answer(capsys, "--proofs", "p")
    before = held()
    assert len(before) == 5
    assert cli.run(["radius", "net.safetensors", "--data", "data.npz", "--proofs", "p", "--samples", "2"]) == 0
    out = capsys.readouterr().out
    assert "4 proofs in p" in out
    assert "2 of them are of earlier runs" in out
    assert held() == before
    assert verify_folder("p").valid


def test_more_samples_are_added(here: Path, capsys) -> None:
    answer(capsys, "--proofs", "p", "--samples", "1")
    assert list(radii()) == [0]
    answer(capsys, "--proofs", "p")
    assert list(radii()) == [0, 1, 2, 4]
    assert verify_folder("p").valid


def test_the_larger_radius_stays_whoever_comes_last(here: Path, monkeypatch, capsys) -> None:
    answer(capsys, "--proofs", "p")
    large, before = radii(), held()
    monkeypatch.setitem(ENGINES, "l2", engine("l2", 0.5))
    assert cli.run(["radius", "net.safetensors", "--data", "data.npz", "--proofs", "p"]) == 0
    assert "4 of these stay, since this run proves less" in capsys.readouterr().out
    assert held() == before
    answer(capsys, "--proofs", "p", "--overwrite")
    small = radii()
    assert all(small[k] < large[k] for k in large)
    monkeypatch.setitem(ENGINES, "l2", engine("l2"))
    assert cli.run(["radius", "net.safetensors", "--data", "data.npz", "--proofs", "p"]) == 0
    assert "stay" not in capsys.readouterr().out
    assert radii() == large


def test_proofs_of_another_network_are_refused_before_anything_is_computed(here: Path, monkeypatch, capsys) -> None:
    answer(capsys, "--proofs", "p")
    torch.manual_seed(1)
    save(SequenceModel(LRU(2, 4), 3).double(), here / "net.safetensors")
    assert "another network" in refused(capsys, monkeypatch)
    answer(capsys, "--proofs", "p", "--overwrite", "--samples", "3")
    assert verify_folder("p").valid
    assert not Path("p/sample-00004.json").exists()


@pytest.mark.parametrize("harm", ["damaged", "gone"])
def test_a_network_that_cannot_be_read_is_another_one(harm: str, here: Path, monkeypatch, capsys) -> None:
    answer(capsys, "--proofs", "p")
    if harm == "damaged":
        Path("p/network.json").write_text("{")
        assert "another network" in refused(capsys, monkeypatch)
    else:  # its proofs name it
        Path("p/network.json").unlink()
        answer(capsys, "--proofs", "p", "--samples", "1")
        assert len(radii()) == 4
        assert verify_folder("p").valid


@pytest.mark.parametrize("other", ["norm", "mask", "x"])
def test_proofs_about_something_else_are_refused(other: str, here: Path, monkeypatch, capsys) -> None:
    answer(capsys, "--proofs", "p")
    words = []
    if other == "norm":
        words = ["--norm", "linf"]
    elif other == "mask":
        np.save("m.npy", np.eye(3, 2, dtype=bool))
        words = ["--mask", "m.npy"]
    else:
        held_data = dict(np.load("data.npz"))
        held_data["x"] = held_data["x"] + 1e-9
        np.savez("data.npz", **held_data)
    assert "about another input, norm, budget or mask" in refused(capsys, monkeypatch, *words)
    if other != "mask":  # the toy knows none
        answer(capsys, "--proofs", "p", "--overwrite", *words)
        assert verify_folder("p").valid


def test_a_proof_that_is_damaged_is_made_again(here: Path, capsys) -> None:
    answer(capsys, "--proofs", "p")
    before = held()
    Path("p/sample-00001.json").write_text("{}")
    answer(capsys, "--proofs", "p")
    assert held() == before


def test_a_file_of_somebody_else_is_refused_as_ever(here: Path, monkeypatch, capsys) -> None:
    answer(capsys, "--proofs", "p", "--samples", "1")
    Path("p/sample-00002.json").write_text("mine")
    assert "sample-00002.json" in refused(capsys, monkeypatch)
