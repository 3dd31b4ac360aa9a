"""``--data FILE.npz``: what is refused at the door in one line, and what is done with the data once they are in."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from stability.analysis.pipeline import BUDGETS, Budget
from stability.models.sources import load_module
from stability.reports import cli
from stability.reports.collect import collect
from stability.wire import file_digest

SMALL = Budget(
    samples=30, attacked=8, curved=12, draws=2, levels=(0.0, 0.5), epsilons_linf=(0.0, 0.1), epsilons_l2=(0.0, 1.0),
    steps=2, stretch=2, iterations=4, probes=2, trajectories=2, seconds=0.5,
)  # fmt: skip
MODULE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, outputs, features=3):
        super().__init__()
        self.scale = nn.Linear(features, 2)
        self.rnn = nn.GRU(2, 4, batch_first=True)
        self.head = nn.Linear(4, outputs)

    def forward(self, x):
        return self.head(self.rnn(self.scale(x))[0][:, -1])


def made(outputs, seed=1):
    torch.manual_seed(seed)
    return Net(outputs)


def three():
    return made(3)


def one():
    return made(1)


def double():
    return made(3).double()


class PerStep(Net):
    def forward(self, x):
        return self.head(self.rnn(self.scale(x))[0])


def per_step():
    torch.manual_seed(1)
    return PerStep(3)


class Broken(Net):
    def forward(self, x):
        raise KeyError("no such gate\\nsecond line")


def broken():
    return Broken(3)


class Diverging(Net):
    def forward(self, x):
        return super().forward(x) / 0.0


def diverging():
    return Diverging(3)


def gru():
    torch.manual_seed(1)
    return nn.GRU(3, 4, batch_first=True)
"""


def arrays(n: int = 24, seed: int = 0, **changed: Any) -> dict[str, np.ndarray]:
    """Sequences of three classes, sorted by class, in an odd range."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) * 3 // n
    x = rng.normal(size=(n, 6, 3)).astype(np.float32) + 2.0 * y[:, None, None]
    return {k: v for k, v in {"x": np.float32(4.0) * x.astype(np.float32), "y": y, **changed}.items() if v is not None}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder with a module of networks and a file of data that fit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(BUDGETS, "quick", SMALL)
    (tmp_path / "ownnets.py").write_text(MODULE)
    np.savez(tmp_path / "good.npz", **arrays(classes=np.array(["walk", "run", "sit"])))
    yield tmp_path
    sys.modules.pop("ownnets", None)


def npy(value: np.ndarray, path: Path) -> bytes:
    with path.open("wb") as handle:
        np.lib.format.write_array(handle, value)
    return path.read_bytes()


def write_bad(name: str, path: Path) -> None:
    """A file that something is wrong with."""
    good = arrays()
    x, y = good["x"], good["y"]
    nan, inf, far = x.copy(), x.copy(), x.astype(np.float64)
    nan[3, 2, 1], inf[0, 0, 0], far[0, 0, 0] = np.nan, np.inf, 1e300
    float_y = x.mean((1, 2))
    nan_y = float_y.copy()
    nan_y[2] = np.nan
    changes: dict[str, dict[str, Any]] = {
        "no x": {"x": None},
        "no y": {"y": None},
        "lengths": {"lengths": np.full(24, 6)},
        "unknown key": {"Y": y},
        "escape codes in a key": {"\x1b]0;owned\x07": y},
        "fewer targets": {"y": y[:-1]},
        "two axes": {"x": x[:, :, 0]},
        "four axes": {"x": x[None]},
        "no sequences": {"x": x[:0], "y": y[:0]},
        "no steps": {"x": x[:, :0]},
        "NaN": {"x": nan},
        "infinity": {"x": inf},
        "beyond float32": {"x": far},
        "integers of three axes": {"x": x.astype(np.int16)},
        "tokens": {"x": x[:, :, 0].astype(np.int64)},
        "complex": {"x": x.astype(np.complex64)},
        "text": {"x": x.astype(str)},
        "constant": {"x": np.ones_like(x)},
        "one class": {"y": np.ones(24, dtype=np.int64)},
        "negative class": {"y": y - 1},
        "huge class": {"y": y + 10**12},
        "classes beyond the model's": {"y": y + 1},
        "one-hot": {"y": np.eye(3, dtype=np.int64)[y]},
        "NaN among values": {"y": nan_y},
        "values for a classifier": {"y": float_y},
        "text classes": {"y": np.array(["walk", "run", "sit"])[y]},
        "dates": {"y": y.astype("datetime64[s]")},
        "structured": {"y": np.zeros(24, dtype=[("a", "i4")])},
        "other features": {"x": np.repeat(x, 2, axis=2)},
        "x_test alone": {"x_test": x},
        "tests of other steps": {"x_test": x[:, :3], "y_test": y},
        "tests of another kind": {"x_test": x, "y_test": float_y},
        "too few names": {"classes": np.array(["walk", "run"])},
        "a name twice": {"classes": np.array(["walk", "run", "run"])},
        "names that are numbers": {"classes": np.arange(3)},
        "lower alone": {"lower": -100.0},
        "bounds crossed": {"lower": 100.0, "upper": -100.0},
        "outside the bounds": {"lower": -1.0, "upper": 1.0},
        "bounds that are NaN": {"lower": np.nan, "upper": 1e3},
        "bounds a feature": {"lower": np.full(3, -100.0), "upper": np.full(3, 100.0)},
    }
    if name in changes:
        np.savez(path, **arrays(**changes[name]))
    elif name == "objects":
        np.savez(path, x=x, y=np.array([{"a": 1}] * 24, dtype=object))
    elif name == "a model":
        np.savez(path, A=np.eye(3), W=np.eye(3))
    elif name == "one bare array":
        npy(x, path)
    elif name == "text file":
        path.write_text("x,y\n1,2\n")
    elif name == "empty":
        path.write_bytes(b"")
    elif name == "cut off":
        np.savez(path, **good)
        path.write_bytes(path.read_bytes()[:-200])
    elif name == "a header that lies":
        data = npy(x, path)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", data.replace(b"(24, 6, 3)", b"(24, 9, 9)"))
            archive.writestr("y.npy", npy(y, path.with_suffix(".y")))
    elif name == "x twice":
        np.savez(path, **good)
        with zipfile.ZipFile(path, "a") as archive:
            data = npy(x, path.with_suffix(".x"))
            with pytest.warns(UserWarning, match="Duplicate"):
                archive.writestr("x.npy", data)
    elif name == "a folder":
        path.mkdir()
    elif name == "a pipe":
        os.mkfifo(path)
    else:
        assert name == "not there"


BAD = {
    "no x": "lacks x", "no y": "lacks y", "lengths": "common length", "unknown key": "known names",
    "escape codes in a key": "known names", "fewer targets": "(24, ...)", "two axes": "x[:, :, None]",
    "four axes": "(n, time, features)", "no sequences": "empty", "no steps": "empty", "NaN": "NaN", "infinity": "NaN",
    "beyond float32": "float32", "integers of three axes": "astype", "tokens": "model.embedding(x)",
    "complex": "complex64", "text": "dtype", "constant": "nothing to tell", "one class": "one class",
    "negative class": "numbered from 0", "huge class": "numbered from 0", "classes beyond the model's": "[0, 2]",
    "one-hot": "argmax", "NaN among values": "NaN", "values for a classifier": "astype('int64')",
    "text classes": "dtype", "dates": "neither numbers", "structured": "neither numbers",
    "other features": "ownnets:three",
    "x_test alone": "y_test", "tests of other steps": "x_test", "tests of another kind": "one kind",
    "too few names": "named", "a name twice": "twice", "names that are numbers": "names", "lower alone": "together",
    "bounds crossed": "bounds", "outside the bounds": "spans", "bounds that are NaN": "bounds",
    "bounds a feature": "one number each", "objects": "pickled", "a model": "lacks x and y",
    "one bare array": "numpy.savez", "text file": "numpy.savez", "empty": "numpy.savez", "cut off": ".npz",
    "a header that lies": "claims", "x twice": "twice", "a folder": "no regular file",
    "a pipe": "no regular file", "not there": "No such file",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_data_are_refused_in_one_line(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_bad(name, here / "bad.npz")
    assert cli.run(["report", "ownnets:three", "--data", "bad.npz", "--quick", "--out", "r"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("stability: error: ")
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert BAD[name] in err
    assert out == ""
    assert not (here / "r").exists()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("one", "two logits"),
        ("per_step", "last step"),
        ("broken", "KeyError"),
        ("diverging", "NaN or infinite"),
    ],
)
def test_models_that_do_not_fit_are_refused_in_one_line(
    model: str, says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["report", "--quick", "--out", "r"], ["noise"], ["attack"], ["hessian"]):
        assert cli.run([command[0], f"ownnets:{model}", "--data", "good.npz", *command[1:]]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert says in err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--task", "digits"], "--task both"),
        (["--task-set", "size=7"], "--task-set both"),
        (["--data-dir", "."], "--data-dir both"),
    ],
)
@pytest.mark.parametrize("command", ["report", "noise", "attack", "hessian", "compare", "train"])
def test_data_named_twice_are_refused(
    command: str, more: list[str], says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = {"train": [], "compare": ["ownnets:three"] * 2}.get(command, ["ownnets:three"])
    assert cli.run([command, *models, "--data", "good.npz", *more]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["report", "noise", "hessian"])
def test_options_that_nothing_reads_are_refused(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more, says in ((["--data-dir", "good.npz"], "--data-dir"), (["--task-set", "size=7"], "--task")):
        assert cli.run([command, "ownnets:three", *more]) == 2
        assert says in capsys.readouterr().err


def report_of(here: Path, *more: str, model: str = "three") -> dict[str, Any]:
    command = ["report", f"ownnets:{model}", "--quick", "--processes", "1", "--out", "r", "-q", *more]
    assert cli.run(command) == 0
    return {
        "page": (here / "r" / "report.html").read_text(encoding="utf-8"),
        "settings": json.loads((here / "r" / "report-settings.json").read_text()),
        "json": json.loads((here / "r" / "report.json").read_text()),
        "model": collect(here / "r").models[0],
    }


def test_the_report_on_own_data_says_what_the_data_are_and_what_the_model_does_on_them(here: Path) -> None:
    found = report_of(here, "--data", "good.npz", "--seed", "1")
    digest, m = file_digest(here / "good.npz"), found["model"]
    assert digest in found["page"]
    assert digest in json.dumps(found["settings"])
    data = np.load(here / "good.npz")
    network = load_module("ownnets:three")
    assert network is not None
    with torch.no_grad():
        inputs = network.get_submodule("scale")(torch.from_numpy(data["x"]))
        right = (network(torch.from_numpy(data["x"])).argmax(1).numpy() == data["y"]).mean()
    assert m.performance["value"] == pytest.approx(right)
    assert m.performance["chance"] == pytest.approx(1 / 3)
    assert f"{100 * right:.1f} %" in found["page"]
    assert "accuracy on good.npz" in found["page"]
    by_class = {c["name"]: c for c in m.performance["by_class"]}
    assert by_class.keys() == {"walk", "run", "sit"}
    assert sum(c["accuracy"] * c["sequences"] for c in by_class.values()) == pytest.approx(24 * right)
    width = float(data["x"].max() - data["x"].min())
    levels = sorted(set(m.frames["noise"].query("noise == 'white'").level))
    np.testing.assert_allclose(levels, [0, 0.5 * width], rtol=1e-6)
    shares = sorted(set(m.frames["noise"].query("noise == 'salt_pepper'").level))
    np.testing.assert_allclose(shares, [0, 0.5])
    radii = sorted(set(m.frames["attacks"].query("norm == 'linf'").epsilon))
    np.testing.assert_allclose(radii, [0, 0.1 * width], rtol=1e-6)
    clean = m.frames["noise"].query("level == 0").accuracy
    np.testing.assert_allclose(clean, right)  # 30 samples were allowed, so all 24 were looked at
    low, high = m.analysis["input_box"]  # the promise is about what the GRU gets, not about the data before the Linear
    assert (low, high) == pytest.approx((float(inputs.min()), float(inputs.max())))
    assert m.analysis["input_of"] == "rnn"
    assert "Inputs of rnn in" in found["page"]
    assert m.analysis["input_range"] == pytest.approx([data["x"].min(), data["x"].max()])


def test_stated_bounds_are_the_ones_in_use(here: Path) -> None:
    np.savez(here / "bounded.npz", **arrays(lower=-50.0, upper=50.0))
    m = report_of(here, "--data", "bounded.npz")["model"]
    assert m.analysis["input_range"] == [-50.0, 50.0]
    assert max(m.frames["attacks"].query("norm == 'linf'").epsilon) == pytest.approx(10.0)


def test_a_test_part_is_what_is_attacked_and_the_training_part_what_is_curved(here: Path) -> None:
    train, test = arrays(), arrays(12, seed=5)
    np.savez(here / "parts.npz", **train, x_test=test["x"], y_test=test["y"])
    network = load_module("ownnets:three")
    assert network is not None
    with torch.no_grad():
        right = (network(torch.from_numpy(test["x"])).argmax(1).numpy() == test["y"]).mean()
        logits = network(torch.from_numpy(train["x"]))
    m = report_of(here, "--data", "parts.npz")["model"]
    assert m.performance["value"] == pytest.approx(right)
    assert m.performance["sequences"] == 12
    assert m.documents["hessian"]["samples"] == 12  # of 24, in a drawn order
    losses = torch.nn.functional.cross_entropy(logits, torch.from_numpy(train["y"]), reduction="none")
    assert float(losses.min()) <= m.documents["hessian"]["loss"] <= float(losses.max())


def test_values_are_never_called_accuracy(here: Path) -> None:
    data = arrays()
    y = data["x"].mean((1, 2))
    np.savez(here / "values.npz", x=data["x"], y=y)
    found = report_of(here, "--data", "values.npz", model="one")
    network = load_module("ownnets:one")
    assert network is not None
    with torch.no_grad():
        error = float(((network(torch.from_numpy(data["x"]))[:, 0].numpy() - y) ** 2).mean())
    assert found["model"].performance["metric"] == "mse"
    assert found["model"].performance["value"] == pytest.approx(error, rel=1e-5)
    assert found["model"].performance["chance"] == pytest.approx(float(np.var(y)), rel=1e-5)
    body = found["page"][found["page"].index('id="verdicts"') : found["page"].index('id="glossary"')]
    assert "ccuracy" not in body
    assert "mean squared error on values.npz" in body
    assert "values, no classes" in body
    assert found["model"].step("hessian")["status"] == "done"
    assert "noise" not in found["model"].frames


def test_results_of_other_data_are_not_mixed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["report", "ownnets:three", "--data", "good.npz", "--quick", "--processes", "1", "--out", "r", "-q"]
    assert cli.run(command) == 0
    first = (here / "r" / "models" / "ownnets-three" / "analysis.json").read_bytes()
    (here / "elsewhere").mkdir()
    (here / "good.npz").rename(here / "elsewhere" / "moved.npz")
    moved = [part.replace("good.npz", "elsewhere/moved.npz") for part in command]
    assert cli.run(moved) == 0  # the same data, wherever they lie
    assert (here / "r" / "models" / "ownnets-three" / "analysis.json").read_bytes() == first
    np.savez(here / "good.npz", **arrays(seed=7))
    assert cli.run(command) == 2
    assert "other settings" in capsys.readouterr().err
    assert (here / "r" / "models" / "ownnets-three" / "analysis.json").read_bytes() == first


def test_what_was_not_run_says_why_and_how_to_get_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["report", "ownnets:three", "--quick", "--processes", "1", "--out", "r"]
    assert cli.run(command) == 0
    text = capsys.readouterr().out
    wanted = "stability report ownnets:three --data FILE.npz"
    assert wanted in text
    assert "stability certify ownnets:three --input-box LOW HIGH" in text
    page = (here / "r" / "report.html").read_text(encoding="utf-8")
    for anchor in ("hessian", "performance", "robustness", "dynamics", "made"):
        section = page[page.index(f'<section id="{anchor}">') :].split("</section>")[0]
        assert wanted in section, anchor
        assert "x (n, time, features) and y (n,)" in section, anchor
    assert "1 ms" not in page
    document = json.loads((here / "r" / "report.json").read_text())
    commands = [row["command"] for row in document["models"][0]["not_shown"]]
    assert wanted in commands
    assert cli.run(["report", "--redraw", "r"]) == 0
    assert wanted in capsys.readouterr().out


def test_a_bare_layer_is_measured_as_far_as_it_answers(here: Path) -> None:
    m = report_of(here, "--data", "good.npz", model="gru")["model"]
    assert m.step("norms")["status"] == "done"
    assert m.step("lyapunov")["status"] == "done"
    for step in ("performance", "noise", "attacks", "hessian"):
        assert "outputs and states" in m.step(step)["reason"]


def test_one_analyzer_alone_on_own_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = np.load(here / "good.npz")
    width = float(data["x"].max() - data["x"].min())
    for model in ("three", "double"):
        assert cli.run(["noise", f"ownnets:{model}", "--data", "good.npz", "--json", "--draws", "1"]) == 0
        found = json.loads(capsys.readouterr().out)
        np.testing.assert_allclose(found["sizes"], np.arange(5) / 10 * width, rtol=1e-5)
        assert found["n"] == 24
    assert cli.run(["attack", "ownnets:three", "--data", "good.npz", "--json", "--epsilons", "0,3", "--seed", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["sizes"] == [0, 3]
    assert cli.run(["hessian", "ownnets:three", "--data", "good.npz", "--json", "--samples", "10"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 10
    command = ["compare", "ownnets:three", "ownnets:gru", "--data", "good.npz", "--time-limit", "0", "--json"]
    assert cli.run(command) == 0
    assert "24 sequences of good.npz, 6 steps" in json.loads(capsys.readouterr().out)["inputs"]


def test_training_on_own_data_holds_a_fifth_out_and_goes_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    document = json.loads((here / "run" / "run.json").read_text())
    assert (document["task"]["train"], document["task"]["test"]) == (19, 5)
    assert document["task"]["options"]["digest"] == file_digest(here / "good.npz")
    assert cli.run(["report", "run", "--data", "good.npz", "--quick", "--out", "r", "-q"]) == 0
    m = collect(here / "r").models[0]
    assert m.performance["sequences"] == 5  # the held-out part of the run, not all of the file
    assert m.performance["value"] == pytest.approx(document["result"]["test_metric"])
    (here / "good.npz").rename(here / "moved.npz")
    assert cli.run(["train", "--resume", "run", "--epochs", "2", "-q"]) == 2
    assert "good.npz" in capsys.readouterr().err
    assert cli.run(["train", "--resume", "run", "--epochs", "2", "--data", "moved.npz", "-q"]) == 0
    np.savez(here / "moved.npz", **arrays(seed=3))
    assert cli.run(["train", "--resume", "run", "--epochs", "3", "--data", "moved.npz", "-q"]) == 2
    assert "is not the data" in capsys.readouterr().err
    assert len(pd.read_csv(here / "run" / "metrics.csv")) == 2
