"""Campaign behind the main report: several models, trained or given, and analyzed.

A campaign is a directory: ``report-settings.json`` holds the plan, ``models/NAME/`` is a model's run directory with the
files of ``stability.analysis.campaign.pipeline``. A model is finished when it has its ``analysis.json``. A repeated
campaign computes the missing parts and resumes training. A model whose weights changed is analyzed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from stability.errors import ConfigurationError, FileFormatError
from stability.kernel.checks import as_choice
from stability.storage.artifacts import ANALYSIS_FILE
from stability.storage.folder import claim_folder, is_internal_file, listed_files

from ...models.recurrent import LAYERS
from ..jobs import Outcome, cluster, run_jobs, worker_count
from ..training.presets import PRESETS, known_presets
from .digests import file_digests
from .each import RunJob, examine_one
from .owned import recorded
from .plan import Campaign
from .record import REPORT, SETTINGS_FILE, Session, clear, is_complete, planned, refuse_model, write_settings
from .trainings import TRAININGS_FILE, write_trainings

MODEL_FILE = "model.safetensors"  # weights of a trained model in its run directory
FINISHED = "finished"  # last news of a model


@contextmanager
def opened(campaign: Campaign, *, overwrite: bool = False, pages: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """Create or re-open the directory of a campaign and lock it for the time of a block.

    Args:
        campaign: models, data and settings.
        overwrite: whether a report made with another plan, and files of the names that a report has, may be replaced.
            Files of other names are not touched.
        pages: names of the files that the caller will write there; existing ones are refused before the work.

    Yields:
        Names of the models that are finished already.

    Raises:
        ConfigurationError: an unknown preset, or a directory that holds another campaign or something else.
        FolderInUseError: another process writes there.
        FileFormatError: a directory that cannot be written to.
    """
    _check(campaign, overwrite)
    with claim_folder(campaign.folder, "report") as folder_lock:
        _check(campaign, overwrite)  # as it is now that nobody else writes
        tables = [TRAININGS_FILE] if campaign.seeds > 1 else []
        folder_lock.reserve([SETTINGS_FILE, *tables, *pages], REPORT, overwrite=overwrite, adopt=True)
        same = planned(campaign.folder) == campaign.plan()
        if not same:
            folder_lock.remove([] if campaign.seeds > 1 else [TRAININGS_FILE])
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
    """Check a campaign as ``opened`` does, without holding its directory.

    Returns:
        Names of the models that are finished already.
    """
    with opened(campaign, overwrite=overwrite) as done:
        return done


def _check(campaign: Campaign, overwrite: bool) -> None:
    """Raise an error for an impossible campaign, before any change."""
    trained, known = [n for n in campaign.models if n not in {g.name for g in campaign.given}], known_presets()
    for name in trained:
        as_choice("model", name, known)
    folder = campaign.folder
    if folder.exists() and not folder.is_dir():
        raise FileFormatError(f"cannot write to {folder}: it is a file")
    if (folder / SETTINGS_FILE).is_file():
        if planned(folder) != campaign.plan() and not overwrite:
            raise ConfigurationError(
                f"{folder} holds a report with other settings: choose another --out, or add --overwrite"
            )
    elif (
        folder.is_dir()
        and SETTINGS_FILE not in listed_files(folder)
        and any(not is_internal_file(p.name) for p in folder.iterdir())
    ):
        raise ConfigurationError(f"{folder} is neither empty nor a report directory: choose another --out")


def _drop_stale(campaign: Campaign) -> None:
    """Remove results about weights that have changed since; trained presets keep their training."""
    originals = {g.name: g for g in campaign.given}
    for run, (name, _) in campaign.runs.items():
        folder = campaign.folder / "models" / run
        if not (folder / ANALYSIS_FILE).is_file():
            continue
        known = recorded(folder)
        if name in originals:
            if known.get("given") != originals[name].digest:
                clear(folder)
        elif known.get("files", {}).get(MODEL_FILE) != file_digests(folder, [MODEL_FILE]).get(MODEL_FILE):
            clear(folder, ANALYSIS_FILE)


def finished(campaign: Campaign) -> tuple[str, ...]:
    """Return the names of the run directories whose files are complete and unchanged."""
    return tuple(n for n in campaign.runs if is_complete(campaign.folder / "models" / n))


def run_campaign(
    campaign: Campaign,
    *,
    processes: int = 2,
    news: Callable[[str, str], Any] | None = None,
    command: str | None = None,
    overwrite: bool = False,
    scheduler: str | None = None,
    client: Any = None,
) -> list[Outcome]:
    """Train and analyze the unfinished models; call ``plan`` first.

    Args:
        campaign: models, data and settings.
        processes: models at a time, each in a process with one thread.
        scheduler: address of a Dask scheduler whose workers run the models in place of local processes. They write to
            the folder of the campaign, which has to be the same path for them.
        client: a ``distributed.Client`` in place of an address.
        news: called with a model's name and its current step; in the end with ``FINISHED``.
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
    with claim_folder(campaign.folder, "report"):
        done, shared = finished(campaign), replace(campaign, folder=campaign.folder.absolute())
        settings = replace(campaign.settings, overwrite=overwrite)
        jobs = {
            run: RunJob(
                replace(shared, given=tuple(g for g in campaign.given if g.name == name)),
                run,
                name,
                replace(settings, seed=seed),
                _home(name),
            )
            for run, (name, seed) in campaign.runs.items()
            if run not in done
        }
        gpus = int(campaign.device.startswith("cuda"))  # one process at a time uses a local GPU
        local = 1 if gpus else min(processes, len(jobs))
        several = processes > 1 and len(campaign.runs) > 1  # the last one of several has one thread, as all others
        outcomes: list[Outcome] = []
        with cluster(local, scheduler if jobs else None, client) as workers:

            def note(outcome: Outcome) -> None:
                if workers is not None and outcome.error is None and not is_complete(jobs[outcome.name].folder):
                    outcome = Outcome(outcome.name, f"its worker does not see {shared.folder}: choose a shared --out")
                outcomes.append(outcome)
                session.note(outcome)
                if news is not None:
                    news(outcome.name, FINISHED)

            session = Session(campaign, worker_count(workers), command, bool(jobs))
            try:
                run_jobs(
                    examine_one, jobs, client=workers, threads=1 if several else None, news=news, done=note,
                    gpus=0 if workers is None else gpus,
                )  # fmt: skip
                if campaign.seeds > 1:
                    whole = finished(campaign)
                    complete = {
                        name: [run for run in runs if run in whole] for name, runs in campaign.trainings.items()
                    }
                    session.compare(
                        write_trainings(campaign.folder, {n: runs for n, runs in complete.items() if n in runs})
                    )
                session.close()
            finally:
                session.write()
        return outcomes


def _home(name: str) -> str:
    """Return the class path of a registered layer or cell that is trained under its own name, or an empty text."""
    layer = None if name in PRESETS else LAYERS.get(name)
    return "" if layer is None or layer.__module__ == "__main__" else f"{layer.__module__}:{layer.__qualname__}"
