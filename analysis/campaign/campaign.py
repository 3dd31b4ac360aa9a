"""Several models trained, or taken as they are, and analysed: the work behind the main report.

A campaign is a directory: ``report-settings.json`` says what was planned, ``models/NAME/`` is a model's run
directory with the files of ``stability.analysis.campaign.pipeline``. A model is finished when it has its
``analysis.json``; carried out again, a campaign does what is missing, and training goes on where it stopped. Results
belong to the weights that they were computed from: a model that changed since then is examined again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stability.errors import ConfigurationError, FileFormatError, StabilityError
from stability.kernel.checks import as_choice
from stability.storage.artifacts import ANALYSIS_FILE
from stability.storage.documents import file_digest
from stability.storage.folder import claim_folder, is_internal_file, is_listed, listed_files

from ...models.recurrent import LAYERS
from ..results import plain_value
from ..running.jobs import run_jobs
from ..running.places import Runner
from ..running.pool import Outcome
from ..tasks import identity
from ..training.presets import PRESETS, known_presets
from ..training.runs import RUN_FILE
from .budgets import BUDGETS, AnalysisSettings
from .digests import file_digests, model_digest
from .each import RunJob, examine_one
from .far import Errand, files_in, put_files, run_errand
from .owned import recorded
from .record import (
    REPORT,
    SETTINGS_FILE,
    Session,
    adopt_models,
    clear,
    is_complete,
    planned,
    refuse_model,
    write_settings,
)
from .trainings import TRAININGS_FILE, write_trainings

MODEL_FILE = "model.safetensors"
FINISHED = "finished"
IMPORTED = ("torch._dynamo", "cvxpy", "pyhessian", "scipy.stats")
"""What an optimizer's first step, the semidefinite programs and the Hessian's second opinion import: 3 s a process."""


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
        input_box: what inputs are promised to stay in; ``None``: the range of the data.
        seeds: trainings of each preset, with ``seed`` and the numbers after it; the first is shown in detail.
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
    input_box: tuple[float, float] | None = None
    seeds: int = 1

    @property
    def trainings(self) -> dict[str, dict[str, int]]:
        """Of every model the run directories below ``models``, each with its seed; the first bears its name."""
        return {
            name: {name if k == 0 else f"{name}-seed-{self.seed + k}": self.seed + k for k in range(self.seeds)}
            for name in self.models
        }

    @property
    def runs(self) -> dict[str, tuple[str, int]]:
        """Model and seed of every run directory, the first training of each model before any second one."""
        numbered = [
            (k, run, (name, seed))
            for name, runs in self.trainings.items()
            for k, (run, seed) in enumerate(runs.items())
        ]
        return {run: what for _, run, what in sorted(numbered, key=lambda item: item[0])}

    def plan(self) -> dict[str, Any]:
        """What decides the results, as JSON values: campaigns with the same plan may share a directory."""
        return plain_value(
            {
                "models": self.models,
                "sources": {g.name: g.path for g in self.given},
                "quick": self.quick,
                "seed": self.seed,
                "data_dir": self.data_dir,
                "task": identity(self.task),
                "tasks": {g.name: identity(g.task) for g in self.given if g.task is not None},
                "budget": asdict(self.settings.budget),
                **({} if self.input_box is None else {"input_box": self.input_box}),
                **({} if self.seeds == 1 else {"seeds": self.seeds}),
            }
        )

    @property
    def settings(self) -> AnalysisSettings:
        """How its models are analysed: what an earlier analysis did is kept."""
        budget = BUDGETS["quick" if self.quick else "full"]
        return AnalysisSettings(budget, self.seed, self.input_box, keep=True)


@contextmanager
def opened(campaign: Campaign, *, overwrite: bool = False, pages: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """Make or re-open the campaign's directory, and own it for the time of a block.

    Args:
        campaign: what is to be done.
        overwrite: whether a report made with another plan, and files of the names that a report has, may be replaced.
            Files of other names are not touched.
        pages: names of the files that the caller will write there, so that they are refused before the work, too.

    Yields:
        Names of the models that are finished already.

    Raises:
        ConfigurationError: an unknown preset, or a directory that holds another campaign or something else.
        FolderInUseError: another process writes there.
        FileFormatError: a directory that cannot be written to.
    """
    _check(campaign, overwrite)
    with claim_folder(campaign.folder, "report") as own:
        _check(campaign, overwrite)  # as it is now that nobody else writes
        if not is_listed(campaign.folder):
            adopt_models(campaign.folder)
        tables = [TRAININGS_FILE] if campaign.seeds > 1 else []
        own.reserve([SETTINGS_FILE, *tables, *pages], REPORT, overwrite=overwrite, adopt=True)
        same = planned(campaign.folder) == campaign.plan()
        if not same:
            own.remove([] if campaign.seeds > 1 else [TRAININGS_FILE])
            for folder in sorted((campaign.folder / "models").glob("*")):
                clear(folder)
        _drop_stale(campaign)
        if not same:
            write_settings(campaign, {})
        done = finished(campaign)
        for run in campaign.runs:
            if run not in done:
                refuse_model(campaign.folder / "models" / run, overwrite)
        yield finished(campaign)


def plan(campaign: Campaign, *, overwrite: bool = False) -> tuple[str, ...]:
    """``opened``, and closed again.

    Returns:
        Names of the models that are finished already.
    """
    with opened(campaign, overwrite=overwrite) as done:
        return done


def _check(campaign: Campaign, overwrite: bool) -> None:
    """Refuse what cannot be done before anything is changed."""
    trained, known = [n for n in campaign.models if n not in {g.name for g in campaign.given}], known_presets()
    for name in trained:
        as_choice("model", name, known)
    folder = campaign.folder
    if folder.exists() and not folder.is_dir():
        raise FileFormatError(f"cannot write to {folder}: it is a file")
    if (folder / SETTINGS_FILE).is_file():
        if planned(folder) != campaign.plan() and not overwrite:
            raise ConfigurationError(
                f"{folder} holds a report made with other settings: choose another --out, or --overwrite"
            )
    elif (
        folder.is_dir()
        and SETTINGS_FILE not in listed_files(folder)
        and any(not is_internal_file(p.name) for p in folder.iterdir())
    ):
        raise ConfigurationError(f"{folder} is not empty and no report directory: choose another --out")


def _drop_stale(campaign: Campaign) -> None:
    """Take away results about other weights than those that are there now; trained presets keep their training."""
    given = {g.name: g for g in campaign.given}
    for run, (name, _) in campaign.runs.items():
        folder = campaign.folder / "models" / run
        if not (folder / ANALYSIS_FILE).is_file():
            continue
        known = recorded(folder)
        if name in given:
            if known.get("given") != given[name].digest:
                clear(folder)
        elif known.get("files", {}).get(MODEL_FILE) != file_digests(folder, [MODEL_FILE]).get(MODEL_FILE):
            clear(folder, ANALYSIS_FILE)


def finished(campaign: Campaign) -> tuple[str, ...]:
    """Names of the run directories whose files are complete, and as the analysis left them."""
    return tuple(n for n in campaign.runs if is_complete(campaign.folder / "models" / n))


def run_campaign(
    campaign: Campaign,
    *,
    processes: int = 2,
    news: Callable[[str, str], Any] | None = None,
    command: str | None = None,
    overwrite: bool = False,
    place: Runner | None = None,
) -> list[Outcome]:
    """Train and analyse what is not finished yet; ``plan`` comes first.

    Args:
        campaign: what is to be done.
        processes: models at a time, each in a process with one thread.
        place: the workers of a cluster (``stability.analysis.running.jobs.on_cluster``) in place of processes: each
            model's files are sent there and back. What is named by a path has to be there, too.
        news: called with a model's name and what is being done; in the end with ``FINISHED``.
        command: the command line, for the record.
        overwrite: whether files in the way of the models' own may be replaced.

    Returns:
        One outcome a model; a mistake in one model's input does not stop the others.

    Raises:
        FileFormatError: a directory that cannot be written to.
        FolderInUseError: another process writes there.
        SchedulerGoneError: a cluster's scheduler is gone; finished models are kept.
        KeyboardInterrupt: finished models and finished epochs are kept.
    """
    with claim_folder(campaign.folder, "report") as own:
        done = finished(campaign)
        settings = replace(campaign.settings, overwrite=overwrite)
        jobs = {
            run: RunJob(
                replace(campaign, given=tuple(g for g in campaign.given if g.name == name)),
                run,
                name,
                replace(settings, seed=seed),
                _home(name),
            )
            for run, (name, seed) in campaign.runs.items()
            if run not in done
        }

        outcomes: list[Outcome] = []

        def note(outcome: Outcome) -> None:
            outcomes.append(outcome if place is None else _brought(outcome, jobs[outcome.name].folder, overwrite))
            session.note(outcomes[-1])
            if news is not None:
                news(outcome.name, FINISHED)

        at_a_time = min(processes if place is None else place.workers, len(campaign.runs))
        session = Session(campaign, at_a_time, command, bool(jobs))
        told: dict[str, Any] = {"news": news, "done": note}
        try:
            if place is not None:
                errands = {run: Errand(job, files_in(job.folder)) for run, job in jobs.items()}
                run_jobs(run_errand, errands, place=place, gpus=int(campaign.device.startswith("cuda")), **told)
            else:
                alone = len(campaign.runs) > 1
                run_jobs(
                    examine_one,
                    jobs,
                    processes=processes,
                    descriptor=own.descriptor,
                    alone=alone,
                    modules=IMPORTED,
                    **told,
                )
            if campaign.seeds > 1:
                whole = finished(campaign)
                kept = {name: [run for run in runs if run in whole] for name, runs in campaign.trainings.items()}
                session.compare(write_trainings(campaign.folder, {n: runs for n, runs in kept.items() if n in runs}))
            session.close()
        finally:
            session.write()
        return outcomes


def _brought(outcome: Outcome, folder: Path, overwrite: bool) -> Outcome:
    """The files of a model that was examined elsewhere, in its folder."""
    if outcome.error is not None:
        return outcome
    try:
        put_files(outcome.value, folder, overwrite=overwrite)
    except StabilityError as error:
        return Outcome(outcome.name, str(error))
    return Outcome(outcome.name)


def _home(name: str) -> str:
    """The module of a registered layer that is trained under its own name; empty where none is."""
    layer = None if name in PRESETS else LAYERS.get(name)
    return "" if layer is None or layer.__module__ == "__main__" else layer.__module__
