"""Which trained Lipschitz RNNs meet which condition of stability: how far the recipe of the paper is from its theorem.

Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, "Lipschitz recurrent neural networks" (ICLR 2021), theorem 1: case
(a), case (b) as printed and in its sound reading, beside the circle criterion, the KYP inequality and the multiplier
inequality of the differential equation, and the verdict on the map that runs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from stability.certification import certify

from ...models import LipschitzRNN, SequenceModel
from ..tasks import Task, make_task
from ..training.settings import Settings
from .base import Job, Training, register_study, write_table
from .networks import LIPSCHITZ, counted, mean, verdict
from .parts import Part
from .result import Compared, Figure, StudyResult

TITLE = "Trained Lipschitz RNNs against theorem 1, circle, KYP and multiplier criteria"
FULL: dict[str, Any] = {"hidden": 12, "limit": 1000, "epochs": 4, "seeds": 3}
QUICK: dict[str, Any] = {"hidden": 8, "limit": 400, "epochs": 2, "seeds": 1}
TRAINING: dict[str, Any] = {"lr": 3e-3, "batch_size": 32, "clip": 1.0}
RECIPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the paper's": ({"beta": 0.75, "gamma": 0.001, "dt": 0.1}, {}),
    "beta 0.95": ({"beta": 0.95, "gamma": 0.001, "dt": 0.1}, {}),
    "gamma 1 on A": ({"beta": 0.75, "gamma": (1.0, 0.001), "dt": 0.1}, {}),
    "gamma 1 on A and W": ({"beta": 0.75, "gamma": (1.0, 1.0), "dt": 0.1}, {}),
    "gamma 1 on A, margin penalty": (
        {"beta": 0.75, "gamma": (1.0, 0.001), "dt": 0.1}, {"margin_penalty": 1.0, "margin_target": 0.05},
    ),
}  # fmt: skip
"""Name to options of the layer and of the training."""
CRITERIA = {
    "theorem1a": "theorem 1 (a)",
    "theorem1b_published": "theorem 1 (b), printed",
    "theorem1b": "theorem 1 (b), sound",
    "circle": "circle criterion",
    "kyp": "KYP inequality",
    "multiplier": "multiplier inequality",
}
DIFFERENCES = (
    "The paper trains and says that its parameters often remain in the region of theorem 1; it does not check a "
    "trained network. 98 steps of 8 pixels, few units and epochs, so that every criterion is decided in a moment.",
    "Criteria are about the differential equation, as the theorem is; the verdict is about the Euler map that runs.",
    "The last recipe adds a penalty on a negative contraction gap to the loss; the paper has no such term.",
)


def _model(name: str, hidden: int, task: Task) -> SequenceModel:
    layer = LipschitzRNN(task.input_size, hidden, **RECIPES[name][0])
    return SequenceModel(layer, task.output_size, reduction=task.reduction)


def _options(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"layout": "8", "limit": settings["limit"]}


def _plan(quick: bool) -> list[Training]:
    chosen = QUICK if quick else FULL
    return [
        Training("digits", _options(chosen), functools.partial(_model, name, chosen["hidden"]), {**TRAINING, **more})
        for name, (_, more) in RECIPES.items()
    ]


def conditions(layer: LipschitzRNN, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Which criteria hold for the differential equation behind a layer, with their margins.

    Args:
        layer: trained or not.
        seed: of the searches.

    Returns:
        Criterion to ``holds`` and ``margin`` (``None`` where it has none).

    Example:
        >>> found = conditions(LipschitzRNN(1, 2, beta=0.5, gamma=(3.0, 1.0), init_std=0.0).double())
        >>> found["theorem1a"], found["kyp"]["holds"]
        ({'holds': True, 'margin': 2.0}, True)
    """
    system = layer.lure(continuous=True)
    found: dict[str, dict[str, Any]] = {}
    for name in CRITERIA:
        asked = "theorem1b" if name == "theorem1b_published" else name
        certificate = certify(system, criterion=asked, rate="any", refute=False, seed=seed)
        own = [f for f in certificate.findings if f.criterion == name]
        margin = own[0].margin if own else None
        found[name] = {"holds": any(f.holds for f in own), "margin": None if margin is None else float(margin)}
    return found


def _trained(job: Job, task: Task, settings: Mapping[str, Any], name: str, seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = _model(name, settings["hidden"], task)
    layer: Any = model.layer
    before = conditions(layer, seed)
    training = Settings(epochs=settings["epochs"], seed=seed, **{**TRAINING, **RECIPES[name][1]})
    result = job.train(model, task, training, f"{name}, seed {seed}")
    after = conditions(layer.to("cpu"), seed)
    return {
        "accuracy": result.test_metric,
        "seconds": result.seconds,
        "before": before,
        "after": after,
        "verdict": verdict(layer, seed),
    }


def _parts(job: Job, settings: dict[str, Any], task: Task) -> Iterator[Part]:
    for index, (name, (options, more)) in enumerate(RECIPES.items()):
        for seed in range(job.seed, job.seed + settings["seeds"]):
            decided = {**settings, **TRAINING, **options, **more, "seed": seed, "data": task.describe()}
            yield Part(f"recipe{index}-{seed}", decided, functools.partial(_trained, job, task, settings, name, seed))


@register_study("lrnn-certified", "which trained networks meet which condition (Lipschitz RNN, theorem 1)", _plan)
def run_lrnn_certified(job: Job) -> StudyResult:
    """Train by every recipe and ask every criterion, before and after.

    Args:
        job: ``quick``: smaller; ``data_dir``: folder with MNIST. ``curves.csv``: a row a training, moment and
            criterion.

    Returns:
        One row a recipe: in how many trainings each criterion holds at the end, the verdicts on the map.
    """
    settings = QUICK if job.quick else FULL
    task = make_task("digits", data_dir=job.data_dir, **_options(settings))
    seeds = range(job.seed, job.seed + settings["seeds"])
    rows, curves, outcomes = [], [], job.parts(_parts(job, settings, task))
    for name in RECIPES:
        parts = []
        for seed in seeds:
            parts.append(next(outcomes))
            curves += [
                {"recipe": name, "seed": seed, "moment": moment, "criterion": words, **parts[-1][moment][criterion]}
                for moment in ("before", "after")
                for criterion, words in CRITERIA.items()
            ]
            write_table(job.out / "curves.csv", curves)
        held = {words: sum(p["after"][c]["holds"] for p in parts) for c, words in CRITERIA.items()}
        accuracy = mean([p["accuracy"] for p in parts])
        gap = mean([p["after"]["theorem1a"]["margin"] for p in parts])
        row = {"recipe": name, "seeds": len(parts), "accuracy": accuracy, **held, "margin of (a)": gap}
        rows.append({**row, "verdicts": counted([p["verdict"] for p in parts])})
    return StudyResult(
        "lrnn-certified", TITLE, job.quick, {**settings, **TRAINING}, tuple(rows), conclusion=_conclusion(rows),
        paper=f"{LIPSCHITZ}, theorem 1 and section 4", compared=_compared(rows), differences=DIFFERENCES,
        figures=_figures(), seeds=tuple(seeds),
    )  # fmt: skip


def _compared(rows: list[dict[str, Any]]) -> tuple[Compared, ...]:
    first = rows[0]
    said = "parameters often remain in the region of (b)"
    what = f"the paper's recipe: trained networks of {first['seeds']} that meet"
    return tuple(Compared(f"{what} {CRITERIA[c]}", first[CRITERIA[c]], said, "section 4") for c in
                 ("theorem1a", "theorem1b_published", "theorem1b"))  # fmt: skip


def _conclusion(rows: list[dict[str, Any]]) -> str:
    first = rows[0]
    met = [words for words in CRITERIA.values() if first[words]]
    stable = [row["recipe"] for row in rows if row["multiplier inequality"] == row["seeds"]]
    says = f"met in some training: {', '.join(met)}" if met else "no trained network meets any of the conditions"
    return (
        f"By the paper's recipe {says} (mean margin of (a) {first['margin of (a)']:.2g}, map: {first['verdicts']}); "
        f"the multiplier inequality holds in every training for: {', '.join(stable) or 'no recipe'}."
    )


def _figures() -> tuple[Figure, ...]:
    return tuple(
        Figure(
            "points", title, "recipe", "margin", "moment", where={"criterion": CRITERIA[criterion]}, ylabel="margin",
            caption="Before and after training; it holds right of zero. A stroke each training.",
        )
        for criterion, title in (("theorem1a", "Theorem 1 (a)"), ("theorem1b_published", "Theorem 1 (b) as printed"))
    )  # fmt: skip
