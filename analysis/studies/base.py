"""Studies: tables and figures of the papers, rerun from lists of trainings.

A study writes ``study.json``, ``table.csv`` and ``curves.csv`` into a folder. Finished trainings are kept in
``parts.json``, so that the same command goes on after an interruption.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from stability.certification import certify_contraction
from stability.errors import FileFormatError, StabilityError, UnsupportedError
from stability.kernel.checks import as_choice
from stability.storage.documents import read_json
from stability.storage.folder import claim_folder, refuse_existing_files
from stability.storage.writing import write_text
from stability.verification import verify

from ...models import SequenceModel, free_parameters
from ..environment import environment
from ..guard import check_int
from ..results import plain_value
from ..tasks import Task, make_task
from ..tasks.base import reads_data
from ..training.front import train
from ..training.outcome import Progress
from ..training.settings import Settings
from .result import FILES, STUDY, Compared, Figure, StudyResult

PARTS = "parts.json"
Size = Mapping[str, Any]
Row = dict[str, Any]
Frame = Any
"""Data frame of pandas, whose types do not describe a selection."""


@dataclass(frozen=True)
class Case:
    """Network on a task: one training for each seed.

    Attributes:
        columns: table columns that identify it, such as ``model``.
        make: makes the model for the task.
        task: name of the task.
        options: options of ``make_task``.
        settings: fields of the training's settings, without the seed.
        resample: draw batches from the training sequences with replacement, an epoch being ``fresh`` batches.
    """

    columns: Mapping[str, Any]
    make: Callable[[Task], Any]
    task: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any]
    resample: bool = False


def _nothing(*_: Any) -> tuple[()]:
    return ()


def _no_row(*_: Any) -> Row:
    return {}


@dataclass(frozen=True)
class Study:
    """Description of a study.

    Attributes:
        name: name on the command line.
        summary: the rerun experiment in one line.
        title: title of its page.
        paper: the paper and its table or figure.
        sizes: ``full``, ``quick``, and ``folder`` where a folder of full data gets sizes of its own; each with the
            number of ``seeds`` and everything that ``cases`` reads.
        conclude: the outcome in one sentence, from the table of all trainings.
        cases: the trainings of a size; none where ``compute`` makes the table.
        measure: further numbers of a trained model, for its row, from the model, the task, the size, the seed and the
            rows of ``probe``; rows under ``curves`` go to the curves.
        probe: numbers of a model before training and after every epoch, rows of the curves.
        compute: rows and curves of a study without trainings, from its size and its seed.
        compared: our numbers beside the paper's, from the table of all trainings.
        figures: descriptions of the figures.
        differences: deviations from the paper, one sentence each.
    """

    name: str
    summary: str
    title: str
    paper: str
    sizes: Mapping[str, Size]
    conclude: Callable[[Frame], str]
    cases: Callable[[Size], Sequence[Case]] = _nothing
    measure: Callable[[Any, Task, Size, int, Sequence[Row]], Mapping[str, Any]] = _no_row
    probe: Callable[[Any, Task], Sequence[Row]] = _nothing
    compute: Callable[[Size, int], tuple[list[Row], list[Row]]] | None = None
    compared: Callable[[Frame], Sequence[Compared]] = _nothing
    figures: tuple[Figure, ...] = ()
    differences: tuple[str, ...] = ()


STUDIES: dict[str, Study] = {}


def register_study(study: Study) -> Study:
    """Make a study known to ``run_study`` and to the command line."""
    STUDIES[study.name] = study
    return study


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
) -> StudyResult:
    """Run a study and write its files into a folder.

    Args:
        name: one of ``STUDIES``.
        out: the folder, made when it is missing.
        seed: the first seed of the trainings.
        quick: a small version that shows the shape of the result.
        data_dir: folder with data, for tasks that read any.
        device: device to train on.
        progress: called with one line of news after every epoch and training.
        overwrite: whether files of the names that a study writes may be replaced where no study made them.

    Returns:
        The result.

    Raises:
        ConfigurationError: an unknown study, a bad option, or files of another origin in the way.
        FileFormatError: a folder that cannot be written to.
        FolderInUseError: another process writes there.
        UnsupportedError: a training diverged; the others are kept.
    """
    as_choice("study", name, STUDIES)
    check_int("seed", seed, 0)
    study, out = STUDIES[name], Path(out)
    tell = progress or (lambda text: None)
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    size = study.sizes["quick" if quick else "folder" if data_dir is not None and "folder" in study.sizes else "full"]
    if out.is_dir():
        refuse_existing_files(out, (*FILES, PARTS), STUDY, overwrite)
    with claim_folder(out, f"study {name}") as folder_lock:
        folder_lock.reserve((*FILES, PARTS), STUDY, overwrite=overwrite)
        job = _Job(study, size, seed, data_dir, torch.device(device), tell, _Parts(out / PARTS))
        rows, curves = job.trained() if study.compute is None else study.compute(size, seed)
        frame: Frame = pd.DataFrame(rows)
        result = StudyResult(
            name,
            study.title,
            quick,
            size,
            tuple(rows),
            tuple(curves),
            keys=job.keys,
            environment=environment(seed, job.device, started),
            seconds=float(frame["seconds"].sum()) if job.keys else time.perf_counter() - clock,
            conclusion=study.conclude(frame),
            paper=study.paper,
            compared=tuple(study.compared(frame)),
            differences=study.differences,
            figures=study.figures,
            seeds=job.seeds if job.keys else (seed,),
        )
        result.save(out, overwrite=overwrite)
    return result


class _Parts:
    """Outcomes of finished trainings, kept in one file under the settings that decided them."""

    def __init__(self, path: Path) -> None:
        self._path, self._kept = path, {}
        if path.is_file():
            try:
                known = read_json(path)
            except FileFormatError:
                known = None
            self._kept = known if isinstance(known, dict) else {}

    def outcome(self, key: str, settings: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Return the outcome kept for these settings, or compute it and keep it."""
        settings, known = plain_value(dict(settings)), self._kept.get(key)
        if not isinstance(known, dict) or known.get("settings") != settings:
            self._kept[key] = {"settings": settings, "outcome": plain_value(compute())}
            write_text(self._path, json.dumps(self._kept, allow_nan=False) + "\n")
        return self._kept[key]["outcome"]


@dataclass(frozen=True)
class _Job:
    """Trainings of a study in one size."""

    study: Study
    size: Size
    seed: int
    data_dir: str | Path | None
    device: torch.device
    tell: Callable[[str], None]
    parts: _Parts

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.seed, self.seed + self.size["seeds"]))

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for case in self.study.cases(self.size) for name in case.columns))

    def trained(self) -> tuple[list[Row], list[Row]]:
        """Train every case with every seed; return the table and the curves."""
        rows, curves, make = [], [], functools.lru_cache(2)(self._task)
        for case in self.study.cases(self.size):
            for seed in self.seeds:
                task = make(case.task, tuple(sorted(case.options.items())), seed)
                head = {**case.columns, "seed": seed}
                words = ", ".join(map(str, case.columns.values()))
                described = task.describe()
                described["data"] = {k: v for k, v in described["data"].items() if k != "folder"}
                decided = {**head, "settings": dict(case.settings), "task": described, "size": dict(self.size)}
                run = functools.partial(self._train, case, task, seed, f"{words}, seed {seed}")
                part = self.parts.outcome(f"{words}, seed {seed}", decided, run)
                rows.append({**head, **part["row"]})
                curves += [{**head, **point} for point in part["curves"]]
                self.tell(f"{words}, seed {seed}: {task.metric_name} {part['row']['test_metric']:.4g}")
        return rows, curves

    def _task(self, name: str, options: tuple[tuple[str, Any], ...], seed: int) -> Task:
        """Make the task of a case: stored data are chosen with the study's seed, generated ones with the training's."""
        if reads_data(name):
            return make_task(name, data_dir=self.data_dir, seed=self.seed, **dict(options))
        return make_task(name, seed=seed, **dict(options))

    def _train(self, case: Case, task: Task, seed: int, words: str) -> Row:
        torch.manual_seed(seed)
        model, settings = case.make(task).to(self.device), Settings().changed(**{**case.settings, "seed": seed})
        unit = settings.fresh or 1  # iterations where every batch is fresh, epochs otherwise
        curves = [{"step": 0, **row} for row in self.study.probe(model, task)]

        def progress(now: Progress) -> None:
            if now.finished is not None:
                curves.extend({"step": now.epoch * unit, **row} for row in self.study.probe(model, task))
                self.tell(
                    f"{words}, epoch {now.epoch} of {now.epochs}: {task.metric_name} {now.finished.test_metric:.4g}"
                )

        result = train(model, _resampled(task) if case.resample else task, settings, progress=progress)
        if result.stopped == "interrupted":
            raise KeyboardInterrupt
        if result.stopped == "diverged" or result.test_metric is None:
            raise UnsupportedError(f"the training of {words} has no result: {result.detail}; the others are kept")
        measured = dict(self.study.measure(model.to("cpu"), task, self.size, seed, tuple(curves)))
        for epoch in result.history:
            names = ("train_loss", "test_loss", "test_metric")
            curves.append({"step": epoch.epoch * unit, **{name: getattr(epoch, name) for name in names}})
        curves += measured.pop("curves", [])
        row = {
            "parameters": free_parameters(model),
            "test_metric": result.test_metric,
            "chance": task.chance,
            "train_loss": result.train_loss,
            "lowest_test_loss": min(epoch.test_loss for epoch in result.history),
            **measured,
            "seconds": result.seconds,
        }
        return {"row": row, "curves": curves}


def _resampled(task: Task) -> Task:
    """Return the task with batches drawn from its training sequences with replacement."""
    x, y = task.train

    def sample(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.randint(len(x), (n,), generator=torch.Generator().manual_seed(seed))
        return x[rows], y[rows]

    return replace(task, sample=sample)


def network(layer: Any, hidden: int, **options: Any) -> Callable[[Task], SequenceModel]:
    """Return a factory of one-layer networks for a task.

    Args:
        layer: class of the layer, called as ``layer(input_size, hidden, **options)``.
        hidden: size of the hidden state.
        **options: options of the layer.
    """

    def make(task: Task) -> SequenceModel:
        return SequenceModel(layer(task.input_size, hidden, **options), task.output_size, task.reduction)

    return make


def verdict(layer: nn.Module, seed: int = 0) -> str:
    """Return the verdict about contraction of a trained layer that the checker confirms, else ``no verdict``.

    Args:
        layer: the recurrent layer.
        seed: seed of the searches.

    Example:
        >>> from stability.models import LipschitzRNN
        >>> verdict(LipschitzRNN(2, 3, gamma=2.0, dt=0.1, init_std=0.0).double())
        'certified'
    """
    try:
        certificate = certify_contraction(layer.to("cpu"), rate="any", seed=seed)
    except StabilityError:
        return "no verdict"
    word = str(certificate.verdict)
    return word if word == "inconclusive" or verify(certificate).valid else "no verdict"


def means(frame: Frame, column: str, by: str = "model", **where: Any) -> dict[Any, float]:
    """Return the mean of a column for each value of another one.

    Args:
        frame: the table of all trainings.
        column: column of numbers.
        by: column of names.
        **where: columns and the values that select the rows.

    Example:
        >>> means(pd.DataFrame({"model": ["a", "a", "b"], "x": [1.0, 2.0, 5.0]}), "x")
        {'a': 1.5, 'b': 5.0}
    """
    for name, value in where.items():
        frame = frame[frame[name] == value]
    return {name: float(value) for name, value in frame.groupby(by, sort=False)[column].mean().items()}


def ranking(frame: Frame, column: str = "test_metric", form: str = ".1%", **where: Any) -> str:
    """Return models and their means in words, from the largest to the smallest.

    Args:
        frame: the table of all trainings.
        column: column of numbers.
        form: format of a number.
        **where: columns and the values that select the rows.

    Example:
        >>> ranking(pd.DataFrame({"model": ["a", "b"], "test_metric": [0.5, 0.75]}))
        'b 75.0%, a 50.0%'
    """
    ordered = sorted(means(frame, column, **where).items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {value:{form}}" for name, value in ordered)
