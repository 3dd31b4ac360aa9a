"""Tables that survive a crash: every record is appended to a CSV file as soon as it exists."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stability.errors import FileFormatError
from stability.storage.writing import refuse_moved, sync_to_disk, write_bytes


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
    data = _read(Path(path))
    if b"\n" not in data:
        _text(data, path)  # no table, but perhaps no text either
    return _table(data[: data.rfind(b"\n") + 1], path, columns)


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise FileFormatError(f"cannot read {path}: {'no plain file' if path.exists() else 'it is not there'}")
        return path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error


def _text(data: bytes, path: str | Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is no text file") from error


def _table(data: bytes, path: str | Path, columns: Sequence[str]) -> pd.DataFrame:
    text = _text(data, path)
    lines = list(csv.reader(io.StringIO(text)))
    if not lines or lines[0] != list(columns):
        raise FileFormatError(f"{path} must begin with the columns {','.join(columns)}")
    if any(len(line) != len(columns) for line in lines):
        raise FileFormatError(f"{path} has a line without {len(columns)} fields")
    fields = list(zip(*lines[1:])) or [()] * len(columns)
    return pd.DataFrame({name: _parse(values) for name, values in zip(columns, fields)}, columns=list(columns))


def check_single(table: pd.DataFrame, key: Sequence[str], path: str | Path) -> None:
    """Refuse a table that counts something twice.

    Args:
        table: the table.
        key: columns that no two rows share.
        path: for the message.

    Raises:
        FileFormatError: two rows with the same key.

    Example:
        >>> check_single(pd.DataFrame({"step": [0, 1], "value": [2.0, 2.0]}), ["step"], "x.csv")
    """
    twice = int(table.duplicated(list(key)).sum())
    if twice:
        raise FileFormatError(f"{path} counts {twice} rows twice, those of equal {', '.join(key)}: it had two writers")


def check_even(table: pd.DataFrame, path: str | Path) -> None:
    """Refuse a table of eigenvalues in which a matrix has more of them at some steps than at others.

    Rows of equal eigenvalues are nothing wrong, so that none of them alone tells that it had two writers.

    Args:
        table: with the columns ``step`` and ``matrix``; the last step may be cut off.
        path: for the message.

    Raises:
        FileFormatError: naming how many there are too much.

    Example:
        >>> check_even(pd.DataFrame({"step": [0, 0, 1, 1], "matrix": ["W"] * 4}), "x.csv")
    """
    counts: dict[Any, int] = table.groupby(["matrix", "step"], sort=True).size().to_dict()
    last, least = table["step"].max(), {}
    for (matrix, step), count in counts.items():
        if step < last:
            least[matrix] = min(count, least.get(matrix, count))
    twice = sum(max(0, count - least.get(matrix, count)) for (matrix, _), count in counts.items())
    if twice:
        raise FileFormatError(f"{path} counts {twice} rows twice, of equal step, matrix: it had two writers")


@dataclass(frozen=True)
class Mark:
    """How far a growing table is, to the byte.

    Attributes:
        size: bytes of the file.
        digest: SHA-256 of them.
    """

    size: int
    digest: str


def read_prefix(path: Path, mark: Mark) -> bytes:
    """What a growing table held when this was its mark; what came after is left out.

    Raises:
        FileFormatError: it does not begin with that.
    """
    data = _read(path)[: mark.size]
    if Mark(len(data), hashlib.sha256(data).hexdigest()) != mark:
        raise FileFormatError(
            f"{path} was changed: it does not begin with the {mark.size} bytes that training had written"
        )
    return data


@contextmanager
def _opened(path: Path, mode: int) -> Iterator[int]:
    """A descriptor of a file that is there, never of what a link of its name leads to.

    Yields:
        The descriptor.

    Raises:
        FileFormatError: when the file cannot be written to.
    """
    refuse_moved(path)
    try:
        handle = os.open(path, mode | getattr(os, "O_NOFOLLOW", 0))
        try:
            yield handle
        finally:
            os.close(handle)
    except OSError as error:
        raise FileFormatError(f"cannot write {path}: {error.strerror or error}") from error


class CsvLog:
    """A growing table in memory and, once opened, in a file too.

    Args:
        columns: names; the first is the step.
        key: columns that no two rows share, where there are such.

    Attributes:
        last: the step of the last record, or ``None``.
        mark: how far the file is, ``None`` for one in memory.
    """

    def __init__(self, columns: Sequence[str], key: Sequence[str] = ()) -> None:
        self.columns, self.key = tuple(columns), tuple(key)
        self.rows: list[tuple[Any, ...]] = []
        self._path: Path | None = None
        self._size, self._hash, self._unsynced = 0, hashlib.sha256(), False

    @property
    def last(self) -> int | None:
        """The step of the last record."""
        return self.rows[-1][0] if self.rows else None

    @property
    def mark(self) -> Mark | None:
        """Size and digest of the file as it was written here."""
        return None if self._path is None else Mark(self._size, self._hash.hexdigest())

    def append(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add records, and append them to the file in one write.

        Raises:
            FileFormatError: when the file cannot be written to.
        """
        self.rows.extend(rows)
        if self._path is None or not rows:
            return
        data = csv_text(self.columns, rows, header=False).encode()
        with _opened(self._path, os.O_WRONLY | os.O_APPEND) as handle:
            rest = memoryview(data)
            while len(rest):
                rest = rest[os.write(handle, rest) :]
        self._count(data)
        self._unsynced = True

    def sync(self) -> None:
        """Wait until every record is on the disk: what relies on the file's mark may be written then.

        Raises:
            FileFormatError: when the file cannot be written to.
        """
        if self._path is None or not self._unsynced:
            return
        with _opened(self._path, os.O_WRONLY) as handle:
            sync_to_disk(handle)
        self._unsynced = False

    def open(self, path: Path, keep_until: int | None = None, mark: Mark | None = None) -> None:
        """From now on keep the records in a file as well; what is there already is replaced.

        Args:
            path: the file.
            keep_until: take over the file's records up to this step first (and drop those in memory).
            mark: take over exactly what the file held when this was its mark, instead.

        Raises:
            FileFormatError: the file is not as it was then, counts something twice, or cannot be written to.
        """
        if mark is not None:
            self._take(_table(read_prefix(path, mark), path, self.columns))
        elif keep_until is not None and path.exists():
            table = read_csv(path, self.columns)
            table = table.loc[table[self.columns[0]] <= keep_until]
            if self.key:
                check_single(table, self.key, path)
            elif {"step", "matrix"} <= set(self.columns):
                check_even(table, path)
            self._take(table)
        self._path = path
        self._write()

    def rewind(self, step: int) -> None:
        """Drop the records after a step."""
        kept = [row for row in self.rows if row[0] <= step]
        if len(kept) < len(self.rows):
            self.rows = kept
            if self._path is not None:
                self._write()

    def _take(self, table: pd.DataFrame) -> None:
        self.rows = [tuple(row) for row in table.itertuples(index=False, name=None)]

    def _write(self) -> None:
        assert self._path is not None
        data = csv_text(self.columns, self.rows).encode()
        write_bytes(self._path, data)
        self._size, self._hash, self._unsynced = 0, hashlib.sha256(), False
        self._count(data)

    def _count(self, data: bytes) -> None:
        self._size += len(data)
        self._hash.update(data)

    def frame(self) -> pd.DataFrame:
        """The records as a table."""
        return pd.DataFrame(self.rows, columns=list(self.columns))
