"""Handwritten digits pixel by pixel, ordered and permuted, several seeds: accuracy with its least and largest.

Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, "Lipschitz recurrent neural networks" (ICLR 2021), section 6.1 and
tables 1 and 4: 784 steps of one pixel, 128 units, 100 epochs of Adam. With a GPU and MNIST in its own files the study
has these sizes; on a processor it reads images of 7 x 7.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ...models import LSTM, AntisymmetricRNN, ElmanRNN, LipschitzRNN, SequenceModel, free_parameters
from ..tasks import Task, make_task
from ..training.outcome import Progress
from ..training.settings import Settings
from .base import Job, Training, register_study, write_table
from .networks import LIPSCHITZ, mean
from .parts import Part
from .result import Compared, Figure, StudyResult

TITLE = "Digits pixel by pixel, ordered and permuted"
PAPER: dict[str, Any] = {"size": 28, "hidden": 128, "limit": None, "epochs": 100, "seeds": 10, "dt": 0.03, "clip": None}
FULL: dict[str, Any] = {"size": 7, "hidden": 32, "limit": 3000, "epochs": 6, "seeds": 3, "dt": 0.3, "clip": 1.0}
QUICK: dict[str, Any] = {"size": 7, "hidden": 16, "limit": 800, "epochs": 2, "seeds": 2, "dt": 0.3, "clip": 1.0}
RATES = {"ordered": 3e-3, "permuted": 3.5e-3}
SHORT = {"lr": 1e-2, "batch_size": 32}  # for few epochs
BETAS = {"ordered": 0.75, "permuted": 0.8}
TABLE1 = {
    ("ordered", "Lipschitz, Euler"): 0.994, ("ordered", "Lipschitz, midpoint"): 0.993,
    ("permuted", "Lipschitz, Euler"): 0.963, ("permuted", "Lipschitz, midpoint"): 0.962,
}  # fmt: skip
"""The paper's test accuracies with 128 units, as its section 6.1 states them."""
DIFFERENCES = (
    "Images of 7 x 7 pixels (49 steps in place of 784), a quarter of the units, 3,000 images and 6 epochs in place of "
    "60,000 and 100: the accuracies say which network learns faster on short sequences, not what each can reach.",
    "Steps of 0.3 in place of 0.03, a learning rate of 0.01 for the fewer epochs, and gradients clipped to norm 1.",
    "Exponential, nonnormal and incremental RNN of the paper's table are not part of this toolkit.",
)


def _layers(order: str, settings: Mapping[str, Any]) -> dict[str, functools.partial[SequenceModel]]:
    lipschitz = {"beta": BETAS[order], "gamma": 0.001, "dt": settings["dt"]}
    layers: dict[str, tuple[Any, dict[str, Any]]] = {
        "Lipschitz, Euler": (LipschitzRNN, lipschitz),
        "Lipschitz, midpoint": (LipschitzRNN, {**lipschitz, "integrator": "midpoint"}),
        "antisymmetric": (AntisymmetricRNN, {"dt": settings["dt"]}),
        "LSTM": (LSTM, {}),
        "Elman": (ElmanRNN, {}),
    }
    hidden = settings["hidden"]
    return {name: functools.partial(_model, layer, hidden, options) for name, (layer, options) in layers.items()}


def _model(layer: Any, hidden: int, options: Mapping[str, Any], task: Task) -> SequenceModel:
    return SequenceModel(layer(task.input_size, hidden, **options), task.output_size, reduction=task.reduction)


def _options(settings: Mapping[str, Any], order: str) -> dict[str, Any]:
    some = {} if settings["limit"] is None else {"limit": settings["limit"]}
    return {"layout": "pixels", "size": settings["size"], "permuted": order == "permuted", **some}


def _training(settings: Mapping[str, Any], order: str) -> dict[str, Any]:
    common = {"epochs": settings["epochs"], "clip": settings["clip"]}
    if settings["epochs"] <= 90:
        return {**SHORT, **common}
    return {"lr": RATES[order], "batch_size": 128, "milestones": (90,), **common}


def _plan(quick: bool) -> list[Training]:
    return [
        Training("digits", _options(sizes, order), make, _training(sizes, order))
        for sizes in ([QUICK] if quick else [FULL, PAPER])
        for order in RATES
        for make in _layers(order, sizes).values()
    ]


def _trained(job: Job, task: Task, make: Any, training: Mapping[str, Any], what: str, seed: int) -> dict[str, Any]:
    def news(now: Progress) -> str:
        return f"epoch {now.epoch} of {now.epochs}: accuracy {now.finished.test_metric:.3f}"  # type: ignore[union-attr]

    torch.manual_seed(seed)
    model = make(task)
    result = job.train(model, task, Settings(seed=seed, **training), f"{what}, seed {seed}", news)
    history = [[e.epoch, e.train_loss, e.test_metric] for e in result.history]
    head = {"accuracy": result.test_metric, "seconds": result.seconds, "parameters": free_parameters(model)}
    return {**head, "history": history}


def _parts(job: Job, settings: dict[str, Any]) -> Iterator[Part]:
    for order in RATES:
        task = make_task("digits", data_dir=job.data_dir, **_options(settings, order))
        training = _training(settings, order)
        for name, make in _layers(order, settings).items():
            for seed in range(job.seed, job.seed + settings["seeds"]):
                decided = {**settings, **training, "model": name, "order": order, "seed": seed, "data": task.describe()}
                train = functools.partial(_trained, job, task, make, training, f"{name}, {order}", seed)
                yield Part(f"{order}-{name.replace(', ', '-').lower()}-{seed}", decided, train)


@register_study("lrnn-pixels", "digits by pixels, ordered and permuted, with seeds (Lipschitz RNN, tables 1, 4)", _plan)
def run_lrnn_pixels(job: Job) -> StudyResult:
    """Train every network on both orders with every seed.

    Args:
        job: ``quick``: smaller still; ``data_dir``: folder with MNIST; ``device``: a GPU with a ``data_dir`` gets the
            paper's sizes. ``curves.csv``: a row a training and epoch.

    Returns:
        One row an order and network: mean, least and largest accuracy.
    """
    paper_size = job.device.type == "cuda" and job.data_dir is not None
    settings = QUICK if job.quick else PAPER if paper_size else FULL
    seeds = range(job.seed, job.seed + settings["seeds"])
    rows, curves, outcomes = [], [], job.parts(_parts(job, settings))
    for order in RATES:
        for name in _layers(order, settings):
            parts = []
            for seed in seeds:
                parts.append(next(outcomes))
                curves += [
                    {"task": order, "model": name, "seed": seed, "epoch": e, "train_loss": loss, "accuracy": accuracy}
                    for e, loss, accuracy in parts[-1]["history"]
                ]
                write_table(job.out / "curves.csv", curves)
            rows.append(_row(order, name, parts))
    shown = {**settings, **_training(settings, "ordered"), "beta": BETAS}
    return StudyResult(
        "lrnn-pixels", TITLE, job.quick, shown, tuple(rows), conclusion=_conclusion(rows),
        paper=f"{LIPSCHITZ}, section 6.1, tables 1 and 4", compared=_compared(rows),
        differences=() if settings is PAPER else DIFFERENCES, figures=_figures(), seeds=tuple(seeds),
    )  # fmt: skip


def _row(order: str, name: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    accuracy = [p["accuracy"] for p in parts]
    return {
        "task": order,
        "model": name,
        "parameters": parts[0]["parameters"],
        "seeds": len(parts),
        "mean_accuracy": mean(accuracy),
        "min_accuracy": min(accuracy),
        "max_accuracy": max(accuracy),
        "seconds": mean([p["seconds"] for p in parts]),
    }


def _compared(rows: list[dict[str, Any]]) -> tuple[Compared, ...]:
    found = {(row["task"], row["model"]): row for row in rows}
    return tuple(
        Compared(f"{model}, {order}: mean test accuracy", found[order, model]["mean_accuracy"], accuracy, "table 1")
        for (order, model), accuracy in TABLE1.items()
    )


def _conclusion(rows: list[dict[str, Any]]) -> str:
    told = []
    for order in RATES:
        own = sorted((r for r in rows if r["task"] == order), key=lambda r: -r["mean_accuracy"])
        told.append(f"{order}: " + ", ".join(f"{r['model']} {r['mean_accuracy']:.1%}" for r in own))
    return f"Mean test accuracies in falling order, {rows[0]['seeds']} seeds: {'; '.join(told)}."


def _figures() -> tuple[Figure, ...]:
    lines = [
        Figure(
            "lines", f"Test accuracy, {order} pixels", "epoch", "accuracy", "model", where={"task": order},
            percent=True, marks=((0.1, "chance"),), caption="Mean over the seeds, band from the least to the largest.",
        )
        for order in RATES
    ]  # fmt: skip
    return tuple(lines)
