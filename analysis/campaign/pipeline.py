"""Every analyzer on one model, each result as a file in the model's run directory.

Reports read these files and nothing else; ``stability.storage.artifacts`` describes them. ``analysis.json`` says what
was run, how long it took, what has no answer for this model and why, with the digests of the model and of all files
that the results are made of. It is written last: a directory that has it is complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from stability.certificate import Certificate, Verdict
from stability.certify import certify
from stability.errors import FileFormatError, StabilityError
from stability.gains.lure import incremental_gain
from stability.storage.artifacts import ANALYSIS_FILE

from ...models.network import SequenceModel
from ...models.tensors import to_numpy
from ..attacks.noise import noise_sweep
from ..attacks.sweep import attack_sweep
from ..curvature.density import spectral_density
from ..curvature.hessian import hessian_summary
from ..dynamics.lyapunov import certified_bound, lyapunov_exponents
from ..dynamics.norms import norm_drift
from ..environment import environment
from ..radius.certified import certified_radius
from ..tasks import Task
from .budgets import BUDGETS, Budget
from .digests import file_digests, model_digest
from .fitting import answers_of
from .inputs import about_inputs, covers, data_range, width
from .owned import INPUTS, RESULTS, begin_analysis, owned
from .performance import performance
from .work import NoDataError, Work


def _certificate(work: Work) -> None:
    use: dict[str, Any] = {}  # counter-examples are looked for where the data are, and said to lie there or not
    if work.task is not None:
        use = {"input_range": work.input_range, "horizon": int(work.task.test[0].shape[1])}
    work.certificate = certify(work.subject, seed=work.seed, time_limit=work.budget.seconds, **use)
    work.certificate.save(work.file("certificate.json"))


def _performance(work: Work) -> None:
    work.write_json("performance.json", performance(*work.with_data()))


def _noise(work: Work) -> None:
    model, x, y, bounds = work.classifier(work.budget.samples)
    common: dict[str, Any] = {"draws": work.budget.draws, "bounds": bounds, "seed": work.seed}
    sweeps = [
        noise_sweep(model, x, y, kind=kind, levels=[level * scale for level in work.budget.levels], **common)
        for kind, scale in (("white", width(bounds)), ("salt_pepper", 1.0))
    ]
    work.write_table("noise.csv", pd.concat([s.frame() for s in sweeps], ignore_index=True))


def _attacks(work: Work) -> None:
    model, x, y, bounds = work.classifier(work.budget.attacked)
    span = width(bounds)
    plans: tuple[tuple[str, str, tuple[float, ...], dict[str, Any]], ...] = (
        ("pgd", "linf", work.budget.epsilons_linf, {"steps": work.budget.steps}),
        ("pgd", "l2", work.budget.epsilons_l2, {"steps": work.budget.steps}),
        ("deepfool", "l2", work.budget.epsilons_l2, {}),
    )
    common: dict[str, Any] = {"bounds": bounds, "seed": work.seed}
    sweeps = [
        attack_sweep(model, x, y, epsilons=[e * span for e in sizes], attack=attack, norm=norm, **common, **options)
        for attack, norm, sizes, options in plans
    ]
    work.write_table("attacks.csv", pd.concat([s.frame() for s in sweeps], ignore_index=True))


def _robustness(work: Work) -> None:
    model, x, y, bounds = work.classifier(work.budget.samples)
    stated = work.certificate  # without one the norms of the weights give a bound too, however small
    certified = stated if stated is not None and stated.verdict is Verdict.CERTIFIED else None
    if work.input_box is not None:  # perturbed inputs may leave the box that the certificate speaks of
        certified = None
    result = certified_radius(model, x, y, certificate=certified)
    if certified is not None and isinstance(model, SequenceModel):
        gain = incremental_gain(
            model.layer.driven(),
            output=to_numpy(model.head.weight),
            horizon=x.shape[1],
            measure="final",
            time_limit=work.budget.gain_seconds,
        )
        if gain.proof is not None:  # one inequality for the whole sequence is mostly, not always, the sharper bound
            result = certified_radius(model, x, y, gain=gain, certificate=certified)  # the better for each sequence
    largest = float(result.radius.max(initial=0.0))
    attacked = [e * width(bounds) for e in work.budget.epsilons_l2]
    grid = np.unique([*np.linspace(0.0, 1.01 * largest, 60), *(e for e in attacked if e <= largest)])
    share = [result.accuracy_at(float(r)) for r in grid]
    work.write_table("robustness.csv", pd.DataFrame({"radius": grid, "certified_accuracy": share}))
    work.write_result(
        "radius.json",
        result,
        median=float(np.median(result.radius)),
        largest=largest,
        clean_accuracy=result.accuracy_at(0.0),
        samples=len(result.radius),
        norm="l2",
    )


def _norms(work: Work) -> None:
    model, task = work.with_data()
    x = task.test[0][: min(work.budget.samples, 100)]
    result = norm_drift(model, x, factor=work.budget.stretch, seed=work.seed, certificate=work.certificate)
    work.write_table("norms.csv", result.frame())
    work.write_result(
        "drift.json",
        result,
        slope=float(result.slope[-1]),
        trained_length=result.length,
        start=float(result.mean[-1, 0]),
        end=float(result.mean[-1, -1]),
    )


def _lyapunov(work: Work) -> None:
    model, task = work.with_data()
    x = task.test[0][: min(work.budget.samples, work.budget.trajectories)]
    result = lyapunov_exponents(model, x, seed=work.seed)
    work.write_table("lyapunov.csv", result.frame())
    bound = _certified_bound(work, result.steps)
    work.write_result("exponents.json", result, trajectories=len(x), bound=bound)


def _certified_bound(work: Work, steps: int) -> float | None:
    """What a certificate says about exponents of so many steps on the data; see ``lyapunov.certified_bound``."""
    certificate = work.certificate
    if certificate is None or certificate.verdict is not Verdict.CERTIFIED:
        return None
    if work.input_box is not None and not covers(work.input_box, work.input_range):
        return None  # the data leave the box that was stated
    return certified_bound(certificate, steps)


def _hessian(work: Work) -> None:
    model, task = work.with_data()
    answers_of(model, task)
    x, y = (part[: work.budget.curved] for part in task.train)
    common: dict[str, Any] = {"loss": task.loss, "seed": work.seed}
    steps, probes = work.budget.iterations, work.budget.probes
    summary = hessian_summary(model, x, y, max_iter=steps, trace_samples=probes, **common)
    density = spectral_density(model, x, y, steps=steps, n_vectors=probes, **common)
    work.write_result("hessian.json", summary, samples=len(x))
    work.write_table("density.csv", density.frame())


STEPS: dict[str, Callable[[Work], None]] = {
    "certificate": _certificate,
    "performance": _performance,
    "noise": _noise,
    "attacks": _attacks,
    "robustness": _robustness,
    "norms": _norms,
    "lyapunov": _lyapunov,
    "hessian": _hessian,
}


def _without_place(described: dict[str, Any]) -> dict[str, Any]:
    """A task's description without where a file of one's own lies: its digest says which it is."""
    parts = {k: {n: v for n, v in described[k].items() if n != "file"} for k in ("options", "data")}
    return {**described, **parts}


def analyse(
    folder: str | Path,
    subject: Any,
    *,
    model: nn.Module | None = None,
    task: Task | None = None,
    title: str,
    source: str,
    budget: Budget | str = "full",
    seed: int = 0,
    progress: Callable[[str], Any] | None = None,
    given: str | None = None,
    overwrite: bool = False,
    keep: bool = False,
    input_box: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Run every analyzer on one model and write the files that ``stability.storage.artifacts`` describes.

    Args:
        folder: an existing directory, usually the model's run directory.
        subject: what ``certify`` gets: a module or a system.
        model: the module, ``None`` for a bare system; everything is computed on its device.
        task: the data, ``None`` where none are known.
        title: the model's name for readers.
        source: where the model came from, for the record.
        budget: how much work, or the name of a prepared budget.
        seed: of everything random.
        progress: called with each step's name before it starts.
        given: by what a campaign recognises the same model later, for the record.
        overwrite: whether files of those names that no analysis made may be replaced.
        keep: take over steps of an earlier analysis of the same model, with the same seed and budget, whose files are
            as it left them, on the same data.
        input_box: what inputs of an LSTM or GRU are promised to stay in, in place of the range of the data.

    Returns:
        The content of ``analysis.json``. A step without an answer for this model is recorded with its reason.

    Raises:
        FileFormatError: when the folder cannot be written to.
    """
    budget = BUDGETS[budget] if isinstance(budget, str) else budget
    folder = Path(folder)
    with owned(folder, overwrite):
        digest = model_digest(subject if model is None else model)
        described_task = None if task is None else _without_place(task.describe())
        same = {"digest": digest, "seed": seed, "given": given, "budget": asdict(budget), "task": described_task}
        kept = begin_analysis(folder, {**same, "stated_box": input_box}, keep=keep)
        device = next((p.device for p in model.parameters()), None) if model is not None else None
        device = device or torch.device("cpu")
        task = None if task is None else task.to(device)
        target, inputs = about_inputs(subject, model, task, input_box)
        work = Work(folder, target, model, task, budget, seed, inputs["input_box"], inputs["input_seen"])
        started = pd.Timestamp.now(tz="UTC").isoformat(timespec="seconds")
        steps = {name: _carry_out(work, name, kept, progress) for name in STEPS}
        described = work.certificate.subject if work.certificate is not None else subject
        document = {
            "format": "stability-analysis",
            "version": 1,
            "title": title,
            "source": source,
            "seed": seed,
            "budget": asdict(budget),
            "discrete": bool(getattr(described, "is_discrete", True)),
            "parameters": None if model is None else sum(p.numel() for p in model.parameters()),
            "hidden_size": getattr(getattr(model, "layer", model), "hidden_size", None),
            "sequence_length": None if task is None else int(task.test[0].shape[1]),
            "input_range": None if task is None else data_range(task),
            **inputs,
            "stated_box": input_box,
            "task": described_task,
            "given": given,
            "digest": digest,
            "files": file_digests(folder, (*INPUTS, *RESULTS)),
            "steps": steps,
            "environment": environment(seed, device, started),
        }
        work.begin("analysis")
        work.write_json(ANALYSIS_FILE, document)
        return document


def _carry_out(
    work: Work, name: str, kept: Mapping[str, dict[str, Any]], progress: Callable[[str], Any] | None
) -> dict[str, Any]:
    """The record of a step: as it was kept, or what came of it now."""
    if name in kept:
        if name == "certificate":
            work.certificate = Certificate.load(work.folder / "certificate.json")
        return kept[name]
    if progress is not None:
        progress(name)
    work.begin(name)
    begun = time.perf_counter()
    try:
        STEPS[name](work)
        outcome: dict[str, Any] = {"status": "done", "files": sorted(work.written)}
    except FileFormatError:
        raise  # a disk that cannot be written to is no property of the model
    except StabilityError as error:
        outcome = {"status": "unavailable", "reason": str(error)}
        if isinstance(error, NoDataError):
            outcome["needs"] = "data"
    return {**outcome, "seconds": time.perf_counter() - begun}
