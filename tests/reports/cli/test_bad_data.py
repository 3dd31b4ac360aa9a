"""Data files that something is wrong with: one line each, exit code 2, and nothing is written."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stability.reports import cli

from ..own_nets import arrays


def npy(value: np.ndarray, path: Path) -> bytes:
    with path.open("wb") as handle:
        np.lib.format.write_array(handle, value)
    return path.read_bytes()


def changes() -> dict[str, dict[str, Any]]:
    """Faults of the arrays of a file, by name."""
    good = arrays()
    x, y = good["x"], good["y"]
    nan, inf, far = x.copy(), x.copy(), x.astype(np.float64)
    nan[3, 2, 1], inf[0, 0, 0], far[0, 0, 0] = np.nan, np.inf, 1e300
    float_y = x.mean((1, 2))
    nan_y = float_y.copy()
    nan_y[2] = np.nan
    return {
        "no x": {"x": None},
        "no y": {"y": None},
        "a mask": {"mask": np.ones((24, 6))[:, ::-1] * (np.arange(6) > 0)},
        "lengths beyond": {"lengths": np.full(24, 1000)},
        "lengths of others": {"lengths": np.full(23, 2)},
        "lengths that are none": {"lengths": np.full(24, 2.5)},
        "lengths of no test": {"lengths_test": np.full(24, 2)},
        "lengths for a classifier of sequences": {"lengths": np.full(24, 2)},
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
        "negative tokens": {"x": x[:, :, 0].astype(np.int64)},
        "complex": {"x": x.astype(np.complex64)},
        "text": {"x": x.astype(str)},
        "constant": {"x": np.ones_like(x)},
        "one class": {"y": np.ones(24, dtype=np.int64)},
        "negative class": {"y": y - 1},
        "huge class": {"y": y + 10**12},
        "classes beyond the model's": {"y": y + 1},
        "one-hot": {"y": np.eye(3, dtype=np.int64)[y]},
        "one-hot values": {"y": np.eye(3)[y]},
        "column of classes": {"y": y[:, None]},
        "time first": {"x": x.swapaxes(0, 1)},
        "parts of other names": {"x": None, "y": None, "x_train": x, "Y": y},
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
        "bounds of other features": {"lower": np.full(2, -100.0), "upper": np.full(2, 100.0)},
        "bounds crossed at a feature": {"lower": np.full(3, -99.0), "upper": np.array([99.0, -100.0, 99.0])},
        "outside at a feature": {
            "lower": np.full(3, -99.0),
            "upper": np.array([99.0, 99.0, float(x[..., 2].max()) - 1]),
        },
        "bounds a feature with NaN": {"lower": np.array([-99, np.nan, -99]), "upper": np.full(3, 99.0)},
        "infinite bounds": {"lower": -np.inf, "upper": np.inf},
        "bounds beyond float32": {"lower": -1e300, "upper": 1e300},
        "bounds of two axes": {"lower": np.full((1, 3), -99.0), "upper": np.full((1, 3), 99.0)},
        "bounds that are names": {"lower": np.array("low"), "upper": np.array("high")},
        "bounds that are yes and no": {"lower": np.array(False), "upper": np.array(True)},
    }


def write_bad(name: str, path: Path) -> None:
    """A file that something is wrong with."""
    good, known = arrays(), changes()
    x, y = good["x"], good["y"]
    if name in known:
        np.savez(path, **arrays(**known[name]))
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


FILES = (
    "objects", "a model", "one bare array", "text file", "empty", "cut off", "a header that lies", "x twice",
    "a folder", "a pipe", "not there",
)  # fmt: skip


@pytest.mark.parametrize("name", [*changes(), *FILES])
def test_bad_data_are_refused_in_one_line(name: str, own_nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_bad(name, own_nets / "bad.npz")
    assert cli.run(["report", "ownnets:three", "--data", "bad.npz", "--quick", "--out", "r"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("stability: error: ")
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert out == ""
    assert not (own_nets / "r").exists()
