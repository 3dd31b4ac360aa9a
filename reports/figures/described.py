"""Figures of studies, drawn from their descriptions; consecutive descriptions of one quantity share a figure."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..formatting import number
from ..names import printable, shorten
from . import layout
from .figure import MUTED, SERIES, WIDTH, Figure, blank
from .layout import Axes, Drawing, Label

if TYPE_CHECKING:
    from ...analysis.studies.result import Figure as Description
    from ...analysis.studies.result import StudyResult

Group = list[tuple[Any, pd.DataFrame]]
"""Descriptions of one figure, each with the rows of its panel."""
PANELS = 3  # most panels side by side
SHARED = ("kind", "x", "y", "series", "source", "ylabel", "log", "percent")
"""Fields in which the descriptions of one figure must agree."""


def described(result: StudyResult) -> tuple[Figure, ...]:
    """Return the figures of a study that have data.

    Args:
        result: the study with its table and its curves.
    """
    drawable = [(f, rows) for f in result.figures if len(rows := _rows(f, result))]
    groups = groupby(drawable, key=lambda pair: ([getattr(pair[0], k) for k in SHARED], _series(*pair)))
    return tuple(_figure(f"{result.study}-{k}", list(group)) for k, (_, group) in enumerate(groups, start=1))


def _rows(figure: Description, result: StudyResult) -> pd.DataFrame:
    """Return the rows that a figure shows, without values that a logarithmic axis cannot show."""
    rows: Any = figure.rows(result)
    for axis in figure.log if len(rows) else "":
        rows = rows[rows[getattr(figure, axis)] > 0] if figure.kind == "lines" or axis == "y" else rows
    return rows


def _figure(name: str, group: Group) -> Figure:
    titles = [f.title for f, _ in group]
    title = f"{_label(group[0][0])}: {'; '.join(titles)}" if titles[1:] else titles[0]
    reading = " ".join(dict.fromkeys(f.caption for f, _ in group if f.caption))
    table = pd.concat([rows.assign(figure=f.title) for f, rows in group], ignore_index=True)
    return Figure(name, printable(title[:1].upper() + title[1:]), printable(reading), "", table, partial(_draw, group))


def _draw(group: Group) -> Drawing:
    first, size, columns = group[0][0], len(group), min(len(group), PANELS)
    names = list(dict.fromkeys(_name(v) for _, rows in group for v in rows[first.x]))
    lines, panel_rows = first.kind == "lines", -(-size // columns)
    drawing = blank(WIDTH, panel_rows * (2.9 if lines else 0.9 + 0.25 * len(names)))
    grid: Any = np.ravel(drawing.subplots(panel_rows, columns, sharey=True, squeeze=False))
    for axes in grid[size:]:
        axes.set_axis_off()
    end_labels: list[Label] = []
    for axes, (figure, rows) in zip(grid, group):
        value = axes.yaxis if lines else axes.xaxis
        axes.set(title=printable(figure.title) if size > 1 else "", xlabel=printable(figure.xlabel or figure.x))
        value.set_label_text(printable(_label(figure)) if axes in grid[::columns] or not lines else "")
        log = figure.log if lines else "x" * ("y" in figure.log)
        axes.set(**{f"{axis}scale": "log" for axis in log})
        axes.grid(axis="y" if lines else "x")
        labels = _lines(axes, figure, rows) if lines else _points(axes, figure, rows, names)
        for axis in log:
            layout.logarithmic(getattr(axes, f"{axis}axis"))
        if figure.percent:
            layout.percents(value)
        end_labels = labels if axes is grid[columns - 1] else end_labels
    layout.name_ends(grid[columns - 1], end_labels if first.series else [])
    return drawing


def _label(figure: Description) -> str:
    """Return the label of the axis of values; a figure of points without a label is named by its title."""
    return figure.ylabel or (figure.title if figure.kind == "points" else figure.y.replace("_", " "))


def _name(value: Any) -> str:
    return printable(number(value) if isinstance(value, (int, float, np.number)) else value)


def _series(figure: Description, rows: pd.DataFrame) -> list[str]:
    """Return the names of the series in order of appearance; one empty name for a figure without series."""
    return [_name(v) for v in rows[figure.series].dropna().unique()] if figure.series else [""]


def _series_rows(figure: Description, rows: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
    """Return name, color and rows of each series, and mean, minimum and maximum of its repeats."""
    out, names = [], rows[figure.series].map(_name, na_action="ignore") if figure.series else pd.Series("", rows.index)
    for k, name in enumerate(_series(figure, rows)):
        series_rows = rows[names == name]
        spread = series_rows.groupby(figure.x, sort=figure.kind == "lines")[figure.y].agg(["mean", "min", "max"])
        label = f"{figure.series} {name}" if figure.series and rows[figure.series].dtype.kind in "iuf" else name
        out.append((shorten(label, 26), SERIES[k % len(SERIES)], series_rows, spread))
    return out


def _lines(axes: Axes, figure: Description, rows: pd.DataFrame) -> list[Label]:
    """Draw means over the repeats with a band from minimum to maximum; return names and ends of the lines."""
    for value, words in figure.marks:
        axes.axhline(value, color=MUTED, linestyle=":", linewidth=0.9)
        axes.annotate(printable(words), (0.01, value), (0, 2), ("axes fraction", "data"), "offset points", color=MUTED)
    end_labels: list[Label] = []
    for k, (name, color, _, spread) in enumerate(_series_rows(figure, rows)):
        axes.fill_between(spread.index, spread["min"], spread["max"], color=color, alpha=0.15, linewidth=0)
        axes.plot(spread.index, spread["mean"], color=color, linestyle=("-", "--")[k // len(SERIES) % 2])
        end_labels.append((name, float(spread.index[-1]), float(spread["mean"].iloc[-1]), color))
    return end_labels


def _points(axes: Axes, figure: Description, rows: pd.DataFrame, names: list[str]) -> list[Label]:
    """Draw a row for each name: a point for each repeat, a line over their range, a large point at their mean."""
    axes.set_yticks(range(len(names)), [shorten(n, 30) for n in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    series, end_labels = _series_rows(figure, rows), []
    for k, (name, color, series_rows, spread) in enumerate(series):
        shift = 0.5 * (k + 0.5) / len(series) - 0.25
        heights = np.array([names.index(_name(v)) + shift for v in spread.index])
        axes.plot([spread["min"], spread["max"]], [heights, heights], color=color, linewidth=1.2)
        axes.plot(spread["mean"], heights, "o", color=color, markersize=6)
        repeats = [names.index(_name(v)) + shift for v in series_rows[figure.x]]
        axes.plot(series_rows[figure.y], repeats, "o", color=color, markersize=3, alpha=0.6)
        end_labels.append((name, float(spread["mean"].iloc[-1]), float(heights[-1]), color))
    return end_labels
