"""Draw the figures of studies from their descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..formatting import number
from ..names import printable
from .drift import look
from .svg import MUTED, label, panel, series_color, to_svg

if TYPE_CHECKING:
    from ...analysis.studies.result import Figure as Description
    from ...analysis.studies.result import StudyResult

Rows = Any
"""A table; what selecting in one gives, pandas' types do not say."""
MARKED = 12
"""Markers on a line at most."""


def described(figure: Description, result: StudyResult, name: str) -> str | None:
    """Draw a figure as its description says.

    Args:
        figure: the description.
        result: the study with the table and the curves.
        name: identifier in the page.

    Returns:
        One ``<svg>``; ``None`` where there is nothing that such axes can show.
    """
    rows: Rows = figure.rows(result)
    for axis in figure.log if len(rows) else "":
        if figure.kind != "points" or axis == "y":
            rows = rows[rows[getattr(figure, axis)] > 0]
    if rows.empty:
        return None
    height = 0.9 + 0.3 * rows[figure.x].nunique() if figure.kind == "points" else 3.1
    with panel(printable(figure.title), height=height) as (canvas, axes):
        (_points if figure.kind == "points" else _lines)(canvas, axes, figure, rows)
        text = f"{figure.title}: {figure.ylabel or figure.y} over {figure.xlabel or figure.x}"
        return to_svg(canvas, name, text, _names(figure, rows))


def _names(figure: Description, rows: Rows) -> list[str]:
    """Names that stand in the figure."""
    columns = [c for c in (figure.series, figure.x if figure.kind == "points" else None) if c]
    return [str(value) for c in columns for value in rows[c].unique()]


def _groups(figure: Description, rows: Rows) -> list[tuple[str, Rows]]:
    """The series in order of appearance; one without a name where they are not told apart."""
    column = figure.series
    if not column:
        return [("", rows)]
    known = rows[rows[column].notna()]
    return [(_name(value), known[known[column] == value]) for value in known[column].unique()]


def _name(value: Any) -> str:
    return number(value) if isinstance(value, (int, float, np.number)) else str(value)


def _shown(figure: Description) -> FuncFormatter:
    """Numbers of the values' axis."""
    percent = figure.percent
    return FuncFormatter(lambda v, _: f"{number(100 * v)} %" if percent else number(v))


def _spread(rows: Rows, by: str, value: str) -> Rows:
    """Mean, least and largest of the repeats."""
    return rows.groupby(by, sort=False)[value].agg(["mean", "min", "max"])


def _scales(axes: Axes, figure: Description) -> None:
    log = figure.log
    for which in log:
        axis = axes.xaxis if which == "x" else axes.yaxis
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        axis.set_major_locator(LogLocator(numticks=6))
        axis.set_minor_locator(NullLocator())


def _labels(axes: Axes, figure: Description) -> None:
    axes.set_xlabel(printable(figure.xlabel or figure.x))
    axes.set_ylabel(printable(figure.ylabel or figure.y))


def _lines(canvas: Figure, axes: Axes, figure: Description, rows: Rows) -> None:
    x, y = figure.x, figure.y
    for i, (name, own) in enumerate(_groups(figure, rows)):
        known = _spread(own.sort_values(x), x, y)
        at = known.index.to_numpy(dtype=float)
        if len(own) > len(known):
            axes.fill_between(at, known["min"], known["max"], color=series_color(i), alpha=0.15, linewidth=0)
        every = max(1, round(len(known) / MARKED))
        axes.plot(at, known["mean"], label=label(name), markevery=(i % every, every), **look(i))
    _scales(axes, figure)
    _marks(axes, figure)
    _labels(axes, figure)
    if "x" not in figure.log:
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    axes.yaxis.set_major_formatter(_shown(figure))
    if figure.series:
        canvas.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def _marks(axes: Axes, figure: Description) -> None:
    """Horizontal lines with their names."""
    for value, words in figure.marks:
        axes.axhline(value, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
        where: Any = ("axes fraction", "data")
        axes.annotate(label(str(words), 40), (1, value), xycoords=where, ha="right", va="bottom", color=MUTED)


def _points(canvas: Figure, axes: Axes, figure: Description, rows: Rows) -> None:
    """Names downwards, values to the right: a point a row, a bar over the range of repeats with their mean."""
    x, y = figure.x, figure.y
    names = list(dict.fromkeys(rows[x]))
    place = {name: k for k, name in enumerate(names)}
    groups = _groups(figure, rows)
    for i, (series, own) in enumerate(groups):
        shift = 0.0 if len(groups) == 1 else 0.5 * (i / (len(groups) - 1) - 0.5)
        known = _spread(own, x, y)
        at = [place[name] + shift for name in known.index]
        axes.hlines(at, known["min"], known["max"], color=series_color(i), linewidth=1.4)
        style: dict[str, Any] = {**look(i), "linestyle": "none"}
        axes.plot(known["mean"], at, label=label(series), **style)
        dots = [place[name] + shift for name in own[x]]
        axes.plot(own[y], dots, linestyle="none", marker="|", markersize=5, color=series_color(i), alpha=0.8)
    axes.set_yticks(range(len(names)), [label(_name(name), 30) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    if "y" in figure.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=5))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(_shown(figure))
    axes.set_xlabel(printable(figure.ylabel or y))
    if figure.series:
        canvas.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
