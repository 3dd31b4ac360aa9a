"""RotRNN and LRU trained on short ListOps expressions and on handwritten digits: that they learn, and how well."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import torch

from ...models import DeepNetwork
from ..tasks import Task, make_task
from ..training.outcome import Progress
from ..training.settings import Settings
from .base import Job, Training, register_study, write_table
from .parts import Part
from .result import Compared, Figure, StudyResult

TITLE = "RotRNN and LRU on short ListOps and on digits"
TASKS_FULL: dict[str, dict[str, Any]] = {
    "listops": {"max_length": 40, "min_length": 5, "train": 8000, "test": 1000},
    "digits": {"size": 14, "layout": "pixels"},
}
TASKS_QUICK: dict[str, dict[str, Any]] = {
    "listops": {"max_length": 20, "min_length": 4, "train": 1000, "test": 300},
    "digits": {"size": 7, "layout": "pixels", "limit": 500, "test_limit": 300},
}
NETWORK: dict[str, Any] = {"hidden_size": 64, "width": 32, "depth": 2, "norm": "batch", "mixing": "glu"}
LAYERS: dict[str, dict[str, Any]] = {
    "rotrnn": {"heads": 8, "gamma_min": 0.5, "gamma_max": 0.999, "theta_max": math.pi / 10},
    "lru": {"r_min": 0.5, "r_max": 0.999, "theta_max": math.pi / 10},
}
TRAINING: dict[str, Any] = {"lr": 3e-3, "batch_size": 50}
PAPER = "Biegun, Dolga, Cunningham, Barber, RotRNN: modelling long sequences with rotations (2024), table 1"
LRA = {"rotrnn": 0.611, "lru": 0.579}
"""The paper's test accuracies on ListOps; the LRU's is the one that the authors trained themselves."""
DIFFERENCES = (
    "Expressions of at most 40 tokens (the paper: 2,048) and 8,000 of them: this shows that both learn, not what they "
    "reach on long ones; short expressions are easier, so that the accuracies do not compare.",
    "Digits by 196 pixels in place of the paper's CIFAR images; one seed.",
)
AXES: dict[str, Any] = {"xlabel": "epoch", "ylabel": "test accuracy", "percent": True, "caption": "One seed."}
FIGURES = (
    Figure("points", "Test accuracy", "task", "accuracy", "model", source="table", percent=True, caption="One seed."),
    *(
        Figure("lines", f"Along training on {name}", "epoch", "test_accuracy", "model", where={"task": name}, **AXES)
        for name in TASKS_FULL
    ),
)


def _network(kind: str, task: Task) -> DeepNetwork:
    return DeepNetwork(task.input_size, task.output_size, layer=kind, options=LAYERS[kind], **NETWORK)


def _plan(quick: bool) -> list[Training]:
    return [
        Training(name, options, lambda task, kind=kind: _network(kind, task), TRAINING)
        for name, options in (TASKS_QUICK if quick else TASKS_FULL).items()
        for kind in LAYERS
    ]


@register_study("linear-recurrences", "small RotRNN and LRU networks on short ListOps and on digits", _plan)
def run_linear_recurrences(job: Job) -> StudyResult:
    """Train both on both.

    Args:
        job: ``quick``: little data and few epochs; ``data_dir``: folder with MNIST in its own format, for the digits.

    Returns:
        One row a network: accuracy beside chance. Beside the parts there is ``curves.csv`` (model, task, epoch,
        train_loss, test_accuracy).
    """
    tasks = TASKS_QUICK if job.quick else TASKS_FULL
    chosen = Settings(epochs=3 if job.quick else 12, seed=job.seed, **TRAINING)
    epochs = {"epochs": chosen.epochs}
    settings = {"tasks": tasks, "network": NETWORK, "layers": LAYERS, "training": {**TRAINING, **epochs}}
    made = {}
    for task_name, options in tasks.items():
        where = {"data_dir": job.data_dir} if task_name == "digits" and job.data_dir is not None else {}
        made[task_name] = make_task(task_name, seed=job.seed, **where, **options)
    rows, curves, parts = [], [], job.parts(_parts(job, made, chosen))
    for task_name, task in made.items():
        for kind in LAYERS:
            part, model = next(parts), _network(kind, task)
            names = ("epoch", "train_loss", "test_accuracy")
            curves += [{"model": kind, "task": task_name, **dict(zip(names, point))} for point in part["curve"]]
            write_table(job.out / "curves.csv", curves)
            rows.append(
                {
                    "model": kind,
                    "task": task_name,
                    "parameters": sum(p.numel() for p in model.parameters()),
                    "train": len(task.train[0]),
                    "steps": task.steps,
                    "chance": task.chance,
                    "accuracy": part["accuracy"],
                    "seconds": part["seconds"],
                }
            )
    notes = [f"{row['model']} on {row['task']}: {row['accuracy']:.1%}, chance {row['chance']:.1%}." for row in rows]
    listops = {row["model"]: row["accuracy"] for row in rows if row["task"] == "listops"}
    return StudyResult(
        "linear-recurrences", TITLE, job.quick, settings, tuple(rows), tuple(notes),
        conclusion=_conclusion(rows), paper=PAPER, differences=DIFFERENCES, figures=FIGURES, seeds=(job.seed,),
        compared=tuple(Compared(f"ListOps, {m}", listops.get(m), said, "table 1") for m, said in LRA.items()),
    )  # fmt: skip


def _conclusion(rows: list[dict[str, Any]]) -> str:
    told = "; ".join(
        f"{name}: " + ", ".join(f"{r['model']} {r['accuracy']:.1%}" for r in rows if r["task"] == name)
        for name in dict.fromkeys(row["task"] for row in rows)
    )
    above = all(row["accuracy"] > 1.5 * row["chance"] for row in rows)
    return f"{'All four networks learn, one seed each' if above else 'Not every network learns'} ({told})."


def _parts(job: Job, tasks: dict[str, Task], chosen: Settings) -> Iterator[Part]:
    for task_name, task in tasks.items():
        for kind, own in LAYERS.items():
            decided = {"seed": job.seed, "model": kind, "task": task.describe(), "epochs": chosen.epochs}
            decided |= {**own, **NETWORK, **TRAINING, "recorded": "every epoch"}
            yield Part(f"{kind}-{task_name}", decided, functools.partial(_fit, job, task, chosen, kind))


def _fit(job: Job, task: Task, settings: Settings, kind: str) -> dict[str, Any]:
    torch.manual_seed(job.seed)
    model = _network(kind, task)

    def news(now: Progress) -> str:
        return f"epoch {now.epoch} of {now.epochs}: accuracy {now.finished.test_metric:.3f}"  # type: ignore[union-attr]

    result = job.train(model, task, settings, f"{kind} on {task.name}", news)
    curve = [[e.epoch, e.train_loss, e.test_metric] for e in result.history]
    return {"accuracy": result.test_metric, "loss": result.test_loss, "curve": curve, "seconds": result.seconds}
