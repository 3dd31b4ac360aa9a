"""The steps ``noise`` and ``attacks``: accuracy where each sequence has a class, the task's metric elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from ..campaign.inputs import width
from ..campaign.steps import step
from .noise import noise_sweep
from .scores import attack_scores, noise_scores
from .sweep import attack_sweep

if TYPE_CHECKING:
    from ..campaign.work import Work


@step("noise")
def _noise_step(work: Work) -> None:
    model, task, x, y, bounds = work.disturbed(work.budget.samples)
    common: dict[str, Any] = {"draws": work.budget.draws, "bounds": bounds, "seed": work.seed}
    whole = task.labels_sequences
    frames = []
    for kind, scale in (("white", width(bounds)), ("salt_pepper", 1.0)):
        levels = [level * scale for level in work.budget.levels]
        told = {"kind": kind, "levels": levels, **common}
        found = noise_sweep(model, x, y, **told) if whole else noise_scores(model, x, y, task=task, **told)
        frames.append(found.frame())
    work.write_table("noise.csv" if whole else "noise_scores.csv", pd.concat(frames, ignore_index=True))


@step("attacks")
def _attacks_step(work: Work) -> None:
    model, task, x, y, bounds = work.disturbed(work.budget.attacked)
    span, budget = width(bounds), work.budget
    plans: list[tuple[str, str, tuple[float, ...], dict[str, Any]]] = [
        ("pgd", "linf", budget.epsilons_linf, {"steps": budget.steps}),
        ("pgd", "l2", budget.epsilons_l2, {"steps": budget.steps}),
    ]
    whole = task.labels_sequences
    if whole:
        plans.append(("deepfool", "l2", budget.epsilons_l2, {}))
    common: dict[str, Any] = {"bounds": bounds, "seed": work.seed}
    frames = []
    for attack, norm, sizes, options in plans:
        told = {"epsilons": [e * span for e in sizes], "norm": norm, **common, **options}
        if whole:
            frames.append(attack_sweep(model, x, y, attack=attack, **told).frame())
        else:
            frames.append(attack_scores(model, x, y, task=task, **told).frame())
    work.write_table("attacks.csv" if whole else "attack_scores.csv", pd.concat(frames, ignore_index=True))
