"""The copying task of the orthogonal RNN: which activation lets an orthogonal network remember.

Mhammedi, Hellicar, Rahman, Bailey, "Efficient orthogonal parametrisation of recurrent neural networks using Householder
reflections" (ICML 2017), section 5.5. The paper reports in words: with the leaky ReLU the oRNN does not reach what the
uRNN does; with OPLU, which keeps norms, it does; with modReLU it does not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from ...models import LSTM, HouseholderRNN, SequenceModel, UnitaryRNN
from ..tasks import Task
from .base import Job, Training, register_study
from .cases import Case, mean_of, plan_of, run_cases
from .result import Compared, Figure, StudyResult

TITLE = "Copying: recall by orthogonal and unitary networks, by activation"
PAPER = (
    "Mhammedi, Hellicar, Rahman, Bailey, Efficient orthogonal parametrisation by Householder reflections (ICML 2017)"
)
FULL: dict[str, Any] = {
    "delay": 30, "length": 10, "symbols": 8, "hidden": 64, "iterations": 400, "every": 50, "batch": 20, "test": 200,
    "seeds": 2,
}  # fmt: skip
QUICK: dict[str, Any] = {
    "delay": 5, "length": 3, "symbols": 4, "hidden": 32, "iterations": 150, "every": 50, "batch": 20, "test": 100,
    "seeds": 1,
}  # fmt: skip
LEARNING_RATE = 2e-3
SAID = {
    "oRNN, leaky ReLU": "not the uRNN's performance",
    "oRNN, OPLU": "comparable to the uRNN",
    "oRNN, modReLU": "no better than with the leaky ReLU",
    "uRNN, modReLU": "the reference",
}
FIGURE = Figure(
    "lines", "Recall of the last letters on held-out sequences", "step", "test_metric", "model", percent=True,
    xlabel="iterations", ylabel="letters recalled", caption="Chance is one over the number of letters.",
)  # fmt: skip
LOSS = Figure(
    "lines", "Cross entropy on held-out sequences", "step", "test_loss", "model", log="y", xlabel="iterations",
    ylabel="nats a step", caption="Naming blanks and guessing the letters gives the line.",
)  # fmt: skip


def _layers(hidden: int) -> dict[str, Any]:
    own = {"reflections": hidden}
    return {
        "oRNN, leaky ReLU": functools.partial(HouseholderRNN, hidden_size=hidden, activation="leaky_relu", **own),
        "oRNN, OPLU": functools.partial(HouseholderRNN, hidden_size=hidden, activation="oplu", **own),
        "oRNN, modReLU": functools.partial(HouseholderRNN, hidden_size=hidden, activation="modrelu", **own),
        "uRNN, modReLU": functools.partial(UnitaryRNN, hidden_size=hidden, kind="arjovsky"),
        "LSTM": functools.partial(LSTM, hidden_size=hidden // 2, forget_bias=5.0),
    }


def _model(layer: Any, task: Task) -> SequenceModel:
    return SequenceModel(layer(task.input_size), task.output_size, task.reduction)


def cases(settings: Mapping[str, Any]) -> list[Case]:
    """The networks, all on the same task."""
    options = {name: settings[name] for name in ("delay", "length", "symbols", "test")} | {"train": settings["batch"]}
    training = {
        "lr": LEARNING_RATE, "batch_size": settings["batch"], "fresh": settings["every"], "clip": 1.0,
        "epochs": settings["iterations"] // settings["every"],
    }  # fmt: skip
    return [
        Case(name, f"{settings['delay']} blanks", "copying", options, functools.partial(_model, layer), training,
             size=f"n={layer.keywords['hidden_size']}")
        for name, layer in _layers(settings["hidden"]).items()
    ]  # fmt: skip


def _differences(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"The paper shows no figure and names neither delay nor sizes; here {settings['delay']} blanks between "
        f"{settings['length']} letters out of {settings['symbols']} and their recall, {settings['hidden']} units, as "
        "many "
        "reflections.",
        f"Adam at {LEARNING_RATE:g} with gradients clipped to norm 1, {settings['iterations']:,} batches of "
        f"{settings['batch']} fresh sequences; the uRNN is that of Arjovsky, Shah and Bengio (2016), with half as many "
        "complex units. The LSTM, with half as many units, is added.",
    )


def _plan(quick: bool) -> list[Training]:
    return plan_of(cases(QUICK if quick else FULL))


@register_study(
    "orthogonal-copying", "leaky ReLU, OPLU and modReLU on the copying task (oRNN paper, section 5.5)", _plan
)
def run_copying(job: Job) -> StudyResult:
    """Train the oRNN with three activations, the uRNN and an LSTM to repeat letters after a delay.

    Args:
        job: ``quick``: few letters, a short delay, few iterations.

    Returns:
        One row a network and seed.
    """
    settings = QUICK if job.quick else FULL
    seeds = tuple(range(job.seed, job.seed + settings["seeds"]))
    rows = run_cases(job, cases(settings), seeds)
    length, symbols = settings["length"], settings["symbols"]
    baseline = length * math.log(symbols) / (settings["delay"] + 2 * length)
    marks = ((baseline, "guessing the letters"),)
    recalled = {name: mean_of(rows, "test_metric", model=name) for name in _layers(settings["hidden"])}
    figures = (FIGURE, Figure(**{**vars(LOSS), "marks": marks}))
    return StudyResult(
        "orthogonal-copying", TITLE, job.quick, {**settings, "learning_rate": LEARNING_RATE}, tuple(rows),
        conclusion=_conclusion(recalled, settings), paper=PAPER, figures=figures, seeds=seeds,
        differences=_differences(settings),
        compared=tuple(
            Compared(f"{name}: letters recalled", recalled[name], said, "section 5.5") for name, said in SAID.items()
        ),
    )  # fmt: skip


def _conclusion(recalled: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    leaky, oplu, modrelu, _ = (recalled[name] for name in SAID)
    one, two = ("is" if found else "is not" for found in (oplu > leaky + 0.1, modrelu < leaky + 0.1))
    told = ", ".join(f"{name} {value:.0%}" for name, value in recalled.items())
    return (
        f"That OPLU remembers where the leaky ReLU does not {one} found again, that modReLU does not help {two}, after "
        f"{settings['iterations']:,} iterations at {settings['delay']} blanks; recalled: {told}."
    )
