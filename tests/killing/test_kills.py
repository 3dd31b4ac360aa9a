"""SIGKILL at any moment, then the same command again: nothing lost, nothing twice, the same to the last bit."""

from __future__ import annotations

import csv
import json
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stability.storage.writing import is_partial

TIMES = {
    "seconds", "earlier_seconds", "tracking_seconds", "started", "finished", "sessions", "files", "given", "digest",
    "elapsed", "continue", "out",
}  # fmt: skip
TINY = ["--task-set", "size=7", "--task-set", "limit=30", "--task-set", "test_limit=10"]
SMALL = ["--model", "lipschitz", "--hidden", "3", "--epochs", "4", "--track-every", "1"]
TRAIN = ["train", *SMALL, *TINY, "-q", "--out", "t"]
REPORT = ["report", "a.npz", "b.npz", "c.npz", "--quick", "-q", "--out", "r"]
TRAINED = ["report", "--models", "elman", "--task", "digits", *TINY, "--quick", "-q", "--out", "r"]
STUDY = ["study", "adding", "--quick", "-q", "--out", "s"]


class Server:
    """A process that carries commands out in children and kills them, see ``server.py``."""

    def __init__(self) -> None:
        script = str(Path(__file__).with_name("server.py"))
        self.process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._line() == "ready\n"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def begin(self, argv: list[str], cwd: Path, **options: Any) -> None:
        order = {"argv": argv, "cwd": str(cwd), "log": str(cwd / "log"), **options}
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def end(self) -> dict[str, Any]:
        return json.loads(self._line())

    def run(self, argv: list[str], cwd: Path, **options: Any) -> dict[str, Any]:
        self.begin(argv, cwd, **options)
        return self.end()

    def close(self) -> None:
        with self.process:  # closes both pipes, and waits
            pass


@pytest.fixture(scope="module")
def server():
    made = Server()
    yield made
    made.close()


def place(folder: Path) -> Path:
    folder.mkdir()
    for name, gain in (("a", 0.5), ("b", 1.5), ("c", 0.9)):
        np.savez(folder / f"{name}.npz", A=-np.eye(2), W=gain * np.eye(2))
    return folder


def untimed(value: Any) -> Any:
    """JSON without moments and durations, and without digests of what holds them."""
    if isinstance(value, dict):
        return {k: untimed(v) for k, v in value.items() if k not in TIMES}
    return [untimed(v) for v in value] if isinstance(value, list) else value


def content(path: Path) -> Any:
    """Return the content of a file without times."""
    if path.suffix == ".json" and path.name != "files.json":  # digests of files with times
        return untimed(json.loads(path.read_text()))
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(file)]
    if path.name == "checkpoint.pt":
        state = torch.load(path, weights_only=True)
        return {k: v.numpy().tobytes() for k, v in state["model"].items()}, len(state["history"]), state["bad"]
    return path.read_bytes() if path.suffix == ".safetensors" else None


def contents(folder: Path) -> dict[str, Any]:
    """All files below a folder by name; pages show times, so that only their being there is told."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    assert not [p for p in files if is_partial(p.name) or p.name == ".stability.lock"]
    return {str(p.relative_to(folder)): content(p) for p in files}


def same(folder: Path, whole: Path) -> None:
    found, expected = contents(folder), contents(whole)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == value, name
    for path in folder.rglob("spectra.csv"):
        with path.open(newline="") as file:
            rows = [tuple(row) for row in csv.reader(file) if "tables" not in path.parts]
        assert not [key for key, n in Counter(row[:4] for row in rows).items() if n > 1]


def again(argv: list[str], cwd: Path) -> list[str]:
    """The command that goes on: for training its own, for the others the same."""
    if argv[0] == "train" and (cwd / "t" / "run.json").exists():
        return ["train", "--resume", "t", "-q"]
    return argv


def is_finished(argv: list[str], cwd: Path, answer: dict[str, Any]) -> bool:
    if answer["code"] != 0:
        assert answer["code"] in (-9, 2), (cwd / "log").read_text()
        told = "was killed", "no workers start", "is being written by process"  # by a worker that ends a moment later
        assert answer["code"] == -9 or any(said in (cwd / "log").read_text() for said in told)
        return False
    if argv[0] == "report":
        return not json.loads((cwd / "r" / "report-settings.json").read_text())["failed"]
    return True


def check_record(folder: Path) -> None:
    """Whoever finished a report: who made it with what, and how long it took, is there."""
    settings = json.loads((folder / "report-settings.json").read_text())
    for key in ("started", "finished", "command", "processes", "seconds", "environment", "failed"):
        assert settings[key] is not None, key
    assert settings["environment"]["versions"]["torch"]
    steps = [json.loads(p.read_text())["steps"] for p in folder.glob("models/*/analysis.json")]
    assert settings["processes"] > 1 or settings["seconds"] > 0.5 * sum(s["seconds"] for m in steps for s in m.values())
    assert settings["command"] in (folder / "report.html").read_text()


def killed_at_writes(server: Server, argv: list[str], tmp_path: Path) -> int:
    """Each time a little later, just before or after a file is moved into place, until the command comes through."""
    whole, broken = place(tmp_path / "whole"), place(tmp_path / "broken")
    assert server.run(argv, whole)["code"] == 0, (whole / "log").read_text()
    deaths = 0
    while True:
        answer = server.run(again(argv, broken), broken, write=1 + 3 * deaths)
        if answer["code"] == 0:
            break
        assert answer["code"] == -9, (broken / "log").read_text()
        deaths += 1
    name = argv[-1]
    same(broken / name, whole / name)
    log = (broken / "log").read_text()
    assert "Traceback" not in log
    assert log.count("taken over") >= deaths
    return deaths


def test_training_dies_at_its_writes(server: Server, tmp_path: Path) -> None:
    assert killed_at_writes(server, TRAIN, tmp_path) > 5


def test_a_report_dies_at_its_writes(server: Server, tmp_path: Path) -> None:
    argv = ["report", "a.npz", "--quick", "-q", "--processes", "1", "--out", "r"]
    assert killed_at_writes(server, argv, tmp_path) > 5
    check_record(tmp_path / "broken" / "r")


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestAHundredDeaths:
    """At random moments; seeded, and as long as the uninterrupted command takes."""

    @pytest.mark.parametrize(
        ("argv", "victim", "kills"),
        [
            (TRAIN, "parent", 35),
            (STUDY, "parent", 20),
            ([*REPORT[:-2], "--processes", "1", "--out", "r"], "parent", 15),
            ([*TRAINED[:-2], "--processes", "1", "--out", "r"], "parent", 14),
            (REPORT, "parent", 3),
            (REPORT, "child", 3),
        ],
        ids=["train", "study", "report", "training-report", "two-processes-parent", "two-processes-child"],
    )
    def test_until_finished(self, server: Server, tmp_path: Path, argv: list[str], victim: str, kills: int) -> None:
        draw = random.Random(repr(argv) + victim)
        whole = place(tmp_path / "whole")
        answer = server.run(argv, whole)
        assert answer["code"] == 0, (whole / "log").read_text()
        long, deaths, rounds = answer["seconds"], 0, 0
        while deaths < kills:
            broken = place(tmp_path / f"broken{rounds}")
            rounds += 1
            in_this = 0
            for attempt in range(200):
                # at most six deaths a directory: then it is left to finish
                after = draw.uniform(0.0, long) if in_this < 6 and deaths < kills else None
                options = {"victim": victim, "seed": attempt}
                answer = server.run(again(argv, broken), broken, after=after, **options)
                in_this, deaths = in_this + answer["killed"], deaths + answer["killed"]
                if is_finished(argv, broken, answer):
                    break
            same(broken / argv[-1], whole / argv[-1])
            if argv[0] == "report":
                check_record(broken / "r")
            assert "rror (" not in (broken / "log").read_text()
        assert deaths >= kills

    @pytest.mark.parametrize("argv", [TRAIN, REPORT, STUDY], ids=["train", "report", "study"])
    def test_two_writers_at_once(self, server: Server, tmp_path: Path, argv: list[str]) -> None:
        other = Server()
        try:
            whole, shared = place(tmp_path / "whole"), place(tmp_path / "shared")
            long = server.run(argv, whole)["seconds"]
            draw, refused = random.Random(repr(argv)), 0
            for _ in range(5):
                server.begin(again(argv, shared), shared, after=draw.uniform(0.5, 1.0) * long)
                other.begin(again(argv, shared), shared)
                codes = [server.end()["code"], other.end()["code"]]
                assert set(codes) <= {0, 2, -9}, (shared / "log").read_text()
                refused += 2 in codes
            while not is_finished(argv, shared, server.run(again(argv, shared), shared)):
                pass
            same(shared / argv[-1], whole / argv[-1])
            log = (shared / "log").read_text()
            assert "Traceback" not in log
            told = re.findall(r"is being written by process \d+ on \S+ \([a-z -]+\), since \S+", log)
            assert refused == 0 or told or "holds a run already" in log
        finally:
            other.close()
