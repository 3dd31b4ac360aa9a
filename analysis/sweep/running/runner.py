"""The runner: what is not done yet goes to a place, what comes back is kept, until nothing is left.

It may end at any moment and begin again: all that it knows is in the files of the store. Jobs that another runner does
at the same time are done twice at most, with the same result under the same name.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from stability.errors import ConfigurationError, FileFormatError, StabilityError
from stability.storage.index import Index
from stability.storage.results import DONE, FAILED, Result, unpacked
from stability.storage.sources import code_version
from stability.storage.store import ResultStore, name_of

from ...results import Record
from ...running.places import Answer, Here, Lost, Processes, Runner
from ..job import Job
from ..rows import Description
from .table import table_of
from .worker import BLIND, CARRIED, KEPT, Ticket, carry_out

PUBLISHED = 30.0
"""Seconds between two publications of the index while jobs run."""
TOLD = 1.0
"""Seconds between two looks at the place while nothing happens."""
SHOWN = 20
"""Errors that are shown of many."""


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is.

    Attributes:
        jobs: in all.
        done: with a result.
        failed: that failed, now or before.
        running: that have been submitted.
        seconds_left: estimated from the jobs of each kind that are done; ``None`` before the first.
        news: of one job, a line.
    """

    jobs: int
    done: int
    failed: int
    running: int
    seconds_left: float | None
    news: str = ""


@dataclass(frozen=True)
class SweepOutcome(Record):
    """What a sweep came to.

    Attributes:
        jobs: in all.
        done: with a result.
        failed: that failed: their errors are kept, and they are not tried again unless that is asked for.
        lost: that gave no answer: the next run tries them again.
        table: one row a training, see ``table_of``.
        errors: of failed and lost jobs, some of them.
        store: where the results are.
        torn: files that were found torn.
    """

    jobs: int
    done: int
    failed: int
    lost: int
    table: tuple[Mapping[str, Any], ...]
    errors: Mapping[str, str]
    store: str
    torn: int = 0

    def frame(self) -> pd.DataFrame:
        """The table."""
        return pd.DataFrame(list(self.table))


def plan_digest(sweep: Description) -> str:
    """By what an index knows that it has the plan of a sweep: the description and the code, that of one's own too."""
    first = next(sweep.jobs(), None)
    return f"{sweep.digest} {'' if first is None else first.id} {code_version()}"


def opened_plan(sweep: Description, index: Index, file: str = "") -> int:
    """Bring an index up to date with its files and with a sweep.

    Args:
        sweep: what is to be computed.
        index: of the store.
        file: digest of the file that describes it.

    Returns:
        How many rows changed.
    """
    changed = index.refresh()
    digest, file = plan_digest(sweep), "" if sweep.places() else file
    if index.planned != digest or index.described != file:
        index.plan(((job.id, job.kind) for job in sweep.jobs()), digest, file)
        changed += 1
    return changed


def run_sweep(
    sweep: Description,
    out: str | Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    client: Any = None,
    security: Mapping[str, str] | None = None,
    retry_failed: bool = False,
    progress: Callable[[SweepProgress], Any] | None = None,
    file: str = "",
) -> SweepOutcome:
    """Do what is not done yet of a sweep.

    Args:
        sweep: what is to be computed.
        out: the store: a folder, or an address that fsspec knows.
        workers: jobs at a time: on this machine 1 by default, which stays in this process, on a cluster as many as it
            has workers.
        scheduler: address of a Dask scheduler, whose workers do the jobs in place of this machine.
        client: a ``distributed.Client`` in place of an address.
        security: for the connection to the scheduler: ``tls_ca_file``, ``tls_client_cert``, ``tls_client_key``.
        retry_failed: do again what failed before.
        progress: told now and then how far it is.
        file: digest of the file that describes the sweep, by which its plan is known the next time.

    Returns:
        Counts, errors and the table. A job that fails stops no other.

    Raises:
        StabilityError: a description that means nothing, a store that cannot be written, a scheduler that is not there.
        KeyboardInterrupt: results so far are kept.

    Example:
        >>> import tempfile
        >>> from stability.analysis.sweep.description import Sweep
        >>> sweep = Sweep(["elman"], ["adding"], [0, 1], train={"hidden": 4, "epochs": 1},
        ...     task={"steps": 4, "train": 8, "test": 8}, analyses={"certificate": {"rate": "any"}})
        >>> outcome = run_sweep(sweep, tempfile.mkdtemp())
        >>> outcome.jobs, outcome.done, [row["seed"] for row in outcome.table]
        (2, 2, [0, 1])
    """
    store = ResultStore.made(out)
    with Index(store) as index:
        opened_plan(sweep, index, file)
        with _place(workers, scheduler, client, security, store) as place:
            run = _Run(sweep, store, index, place, retry_failed, progress or (lambda state: None))
            if isinstance(place, Here):
                place.tell = run.tell
            try:
                run.carry_out()
            finally:
                index.publish()
        state = index.state()
        table = tuple(table_of(sweep, index))
        return SweepOutcome(
            state["jobs"], state["done"], state["failed"], len(run.lost), table, run.errors, store.place.location,
            len(index.torn),
        )  # fmt: skip


def _place(
    workers: int | None, scheduler: str | None, client: Any, security: Mapping[str, str] | None, store: ResultStore
) -> Runner:
    if scheduler is not None or client is not None:
        from ...running.cluster import Cluster

        return Cluster(scheduler, client, security or {}, carry_out, workers)
    if security:
        raise ConfigurationError("TLS is for the connection to a scheduler, and none is named")
    if workers is not None and workers > 1 and store.place.shared:
        return Processes(carry_out, workers)
    return Here(carry_out)


@dataclass
class _Run:
    """One run of a sweep."""

    sweep: Description
    store: ResultStore
    index: Index
    place: Runner
    retry: bool
    progress: Callable[[SweepProgress], Any]
    lost: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ready: deque[Job] = deque()
        self._flying: dict[str, Job] = {}
        self._children: dict[str, list[Job]] = {}
        self._source = self._rows()
        self._next: Job | None = None
        self._places = self.sweep.places()
        self._state = self.index.state()
        self._published = time.monotonic()

    def carry_out(self) -> None:
        """Until nothing is left to do."""
        self.tell("")
        while True:
            self._fill()
            if not self.place.running:
                return
            for job, answer in self.place.wait(TOLD):
                if isinstance(answer, str):
                    self.tell(answer)
                else:
                    self._note(self._flying.pop(job), answer)
            if time.monotonic() - self._published > PUBLISHED:
                self.index.publish()
                self._published = time.monotonic()

    def _rows(self) -> Iterator[Job]:
        """Jobs that can begin, row by row: those that build on others follow when these are done."""
        for row in self.sweep.rows():
            children = [job for job in row.jobs[1:] if self._to_do(job)]
            if self.index.has(row.job.id):
                yield from children
            elif row.job.id in self._flying:
                self._children[row.job.id].extend(children)
            elif self._to_do(row.job):
                self._children[row.job.id] = children
                yield row.job

    def _to_do(self, job: Job) -> bool:
        if self.index.has(job.id) or job.id in self._flying or job.id in self.lost:
            return False
        return self.retry or not self.index.has(job.id, FAILED)

    def _fill(self) -> None:
        """Submit as many jobs as there is room for; those that are ready before those of new rows."""
        while True:
            if self._next is None:
                self._next = self._ready.popleft() if self._ready else next(self._source, None)
            job = self._next
            if job is None or not self.place.has_room(job):
                return
            self._next = None
            if job.id not in self._flying:
                self._flying[job.id] = job
                self.place.submit(job, self._ticket(job))

    def _ticket(self, job: Job, members: Mapping[str, bytes] | None = None) -> dict[str, Any]:
        return Ticket(job.spec, self.store.place.location, self.store.token, self._places, members).plain()

    def _note(self, job: Job, answer: Answer) -> None:
        """Keep what came of a job, and let those begin that build on it."""
        if isinstance(answer, Lost):
            self._lose(job, answer.why)
            return
        assert isinstance(answer, dict)
        if answer["how"] == BLIND:
            parent = self.store.get(job.parent)
            if parent is None:
                self._lose(job, "the result that it builds on is gone")
            else:
                self._flying[job.id] = job
                self.place.submit(job, self._ticket(job, parent.members))
            return
        if answer["how"] not in (KEPT, CARRIED):
            self._lose(job, str(answer.get("why")))
            return
        try:
            result = self._kept(job, answer)
        except FileFormatError as error:
            self._lose(job, str(error))
            return
        self._count(job, result)

    def _kept(self, job: Job, answer: Mapping[str, Any]) -> Result:
        """The result, in the store and in the index.

        Raises:
            FileFormatError: it is not there, or cannot be written.
        """
        if answer["how"] == CARRIED:
            result = unpacked(answer["raw"], job.id)
            entry = self.store.put(result)
        else:
            result = Result(**answer["result"])
            found = self.store.place.entry(name_of(result.job, result.status))
            if found is None or result.job != job.id:
                raise FileFormatError(f"its result is not in {self.store.place.location}: is that place shared?")
            entry = found
        self.index.add(result, entry)
        return result

    def _count(self, job: Job, result: Result) -> None:
        before = self.index.has(job.id, FAILED) and result.status == DONE
        if result.status == DONE:
            self._state["done"] += 1
            kind = self._state["kinds"].setdefault(job.kind, {"jobs": 1, "done": 0, "seconds": 0.0})
            kind["done"] += 1
            kind["seconds"] += (float(result.about.get("seconds") or 0.0) - kind["seconds"]) / kind["done"]
            if before:
                self._state["failed"] -= 1
                self.store.forget(job.id)
                self.index.forget(job.id)
            self._ready.extend(child for child in self._children.pop(job.id, ()) if self._to_do(child))
        else:
            self._state["failed"] += 1
            self._children.pop(job.id, None)
            self._err(job, str((result.error or {}).get("text")))
        self.tell("")

    def _lose(self, job: Job, why: str) -> None:
        self.lost[job.id] = why
        self._children.pop(job.id, None)
        self._err(job, why)

    def _err(self, job: Job, why: str) -> None:
        if len(self.errors) < SHOWN:
            self.errors[f"{job.kind} {job.id[:10]}"] = why

    def tell(self, news: str) -> None:
        """Say how far it is, with a line of news."""
        state = self._state
        known = [(k["jobs"] - k["done"], k["seconds"]) for k in state["kinds"].values()]
        left = None
        if state["done"]:
            mean = sum(k["done"] * k["seconds"] for k in state["kinds"].values()) / state["done"]
            left = sum(max(n, 0) * (seconds or mean) for n, seconds in known) / max(self.place.workers, 1)
        told = SweepProgress(state["jobs"], state["done"], state["failed"], self.place.running, left, news)
        self.progress(told)


def sweep_state(sweep: Description, out: str | Path, file: str = "") -> dict[str, Any]:
    """How far a sweep is, from its store alone; nothing is computed.

    Args:
        sweep: the sweep.
        out: the store.
        file: digest of the file that describes it, by which its plan is known the next time.

    Returns:
        As ``Index.state``, with the number of ``torn`` files.

    Raises:
        StabilityError: no store, or a description that means nothing.
    """
    with Index(ResultStore.found(out)) as index:
        if opened_plan(sweep, index, file):
            with contextlib.suppress(StabilityError):  # a store that may only be read
                index.publish()
        return {**index.state(), "torn": len(index.torn)}
