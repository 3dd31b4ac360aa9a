"""A study as its files tell it, ``study.json``, ``table.csv``, ``curves.csv``: read strictly, nothing is computed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from stability.errors import FileFormatError
from stability.storage.artifacts import ANY, FLAG, NUMBER, SECONDS, TEXT, ValuesOf
from stability.storage.documents import read_json

from ..names import clean, printable
from .frames import read_columns
from .limits import GROUPS, MODELS
from .shapes import misfit

INDEX, PAGE = "studies.json", "study.html"
_TEXTS = ValuesOf(list, TEXT)
_ROWS = ValuesOf(list, ValuesOf(dict, ANY))
SHAPE: Mapping[str, Any] = {
    **dict.fromkeys(("study", "title", "conclusion", "paper"), TEXT),
    "quick": FLAG, "settings": ValuesOf(dict, ANY), "rows": _ROWS, "seconds": SECONDS, "earlier_seconds": SECONDS,
    "notes": _TEXTS, "differences": _TEXTS, "seeds": ValuesOf(list, NUMBER),
    "compared": ValuesOf(list, {"what": TEXT, "where": TEXT}),
    "figures": ValuesOf(list, {
        **dict.fromkeys(("kind", "title", "x", "y", "series", "source", "xlabel", "ylabel", "log", "value"), TEXT),
        "caption": TEXT, "percent": FLAG, "vectors": _TEXTS, "where": ValuesOf(dict, ANY),
        "marks": ValuesOf(list, ValuesOf(list, ANY)),
    }),
    "environment": {"versions": ValuesOf(dict, ANY), "machine": ValuesOf(dict, ANY), "started": TEXT, "finished": TEXT},
}  # fmt: skip
"""Fields that the page reads; any may be missing or null (studies of earlier releases have fewer)."""
INDEX_SHAPE: Mapping[str, Any] = {"studies": ValuesOf(dict, {"status": TEXT, "reason": TEXT})}


@dataclass(frozen=True, eq=False)
class StudyRecord:
    """One study.

    Attributes:
        folder: that it lies in.
        document: ``study.json``.
        frames: ``table`` and ``curves``, as far as they exist and hold a row.
    """

    folder: Path
    document: Mapping[str, Any]
    frames: Mapping[str, pd.DataFrame]

    def get(self, name: str, default: Any = "") -> Any:
        """A field of ``study.json``, or something in its place."""
        value = self.document.get(name)
        return default if value is None else value


def read_study(folder: str | Path) -> StudyRecord:
    """A study from its files.

    Args:
        folder: that ``stability study`` wrote.

    Returns:
        The record, every text in it printable.

    Raises:
        FileFormatError: no study, or a file of another shape.

    Example:
        >>> read_study("no-such-folder")
        Traceback (most recent call last):
        ...
        stability.errors.FileFormatError: no-such-folder holds no study: it has no study.json
    """
    folder = Path(folder)
    if not (folder / "study.json").is_file():
        raise FileFormatError(f"{folder} holds no study: it has no study.json")
    document = _shaped(folder / "study.json", SHAPE)
    frames = {}
    for stem in ("table", "curves"):
        path = folder / f"{stem}.csv"
        frame = read_columns(path) if path.is_file() else None
        if frame is not None and not frame.empty:
            frames[stem] = frame
    return StudyRecord(folder, document, frames)


def _shaped(path: Path, shape: Mapping[str, Any]) -> dict[str, Any]:
    value = read_json(path)
    words = misfit(value, shape) if isinstance(value, dict) else "does not hold a JSON object"
    if words is not None:
        raise FileFormatError(f"{path}: {words}")
    return clean(value)


def read_studies(folder: str | Path) -> tuple[dict[str, StudyRecord], dict[str, str]]:
    """The studies in the folders below one, and what is not there.

    Args:
        folder: with a folder for each study.

    Returns:
        The records by their folders' names, in the order of ``studies.json`` where there is one, and why others are
        missing: what failed, and folders that cannot be read.

    Raises:
        FileFormatError: a ``studies.json`` of another shape, or too many folders.
    """
    folder = Path(folder)
    asked: dict[str, Any] = {}
    if (folder / INDEX).is_file():
        asked = _shaped(folder / INDEX, INDEX_SHAPE).get("studies") or {}
    there = sorted(p.parent.name for p in folder.glob("*/study.json"))
    if len(there) > MODELS:
        raise FileFormatError(f"{folder} holds {len(there)} studies; at most {MODELS} are shown")
    found, missing = {}, {}
    for name in [*(n for n in asked if n in there), *(n for n in there if n not in asked)]:
        try:
            found[name] = read_study(folder / name)
        except FileFormatError as error:
            missing[name] = printable(error)
    for name, said in asked.items():
        if said.get("status") != "done":
            missing[name] = str(said.get("reason") or "did not finish")
    return found, missing


def selected(record: StudyRecord, figure: Mapping[str, Any]) -> pd.DataFrame | None:
    """The rows that a figure is drawn from.

    Args:
        record: of the study.
        figure: one of its descriptions.

    Returns:
        The rows; ``None`` where there is none.

    Raises:
        FileFormatError: a column that the figure asks for is not there, or it names too many series.
    """
    source = figure.get("source") or "curves"
    frame: Any = record.frames.get(source)
    if frame is None:
        return None
    where = figure.get("where") or {}
    names = [figure.get(k) for k in ("x", "y", "series", "value")] + [*(figure.get("vectors") or ()), *where]
    absent = [n for n in names if n and n not in frame.columns]
    if absent:
        raise FileFormatError(f"{record.folder / source}.csv has no column {', '.join(map(str, absent))}")
    for column, value in where.items():
        frame = frame[frame[column] == value]
    series = figure.get("series")
    if series and frame[series].nunique() > GROUPS:
        raise FileFormatError(f"{record.folder / source}.csv names more than {GROUPS} of {series}")
    numbers = [n for n in (figure.get("x") if figure.get("kind") != "points" else None, figure.get("y")) if n]
    for column in [*numbers, *(figure.get("vectors") or ()), *([figure["value"]] if figure.get("value") else [])]:
        if frame[column].dtype.kind not in "iufb":
            if frame[column].isna().all():
                return None
            raise FileFormatError(
                f"{record.folder / source}.csv: the column {column} holds something else than numbers"
            )
    values = frame[numbers].to_numpy(dtype=float)
    frame = frame[np.isfinite(values).all(axis=1)]
    return None if frame.empty else frame.reset_index(drop=True)


def index_text(done: Mapping[str, str | None]) -> str:
    """``studies.json``: which studies were run, and why one failed.

    Args:
        done: name to the reason of its failure, ``None`` for one that finished.

    Example:
        >>> "failed" in index_text({"adding": "it diverged"})
        True
    """
    studies = {n: {"status": "done"} if why is None else {"status": "failed", "reason": why} for n, why in done.items()}
    return json.dumps({"format": "stability-studies", "version": 1, "studies": studies}, indent=1) + "\n"
