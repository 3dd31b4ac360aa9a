"""Draw the figures of studies from their descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..formatting import number
from ..names import printable, shorten
from .crowd import span
from .small import Plot, Rows, color_of

if TYPE_CHECKING:
    from ...analysis.studies.result import Figure as Description
    from ...analysis.studies.result import StudyResult

Table = Any
"""A table; pandas' types do not say what selecting in one gives."""
WIDTH, HEIGHT, ROW = 420.0, 250.0, 22.0


def described(figure: Description, result: StudyResult) -> str | None:
    """Draw a figure as its description says.

    Args:
        figure: the description.
        result: the study with the table and the curves.

    Returns:
        One ``<svg>``; ``None`` where there is nothing that such axes can show.
    """
    rows: Table = figure.rows(result)
    for axis in figure.log if len(rows) else "":
        if figure.kind != "points" or axis == "y":
            rows = rows[rows[getattr(figure, axis)] > 0]
    if rows.empty:
        return None
    plot = (_points if figure.kind == "points" else _lines)(figure, rows)
    return plot.svg(f"{figure.title}: {figure.ylabel or figure.y} over {figure.xlabel or figure.x}")


def _groups(figure: Description, rows: Table) -> list[tuple[str, Table]]:
    """The series in order of appearance; one without a name where they are not told apart."""
    column = figure.series
    if not column:
        return [("", rows)]
    known = rows[rows[column].notna()]
    return [(_name(value), known[known[column] == value]) for value in known[column].unique()]


def _name(value: Any) -> str:
    return number(value) if isinstance(value, (int, float, np.number)) else str(value)


def _spread(rows: Table, by: str, value: str) -> Table:
    """Mean, least and largest of the repeats."""
    return rows.groupby(by, sort=False)[value].agg(["mean", "min", "max"])


def _lines(figure: Description, rows: Table) -> Plot:
    """Means over the repeats, with a band from the least to the largest."""
    x, y, marks = figure.x, figure.y, [value for value, _ in figure.marks]
    horizontal = span([rows[x]], log="x" in figure.log, title=printable(figure.xlabel or x))()
    title = printable(figure.ylabel or y)
    vertical = span([rows[y], marks], log="y" in figure.log, percent=figure.percent, title=title)()
    plot = Plot(figure.title, horizontal, vertical, WIDTH, HEIGHT)
    for k, (name, own) in enumerate(_groups(figure, rows)):
        known = _spread(own.sort_values(x), x, y)
        at = known.index.to_numpy(dtype=float)
        if len(own) > len(known):
            plot.band(at, known["min"], known["max"], color_of(k))
        plot.line(at, known["mean"], color_of(k))
        if figure.series:
            plot.beneath(name, color_of(k))
    for value, words in figure.marks:
        plot.level(value, dash="2 2")
        plot.say(horizontal.high, value, words, anchor="end", shift=(0.0, -3.0))
    return plot


def _points(figure: Description, rows: Table) -> Plot:
    """A row for each name: a point for each repeat, a line over their range, a large point at their mean."""
    x, y, groups = figure.x, figure.y, _groups(figure, rows)
    names = list(dict.fromkeys(rows[x]))
    place = {name: len(names) - 0.5 - k for k, name in enumerate(names)}
    titles = {at: shorten(printable(_name(name)), 30) for name, at in place.items()}
    title = printable(figure.ylabel or y)
    values = span([rows[y]], log="y" in figure.log, percent=figure.percent, title=title)()
    plot = Plot(figure.title, values, Rows(0.0, float(len(names)), names=titles), WIDTH, 58.0 + ROW * len(names))
    for k, (series, own) in enumerate(groups):
        shift = 0.0 if len(groups) == 1 else 0.5 * (0.5 - k / (len(groups) - 1))
        for name, spread in _spread(own, x, y).iterrows():
            at = place[name] + shift
            plot.line([spread["min"], spread["max"]], [at, at], color_of(k), width=1.4)
            plot.dots([spread["mean"]], [at], color_of(k), size=6.0)
        plot.dots(own[y], [place[name] + shift for name in own[x]], color_of(k), size=3.0, opacity=0.6)
        if figure.series:
            plot.beneath(series, color_of(k))
    return plot
