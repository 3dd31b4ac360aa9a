"""Options that do not fit are told in the words of the command line, before a model or data are looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stability.reports import cli


def line(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.run(words) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--epsilon", "-1"], "--epsilon must be a number > 0 and < 1e+12, got -1"),
        (["--epsilon", "0"], "--epsilon must be a number > 0 and < 1e+12, got 0"),
        (["--epsilon", "1e13"], "--epsilon must be a number > 0 and < 1e+12, got 1e+13"),
        (["--epsilon", "nan"], "--epsilon must be a number > 0 and < 1e+12, got nan"),
        (["--time-limit", "0"], "--time-limit must be a number of seconds > 0, got 0"),
        (["--time-limit", "-1"], "--time-limit must be a number of seconds > 0, got -1"),
        (["--time-limit", "nan"], "--time-limit must be a number of seconds > 0, got nan"),
        (["--bounds", "1", "0"], "--bounds"),
        (["--bounds", "0", "inf"], "--bounds"),
        (["--mask", "absent.npy"], "cannot read absent.npy"),
        (["--norm", "l1"], "--norm"),
        (["--norm", "linf", "--budget", "step"], "--budget step needs --norm l2"),
    ],
)
def test_of_radius(words: list[str], says: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", x=np.zeros((1, 2, 2)), y=np.zeros(1, dtype=int))
    np.savez("m.npz", A=-np.eye(2), W=np.eye(2))  # no network: told where it is looked at
    monkeypatch.setattr("stability.reports.cli.radius._opened", lambda *a: pytest.fail("it was loaded first"))
    err = line(capsys, "radius", "m.npz", "--data", "data.npz", "--proofs", "p", *words)
    assert says in err
    assert not Path("p").exists()


def test_of_certify(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.npz").write_bytes(b"nothing")
    for value in ("-1", "nan"):
        err = line(capsys, "certify", "broken.npz", "--time-limit", value)
        assert f"--time-limit must be a number of seconds >= 0, got {value}" in err
    np.savez("m.npz", A=-3.0 * np.eye(2), W=np.eye(2))
    assert cli.run(["certify", "m.npz", "--time-limit", "inf", "-q"]) == 0


def test_what_is_no_file_is_not_called_absent(capsys) -> None:
    assert "/dev/null is neither a regular file" in line(capsys, "verify", "/dev/null")


@pytest.mark.parametrize("value", ["0", "-1", "nan"])
def test_of_train(value: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    err = line(capsys, "train", "--model", "elman", "--time-limit", value)
    assert f"--time-limit must be a number of seconds > 0, got {value}" in err
    assert not list(tmp_path.iterdir())
