"""Result of a study: its table, its curves, the paper's numbers beside ours, and descriptions of its figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from stability.errors import ConfigurationError
from stability.storage.folder import claim_folder, refuse_existing_files
from stability.storage.writing import write_text

from ..results import Record
from ..tables import csv_text

STUDY = "study"
FILES = ("study.json", "table.csv", "curves.csv")
KINDS = ("lines", "points")
SOURCES = ("curves", "table")
LOGARITHMIC = ("", "x", "y", "xy")


@dataclass(frozen=True)
class Figure:
    """Description of a figure: which columns of which table are drawn, and how.

    Attributes:
        kind: ``lines`` (over ``x``, one a ``series``; repeats of equal series and ``x`` are shown as their mean with a
            band from the least to the largest) or ``points`` (a row for each name in ``x``, a point for each row of
            the table, repeats with their mean and range).
        title: title of the figure.
        x: column of the horizontal axis, or of the names.
        y: column of the vertical axis, or of the values.
        series: column whose values are distinguished by color; empty for one series.
        source: ``curves`` or ``table``.
        where: columns and the values that select the rows.
        xlabel: label of the axis; the column's name where it is empty.
        ylabel: likewise.
        log: logarithmic axes: ``x``, ``y``, ``xy`` or none.
        percent: whether values are shares, shown in per cent.
        marks: horizontal lines, each a value and its name.
        caption: finding that the figure shows.
    """

    kind: str
    title: str
    x: str
    y: str
    series: str = ""
    source: str = "curves"
    where: Mapping[str, Any] = field(default_factory=dict)
    xlabel: str = ""
    ylabel: str = ""
    log: str = ""
    percent: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    caption: str = ""

    def __post_init__(self) -> None:
        for name, known in (("kind", KINDS), ("source", SOURCES), ("log", LOGARITHMIC)):
            if getattr(self, name) not in known:
                raise ConfigurationError(f"{name} of a figure must be one of {known}, got {getattr(self, name)!r}")

    def rows(self, result: StudyResult) -> pd.DataFrame:
        """Return the rows of a study's table or curves that the figure shows."""
        frame: Any = pd.DataFrame(list(result.curves if self.source == "curves" else result.rows))
        for column, value in self.where.items():
            frame = frame[frame[column] == value]
        return frame.dropna(subset=[self.x, self.y]) if len(frame) else frame


@dataclass(frozen=True)
class Compared:
    """Number of this study beside the paper's.

    Attributes:
        what: the quantity, with its model and data.
        ours: a number or a few words.
        paper: the paper's number or statement; ``None`` where it gives none.
        where: table, figure or section of the paper.
    """

    what: str
    ours: Any
    paper: Any
    where: str


@dataclass(frozen=True)
class StudyResult(Record):
    """Result of a study.

    Attributes:
        study: name of the study.
        title: the table or figure that it reruns.
        quick: whether it is the small version.
        settings: sizes that decided the numbers.
        rows: the table, one mapping a row; a row for each training.
        curves: numbers along training or along a parameter, one mapping a row.
        keys: columns that identify a training; rows of equal keys differ in their seed.
        environment: versions, machine, seed, times.
        seconds: time of all trainings.
        conclusion: the outcome in one sentence, also where a claim of the paper was not found again.
        paper: the paper and its table or figure.
        compared: our numbers beside the paper's.
        differences: deviations from the paper with their reasons, one sentence each.
        figures: descriptions of the figures.
        seeds: seeds of the trainings.
    """

    study: str
    title: str
    quick: bool
    settings: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    curves: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    keys: tuple[str, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict, repr=False)
    seconds: float = 0.0
    conclusion: str = ""
    paper: str = ""
    compared: tuple[Compared, ...] = ()
    differences: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    seeds: tuple[int, ...] = ()

    def frame(self) -> pd.DataFrame:
        """Return the table as a data frame."""
        return pd.DataFrame([dict(row) for row in self.rows])

    def summary(self) -> pd.DataFrame:
        """Return the table averaged over the seeds: means of numbers, counts of words."""
        frame = self.frame()
        if not self.keys or frame.empty:
            return frame
        groups = frame.drop(columns="seed").groupby(list(self.keys), sort=False, dropna=False)
        return groups.agg(_over_seeds).reset_index()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; the curves have a separate file."""
        return {name: value for name, value in super().to_dict().items() if name != "curves"}

    def text(self) -> str:
        """Return the averaged table and the conclusion, for a terminal."""
        lines = [self.title + (" (quick version)" if self.quick else ""), ""]
        lines.append(self.summary().to_string(index=False, na_rep="", float_format=lambda v: f"{v:.4g}"))
        return "\n".join([*lines, "", *([self.conclusion] if self.conclusion else [])]).rstrip()

    def save(self, out: str | Path, *, overwrite: bool = False) -> None:
        """Write ``study.json``, ``table.csv`` and ``curves.csv``.

        Args:
            out: the folder.
            overwrite: whether files of these names that no study made may be replaced.

        Raises:
            ConfigurationError: files of another origin are in the way.
            FileFormatError: a folder that cannot be written to.
            FolderInUseError: another process writes there.
        """
        out = Path(out)
        if out.is_dir():
            refuse_existing_files(out, FILES, STUDY, overwrite)
        with claim_folder(out, "study") as folder_lock:
            folder_lock.reserve(FILES, STUDY, overwrite=overwrite)
            write_text(out / "study.json", json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")
            for name, rows in (("table.csv", self.rows), ("curves.csv", self.curves)):
                write_text(out / name, _csv(rows))


def _over_seeds(values: pd.Series) -> Any:
    if values.dtype.kind in "iufb":
        return values.mean()
    counts = values.dropna().value_counts(sort=False)
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return csv_text(columns, [[row.get(c) for c in columns] for row in rows])
