"""``stability radius --proofs`` into a folder with proofs: none is lost that is not asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from stability.analysis.radius import local
from stability.certificate import claim_document
from stability.models.files import save
from stability.models.lru import LRU
from stability.models.network import SequenceModel
from stability.proposals import propose
from stability.reports import cli
from stability.search.local.largest_radius import ENGINES
from stability.search.local.proof_folder import read_network, read_sample, sample_file, verify_folder

from ...stability.search.local.affine_toy import KIND, engine, toy_rule
from ...stability.search.local.test_proof_folder import resealed
from .test_radius import answer, here

__all__ = ["here", "toy_rule"]


PACKING = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence

class Packing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head = torch.nn.RNN(2, 3, batch_first=True), torch.nn.Linear(3, 2)
        with torch.no_grad():
            self.head.bias[0] = 5.0

    def forward(self, x):
        own = (x != 0).any(2).sum(1)
        return self.head(self.rnn(pack_padded_sequence(x, own, batch_first=True, enforce_sorted=False))[1][-1])

def load():
    return Packing()
"""


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


def forge(index: int, share: float) -> None:
    """A proof in a good seal, of a radius that many times the one of the proof that is there."""
    place = Path("p") / sample_file(index)
    subject, digest = read_network(Path("p"))
    data = read_sample(place, digest)[1].proof.data
    made = propose(subject, KIND, {**data, "radius": share * data["radius"]})
    resealed(place, lambda d: d.update(claim=claim_document(made)))


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.run(["radius", "net.safetensors", "--data", "data.npz", "--proofs", "p", *words]) == 0
    return capsys.readouterr().out


def test_fewer_samples_keep_the_proofs_of_more(here: Path, capsys) -> None:
    answer(capsys, "--proofs", "p")
    before = held()
    assert len(before) == 5
    assert cli.run(["radius", "net.safetensors", "--data", "data.npz", "--proofs", "p", "--samples", "2"]) == 0
    out = capsys.readouterr().out
    assert "4 proofs in p" in out
    assert "2 of them come from earlier runs" in out
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
    assert "4 earlier proofs stay" in capsys.readouterr().out
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


def test_an_older_proof_that_does_not_hold_is_replaced(here: Path, monkeypatch, capsys) -> None:
    answer(capsys, "--proofs", "p")
    before = radii()
    forge(0, 2.0)
    assert not verify_folder("p").valid
    monkeypatch.setitem(ENGINES, "l2", engine("l2", 0.5))  # the others hold, and say more
    out = told(capsys)
    assert "1 replace older files that are damaged" in out
    assert "3 earlier proofs stay" in out
    assert verify_folder("p").valid
    after = radii()
    assert after[0] == pytest.approx(before.pop(0) * 0.5 / 0.9)
    assert {k: after[k] for k in before} == before


def test_proofs_of_packed_sequences_are_about_their_own_steps(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("packing.py").write_text(PACKING)
    x = np.random.default_rng(0).normal(size=(2, 3, 2))
    x[1, 1:] = 0
    words = ["radius", "packing.py:load", "--data", "data.npz", "--proofs", "p", "--time-limit", "1"]
    np.savez("data.npz", x=x, y=np.zeros(2, dtype=int))
    assert cli.run(words) == 0
    assert "2 proofs in p" in capsys.readouterr().out
    assert cli.run(words) == 0
    assert "replace" not in capsys.readouterr().out
    x[1, 1] = 1.0  # one more step
    np.savez("data.npz", x=x, y=np.zeros(2, dtype=int))
    assert cli.run(words) == 2
    assert "sample-00001.json, proved about another input" in capsys.readouterr().err
