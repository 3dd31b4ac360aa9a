"""One command in a process of its own, forked from this one, which has everything imported: cheap, measured, bounded.

A case is a command line in a folder. It is judged by what everybody may expect of any input: an exit code of the table,
one line of error at most, no traceback, an end within the limit, memory within the bound, nothing outside the folder.
"""

from __future__ import annotations

import faulthandler
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MEMORY = 2 * 10**9
"""Bytes that a case may take beyond what this process has and the size of its input."""
TRACE = "Traceback (most recent call last)"
_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Outcome:
    """What a case came to."""

    code: int
    out: str
    err: str
    seconds: float
    peak: int
    hung: bool

    def faults(self, size: int = 0, codes: Sequence[int] = (0, 1, 2, 3)) -> list[str]:
        """What is wrong with it, whatever the input was."""
        found = []
        if self.hung:
            found.append(f"no end after {self.seconds:.0f} s")
        elif self.code not in codes:
            found.append(f"exit code {self.code}")
        if TRACE in self.err or TRACE in self.out or "unexpected" in self.err:
            found.append("a traceback: " + self.err.strip().splitlines()[-1][:200])
        if self.peak > MEMORY + size:
            found.append(f"{self.peak / 1e9:.1f} GB")
        lines = [line for line in self.err.splitlines() if line.strip()]
        if self.code == 2 and not self.hung and not (len(lines) == 1 and lines[0].startswith("stability: ")):
            found.append(f"{len(lines)} lines of error: {self.err[:300]!r}")
        if _STEERS.search(self.out + self.err):
            found.append("characters that steer a terminal")
        return found


def warm_up() -> None:
    """Import what the commands import, once for all cases."""
    import matplotlib.pyplot
    import onnx
    import pandas as pd
    import torch

    import stability.analysis
    import stability.certification
    import stability.models.onnx.parts
    import stability.reports.cli
    import stability.reports.page.html
    import stability.verification

    torch.set_num_threads(1)


def command(
    arguments: Sequence[str], folder: Path, *, limit: float, settings: Mapping[str, str] | None = None
) -> Outcome:
    """Carry ``stability ARGUMENTS`` out in a folder.

    Args:
        arguments: behind the program's name.
        folder: the working directory; output is kept beside it.
        limit: seconds after which it is ended.
        settings: of the environment.

    Returns:
        What came of it.
    """
    out, err = folder.parent / f".{folder.name}.out", folder.parent / f".{folder.name}.err"
    begun, base = time.monotonic(), _memory(os.getpid(), "VmRSS")
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            code = _in_child(arguments, folder, out, err, dict(settings or {}))
        finally:
            os._exit(code)
    peak, hung = 0, False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        peak = max(peak, sum(_memory(pid, "VmHWM") - base for pid in _family(child)))
        if time.monotonic() - begun > limit:
            hung = True
            os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(0.01)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    texts = [path.read_bytes().decode(errors="replace") for path in (out, err)]
    return Outcome(code, texts[0], texts[1], time.monotonic() - begun, peak, hung)


def _in_child(arguments: Sequence[str], folder: Path, out: Path, err: Path, settings: dict[str, str]) -> int:
    import torch

    from stability.reports.cli import main

    torch.set_num_threads(1)  # the threads that this process's parent may have had are not in a fork
    faulthandler.disable()
    os.chdir(folder)
    os.environ.update(settings)
    for number, path in ((1, out), (2, err)):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(n, mode, encoding="utf-8", closefd=False) for n, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    limit = 40 * 2**30  # address space, which torch reserves freely: a net under everything
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins now
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["stability", *arguments]
    try:
        main()
    except SystemExit as ended:
        code = ended.code
        return code if isinstance(code, int) else 0 if code is None else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does it
        import traceback

        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _memory(pid: int, field: str) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0


def _family(pid: int) -> list[int]:
    """A process and its children."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return [pid, *(int(c) for c in children)]
