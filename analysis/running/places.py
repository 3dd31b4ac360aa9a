"""Where jobs run on one machine: in this process, or in a pool of processes with one job each.

What a job is, is its own affair: a place is given a function, ``work(ticket, tell)``, and tickets for it.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from .needs import Needs
from .pool import Held, Outcome, Pool, Tell, Work

RESERVE = 0.85
"""Share of the machine's memory that jobs may take together."""


@dataclass(frozen=True)
class Lost:
    """A job that gave no answer: its process was killed, say. Nothing is known about its result.

    Attributes:
        why: what happened.
    """

    why: str


Answer = Any
"""What came of a job: what its work returned (no text), ``Lost``; or news of it, a line of text."""


class Runner(Protocol):
    """A place where jobs run; a context manager, which stops them when it is left."""

    @property
    def workers(self) -> int:
        """Jobs at a time."""
        ...

    @property
    def running(self) -> int:
        """Jobs submitted that have not been answered."""
        ...

    def has_room(self, job: Needs) -> bool:
        """Whether a job may be submitted now."""
        ...

    def submit(self, job: Needs, ticket: Any) -> None:
        """Begin, or queue, a job."""
        ...

    def wait(self, timeout: float) -> list[tuple[str, Answer]]:
        """What there is to say about jobs, by their identities; waits so many seconds at most for the first."""
        ...

    def __enter__(self) -> Runner: ...

    def __exit__(self, kind: type | None, error: BaseException | None, at: TracebackType | None) -> None: ...


class Here:
    """This process: a job is done when it is waited for.

    Args:
        work: ``work(ticket, tell)``; what it raises is raised.

    Attributes:
        tell: gets its news.
    """

    workers = 1

    def __init__(self, work: Work) -> None:
        self._work = work
        self.tell: Tell = lambda text: None
        self._next: tuple[Needs, Any] | None = None

    def __enter__(self) -> Here:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    @property
    def running(self) -> int:
        """One, or none."""
        return int(self._next is not None)

    def has_room(self, job: Needs) -> bool:
        """Whether there is nothing to do."""
        return self._next is None

    def submit(self, job: Needs, ticket: Any) -> None:
        """Remember a job."""
        self._next = job, ticket

    def wait(self, timeout: float) -> list[tuple[str, Answer]]:
        """Do it."""
        assert self._next is not None
        job, ticket = self._next
        self._next = None
        return [(job.id, self._work(ticket, self.tell))]


class Processes:
    """A pool of processes: each job has a process with the threads that it asks for.

    Jobs that would not fit into the machine's memory together run one after the other, and so do those on a GPU.

    Args:
        work: ``work(ticket, tell)``, importable by name.
        workers: jobs at a time.
        modules: imported once by every process, before its first job.
        held: a descriptor that the processes hold open with this one.
    """

    def __init__(self, work: Work, workers: int, modules: Sequence[str] = (), held: Held | None = None) -> None:
        self.workers = workers
        self._pool = Pool(work, workers, held, modules)
        self._jobs: dict[str, Needs] = {}
        self._memory = RESERVE * _machine_memory()

    def __enter__(self) -> Processes:
        self._pool.__enter__()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.__exit__(kind, error, at)

    @property
    def running(self) -> int:
        """Jobs that run."""
        return self._pool.running

    def has_room(self, job: Needs) -> bool:
        """Whether a process is free, and memory for the job, as far as estimates go."""
        if not self._jobs:
            return True
        if job.gpus and any(other.gpus for other in self._jobs.values()):
            return False
        memory = sum(other.memory for other in self._jobs.values()) + job.memory
        threads = sum(other.threads for other in self._jobs.values()) + job.threads
        return self._pool.has_room and memory <= self._memory and threads <= max(self.workers, os.cpu_count() or 1)

    def submit(self, job: Needs, ticket: Any) -> None:
        """Give a job to a process.

        Raises:
            pickle.PicklingError, AttributeError, TypeError: it holds something that has no name in a module.
        """
        packed = pickle.dumps(ticket)
        self._jobs[job.id] = job
        self._pool.submit(job.id, packed)

    def wait(self, timeout: float) -> list[tuple[str, Answer]]:
        """News and answers."""
        found: list[tuple[str, Answer]] = []
        for name, item in self._pool.wait(timeout):
            if isinstance(item, Outcome):
                del self._jobs[name]
                found.append((name, item.value if item.error is None else Lost(item.error)))
            else:
                found.append((name, str(item)))
        return found


def _machine_memory() -> float:
    """Bytes of this machine; without end where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
