"""Pixel by pixel MNIST with the orthogonal RNN: how many reflections are enough.

Mhammedi, Hellicar, Rahman, Bailey, "Efficient orthogonal parametrisation of recurrent neural networks using Householder
reflections" (ICML 2017), section 5.3, table 3 and figure 6 (m = 16, 32, 64).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ...models import LSTM, HouseholderRNN, SequenceModel
from ...models.counting import free_parameters
from ..tasks import Task
from .base import Job, Training, register_study
from .cases import IMAGES, Case, equal_parameters, mean_of, plan_of, run_cases
from .orthogonal_copying import PAPER
from .result import Compared, Figure, StudyResult

TITLE = "Pixels of handwritten digits: the orthogonal RNN by number of reflections"
FULL: dict[str, Any] = {
    "side": 14, "limit": 2000, "test_limit": 1000, "hidden": 128, "reflections": (16, 32, 64), "epochs": 6, "batch": 50,
    "seeds": 2,
}  # fmt: skip
QUICK: dict[str, Any] = {
    "side": 7, "limit": 500, "test_limit": 300, "hidden": 32, "reflections": (4, 8, 16), "epochs": 4, "batch": 50,
    "seeds": 1,
}  # fmt: skip
LEARNING_RATE = 2e-3
FIGURES = (
    Figure("lines", "Accuracy on held-out images", "step", "test_metric", "model", percent=True, xlabel="epochs",
           ylabel="accuracy", caption="The paper's figure 6 shows the validation accuracy by m."),
    Figure("points", "After the last epoch", "model", "test_metric", source="table", percent=True, ylabel="accuracy"),
)  # fmt: skip


def _orthogonal(hidden: int, m: int, task: Task) -> SequenceModel:
    return SequenceModel(HouseholderRNN(task.input_size, hidden, reflections=m), task.output_size, task.reduction)


def _lstm(n: int, task: Task) -> SequenceModel:
    return SequenceModel(LSTM(task.input_size, n, forget_bias=5.0), task.output_size, task.reduction)


def _lstm_size(settings: Mapping[str, Any]) -> int:
    most = HouseholderRNN(1, settings["hidden"], reflections=max(settings["reflections"]))
    parameters = free_parameters(SequenceModel(most, 10))
    return equal_parameters(lambda n: SequenceModel(LSTM(1, n), 10), parameters)


def cases(settings: Mapping[str, Any]) -> list[Case]:
    """The oRNN with each number of reflections, and the LSTM of the largest one's parameters."""
    options = {"layout": "pixels", "size": settings["side"]} | {k: settings[k] for k in ("limit", "test_limit")}
    training = {"lr": LEARNING_RATE, "batch_size": settings["batch"], "epochs": settings["epochs"], "clip": 1.0}
    hidden, n = settings["hidden"], _lstm_size(settings)
    made = {
        **{f"oRNN, m={m}": (f"n={hidden}", functools.partial(_orthogonal, hidden, m)) for m in settings["reflections"]},
        "LSTM": (f"n={n}, forget bias 5", functools.partial(_lstm, n)),
    }
    steps = f"{settings['side'] ** 2} steps"
    return [
        Case(name, steps, "digits", options, make, training, size=size, reads=IMAGES)
        for name, (size, make) in made.items()
    ]


def _differences(settings: Mapping[str, Any]) -> tuple[str, ...]:
    side = settings["side"]
    return (
        f"Images of {side} x {side} pixels, {side**2} steps, {settings['limit']:,} of them, {settings['epochs']} "
        "epochs; "
        "the paper: 784 steps of 55,000 images.",
        f"{settings['hidden']} units, m = {', '.join(map(str, settings['reflections']))}; the paper: 128 and 256 "
        "units, "
        "m = 16, 32, 64.",
        f"Adam at {LEARNING_RATE:g} and batches of {settings['batch']}; the paper's best run has batches of one image "
        "at "
        "0.0001.",
        "The LSTM has the number of free parameters of the oRNN with the most reflections and is added.",
    )


def _plan(quick: bool) -> list[Training]:
    return plan_of(cases(QUICK if quick else FULL))


@register_study(
    "orthogonal-pixels", "oRNN on pixel MNIST with 16, 32, 64 reflections (oRNN paper, table 3, figure 6)", _plan
)
def run_pixels(job: Job) -> StudyResult:
    """Train the oRNN with three numbers of reflections, and an LSTM.

    Args:
        job: ``quick``: small images and networks; ``data_dir``: folder with MNIST's IDX files.

    Returns:
        One row a network and seed.
    """
    settings = QUICK if job.quick else FULL
    seeds = tuple(range(job.seed, job.seed + settings["seeds"]))
    rows = run_cases(job, cases(settings), seeds)
    reached = {name: mean_of(rows, "test_metric", model=name) for name in dict.fromkeys(r["model"] for r in rows)}
    middle = f"oRNN, m={settings['reflections'][1]}"
    return StudyResult(
        "orthogonal-pixels", TITLE, job.quick, {**settings, "learning_rate": LEARNING_RATE}, tuple(rows),
        conclusion=_conclusion(reached, rows), paper=PAPER, figures=FIGURES, seeds=seeds,
        differences=_differences(settings),
        compared=(
            Compared(f"{middle}: test accuracy", reached[middle], 0.972, "table 3 (n=256, m=32, 784 steps)"),
            Compared("free parameters of it", mean_of(rows, "parameters", model=middle), "about 11 K", "table 3"),
        ),
    )  # fmt: skip


def _conclusion(reached: Mapping[str, Any], rows: list[dict[str, Any]]) -> str:
    names = [name for name in reached if name.startswith("oRNN")]
    seeds = dict.fromkeys(row["seed"] for row in rows)
    grown = [all(one < other for one, other in pairwise(_of_seed(rows, names, seed))) for seed in seeds]
    told = ", ".join(f"{name} {value:.1%}" for name, value in reached.items())
    return f"Accuracy grows with the number of reflections in {sum(grown)} of {len(grown)} seeds (means: {told})."


def _of_seed(rows: list[dict[str, Any]], names: list[str], seed: int) -> list[float]:
    return [row["test_metric"] for name in names for row in rows if (row["model"], row["seed"]) == (name, seed)]
