"""The runner: one pytest session collects all tests, every mutant is a fork of it that stops at the first failure."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

from . import fixtures, selecting
from .making import Mutant
from .planting import Garden, NotPlantableError, module_name

SURVIVED, KILLED, LOOPS, NOT_PLANTABLE, SLOW, UNREACHED, BROKEN = 0, 1, 2, 3, 4, 5, 6
OUTCOMES = ("survived", "killed", "loops", "not plantable", "slow", "not reached", "broke the runner")
PATIENCE = 90.0  # seconds of processor time for one test, whatever it does
HUNG = 900.0  # seconds on the wall's clock for one mutant
MEMORY = 4 * 2**30


@dataclass(frozen=True)
class Answer:
    """What became of one mutant: the outcome, and the test that noticed."""

    key: str
    outcome: str
    by: str
    seconds: float


Say = Callable[[Answer], None]


class Runner:
    """A pytest plugin: takes the place of the loop over the tests.

    Args:
        root: the project's root.
        files: files that are mutated.
        mutants: what to plant.
        jobs: forks at a time.
        scratch: folder for what was measured.
        say: called with each answer.
    """

    def __init__(self, root: Path, files: list[str], mutants: list[Mutant], jobs: int, scratch: Path, say: Say) -> None:
        self.root, self.files, self.mutants = root, files, mutants
        self.jobs, self.scratch, self.say = jobs, scratch, say
        self.failures: list[str] = []
        self.broken: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for file in self.files:
            importlib.import_module(module_name(file))
        self.items = {item.nodeid: item for item in session.items}
        with fixtures.kept():
            print(f"{fixtures.build(session.items)} fixtures built", flush=True)
            return self._all(session)

    def _all(self, session: pytest.Session) -> bool:
        """Measure, then try every mutant."""
        reach = self._reach(session)
        self.broken = reach.failed
        print(
            f"{len(reach.seconds)} tests take part, {len(reach.slow)} are too slow, {len(reach.failed)} fail",
            flush=True,
        )
        garden = Garden(self.root, self.files)
        assert reach.breadth is not None  # counted before the forks, not in each
        gc.freeze()
        waiting: dict[int, tuple[Mutant, float, Path]] = {}
        mutants = iter(self.mutants)
        while True:
            while len(waiting) < self.jobs and (mutant := next(mutants, None)) is not None:
                note = self.scratch / f"by-{mutant.key}"
                pid = os.fork()
                if pid == 0:
                    with _last_act():
                        os._exit(self._try(garden, mutant, reach, note))
                waiting[pid] = (mutant, time.monotonic(), note)
            if not waiting:
                return True
            self._collect(waiting)

    def _reach(self, session: pytest.Session) -> selecting.Reach:
        path = self.scratch / "reach.json"
        mark = selecting.digest(self.root, ("stability", "models", "tests")) + " ".join(self.files)
        reach = selecting.load(path, mark)
        if reach is None:
            print(f"measuring which of {len(session.items)} tests reach what ...", flush=True)
            parts = [path.with_suffix(f".{number}") for number in range(self.jobs)]
            pids = []
            for number, part in enumerate(parts):
                pids.append(os.fork())
                if pids[-1] == 0:
                    with _last_act():
                        items = session.items[number :: self.jobs]
                        selecting.save(selecting.measure(self.root, items, self.files, self.failures, part), part, mark)
                        os._exit(0)
            statuses = [os.waitpid(pid, 0)[1] for pid in pids]
            if any(statuses):
                raise RuntimeError("the measuring of the tests broke down")
            selecting.save(selecting.join([selecting.load(part, mark) for part in parts]), path, mark)
            reach = selecting.load(path, mark)
        assert reach is not None
        return reach

    def _try(self, garden: Garden, mutant: Mutant, reach: selecting.Reach, note: Path) -> int:
        """In the fork: plant, run, stop at the first failure."""
        resource.setrlimit(resource.RLIMIT_AS, (_memory_in_use() + MEMORY,) * 2)
        tests = reach.tests_for(mutant.file, (0, 10**9) if mutant.is_constant else mutant.lines)
        tests = tests or reach.tests_for(mutant.file, mutant.around)  # a default argument
        if not tests:
            return UNREACHED
        try:
            garden.plant(mutant)
        except NotPlantableError:
            return NOT_PLANTABLE
        items = [self.items[test] for test in tests]
        for item, following in zip(items, [*items[1:], None]):
            note.write_text(item.nodeid, encoding="utf-8")
            with _watched(str(self.root / mutant.file), mutant.scope, 10.0 + 20.0 * reach.seconds[item.nodeid]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failures:
                return KILLED
        return SURVIVED

    def _collect(self, waiting: dict[int, tuple[Mutant, float, Path]]) -> None:
        """Wait for one fork to end."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in waiting:
                break
            for late, (_, begun, _) in waiting.items():
                if time.monotonic() - begun > HUNG:
                    os.kill(late, signal.SIGKILL)
            time.sleep(0.01)
        mutant, begun, note = waiting.pop(pid)
        seconds = time.monotonic() - begun
        by = note.read_text(encoding="utf-8") if note.is_file() else ""
        note.unlink(missing_ok=True)
        if os.WIFEXITED(status):
            outcome = OUTCOMES[os.WEXITSTATUS(status)]
        elif seconds > HUNG:
            outcome = "hung"
        else:
            outcome = "killed"  # the process crashed
        noticed = outcome in ("killed", "loops")
        self.say(Answer(mutant.key, outcome, by if noticed else "", round(seconds, 2)))


@contextlib.contextmanager
def _watched(file: str, scope: str, limit: float) -> Iterator[None]:
    """Ends the process when a test takes far too long: as a loop only while the changed function is still running."""
    start = time.process_time()

    def ring(signum: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename == file and frame.f_code.co_qualname.split(".<locals>")[0] == scope:
                os._exit(LOOPS)
            frame = frame.f_back
        if time.process_time() - start > PATIENCE:
            os._exit(SLOW)

    signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, limit, 2.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _memory_in_use() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@contextlib.contextmanager
def _last_act() -> Iterator[None]:
    """For a fork: prints nothing and never returns into the parent's code."""
    sink = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    try:
        yield
    finally:
        os._exit(BROKEN)


def run(
    root: Path, files: list[str], mutants: list[Mutant], tests: list[str], jobs: int, scratch: Path, say: Say
) -> list[str]:
    """Try the mutants; returns the tests that fail without any change (there should be none)."""
    runner = Runner(root, files, mutants, jobs, scratch, say)
    options = ["-q", "-s", "-m", "not slow and not page and not gpu", "--timeout=0", "--tb=no"]
    code = pytest.main([*options, "-n", "0", "-p", "no:cacheprovider", *tests], plugins=[runner])
    if code not in (0, 5):
        raise RuntimeError(f"pytest could not collect the tests: exit code {code}")
    return runner.broken
