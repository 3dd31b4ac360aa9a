"""``--data FILE.npz``: which models it fits, and what is done with the data once they are in."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from stability.analysis.campaign.budgets import BUDGETS
from stability.models import ElmanRNN, SequenceModel, save
from stability.models.sources import load_module
from stability.reports import cli
from stability.reports.stored.collect import collect
from stability.storage.documents import file_digest

from ..own_nets import MODULE, SMALL, arrays


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("one", "2 classes"),
        ("per_step", "last step"),
        ("broken", "KeyError"),
        ("diverging", "NaN or infinite"),
    ],
)
def test_models_that_do_not_fit_are_refused_in_one_line(
    model: str, says: str, own_nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["report", "--quick", "--out", "r"], ["noise"], ["attack"], ["hessian"]):
        assert cli.run([command[0], f"ownnets:{model}", "--data", "good.npz", *command[1:]]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert says in err


@pytest.mark.parametrize(
    "more", [["--task", "digits"], ["--task-set", "size=7"], ["--data-dir", "."]], ids=lambda words: words[0]
)
@pytest.mark.parametrize("command", ["report", "noise", "attack", "hessian", "compare", "train"])
def test_data_named_twice_are_refused(
    command: str, more: list[str], own_nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = {"train": [], "compare": ["ownnets:three"] * 2}.get(command, ["ownnets:three"])
    assert cli.run([command, *models, "--data", "good.npz", *more]) == 2
    err = capsys.readouterr().err
    assert f"--data and {more[0]} " in err
    assert err.count("\n") == 1


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory):
    """A classifier and a bare layer, examined on one file."""
    folder = tmp_path_factory.mktemp("examined")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(BUDGETS, "quick", SMALL)
        (folder / "ownnets.py").write_text(MODULE)
        np.savez(folder / "good.npz", **arrays(classes=np.array(["walk", "run", "sit"])))
        command = ["report", "ownnets:three", "ownnets:gru", "--data", "good.npz", "--seed", "1"]
        assert cli.run([*command, "--quick", "--processes", "1", "--out", "r", "-q"]) == 0
        network = load_module("ownnets:three")
    sys.modules.pop("ownnets", None)
    return folder, network


def test_the_report_on_own_data_says_what_the_data_are_and_what_the_model_does_on_them(examined) -> None:
    folder, network = examined
    page = (folder / "r" / "report.html").read_text(encoding="utf-8")
    digest, m = file_digest(folder / "good.npz"), collect(folder / "r").models[0]
    assert digest in page
    assert digest in (folder / "r" / "report-settings.json").read_text()
    data = np.load(folder / "good.npz")
    with torch.no_grad():
        inputs = network.get_submodule("scale")(torch.from_numpy(data["x"]))
        right = (network(torch.from_numpy(data["x"])).argmax(1).numpy() == data["y"]).mean()
    assert m.performance["value"] == pytest.approx(right)
    assert m.performance["chance"] == pytest.approx(1 / 3)
    assert f"{100 * right:.1f} %" in page
    assert "accuracy on good.npz" in page
    by_class = {c["name"]: c for c in m.performance["by_class"]}
    assert by_class.keys() == {"walk", "run", "sit"}
    assert sum(c["accuracy"] * c["sequences"] for c in by_class.values()) == pytest.approx(24 * right)
    levels = sorted(set(m.frames["noise"].query("noise == 'white'").level))
    np.testing.assert_allclose(levels, [0, 0.5], rtol=1e-6)  # standard deviations
    shares = sorted(set(m.frames["noise"].query("noise == 'salt_pepper'").level))
    np.testing.assert_allclose(shares, [0, 0.5])
    radii = sorted(set(m.frames["attacks"].query("norm == 'linf'").epsilon))
    np.testing.assert_allclose(radii, [0, 0.1], rtol=1e-6)
    clean = m.frames["noise"].query("level == 0").accuracy
    np.testing.assert_allclose(clean, right)  # 30 samples were allowed, so all 24 were looked at
    low, high = m.analysis["input_box"]  # the promise is about what the GRU gets, not about the data before the Linear
    assert (low, high) == pytest.approx((float(inputs.min()), float(inputs.max())))
    assert m.analysis["input_of"] == "rnn"
    assert "Inputs of rnn in" in page
    assert m.analysis["input_range"] == pytest.approx([data["x"].min(), data["x"].max()])


def test_stated_bounds_and_test_parts_are_the_ones_in_use(own_nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, test = arrays(), arrays(12, seed=5)
    np.savez(own_nets / "parts.npz", **train, x_test=test["x"], y_test=test["y"], lower=-50.0, upper=50.0)
    network = load_module("ownnets:three")
    assert network is not None
    with torch.no_grad():
        right = (network(torch.from_numpy(test["x"])).argmax(1).numpy() == test["y"]).mean()
        loss = torch.nn.functional.cross_entropy(network(torch.from_numpy(train["x"])), torch.from_numpy(train["y"]))
    for command in ("noise", "attack"):
        assert cli.run([command, "ownnets:three", "--data", "parts.npz", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["n"] == 12
        assert found["accuracy"][0] == pytest.approx(right)
        assert found["sizes"][-1] == pytest.approx(40.0 if command == "noise" else 10.0)
    assert cli.run(["hessian", "ownnets:three", "--data", "parts.npz", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] == 24
    assert found["loss"] == pytest.approx(float(loss), rel=1e-5)


def test_values_are_never_called_accuracy(own_nets: Path) -> None:
    data = arrays()
    y = data["x"].mean((1, 2))
    np.savez(own_nets / "values.npz", x=data["x"], y=y)
    command = ["report", "ownnets:one", "--data", "values.npz", "--quick", "--processes", "1", "--out", "r", "-q"]
    assert cli.run(command) == 0
    page, m = (own_nets / "r" / "report.html").read_text(encoding="utf-8"), collect(own_nets / "r").models[0]
    network = load_module("ownnets:one")
    assert network is not None
    with torch.no_grad():
        error = float(((network(torch.from_numpy(data["x"]))[:, 0].numpy() - y) ** 2).mean())
    assert m.performance["metric"] == "mse"
    assert m.performance["value"] == pytest.approx(error, rel=1e-5)
    assert m.performance["chance"] == pytest.approx(float(np.var(y)), rel=1e-5)
    body = page[page.index('id="verdicts"') : page.index('id="method-words"')]
    assert "ccuracy" not in body
    assert "mean squared error on values.npz" in body
    assert "has real targets" in body
    assert m.step("hessian")["status"] == "done"
    assert "noise" not in m.frames
    clean = m.frames["noise_scores"].set_index(["noise", "level"])["score"]["white", 0.0]
    assert clean == pytest.approx(error, rel=1e-5)
    assert "<caption>Mean squared error</caption>" in body


@pytest.mark.slow
def test_results_of_other_data_are_not_mixed(own_nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["report", "ownnets:three", "--data", "good.npz", "--quick", "--processes", "1", "--out", "r", "-q"]
    assert cli.run(command) == 0
    first = (own_nets / "r" / "models" / "ownnets-three" / "analysis.json").read_bytes()
    (own_nets / "elsewhere").mkdir()
    (own_nets / "good.npz").rename(own_nets / "elsewhere" / "moved.npz")
    moved = [part.replace("good.npz", "elsewhere/moved.npz") for part in command]
    assert cli.run(moved) == 0  # the same data, wherever they lie
    assert (own_nets / "r" / "models" / "ownnets-three" / "analysis.json").read_bytes() == first
    np.savez(own_nets / "good.npz", **arrays(seed=7))
    assert cli.run(command) == 2
    assert "other settings" in capsys.readouterr().err
    assert (own_nets / "r" / "models" / "ownnets-three" / "analysis.json").read_bytes() == first


def test_training_on_own_data_holds_a_fifth_out_and_goes_on(own_nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "train",
        "--model",
        "elman",
        "--hidden",
        "4",
        "--data",
        "good.npz",
        "--epochs",
        "1",
        "--out",
        "run",
        "-q",
    ]
    assert cli.run(command) == 0
    document = json.loads((own_nets / "run" / "run.json").read_text())
    assert (document["task"]["train"], document["task"]["test"]) == (19, 5)
    assert document["task"]["options"]["digest"] == file_digest(own_nets / "good.npz")
    assert cli.run(["noise", "run", "--data", "good.npz", "--levels", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["n"] == 5  # the held-out part of the run, not all of the file
    assert found["accuracy"] == [pytest.approx(document["result"]["test_metric"])]
    (own_nets / "good.npz").rename(own_nets / "moved.npz")
    assert cli.run(["train", "--resume", "run", "--epochs", "2", "-q"]) == 2
    assert "good.npz" in capsys.readouterr().err
    assert cli.run(["train", "--resume", "run", "--epochs", "2", "--data", "moved.npz", "-q"]) == 0
    np.savez(own_nets / "moved.npz", **arrays(seed=3))
    assert cli.run(["train", "--resume", "run", "--epochs", "3", "--data", "moved.npz", "-q"]) == 2
    assert "has changed since the run began" in capsys.readouterr().err
    assert len(pd.read_csv(own_nets / "run" / "metrics.csv")) == 2


@pytest.mark.parametrize(
    "command",
    [["radius"], ["noise"], ["attack"], ["hessian"], ["report", "--quick", "--out", "r"], ["compare", "m.safetensors"],
     ["certify", "--input-box", "data"], ["train", "--set", "until_certified=true", "--from"]],
    ids=lambda command: command[0],
)  # fmt: skip
def test_another_number_of_features_is_said_in_both_numbers(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(SequenceModel(ElmanRNN(3, 4), 2), "m.safetensors")
    np.savez("two.npz", x=np.random.default_rng(0).random((6, 5, 2)), y=np.arange(6) % 2)
    assert cli.run([*command, "m.safetensors", "--data", "two.npz"]) == 2
    err = capsys.readouterr().err
    assert "the data have 2 features a step, " in err
    assert "takes 3" in err
    assert err.count("\n") == 1
