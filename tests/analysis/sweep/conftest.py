"""A Dask cluster of real processes on loopback, which may be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


class LocalCluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def _start(self, module: str, *words: str) -> subprocess.Popen[bytes]:
        self._count += 1
        with (self._folder / f"log{self._count}").open("wb") as log:
            command = [sys.executable, "-m", f"distributed.cli.{module}", "--host", "127.0.0.1", *words]
            return subprocess.Popen([*command, "--no-dashboard"], stdout=log, stderr=log, cwd=ROOT)

    def start_scheduler(self) -> None:
        file = self._folder / f"scheduler{self._count}.json"
        self.scheduler = self._start("dask_scheduler", "--port", "0", "--scheduler-file", str(file))
        while not file.is_file() or not file.read_text().endswith("}"):
            assert self.scheduler.poll() is None
            time.sleep(0.02)
        self.address = json.loads(file.read_text())["address"]

    def start_worker(self, *words: str) -> None:
        common = ("--nthreads", "1", "--no-nanny", "--local-directory", str(self._folder))
        self.workers.append(self._start("dask_worker", self.address, *common, *words))

    def kill_worker(self, which: int = 0) -> None:
        _kill(self.workers.pop(which))

    def kill_scheduler(self) -> None:
        assert self.scheduler is not None
        _kill(self.scheduler)
        self.scheduler = None

    def close(self) -> None:
        for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]:
            _kill(process)

    def logs(self) -> str:
        return "\n".join(p.read_text(errors="replace")[-3000:] for p in sorted(self._folder.glob("log*")))


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


class Client:
    """A forked process that does something until it is done or killed."""

    def __init__(self, act: Callable[[], object], log: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which do nothing here
            self.process = os.fork()
        if not self.process:
            code = 70
            try:
                handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(handle, 1)
                os.dup2(handle, 2)
                act()
                code = 0
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the log
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
            finally:
                sys.stderr.flush()
                os._exit(code)

    def ended(self) -> int | None:
        """The exit code, ``None`` while it runs."""
        if self.process < 0:
            return self._code
        done, status = os.waitpid(self.process, os.WNOHANG)
        if not done:
            return None
        self.process, self._code = -1, os.waitstatus_to_exitcode(status)
        return self._code

    def kill(self) -> None:
        if self.ended() is None:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            self.process, self._code = -1, -9


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = LocalCluster(folder)
    try:
        made.start_scheduler()
        yield made
    finally:
        made.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[[Callable[[], object]], Client]]:
    started: list[Client] = []

    def start(act: Callable[[], object]) -> Client:
        started.append(Client(act, tmp_path / "client-log"))
        return started[-1]

    yield start
    for each in started:
        each.kill()
