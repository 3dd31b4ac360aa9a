"""Parts of the page below the models: tables, commands and folded blocks, as the templates lay them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..figures.figure import Figure
from ..formatting import MISSING, count
from ..stored.collect import Report
from ..stored.records import FRAMES, ModelRecord

SHADES = "abcdef"


@dataclass(frozen=True)
class Cell:
    """A table cell.

    Attributes:
        text: content of the cell.
        tone: style of the cell: ``good``, ``bad``, ``quiet``, or ``heat-a`` to ``heat-f``.
        href: address that the text links to.
        hint: shown while the pointer is over the cell.
    """

    text: str
    tone: str = ""
    href: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header.

    Attributes:
        caption: the quantity that is shown.
        header: titles of the columns.
        rows: cells; the first of each row is its heading.
        numeric: columns that are aligned to the right.
        note: sentences below the table.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Command:
    """A command to copy."""

    command: str


Part = Table | Figure | Command | str


@dataclass(frozen=True)
class Fold:
    """A folded block of the page.

    Attributes:
        anchor: identifier in the page.
        title: always visible.
        summary: a few words beside the title.
        parts: tables, figures, commands and paragraphs.
        files: text and address of each file that holds these numbers.
    """

    anchor: str
    title: str
    summary: str
    parts: tuple[Part, ...]
    files: tuple[tuple[str, str], ...] = ()


Columns = dict[str, Callable[[Any], Cell | str]]
"""Cell of a record in each column of a table, by the column's title."""


def folded(report: Report, anchor: str, title: str, summary: str, parts: Iterable[Part], *tables: str) -> list[Fold]:
    """Make a fold with links to its long tables; return nothing where it has no parts.

    Args:
        report: the report.
        anchor: identifier in the page.
        title: always visible.
        summary: a few words beside the title.
        parts: tables, figures, commands and paragraphs.
        *tables: stems of files in ``tables/``.
    """
    stored = [t for t in tables if t not in FRAMES or any(t in m.frames for m in report.models)]
    items = tuple(parts)
    links = tuple((f"{t}.csv", f"tables/{t}.csv") for t in stored)
    return [Fold(anchor, title, summary, items, links)] if items else []


def name_cell(model: ModelRecord) -> Cell:
    """Return the model's name as a link to its card."""
    return Cell(model.title, href=f"#model-{model.place}")


def tabulate(
    caption: str,
    columns: Columns,
    records: Iterable[Any],
    *,
    words: Sequence[str] = (),
    note: str = "",
) -> tuple[Table, ...]:
    """Make a table with one row a record.

    Args:
        caption: caption of the table.
        columns: function from a record to its cell, by the title of the column.
        records: models, mostly.
        words: titles of columns that hold words; every other column but the first is aligned to the right.
        note: sentences below the table.

    Returns:
        The table without columns that are empty in every row; nothing where there is no record.
    """
    cells = [[_cell(show(record)) for show in columns.values()] for record in records]
    titles = list(columns)
    filled = [k for k in range(len(titles)) if k == 0 or any(row[k].text not in ("", MISSING) for row in cells)]
    numeric = tuple(place for place, k in enumerate(filled) if k and titles[k] not in words)
    rows = tuple(tuple(row[k] for k in filled) for row in cells)
    return (Table(caption, tuple(titles[k] for k in filled), rows, numeric, note),) if rows else ()


def _cell(content: Cell | str) -> Cell:
    return content if isinstance(content, Cell) else Cell(content, "quiet" if content == MISSING else "")


def value(document: str, path: str, show: Callable[[Any], str]) -> Callable[[ModelRecord], str]:
    """Return what formats one number of a model's document.

    Args:
        document: stem of the document.
        path: the field, with a dot before a field inside it.
        show: formats the number; gets ``None`` where there is none.
    """

    def read(model: ModelRecord) -> str:
        entry: Any = model.documents.get(document)
        for part in path.split("."):
            entry = entry.get(part) if isinstance(entry, Mapping) else None
        return show(entry)

    return read


def plural(number: int, noun: str) -> str:
    """Return the number with its noun.

    >>> plural(1, "network"), plural(2, "network")
    ('1 network', '2 networks')
    """
    return f"{count(number)} {noun}{'s' * (number != 1)}"


def shade(share: float) -> str:
    """Return the class of a cell that is the darker the larger the share.

    Example:
        >>> shade(0.0), shade(1.0)
        ('heat-a', 'heat-f')
    """
    return f"heat-{SHADES[min(len(SHADES) - 1, max(0, int(share * len(SHADES))))]}"
