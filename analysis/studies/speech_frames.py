"""The next frame of speech by the networks of the Lipschitz RNN paper, on spoken digits in TIMIT's protocol.

Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, "Lipschitz recurrent neural networks" (ICLR 2021), section 6.2 and
table 2: 8 kHz, Hann windows of 256 samples every 128, log-magnitudes at 129 frequencies, mean squared error.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ...models import LSTM, AntisymmetricRNN, HouseholderRNN, LipschitzRNN, NeuralODERNN, SequenceModel
from ...models.counting import free_parameters
from ..tasks import Task
from .base import Job, Training, register_study
from .cases import SPEECH, Case, equal_parameters, mean_of, plan_of, run_cases
from .result import Compared, Figure, StudyResult

TITLE = "Speech: the next frame of spoken digits"
PAPER = "Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, Lipschitz recurrent neural networks (ICLR 2021)"
FULL: dict[str, Any] = {
    "steps": 12, "limit": 1200, "test_limit": 500, "hidden": 96, "epochs": 12, "batch": 32, "seeds": 2,
}  # fmt: skip
QUICK: dict[str, Any] = {
    "steps": 10, "limit": 150, "test_limit": 60, "hidden": 32, "epochs": 6, "batch": 16, "seeds": 1,
}  # fmt: skip
LEARNING_RATE = 3e-3
FIGURES = (
    Figure("lines", "Squared error of the next frame on held-out recordings", "step", "test_loss", "model",
           xlabel="epochs", ylabel="mean squared error", caption="1 is the error of naming each frequency's mean."),
    Figure("points", "After the last epoch", "model", "test_loss", source="table", ylabel="mean squared error"),
)  # fmt: skip
CONTINUOUS: dict[str, Any] = {"gamma": 0.001, "dt": 0.5}


def _layer(model: str, inputs: int, n: int) -> Any:
    if model.startswith("Lipschitz"):
        return LipschitzRNN(inputs, n, beta=0.75, integrator=model.split(", ")[1].lower(), **CONTINUOUS)
    if model == "LSTM":
        return LSTM(inputs, n)
    if model == "oRNN":
        return HouseholderRNN(inputs, n, reflections=min(n, 16))
    return AntisymmetricRNN(inputs, n, **CONTINUOUS) if model == "antisymmetric" else NeuralODERNN(inputs, n, dt=0.5)


MODELS: tuple[str, ...] = ("Lipschitz, Euler", "Lipschitz, midpoint", "antisymmetric", "neural ODE", "oRNN", "LSTM")


def _make(model: str, hidden: int, task: Task) -> SequenceModel:
    def made(name: str, n: int) -> SequenceModel:
        return SequenceModel(_layer(name, task.input_size, n), task.output_size, task.reduction)

    goal = free_parameters(made(MODELS[0], hidden))
    size = hidden if model.startswith("Lipschitz") else equal_parameters(functools.partial(made, model), goal)
    return made(model, size)


def cases(settings: Mapping[str, Any]) -> list[Case]:
    """The networks, all with the free parameters of the Lipschitz RNN."""
    options = {name: settings[name] for name in ("steps", "limit", "test_limit")}
    training = {"lr": LEARNING_RATE, "batch_size": settings["batch"], "epochs": settings["epochs"], "clip": 1.0}
    return [
        Case(name, "spoken digits", "frames", options, functools.partial(_make, name, settings["hidden"]), training,
             size=f"parameters of n={settings['hidden']}", reads=SPEECH)
        for name in MODELS
    ]  # fmt: skip


def _differences(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "Spoken digits of six speakers (the Free Spoken Digit Dataset) in place of TIMIT's sentences of 630; pieces of "
        f"{settings['steps']} frames in place of whole utterances.",
        "Each frequency has mean 0 and variance 1 over the training part; the paper normalises without saying how, so "
        "that "
        "its errors have another unit and only the order of the networks compares.",
        f"{settings['hidden']} units and networks of as many free parameters as the Lipschitz RNN, in place of 256 "
        "units and "
        f"200 K; {settings['epochs']} epochs, steps of 0.5 for what integrates an equation.",
    )


def _plan(quick: bool) -> list[Training]:
    return plan_of(cases(QUICK if quick else FULL))


@register_study(
    "speech-frames", "next frame of spoken digits in TIMIT's protocol (Lipschitz RNN paper, table 2)", _plan
)
def run_frames(job: Job) -> StudyResult:
    """Train each network to name the next frame.

    Args:
        job: ``quick``: the 120 recordings that ship and small networks; ``data_dir``: folder with the whole data set.

    Returns:
        One row a network and seed.
    """
    settings = QUICK if job.quick else FULL
    seeds = tuple(range(job.seed, job.seed + settings["seeds"]))
    rows = run_cases(job, cases(settings), seeds)
    errors = {name: mean_of(rows, "best_test_loss", model=name) for name in MODELS}
    ordered = sorted(MODELS, key=lambda name: errors[name] or 0.0)
    euler, midpoint = errors[MODELS[0]], errors[MODELS[1]]
    return StudyResult(
        "speech-frames", TITLE, job.quick, {**settings, "learning_rate": LEARNING_RATE}, tuple(rows),
        conclusion=_conclusion(errors, ordered, rows[0]["chance"]), paper=PAPER, differences=_differences(settings),
        figures=FIGURES, seeds=seeds,
        compared=(
            Compared("best network", ordered[0], "Lipschitz RNN, midpoint (RK2)", "table 2, section 6.2"),
            Compared("error, midpoint / Euler", midpoint / euler, "below 1", "section 6.2"),  # type: ignore[operator]
            Compared("place of the LSTM", f"{1 + ordered.index('LSTM')} of 6", "far behind", "section 6.2"),
        ),
    )  # fmt: skip


def _conclusion(errors: Mapping[str, Any], ordered: list[str], repeating: float) -> str:
    told = ", ".join(f"{name} {errors[name]:.3f}" for name in ordered)
    first = ordered[0] == MODELS[1]
    found = "the paper's first, the Lipschitz RNN with the midpoint rule, is first here, too" if first else (
        f"the paper's order is not found again: the {ordered[0]} is first, where the paper has the Lipschitz RNN with "
        "the midpoint rule first and the LSTM far behind"
    )  # fmt: skip
    return f"On spoken digits {found}; lowest squared errors: {told}; repeating the frame: {repeating:.3f}."
