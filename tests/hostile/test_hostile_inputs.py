"""Hostile inputs by seed: no traceback, no hang, bounded memory, no file outside, no false verdict."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.jail import command, fault, jailed, warm

from . import makers
from .makers import Case, Rng, edited, flip, written

pytestmark = pytest.mark.timeout(3600)
TINY = ["--task-set", "limit=40", "--task-set", "test_limit=20", "--hidden", "3", "--batch-size", "20"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the files to spoil: a run, a report of two models, a certificate."""
    warm()
    folder = tmp_path_factory.mktemp("made")
    np.savez(folder / "plain.npz", A=-np.eye(2), W=np.array([[0.1, 0.4], [-0.3, 0.2]]))
    train = ["train", "--model", "elman", "--epochs", "1", "--out", "run", *TINY]
    for arguments in (
        ["certify", "plain.npz", "-o", "certificate.json"],
        train,
        ["report", "plain.npz", "run", "--quick", "--processes", "1", "--out", "report"],
    ):
        outcome = jailed(command(*arguments), folder=folder, seconds=600)
        assert not fault(outcome, (0,))
    return folder


def _verify(rng: Rng, folder: Path, made: Path) -> Case:
    text = (made / "certificate.json").read_text()
    before = json.loads(text)
    data = written(edited(before, rng) if rng.random() < 0.7 else before, rng)
    (folder / "c.json").write_bytes(data)
    same = data == json.dumps(before).encode()
    return Case(["verify", "c.json", *(["--method", "exact"] if rng.random() < 0.3 else [])], "" if same else "invalid")


def _spoiled(path: Path, rng: Rng) -> str:
    """One file of a folder changed in one of many ways."""
    way = int(rng.integers(12))
    if way == 0:
        path.unlink()
    elif way == 1:
        path.unlink()
        os.mkfifo(path)
    elif way == 2:
        path.unlink()
        path.mkdir()
    elif way == 3:
        path.unlink()
        path.symlink_to("/dev/zero" if rng.random() < 0.5 else path)
    elif way == 4:
        path.write_bytes(flip(path.read_bytes(), rng))
    elif way == 5:
        path.write_bytes(b"")
    elif path.suffix == ".json":
        path.write_bytes(written(edited(json.loads(path.read_text()), rng), rng))
    elif path.suffix == ".csv":
        rows = list(csv.reader(io.StringIO(path.read_text())))
        for _ in range(int(rng.integers(1, 4))):
            row = rows[int(rng.integers(len(rows)))]
            values = ["", "inf", "nan", "-1", "1e308", "x\x1b[31m", "=1+1", "9" * 400]
            if row:
                row[int(rng.integers(len(row)))] = str(rng.choice(values))
        out = io.StringIO()
        csv.writer(out).writerows(rows if way % 2 else [row[:-1] for row in rows])
        path.write_text(out.getvalue())
    else:
        path.write_bytes(flip(path.read_bytes(), rng))
    return f"{path.name} way {way}"


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in (".json", ".csv", ".safetensors"))


def _redraw(rng: Rng, folder: Path, made: Path) -> Case:
    shutil.copytree(made / "report", folder / "report")
    known = _files(folder / "report")
    what = _spoiled(known[int(rng.integers(len(known)))], rng)
    return Case(["report", "--redraw", "report"], "", what)


def _resume(rng: Rng, folder: Path, made: Path) -> Case:
    shutil.copytree(made / "run", folder / "run")
    known = _files(folder / "run")
    what = _spoiled(known[int(rng.integers(len(known)))], rng)
    return Case(["train", "--resume", "run", "--epochs", "2", "-q"], "", what)


def _idx(values: np.ndarray, rng: Rng, spoil: bool) -> bytes:
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    if spoil and rng.random() < 0.6:
        at = 4 * int(rng.integers(len(head) // 4))
        word = int(rng.choice([0, 1, 2**16, 2**31, 2**32 - 1]))
        head = head[:at] + struct.pack(">I", word) + head[at + 4 :]
    data = head + values.astype(np.uint8).tobytes()
    return flip(data, rng) if spoil and rng.random() < 0.4 else data


def _data(rng: Rng, folder: Path, made: Path) -> Case:
    names = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
    (folder / "data").mkdir()
    spoiled = int(rng.integers(5))
    for k, name in enumerate(names):
        shape = (60,) if "labels" in name else (60, 28, 28)
        values = rng.integers(0, 10 if "labels" in name else 256, size=shape)
        (folder / "data" / name).write_bytes(_idx(values, rng, k == spoiled))
    if spoiled < 4 and rng.random() < 0.3:
        _spoiled(folder / "data" / names[spoiled], rng)
    out = ["--model", "elman", "--epochs", "1", "--out", "new", "-q", *TINY]
    return Case(["train", "--data-dir", "data", *out], "", names[spoiled] if spoiled < 4 else "valid")


KINDS: dict[str, tuple[int, Callable[[Rng, Path, Path], Case], tuple[int, ...]]] = {
    "npz": (100, lambda rng, folder, made: makers.npz(rng, folder), (0, 1, 2, 3)),
    "pt": (80, lambda rng, folder, made: makers.pt(rng, folder), (0, 1, 2, 3)),
    "verify": (60, _verify, (0, 1, 2)),
    "redraw": (60, _redraw, (0, 2)),
    "resume": (50, _resume, (0, 2)),
    "idx": (40, _data, (0, 2)),
}
"""Number of seeds, maker and allowed exit codes of each kind of input."""
WRONG = {"stable": (3,), "unstable": (0,), "refused": (0, 1, 3), "invalid": (0,)}
"""Exit codes that contradict the truth of a case."""


def _snapshot(folder: Path, but: Path) -> dict[str, tuple[int, int]]:
    """Size and time of the last change of every path below a folder except one subfolder."""
    found = {}
    for path in folder.rglob("*"):
        if path != but and but not in path.parents:
            status = path.lstat()
            found[str(path)] = (status.st_size, 0 if path.is_dir() else status.st_mtime_ns)
    return found


def _seeds() -> list[Any]:
    """The first two seeds of each kind run always, the others are slow."""
    slow = pytest.mark.slow
    return [
        pytest.param(kind, first, last, marks=slow if first else ())
        for kind, (count, _, _) in KINDS.items()
        for first, last in ((0, 2), *((at, min(at + 20, count)) for at in range(2, count, 20)))
    ]


@pytest.mark.parametrize(("kind", "first", "last"), _seeds())
def test_hostile_input(kind: str, first: int, last: int, made: Path, tmp_path: Path) -> None:
    _, make, codes = KINDS[kind]
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mine.txt").write_text("not yours")
    failures = []
    for seed in range(first, last):
        folder = tmp_path / "work"
        folder.mkdir()
        case = make(np.random.default_rng([seed, *kind.encode()]), folder, made)
        before = _snapshot(tmp_path, folder)
        settings = {"HOME": str(tmp_path / "home"), "TMPDIR": str(folder)}
        outcome = jailed(command(*case.arguments), seconds=120, folder=folder, settings=settings)
        faults = [fault(outcome, [code for code in codes if code not in WRONG.get(case.truth, ())])]
        if _snapshot(tmp_path, folder) != before:
            faults.append("files outside its folder changed")
        if any(faults):
            failures.append(f"{kind} {seed} ({case.what}, {case.truth}): {'; '.join(faults)}")
        shutil.rmtree(folder)
    assert not failures, "\n" + "\n".join(failures)
