"""Sequence generation: how well a network without a signal draws an excerpt, at equal numbers of free parameters.

Mhammedi, Hellicar, Rahman, Bailey, "Efficient orthogonal parametrisation of recurrent neural networks using Householder
reflections" (ICML 2017), section 5.1, figures 2 and 3, after Koutnik et al. (2014): normalised mean squared errors of a
simple RNN, an LSTM and the oRNN with as many reflections as units, at about 250, 500 and 1,000 parameters.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...models import LSTM, ElmanRNN, HouseholderRNN, SequenceModel
from ..tasks import Task
from .base import Job, Training, register_study, write_table
from .cases import Case, equal_parameters, plan_of, run_cases
from .orthogonal_copying import PAPER
from .result import Compared, Figure, StudyResult

TITLE = "Sequence generation: normalised squared error by number of parameters"
FULL: dict[str, Any] = {"steps": 200, "excerpts": 2, "parameters": (250, 1000), "epochs": 400, "seeds": 2}
QUICK: dict[str, Any] = {"steps": 80, "excerpts": 1, "parameters": (250,), "epochs": 150, "seeds": 1}
LEARNING_RATE = 3e-3
FIGURES = (
    Figure("points", "Normalised squared error", "model", "nmse", "parameters_about", source="table", log="y",
           ylabel="lowest NMSE", caption="A point an excerpt and seed; figure 2 of the paper shows the same."),
    Figure("lines", "What the networks draw", "sample", "value", "model", source="curves", where={"what": "excerpt"},
           caption="The first excerpt with the best run of the largest size, beside the true one (figure 3)."),
)  # fmt: skip


def _sizes() -> dict[str, Callable[[int], SequenceModel]]:
    return {
        "simple RNN": lambda n: SequenceModel(ElmanRNN(1, n), 1, "all"),
        "LSTM": lambda n: SequenceModel(LSTM(1, n, forget_bias=5.0), 1, "all"),
        "oRNN": lambda n: SequenceModel(HouseholderRNN(1, n, reflections=n), 1, "all"),
    }


def _make(model: str, n: int, task: Task) -> SequenceModel:
    return _sizes()[model](n)


def cases(settings: Mapping[str, Any]) -> list[Case]:
    """Every network in every size on every excerpt."""
    training = {"lr": LEARNING_RATE, "epochs": settings["epochs"], "batch_size": 1, "clip": 1.0}
    sizes = {
        (name, about): equal_parameters(make, about)
        for name, make in _sizes().items()
        for about in settings["parameters"]
    }
    return [
        Case(name, f"excerpt {k}", "generation", {"steps": settings["steps"], "excerpt": k},
             functools.partial(_make, name, n), training, size=f"n={n}, about {about} parameters")
        for (name, about), n in sizes.items()
        for k in range(settings["excerpts"])
    ]  # fmt: skip


def _differences(settings: Mapping[str, Any]) -> tuple[str, ...]:
    sizes = " and ".join(f"{n:,}" for n in settings["parameters"])
    return (
        f"Excerpts of plucked notes made by a formula, at 44.1 kHz, in place of a recording; {settings['steps']} "
        "samples in "
        f"place of 800, {settings['excerpts']} of the five excerpts, about {sizes} parameters (the paper: 250, 500 and "
        f"1,000), {settings['epochs']} epochs in place of 5,000, {settings['seeds']} of five seeds.",
        f"Adam at {LEARNING_RATE:g} with gradients clipped to norm 1; the paper: 0.001 and more epochs.",
        "The error is the lowest along training, as in the paper.",
    )


def _plan(quick: bool) -> list[Training]:
    return plan_of(cases(QUICK if quick else FULL))


def _drawn(model: torch.nn.Module, task: Task) -> dict[str, Any]:
    with torch.no_grad():
        return {"drawn": model(task.test[0])[0, :, 0].tolist(), "true": task.test[1][0, :, 0].tolist()}


@register_study(
    "orthogonal-generation", "excerpts encoded in weights, NMSE by size (oRNN paper, figures 2 and 3)", _plan
)
def run_generation(job: Job) -> StudyResult:
    """Train each network on each excerpt with each seed.

    Args:
        job: ``quick``: one short excerpt, one size, few epochs.

    Returns:
        One row a network, size, excerpt and seed.
    """
    settings = QUICK if job.quick else FULL
    seeds = tuple(range(job.seed, job.seed + settings["seeds"]))
    rows = run_cases(job, cases(settings), seeds, _drawn)
    for row in rows:
        row["nmse"] = row["best_test_loss"]
        row["parameters_about"] = row["size"].split("about ")[1]
    drawn = _figure3(rows)
    shown = tuple({k: v for k, v in row.items() if k not in ("drawn", "true")} for row in rows)
    write_table(job.out / "curves.csv", drawn)
    medians = _medians(shown)
    most = f"{max(settings['parameters'])} parameters"
    return StudyResult(
        "orthogonal-generation", TITLE, job.quick, {**settings, "learning_rate": LEARNING_RATE}, shown,
        conclusion=_conclusion(medians, most), paper=PAPER, figures=FIGURES, seeds=seeds,
        differences=_differences(settings),
        notes=tuple(f"{name}, about {about}: median NMSE {value:.3g}." for (name, about), value in medians.items()),
        compared=(
            Compared("order of the median errors, " + most, " < ".join(_ordered(medians, most)),
                     "oRNN < LSTM on average, oRNN < simple RNN", "section 5.1, figure 2"),
        ),
    )  # fmt: skip


def _figure3(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first excerpt as the best run of each network in its largest size draws it, and the true one."""
    most = rows[0]["parameters_about"]
    for row in rows:
        most = max(most, row["parameters_about"], key=lambda words: int(words.split()[0]))
    first = [r for r in rows if r["variant"] == "excerpt 0" and r["parameters_about"] == most]
    lines = {"true": first[0]["true"]}
    for name in dict.fromkeys(row["model"] for row in first):
        lines[name] = min((r for r in first if r["model"] == name), key=lambda r: r["test_loss"])["drawn"]
    return [
        {"what": "excerpt", "model": name, "sample": k, "value": value}
        for name, line in lines.items()
        for k, value in enumerate(line)
    ]


def _medians(rows: tuple[Mapping[str, Any], ...]) -> dict[tuple[str, str], float]:
    keys = dict.fromkeys((row["model"], row["parameters_about"]) for row in rows)
    return {
        key: statistics.median(r["nmse"] for r in rows if (r["model"], r["parameters_about"]) == key) for key in keys
    }


def _ordered(medians: Mapping[tuple[str, str], float], about: str) -> list[str]:
    return sorted((name for name, size in medians if size == about), key=lambda name: medians[name, about])


def _conclusion(medians: Mapping[tuple[str, str], float], about: str) -> str:
    order = _ordered(medians, about)
    told = ", ".join(f"{name} {medians[name, about]:.2g}" for name in order)
    best = "The oRNN has the lowest error, as in the paper" if order[0] == "oRNN" else (
        f"The paper's order, the oRNN before LSTM and simple RNN, is not found again: the {order[0]} is best"
    )  # fmt: skip
    return f"{best} (medians at about {about}: {told}; always the mean: 1)."
