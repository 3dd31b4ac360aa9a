"""``stability sweep --plan``: what a sweep will take, before anything starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stability.errors import StabilityError
from stability.storage.index import Index
from stability.storage.store import ResultStore, is_store

from ...results import Record
from ...running.needs import PROCESS
from ..certificates import certificate_memory
from ..description import Sweep
from ..rows import Row
from .costs import Cost, measured

SAME = ("model", "hidden", "layers", "set", "task", "train", "certificate", "device", "data")
DISK = 8_000
"""Bytes of a result beside its network: the document, the certificate, the curves."""
CUBIC = 4e-9
"""Seconds of a proof about a file's system, per state to the third, on one core: an order of magnitude, from what
``python -m benchmarks.certify --only growth`` measures at 256 to 2,048 states."""


@dataclass(frozen=True)
class PlanLine:
    """What the jobs of one group, which differ in their seeds, take.

    Attributes:
        head: model, task, and what is varied.
        trainings: how many.
        jobs: of all kinds.
        seconds: of one training with everything asked of it, one core.
        memory: bytes of its largest job.
        parameters: of the network.
        problem: why it cannot be done, where it cannot.
    """

    head: Mapping[str, Any]
    trainings: int
    jobs: int
    seconds: float
    memory: float
    parameters: int
    problem: str = ""


@dataclass(frozen=True)
class SweepPlan(Record):
    """What a sweep will take, measured on this machine.

    Attributes:
        jobs: in all.
        done: of them, in the store already.
        workers: jobs at a time.
        cpu_seconds: of all that is left, on one core of this machine.
        wall_seconds: with so many workers, were they equally busy.
        memory: bytes of the largest job.
        disk: bytes of all results.
        lines: by group.
        models: of every network and task ``a``, ``b`` and ``k``, see ``stability.analysis.sweep.running.costs``.
    """

    jobs: int
    done: int
    workers: int
    cpu_seconds: float
    wall_seconds: float
    memory: float
    disk: float
    lines: tuple[PlanLine, ...]
    models: Mapping[str, Mapping[str, float]]


def planned(
    sweep: Sweep, store: str | None = None, workers: int = 1, tell: Callable[[str], Any] = lambda text: None
) -> SweepPlan:
    """What a sweep will take; nothing of it is begun.

    Args:
        sweep: what is to be computed.
        store: where results may be already.
        workers: jobs at a time.
        tell: gets a line of news now and then.

    Returns:
        The plan. Networks and certificates are run in small; what they will take in full is extrapolated.

    Raises:
        ConfigurationError: a description that means nothing.

    Example:
        >>> plan = planned(Sweep(["elman"], ["adding"], 1000, task={"steps": 4, "train": 32, "test": 8}), workers=4)
        >>> plan.jobs, plan.done, plan.cpu_seconds == 4 * plan.wall_seconds
        (1000, 0, True)
    """
    places, lines, models, disk = sweep.places(), [], {}, 0.0
    known: dict[str, tuple[Cost, str]] = {}
    for row, number in sweep.groups():
        key = _key(row)
        if key not in known:
            tell(f"measuring {row.head['model']} on {row.head['task'] or 'no data'}")
            known[key] = _cost(row, places)
        cost, problem = known[key]
        lines.append(_line(row, number, cost, problem))
        if row.job.kind == "training":
            where = f"{row.head['model']} on {row.head['task']}"
            models[where] = {"a": cost.overhead, "b": cost.arithmetic, "k": cost.kept}
        disk += number * (DISK + 4 * cost.parameters + 600 * (len(row.jobs) - 1))
    jobs, done = sum(line.jobs for line in lines), _done(sweep, store)
    left = (jobs - done) / jobs if jobs else 0.0
    seconds = left * sum(line.seconds * line.trainings for line in lines)
    largest = max((line.memory for line in lines), default=0.0)
    return SweepPlan(jobs, done, workers, seconds, seconds / workers, largest, disk, tuple(lines), models)


def _key(row: Row) -> str:
    """What a cost depends on: all but the seed, and names."""
    asked = {name: options for name, (options, _) in row.analyses.items()}
    own = {name: row.job.options[name] for name in SAME if name in row.job.options}
    return json.dumps([row.job.kind, own, asked, row.job.options.get("states")], sort_keys=True)


def _cost(row: Row, places: Mapping[str, str]) -> tuple[Cost, str]:
    if row.job.kind != "training":
        states = int(row.job.options.get("states") or 0)
        return Cost(0.0, CUBIC * states**3, {}, PROCESS + certificate_memory(states), 0, 0.0, 0.0, 0.0), ""
    try:
        return measured(row.job.options, {name: options for name, (options, _) in row.analyses.items()}, places), ""
    except StabilityError as error:
        return Cost(0.0, 0.0, {}, 0.0, 0, 0.0, 0.0, 0.0), str(error)


def _line(row: Row, number: int, cost: Cost, problem: str) -> PlanLine:
    head = {name: value for name, value in row.head.items() if name != "seed"}
    memory = max([cost.memory, *(float(job.memory) for job in row.jobs)])
    return PlanLine(head, number, number * len(row.jobs), cost.whole, memory, cost.parameters, problem)


def _done(sweep: Sweep, store: str | None) -> int:
    """Jobs of the sweep that have a result in the store."""
    if store is None or not is_store(store):
        return 0
    with Index(ResultStore.found(store)) as index:
        index.refresh()
        return sum(index.has(job.id) for job in sweep.jobs())
