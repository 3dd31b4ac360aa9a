"""Analysis steps ``noise`` and ``attacks``: accuracy for classification, the task's metric otherwise."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import Tensor, nn

from stability.errors import NonFiniteError

from ..tasks import Task
from .deepfool import deepfool
from .masked import masked_words, unwarned
from .noise import noise_sweep, parameter_noise_sweep
from .padding import padding_words
from .scores import ScoreSweep, attack_scores, noise_scores
from .sweep import SweepResult, attack_sweep
from .units import constant_words, in_units

if TYPE_CHECKING:
    from ..campaign.work import Work


def noise_step(work: Work) -> None:
    """Run the step ``noise`` of an analysis and write its files."""
    model, task, x, y, bounds = work.disturbed(work.budget.samples)
    common: dict[str, Any] = {"draws": work.budget.draws, "seed": work.seed}
    weights = model, task, x, y
    span = work.span(bounds)
    model, x, bounds, mask = in_units(model, x, work.deviations, bounds)
    whole = task.labels_sequences
    frames = []
    for kind, scale in (("white", span), ("salt_pepper", 1.0)):
        levels = [level * scale for level in work.budget.levels]
        options = {"kind": kind, "levels": levels, "bounds": bounds, "mask": mask, **common}
        with unwarned():
            result = noise_sweep(model, x, y, **options) if whole else noise_scores(model, x, y, task=task, **options)
        frames.append(result.frame())
    if any(p.requires_grad for p in model.parameters()):
        with contextlib.suppress(NonFiniteError):  # with values to give, a network that diverges has no score
            frames.append(_on_weights(*weights, {"levels": work.budget.levels, **common}).frame())
    work.write_table("noise.csv" if whole else "noise_scores.csv", pd.concat(frames, ignore_index=True))


def _on_weights(model: nn.Module, task: Task, x: Tensor, y: Tensor, kwargs: dict[str, Any]) -> SweepResult | ScoreSweep:
    if task.labels_sequences:
        return parameter_noise_sweep(model, x, y, **kwargs)
    return noise_scores(model, x, y, task=task, kind="parameters", **kwargs)


def attacks_step(work: Work) -> None:
    """Run the step ``attacks`` of an analysis and write its files."""
    model, task, x, y, bounds = work.disturbed(work.budget.attacked)
    budget, words = work.budget, padding_words(model, x)
    span = work.span(bounds)
    model, x, bounds, mask = in_units(model, x, work.deviations, bounds)
    whole = task.labels_sequences
    common: dict[str, Any] = {"bounds": bounds, "mask": mask, "seed": work.seed}
    frames, blind = [], 0
    for norm, sizes in (("linf", budget.epsilons_linf), ("l2", budget.epsilons_l2)):
        options = {"epsilons": [e * span for e in sizes], "norm": norm, **common}
        with unwarned():
            if whole:
                near = deepfool(model, x, y, norm=norm, **common)
                tried = {"steps": budget.steps, "starts": budget.starts}
                results = [attack_sweep(model, x, y, attack="strong", near=near, **tried, **options)]
                results.append(attack_sweep(model, x, y, attack="deepfool", near=near, **options))
            else:
                results = [attack_scores(model, x, y, task=task, attack="pgd", steps=budget.steps, **options)]
        frames += [each.frame() for each in results]
        blind = max([blind, *(each.blind for each in results)])
    warnings = (words, masked_words(blind, len(x)), constant_words(work.deviations))
    work.notes.extend(filter(None, warnings))
    work.write_table("attacks.csv" if whole else "attack_scores.csv", pd.concat(frames, ignore_index=True))
