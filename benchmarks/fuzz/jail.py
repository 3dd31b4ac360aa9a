"""One call in a process of its own, with bounds on memory and time: whatever it does, the caller goes on.

The child is a fork, so that nothing has to be imported again; Linux only.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import re
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["MIB", "Outcome", "command", "fault", "jailed", "warm"]

MIB = 2**20


@dataclass(frozen=True)
class Outcome:
    """How a call ended.

    Attributes:
        kind: ``value``, ``error`` (it raised), ``killed`` (by a signal), ``timeout`` or ``memory``.
        value: what it returned.
        error: name of the exception's type.
        typed: whether that is a ``StabilityError``.
        text: the exception's message, or the end of its traceback where it is not typed.
        peak: MiB of resident memory beyond what the process had before the call.
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
    """Import here what every call needs, so that no child has to."""
    import stability.analysis.training.front
    import stability.certification
    import stability.models.sources
    import stability.reports.cli
    import stability.reports.page.html
    import stability.reports.stored.certificates
    import stability.verification

    with contextlib.suppress(ImportError):
        import onnx.reference.ops._op_list


def jailed(call: Callable[[], Any], *, memory: int = 2048, seconds: int = 20) -> Outcome:
    """Run a call in a forked child.

    Args:
        call: returns something that can be pickled; it runs in an empty working directory.
        memory: MiB that it may take.
        seconds: of the processor, after which it is killed; or as many on the clock in which it only waits.

    Returns:
        What came of it; never raises for what the call does.
    """
    with tempfile.TemporaryDirectory(prefix="jail-") as folder:
        read, write = os.pipe()
        begun = time.perf_counter()
        child = os.fork()
        if child == 0:
            os.close(read)
            _inside(call, write, folder, memory, seconds)
        os.close(write)
        try:
            raw, late = _listen(read, child, seconds)
        finally:
            os.close(read)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)  # it has answered, or never will
            _, status, _ = os.wait4(child, 0)
        took = time.perf_counter() - begun
    if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return Outcome("timeout", seconds=took)
    try:
        outcome = pickle.loads(raw)
    except Exception:  # noqa: BLE001 - it died before it could answer
        return Outcome("killed", text=f"status {status}", seconds=took)
    if outcome.peak > memory or outcome.error == "MemoryError":
        outcome = Outcome(**{**vars(outcome), "kind": "memory"})
    return Outcome(**{**vars(outcome), "seconds": took})


def _listen(read: int, child: int, seconds: float) -> tuple[bytes, bool]:
    """What the child writes; and whether it waits for something for so long that it never will write.

    The time on the clock says little on a busy machine: a child that works is ended by its limit of processor time.
    """
    pieces, worked, since = [], -1.0, time.perf_counter()
    while True:
        if select.select([read], [], [], 1.0)[0]:
            piece = os.read(read, MIB)
            if not piece:
                return b"".join(pieces), False
            pieces.append(piece)
            continue
        state, now = _work(child)
        if state == "R" or now > worked:
            worked, since = now, time.perf_counter()
        elif time.perf_counter() - since > seconds:
            return b"", True


def _work(child: int) -> tuple[str, float]:
    """State and processor time of a process."""
    try:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "Z", 0.0
    return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _inside(call: Callable[[], Any], write: int, folder: str, memory: int, seconds: int) -> None:
    """The child's part; it never returns."""
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.chdir(folder)
        _one_thread()
        before, mapped = _resident(), _mapped()
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins here
        limit = mapped + (memory + 4096) * MIB  # what is mapped and never touched costs nothing; this ends the rest
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.setrecursionlimit(1000)
        try:
            outcome = {"kind": "value", "value": call()}
        except BaseException as error:  # noqa: BLE001 - that is what we want to know
            names = [cls.__name__ for cls in type(error).__mro__]
            typed = "StabilityError" in names
            text = str(error) if typed else "".join(traceback.format_exception(error))[-3000:]
            outcome = {"kind": "error", "error": type(error).__name__, "typed": typed, "text": text[:100_000]}
        outcome["peak"] = max(0, _peak() - before) // MIB
        data = memoryview(pickle.dumps(Outcome(**outcome)))
        while data:
            data = data[os.write(write, data) :]
    finally:
        os._exit(0)


def _one_thread() -> None:
    """Torch works alone here: threads that the parent had are not in a fork, and OpenMP would wait for them."""
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


def _resident() -> int:
    return _status("VmRSS:")


def _peak() -> int:
    return _status("VmHWM:")


def _mapped() -> int:
    return _status("VmSize:")


def command(*arguments: str) -> Callable[[], tuple[int, str, str]]:
    """A call of the command line: its exit code and what it printed."""

    def call() -> tuple[int, str, str]:
        from stability.reports import cli

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.run(arguments)
        return code, out.getvalue()[:100_000], err.getvalue()[:100_000]

    return call


def fault(outcome: Outcome, codes: tuple[int, ...]) -> str:
    """What is wrong with how a ``command`` ended; empty where nothing is.

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
    if code != 2 and err:
        return f"words beside the answer: {err[:300]!r}"
    steering = re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out + err)
    return f"a control character reaches the terminal: {steering[0]!r}" if steering else ""
