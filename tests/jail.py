"""Run one call or command in a forked process with limits on memory and time (Linux)."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

MIB = 2**20
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that can steer a terminal."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a call.

    Attributes:
        kind: ``value``, ``error`` (it raised), ``killed`` (by a signal), ``timeout`` or ``memory``.
        value: what it returned.
        error: name of the exception's type.
        typed: whether that is a ``StabilityError``.
        text: the exception's message; the end of its traceback if it is not typed.
        peak: resident memory beyond what the process had before the call, in MiB.
        seconds: wall time.
    """

    kind: str
    value: Any = None
    error: str = ""
    typed: bool = False
    text: str = ""
    peak: int = 0
    seconds: float = 0.0


def warm() -> None:
    """Import what commands need, so that no child has to; matplotlib writes a cache when it is first imported."""
    import matplotlib.pyplot

    import stability.analysis.training.front
    import stability.certification
    import stability.models.sources
    import stability.reports.cli
    import stability.reports.page.html
    import stability.reports.stored.certificates
    import stability.verification

    with contextlib.suppress(ImportError):
        import onnx.reference.ops._op_list


def jailed(
    call: Callable[[], Any],
    *,
    memory: int = 2048,
    seconds: int = 20,
    folder: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a call in a forked child.

    Args:
        call: returns a value that can be pickled.
        memory: MiB that it may take.
        seconds: processor time after which it is killed; killed as well if it waits ten times as long.
        folder: working directory; an empty temporary one by default.
        settings: environment variables to set.

    Returns:
        Its outcome; never raises for what the call does.
    """
    with contextlib.ExitStack() as stack:
        where = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jail-")))
        pipe = stack.enter_context(tempfile.NamedTemporaryFile(prefix="jail-answer-"))
        begun, child = time.perf_counter(), os.fork()
        if child == 0:
            os.environ.update(settings or {})
            _inside(call, Path(pipe.name), where, memory, seconds)
        status, late = None, False
        while status is None:
            ended, found = os.waitpid(child, os.WNOHANG)
            status = found if ended else None
            if not ended and not late and time.perf_counter() - begun > 10 * seconds:
                late = True
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.002)
        raw, took = Path(pipe.name).read_bytes(), time.perf_counter() - begun
    if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return Outcome("timeout", seconds=took)
    try:
        outcome = replace(pickle.loads(raw), seconds=took)
    except (EOFError, pickle.UnpicklingError):  # it died before it could answer
        return Outcome("killed", text=f"status {status}", seconds=took)
    over = outcome.peak > memory or outcome.error == "MemoryError"
    return replace(outcome, kind="memory") if over else outcome


def _inside(call: Callable[[], Any], answer: Path, folder: Path, memory: int, seconds: int) -> None:
    """Carry the call out in the child; never returns."""
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.chdir(folder)
        if "torch" in sys.modules:  # the parent's threads are not in a fork: OpenMP would wait for them
            sys.modules["torch"].set_num_threads(1)
        before = _status("VmRSS:")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        limit = _status("VmSize:") + (memory + 4096) * MIB  # address space that is never touched costs nothing
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.setrecursionlimit(1000)
        try:
            outcome = Outcome("value", call())
        except BaseException as error:  # noqa: BLE001 - any exception is an answer
            typed = "StabilityError" in [cls.__name__ for cls in type(error).__mro__]
            text = str(error) if typed else "".join(traceback.format_exception(error))[-3000:]
            outcome = Outcome("error", error=type(error).__name__, typed=typed, text=text[:100_000])
        answer.write_bytes(pickle.dumps(replace(outcome, peak=max(0, _status("VmHWM:") - before) // MIB)))
    finally:
        os._exit(0)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)


def command(*arguments: str) -> Callable[[], tuple[int, str, str]]:
    """Return a call of the command line that gives its exit code, standard output and standard error."""

    def call() -> tuple[int, str, str]:
        import io

        from stability.reports import cli

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.run(arguments)
        return code, out.getvalue()[:100_000], err.getvalue()[:100_000]

    return call


def fault(outcome: Outcome, codes: Sequence[int]) -> str:
    """Describe what is wrong with the end of a ``command``; empty if nothing is.

    A mistake in the input ends with one of the codes, one line on standard error, and no control character anywhere.
    """
    if outcome.kind != "value":
        last = outcome.text.strip().splitlines()[-1:] or [""]
        return f"{outcome.kind} {outcome.error} {last[0][:300]} ({outcome.peak} MiB, {outcome.seconds:.0f} s)".strip()
    code, out, err = outcome.value[:3]
    if code not in codes:
        return f"exit code {code}: {err[:300]}"
    if code == 2 and (not err.startswith("stability: ") or err.count("\n") != 1 or len(err) > 4096):
        return f"no single line of {len(err)} letters: {err[:300]!r}"
    found = CONTROL.search(out + err)
    return f"a control character reaches the terminal: {found[0]!r}" if found else ""
