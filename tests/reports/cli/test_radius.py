"""``stability radius`` and ``stability verify DIR``: from data to proofs and back, and what stands in the way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from stability.analysis.attacks.smallest import attack_radii
from stability.analysis.radius import local
from stability.models.files import save
from stability.models.gated import GRU
from stability.models.lru import LRU
from stability.models.network import SequenceModel
from stability.reports import cli
from stability.search.local.largest_radius import ENGINES

from ...stability.search.local.affine_toy import engine, toy_rule

__all__ = ["toy_rule"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy_rule: None) -> Path:
    monkeypatch.chdir(tmp_path)
    for norm in ("l2", "linf"):
        monkeypatch.setitem(ENGINES, norm, engine(norm))
    monkeypatch.setattr(local, "attack_radii", lambda *a, **k: attack_radii(*a, **{**k, "restarts": 0, "steps": 6}))
    torch.manual_seed(0)
    model = SequenceModel(LRU(2, 4), 3).double()
    save(model, tmp_path / "net.safetensors")
    x = np.random.default_rng(0).normal(size=(5, 3, 2))
    with torch.no_grad():
        y = model(torch.tensor(x)).argmax(1).numpy()
    y[3] = (y[3] + 1) % 3
    np.savez(tmp_path / "data.npz", x=x, y=y)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert cli.run(["radius", "net.safetensors", "--data", "data.npz", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_samples_are_the_rows_of_the_file_in_its_own_precision(here: Path, capsys) -> None:
    document = answer(capsys, "--proofs", "p", "--norm", "linf")
    y = np.load("data.npz")["y"]
    assert [s["label"] for s in document["samples"]] == y.tolist()
    assert [s["index"] for s in document["samples"]] == list(range(5))
    assert [s["correct"] for s in document["samples"]] == [True, True, True, False, True]
    assert document["certified"] is None
    assert cli.run(["verify", "p", "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["valid"]
    assert checked["proved"] == 4
    assert {s["index"]: s["radius"] for s in checked["samples"]} == {
        s["index"]: s["radius"] for s in document["samples"] if s["correct"]
    }
    from stability.search.local.proof_folder import read_network, read_sample

    _, claim = read_sample(here / "p" / "sample-00001.json", read_network(here / "p")[1])
    np.testing.assert_array_equal(claim.proof.data["x"], np.load("data.npz")["x"][1])


def test_an_epsilon_gives_a_count(here: Path, capsys) -> None:
    whole = answer(capsys)
    radii = sorted(s["radius"] for s in whole["samples"])
    document = answer(capsys, "--epsilon", repr(radii[2] / 0.9 * 0.99))
    assert document["certified"] == 3 == sum(s["certified"] for s in document["samples"])
    assert cli.run(["radius", "net.safetensors", "--data", "data.npz", "--epsilon", "0.001"]) == 0
    assert "proved to stay for 4 inputs, altered by an attack for 0, undecided for 0" in capsys.readouterr().out


def test_text_and_files_say_the_same(here: Path, capsys) -> None:
    assert cli.run(["radius", "net.safetensors", "--data", "data.npz", "--out", "r", "--proofs", "p"]) == 0
    out = capsys.readouterr().out
    assert "5 inputs, 4 classified correctly; the radius is the l2 norm" in out
    assert "misclassified" in out
    assert "4 proofs in p" in out
    document = json.loads((here / "r" / "radius.json").read_text())
    assert document["correct"] == 4
    assert len((here / "r" / "radius.csv").read_text().splitlines()) == 6
    assert cli.run(["verify", "p"]) == 0
    out = capsys.readouterr().out
    assert "p: valid" in out
    assert "4 inputs" in out


def test_a_budget_for_each_step_is_asked_proved_and_checked(tmp_path: Path, monkeypatch, capsys) -> None:
    """Radii of steps of an affine network with the engines themselves: on the truth, in the text and in the proofs."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = SequenceModel(LRU(2, 4), 3).double()
    save(model, tmp_path / "net.safetensors")
    x = torch.randn(3, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = model(x).argmax(1)
    np.savez(tmp_path / "data.npz", x=x.numpy(), y=y.numpy())
    whole, step = answer(capsys), answer(capsys, "--budget", "step", "--proofs", "p", "--out", "r")
    assert (whole["budget"], step["budget"]) == ("total", "step")
    assert json.loads((tmp_path / "r" / "radius.json").read_text()) == step
    rows = torch.autograd.functional.jacobian(lambda one: model(one[None])[0], x[0]).numpy()
    logits = model(x).detach().numpy()
    for k, (total, each) in enumerate(zip(whole["samples"], step["samples"])):
        label = int(y[k])
        true = min(
            (logits[k, label] - logits[k, j]) / np.linalg.norm(rows[label] - rows[j], axis=1).sum()
            for j in range(3)
            if j != label
        )
        assert true * (1 - 1e-4) <= each["radius"] <= true <= each["attack_radius"] <= true * (1 + 1e-4)
        assert each["attack_radius"] < 0.9 * total["radius"]
    assert cli.run(["verify", "p", "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)["samples"]
    assert {(one["budget"], one["masked"]) for one in checked} == {("step", None)}
    assert len(checked) == 3
    assert all("at every step t, the class of x + d is" in s["statement"] for s in checked)
    words = ["radius", "net.safetensors", "--data", "data.npz", "--budget", "step"]
    assert cli.run(words) == 0
    assert "l2 norm of the change of every step" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["npy of true", "npz of ones", "npz of several"])
def test_a_mask_is_asked_proved_and_checked(kind: str, tmp_path: Path, monkeypatch, capsys) -> None:
    """Radii of some entries of an affine network with the engines themselves: the exact ones."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = SequenceModel(LRU(2, 4), 3).double()
    save(model, tmp_path / "net.safetensors")
    x = torch.randn(2, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    np.savez(tmp_path / "data.npz", x=x.numpy(), y=model(x).argmax(1).numpy())
    mask = np.array([[1, 0], [0, 0], [1, 1]])
    if kind == "npy of true":
        np.save("m.npy", mask == 1)
    else:
        np.savez("m.npz", **({"mask": mask, "other": x} if "several" in kind else {"free": mask.astype(np.float32)}))
    document = answer(capsys, "--mask", "m.npy" if "npy" in kind else "m.npz", "--proofs", "p")
    assert document["masked"] == 3
    rows = torch.autograd.functional.jacobian(lambda one: model(one[None])[0], x[0]).numpy() * mask
    logits = model(x).detach().numpy()
    for k, one in enumerate(document["samples"]):
        c = one["label"]
        apart = [(logits[k, c] - logits[k, j]) / np.linalg.norm(rows[c] - rows[j]) for j in range(3) if j != c]
        assert min(apart) * (1 - 1e-4) <= one["radius"] <= min(apart) * (1 + 1e-12) <= one["attack_radius"] * (1 + 1e-9)
    assert cli.run(["verify", "p", "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)["samples"]
    assert [one["masked"] for one in checked] == [3, 3]
    assert all("zero outside the mask of the proof" in one["statement"] for one in checked)
    words = ["radius", "net.safetensors", "--data", "data.npz", "--mask", "m.npy" if "npy" in kind else "m.npz"]
    assert cli.run(words) == 0
    assert "perturbed entries of each input: 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    "mask",
    [
        np.ones((3, 3)), np.ones(6), np.zeros((3, 2), dtype=bool), np.full((3, 2), np.nan), np.full((3, 2), 0.5),
        np.full((3, 2), "yes"), {"a": np.ones((3, 2)), "b": np.ones((3, 2))}, b"nonsense", None,
    ],
)  # fmt: skip
def test_masks_that_do_not_fit_are_refused(mask, here: Path, capsys) -> None:
    if isinstance(mask, dict):
        with open("bad.npy", "wb") as handle:
            np.savez(handle, **mask)
    elif isinstance(mask, bytes):
        Path("bad.npy").write_bytes(mask)
    elif mask is not None:
        np.save("bad.npy", mask)
    assert cli.run(["radius", "net.safetensors", "--data", "data.npz", "--mask", "bad.npy", "--proofs", "p"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert not Path("p").exists()


def test_a_broken_proof_is_exit_one(here: Path, capsys) -> None:
    answer(capsys, "--proofs", "p")
    place = here / "p" / "sample-00002.json"
    place.write_text(place.read_text().replace("l2", "linf", 1))
    assert cli.run(["verify", "p"]) == 1
    out = capsys.readouterr().out
    assert "p: INVALID" in out
    assert "✗ sample-00002.json" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--norm", "l1"], "norm"),
        (["--budget", "month"], "--budget"),
        (["--norm", "linf", "--budget", "step"], "--norm l2"),
        (["--bounds", "0", "0.5"], "outside --bounds 0 0.5"),
        (["--epsilon", "-1"], "--epsilon must be a number > 0 and < 1e+12, got -1"),
        (["--time-limit", "0"], "--time-limit must be a number of seconds > 0, got 0"),
        (["--task", "digits"], "--data and --task "),
        (["--data-dir", "."], "--data and --data-dir "),
        (["--proofs", "q", "--out", "q"], "different folders"),
        (["--proofs", "data.npz"], "the folder data.npz"),
        (["--proofs", "mine"], "not made by this command"),
    ],
)
def test_mistakes_are_one_line_and_exit_two(words: list[str], says: str, here: Path, capsys) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "network.json").write_text("{}")
    assert cli.run(["radius", "net.safetensors", "--data", "data.npz", *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert says in err
    assert (here / "mine" / "network.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.zeros((2, 3, 2)), "y": np.zeros(2)}, "integers, a class each"),
        ({"x": np.zeros((2, 3, 2), dtype=int), "y": np.zeros(2, dtype=int)}, "floating"),
        ({"x": np.zeros((2, 6)), "y": np.zeros(2, dtype=int)}, "(n, time, features)"),
        ({"x": np.zeros((2, 3, 2)), "y": np.zeros(3, dtype=int)}, "2 sequences, y 3 classes"),
        ({"x": np.full((2, 3, 2), np.nan), "y": np.zeros(2, dtype=int)}, "NaN"),
        ({"x": np.zeros((2, 3, 2))}, "lacks y"),
        ({"x": np.zeros((2, 3, 2)), "y": np.array([0, 7])}, "labels must lie"),
        ({"x": np.zeros((2, 3, 4)), "y": np.array([0, 1])}, "x must have shape"),
    ],
)
def test_data_that_do_not_fit_are_refused(arrays: dict, says: str, here: Path, capsys) -> None:
    np.savez("bad.npz", **arrays)
    assert cli.run(["radius", "net.safetensors", "--data", "bad.npz"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert says in err


def test_networks_without_one_decision_are_refused(here: Path, capsys) -> None:
    save(SequenceModel(GRU(2, 4), 3, reduction="all"), here / "all.safetensors")
    assert cli.run(["radius", "all.safetensors", "--data", "data.npz"]) == 2
    assert "one class" in capsys.readouterr().err
    np.savez("system.npz", A=-np.eye(2), W=np.eye(2))
    assert cli.run(["radius", "system.npz", "--data", "data.npz"]) == 2
    assert "whole network" in capsys.readouterr().err
    assert cli.run(["verify", "."]) == 2
    assert "neither certificates nor proofs" in capsys.readouterr().err
