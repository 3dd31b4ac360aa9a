"""Several long jobs at once, in whichever place, with news on the way; what a job finished on disk stays there."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .needs import Task
from .places import Lost, Processes, Runner
from .pool import Held, Outcome, Tell, Work, carried_out

LOOKED = 1.0
"""Seconds between two looks at a place while nothing happens."""


def run_jobs(
    work: Work,
    jobs: Mapping[str, Any],
    *,
    processes: int = 2,
    place: Runner | None = None,
    news: Callable[[str, str], Any] | None = None,
    done: Callable[[Outcome], Any] | None = None,
    descriptor: int | None = None,
    alone: bool = False,
    modules: Sequence[str] = (),
    gpus: int = 0,
) -> list[Outcome]:
    """Carry jobs out, as many at a time as the place has room for, in the order given.

    Args:
        work: ``work(job, tell)``, importable by name; ``tell(text)`` reports progress.
        jobs: by name; each is pickled to its process, and one that cannot be is done in this process.
        processes: at most so many at a time; 1 stays in this process.
        place: the workers of a cluster in place of processes, see ``on_cluster``; whoever made it
            leaves it, too.
        news: called with a job's name and its progress.
        done: called with each outcome, as soon as it is there.
        descriptor: an open file that the processes hold open with this one, such as the lock of a folder.
        alone: whether a single job is given a process, too: what is left of several is then computed as all of them
            would have been, with one thread, to the same last bit.
        modules: what jobs import on their way: a worker that forks its jobs imports it once for all of them.
        gpus: that each needs, for a place that counts them.

    Returns:
        One outcome a job, in the order in which they ended.

    Raises:
        KeyboardInterrupt: after the running processes were stopped.
        StabilityError: the place is gone; what is done was told.

    Example:
        >>> [outcome.value for outcome in run_jobs(lambda job, tell: 2 * job, {"a": 1, "b": 2})]
        [2, 4]
    """
    tell, ended = news or (lambda name, text: None), done or (lambda outcome: None)
    least = 1 if alone or place is not None else 2  # so many jobs are worth a process each
    there = processes > 1 or place is not None
    packed = {name: _packed((work, job)) for name, job in jobs.items()} if there and len(jobs) >= least else {}
    apart = {name: (name, data) for name, data in packed.items() if data is not None}
    apart = apart if len(apart) >= least else {}
    outcomes: list[Outcome] = []
    if apart:
        if place is not None:
            outcomes = _apart(place, apart, tell, ended, gpus)
        else:
            with Processes(doing, processes, modules, Held(descriptor)) as pool:
                outcomes = _apart(pool, apart, tell, ended, gpus)
    for name, job in jobs.items():
        if name not in apart:
            outcomes.append(carried_out(work, name, job, lambda text, name=name: tell(name, text)))
            ended(outcomes[-1])
    return outcomes


def on_cluster(
    scheduler: str | None = None, client: Any = None, security: Mapping[str, str] | None = None, most: int | None = None
) -> Runner:
    """The workers of a Dask cluster as a place for ``run_jobs``: a context manager, and used within it.

    Args:
        scheduler: its address, such as ``tcp://10.0.0.1:8786``.
        client: a ``distributed.Client`` in place of an address.
        security: for the connection: ``tls_ca_file``, ``tls_client_cert``, ``tls_client_key``.
        most: jobs at a time; as many as there are workers by default.

    Raises:
        ConfigurationError: no ``distributed``, no scheduler at the address, or no worker there.
    """
    from .cluster import Cluster

    return Cluster(scheduler, client, security or {}, doing, most, listens=True)


def doing(ticket: tuple[str, bytes], tell: Tell) -> Outcome:
    """The work of the places that ``run_jobs`` takes: a ticket is a name, and its work and job, pickled once."""
    name, packed = ticket

    def unpacked(data: bytes, tell: Tell) -> Any:
        work, job = pickle.loads(data)
        return work(job, tell)

    return carried_out(unpacked, name, packed, tell)


def _packed(job: Any) -> bytes | None:
    """The job as bytes; ``None`` where it holds something that has no name in a module."""
    try:
        return pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def _apart(
    place: Runner,
    tickets: Mapping[str, Any],
    tell: Callable[[str, str], Any],
    done: Callable[[Outcome], Any],
    gpus: int,
) -> list[Outcome]:
    """Each job wherever the place puts it."""
    waiting, outcomes = [Task(name, gpus=gpus) for name in tickets], []
    while waiting or place.running:
        while waiting and place.has_room(waiting[0]):
            task = waiting.pop(0)
            place.submit(task, tickets[task.id])
        for name, answer in place.wait(LOOKED):
            if isinstance(answer, str):
                tell(name, answer)
                continue
            outcomes.append(Outcome(name, answer.why) if isinstance(answer, Lost) else answer)
            done(outcomes[-1])
    return outcomes
