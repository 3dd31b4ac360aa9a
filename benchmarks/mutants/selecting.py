"""Which tests reach which lines, and how long each takes: measured once, kept until a source or a test changes."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import coverage
import pytest

LONGEST = 2.0  # seconds of processor time: slower tests take no part
BUDGET = 12.0  # seconds of tests for one mutant, by their measured times


class TooSlowError(BaseException):
    """A test took longer than ``LONGEST``."""


@dataclass
class Reach:
    """What was measured.

    Attributes:
        seconds: processor time of each test that takes part, its fixtures included.
        lines: file -> line -> tests that run it.
        failed: tests that fail without any change.
        slow: tests that were left out as too slow.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)

    @cached_property
    def breadth(self) -> Counter[str]:
        """How many lines of all the files each test runs."""
        return Counter(test for own in self.lines.values() for tests in own.values() for test in tests)

    def tests_for(self, file: str, lines: tuple[int, int]) -> list[str]:
        """Tests that reach the lines, likely and quick ones first, ``BUDGET`` seconds of them at most."""
        own = self.lines.get(file, {})
        first, last = lines
        reaching = {test for line, tests in own.items() if first <= line <= last for test in tests}
        share = Counter(test for tests in own.values() for test in tests)
        ranked = sorted(reaching, key=lambda test: (0.02 + self.seconds[test]) * self.breadth[test] / share[test])
        chosen, left = [], BUDGET
        for test in ranked:
            if self.seconds[test] <= left:
                chosen.append(test)
                left -= self.seconds[test]
        return chosen


def digest(root: Path, folders: tuple[str, ...]) -> str:
    """Of all Python files below the folders."""
    files = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    mark = hashlib.sha256()
    for path in files:
        mark.update(str(path.relative_to(root)).encode())
        mark.update(path.read_bytes())
    return mark.hexdigest()[:16]


def measure(root: Path, items: list[pytest.Item], files: list[str], failures: list[str], log: Path) -> Reach:
    """Run every test once, alone with its fixtures, noting lines and time; ``failures`` grows when one fails.

    ``log`` tells meanwhile how far it is.
    """
    reach = Reach()
    watch = coverage.Coverage(
        data_file=None, config_file=False, include=[str(root / file) for file in files], messages=False
    )
    signal.signal(signal.SIGPROF, _too_slow)
    watch.start()
    for number, item in enumerate(items):
        before, failed = time.process_time(), len(failures)
        watch.switch_context(item.nodeid)
        try:
            signal.setitimer(signal.ITIMER_PROF, 2 * LONGEST)  # the coverage slows it
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            signal.setitimer(signal.ITIMER_PROF, 0)
        except TooSlowError:
            signal.setitimer(signal.ITIMER_PROF, 0)
            item.session._setupstate.teardown_exact(None)
            reach.slow.append(item.nodeid)
            continue
        took = time.process_time() - before
        log.write_text(f"{number} of {len(items)}: {item.nodeid} took {took:.2f} s\n", encoding="utf-8")
        if took > LONGEST:
            reach.slow.append(item.nodeid)
        elif len(failures) > failed:
            reach.failed.append(item.nodeid)
        else:
            reach.seconds[item.nodeid] = took
    watch.stop()
    data = watch.get_data()
    for file in files:
        by_line = data.contexts_by_lineno(str(root / file))
        reach.lines[file] = {
            line: [test for test in tests if test in reach.seconds] for line, tests in by_line.items() if line
        }
    return reach


def join(parts: list[Reach | None]) -> Reach:
    """One reach of those that were measured side by side."""
    whole = Reach()
    for part in parts:
        assert part is not None
        whole.seconds |= part.seconds
        whole.failed += part.failed
        whole.slow += part.slow
        for file, by_line in part.lines.items():
            for line, tests in by_line.items():
                whole.lines.setdefault(file, {}).setdefault(line, []).extend(tests)
    return whole


def _too_slow(signum: int, frame: object) -> None:
    raise TooSlowError


def save(reach: Reach, path: Path, mark: str) -> None:
    path.write_text(json.dumps({"mark": mark, **asdict(reach)}), encoding="utf-8")


def load(path: Path, mark: str) -> Reach | None:
    """What was measured before, unless a source or a test has changed since."""
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.pop("mark") != mark:
        return None
    data["lines"] = {file: {int(k): v for k, v in by.items()} for file, by in data["lines"].items()}
    return Reach(**data)
