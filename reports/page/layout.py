"""What a page is made of: sections with tables and panels; the template lays them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from stability.storage.artifacts import artifact

from ..stored.collect import ModelRecord


@dataclass(frozen=True)
class Cell:
    """A table cell: text, a tone (``good``, ``bad``, ``quiet`` or none) that its text also says, and where it leads."""

    text: str
    tone: str = ""
    href: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; ``numeric`` columns are aligned to the right; ``dash``: what a cell with a dash alone means."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: tuple[int, ...] = ()
    dash: str = ""

    @property
    def explained(self) -> str:
        """The caption, with what a dash means where there is one.

        Example:
            >>> Table("Seconds", ("model", "noise"), ((Cell("a"), Cell("–")),), dash="was not run").explained
            'Seconds (– was not run)'
        """
        dashed = any(cell.text == "–" for row in self.rows for cell in row)
        return f"{self.caption} (– {self.dash})" if dashed and self.dash else self.caption


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, what it says of one record, and whether that is a number."""

    title: str
    show: Callable[[Any], str | Cell]
    numeric: bool = True


def text(title: str, show: Callable[[Any], Any]) -> Column:
    """A column of words."""
    return Column(title, show, numeric=False)


NAMED = text("model", lambda model: model.title)
"""The first column of most tables: the model's name."""


def field(title: str, document: str, path: str, show: Callable[[Any], str]) -> Column:
    """A column of numbers that stand in a document of every model.

    Args:
        title: of the column.
        document: the document's stem; it and the field must be described in ``stability.storage.artifacts``.
        path: the field, with a dot before a field inside it.
        show: the number as a reader wants it.

    Returns:
        The column; it shows what ``show`` makes of ``None`` where a model has no such number.

    Raises:
        KeyError: no such field is described.

    Example:
        >>> field("doublings", "drift", "drift_idnex", str)
        Traceback (most recent call last):
        ...
        KeyError: 'drift_idnex'
    """
    shape: Any = artifact(f"{document}.json").fields
    for part in path.split("."):
        shape = shape[part]

    def read(model: Any) -> str:
        value = model.documents.get(document)
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        spread = model.trainings.number(f"{document}.{path}") if value is not None else None
        return show(value) if spread is None else averaged(spread, show)

    return Column(title, read)


def averaged(spread: Mapping[str, float], show: Callable[[Any], str]) -> str:
    """The mean over several trainings, and half its interval where they are not all the same.

    Args:
        spread: ``mean``, ``low``, ``high``, ``least`` and ``largest``.
        show: a number as a reader wants it.

    Example:
        >>> averaged({"mean": 2.0, "low": 1.5, "high": 2.5, "least": 1.8, "largest": 2.2}, str)
        '2.0 ± 0.5'
    """
    mean = show(spread["mean"])
    if spread["least"] == spread["largest"]:
        return mean
    half = max(spread["high"] - spread["mean"], spread["mean"] - spread["low"])
    return f"{mean} ± {show(half).removeprefix('+')}"


def tabulate(caption: str, columns: Sequence[Column], records: Iterable[Any], dash: str = "") -> tuple[Table, ...]:
    """A table with a row a record; none where there is no record.

    Args:
        caption: of the table.
        columns: its columns.
        records: what the columns speak of: models, mostly.
        dash: what a cell with a dash alone means.
    """
    cells = [[c.show(record) for c in columns] for record in records]
    rows = tuple(tuple(cell if isinstance(cell, Cell) else Cell(str(cell)) for cell in row) for row in cells)
    numeric = tuple(k for k, c in enumerate(columns) if c.numeric)
    return (Table(caption, tuple(c.title for c in columns), rows, numeric, dash),) if rows else ()


@dataclass(frozen=True)
class Panel:
    """One drawing and what to see in it."""

    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    anchor: str
    title: str
    text: str
    tables: tuple[Table, ...] = ()
    panels: tuple[Panel, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> Section | None:
        """The section; where it would show nothing, the reasons for that, and ``None`` where there are none."""
        if self.tables or self.panels:
            return self
        return replace(self, text="There is nothing to show here, for these reasons.") if self.notes else None


def each(
    models: Iterable[tuple[ModelRecord, int]], drawing: Callable[[ModelRecord, int], str | None], caption: str
) -> Iterator[tuple[str | None, str]]:
    """One drawing a model; the first that could be drawn has the caption, which speaks for all."""
    said = False
    for model, index in models:
        svg = drawing(model, index)
        yield svg, "" if said else caption
        said = said or svg is not None


def draw(*drawn: tuple[str | None, str]) -> tuple[Panel, ...]:
    """Panels of what could be drawn, each with its caption."""
    return tuple(Panel(Markup(svg), caption) for svg, caption in drawn if svg is not None)
