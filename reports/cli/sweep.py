"""Command ``stability sweep``: many trainings with certificates and analyses, here or on a Dask cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError

from ..formatting import number, table
from .console import Interrupted, time_left
from .options import Output, Scheduler, with_default

COLUMNS = ("test_metric", "verdict", "rate", "overshoot")
"""Columns of the printed table. The columns of the group and up to four of the analyses come in addition."""
MAX_ROWS = 200
"""Maximum number of rows of the printed table."""


def sweep(
    file: Annotated[
        Path, typer.Argument(help="TOML file with models, tasks, seeds (docs/sweeps.md).", metavar="FILE.toml")
    ],
    *,
    out: Annotated[
        Path | None, with_default("Folder for the results.", "runs/FILE", "--out", "-o", metavar="FOLDER")
    ] = None,
    scheduler: Scheduler = None,
    workers: Annotated[
        int | None,
        with_default("Number of parallel processes; 2 or more need the `cluster` extra.", "one per core"),
    ] = None,
    show_status: Annotated[bool, typer.Option("--status", help="Number of finished jobs, without computing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Second try of the jobs that failed.")] = False,
    output: Output,
) -> None:
    """Run many trainings and print one table of results.

    The table also shows certificates and analyses. Finished jobs are not repeated. Exit code 2 if jobs failed; the
    table shows the others.
    """
    from ...analysis.sweep import Sweep, run_sweep, sweep_state

    folder = out or Path("runs") / file.stem
    if workers is not None and workers < 1:
        raise ConfigurationError(f"--workers must be at least 1, got {workers}")
    plan = Sweep.read(file)
    if show_status:
        state = sweep_state(plan, folder)
        text = "{done} of {jobs} jobs done, {failed} failed, {left} left".format(**state)
        output.show({"store": folder, **state}, text)
        return
    start_time, before = time.monotonic(), -1

    def progress(counts: dict[str, int], message: str) -> None:
        nonlocal before
        ended = counts["jobs"] - counts["left"]
        before = ended if before < 0 else before
        remaining = time_left(ended - before, counts["jobs"] - before, time.monotonic() - start_time)
        output.status(f"{ended} of {counts['jobs']} jobs, {counts['failed']} failed{remaining}  {message}")

    try:
        outcome = run_sweep(
            plan, folder, workers=workers or os.cpu_count() or 1, scheduler=scheduler, retry_failed=retry_failed,
            progress=progress,
        )  # fmt: skip
    except KeyboardInterrupt as stop:
        output.status()
        raise Interrupted(f"finished results are kept in {folder}; the same command continues") from stop
    output.status()
    failed = outcome.failed + outcome.lost
    document = {"jobs": outcome.jobs, "failed": failed, "table": list(outcome.table)}
    output.show({**document, "errors": dict(outcome.errors)} if failed else document, _text(plan, outcome))
    if failed:
        why = next(iter(outcome.errors.values()), "errors of an earlier run; they are in the table")
        raise ConfigurationError(
            f"{failed} of {outcome.jobs} jobs have no result ({why}); --retry-failed computes them again"
        )


def _text(plan: Any, outcome: Any) -> str:
    """Averages over the seeds, and errors, for the terminal."""
    from ...analysis.sweep import over_trainings

    by = ["model", "task", *plan.grid]
    groups = over_trainings([row for row in outcome.table if "error" not in row], by)
    suffixes = (".low", ".high", ".n")
    analyses = [
        c for g in groups for c in g if "." in c and c.split(".")[0] in plan.analyses and not c.endswith(suffixes)
    ]
    lines = [f"{outcome.done} of {outcome.jobs} jobs done, {outcome.failed} failed, {outcome.lost} lost", ""]
    lines += [_table(groups, by, list(dict.fromkeys(analyses))[:4])] if groups else []
    if any(g["trainings"] > 1 for g in groups):
        lines += ["", "Means over the seeds, with the 95 % interval of the mean in brackets."]
    lines += [f"failed: {name}: {why}" for name, why in outcome.errors.items()]
    return "\n".join([*lines, "", f"results: {outcome.store}"])


def _table(groups: Sequence[Mapping[str, Any]], by: Sequence[str], more: Sequence[str]) -> str:
    columns = [c for c in (*COLUMNS, *more) if any(g.get(c) is not None for g in groups)]
    cells = [[*(str(g.get(c)) for c in by), str(g["trainings"]), *(_cell(g, c) for c in columns)] for g in groups]
    grid = table((*by, "trainings", *columns), cells[:MAX_ROWS], right=range(len(by), len(by) + 1 + len(columns)))
    return grid + (f"\nand {len(groups) - MAX_ROWS} more rows in table.csv" if len(groups) > MAX_ROWS else "")


def _cell(group: Mapping[str, Any], column: str) -> str:
    value = group.get(column)
    if value is None or isinstance(value, str):
        return value or "none"
    low, high = group.get(f"{column}.low"), group.get(f"{column}.high")
    return number(value) if low is None or low == high else f"{number(value)} ({number(low)} to {number(high)})"
