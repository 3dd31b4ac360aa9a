"""Processes that do jobs, each job in one of its own with one thread, with news on the way.

Workers are spawned, so that nothing is inherited by accident. On Linux a worker imports everything once and forks a
process for each of its jobs, which costs nothing; elsewhere it does one job and ends. Processes leave interruptions to
their parent, which stops them, and end when it is gone. What a job finished on disk stays there.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import reduction
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any

from stability.errors import StabilityError
from stability.user_code import error_text, raise_location

from ...models.factories import PATHS

Tell = Callable[[str], Any]
Work = Callable[[Any, Tell], Any]
"""``work(job, tell)``, importable by name."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        name: the job.
        error: ``None`` when all went well, else what went wrong: a mistake in the input, or how its process ended.
        value: what its work returned.
    """

    name: str
    error: str | None = None
    value: Any = field(default=None, repr=False)


def carried_out(work: Work, name: str, job: Any, tell: Tell) -> Outcome:
    """Do a job, and say how it ended.

    Args:
        work: ``work(job, tell)``.
        name: of the job.
        job: what it is.
        tell: gets its news.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    try:
        value = work(job, tell)
    except StabilityError as error:
        return Outcome(name, str(error))
    except Exception as error:
        if os.environ.get("STABILITY_TRACEBACK"):
            raise
        return Outcome(name, f"unexpected {error_text(error)} (at {raise_location(error)})")
    except SystemExit as error:
        return Outcome(name, f"the model's code ended the program (sys.exit({error.code!r:.80}))")
    return Outcome(name, None, value)


def _end_with_the_parent() -> None:
    """A parent that was killed stops nobody: without this its processes would go on writing beside its successor's."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _killed_with_the_parent() -> None:
    """Ask the kernel, where it is Linux: a thread has to wait for its turn, and a long computation lets none run."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    parent = multiprocessing.parent_process()
    if parent is not None and wait([parent.sentinel], timeout=0):  # it was gone before that
        os._exit(1)


class Held:
    """A descriptor that a process inherits as it is started: what it locks stays locked until that one ends, too."""

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> Any:
        return _hold, (None if self.descriptor is None else reduction.DupFd(self.descriptor),)


def _hold(inherited: Any) -> Held:
    descriptor = None if inherited is None else inherited.detach()
    if descriptor is not None:
        os.set_inheritable(descriptor, False)  # by this process, not by those that it starts
    return Held(descriptor)


FORKS = sys.platform == "linux"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """An environment whose processes compute with one thread each, where it does not say otherwise."""
    added = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _worker(work: Work, folders: list[str], pipe: Any, held: Held, modules: Sequence[str] = ()) -> None:
    """Jobs from a pipe, one by one, until there is none or one has ended badly: then this process does, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _killed_with_the_parent()
    import torch

    torch.set_num_threads(1)
    for module in modules if FORKS else ():
        with contextlib.suppress(ImportError):  # whoever needs it says that it is missing
            importlib.import_module(module)
    while True:
        try:
            name, packed = pipe.recv()
        except EOFError:
            return
        if not FORKS:
            _do(work, name, packed, folders, pipe)
            return
        _forked(lambda name=name, packed=packed: _do(work, name, packed, folders, pipe))


def _forked(act: Callable[[], None]) -> None:
    """Act in a forked process; where that one ends without having come to the end, end as it did."""
    read, write = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(read)
        code = 1
        try:
            _killed_with_the_parent()
            if os.getppid() == parent:
                act()
                os.write(write, b"1")
                code = 0
        except BaseException:  # noqa: BLE001 - what ends a process, an interrupted training among it, ends this one
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    os.close(write)

    def stop(number: int, frame: Any) -> None:  # nothing of it is left when this process has ended
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os._exit(1)

    signal.signal(signal.SIGTERM, stop)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    through = os.read(read, 1)
    os.close(read)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    if code or not through:
        os._exit(code)


def _do(work: Work, name: str, packed: bytes, folders: list[str], pipe: Any) -> None:
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    os.dup2(2, 1)  # what a model's code prints is no result
    sys.path[:0] = [f for f in folders if f not in sys.path]  # classes of the user's own, from where they came

    def unpacked(data: bytes, tell: Tell) -> Any:
        return work(pickle.loads(data), tell)

    pipe.send(carried_out(unpacked, name, packed, pipe.send))


class Pool:
    """Processes that do jobs, a pipe for each: one that is killed can leave no other waiting.

    Args:
        work: ``work(job, tell)``, importable by name; what is told comes out of ``wait``, and what it returns in the
            outcome.
        processes: at most so many jobs at a time.
        held: a descriptor that the processes hold open with this one.
        modules: imported once in every process, before its first job.
    """

    def __init__(self, work: Work, processes: int, held: Held | None = None, modules: Sequence[str] = ()) -> None:
        self._work, self._processes, self._held, self._modules = work, processes, held or Held(None), modules
        self._running: dict[Any, tuple[str, Any]] = {}
        self._idle: list[tuple[Any, Any]] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop what runs, and let the others end."""
        if kind is None:
            for pipe, _ in self._idle:
                pipe.close()  # there is no more to do
        every = [process for _, process in (*self._running.values(), *self._idle) if process.pid is not None]
        for process in every:
            process.terminate()
        for process in every:
            process.join()

    @property
    def running(self) -> int:
        """Jobs that have been submitted and have not ended."""
        return len(self._running)

    @property
    def has_room(self) -> bool:
        """Whether a process is free, or may be started."""
        return len(self._running) < self._processes

    def submit(self, name: str, packed: bytes) -> None:
        """Give a job to a process; there must be room.

        Args:
            name: of the job.
            packed: the job, pickled.
        """
        pipe, process = self._idle.pop() if self._idle else _started(self._work, self._held, self._modules)
        self._running[pipe] = (name, process)
        with contextlib.suppress(OSError):  # one that is gone already is found to be so when it is waited for
            pipe.send((name, packed))

    def wait(self, timeout: float | None = None) -> list[tuple[str, Any]]:
        """What is next told by each process that has something to tell.

        Args:
            timeout: seconds to wait for the first; ``None``: until there is something.

        Returns:
            Names of jobs with what they told, or with the ``Outcome`` that is their end.
        """
        ready, found = wait(list(self._running), timeout), []
        for pipe in [each for each in self._running if each in ready]:
            name, process = self._running[pipe]
            item = _received(pipe, name, process)
            if isinstance(item, Outcome):
                del self._running[pipe]
                if FORKS and process.exitcode is None:
                    self._idle.append((pipe, process))
                else:
                    pipe.close()
                    process.join()
            found.append((name, item))
        return found


def _started(work: Work, held: Held, modules: Sequence[str]) -> tuple[Any, Any]:
    """A new worker, and the pipe to it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_worker, args=(work, [os.getcwd(), *PATHS], theirs, held, modules))
    with _one_thread():
        process.start()
    theirs.close()  # so that its end is seen here
    return ours, process


def _received(pipe: Any, name: str, process: Any) -> Any:
    """The next news of a job, its outcome among them."""
    try:
        return pipe.recv()
    except (EOFError, OSError):
        process.join()
        return _without_outcome(name, process.exitcode)


def _without_outcome(name: str, code: int | None) -> Outcome:
    """A process that ended before it said how its job went: its job has failed."""
    if code is None or code >= 0:
        return Outcome(name, f"its process ended without a word (exit code {code})")
    try:
        by = signal.Signals(-code).name
    except ValueError:
        by = f"signal {-code}"
    return Outcome(name, f"its process was ended by {by}, as happens for want of memory; the same command tries again")
