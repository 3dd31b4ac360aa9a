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
    "no x": "lacks x", "no y": "lacks y", "a mask": "come first", "lengths beyond": "must lie in [1, ",
    "lengths of others": "(24,)", "lengths that are none": "integers", "lengths of no test": "comes with x_test",
    "lengths for a classifier of sequences": "one row of logits a step", "unknown key": "known names",
    "escape codes in a key": "known names", "fewer targets": "(24, ...)", "two axes": "x[:, :, None]",
    "four axes": "(n, time, features)", "no sequences": "empty", "no steps": "empty", "NaN": "NaN", "infinity": "NaN",
    "beyond float32": "float32", "integers of three axes": "astype", "negative tokens": "tokens are numbered from 0",
    "complex": "complex64", "text": "dtype", "constant": "nothing to tell", "one class": "one class",
    "negative class": "numbered from 0", "huge class": "numbered from 0", "classes beyond the model's": "[0, 2]",
    "one-hot": "argmax", "one-hot values": "y.argmax(-1)", "column of classes": "y[:, 0]", "time first": "swapaxes",
    "parts of other names": "save x_train as x, Y as y", "NaN among values": "NaN",
    "values for a classifier": "astype('int64')",
    "text classes": "numpy.unique(y, return_inverse=True)", "dates": "neither numbers", "structured": "neither numbers",
    "other features": "ownnets:three",
    "x_test alone": "y_test", "tests of other steps": "x_test", "tests of another kind": "one kind",
    "too few names": "named", "a name twice": "twice", "names that are numbers": "names", "lower alone": "together",
    "bounds crossed": "crossed: lower 100 > upper -100",
    "outside the bounds": "outside of its bounds [-1, 1]", "bounds that are NaN": "finite",
    "bounds of other features": "(3,)", "bounds crossed at a feature": "at feature 1",
    "outside at a feature": ", 2] is", "bounds a feature with NaN": "lower holds NaN", "infinite bounds": "finite",
    "bounds beyond float32": "beyond float32", "bounds of two axes": "(3,)", "bounds that are names": "numbers",
    "bounds that are yes and no": "numbers", "objects": "pickled", "a model": "lacks x and y",
    "one bare array": "numpy.savez", "text file": "numpy.savez", "empty": "numpy.savez", "cut off": ".npz",
    "a header that lies": "claims", "x twice": "twice", "a folder": "lacks x and y",
    "a pipe": "no regular file", "not there": "No such file",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_data_are_refused_in_one_line(name: str, own_nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_bad(name, own_nets / "bad.npz")
    assert cli.run(["report", "ownnets:three", "--data", "bad.npz", "--quick", "--out", "r"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("stability: error: ")
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert BAD[name] in err
    assert out == ""
    assert not (own_nets / "r").exists()
