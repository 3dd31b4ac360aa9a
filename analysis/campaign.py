"""Several models trained, or taken as they are, and analysed: the work behind the main report.

A campaign is a directory: ``report-settings.json`` says what was planned, ``models/NAME/`` is a model's run
directory with the files of ``stability.analysis.pipeline``. A model is finished when it has its
``analysis.json``; carried out again, a campaign does what is missing, and training goes on where it stopped. Results
belong to the weights that they were computed from: a model that changed since then is examined again.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stability.errors import ConfigurationError, FileFormatError, UnsupportedError
from stability.wire import read_json, write_text

from .digests import file_digest, file_digests, model_digest
from .environment import environment
from .pipeline import ANALYSIS_FILE, BUDGETS, INPUTS, analyse
from .presets import PRESETS, train_preset
from .processes import Outcome, run_jobs
from .results import plain_value
from .runs import RUN_FILE, read_run
from .tasks import make_task
from .training import resume_run

__all__ = [
    "DEFAULT_MODELS",
    "SETTINGS_FILE",
    "Campaign",
    "Given",
    "finished",
    "names_for",
    "plan",
    "run_campaign",
    "titles_for",
]

SETTINGS_FILE = "report-settings.json"
MODEL_FILE = "model.safetensors"
DEFAULT_MODELS = ("contracting", "lstm", "lipschitz", "neural_ode", "antisymmetric")
TITLE = "Stability of trained recurrent networks"


@dataclass(frozen=True)
class Given:
    """A model that exists already.

    Attributes:
        name: unique, for its directory: see ``names_for``.
        path: run directory or file, or where the system came from.
        subject: a module or a system, loaded.
        task: name and options of the task to examine it on; ``None`` for the run's own, if it has one.
        title: how readers know it; by default the name.
    """

    name: str
    path: str
    subject: Any
    task: tuple[str, dict[str, Any]] | None = None
    title: str = ""

    @functools.cached_property
    def digest(self) -> str:
        """What the results depend on: the model, and how it was trained where a run directory tells."""
        run = Path(self.path) / RUN_FILE
        return model_digest(self.subject) + (f" {file_digest(run)}" if run.is_file() else "")


@dataclass(frozen=True)
class _Job:
    name: str
    folder: str
    budget: str
    seed: int
    data_dir: str | None
    task: tuple[str, dict[str, Any]] | None
    time_limit: float | None
    device: str
    given: Given | None


@dataclass(frozen=True)
class Campaign:
    """What is to be done, and where.

    Attributes:
        folder: the report directory.
        models: names of the models, in the report's order.
        given: those of them that exist already; the others are presets to be trained.
        quick: small budgets.
        seed: of everything random.
        data_dir: folder with the full data, ``None`` for the embedded ones.
        task: the task that presets are trained on.
        train_seconds: time limit of each training.
        device: where to train and to compute; no part of the plan.
    """

    folder: Path
    models: tuple[str, ...]
    given: tuple[Given, ...] = ()
    quick: bool = False
    seed: int = 0
    data_dir: str | None = None
    task: tuple[str, dict[str, Any]] = ("digits", {})
    train_seconds: float | None = None
    device: str = "cpu"

    def plan(self) -> dict[str, Any]:
        """What decides the results, as JSON values: campaigns with the same plan may share a directory."""
        return plain_value(
            {
                "models": self.models,
                "sources": {g.name: g.path for g in self.given},
                "quick": self.quick,
                "seed": self.seed,
                "data_dir": self.data_dir,
                "task": list(self.task),
                "tasks": {g.name: list(g.task) for g in self.given if g.task is not None},
                "budget": asdict(BUDGETS[self.budget]),
            }
        )

    @property
    def budget(self) -> str:
        """Name of the analyzers' budget."""
        return "quick" if self.quick else "full"


def plan(campaign: Campaign, *, overwrite: bool = False) -> tuple[str, ...]:
    """Make or re-open the campaign's directory.

    Args:
        campaign: what is to be done.
        overwrite: whether a report made with another plan may be replaced.

    Returns:
        Names of the models that are finished already.

    Raises:
        ConfigurationError: an unknown preset, or a directory that holds another campaign or something else.
        FileFormatError: a directory that cannot be written to.
    """
    trained = [n for n in campaign.models if n not in {g.name for g in campaign.given}]
    unknown = [n for n in trained if n not in PRESETS]
    if unknown:
        raise ConfigurationError(f"unknown model {unknown[0]!r}; the known ones are {', '.join(PRESETS)}")
    folder = campaign.folder
    settings = folder / SETTINGS_FILE
    if folder.exists() and not folder.is_dir():
        raise FileFormatError(f"cannot write to {folder}: it is a file")
    if settings.is_file():
        same = read_json(settings).get("plan") == campaign.plan()
        if not same and not overwrite:
            raise ConfigurationError(
                f"{folder} holds a report made with other settings: choose another --out, or --overwrite"
            )
        if not same:
            shutil.rmtree(folder / "models", ignore_errors=True)
    elif folder.is_dir() and any(folder.iterdir()):
        raise ConfigurationError(f"{folder} is not empty and no report directory: choose another --out")
    try:
        (folder / "models").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileFormatError(f"cannot write to {folder}: {error.strerror or error}") from error
    _drop_stale(campaign)
    done = finished(campaign)
    if not settings.is_file() or read_json(settings).get("plan") != campaign.plan():
        _write_settings(campaign, {})
    return done


def _drop_stale(campaign: Campaign) -> None:
    """Take away results about other weights than those that are there now; trained presets keep their training."""
    given = {g.name: g for g in campaign.given}
    for name in campaign.models:
        folder = campaign.folder / "models" / name
        if not (folder / ANALYSIS_FILE).is_file():
            continue
        document = read_json(folder / ANALYSIS_FILE)
        known = document if isinstance(document, dict) else {}
        if name in given:
            if known.get("given") != given[name].digest:
                shutil.rmtree(folder)
        elif known.get("files", {}).get(MODEL_FILE) != file_digests(folder, [MODEL_FILE]).get(MODEL_FILE):
            (folder / ANALYSIS_FILE).unlink()


def finished(campaign: Campaign) -> tuple[str, ...]:
    """Names of the models whose files are complete."""
    return tuple(n for n in campaign.models if (campaign.folder / "models" / n / ANALYSIS_FILE).is_file())


def run_campaign(
    campaign: Campaign,
    *,
    processes: int = 2,
    news: Callable[[str, str], Any] | None = None,
    command: str | None = None,
) -> list[Outcome]:
    """Train and analyse what is not finished yet; ``plan`` comes first.

    Args:
        campaign: what is to be done.
        processes: models at a time, each in a process with one thread.
        news: called with a model's name and what is being done.
        command: the command line, for the record.

    Returns:
        One outcome a model; a mistake in one model's input does not stop the others.

    Raises:
        FileFormatError: a directory that cannot be written to.
        KeyboardInterrupt: finished models and finished epochs are kept.
    """
    begun = time.perf_counter()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    given = {g.name: g for g in campaign.given}
    done = finished(campaign)
    jobs = {
        name: _Job(
            name,
            str(campaign.folder / "models" / name),
            campaign.budget,
            campaign.seed,
            campaign.data_dir,
            campaign.task,
            campaign.train_seconds,
            campaign.device,
            given.get(name),
        )
        for name in campaign.models
        if name not in done
    }
    outcomes = run_jobs(_work, jobs, processes=processes, news=news)
    if jobs or "finished" not in read_json(campaign.folder / SETTINGS_FILE):
        _write_settings(
            campaign,
            {
                "finished": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
                "seconds": time.perf_counter() - begun if jobs else None,
                "processes": max(1, min(processes, len(jobs))),
                "command": command,
                "failed": {o.name: o.error for o in outcomes if o.error is not None},
                "environment": environment(campaign.seed, torch.device(campaign.device), started),
            },
        )
    return outcomes


def _write_settings(campaign: Campaign, more: Mapping[str, Any]) -> None:
    document = {
        "format": "stability-report-settings",
        "version": 1,
        "title": TITLE,
        "models": list(campaign.models),
        "seed": campaign.seed,
        "quick": campaign.quick,
        "plan": campaign.plan(),
        **more,
    }
    write_text(campaign.folder / SETTINGS_FILE, json.dumps(plain_value(document), indent=1, allow_nan=False) + "\n")


def _work(job: _Job, tell: Callable[[str], None]) -> None:
    if job.given is not None:
        _examine(job, job.given, tell)
    else:
        _train(job, tell)


def _train(job: _Job, tell: Callable[[str], None]) -> None:
    """Train a preset, or go on with its training, then analyse."""
    folder = Path(job.folder)

    def progress(news: Any) -> None:
        if news.finished is not None:
            tell(f"epoch {news.epoch} of {news.epochs}, held-out {task.metric_name} {news.finished.test_metric:.3f}")

    name, options = job.task or ("digits", {})
    task = make_task(name, data_dir=job.data_dir, seed=job.seed, **options)
    if (folder / RUN_FILE).is_file():
        model, result = resume_run(
            folder, data_dir=job.data_dir, progress=progress, time_limit=job.time_limit, device=job.device
        )
    else:
        tell("training")
        model, result = train_preset(
            job.name,
            task,
            quick=job.budget == "quick",
            seed=job.seed,
            device=job.device,
            out=folder,
            progress=progress,
            time_limit=job.time_limit,
        )
    if result.interrupted:
        raise KeyboardInterrupt
    if result.epochs == 0:
        raise UnsupportedError(f"training finished no epoch ({result.detail})")
    title = PRESETS[job.name].title or job.name
    analyse(
        folder,
        model,
        model=model,
        task=task,
        title=title,
        source=f"trained here: {PRESETS[job.name].why}",
        budget=job.budget,
        seed=job.seed,
        progress=tell,
    )


def _examine(job: _Job, given: Given, tell: Callable[[str], None]) -> None:
    """Analyse a model that was given; its run directory's files are taken over."""
    folder, source = Path(job.folder), Path(given.path)
    folder.mkdir(parents=True, exist_ok=True)
    task = None
    if given.task is not None:
        task = make_task(given.task[0], data_dir=job.data_dir, seed=job.seed, **given.task[1])
    if (source / RUN_FILE).is_file():
        for name in INPUTS:
            if (source / name).is_file():
                shutil.copyfile(source / name, folder / name)
        task = read_run(source).task(job.data_dir) if task is None else task
    model = given.subject.to(job.device) if isinstance(given.subject, nn.Module) else None
    analyse(
        folder,
        given.subject if model is None else model,
        model=model,
        task=task,
        title=given.title or given.name,
        source=given.path,
        budget=job.budget,
        seed=job.seed,
        progress=tell,
        given=given.digest,
    )


def titles_for(paths: Sequence[str]) -> list[str]:
    """How readers know models that were given as paths: the last part of the path, numbered where it is taken.

    Example:
        >>> titles_for(["runs/a/lstm", "nets/my cell.npz", "runs/b/lstm"])
        ['lstm', 'my cell', 'lstm (2)']
    """
    out: list[str] = []
    for path in paths:
        name = Path(path).name
        name = Path(path).resolve().name if name in ("", "..") else name
        stem = name.removesuffix(".safetensors").removesuffix(".npz") or "model"
        title, count = stem, 1
        while title in out:
            count += 1
            title = f"{stem} ({count})"
        out.append(title)
    return out


def names_for(paths: Sequence[str]) -> list[str]:
    """Directory names for models that were given as paths, made here: ASCII letters, digits, ``-`` and ``_`` alone.

    Unique also where the file system takes upper and lower case for the same.

    Example:
        >>> names_for(["runs/a/lstm", "nets/../my cell.npz", "runs/b/LSTM", '"><script>', "模型"])
        ['lstm', 'my-cell', 'LSTM-2', 'script', 'model']
    """
    out: list[str] = []
    for title in titles_for(paths):
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", re.sub(r" \(\d+\)$", "", title))[:40].strip("-") or "model"
        name, count = stem, 1
        while name.lower() in [n.lower() for n in out]:
            count += 1
            name = f"{stem}-{count}"
        out.append(name)
    return out
