"""Long sequences: RotRNN, LRU and LSTM on expressions, paths and raw speech.

Biegun, Dolga, Cunningham, Barber, "RotRNN: modelling long sequences with rotations" (2024), tables 1 and 2: ListOps and
Pathfinder of the Long Range Arena, and raw waveforms of spoken words.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from ...models import DeepNetwork
from ..tasks import Task
from .base import Job, Training, register_study
from .cases import SPEECH, Case, mean_of, plan_of, run_cases
from .result import Compared, Figure, StudyResult

TITLE = "Long sequences: RotRNN, LRU and LSTM"
PAPER = "Biegun, Dolga, Cunningham, Barber, RotRNN: modelling long sequences with rotations (2024)"
TASKS_FULL: dict[str, dict[str, Any]] = {
    "ListOps": {"task": "listops", "max_length": 100, "min_length": 20, "train": 2000, "test": 300},
    "Pathfinder": {"task": "pathfinder", "train": 400, "test": 200},
    "raw speech": {"task": "spoken", "length": 4096, "frame": 4, "limit": 500, "test_limit": 200},
}
TASKS_QUICK: dict[str, dict[str, Any]] = {
    "ListOps": {"task": "listops", "max_length": 30, "min_length": 5, "train": 300, "test": 100},
    "Pathfinder": {"task": "pathfinder", "train": 60, "test": 40},
    "raw speech": {"task": "spoken", "length": 4096, "frame": 16, "limit": 60, "test_limit": 60},
}
NETWORK: dict[str, Any] = {"hidden_size": 64, "width": 32, "depth": 2, "norm": "batch", "mixing": "glu"}
LINEAR = {"theta_max": math.pi / 10}
LAYERS: dict[str, dict[str, Any]] = {
    "RotRNN": {"heads": 8, "gamma_min": 0.5, "gamma_max": 0.999, **LINEAR},
    "LRU": {"r_min": 0.5, "r_max": 0.999, **LINEAR},
    "LSTM": {},
}
EPOCHS = {"full": {"ListOps": 6, "Pathfinder": 4, "raw speech": 6}, "quick": dict.fromkeys(TASKS_QUICK, 2)}
TRAINING: dict[str, Any] = {"lr": 3e-3, "batch_size": 32, "clip": 1.0, "schedule": "cosine", "warm_up": 0.1}
PRINTED = {
    ("RotRNN", "ListOps"): 0.611, ("LRU", "ListOps"): 0.579, ("RotRNN", "Pathfinder"): 0.930,
    ("LRU", "Pathfinder"): 0.900, ("RotRNN", "raw speech"): 0.952, ("LRU", "raw speech"): 0.952,
}  # fmt: skip
FIGURES = (
    Figure("points", "Accuracy on held-out sequences", "variant", "test_metric", "model", source="table", percent=True,
           ylabel="accuracy"),
    *(Figure("lines", name, "step", "test_metric", "model", where={"variant": name}, percent=True, xlabel="epochs",
             ylabel="accuracy") for name in TASKS_FULL),
)  # fmt: skip


def _network(kind: str, task: Task) -> DeepNetwork:
    return DeepNetwork(task.input_size, task.output_size, layer=kind.lower(), options=LAYERS[kind], **NETWORK)


def cases(quick: bool) -> list[Case]:
    """Each layer on each task."""
    size = f"{NETWORK['depth']} blocks, n={NETWORK['hidden_size']}"
    made = []
    for name, options in (TASKS_QUICK if quick else TASKS_FULL).items():
        own = {k: v for k, v in options.items() if k != "task"}
        training = {**TRAINING, "epochs": EPOCHS["quick" if quick else "full"][name]}
        reads = SPEECH if options["task"] == "spoken" else None
        made += [
            Case(kind, name, options["task"], own, functools.partial(_network, kind), training, size=size, reads=reads)
            for kind in LAYERS
        ]
    return made


def _differences(quick: bool) -> tuple[str, ...]:
    tasks, epochs = TASKS_QUICK if quick else TASKS_FULL, EPOCHS["quick" if quick else "full"]
    words, paths, speech = tasks["ListOps"], tasks["Pathfinder"], tasks["raw speech"]
    return (
        f"{words['train']:,} expressions of at most {words['max_length']} tokens (the paper: 2,048), {paths['train']} "
        "images "
        f"of paths (160,000), and {speech['limit']} spoken digits of {speech['length']:,} samples at 8 kHz, "
        f"{speech['frame']} a step (35 words, 16,000 samples at 16 kHz).",
        f"{', '.join(f'{n} epochs on {name}' for name, n in epochs.items())}, which are at most some hundred "
        "iterations; "
        "the paper: 80,000 to 500,000.",
        "Two blocks of width 32 with 64 states and 8 heads, in place of six blocks of width 96 to 192 and 32 heads; "
        "one "
        "learning rate; layers in one direction on Pathfinder.",
        "The LSTM runs in the same blocks and is added. One seed.",
    )


def _plan(quick: bool) -> list[Training]:
    return plan_of(cases(quick))


@register_study(
    "long-sequences", "RotRNN, LRU and LSTM on ListOps, Pathfinder and raw speech (RotRNN paper, tables 1, 2)", _plan
)
def run_long(job: Job) -> StudyResult:
    """Train the three layers in the same deep network on the three tasks.

    Args:
        job: ``quick``: little data and two epochs; ``data_dir``: folder with the whole spoken digits.

    Returns:
        One row a layer and task.
    """
    rows = run_cases(job, cases(job.quick), (job.seed,))
    settings = {
        "tasks": TASKS_QUICK if job.quick else TASKS_FULL, "network": NETWORK, "layers": LAYERS, "training": TRAINING,
        "epochs": EPOCHS["quick" if job.quick else "full"],
    }  # fmt: skip
    reached = {(r["model"], r["variant"]): r["test_metric"] for r in rows}
    return StudyResult(
        "long-sequences", TITLE, job.quick, settings, tuple(rows), conclusion=_conclusion(rows, reached),
        paper=PAPER, differences=_differences(job.quick), figures=FIGURES, seeds=(job.seed,),
        compared=tuple(
            Compared(f"{name}, {model}", reached[model, name], said, "table 2" if name == "raw speech" else "table 1")
            for (model, name), said in PRINTED.items()
        ),
        notes=tuple(
            f"{name}: {mean_of(rows, 'seconds', variant=name):.0f} s a training on average, guessing reaches "
            f"{mean_of(rows, 'chance', variant=name):.1%}."
            for name in TASKS_FULL
        ),
    )  # fmt: skip


def _conclusion(rows: list[dict[str, Any]], reached: Mapping[tuple[str, str], float]) -> str:
    told, learnt = [], []
    for name in TASKS_FULL:
        chance = next(r["chance"] for r in rows if r["variant"] == name)
        values = {kind: reached[kind, name] for kind in LAYERS}
        told.append(f"{name} {', '.join(f'{k} {v:.0%}' for k, v in values.items())} (guessing {chance:.0%})")
        learnt += [name] if max(values.values()) > chance + 0.1 else []
    what = f"something is learnt on {', '.join(learnt)}" if learnt else "nothing is learnt beyond guessing"
    return f"At this size {what}, and the paper's accuracies are out of reach: {'; '.join(told)}."
