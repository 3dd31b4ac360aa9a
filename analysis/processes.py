"""Several long jobs at once, each in a process of its own with one thread, with news on the way.

Processes are spawned, so that nothing is inherited by accident; they leave interruptions to their parent,
which stops them, and end when it is gone. What a job finished on disk stays there.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from stability.errors import StabilityError

__all__ = ["Outcome", "run_jobs"]

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        name: the job.
        error: ``None`` when all went well, else what the input's mistake was.
    """

    name: str
    error: str | None = None


def _carry_out(work: Callable[[Any, Tell], None], name: str, job: Any, tell: Tell) -> Outcome:
    try:
        work(job, tell)
    except StabilityError as error:
        return Outcome(name, str(error))
    return Outcome(name)


def _end_with_the_parent() -> None:
    """A parent that was killed stops nobody: without this its processes would go on writing beside its successor's."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _child(work: Callable[[Any, Tell], None], name: str, packed: bytes, folder: str, news: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    sys.path.insert(0, folder)  # classes of the user's own, from where the command was given
    job = pickle.loads(packed)
    news.put(_carry_out(work, name, job, lambda text: news.put((name, text))))


def run_jobs(
    work: Callable[[Any, Tell], None],
    jobs: Mapping[str, Any],
    *,
    processes: int = 2,
    news: Callable[[str, str], Any] | None = None,
) -> list[Outcome]:
    """Carry jobs out, at most ``processes`` at a time, in the order given.

    Args:
        work: ``work(job, tell)``, importable by name; ``tell(text)`` reports progress.
        jobs: by name; each is pickled to its process, and one that cannot be is done in this process.
        processes: at most so many at a time; 1 stays in this process, and so does everything on a machine without
            the shared memory that processes need to talk.
        news: called with a job's name and its progress.

    Returns:
        One outcome a job, in the order in which they ended.

    Raises:
        RuntimeError: when a process died from anything but a mistake in the input (its own traceback is on
            standard error), or ended without a word.
        KeyboardInterrupt: after the running processes were stopped.
    """
    told = news if news is not None else lambda name, text: None
    packed = {} if processes <= 1 or len(jobs) <= 1 else {name: _packed(job) for name, job in jobs.items()}
    apart = {name: data for name, data in packed.items() if data is not None}
    outcomes: list[Outcome] = []
    try:
        box = multiprocessing.get_context("spawn").Queue() if len(apart) > 1 else None
    except OSError:  # no /dev/shm
        box = None
    if box is not None:
        outcomes = _apart(work, apart, processes, told, box)
    done = {o.name for o in outcomes}
    here = [(name, job) for name, job in jobs.items() if name not in done]
    return outcomes + [_carry_out(work, n, job, lambda text, name=n: told(name, text)) for n, job in here]


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
    told: Callable[[str, str], Any],
    box: Any,
) -> list[Outcome]:
    """Each job in a process of its own."""
    context = multiprocessing.get_context("spawn")
    waiting, running, outcomes = list(jobs), {}, []
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                name = waiting.pop(0)
                arguments = (work, name, jobs[name], os.getcwd(), box)
                running[name] = context.Process(target=_child, args=arguments, name=name)
                running[name].start()
            ended = [name for name, process in running.items() if process.exitcode is not None]
            try:
                item = box.get(timeout=0.5)
            except queue.Empty:
                for name in ended:  # it had ended before the box was found empty: nothing more comes from it
                    code = running[name].exitcode
                    raise RuntimeError(f"the process that worked on {name} died with exit code {code}") from None
                continue
            if isinstance(item, Outcome):
                outcomes.append(item)
                running.pop(item.name).join()
            else:
                told(*item)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()
    return outcomes
