"""Pipeline of all analyzers on one model; each result is a file in the model's run directory.

Reports read only these files, which ``stability.storage.artifacts`` describes. ``analysis.json`` records the steps,
their times, the reasons for missing results, and the digests of the model and of all files. It is written last, so that
a directory with this file is complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from stability.certificate import Certificate
from stability.checkpoint_certificate import is_checkpoint_certificate
from stability.errors import ContradictionError, FileFormatError, StabilityError
from stability.storage.artifacts import ANALYSIS_FILE, WEIGHTS
from stability.storage.artifacts import STEPS as DESCRIBED

from ...models.counting import free_parameters
from ..attacks.steps import attacks_step, noise_step
from ..curvature.density import hessian_step
from ..dynamics.growth import growth_step
from ..dynamics.lyapunov import lyapunov_step
from ..dynamics.norms import norms_step
from ..dynamics.pairs import pairs_step
from ..dynamics.recovery import recovery_step
from ..environment import environment
from ..radius.certified import robustness_step
from ..radius.single import local_step
from ..tasks import Task
from ..threads import threads_fitting
from .budgets import AnalysisSettings
from .certificate import certificate_step
from .cross_check import cross_check_step
from .digests import file_digests, model_digest
from .inputs import about_inputs, data_range
from .margin import margin_step
from .owned import INPUTS, RESULTS, begin_analysis, owned
from .performance import performance_step
from .work import NoDataError, Work

_FUNCTIONS: tuple[Callable[[Work], None], ...] = (
    certificate_step, cross_check_step, performance_step, margin_step, noise_step, attacks_step, hessian_step,
    growth_step, lyapunov_step, norms_step, pairs_step, recovery_step, robustness_step, local_step,
)  # fmt: skip
_BY_NAME = {function.__name__.removesuffix("_step"): function for function in _FUNCTIONS}
STEPS = {name: _BY_NAME[name] for name in DESCRIBED if name != "training"}
"""Functions of the steps, in the order in which they run; each is defined in the module of its analyzer."""


def _without_path(described: dict[str, Any]) -> dict[str, Any]:
    """Return a task's description without the path of the user's file, which its digest identifies."""
    parts = {k: {n: v for n, v in described[k].items() if n != "file"} for k in ("options", "data")}
    return {**described, **parts}


def analyse(
    folder: str | Path,
    subject: Any,
    settings: AnalysisSettings,
    *,
    model: nn.Module | None = None,
    task: Task | None = None,
    title: str,
    source: str,
    given: str | None = None,
    progress: Callable[[str], Any] | None = None,
) -> dict[str, Any]:
    """Run every analyzer on one model and write the files that ``stability.storage.artifacts`` describes.

    Args:
        folder: an existing directory, usually the model's run directory.
        subject: argument of ``certify``: a module or a system.
        settings: budget, seed and further settings common to all models.
        model: the module, ``None`` for a bare system; everything is computed on its device.
        task: the data, ``None`` if there are none.
        title: the model's name for readers.
        source: origin of the model, which is recorded.
        given: recorded digest by which a campaign recognizes the same model.
        progress: called with each step's name before it starts.

    Returns:
        The content of ``analysis.json``. A step without an answer for this model is recorded with its reason.

    Raises:
        FileFormatError: when the folder cannot be written to.
    """
    folder, seed, budget, stated = Path(folder), settings.seed, asdict(settings.budget), settings.input_box
    threads = nullcontext() if model is None else threads_fitting(model)
    with owned(folder, settings.overwrite), threads:
        digest = model_digest(subject if model is None else model)
        described_task = None if task is None else _without_path(task.describe())
        same = {"digest": digest, "seed": seed, "given": given, "budget": budget, "task": described_task}
        stored_steps = begin_analysis(folder, {**same, "stated_box": stated}, keep=settings.keep)
        device = next((p.device for p in model.parameters()), None) if model is not None else None
        device = device or torch.device("cpu")
        task = None if task is None else task.to(device)
        target, inputs = about_inputs(subject, model, task, stated)
        work = Work(folder, target, model, task, settings, inputs["input_box"], inputs["input_seen"])
        work.digest = file_digests(folder, [WEIGHTS]).get(WEIGHTS, digest)
        started = pd.Timestamp.now(tz="UTC").isoformat(timespec="seconds")
        outcomes = {name: _carry_out(work, name, stored_steps, progress) for name in STEPS}
        described = work.certificate.subject if work.certificate is not None else subject
        document = {
            "format": "stability-analysis",
            "version": 1,
            "title": title,
            "source": source,
            "seed": seed,
            "budget": budget,
            "discrete": bool(getattr(described, "is_discrete", True)),
            "parameters": None if model is None else free_parameters(model),
            "hidden_size": getattr(getattr(model, "layer", model), "hidden_size", None),
            "sequence_length": None if task is None else int(task.test[0].shape[1]),
            "input_range": None if task is None else data_range(task),
            **inputs,
            "stated_box": stated,
            "task": described_task,
            "given": given,
            "digest": digest,
            "files": file_digests(folder, (*INPUTS, *RESULTS)),
            "steps": outcomes,
            "environment": environment(seed, device, started),
        }
        work.begin("analysis")
        work.write_json(ANALYSIS_FILE, document)
        return document


def _carry_out(
    work: Work, name: str, stored_steps: Mapping[str, dict[str, Any]], progress: Callable[[str], Any] | None
) -> dict[str, Any]:
    """Return the record of a step: that of the earlier analysis, if kept, or that of a new run."""
    if name in stored_steps:
        path = work.folder / "certificate.json"
        if name == "certificate" and not is_checkpoint_certificate(path):
            work.certificate = Certificate.load(path)
        return stored_steps[name]
    if progress is not None:
        progress(name)
    work.begin(name)
    start_time = time.perf_counter()
    try:
        STEPS[name](work)
        outcome: dict[str, Any] = {"status": "done", "files": sorted(work.written)}
        if work.notes:
            outcome["notes"] = list(work.notes)
    except (FileFormatError, ContradictionError):
        raise  # a failed write or a contradicted proof ends the analysis
    except StabilityError as error:
        outcome = {"status": "unavailable", "reason": str(error)}
        if isinstance(error, NoDataError):
            outcome["needs"] = "data"
    return {**outcome, "code": STEPS[name].__module__, "seconds": time.perf_counter() - start_time}
