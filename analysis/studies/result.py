"""What a study came to: its table, what it says, the paper's numbers beside ours, and its figures as descriptions.

Nothing here draws. A figure names columns of ``table.csv`` or ``curves.csv``; ``stability.reports`` has one drawing for
each kind, so that a page can be drawn again from the files alone and no study has drawing code of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from stability.errors import ConfigurationError

from ..results import Record

KINDS = ("lines", "points", "field", "heat")
SOURCES = ("curves", "table")
LOGARITHMIC = ("", "x", "y", "xy")


@dataclass(frozen=True)
class Figure:
    """A figure as a description: which columns of which table, and how.

    Attributes:
        kind: ``lines`` (over ``x``, one a ``series``; rows of equal series and ``x`` are repeats: their mean, with a
            band from the least to the largest), ``points`` (a row for each name in ``x``, a point a row of the table,
            repeats with their mean and their range), ``field`` (arrows ``vectors`` at ``(x, y)``; rows without arrows
            are paths, one a ``series``), or ``heat`` (``value`` over ``x`` and ``y``).
        title: of the figure.
        x: column of the horizontal axis, or of the names.
        y: column of the vertical axis, or of the values.
        series: column whose values are told apart; empty for one series.
        source: ``curves`` or ``table``.
        where: columns and the values that select the rows.
        xlabel: of the axis; the column's name where it is empty.
        ylabel: likewise.
        log: which axes are logarithmic: ``x``, ``y``, ``xy`` or none.
        percent: whether values are shares, shown in per cent.
        marks: horizontal lines, each a value and its name.
        vectors: columns of the arrows.
        value: column of the colours of ``heat``.
        caption: what to see in it.
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
    vectors: tuple[str, ...] = ()
    value: str = ""
    caption: str = ""

    def __post_init__(self) -> None:
        for name, known in (("kind", KINDS), ("source", SOURCES), ("log", LOGARITHMIC)):
            if getattr(self, name) not in known:
                raise ConfigurationError(f"{name} of a figure must be one of {known}, got {getattr(self, name)!r}")
        if (self.kind == "field" and len(self.vectors) != 2) or (self.kind == "heat" and not self.value):
            raise ConfigurationError(f"a figure {self.kind!r} names the columns of its arrows or of its colours")

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that it asks for."""
        named = (self.x, self.y, self.series, self.value, *self.vectors, *self.where)
        return tuple(dict.fromkeys(name for name in named if name))


@dataclass(frozen=True)
class Compared:
    """A number of ours beside the paper's.

    Attributes:
        what: the quantity, with its model and data.
        ours: a number or a few words.
        paper: what the paper says, a number or a few words; ``None`` where it gives none.
        where: table, figure or section of the paper.
    """

    what: str
    ours: Any
    paper: Any
    where: str


@dataclass(frozen=True)
class StudyResult(Record):
    """What a study came to.

    Attributes:
        study: its name.
        title: what it reruns.
        quick: whether it is the small version.
        settings: everything that decided the numbers.
        rows: the table, one mapping a row.
        notes: what the table says, one sentence each.
        environment: versions, machine, seed, times.
        seconds: of the whole study, over all sessions that its parts were made in.
        earlier_seconds: what of it is of earlier sessions; ``None`` where a part of an earlier release does not say
            what it took, so that ``seconds`` is the last session's alone.
        conclusion: what came out, in one sentence; also where a claim of the paper was not found again.
        paper: whose table or figure it is.
        compared: our numbers beside the paper's.
        differences: what was done otherwise than in the paper, and why, one sentence each.
        figures: what the page draws.
        seeds: of the trainings.
    """

    study: str
    title: str
    quick: bool
    settings: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict, repr=False)
    seconds: float = 0.0
    conclusion: str = ""
    paper: str = ""
    compared: tuple[Compared, ...] = ()
    differences: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    seeds: tuple[int, ...] = ()
    earlier_seconds: float | None = 0.0

    def frame(self) -> pd.DataFrame:
        """The table."""
        return pd.DataFrame([dict(row) for row in self.rows])

    def text(self) -> str:
        """The table and the notes, for a terminal."""
        shown = self.frame().map(_cell)
        lines = [self.title + (" (quick version)" if self.quick else ""), "", shown.to_string(index=False)]
        return "\n".join([*lines, "", *([self.conclusion] if self.conclusion else []), *self.notes]).rstrip()


def _cell(value: Any) -> str:
    if value is None or value != value:  # NaN: pandas' way to write None among numbers
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
