"""What does a proof cost? The contracting RNN against the unconstrained Lipschitz RNN, equal epochs, several seeds.

MNIST as 98 steps of 8 pixels, the task of the robustness study of Erichson, Azencot, Queiruga, Hodgkinson, Mahoney,
"Lipschitz recurrent neural networks" (ICLR 2021): Adam at 0.003, batches of 128, gradient norm clipped at 1. After
training every model is put to ``certify``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from stability.certification import certify
from stability.verification import verify

from ...models import ContractingRNN, LipschitzRNN, SequenceModel
from ..tasks import Task, make_task
from ..training.settings import Settings
from .base import Job, Training, register_study, write_table
from .parts import Part
from .result import Figure, StudyResult

TITLE = "MNIST as 98 steps of 8: test accuracy of contracting and unconstrained networks"
FULL: dict[str, Any] = {"hidden": (64, 128), "seeds": 5, "epochs": 4, "limit": None}
QUICK: dict[str, Any] = {"hidden": (32,), "seeds": 2, "epochs": 2, "limit": 1000}
TRAINING: dict[str, Any] = {"lr": 3e-3, "batch_size": 128, "clip": 1.0}
RATE = 0.99
DIFFERENCES = (
    "The Lipschitz RNN paper has no networks that are contracting for every value of their parameters; its data and "
    "its layer are used here, with few epochs and gradients clipped for both kinds alike.",
)
FIGURE = Figure(
    "points", "Test accuracy with and without a proof", "model", "accuracy", "hidden", percent=True,
    caption="A stroke each seed, a marker at their mean; colours are numbers of hidden units.",
)  # fmt: skip


def _models(size: int, hidden: int) -> dict[str, Callable[[], SequenceModel]]:
    return {
        "Lipschitz RNN": lambda: SequenceModel(LipschitzRNN(size, hidden, beta=0.75, gamma=0.001, dt=0.1), 10),
        "Contracting RNN": lambda: SequenceModel(ContractingRNN(size, hidden, rate=RATE), 10),
    }


def _run(job: Job, make: Callable[[], SequenceModel], task: Task, settings: Settings) -> dict[str, Any]:
    """Train one model and ask for its certificate."""
    torch.manual_seed(settings.seed)
    model = make()
    result = job.train(model, task, settings, f"{type(model.layer).__name__}, seed {settings.seed}")
    certificate = certify(model.to("cpu").layer, rate="any", refute=True, seed=settings.seed)
    return {
        "accuracy": result.test_metric,
        "train_loss": result.train_loss,
        "seconds": result.seconds,
        "verdict": str(certificate.verdict),
        "rate": certificate.rate,
        "verified": verify(certificate).valid,
    }


def _options(settings: dict[str, Any]) -> dict[str, Any]:
    return {"layout": "8", **({} if settings["limit"] is None else {"limit": settings["limit"]})}


def _plan(quick: bool) -> list[Training]:
    chosen = QUICK if quick else FULL
    return [
        Training("digits", _options(chosen), lambda task, make=make: make(), TRAINING)
        for n in chosen["hidden"]
        for make in _models(8, n).values()
    ]


def _parts(job: Job, settings: dict[str, Any], task: Task) -> Iterator[Part]:
    for hidden in settings["hidden"]:
        for label, make in _models(task.input_size, hidden).items():
            for seed in range(job.seed, job.seed + settings["seeds"]):
                chosen = Settings(epochs=settings["epochs"], seed=seed, **TRAINING)
                decided = {"label": label, "hidden": hidden, "seed": seed, "epochs": chosen.epochs, "rate": RATE}
                decided = {**decided, "data": task.describe(), **TRAINING}
                key = f"{label.split()[0].lower()}-{hidden}-{seed}"
                yield Part(key, decided, functools.partial(_run, job, make, task, chosen))


WHAT = "test accuracy of networks that carry a proof against unconstrained ones, five seeds"


@register_study("contracting", WHAT, _plan)
def run_contracting(job: Job) -> StudyResult:
    """Train both kinds in both sizes with all seeds.

    Args:
        job: ``quick``: small networks on 1,000 images; ``data_dir``: folder with MNIST's IDX files.

    Returns:
        One row a model and size: mean, least and largest test accuracy, verdicts.
    """
    settings = QUICK if job.quick else FULL
    task = make_task("digits", data_dir=job.data_dir, **_options(settings))
    rows, curves, outcomes = [], [], job.parts(_parts(job, settings, task))
    for hidden in settings["hidden"]:
        for label in _models(task.input_size, hidden):
            parts = []
            for seed in range(job.seed, job.seed + settings["seeds"]):
                part = next(outcomes)
                parts.append(part)
                curves.append({"model": label, "hidden": hidden, "seed": seed, **part})
                write_table(job.out / "curves.csv", curves)
                job.progress(f"{label}, {hidden} units, seed {seed}: {part['accuracy']:.4f}, {part['verdict']}")
            accuracy = np.array([p["accuracy"] for p in parts])
            rows.append(
                {
                    "model": label,
                    "hidden": hidden,
                    "seeds": len(parts),
                    "epochs": settings["epochs"],
                    "mean_accuracy": float(accuracy.mean()),
                    "min_accuracy": float(accuracy.min()),
                    "max_accuracy": float(accuracy.max()),
                    "seconds": float(np.mean([p["seconds"] for p in parts])),
                    **{v: sum(p["verdict"] == v for p in parts) for v in ("certified", "refuted", "inconclusive")},
                    "verified": sum(bool(p["verified"]) for p in parts),
                }
            )
    notes = tuple(_compare(rows, hidden) for hidden in settings["hidden"])
    return StudyResult(
        "contracting", TITLE, job.quick, {**settings, **TRAINING, "rate": RATE}, tuple(rows), notes,
        conclusion=" ".join(notes), paper="No paper's: a question of ours, on the data of its robustness study.",
        differences=DIFFERENCES, figures=(FIGURE,), seeds=tuple(range(job.seed, job.seed + settings["seeds"])),
    )  # fmt: skip


def _compare(rows: list[dict[str, Any]], hidden: int) -> str:
    free, proved = (next(r for r in rows if r["hidden"] == hidden and r["model"].startswith(w)) for w in ("Lip", "Con"))
    gain = 100 * (proved["mean_accuracy"] - free["mean_accuracy"])
    return (
        f"{hidden} units: the contracting network is {abs(gain):.1f} points {'above' if gain >= 0 else 'below'} the "
        f"unconstrained one on average; {proved['certified']} of {proved['seeds']} are certified, "
        f"against {free['certified']}."
    )
