"""``stability sweep``: trainings, certificates and attacks by the hundred, on this machine or on a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError

from ..formatting import count, duration, number, table
from .console import Interrupted
from .options import ClusterOptions, Output, no_default
from .stores import group_table

SHOWN = 40
"""Rows of a table that are printed; all are in the JSON."""


def sweep(
    file: Annotated[Path, typer.Argument(help="Description: models, tasks, seeds ... (TOML).", metavar="FILE.toml")],
    *,
    out: Annotated[
        str | None,
        no_default("The store of results: a folder, or an address that fsspec knows (s3://...).", "--out", "-o"),
    ] = None,
    cluster: ClusterOptions,
    workers: Annotated[
        int | None, no_default("Jobs at a time; by default one a core, or one a worker of the cluster.")
    ] = None,
    show_status: Annotated[bool, typer.Option("--status", help="Say how far it is, and end.")] = False,
    show_plan: Annotated[
        bool, typer.Option("--plan", help="Measure what jobs take, say what the sweep will take, and end.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Do again what failed.")] = False,
    output: Output,
) -> None:
    """Carry out many trainings with certificates and attacks; what is done already is not done again.

    Ends with exit code 2 where jobs failed; the table of the others is shown all the same.
    """
    place = out or str(Path("runs") / file.stem)
    if workers is not None and workers < 1:
        raise ConfigurationError(f"--workers must be at least 1, got {workers}")
    if show_status:
        output.show(*_status(file, place))
        return
    from ...analysis.sweep.description import Sweep

    asked = Sweep.read(file)
    many = workers or os.cpu_count() or 1
    if show_plan:
        from ...analysis.sweep.running.planning import planned

        found = planned(asked, None if out is None else place, many, lambda text: output.status(text))
        output.status()
        output.show(found.to_dict(), _plan_text(found))
        return
    from ...analysis.sweep.running.runner import run_sweep

    try:
        outcome = run_sweep(
            asked, place, workers=many if cluster.scheduler is None else workers, scheduler=cluster.scheduler,
            security=cluster.security(), retry_failed=retry_failed, progress=_Shown(output), file=_file_digest(file),
        )  # fmt: skip
    except KeyboardInterrupt as stop:
        output.status()
        raise Interrupted(f"results so far are kept in {place}; the same command goes on from there") from stop
    output.status()
    failed = outcome.failed + outcome.lost
    document = {"jobs": outcome.jobs, "failed": failed, "table": list(outcome.table)}
    output.show({**document, "errors": dict(outcome.errors)} if failed else document, _text(asked, outcome))
    if failed:
        why = next(iter(outcome.errors.values()), "errors of an earlier run; they are in the table")
        raise ConfigurationError(
            f"{failed} of {outcome.jobs} jobs have no result ({why}); --retry-failed does them again"
        )


class _Shown:
    """Live progress: how many, how long it will still take, what happens."""

    def __init__(self, output: Output) -> None:
        self._output, self._last, self._news = output, 0.0, ""

    def __call__(self, now: Any) -> None:
        self._news = now.news or self._news
        if time.monotonic() - self._last < 0.1 and now.done + now.failed < now.jobs:
            return
        self._last = time.monotonic()
        left = "" if now.seconds_left is None else f", about {duration(now.seconds_left)} left"
        failed = f", {now.failed} failed" if now.failed else ""
        news = f"; {self._news}" if self._news else ""
        self._output.status(f"{now.done} of {now.jobs} jobs{failed}, {now.running} running{left}{news}")


def _status(file: Path, place: str) -> tuple[Mapping[str, Any], str]:
    """How far a sweep is: where its plan is known already, nothing is loaded that computes."""
    from stability.storage.index import Index
    from stability.storage.store import ResultStore, is_store

    if not is_store(place):
        raise ConfigurationError(f"nothing of this sweep is in {place} yet: start it without --status")
    with Index(ResultStore.found(place)) as index:
        known = index.refresh() == 0 and index.described == _file_digest(file)
        state = {**index.state(), "torn": len(index.torn)} if known else None
    if state is None:
        from ...analysis.sweep.description import Sweep
        from ...analysis.sweep.running.runner import sweep_state

        state = sweep_state(Sweep.read(file), place, _file_digest(file))
    document = {"store": place, **state}
    lines = [
        f"{state['done']} of {state['jobs']} jobs done, {state['failed']} failed, {state['left']} left",
        f"computed: {duration(state['seconds'])}" + (f"; torn files: {state['torn']}" if state["torn"] else ""),
        "",
        table(
            ("kind", "jobs", "done", "seconds a job"),
            [(name, str(k["jobs"]), str(k["done"]), number(k["seconds"])) for name, k in state["kinds"].items()],
            right=(1, 2, 3),
        ),
    ]
    return document, "\n".join(lines)


def _file_digest(file: Path) -> str:
    """By what an index knows that its plan is that of this file, with this code."""
    from stability.storage.documents import file_digest
    from stability.storage.sources import code_version

    return f"{file_digest(file)} {code_version()}"


def _text(asked: Any, outcome: Any) -> str:
    from ...analysis.sweep.running.table import over_trainings

    rows = [row for row in outcome.table if "error" not in row]
    by = ["model", "task", *asked.grid]
    groups = over_trainings(rows, by)
    ends = (".low", ".high", ".n")
    own = [c for g in groups for c in g if c.split(".")[0] in asked.analyses and "." in c and not c.endswith(ends)]
    lines = [f"{outcome.done} of {outcome.jobs} jobs done, {outcome.failed} failed, {outcome.lost} lost", ""]
    lines += [group_table(groups, by, list(dict.fromkeys(own))[:4])] if groups else []
    if any(g["trainings"] > 1 for g in groups):
        lines += ["", "Means over the seeds, with the 95 % interval of the mean behind them."]
    lines += [f"failed: {name}: {why}" for name, why in outcome.errors.items()]
    return "\n".join([*lines, "", f"results: {outcome.store}"])


def _plan_text(plan: Any) -> str:
    """The plan for readers: what is to be done, what a job takes by what was measured, what all of it takes."""
    keys = list(dict.fromkeys(name for line in plan.lines for name in line.head))
    cells = [
        [
            *(str(line.head.get(k, "")) for k in keys), str(line.trainings), str(line.jobs), count(line.parameters),
            duration(line.seconds), f"{line.memory / 2**30:.2f} GB",
        ]
        for line in plan.lines[:SHOWN]
    ]  # fmt: skip
    header = (*keys, "trainings", "jobs", "parameters", "seconds each", "memory")
    lines = [table(header, cells, right=range(len(keys), len(header)))]
    if len(plan.lines) > SHOWN:
        lines += [f"and {len(plan.lines) - SHOWN} more groups: --json has all"]
    lines += ["", "Measured here: a batch of B sequences of T steps through N states and I inputs takes"]
    lines += ["T (a + b B N (N + I)) seconds and keeps k B T N bytes:"]
    lines += [
        f"  {name}: a = {number(m['a'])} s, b = {number(m['b'])} s, k = {number(m['k'])}"
        for name, m in list(plan.models.items())[:SHOWN]
    ]
    lines += [f"not possible: {line.head}: {line.problem}" for line in plan.lines if line.problem][:SHOWN]
    lines += [
        "",
        f"{plan.jobs} jobs, {plan.done} of them done; what is left takes about {duration(plan.cpu_seconds)} of one "
        f"core, {duration(plan.wall_seconds)} with {plan.workers} at a time",
        f"largest job: {plan.memory / 2**30:.2f} GB of memory; all results: {plan.disk / 2**30:.3g} GB on disk",
    ]
    return "\n".join(lines)
