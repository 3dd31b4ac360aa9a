"""Run independent jobs in this process or on the workers of a Dask cluster.

A worker runs one job at a time with one BLAS thread. Dask's nanny restarts a worker that is killed, and the scheduler
gives its job to another worker once. Jobs keep their results themselves or return them; nothing is stored here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import secrets
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from stability.errors import ConfigurationError, StabilityError
from stability.user_code import error_text, raise_location

from ..models.factories import PATHS
from .threads import ONE, with_threads

Tell = Callable[[str], Any]
Work = Callable[[Any, Tell], Any]
"""Function of a job, ``work(job, tell)``; ``tell(text)`` reports progress. On a cluster both are pickled."""
CONNECT_SECONDS = 30.0
"""Time limit to reach a scheduler, and to wait for its first worker."""
POLL_SECONDS = 1.0
"""Time between two checks of the connection while no job ends."""
GONE = "the scheduler is gone: results so far are kept, and the same command continues"


class SchedulerGoneError(StabilityError):
    """Lost connection to the Dask scheduler."""


@dataclass(frozen=True)
class Outcome:
    """Result of a job.

    Attributes:
        name: name of the job.
        error: error message; ``None`` for a job that succeeded.
        value: return value of the work.
    """

    name: str
    error: str | None = None
    value: Any = field(default=None, repr=False)


@contextlib.contextmanager
def cluster(workers: int = 1, scheduler: str | None = None, client: Any = None) -> Iterator[Any]:
    """Connect to a Dask cluster, or start one on this machine.

    Args:
        workers: worker processes to start on this machine when no scheduler and no client is given.
        scheduler: address of a running scheduler, such as ``tcp://10.0.0.1:8786``.
        client: a ``distributed.Client`` to use; it stays open.

    Yields:
        The client; ``None`` (jobs run in this process) for fewer than two workers or without ``distributed``.

    Raises:
        ConfigurationError: a scheduler without ``distributed``, an address where none answers, or no workers there.
    """
    if client is not None or (scheduler is None and workers < 2):
        yield client
        return
    try:
        from distributed import Client, LocalCluster, Security
    except ImportError as error:
        if scheduler is not None:
            raise ConfigurationError(
                "a cluster needs dask.distributed: pip install 'rnn-stability[cluster]', here and on its workers"
            ) from error
        yield None
        return
    if scheduler is None and find_spec("cryptography") is None:  # without TLS other users could run code here
        yield None
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        try:
            if scheduler is None:
                local = LocalCluster(
                    workers, threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0", preload=[__name__],
                    security=Security.temporary(), silence_logs=logging.CRITICAL,
                    scheduler_kwargs={"allowed_failures": 1},
                )  # fmt: skip
                stack.enter_context(local)
            where = scheduler or local
            connection = stack.enter_context(Client(where, timeout=CONNECT_SECONDS, set_as_default=False))
        except Exception as error:
            here = "no workers start on this machine (--processes 1 or --workers 1 needs none)"
            what = here if scheduler is None else f"no Dask scheduler at {scheduler}"
            raise ConfigurationError(f"{what}: {error_text(error)}") from error
        try:
            connection.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            raise ConfigurationError("the scheduler has no workers: start some with dask worker ADDRESS") from error
        yield connection


def dask_setup(worker: Any) -> None:
    """Prepare a local worker process: ignore Ctrl-C, since the parent stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def worker_count(client: Any) -> int:
    """Return the number of jobs that run at a time: one a worker, one in this process."""
    return 1 if client is None else max(1, len(_workers(client)))


def run_jobs(
    work: Work,
    jobs: Mapping[str, Any],
    *,
    client: Any = None,
    threads: int | None = None,
    gpus: int = 0,
    news: Callable[[str, str], Any] | None = None,
    done: Callable[[Outcome], Mapping[str, Any] | None] | None = None,
) -> list[Outcome]:
    """Run jobs, one at a time on each worker.

    Args:
        work: function of a job.
        jobs: arguments of the work, by name; started in this order.
        client: client of a cluster, see ``cluster``; ``None`` for this process.
        threads: torch and BLAS threads in this process, ``None`` for no change; workers always use one.
        gpus: number of GPUs that a job requires: the resource ``GPU`` of Dask workers.
        news: called with a job's name and its progress.
        done: called with each outcome as soon as it is known; returns further jobs, or ``None``.

    Returns:
        The outcomes, in the order in which the jobs ended. A failed job does not stop the others.

    Raises:
        ConfigurationError: no worker has the GPUs.
        SchedulerGoneError: the scheduler cannot be reached any more.
        KeyboardInterrupt: jobs on workers are cancelled.

    Example:
        >>> [outcome.value for outcome in run_jobs(lambda job, tell: 2 * job, {"a": 1, "b": 2})]
        [2, 4]
    """
    waiting, outcomes = deque(jobs.items()), []
    news = news or (lambda name, text: None)

    def note(outcome: Outcome) -> None:
        outcomes.append(outcome)
        more = None if done is None else done(outcome)
        waiting.extend((more or {}).items())

    if client is None:
        while waiting:
            name, job = waiting.popleft()
            note(_carry_out(work, name, job, lambda text, name=name: news(name, text), threads))
    else:
        _distribute(client, work, waiting, gpus, news, note)
    return outcomes


def _carry_out(work: Work, name: str, job: Any, tell: Tell, threads: int | None) -> Outcome:
    """Run a job and convert its exceptions to an error message."""
    try:
        with ONE, contextlib.nullcontext() if threads is None else with_threads(threads):
            return Outcome(name, None, work(job, tell))
    except StabilityError as error:
        return Outcome(name, str(error))
    except Exception as error:
        if os.environ.get("STABILITY_TRACEBACK"):
            raise
        return Outcome(name, f"unexpected {error_text(error)} (at {raise_location(error)})")
    except SystemExit as error:
        return Outcome(name, f"the model's code ended the program (sys.exit({error.code!r:.80}))")


def _on_worker(packed: bytes, name: str, folders: list[str], topic: str) -> Outcome:
    """Run a pickled job in a worker process: its prints go to standard error, its progress to the topic."""
    from distributed import get_worker

    worker = get_worker()
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]  # modules of the user's own classes

    def unpacked(data: bytes, tell: Tell) -> Any:
        work, job = pickle.loads(data)
        return work(job, tell)

    with contextlib.redirect_stdout(sys.stderr):
        return _carry_out(unpacked, name, packed, lambda text: worker.log_event(topic, [name, text]), 1)


def _distribute(
    client: Any,
    work: Work,
    waiting: deque[tuple[str, Any]],
    gpus: int,
    news: Callable[[str, str], Any],
    note: Callable[[Outcome], Any],
) -> None:
    """Run jobs on the workers of a cluster until none is left."""
    import cloudpickle  # a dependency of distributed: functions and classes without an importable name are copied

    if gpus and waiting and not any(w["resources"].get("GPU", 0) >= gpus for w in _workers(client).values()):
        raise ConfigurationError("no worker of the cluster has a GPU: start one with dask worker --resources GPU=1")
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    running: dict[str, Any] = {}
    topic, where = f"stability-{secrets.token_hex(8)}", {"resources": {"GPU": gpus}} if gpus else {}
    client.subscribe_topic(topic, lambda event: answers.put(event[1]))
    try:
        while waiting or running:
            with _reaching():
                room = worker_count(client) - len(running)
                for name, job in [waiting.popleft() for _ in range(min(room, len(waiting)))]:
                    packed, folders = cloudpickle.dumps((work, job)), [os.getcwd(), *PATHS]
                    running[name] = client.submit(_on_worker, packed, name, folders, topic, pure=False, **where)
                    running[name].add_done_callback(lambda future, name=name: answers.put((name, future)))
            with contextlib.suppress(queue.Empty):
                name, answer = answers.get(timeout=POLL_SECONDS)
                if isinstance(answer, str):
                    news(name, answer)
                else:
                    del running[name]
                    note(_outcome(name, answer))
            if client.status not in ("running", "connecting"):
                raise SchedulerGoneError(GONE)
    finally:
        with contextlib.suppress(Exception):
            client.cancel(list(running.values()), force=True)
            client.unsubscribe_topic(topic)


@contextlib.contextmanager
def _reaching() -> Iterator[None]:
    """Convert a lost connection to ``SchedulerGoneError``."""
    try:
        yield
    except OSError as error:
        raise SchedulerGoneError(GONE) from error


def _outcome(name: str, future: Any) -> Outcome:
    """Return the outcome of a job that ended on the cluster."""
    if future.status == "finished":
        with _reaching():
            return future.result()
    if future.status != "error":
        raise SchedulerGoneError(GONE)
    error = future.exception()
    if type(error).__name__ == "KilledWorker":
        return Outcome(name, "its worker was killed, as happens for want of memory; the same command tries again")
    return Outcome(name, f"its worker failed: {error_text(error)}")


def _workers(client: Any) -> dict[str, Any]:
    return dict(client.scheduler_info(n_workers=-1)["workers"])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log of Dask: lost connections are reported as ``SchedulerGoneError``."""
    names = [name for name in ("distributed", *logging.root.manager.loggerDict) if name.startswith("distributed")]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
