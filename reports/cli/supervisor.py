"""A command that runs a user's own code is carried out in a child of this process, which only watches.

Whatever that code does, one process speaks: the child hands its exit code over when its work is done and it is still
itself. Where it ends without having done so (``os._exit``, a signal, a crash), or code of the user's does not come back
in time, the watcher ends it and what it started, and says so in one line with exit code 2. What is not printed by the
command itself goes to standard error, whoever prints it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from stability.errors import StabilityError
from stability.user_code import WATCHERS, names_code

from ..cli import console
from ..names import printable

LIMIT = "STABILITY_FACTORY_SECONDS"
"""Environment variable: seconds that a factory, and reading the model that it gives, may take."""
SECONDS = 60.0
_HEARD = ("SIGCHLD", "SIGINT", "SIGTERM", "SIGHUP")
_FAULT = 70
_DIES_WITH_PARENT, _ADOPTS = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER


def needs_a_watcher(arguments: Sequence[str]) -> bool:
    """Whether a word of the command line is ``package.module:factory``, and this system can watch over it."""
    able = hasattr(os, "fork") and hasattr(signal, "sigtimedwait")
    return able and any(
        names_code(word) and "://" not in word and not word.startswith("-") and not os.path.exists(word)
        for word in arguments
    )


def watched(work: Callable[[], int]) -> int:
    """Carry a command out in a child and watch over it.

    Args:
        work: the command; it returns the exit code.

    Returns:
        The child's exit code; 2, and one line, where the child could not give one.
    """
    limit = _limit()
    if limit is None:
        return 2
    heard = {getattr(signal, name) for name in _HEARD}
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    _control(_ADOPTS, 1)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    reads, writes = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        code = 2
        try:
            _control(_DIES_WITH_PARENT, signal.SIGKILL)
            os.close(reads)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if os.getppid() == parent:
                code = _carry_out(work, writes)
        finally:
            os._exit(code)
    os.close(writes)
    os.set_blocking(reads, False)
    return _watch(child, reads, heard, limit)


def _limit() -> float | None:
    text = os.environ.get(LIMIT, "")
    try:
        seconds = float(text) if text.strip() else SECONDS
    except ValueError:
        seconds = -1.0
    if seconds > 0.0:
        return seconds
    _say(f"{LIMIT} must be a number of seconds above 0, got {text!r}")
    return None


def _carry_out(work: Callable[[], int], writes: int) -> int:
    """In the child: standard output is kept for the command alone, and the watcher hears where the user's code is."""
    owner = os.getpid()
    with contextlib.suppress(OSError):
        kept = os.dup(1)  # nowhere, where it was closed
        os.dup2(2, 1)
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        console.OUTPUT = open(kept, "w", encoding=encoding, errors="replace", newline="")  # noqa: SIM115 - for good
        # where it leads now may be of another kind, which has no positions: the old one would ask for its own
        sys.stdout = open(1, "w", encoding=encoding, errors="replace", closefd=False, buffering=1)  # noqa: SIM115
    WATCHERS.append(lambda name: _tell(writes, repr(name)))
    try:
        code = work()
    except BaseException as error:  # noqa: BLE001 - faults of ours, where they are asked for
        sys.excepthook(type(error), error, error.__traceback__)
        return _FAULT
    if os.getpid() != owner:  # a copy that was forked on the way has nothing to say
        return 2
    for stream in (console.OUTPUT, sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]
    _tell(writes, str(code))
    return code


def _tell(writes: int, text: str) -> None:
    """A line to the watcher; where the user's code has closed the way to it, nothing more can come of this."""
    try:
        os.write(writes, f"{text}\n".encode(errors="replace"))
    except OSError:
        os._exit(_FAULT)


def _watch(child: int, reads: int, heard: set[signal.Signals], limit: float) -> int:
    """Until the child has ended: hand signals on, read what it writes, look at the clock while user's code runs."""
    running, since, code, rest, asked = "", 0.0, None, b"", 0
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        with contextlib.suppress(BlockingIOError):
            rest += os.read(reads, 1 << 20)
        *lines, rest = rest.split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            if text.lstrip("-").isdigit():
                code = int(text)
            else:
                running, since = text[1:-1], time.monotonic()
        if ended:
            break
        if running and time.monotonic() - since > limit:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            _end_the_rest()
            more = f"set {LIMIT} to give it longer"
            _say(f"{running} cannot be used as a factory: it did not come back within {limit:g} s ({more})")
            return 2
        news = signal.sigtimedwait(heard, 0.2)
        if news is not None and news.si_signo != signal.SIGCHLD and news.si_code <= 0:  # of a terminal it hears itself
            asked = news.si_signo
            os.kill(child, asked)
    _end_the_rest()
    if code is not None:
        return code
    if asked and os.WIFSIGNALED(status) and os.WTERMSIG(status) == asked:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
        os.kill(os.getpid(), asked)
    how = f"exit code {os.WEXITSTATUS(status)}"
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        how = f"{name}{', perhaps for want of memory' if name == 'SIGKILL' else ''}"
    whose = f"{running} cannot be used as a factory: it" if running else "the code of a model"
    _say(f"{whose} ended the program ({how}) before there was an answer")
    return 2


def _say(text: str) -> None:
    """One line on standard error; where JSON was asked for, the same as an object on standard output."""
    with contextlib.suppress(OSError, AttributeError):
        typer.echo(f"stability: error: {printable(text)}", err=True)
    if "--json" in sys.argv[1:]:
        with contextlib.suppress(OSError, ValueError, StabilityError):
            console.show_json({"error": printable(text), "exit_code": 2})


def _control(option: int, value: int) -> None:
    """Linux alone: end with the parent, adopt orphans."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _end_the_rest() -> None:
    """End what the user's code left running: adopted here, it would hold the output open."""
    if sys.platform != "linux":
        return
    for _ in range(100):
        children = [pid for pid in _processes() if _parent(pid) == os.getpid()]
        if not children:
            return
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
