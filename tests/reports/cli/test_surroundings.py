"""Names that are no UTF-8, locales without letters, a full standard output: it works, or ends in one line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch

from stability.analysis.campaign.budgets import BUDGETS
from stability.reports import cli

from ..own_nets import SMALL

NAME = "b\udcffd"  # the bytes 62 ff 64
TINY = ["--task-set", "size=7", "--task-set", "limit=20", "--task-set", "test_limit=10", "--epochs", "1", "-q"]
OWN = "import torch\n\n\ndef load():\n    torch.manual_seed(0)\n    return torch.nn.RNN(2, 3, batch_first=True)\n"
NO_LETTERS = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ASCII = {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of such a name, with files of such names."""
    folder = tmp_path / NAME
    try:
        folder.mkdir()
    except OSError as error:  # a file system that takes UTF-8 only
        pytest.skip(f"no such names here ({error})")
    monkeypatch.chdir(folder)
    monkeypatch.setitem(BUDGETS, "quick", SMALL)
    np.savez(folder / f"{NAME}.npz", A=-2.0 * np.eye(3), W=0.5 * np.eye(3))
    return folder


def test_every_kind_of_model_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    cell = torch.nn.GRU(2, 3)
    safetensors.torch.save_file(cell.state_dict(), here / "w")
    (here / "w").rename(here / f"{NAME}.safetensors")
    for name, new in (("new.pt", True), ("old.pt", False)):
        torch.save(cell.state_dict(), here / name, _use_new_zipfile_serialization=new)
        (here / name).rename(here / f"{NAME}{name}")
    verdicts = set()
    for end in (".safetensors", "new.pt", "old.pt"):
        code = cli.run(["certify", f"{NAME}{end}", "--json", "--time-limit", "20", "--no-refute"])
        out = json.loads(capsys.readouterr().out)
        assert code in (0, 1)
        assert out["model"] == f"b\\udcffd{end}" or out["model"] == f"{NAME}{end}"
        verdicts.add((code, out["verdict"], out["rate"]))
    assert len(verdicts) == 1
    assert cli.run(["certify", f"{NAME}.npz", "-o", f"{NAME}.json"]) == 0
    assert cli.run(["verify", f"{NAME}.json"]) == 0
    assert "b\\udcffd.json" in capsys.readouterr().out


def test_a_run_is_trained_gone_on_with_and_compared(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "--model", "elman", "--hidden", "3", *TINY, "--out", f"{NAME}run"]) == 0
    assert cli.run(["train", "--resume", f"{NAME}run", "--epochs", "2", "-q"]) == 0
    assert cli.run(["noise", f"{NAME}run", "--samples", "5", "--levels", "0,0.2", "--out", NAME, "-q"]) == 0
    (here / "copy.safetensors").write_bytes((here / f"{NAME}run" / "model.safetensors").read_bytes())
    models = [f"{NAME}run", "copy.safetensors"]
    assert cli.run(["compare", *models, "--samples", "3", "--factor", "1", "--time-limit", "0", "--out", "c"]) == 0
    assert set(pd.read_csv(here / "c" / "norms.csv")["model"]) == {"b\\udcffdrun", "copy"}
    assert "\udcff" not in capsys.readouterr().out


def test_a_report_of_such_names(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["report", f"{NAME}.npz", "--quick", "--out", f"{NAME}r"]
    assert cli.run(command) == 0
    assert "b-d: finished" in capsys.readouterr().err
    assert cli.run(command) == 0  # its own folder, again
    assert cli.run(["report", "--redraw", f"{NAME}r"]) == 0
    assert "b\\udcffd" in (here / f"{NAME}r" / "report.html").read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    np.savez(folder / "mä.npz", A=-2.0 * np.eye(2), W=0.5 * np.eye(2))
    (folder / "own.py").write_text(OWN)
    assert cli.run(["certify", str(folder / "mä.npz"), "-o", str(folder / "mä.json"), "-q"]) == 0
    return folder


def shell(folder: Path, command: str, **settings: str) -> tuple[int, str, str]:
    """A command line of ``stability`` as a process of its own."""
    surroundings = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON", "STABILITY"))}
    done = subprocess.run(
        ["sh", "-c", command.replace("stability", f"{sys.executable} -m stability", 1)],
        cwd=folder, env={**surroundings, "OMP_NUM_THREADS": "1", **settings}, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=250,
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def beside_progress(err: str) -> str:
    """Standard error without the line that each finished model has where there is no terminal."""
    return re.sub(r"^\d+/\d+ [^\n]*: finished after [^\n]*\n", "", err, flags=re.MULTILINE)


FULL = "stability: error: cannot write the result to standard output: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize(
    ("how", "code", "message"), [(">/dev/full", 2, FULL), pytest.param(">&- 2>&-", 0, "", marks=pytest.mark.slow)]
)
def test_a_full_output_is_an_error_and_a_closed_one_is_not(files: Path, how: str, code: int, message: str) -> None:
    found, _, err = shell(files, f"stability verify mä.json {how}")
    assert (found, err) == (code, message)


def test_the_result_of_a_factory_goes_into_a_file_while_errors_go_elsewhere(files: Path) -> None:
    """A pipe on standard error has no positions, a file on standard output has."""
    code, out, err = shell(files, "stability certify own:load --no-refute --time-limit 20 > result.txt")
    assert (code, out, err) == (0, "", "")
    assert (files / "result.txt").read_text().startswith("own:load: PROVEN STABLE")


@pytest.mark.parametrize("settings", [NO_LETTERS, pytest.param(ASCII, marks=pytest.mark.slow)])
def test_a_locale_without_letters(files: Path, settings: dict[str, str]) -> None:
    code, out, err = shell(files, "stability verify mä.json", **settings)
    assert (code, err) == (0, "")
    assert out.startswith(("m\\udcc3\\udca4.json: valid (proven stable)", "mä.json: valid (proven stable)"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"HOME": "/dev/null"}, {"TMPDIR": "/proc"}, {"TERM": "dumb", "COLUMNS": "1"}, {"COLUMNS": "x"}, {"TERM": ""}],
    ids=str,
)
def test_other_surroundings(files: Path, settings: dict[str, str], tmp_path: Path) -> None:
    for command in ("certify mä.npz", f"report mä.npz --quick --out {tmp_path / 'r'}", "--help"):
        code, out, err = shell(files, f"stability {command}", **settings)
        assert (code, beside_progress(err)) == (0, ""), command
        assert out
