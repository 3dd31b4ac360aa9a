"""Tables that survive a crash: every record is appended to a CSV file as soon as it exists."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from stability.errors import FileFormatError
from stability.wire import write_text

__all__ = ["CsvLog", "csv_text", "read_csv"]


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]], header: bool = True) -> str:
    """Rows as CSV; floats by ``repr`` (exact), not-a-number and ``None`` as empty cells."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if header:
        writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(float(value)) if isinstance(value, float) else value


def _parse(values: Sequence[str]) -> list[Any]:
    """A column as integers, else as floats (empty cells: NaN), else as the strings that it holds; exact both ways."""
    for kind in (int, float):
        try:
            return [math.nan if value == "" and kind is float else kind(value) for value in values]
        except ValueError:
            continue
    return list(values)


def read_csv(path: str | Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a table that this module wrote.

    A last line without its line end is a record cut off by a crash and is left out.

    Args:
        path: the file.
        columns: what its header must say.

    Returns:
        The table, numbers as numbers.

    Raises:
        FileFormatError: missing, unreadable, or with another header.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is no text file") from error
    text = text[: text.rfind("\n") + 1]
    lines = list(csv.reader(io.StringIO(text)))
    if not lines or lines[0] != list(columns):
        raise FileFormatError(f"{path} must begin with the columns {','.join(columns)}")
    if any(len(line) != len(columns) for line in lines):
        raise FileFormatError(f"{path} has a line without {len(columns)} fields")
    fields = list(zip(*lines[1:])) or [()] * len(columns)
    return pd.DataFrame({name: _parse(values) for name, values in zip(columns, fields)}, columns=list(columns))


class CsvLog:
    """A growing table in memory and, once opened, in a file too.

    Args:
        columns: names; the first is the step.

    Attributes:
        last: the step of the last record, or ``None``.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.rows: list[tuple[Any, ...]] = []
        self._path: Path | None = None

    @property
    def last(self) -> int | None:
        """The step of the last record."""
        return self.rows[-1][0] if self.rows else None

    def append(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add records, and append them to the file in one write.

        Raises:
            FileFormatError: when the file cannot be written to.
        """
        self.rows.extend(rows)
        if self._path is None or not rows:
            return
        data = csv_text(self.columns, rows, header=False).encode()
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(handle, data)
            finally:
                os.close(handle)
        except OSError as error:
            raise FileFormatError(f"cannot write {self._path}: {error.strerror or error}") from error

    def open(self, path: Path, keep_until: int | None = None) -> None:
        """From now on keep the records in a file as well; what is there already is replaced.

        Args:
            path: the file.
            keep_until: take over the file's records up to this step first (and drop those in memory).
        """
        if keep_until is not None and path.exists():
            table = read_csv(path, self.columns)
            table = table[table[self.columns[0]] <= keep_until]
            self.rows = [tuple(row) for row in table.itertuples(index=False, name=None)]
        write_text(path, csv_text(self.columns, self.rows))
        self._path = path

    def rewind(self, step: int) -> None:
        """Drop the records after a step."""
        kept = [row for row in self.rows if row[0] <= step]
        if len(kept) < len(self.rows):
            self.rows = kept
            if self._path is not None:
                write_text(self._path, csv_text(self.columns, self.rows))

    def frame(self) -> pd.DataFrame:
        """The records as a table."""
        return pd.DataFrame(self.rows, columns=list(self.columns))
