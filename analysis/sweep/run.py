"""Run a sweep: jobs without a result are computed in this process or on workers, and each result is kept at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stability.errors import StabilityError, UnsupportedError
from stability.storage.writing import write_text
from stability.user_code import error_text, raise_location

from ..jobs import Outcome, Tell, cluster, run_jobs
from ..results import Record
from .analyses import analyse_network
from .description import Sweep
from .job import Found, Inputs, Job, Row, code_version
from .results import Result, Results
from .table import table_of
from .training import certify_file, train_and_certify

MAX_ERRORS = 20
"""Number of errors that an outcome quotes."""
ERROR_LENGTH = 2000  # characters of an error that a result keeps


@dataclass(frozen=True)
class SweepOutcome(Record):
    """Result of a sweep.

    Attributes:
        jobs: number of jobs.
        done: number of jobs with a result.
        failed: number of jobs that failed: they are tried again on request only.
        lost: number of jobs without result or error, such as those whose worker was killed: the next run tries again.
        table: one row a training, see ``table_of``.
        errors: errors of failed and lost jobs, at most 20.
        store: folder of the results; ``table.csv`` in it holds the table.
    """

    jobs: int
    done: int
    failed: int
    lost: int
    table: tuple[Mapping[str, Any], ...]
    errors: Mapping[str, str]
    store: str

    def frame(self) -> pd.DataFrame:
        """Return the table as a data frame."""
        return pd.DataFrame(list(self.table))


def run_sweep(
    sweep: Sweep,
    out: str | Path,
    *,
    workers: int = 1,
    scheduler: str | None = None,
    client: Any = None,
    retry_failed: bool = False,
    progress: Callable[[dict[str, int], str], Any] | None = None,
) -> SweepOutcome:
    """Compute the missing results of a sweep.

    Args:
        sweep: description.
        out: folder of the results.
        workers: number of local processes; 1 computes in this process.
        scheduler: address of a Dask scheduler whose workers run the jobs in place of local processes.
        client: a ``distributed.Client`` in place of an address.
        retry_failed: compute failed jobs again.
        progress: called with the counts of ``sweep_state`` and the latest news.

    Returns:
        Counts, errors and the table. A failed job does not stop the others.

    Raises:
        StabilityError: an invalid description, a folder that cannot be written to, or an unreachable scheduler.
        KeyboardInterrupt: finished results are kept.

    Example:
        >>> import tempfile
        >>> sweep = Sweep(["elman"], ["adding"], [0, 1], train={"hidden": 4, "epochs": 1},
        ...     task={"steps": 4, "train": 8, "test": 8}, analyses={"certificate": {"rate": "any"}})
        >>> outcome = run_sweep(sweep, tempfile.mkdtemp())
        >>> outcome.jobs, outcome.done, [row["seed"] for row in outcome.table]
        (2, 2, [0, 1])
    """
    run = _Run(sweep, Results(Path(out), create=True), retry_failed, progress or (lambda counts, news: None))
    gpu = sweep.device.startswith("cuda")  # one process at a time uses a local GPU
    local = 1 if gpu else min(workers, sum(map(run.is_due, run.jobs.values())))
    with cluster(local, scheduler if any(map(run.is_due, run.jobs.values())) else None, client) as connection:
        gpus = int(gpu and connection is not None)
        run.progress(run.counts(), "")
        run_jobs(compute, run.first(), client=connection, threads=1, gpus=gpus, news=run.tell, done=run.keep)
    table, counts = tuple(table_of(run.rows, run.results)), run.counts()
    write_text(Path(out) / "table.csv", pd.DataFrame(list(table)).to_csv(index=False))
    return SweepOutcome(
        counts["jobs"], counts["done"], counts["failed"], len(run.lost), table, run.errors, str(Path(out))
    )


def sweep_state(sweep: Sweep, out: str | Path) -> dict[str, int]:
    """Return the number of ``jobs`` of a sweep, and how many are ``done``, ``failed`` and ``left``.

    Args:
        sweep: description.
        out: folder of the results.

    Raises:
        StabilityError: no results, or an invalid description.
    """
    return _Run(sweep, Results(Path(out)), False, lambda counts, news: None).counts()


class _Run:
    """State of a run: the jobs of a sweep with the results that are known."""

    def __init__(
        self, sweep: Sweep, store: Results, retry: bool, progress: Callable[[dict[str, int], str], Any]
    ) -> None:
        self.store, self.progress, self._paths = store, progress, sweep.paths()
        self.rows: list[Row] = list(sweep.rows())
        self.jobs: dict[str, Job] = {job.id: job for row in self.rows for job in (row.job, *row.children)}
        stored = {job: store.get(job) for job in self.jobs}
        self.results: dict[str, Result] = {job: result for job, result in stored.items() if result is not None}
        self._children = {row.job.id: row.children for row in self.rows}
        self._retried = {job for job, result in self.results.items() if retry and result.error is not None}
        self.lost: set[str] = set()
        self.errors: dict[str, str] = {}

    def is_due(self, job: Job) -> bool:
        """Return True for a job that has to be computed."""
        return job.id not in self.results or job.id in self._retried

    def first(self) -> dict[str, Any]:
        """Return the jobs that can start: trainings, and analyses of networks that are trained."""
        out: dict[str, Any] = {}
        for row in self.rows:
            if self.is_due(row.job):
                out[row.job.id] = self._ticket(row.job)
            elif self.results[row.job.id].error is None and any(map(self.is_due, row.children)):
                out |= self._analyses(row.job.id)
        return out

    def _analyses(self, parent: str) -> dict[str, Any]:
        due = [job for job in self._children[parent] if self.is_due(job)]
        network = self.store.network(parent) if due else b""
        return {job.id: self._ticket(job, network) for job in due}

    def _ticket(self, job: Job, network: bytes = b"") -> dict[str, Any]:
        return {"spec": job.spec, "paths": self._paths, "network": network}

    def keep(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Write the result of a job; return the analyses of a network that was trained."""
        job, more = self.jobs[outcome.name], None
        if outcome.error is not None:
            self.lost.add(job.id)
            self._note(job, outcome.error)
        else:
            self._retried.discard(job.id)
            result = self.results[job.id] = self.store.put(job, **outcome.value)
            if result.error is not None:
                self._note(job, result.error)
            elif job.id in self._children:
                more = self._analyses(job.id)
        self.progress(self.counts(), "")
        return more

    def _note(self, job: Job, error: str) -> None:
        if len(self.errors) < MAX_ERRORS:
            self.errors[f"{job.kind} {job.id[:10]}"] = error

    def tell(self, job: str, news: str) -> None:
        """Report the progress of a job."""
        self.progress(self.counts(), news)

    def counts(self) -> dict[str, int]:
        """Return the numbers of ``sweep_state``."""
        failed = sum(result.error is not None for result in self.results.values())
        done = len(self.results) - failed
        return {"jobs": len(self.jobs), "done": done, "failed": failed, "left": len(self.jobs) - done - failed}


def compute(ticket: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Compute a job; its errors are also results.

    Args:
        ticket: ``spec`` of the job, ``paths`` of files, and ``network``: the trained network of its parent.
        tell: reports progress.

    Returns:
        Arguments of ``Results.put``.

    Raises:
        UnsupportedError: this worker has other sources or libraries than the job was described with.
        KeyboardInterrupt: the job was interrupted.
    """
    spec, start_time = ticket["spec"], time.perf_counter()
    if code_version() != spec["code"]:
        raise UnsupportedError(f"this worker has {code_version()}, and the job is for {spec['code']}")
    values, members, error = {}, {}, None
    try:
        values, members = _work(spec, Inputs(ticket["paths"], ticket["network"], tell))
        values = json.loads(json.dumps(values, allow_nan=False))
    except (StabilityError, MemoryError) as fault:
        error = f"{type(fault).__name__}: {str(fault)[:ERROR_LENGTH]}"
    except Exception as fault:  # noqa: BLE001 - one broken job does not stop the sweep
        error = f"unexpected {error_text(fault)} (at {raise_location(fault)})"
    if error is not None:
        values, members = {}, {}
    return {"values": values, "members": members, "error": error, "seconds": time.perf_counter() - start_time}


def _work(spec: Mapping[str, Any], inputs: Inputs) -> Found:
    if spec["kind"] == "training":
        return train_and_certify(spec["options"], inputs)
    if spec["kind"] == "certificate":
        return certify_file(spec["options"], inputs)
    return analyse_network(spec["kind"], spec["options"], inputs)
