"""Rows of a table with the jobs behind them, and sweeps made of jobs of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .job import Job


@dataclass(frozen=True)
class Row:
    """A row of a sweep's table, with the jobs that it is made of.

    Attributes:
        head: what it is about: model, task, seed, and what else is varied.
        job: the training, or the certificate of a model's file.
        analyses: of each analysis its options and the jobs of its parts.
    """

    head: Mapping[str, Any]
    job: Job
    analyses: Mapping[str, tuple[Mapping[str, Any], tuple[Job, ...]]] = field(default_factory=dict)

    @property
    def jobs(self) -> list[Job]:
        """Every job of the row, the one that the others build on first."""
        return [self.job, *(job for _, parts in self.analyses.values() for job in parts)]


class Description(Protocol):
    """What a runner has to know: the jobs, in an order that does not change."""

    @property
    def digest(self) -> str:
        """Of all that decides which jobs there are."""
        ...

    def rows(self) -> Iterator[Row]:
        """The rows of the table, one at a time."""
        ...

    def jobs(self) -> Iterator[Job]:
        """Every job, row by row."""
        ...

    def places(self) -> dict[str, str]:
        """Where files lie that jobs name by their digests."""
        ...


class JobList:
    """Jobs of one's own: a kind for ``package.module:function``, and options for each.

    Args:
        name: of the list: another name for other jobs.
        make: gives the jobs, each time anew, so that a million of them take no memory.
        files: where files lie that jobs name by their digests.

    Example:
        >>> jobs = JobList("naps", lambda: (Job("benchmarks.naps:nap", {"number": k}) for k in range(3)))
        >>> len(list(jobs.rows()))
        3
    """

    def __init__(self, name: str, make: Callable[[], Iterator[Job]], files: Mapping[str, str] | None = None) -> None:
        self.digest, self._make, self._files = name, make, dict(files or {})

    def rows(self) -> Iterator[Row]:
        """A row a job, headed by its options."""
        for job in self._make():
            yield Row({"kind": job.kind, **job.options}, job)

    def jobs(self) -> Iterator[Job]:
        """The jobs."""
        yield from self._make()

    def places(self) -> dict[str, str]:
        """Where their files lie."""
        return dict(self._files)
