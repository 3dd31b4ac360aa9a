"""Columns and types of the tables of a run; a table of another form is refused as a whole."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from stability.errors import FileFormatError
from stability.storage.artifacts import ARTIFACTS, DRAWN, EVERY, NAME, PLAIN, SOME, Artifact

from ..names import printable
from .limits import COLUMNS, GROUPS, LARGEST, ROWS, TABLE_BYTES


def read_table(path: Path) -> pd.DataFrame | None:
    """Read a table of a run, with the columns that the page needs; numbers that cannot be drawn become blank.

    Args:
        path: path of the file, whose name decides which columns it must have (``stability.storage.artifacts``).

    Returns:
        The table; ``None`` for one without a row.

    Raises:
        FileFormatError: unreadable, too large, or of other columns or types.
    """
    frame = _parsed(path)
    if frame is None:
        return None
    artifact = next((a for a in ARTIFACTS if a.name == path.name), Artifact(path.name, ""))
    whole, partial, names = (artifact.columns_of(kind) for kind in (EVERY, SOME, NAME))
    missing = [c for c in (*whole, *partial, *names) if c not in frame.columns]
    if missing:
        raise FileFormatError(f"{path} has no column {', '.join(missing)}")
    for column in frame.columns:
        frame[column] = _drawable(cast(pd.Series, frame[column]), artifact.columns.get(column, PLAIN), path)
    frame = frame.dropna(subset=list(whole)).reset_index(drop=True)
    required = [c for c in partial if c != "ci_low" and c != "ci_high"]
    return None if frame.empty or (required and frame[required].isna().to_numpy().all()) else frame


def read_columns(path: Path) -> pd.DataFrame | None:
    """Read a table with any columns and make its texts printable; numbers that cannot be drawn become blank.

    Args:
        path: path of the file.

    Returns:
        The table; ``None`` for an empty file.

    Raises:
        FileFormatError: unreadable or too large.
    """
    frame = _parsed(path)
    if frame is not None:
        for column in frame.columns:
            frame[column] = _drawable(cast(pd.Series, frame[column]), PLAIN, path)
    return frame


def _parsed(path: Path) -> pd.DataFrame | None:
    """Parse a table file without changing its values, column names printable; ``None`` for an empty file."""
    try:
        if not path.is_file() or path.stat().st_size > TABLE_BYTES:
            raise FileFormatError(f"{path} is no table of at most {TABLE_BYTES // 2**20} MiB")
        raw = path.read_bytes()
        if raw.count(b"\n") > ROWS or raw[: raw.find(b"\n")].count(b",") >= COLUMNS:
            raise FileFormatError(f"{path} is no table of at most {ROWS} rows and {COLUMNS} columns")
        frame = pd.read_csv(io.BytesIO(raw), low_memory=False)
    except pd.errors.EmptyDataError:
        return None
    except FileFormatError:
        raise
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise FileFormatError(f"{path} is not a readable table ({str(error)[:120]})") from error
    frame.columns = [printable(c) for c in frame.columns]
    return frame


def _drawable(column: pd.Series, kind: str, path: Path) -> Any:
    """Clean the values of a column: names and texts printable, numbers no larger than an axis can show."""
    values = column.to_numpy()
    if kind == NAME:
        words = [printable(v) for v in values]
        if len(set(words)) > GROUPS:
            raise FileFormatError(f"{path} names more than {GROUPS} of {column.name}")
        return words
    if values.dtype.kind in "iufc":
        is_limited = values.dtype.kind == "f" and column.name != "per_step"  # an exponent may be minus infinity
        return np.where(np.abs(values) > LARGEST, np.nan, values) if is_limited else values
    if not len(values):  # a table without rows has columns of no type
        return values.astype(float)
    if kind == EVERY or (kind in (SOME, DRAWN) and not bool(column.isna().all())):
        raise FileFormatError(f"{path}: the column {column.name} must hold numbers")
    return [printable(v) if isinstance(v, str) else v for v in column]
