"""Ranges of data as boxes: features of other scales have their own; networks of matrices read the data themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stability.analysis import task_from_arrays
from stability.analysis.campaign.inputs import data_range, feature_range
from stability.reports import cli


def scaled(bounds: Any = None) -> Any:
    rng = np.random.default_rng(1)
    x = rng.uniform(size=(20, 6, 3)).astype(np.float32)
    x[..., 1] = 900.0 + 100.0 * x[..., 1]
    x[..., 2] = 5.0
    return task_from_arrays(x, np.arange(20) % 2, name="scaled", bounds=bounds), x


def test_features_of_other_scales_have_ranges_of_their_own():
    task, x = scaled()
    low, high = feature_range(task)
    assert low == tuple(float(v) for v in x.min((0, 1)))
    assert high == tuple(float(v) for v in x.max((0, 1)))
    assert data_range(task) == (float(x.min()), float(x.max()))  # attacks and noise are as they were
    for bounds in ((-1.0, 2000.0), (float(x.min()), float(x.max()))):
        stated, _ = scaled(bounds)
        assert feature_range(stated) == bounds


def certified(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """Exit code and JSON of ``certify``."""
    code = cli.run(["certify", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def reservoir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An echo state network of three inputs and data of other scales; certified for inputs near the data alone."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    W = rng.normal(size=(6, 6))
    W *= 1.1 / np.abs(np.linalg.eigvals(W)).max()
    Win = 0.1 * rng.normal(size=(6, 3)) * [1.0, 0.001, 0.1]
    np.savez("esn.npz", W=W, Win=Win, bias=2.0 * rng.choice([-1.0, 1.0], size=6))
    _, x = scaled()
    np.savez("scaled.npz", x=x, y=np.arange(20) % 2)
    return tmp_path


def test_a_reservoir_takes_the_box_in_all_its_forms(reservoir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, x = scaled()
    low, high = x.min((0, 1)), x.max((0, 1))
    np.savez("box.npz", low=low, high=high)
    Path("box.txt").write_text("\n".join(f"{float(a)!r} {float(b)!r}" for a, b in zip(low, high)))
    found = []
    for words in (["box.npz"], ["box.txt"], ["data", "--data", "scaled.npz"]):
        code, document = certified("esn.npz", "--input-box", *words, capsys=capsys)
        assert code == 0
        found.append((document["rate"], document["claim"]["name"] if "claim" in document else document["statement"]))
    assert found == [found[0]] * 3
    for words in (["-1", "1"], ["-1,1"]):
        code, document = certified("esn.npz", "--input-box", *words, capsys=capsys)
        assert document["rate"] != found[0][0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["esn.npz", "--input-box", "data"], "no data are known for esn.npz: name them with --data FILE.npz"),
        (["esn.npz", "--input-box", "two.txt"], "one entry for each of the 3 inputs"),
        (["esn.npz", "--input-box", "data", "--task", "digits"], "digits has|the data have"),
        (["bare.npz", "--input-box", "data", "--data", "scaled.npz"], "bare.npz has no inputs"),
        (["esn.npz", "--input-box", "-1e301", "1e301"], "1e+300"),
    ],
)
def test_boxes_that_are_none_of_a_reservoir_are_refused_in_one_line(
    words: list[str], says: str, reservoir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("two.txt").write_text("-1 1\n" * 4)
    np.savez("bare.npz", A=-np.eye(3), W=np.eye(3))
    assert cli.run(["certify", *words]) == 2
    said = capsys.readouterr().err
    assert any(part in said for part in says.split("|"))
    assert said.count("\n") == 1


def test_recurrent_weights_alone_read_the_range_of_the_data(
    reservoir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    torch.save(torch.nn.LSTM(3, 2).state_dict(), "lstm.pt")
    _, x = scaled()
    np.savez("small.npz", x=x / 1000.0, y=np.arange(20) % 2)
    assert cli.run(["certify", "lstm.pt", "--input-box", "data", "--data", "small.npz"]) == 0
    screen = capsys.readouterr().out
    assert "FOR INPUTS IN THE BOX" in screen
    assert "wherever they start" not in screen
