"""CSV tables with exact floats, written whole and read with checked columns."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from stability.errors import FileFormatError


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV: floats by ``repr`` (exact), NaN and ``None`` as empty cells."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(float(value)) if isinstance(value, float) else value


def read_csv(path: str | Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a table that ``csv_text`` made.

    Args:
        path: the file.
        columns: expected header.

    Returns:
        The table; empty cells of numeric columns are NaN.

    Raises:
        FileFormatError: missing, unreadable, or with another header.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "t.csv").write_text(csv_text(["step", "value"], [(0, 0.1), (1, math.nan)]))
        ...     read_csv(Path(folder) / "t.csv", ["step", "value"])["value"].tolist()
        [0.1, nan]
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"cannot read {path}: {error}") from error
    if header != list(columns) or any(len(row) != len(columns) for row in rows):
        raise FileFormatError(f"every line of {path} must have the columns {','.join(columns)}")
    values = list(zip(*rows)) or [()] * len(columns)
    return pd.DataFrame({name: _parse(column) for name, column in zip(columns, values)}, columns=list(columns))


def _parse(values: Sequence[str]) -> list[Any]:
    """Convert a column to integers, else to floats (empty cells: NaN), else leave it as strings."""
    for kind in (int, float):
        try:
            return [math.nan if value == "" and kind is float else kind(value) for value in values]
        except ValueError:
            continue
    return list(values)
