"""Jobs on a Dask cluster: the same function, sent to workers on other machines.

A worker process does one job at a time; more of its threads wait. A worker that dies loses nothing: the scheduler gives
its job to another one, and a result that was kept before is found there. Nothing here listens: the client connects to
the scheduler, and to nobody else.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import secrets
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from stability.errors import ConfigurationError, StabilityError
from stability.user_code import error_text

from .needs import Needs
from .places import Answer, Lost
from .pool import Work

LOOKED = 2.0
"""Seconds between two looks at who works there."""
AHEAD = 2
"""Jobs that wait at a worker while it does one: it never waits for the client."""
PATIENCE = 30.0
"""Seconds to connect, and to wait for the first worker, or for a worker that is large enough."""
SECURITY = ("tls_ca_file", "tls_client_cert", "tls_client_key")


class SchedulerGoneError(StabilityError):
    """The scheduler ended, or cannot be reached any more; what is done is kept."""


def _there(work: Work, ticket: Any, name: str, topic: str) -> Any:
    """A job on a worker of the cluster; its news go by way of the scheduler where somebody listens."""
    if not topic:
        return work(ticket, lambda text: None)
    from distributed import get_worker

    worker = get_worker()
    return work(ticket, lambda text: worker.log_event(topic, {"job": name, "text": text}))


class Cluster:
    """The workers of a Dask scheduler.

    Args:
        address: of the scheduler, such as ``tcp://10.0.0.1:8786`` or ``tls://...``.
        client: a ``distributed.Client``, in place of an address; it stays open.
        security: files for TLS: ``tls_ca_file``, ``tls_client_cert``, ``tls_client_key``.
        work: ``work(ticket, tell)``, importable by name on the workers.
        most: jobs at a time; ``None``: as many as there are workers.
        listens: whether the jobs' news are wanted: each goes by way of the scheduler.

    Raises:
        ConfigurationError: no ``distributed``, no scheduler at the address, or no worker there.
    """

    def __init__(
        self, address: str | None, client: Any, security: Mapping[str, str], work: Work, most: int | None = None,
        *, listens: bool = False,
    ) -> None:  # fmt: skip
        self._own, self._most, self._work = client is None, most, work
        self._client = _connected(str(address), security) if client is None else client
        self._answers: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._futures: dict[str, Any] = {}
        self._jobs: dict[str, tuple[Needs, Any, frozenset[str]]] = {}
        self._silence = contextlib.ExitStack()
        self._session = secrets.token_hex(4)
        self._count = 0
        self._members: dict[str, Mapping[str, Any]] = {}
        self._looked = 0.0
        self._alone: dict[str, float] = {}
        self._topic = f"stability-{self._session}" if listens else ""
        self._await_workers()

    def __enter__(self) -> Cluster:
        if self._own:
            self._silence.enter_context(_quiet())
        if self._topic:
            self._client.subscribe_topic(self._topic, self._heard)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take back what has not begun; what runs comes to its end and is kept, where the worker sees the store."""
        with contextlib.suppress(Exception), _quiet():
            for future in filter(None, self._futures.values()):
                future.cancel()
        if self._topic:
            with contextlib.suppress(Exception), _quiet():
                self._client.unsubscribe_topic(self._topic)
        if self._own:
            with contextlib.suppress(Exception), _quiet():
                self._client.close(timeout=5)
        self._silence.close()

    @property
    def workers(self) -> int:
        """Processes that work there."""
        return max(1, len(self._members) if self._most is None else min(len(self._members), self._most))

    @property
    def running(self) -> int:
        """Jobs that were sent and not answered."""
        return len(self._futures)

    def has_room(self, job: Needs) -> bool:
        """Whether the workers have so few jobs that they might run out of them."""
        self._look()
        return len(self._futures) < ((1 + AHEAD) * self.workers if self._most is None else self._most)

    def submit(self, job: Needs, ticket: Any) -> None:
        """Send a job to the workers that have the memory and the GPU for it."""
        able = self._able(job)
        self._jobs[job.id] = (job, ticket, able)
        if not able:
            self._alone.setdefault(job.id, time.monotonic())
            self._futures[job.id] = None
            return
        self._alone.pop(job.id, None)
        self._count += 1
        restricted = len(able) < len(self._members)
        where: dict[str, Any] = {"workers": sorted(able), "allow_other_workers": False} if restricted else {}
        if job.gpus:
            where["resources"] = {"GPU": job.gpus}
        key = f"stability-{job.id}-{self._session}-{self._count}"
        with self._told():
            future = self._client.submit(_there, self._work, ticket, job.id, self._topic, key=key, pure=False, **where)
        self._futures[job.id] = future
        future.add_done_callback(lambda done, name=job.id: self._answers.put((name, done)))

    def wait(self, timeout: float) -> list[tuple[str, Answer]]:
        """Answers.

        Raises:
            SchedulerGoneError: the scheduler is not there any more.
        """
        found: list[tuple[str, Answer]] = []
        with contextlib.suppress(queue.Empty):
            done: tuple[str, Any] = self._answers.get(timeout=timeout)
            while True:
                found += self._answered(*done)
                done = self._answers.get_nowait()
        self._look()
        return found

    def _heard(self, event: tuple[float, Any]) -> None:
        """News of a job, from whichever thread."""
        told = event[1]
        if isinstance(told, dict):
            self._answers.put((str(told.get("job")), str(told.get("text"))))

    def _answered(self, name: str, future: Any) -> list[tuple[str, Answer]]:
        if isinstance(future, str):
            return [(name, future)] if name in self._futures else []
        if self._futures.get(name) is not future:  # it was sent again since
            return []
        del self._futures[name]
        job, ticket, _ = self._jobs.pop(name)
        if future.status == "finished":
            try:
                with self._told():
                    answer = future.result(timeout=PATIENCE)
            except TimeoutError:  # its worker died before the answer was fetched
                self.submit(job, ticket)
                return []
            future.release()
            return [(name, answer)]
        if future.status in ("cancelled", "lost"):
            if getattr(self._client, "status", "") != "running":
                raise SchedulerGoneError(self._gone())
            self.submit(job, ticket)
            return []
        with _quiet():
            error = future.exception(timeout=PATIENCE)
        if type(error).__name__ == "KilledWorker":
            return [(name, Lost("every worker that took it died, as happens for want of memory"))]
        return [(name, Lost(f"the worker answered with {error_text(error)}" if error else "no answer"))]

    def _look(self) -> None:
        """See who works there; jobs that wait for workers which are gone are sent again.

        Raises:
            SchedulerGoneError: the scheduler is not there any more.
        """
        if time.monotonic() - self._looked < LOOKED:
            return
        if getattr(self._client, "status", "") not in ("running", "connecting"):
            raise SchedulerGoneError(self._gone())
        with contextlib.suppress(TimeoutError), self._told():  # a scheduler that is busy says it the next time
            self._members = dict(self._client.scheduler_info(n_workers=-1)["workers"])
        self._looked = time.monotonic()
        for name, (job, ticket, able) in list(self._jobs.items()):
            if self._futures.get(name) is None or not able & self._members.keys():
                self._send_again(name, job, ticket)

    def _send_again(self, name: str, job: Needs, ticket: Any) -> None:
        """Whom a job was meant for is gone: it goes to others, or waits for one that is large enough."""
        if self._able(job):
            if self._futures.get(name) is not None:
                self._futures[name].cancel()
            self.submit(job, ticket)
        elif time.monotonic() - self._alone.setdefault(name, time.monotonic()) > PATIENCE and self._members:
            self._futures[name] = _Refused(self._too_small(job))
            self._answers.put((name, self._futures[name]))

    def _able(self, job: Needs) -> frozenset[str]:
        """Addresses of the workers that a job fits on."""
        return frozenset(a for a, w in self._members.items() if _fits(job, w))

    def _too_small(self, job: Needs) -> str:
        most = max((float(w.get("memory_limit") or 0) for w in self._members.values()), default=0.0)
        return (
            f"it needs about {job.memory / 2**30:.1f} GB{f' and {job.gpus} GPU' * bool(job.gpus)}, and no worker has "
            f"that (the largest has {most / 2**30:.1f} GB): start one with --memory-limit, --resources GPU=1"
        )

    def _await_workers(self) -> None:
        begun = time.monotonic()
        while True:
            self._looked = 0.0
            self._look()
            if self._members:
                return
            if time.monotonic() - begun > PATIENCE:
                raise ConfigurationError("the scheduler has no workers: start some with dask worker ADDRESS")
            time.sleep(0.1)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever the connection raises is one error of ours, but that something took too long."""
        try:
            with _quiet():
                yield
        except (StabilityError, TimeoutError):
            raise
        except Exception as error:
            raise SchedulerGoneError(self._gone(error_text(error))) from error

    def _gone(self, why: str = "") -> str:
        return f"the scheduler is gone{f' ({why})' * bool(why)}: results so far are kept, the same command goes on"


class _Refused:
    """A job that no worker can take, as if a worker had answered so."""

    status = "finished"

    def __init__(self, why: str) -> None:
        self._why = why

    def result(self, timeout: float) -> Lost:
        return Lost(self._why)

    def release(self) -> None:
        pass


def _fits(job: Needs, worker: Mapping[str, Any]) -> bool:
    limit = float(worker.get("memory_limit") or 0)
    has = worker.get("resources") or {}
    return (not limit or job.memory <= limit) and float(has.get("GPU", 0)) >= job.gpus


def _connected(address: str, security: Mapping[str, str]) -> Any:
    """A client of a scheduler.

    Raises:
        ConfigurationError: no ``distributed``, an option of TLS alone, or nobody at the address.
    """
    try:
        from distributed import Client, Security
    except ImportError as error:
        raise ConfigurationError(
            "a cluster needs dask.distributed: pip install 'rnn-stability[cluster]', here and on its workers"
        ) from error
    files = {name: str(path) for name, path in security.items() if path}
    if files and (set(files) != set(SECURITY) or not address.startswith("tls://")):
        raise ConfigurationError("TLS takes three files (authority, certificate, key) and an address tls://HOST:PORT")
    try:
        with _quiet():
            secured = Security(require_encryption=True, **files) if files else None
            return Client(address, security=secured, timeout=PATIENCE, set_as_default=False, name="stability-sweep")
    except Exception as error:
        raise ConfigurationError(f"no Dask scheduler answers at {address}: {error_text(error)}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What Dask logs of a scheduler that is gone is said in our own words."""
    names = [name for name in ("distributed", *logging.root.manager.loggerDict) if name.startswith("distributed")]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
