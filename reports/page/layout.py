"""What a page is made of: sections with tables and panels; the template lays them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from stability.storage.artifacts import artifact

from ..formatting import count, duration
from ..stored.records import ModelRecord
from .marks import MARK_OF, MEASURED, PROVED

LINE = 104
"""Letters of a table on a line of paper, A4 upright, in the size of print."""
SHORT, PROSE = 18, 30
"""Letters up to which a cell stays on one line there, and those that words in a cell get."""


@dataclass(frozen=True)
class Cell:
    """A table cell.

    Attributes:
        text: of the cell.
        tone: ``good``, ``bad``, ``quiet`` or none; its text says it, too.
        href: where it leads.
        mark: of its number, see ``marks.MARKS``; ``None`` for that of its column.
    """

    text: str
    tone: str = ""
    href: str = ""
    mark: str | None = None


@dataclass(frozen=True)
class Table:
    """Rows of cells.

    Attributes:
        caption: what it shows.
        header: titles of the columns.
        rows: their cells, the first of each is its heading.
        numeric: columns that are aligned to the right.
        dash: what a cell with a dash alone means.
        marks: of the columns' numbers; empty for what is given, names and settings.
        protocol: how its numbers were measured.
        made: steps of the analysis that its numbers are from.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: tuple[int, ...] = ()
    dash: str = ""
    marks: tuple[str, ...] = ()
    protocol: str = ""
    made: tuple[str, ...] = ()

    def over(self, column: int) -> str:
        """The mark of a column's numbers."""
        return self.marks[column] if column < len(self.marks) else ""

    def mark(self, row: int, column: int) -> str:
        """The mark of a cell's number."""
        own = self.rows[row][column].mark
        return own if own is not None else self.over(column)

    @property
    def proved(self) -> bool:
        """Whether there is anything proved in it."""
        return any(self.mark(i, k) == PROVED for i, row in enumerate(self.rows) for k in range(len(row)))

    @property
    def marked(self) -> bool:
        """Whether any of its numbers has a mark."""
        return any(self.mark(i, k) for i, row in enumerate(self.rows) for k in range(len(row)))

    @property
    def on_paper(self) -> tuple[Table, ...]:
        """The table in parts that fit a line of paper, each with the first column; empty where it does as it is.

        Example:
            >>> header = ("model", *(f"column {k}" for k in range(20)))
            >>> wide = Table("Wide", header, ((Cell("a"),) * 21,), numeric=(3, 20))
            >>> [(part.header[0], len(part.header), part.numeric) for part in wide.on_paper]
            [('model', 14, (3,)), ('model', 8, (7,))]
            >>> wide.on_paper[1].caption
            'Wide, part 2 of 2'
        """
        widths = [self._letters(k) for k in range(len(self.header))]
        parts: list[list[int]] = [[]]
        for k in range(1, len(widths)):
            if parts[-1] and widths[0] + sum(widths[i] for i in parts[-1]) + widths[k] > LINE:
                parts.append([])
            parts[-1].append(k)
        return tuple(self._part(i + 1, len(parts), [0, *found]) for i, found in enumerate(parts)) if parts[1:] else ()

    def _letters(self, column: int) -> float:
        """How many letters a column is wide: words stay whole, and of a short cell all of it."""
        words = max(map(len, self.header[column].split(" ")))
        cells = [len(row[column].text) for row in self.rows]
        widest = max((n if n <= SHORT else PROSE if n > 2 * PROSE else SHORT for n in cells), default=0)
        return max(words, widest, 0.9 * len(self.over(column))) + 1.5

    def _part(self, place: int, count: int, columns: list[int]) -> Table:
        rows = tuple(tuple(row[k] for k in columns) for row in self.rows)
        numeric = tuple(i for i, k in enumerate(columns) if k in self.numeric)
        header, marks = tuple(self.header[k] for k in columns), tuple(self.over(k) for k in columns)
        caption = f"{self.explained}, part {place} of {count}"
        return replace(self, caption=caption, dash="", header=header, rows=rows, numeric=numeric, marks=marks)

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
    """A column of a table: its title, what it says of one record, whether that is a number, and that number's mark."""

    title: str
    show: Callable[[Any], str | Cell]
    numeric: bool = True
    mark: str = ""


def text(title: str, show: Callable[[Any], Any], mark: str = "") -> Column:
    """A column of words."""
    return Column(title, show, numeric=False, mark=mark)


def named(model: ModelRecord) -> Cell:
    """A model's name, which leads to all that is known of it."""
    return Cell(model.title, href=f"#model-{model.place}")


NAMED = text("model", named)
"""The first column of most tables: the model's name."""


def field(title: str, document: str, path: str, show: Callable[[Any], str], mark: str | None = None) -> Column:
    """A column of numbers that stand in a document of every model.

    Args:
        title: of the column.
        document: the document's stem; it and the field must be described in ``stability.storage.artifacts``.
        path: the field, with a dot before a field inside it.
        show: the number as a reader wants it.
        mark: of the numbers; by default that of the document's results, and none for counts and times.

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

    given = show in (count, duration)
    return Column(title, read, mark=mark if mark is not None else "" if given else MARK_OF.get(document, ""))


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


def tabulate(
    caption: str,
    columns: Sequence[Column],
    records: Iterable[Any],
    dash: str = "",
    *,
    protocol: str = "",
    made: tuple[str, ...] = (),
) -> tuple[Table, ...]:
    """A table with a row a record; none where there is no record.

    Args:
        caption: of the table.
        columns: its columns.
        records: what the columns speak of: models, mostly.
        dash: what a cell with a dash alone means.
        protocol: how its numbers were measured.
        made: steps that they are from.
    """
    cells = [[c.show(record) for c in columns] for record in records]
    rows = tuple(tuple(cell if isinstance(cell, Cell) else Cell(str(cell)) for cell in row) for row in cells)
    numeric = tuple(k for k, c in enumerate(columns) if c.numeric)
    titles, marks = tuple(c.title for c in columns), tuple(c.mark for c in columns)
    return (Table(caption, titles, rows, numeric, dash, marks, protocol, made),) if rows else ()


@dataclass(frozen=True)
class Panel:
    """One drawing, what to see in it, and where its numbers are from: marks, protocol and steps as of a table."""

    svg: Markup
    caption: str = ""
    marks: tuple[str, ...] = ()
    protocol: str = ""
    made: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        anchor: its identifier.
        title: its heading.
        text: a few sentences.
        tables: of it.
        panels: of it.
        notes: sentences below.
        small: its panels stand close.
        wide: its panels take all the width.
        protocol: of all panels together.
        made: steps that all panels are from.
    """

    anchor: str
    title: str
    text: str
    tables: tuple[Table, ...] = ()
    panels: tuple[Panel, ...] = ()
    notes: tuple[str, ...] = ()
    small: bool = True
    wide: bool = False
    protocol: str = ""
    made: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether there is anything proved in it, so that it stays in the view of what is."""
        return any(t.proved for t in self.tables) or any(PROVED in p.marks for p in self.panels)

    @property
    def marked(self) -> bool:
        """Whether any of its numbers has a mark."""
        return any(t.marked for t in self.tables) or any(p.marks for p in self.panels)

    @property
    def kept(self) -> Section | None:
        """The section; ``None`` where it has neither tables nor drawings nor notes."""
        return self if self.shows or self.notes else None

    @property
    def shows(self) -> bool:
        """Whether there is a table or a drawing in it."""
        return bool(self.tables or self.panels)


def crowded(drawn: Sequence[tuple[ModelRecord, str]], marks: tuple[str, ...] = (MEASURED,)) -> tuple[Panel, ...]:
    """Small drawings of many models; the section says below them what all of them are from.

    Args:
        drawn: of each model.
        marks: of what they show.
    """
    return tuple(Panel(Markup(svg), "", marks) for _, svg in drawn)


def draw(
    *drawn: tuple[str | None, str], marks: tuple[str, ...] = (), protocol: str = "", made: tuple[str, ...] = ()
) -> tuple[Panel, ...]:
    """Panels of what could be drawn, each with its caption, all with the same marks, protocol and steps."""
    return tuple(Panel(Markup(svg), caption, marks, protocol, made) for svg, caption in drawn if svg is not None)
