"""Several trainings of each model: verdicts, and intervals of the measured numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pandas as pd

from stability.errors import FileFormatError
from stability.storage.artifacts import ANALYSIS_FILE
from stability.storage.documents import file_digest

from ..vocabulary import state
from .certificates import check_file
from .frames import read_columns

NAMES, NUMBERS = ("model", "what", "group"), ("at", "mean", "low", "high", "least", "largest", "n")
NONE = pd.DataFrame(columns=[*NAMES, *NUMBERS])


@dataclass(frozen=True, eq=False)
class Trainings:
    """The trainings of one model.

    Attributes:
        runs: their directories below ``models``; the first one is shown in detail.
        states: verdicts that the certificate files prove, as ``ModelRecord.state``; ``invalid`` for a file
            that does not verify, ``None`` for none.
        table: rows of ``trainings.csv`` about the model.
    """

    runs: tuple[str, ...] = ()
    states: tuple[str | None, ...] = ()
    table: pd.DataFrame = field(default_factory=NONE.copy)

    @property
    def several(self) -> bool:
        """Return True if there are several trainings."""
        return len(self.runs) > 1

    def number(self, path: str, group: str = "") -> Mapping[str, float] | None:
        """Return mean, interval and range of a number of a document; ``None`` if a training lacks it.

        Args:
            path: the document's stem, a dot, the field (``radius.median``); or ``margin``.
            group: criterion of a margin.
        """
        rows = self._rows(path, group).dropna(subset=list(NUMBERS[1:]))
        return None if rows.empty else {str(k): float(v) for k, v in rows.iloc[0][list(NUMBERS[1:])].items()}

    def curve(self, table: str, group: str = "") -> pd.DataFrame | None:
        """Return points, means and intervals of a curve; ``None`` for one training, or if a training lacks it.

        Args:
            table: stem of the table's file.
            group: name of the curve in a table with several.
        """
        rows = self._rows(table, group).dropna(subset=["at", "mean", "low", "high"])
        return None if rows.empty else rows.sort_values("at")

    def _rows(self, quantity: str, group: str) -> pd.DataFrame:
        return cast(pd.DataFrame, self.table[(self.table["what"] == quantity) & (self.table["group"] == group)])


def read_trainings(folder: Path, recorded: Any) -> tuple[dict[str, Trainings], str]:
    """Read the trainings of every model of a report.

    Args:
        folder: the report directory.
        recorded: ``trainings`` of ``report-settings.json``.

    Returns:
        The trainings by the model's name, and the reason why intervals are not shown, empty if they are shown.

    Raises:
        FileFormatError: a table that cannot be read, or has other columns.
    """
    runs, digests = recorded.get("runs") or {}, recorded.get("digests") or {}
    folders = {name: tuple(r for r in each if Path(r).name == r) for name, each in runs.items()}
    path, refused = folder / "trainings.csv", ""
    changed = [r for each in folders.values() for r in each if digests.get(r) != _digest(folder / "models" / r)]
    if changed:
        refused = f"the intervals are about other results than those of {', '.join(changed)}: run the report again"
    table = NONE
    if not refused and path.is_file():
        columns_read = read_columns(path)
        table = NONE if columns_read is None else columns_read.reindex(columns=[*NAMES, *NUMBERS])
        if columns_read is not None and not {*NAMES, *NUMBERS} <= set(columns_read.columns):
            raise FileFormatError(f"{path} has other columns than {', '.join((*NAMES, *NUMBERS))}")
        table["group"] = table["group"].fillna("").astype(str)
        for name in NUMBERS:
            table[name] = pd.to_numeric(table[name], errors="coerce")
    return {
        name: Trainings(
            each,
            tuple(_state(folder / "models" / r / "certificate.json") for r in each),
            cast(pd.DataFrame, table[table["model"] == name]),
        )
        for name, each in folders.items()
    }, refused


def _digest(folder: Path) -> str | None:
    path = folder / ANALYSIS_FILE
    return file_digest(path) if path.is_file() else None


def _state(path: Path) -> str | None:
    if not path.is_file():
        return None
    checked = check_file(path)
    return state(checked.view) if checked.valid else "invalid"
