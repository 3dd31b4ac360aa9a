"""RotRNN and LRU trained on short ListOps expressions and on handwritten digits: that they learn, and how well."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...models import DeepNetwork
from ..tasks import make_task
from ..training.front import train
from ..training.outcome import Progress
from .base import StudyResult, finished, keep_part, register_study

__all__ = ["run_linear_recurrences"]

TITLE = "RotRNN and LRU on short ListOps and on digits"
TASKS_FULL: dict[str, dict[str, Any]] = {
    "listops": {"max_length": 40, "min_length": 5, "train": 8000, "test": 1000},
    "digits": {"size": 14, "layout": "pixels"},
}
TASKS_QUICK: dict[str, dict[str, Any]] = {
    "listops": {"max_length": 20, "min_length": 4, "train": 1000, "test": 300},
    "digits": {"size": 7, "layout": "pixels", "limit": 500, "test_limit": 300},
}
NETWORK = {"hidden_size": 64, "width": 32, "depth": 2, "norm": "batch", "mixing": "glu"}
LAYERS: dict[str, dict[str, Any]] = {
    "rotrnn": {"heads": 8, "gamma_min": 0.5, "gamma_max": 0.999, "theta_max": math.pi / 10},
    "lru": {"r_min": 0.5, "r_max": 0.999, "theta_max": math.pi / 10},
}
TRAINING = {"lr": 3e-3, "batch_size": 50}


@register_study("linear-recurrences", "small RotRNN and LRU networks on short ListOps and on digits")
def run_linear_recurrences(
    out: Path,
    *,
    seed: int,
    quick: bool,
    data_dir: str | Path | None,
    device: torch.device,
    progress: Callable[[str], None],
) -> StudyResult:
    """Train both on both.

    Args:
        out: folder for the parts.
        seed: of weights, expressions and batches.
        quick: little data and few epochs.
        data_dir: folder with MNIST in its own format, for the digits; by default the small set in the package.
        device: where to train.
        progress: told the accuracy after every epoch.

    Returns:
        One row a network: accuracy beside chance.
    """
    tasks = TASKS_QUICK if quick else TASKS_FULL
    epochs = 3 if quick else 12
    settings = {"tasks": tasks, "network": NETWORK, "layers": LAYERS, "training": {**TRAINING, "epochs": epochs}}
    rows = []
    for task_name, options in tasks.items():
        where = {"data_dir": data_dir} if task_name == "digits" and data_dir is not None else {}
        task = make_task(task_name, seed=seed, **where, **options)
        for kind, own in LAYERS.items():
            torch.manual_seed(seed)
            model = DeepNetwork(task.input_size, task.output_size, layer=kind, options=own, **NETWORK).to(device)  # type: ignore[arg-type]

            def fit(model: DeepNetwork = model, task: Any = task, kind: str = kind) -> dict[str, Any]:
                result = train(
                    model,
                    task,
                    epochs=epochs,
                    seed=seed,
                    progress=lambda now: _tell(now, f"{kind} on {task.name}", progress),
                    **TRAINING,  # type: ignore[arg-type]
                )
                finished(result, f"{kind} on {task.name}")
                return {"accuracy": result.test_metric, "loss": result.test_loss, "seconds": result.seconds}

            chosen = {"seed": seed, "model": kind, "task": task.describe(), "epochs": epochs, **own, **NETWORK}
            part = keep_part(out, f"{kind}-{task_name}", {**chosen, **TRAINING}, fit)
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
    return StudyResult("linear-recurrences", TITLE, quick, settings, tuple(rows), tuple(notes))


def _tell(now: Progress, name: str, progress: Callable[[str], None]) -> None:
    if now.finished is not None:
        progress(f"{name}, epoch {now.epoch} of {now.epochs}: accuracy {now.finished.test_metric:.3f}")
