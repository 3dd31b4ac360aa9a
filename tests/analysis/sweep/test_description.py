"""Description of a sweep: order of the rows, names of the jobs, and errors before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stability.analysis.sweep.description import Sweep
from stability.errors import ConfigurationError, FileFormatError, StabilityError

FILE = """
models = ["elman", {model = "lipschitz", name = "soft", set = {beta = 0.6}}]
tasks = ["adding", {task = "digits", limit = 50}]
seeds = [3, 1]

[train]
epochs = 2
hidden = 8
lipschitz = {lr = 0.01}

[task]
adding = {steps = 6}

[grid]
batch_size = [16, 32]

[analyses]
attacks = {samples = 25, part = 10, epsilons = [0.1]}
certificate = {rate = "any"}
"""


def described(**more: Any) -> Sweep:
    return Sweep(**{"models": ["elman"], "tasks": ["adding"], "seeds": [0], **more})


def test_the_file_says_what_python_says(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(FILE)
    sweep = Sweep.read(tmp_path / "sweep.toml")
    rows = list(sweep.rows())
    heads = [(r.head["model"], r.head["task"], r.head["batch_size"], r.head["seed"]) for r in rows]
    assert heads == [
        (m, t, b, s) for m in ("elman", "soft") for t in ("adding", "digits") for b in (16, 32) for s in (3, 1)
    ]
    assert rows[-1].job.options == {
        "model": "lipschitz", "hidden": 8, "layers": 1, "set": {"beta": 0.6}, "task": ["digits", {"limit": 50}],
        "train": {"epochs": 2, "lr": 0.01, "batch_size": 32}, "certificate": {"rate": "any"}, "device": "cpu",
        "data": None, "seed": 1,
    }  # fmt: skip
    assert rows[0].job.options["task"] == ["adding", {"steps": 6}]
    assert rows[0].job.options["train"] == {"epochs": 2, "batch_size": 16}
    parts = [(j.options["start"], j.options["stop"], j.parent) for j in rows[0].children]
    assert parts == [(0, 10, rows[0].job.id), (10, 20, rows[0].job.id), (20, 25, rows[0].job.id)]
    identities = [job.id for job in sweep.jobs()]
    assert len(identities) == len(set(identities)) == 16 * 4
    assert [job.id for job in Sweep.read(tmp_path / "sweep.toml").jobs()] == identities


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": [1]}, {"models": ["gru"]}, {"tasks": ["copying"]}, {"train": {"lr": 0.1}}, {"task": {"steps": 7}},
        {"train": {"set": {"bias": False}}}, {"analyses": {"certificate": {"rate": "any"}}},
        {"grid": {"hidden": [9]}},
    ],
)  # fmt: skip
def test_all_that_decides_a_result_is_in_its_name(change: dict[str, Any]) -> None:
    (before,), (after,) = list(described().jobs()), list(described(**change).jobs())
    assert before.id != after.id


def test_options_may_be_written_as_on_the_command_line() -> None:
    written = described(train={"batch-size": 8, "elman": {"margin-penalty": 0.1, "set": {"x-y": 1}}})
    asked = next(written.rows()).job.options
    assert asked["train"] == {"batch_size": 8, "margin_penalty": 0.1}
    assert asked["set"] == {"x-y": 1}
    with pytest.raises(ConfigurationError):
        described(train=[1])


def test_other_code_makes_other_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    before = next(described().jobs()).id
    monkeypatch.setattr("stability.analysis.sweep.job.code_version", lambda: "another release")
    assert next(described().jobs()).id != before


def test_files_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "net.npz", A=-np.eye(2), W=np.eye(2) / 2)
    np.savez(tmp_path / "own.npz", x=np.zeros((10, 3, 1)), y=np.arange(10) % 2)
    told = {"models": ["net.npz", "elman"], "tasks": ["own.npz"], "folder": str(tmp_path)}
    rows = list(described(**told).rows())
    assert [(r.head["model"], r.head["task"], r.job.kind) for r in rows] == [
        ("net", None, "certificate"), ("elman", "own", "training"),
    ]  # fmt: skip
    assert not [value for row in rows for value in str(row.job.spec).split("'") if str(tmp_path) in value]
    assert set(described(**told).paths().values()) == {str(tmp_path / "net.npz"), str(tmp_path / "own.npz")}
    first = rows[0].job.id
    np.savez(tmp_path / "net.npz", A=-np.eye(2), W=np.eye(2) / 3)
    assert next(described(**told).rows()).job.id != first


@pytest.mark.parametrize("change", [
    {"models": []}, {"models": ["nothing"]}, {"tasks": ["nothing"]}, {"tasks": []}, {"task": {"stepz": 3}},
    {"train": {"learning": 3}}, {"train": {"epochs": 0}}, {"seeds": [-1]}, {"grid": {"hidden": 3}},
    {"grid": {"nothing": [3]}}, {"analyses": {"attack": {}}}, {"analyses": {"attacks": {"epsilon": 1}}},
])  # fmt: skip
def test_what_means_nothing_is_refused_first(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        list(described(**change).rows())


@pytest.mark.parametrize("text", ["models = [", "models = ['elman']\nmodel = 1", "tasks = ['digits']", "\xff"])
def test_a_file_that_describes_nothing_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(StabilityError):
        list(Sweep.read(tmp_path / "s.toml").rows())
    with pytest.raises(FileFormatError):
        Sweep.read(tmp_path / "none.toml")
