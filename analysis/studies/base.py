"""What a study is: a table or figure of a paper, rerun from scratch, with its numbers as files.

A study writes ``study.json``, ``table.csv`` and ``curves.csv`` into a folder, and ``stability.reports`` draws
``study.html`` from these alone. Long studies are made of parts; a finished part is kept, and the same command with the
same settings goes on from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stability.errors import UnsupportedError
from stability.kernel.checks import as_choice
from stability.storage.folder import claim_folder, is_listed, listed_files, refuse_existing_files
from stability.storage.writing import write_text

from ..environment import environment
from ..guard import check_int
from ..running.places import Runner
from ..tables import csv_text
from ..tasks import Task
from ..training.front import train
from ..training.outcome import Progress, TrainResult
from ..training.settings import Settings
from ..training.spectra import SpectrumTracker
from .parts import EARLIER, STUDY, Elsewhere, Part, do_elsewhere, keep_part, kept_part, only
from .result import StudyResult

FILES = ("study.json", "table.csv", "curves.csv")


@dataclass(frozen=True)
class Job:
    """What a study is asked for.

    Attributes:
        out: folder of the study, for its parts and curves.
        seed: of everything random; studies over several seeds begin with it.
        quick: a small version that shows the shape of the result.
        data_dir: folder with data, for the studies that read any; ``None`` for what is embedded.
        device: where to train.
        progress: told one line of news now and then.
        elsewhere: where parts are done; ``None`` for here, one by one.
        only: the one part that is wanted, by its key; ``None`` for all, and what is made of them.
    """

    out: Path
    seed: int
    quick: bool
    data_dir: str | Path | None
    device: torch.device
    progress: Callable[[str], None]
    elsewhere: Elsewhere | None = None
    only: str | None = None

    def parts(self, parts: Iterable[Part]) -> Iterator[Any]:
        """The outcomes of a study's parts, in their order; those that are kept already are not computed again.

        Args:
            parts: all that the study has.

        Yields:
            JSON values.

        Raises:
            UnsupportedError: some have no outcome; the others are kept.
        """
        parts = list(parts)
        if self.only is not None:
            only(self.only, parts)
        if self.elsewhere is not None:
            do_elsewhere(self.out, parts, self.elsewhere, self.progress)
        for part in parts:
            yield keep_part(self.out, part.key, part.settings, part.compute)

    def train(
        self,
        model: nn.Module,
        task: Task,
        settings: Settings,
        what: str,
        news: Callable[[Progress], str] | None = None,
        tracker: SpectrumTracker | None = None,
    ) -> TrainResult:
        """A training of a part, on the study's device.

        Args:
            model: its initial weights are the study's affair.
            task: to train on.
            settings: how.
            what: the part in words.
            news: called after every epoch; what it says is told.
            tracker: records spectra along the way.

        Raises:
            KeyboardInterrupt: the user stopped it; finished epochs are kept.
            UnsupportedError: it diverged, so that the study has no number for it.
        """

        def progress(now: Progress) -> None:
            if now.finished is not None and news is not None:
                self.progress(f"{what}, {news(now)}")

        result = train(model.to(self.device), task, settings, tracker=tracker, progress=progress)
        if result.stopped == "interrupted":
            raise KeyboardInterrupt
        if result.stopped == "diverged" or result.test_metric is None:
            raise UnsupportedError(f"the training of {what} has no result: {result.detail}; the other parts are kept")
        return result


def by_iterations(chosen: Mapping[str, Any], every: int, **more: Any) -> Settings:
    """Settings of a training on ``iterations`` fresh batches, measured after every so many of them.

    Args:
        chosen: ``iterations``, ``batch``, ``learning_rate`` and ``seed``.
        every: iterations from one measurement to the next.
        more: further settings.

    Returns:
        The settings; an epoch is what lies between two measurements.
    """
    common = {"batch_size": chosen["batch"], "lr": chosen["learning_rate"], "seed": chosen["seed"]}
    return Settings(epochs=chosen["iterations"] // every, fresh=every, **common, **more)


@dataclass(frozen=True)
class Training:
    """A training that a study will do, as its settings say it: tests build every one of both sizes.

    Attributes:
        task: its name.
        options: of ``make_task``.
        model: makes the model for the task.
        settings: keyword arguments of ``Settings``.
    """

    task: str
    options: Mapping[str, Any]
    model: Callable[[Task], nn.Module]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """A study by name.

    Attributes:
        name: what ``stability study`` calls it.
        summary: one line: what it reruns.
        run: what it takes to run it.
        plan: the trainings of its quick (``True``) and its full version, one of each kind.
    """

    name: str
    summary: str
    run: Callable[[Job], StudyResult]
    plan: Callable[[bool], Sequence[Training]]


Run = Callable[[Job], StudyResult]
STUDIES: dict[str, Study] = {}


def no_trainings(quick: bool) -> Sequence[Training]:
    """The plan of a study that trains nothing."""
    return ()


def register_study(
    name: str, summary: str, plan: Callable[[bool], Sequence[Training]] = no_trainings
) -> Callable[[Run], Run]:
    """Function decorator: the study becomes known to ``run_study`` and to the command line as ``name``.

    Args:
        name: what ``stability study`` calls it.
        summary: one line: what it reruns.
        plan: its trainings, see ``Study``.
    """

    def register(run: Run) -> Run:
        STUDIES[name] = Study(name, summary, run, plan)
        return run

    return register


def run_study(
    name: str,
    *,
    out: str | Path,
    seed: int = 0,
    quick: bool = False,
    data_dir: str | Path | None = None,
    device: str | torch.device = "cpu",
    progress: Callable[[str], None] | None = None,
    overwrite: bool = False,
    processes: int = 1,
    place: Runner | None = None,
) -> StudyResult:
    """Run a study and write ``study.json`` and ``table.csv`` into a folder.

    Args:
        name: one of ``STUDIES``.
        out: the folder, made when it is missing.
        seed: of everything random.
        quick: a small version that shows the shape of the result.
        data_dir: folder with data, for the studies that read any.
        device: where to train.
        progress: called with one line of news now and then.
        overwrite: whether files of the names that a study writes may be replaced where no study made them.
        processes: parts at a time, each in a process with one thread; 1 stays in this process.
        place: the workers of a cluster (``stability.analysis.running.jobs.on_cluster``) in place of processes.

    Returns:
        The result.

    Raises:
        ConfigurationError: an unknown study, a bad option, or files of another origin in the way.
        FileFormatError: a folder that cannot be written to.
        FolderInUseError: another process writes there.
    """
    as_choice("study", name, STUDIES)
    check_int("seed", seed, 0)
    check_int("processes", processes, 1)
    out = Path(out)
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    device = torch.device(device)
    asked = {"seed": seed, "quick": quick, "data_dir": None if data_dir is None else str(data_dir)}
    ticket = {"study": name, "module": STUDIES[name].run.__module__, "device": str(device), **asked}
    elsewhere = Elsewhere(ticket, processes, place) if processes > 1 or place is not None else None
    job = Job(out, seed, quick, data_dir, device, progress or (lambda text: None), elsewhere)
    if out.is_dir():
        refuse_existing_files(out, FILES, STUDY, overwrite, _before(out))
    with claim_folder(out, f"study {name}") as own:
        own.take(_before(out), STUDY)
        own.reserve(FILES, STUDY, overwrite=overwrite)
        result, earlier = _timed(STUDIES[name].run, job)
        now, made = time.perf_counter() - clock, environment(seed, device, started)
        result = replace(result, environment=made, seconds=now + (earlier or 0.0), earlier_seconds=earlier)
        write_text(out / "study.json", json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n")
        write_table(out / "table.csv", result.rows)
    return result


def _timed(run: Run, job: Job) -> tuple[StudyResult, float | None]:
    """The result, and the seconds of its parts from earlier sessions; ``None`` where one of them has no time."""
    found: list[float | None] = []
    token = EARLIER.set(found)
    try:
        result = run(job)
    finally:
        EARLIER.reset(token)
    known = [seconds for seconds in found if seconds is not None]
    return result, float(sum(known)) if len(known) == len(found) else None


def _before(out: Path) -> dict[str, str]:
    """The list of a study's folder; for one of an earlier release, which has none, what a study made there."""
    if is_listed(out) or not out.is_dir():
        return listed_files(out)
    made = [p.relative_to(out).as_posix() for p in out.glob("parts/*.json") if "outcome" in kept_part(p)]
    if (out / "study.json").is_file() and kept_part(out / "study.json").get("study") in STUDIES:
        made += [name for name in FILES if (out / name).is_file()]
    return dict.fromkeys(made, STUDY)


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Rows as CSV, written aside and renamed into place; where a row lacks a column of another, the cell is empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return write_text(path, csv_text(columns, [[row.get(c) for c in columns] for row in rows]))
