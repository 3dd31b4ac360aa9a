"""Studies that compare networks on tasks: what is trained is listed as cases, and run and tabulated in one place."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...models.counting import free_parameters
from ..tasks import Task, make_task
from ..training.outcome import Progress
from ..training.settings import Settings
from .base import Job, Training, write_table
from .parts import Part

Measure = Callable[[nn.Module, Task], Mapping[str, Any]]


@dataclass(frozen=True)
class Case:
    """A network on a task: a row of the table for each seed.

    Attributes:
        model: what it is called.
        variant: what of the task is varied: the data, how far ahead, which excerpt.
        task: name of the task.
        options: of ``make_task``.
        make: makes the model for the task.
        settings: keyword arguments of ``Settings``, without the seed.
        size: the model's size in words.
        reads: file pattern that a given data folder must match for the task to be read from there; ``None`` for tasks
            that are generated.
    """

    model: str
    variant: str
    task: str
    options: Mapping[str, Any]
    make: Callable[[Task], nn.Module]
    settings: Mapping[str, Any]
    size: str = ""
    reads: str | None = None
    key: str = field(default="", repr=False)


SPEECH, TEXT, IMAGES = "fsdd/*.npz", "*.txt", "**/*images-idx3-ubyte*"


def own_data() -> str:
    """The folder of the data that ship with the package: a text, spoken digits."""
    return str(resources.files("stability.analysis.data"))


def data_place(data_dir: str | Path | None, pattern: str) -> str | None:
    """Where the data of a task lie: in the given folder where it has some, else in the package.

    Args:
        data_dir: the folder that the user named, if any.
        pattern: what the task reads.

    Returns:
        A folder; ``None`` for images, of which the task has its own.
    """
    if data_dir is not None and next(iter(Path(data_dir).glob(pattern)), None) is not None:
        return str(data_dir)
    return None if pattern == IMAGES else own_data()


def plan_of(cases: Sequence[Case]) -> list[Training]:
    """The trainings of a study, as its plan gives them."""
    shown = []
    for case in cases:
        where = {} if case.reads is None else {"data_dir": data_place(None, case.reads)}
        shown.append(Training(case.task, {**where, **case.options}, case.make, case.settings))
    return shown


def equal_parameters(make: Callable[[int], nn.Module], parameters: int, even: bool = False) -> int:
    """The hidden size whose model has the number of free parameters nearest to ``parameters``.

    Args:
        make: hidden size to model.
        parameters: the number to come near to.
        even: whether only even sizes are possible.

    Returns:
        A size of at least 1 (2).

    Example:
        >>> from stability.models import HouseholderRNN
        >>> equal_parameters(lambda n: HouseholderRNN(1, n, reflections=n), 100)
        11
    """
    step = 2 if even else 1
    size = step
    with torch.device("meta"):
        while free_parameters(make(size + step)) <= parameters:
            size += step
        return min((size, size + step), key=lambda n: abs(free_parameters(make(n)) - parameters))


def run_cases(
    job: Job, cases: Sequence[Case], seeds: Sequence[int], measure: Measure | None = None
) -> list[dict[str, Any]]:
    """Train every case with every seed; ``curves.csv`` has the losses and metrics after every epoch.

    Args:
        job: the study's.
        cases: what to train.
        seeds: of weights, of the order of sequences, and of generated tasks.
        measure: further numbers of a trained model, for the table.

    Returns:
        A row a case and seed: model, variant, size, seed, free parameters, last and best figures on held-out sequences,
        chance, time, and what ``measure`` gave.
    """
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    last = _Last(job)
    outcomes = job.parts(_part(job, case, last, seed, measure) for case in cases for seed in seeds)
    for case in cases:
        for seed in seeds:
            part = next(outcomes)
            task = last.task(case, seed)
            head = {"model": case.model, "variant": case.variant, "seed": seed}
            names = ("step", "train_loss", "test_loss", "test_metric")
            curves += [{**head, **dict(zip(names, point, strict=True))} for point in part["curve"]]
            write_table(job.out / "curves.csv", curves)
            losses = [point[2] for point in part["curve"]]
            rows.append(
                {
                    **head,
                    "size": case.size,
                    "parameters": part["parameters"],
                    "test_metric": part["curve"][-1][3],
                    "test_loss": losses[-1],
                    "best_test_loss": min(losses),
                    "chance": task.chance,
                    **part["measured"],
                    "seconds": part["seconds"],
                }
            )
            job.progress(f"{case.model}, {case.variant}, seed {seed}: {task.metric_name} {rows[-1]['test_metric']:.4g}")
    return rows


class _Last:
    """The tasks of cases; the last one is kept, for others are often on the same."""

    def __init__(self, job: Job) -> None:
        self._job, self._name = job, ""

    def task(self, case: Case, seed: int) -> Task:
        name = repr((case.task, dict(case.options), seed))
        if name != self._name:
            where = {} if case.reads is None else {"data_dir": data_place(self._job.data_dir, case.reads)}
            self._task, self._name = make_task(case.task, seed=seed, **where, **case.options), name
        return self._task


def _part(job: Job, case: Case, last: _Last, seed: int, measure: Measure | None) -> Part:
    task = last.task(case, seed)
    described = task.describe()
    source = {k: v for k, v in described["data"].items() if k != "folder"}
    decided = {
        "model": case.model,
        "size": case.size,
        "seed": seed,
        "settings": dict(case.settings),
        "task": {**described, "data": source, "options": dict(case.options)},
    }
    words = f"{case.model} {case.variant} {case.size}"
    key = "-".join("".join(c if c.isalnum() else " " for c in words.lower()).split()) + f"-seed{seed}"
    return Part(key, decided, lambda: _trained(job, case, last.task(case, seed), seed, measure))


def _trained(job: Job, case: Case, task: Task, seed: int, measure: Measure | None) -> dict[str, Any]:
    def news(now: Progress) -> str:
        return f"epoch {now.epoch} of {now.epochs}: {task.metric_name} {now.finished.test_metric:.4g}"  # type: ignore[union-attr]

    settings = Settings(**{**case.settings, "seed": seed})
    torch.manual_seed(seed)
    model = case.make(task)
    result = job.train(model, task, settings, f"{case.model}, {case.variant}", news)
    unit = settings.fresh or 1  # iterations where every batch is fresh, epochs otherwise
    return {
        "curve": [[e.epoch * unit, e.train_loss, e.test_loss, e.test_metric] for e in result.history],
        "parameters": result.parameters,
        "measured": dict(measure(model.to("cpu"), task)) if measure is not None else {},
        "seconds": result.seconds,
    }


def mean_of(rows: Sequence[Mapping[str, Any]], column: str, **where: Any) -> float | None:
    """The mean of a column over the rows with these values; ``None`` where there is none.

    Example:
        >>> mean_of([{"model": "a", "x": 1.0}, {"model": "a", "x": 2.0}, {"model": "b", "x": 5.0}], "x", model="a")
        1.5
    """
    found = [float(row[column]) for row in rows if all(row.get(k) == v for k, v in where.items())]
    return statistics.fmean(found) if found else None
