"""Several long jobs at once, each in a process of its own with one thread, with news on the way.

Processes are spawned, so that nothing is inherited by accident; they leave interruptions to their parent,
which stops them, and end when it is gone. What a job finished on disk stays there.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import wait
from typing import Any

from stability.errors import StabilityError
from stability.foreign import in_words, raised_at

from ...models.factories import PATHS

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        name: the job.
        error: ``None`` when all went well, else what went wrong: a mistake in the input, or how its process ended.
    """

    name: str
    error: str | None = None


def _carry_out(work: Callable[[Any, Tell], None], name: str, job: Any, tell: Tell) -> Outcome:
    try:
        work(job, tell)
    except StabilityError as error:
        return Outcome(name, str(error))
    except Exception as error:
        if os.environ.get("STABILITY_TRACEBACK"):
            raise
        return Outcome(name, f"unexpected {in_words(error)} (at {raised_at(error)})")
    except SystemExit as error:
        return Outcome(name, f"the model's code ended the program (sys.exit({error.code!r:.80}))")
    return Outcome(name)


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


class _Held:
    """A descriptor that a process inherits as it is started: what it locks stays locked until that one ends, too."""

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> Any:
        return _hold, (None if self.descriptor is None else reduction.DupFd(self.descriptor),)


def _hold(inherited: Any) -> _Held:
    descriptor = None if inherited is None else inherited.detach()
    if descriptor is not None:
        os.set_inheritable(descriptor, False)  # by this process, not by those that it starts
    return _Held(descriptor)


def _child(
    work: Callable[[Any, Tell], None], name: str, packed: bytes, folders: list[str], news: Any, held: _Held
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _killed_with_the_parent()
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    os.dup2(2, 1)  # what a model's code prints is no result
    sys.path[:0] = [f for f in folders if f not in sys.path]  # classes of the user's own, from where they came

    def unpacked(data: bytes, tell: Tell) -> None:
        work(pickle.loads(data), tell)

    news.send(_carry_out(unpacked, name, packed, news.send))


def run_jobs(
    work: Callable[[Any, Tell], None],
    jobs: Mapping[str, Any],
    *,
    processes: int = 2,
    news: Callable[[str, str], Any] | None = None,
    done: Callable[[Outcome], Any] | None = None,
    descriptor: int | None = None,
    alone: bool = False,
) -> list[Outcome]:
    """Carry jobs out, at most ``processes`` at a time, in the order given.

    Args:
        work: ``work(job, tell)``, importable by name; ``tell(text)`` reports progress.
        jobs: by name; each is pickled to its process, and one that cannot be is done in this process.
        processes: at most so many at a time; 1 stays in this process.
        news: called with a job's name and its progress.
        done: called with each outcome, as soon as it is there.
        descriptor: an open file that the processes hold open with this one, such as the lock of a folder.
        alone: whether a single job is given a process, too: what is left of several is then computed as all of them
            would have been, with one thread, to the same last bit.

    Returns:
        One outcome a job, in the order in which they ended.

    Raises:
        KeyboardInterrupt: after the running processes were stopped.
    """
    tell, ended = news or (lambda name, text: None), done or (lambda outcome: None)
    least = 1 if alone else 2  # so many jobs are worth a process each
    packed = {name: _packed(job) for name, job in jobs.items()} if processes > 1 and len(jobs) >= least else {}
    apart = {name: data for name, data in packed.items() if data is not None}
    outcomes = _apart(work, apart, processes, tell, ended, _Held(descriptor)) if len(apart) >= least else []
    known = {o.name for o in outcomes}
    for name, job in jobs.items():
        if name not in known:
            outcomes.append(_carry_out(work, name, job, lambda text, name=name: tell(name, text)))
            ended(outcomes[-1])
    return outcomes


def _packed(job: Any) -> bytes | None:
    """The job as bytes; ``None`` where it holds something that has no name in a module."""
    try:
        return pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def _apart(
    work: Callable[[Any, Tell], None],
    jobs: Mapping[str, bytes],
    processes: int,
    tell: Callable[[str, str], Any],
    done: Callable[[Outcome], Any],
    held: _Held,
) -> list[Outcome]:
    """Each job in a process of its own, with a pipe of its own: one that is killed can leave no other waiting."""
    context = multiprocessing.get_context("spawn")
    waiting, outcomes = list(jobs), []
    running: dict[Any, tuple[str, Any]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                name = waiting.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                arguments = (work, name, jobs[name], [os.getcwd(), *PATHS], theirs, held)
                process = context.Process(target=_child, args=arguments, name=name)
                running[ours] = (name, process)
                process.start()
                theirs.close()  # so that its end is seen here
            ready = wait(list(running))
            for pipe in [each for each in running if each in ready]:
                name, process = running[pipe]
                try:
                    item = pipe.recv()
                except (EOFError, OSError):
                    process.join()
                    item = _without_outcome(name, process.exitcode)
                if isinstance(item, Outcome):
                    del running[pipe]
                    pipe.close()
                    process.join()
                    outcomes.append(item)
                    done(item)
                else:
                    tell(name, item)
    finally:
        started = [process for _, process in running.values() if process.pid is not None]
        for process in started:
            process.terminate()
        for process in started:
            process.join()
    return outcomes


def _without_outcome(name: str, code: int | None) -> Outcome:
    """A process that ended before it said how its job went: its job has failed."""
    if code is None or code >= 0:
        return Outcome(name, f"its process ended without a word (exit code {code})")
    try:
        by = signal.Signals(-code).name
    except ValueError:
        by = f"signal {-code}"
    return Outcome(name, f"its process was ended by {by}, as happens for want of memory; the same command tries again")
