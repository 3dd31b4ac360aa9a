"""Figures of studies, drawn from their descriptions; neighbors that show the same quantity share one figure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..formatting import number
from ..names import printable, shorten
from .figure import MUTED, SERIES, WIDTH, Figure, blank
from .layout import Axes, Drawing, along, logarithmic, name_ends, percents, place

if TYPE_CHECKING:
    from ...analysis.studies.result import Figure as Description
    from ...analysis.studies.result import StudyResult

Rows = list[tuple[Any, pd.DataFrame]]
"""Descriptions, each with the rows that it shows."""
WIDE = 3  # panels in a row


def described(result: StudyResult) -> tuple[Figure, ...]:
    """Return the figures of a study, without those that have nothing to draw.

    Args:
        result: the study with its table and its curves.
    """
    known = [(f, rows) for f in result.figures if len(rows := _rows(f, result))]
    alike = [list(group) for _, group in groupby(known, key=lambda pair: _quantity(pair[0]))]
    return tuple(_figure(f"{result.study}-{k}", group) for k, group in enumerate(alike, start=1))


def _rows(figure: Description, result: StudyResult) -> pd.DataFrame:
    rows: Any = figure.rows(result)
    for axis in figure.log if len(rows) else "":
        if figure.kind != "points" or axis == "y":
            rows = rows[rows[getattr(figure, axis)] > 0]
    return rows


def _quantity(figure: Description) -> tuple[Any, ...]:
    """Return what figures have in common that share their axes."""
    return tuple(getattr(figure, k) for k in ("kind", "x", "y", "series", "source", "ylabel", "log", "percent"))


def _figure(name: str, group: Rows) -> Figure:
    first = group[0][0]
    across = {f.xlabel or f.x for f, _ in group}
    title = _label(first) + (f" by {across.pop()}" if len(across) == 1 else "")
    title = first.title if len(group) == 1 else title
    title = title[:1].upper() + title[1:]
    reading = " ".join(dict.fromkeys(f.caption for f, _ in group if f.caption))
    table = pd.concat([rows.assign(figure=f.title) for f, rows in group], ignore_index=True)
    return Figure(name, printable(title), printable(reading), "", table, partial(_draw, group))


def _draw(group: Rows) -> Drawing:
    first, size = group[0][0], len(group)
    wide = min(size, WIDE)
    names = list(dict.fromkeys(_name(v) for _, rows in group for v in rows[first.x])) if first.kind == "points" else []
    high, lines = -(-size // wide), first.kind == "lines"
    drawing = blank(WIDTH, high * (2.9 if lines else 0.9 + 0.25 * len(names)))
    grid: Any = np.ravel(drawing.subplots(high, wide, sharey=True, squeeze=False))
    colors = {name: SERIES[k % len(SERIES)] for k, name in enumerate(_series(first, pd.concat([r for _, r in group])))}
    for axes in grid[size:]:
        axes.set_axis_off()
    for axes, (figure, rows) in zip(grid, group):
        axes.set_title(printable(figure.title) if size > 1 else "")
        _scale(axes, figure, axes in grid[::wide] or not lines)
        if lines:
            _lines(axes, figure, rows, colors)
        else:
            _points(axes, figure, rows, colors, names)
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                logarithmic(axis)
    common = lines and all(_series(f, rows) == list(colors) for f, rows in group)
    for axes, (figure, rows) in zip(grid, group) if first.series else ():
        if lines and (not common or axes is grid[wide - 1]):
            _name_lines(axes, figure, rows, colors, common)
        elif not lines:
            _name_points(axes, figure, rows, colors)
    return drawing


def _scale(axes: Axes, figure: Description, labeled: bool) -> None:
    """Set the scales of the axes, and the label of the values."""
    value, lines = (axes.yaxis, True) if figure.kind == "lines" else (axes.xaxis, False)
    log = {"xscale": "x" in figure.log, "yscale": "y" in figure.log} if lines else {"xscale": "y" in figure.log}
    axes.set(**{name: "log" for name, there in log.items() if there})
    value.set_label_text(printable(_label(figure)) if labeled else "")
    if figure.percent:
        percents(value)


def _label(figure: Description) -> str:
    """Return the name of the values; rows of points are named by their figure."""
    return figure.ylabel or (figure.title if figure.kind == "points" else figure.y.replace("_", " "))


def _series(figure: Description, rows: pd.DataFrame) -> list[str]:
    """Return the names of the series in order of appearance."""
    return [_name(v) for v in rows[figure.series].dropna().unique()] if figure.series else [""]


def _own(figure: Description, rows: pd.DataFrame, name: str) -> pd.DataFrame:
    return rows[rows[figure.series].map(_name, na_action="ignore") == name] if figure.series else rows


def _name(value: Any) -> str:
    return printable(number(value) if isinstance(value, (int, float, np.number)) else value)


def _spread(figure: Description, rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean, least and largest of the repeats."""
    return rows.groupby(figure.x, sort=figure.kind == "lines")[figure.y].agg(["mean", "min", "max"])


def _lines(axes: Axes, figure: Description, rows: pd.DataFrame, colors: dict[str, str]) -> None:
    """Draw means over the repeats, with a band from the least to the largest."""
    axes.set_xlabel(printable(figure.xlabel or figure.x))
    axes.grid(axis="y")
    for k, name in enumerate(_series(figure, rows)):
        known = _spread(figure, _own(figure, rows, name))
        axes.fill_between(known.index, known["min"], known["max"], color=colors[name], alpha=0.15, linewidth=0)
        axes.plot(known.index, known["mean"], color=colors[name], linestyle=("-", "--")[k // len(SERIES) % 2])
    for value, words in figure.marks:
        axes.axhline(value, color=MUTED, linestyle=":", linewidth=0.9)
        axes.annotate(printable(words), (0.01, value), (0, 2), ("axes fraction", "data"), "offset points", color=MUTED)


def _name_lines(axes: Axes, figure: Description, rows: pd.DataFrame, colors: dict[str, str], outside: bool) -> None:
    """Name the lines at the right of the axes, or beside them."""
    spreads = {name: _spread(figure, _own(figure, rows, name)) for name in _series(figure, rows)}
    ends = [(shorten(n, 26), s.index[-1], s["mean"].iloc[-1], colors[n]) for n, s in spreads.items() if len(s)]
    if outside:
        return name_ends(axes, ends)
    drawn = [along(s.index, s["mean"], axes) for s in spreads.values()]
    return place(axes, [(n, *p[2 * len(p) // 3], c) for (n, _, _, c), p in zip(ends, drawn)], np.concatenate(drawn))


def _points(axes: Axes, figure: Description, rows: pd.DataFrame, colors: dict[str, str], names: Sequence[str]) -> None:
    """Draw a row for each name: a point for each repeat, a line over their range, a large point at their mean."""
    axes.set_yticks(range(len(names)), [shorten(n, 30) for n in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x")
    for name, color in colors.items():
        own = _own(figure, rows, name)
        for each, spread in _spread(figure, own).iterrows():
            at = _place(names, colors, _name(each), name)
            axes.plot([spread["min"], spread["max"]], [at, at], color=color, linewidth=1.2)
            axes.plot(spread["mean"], at, "o", color=color, markersize=6)
        heights = [_place(names, colors, _name(v), name) for v in own[figure.x]]
        axes.plot(own[figure.y], heights, "o", color=color, markersize=3, alpha=0.6)


def _place(names: Sequence[str], colors: dict[str, str], row: str, series: str) -> float:
    """Return the height of a series in a row."""
    return names.index(row) + 0.5 * (list(colors).index(series) + 0.5) / len(colors) - 0.25


def _name_points(axes: Axes, figure: Description, rows: pd.DataFrame, colors: dict[str, str]) -> None:
    """Name each series beside its point in its first row."""
    names = list(dict.fromkeys(_name(v) for v in rows[figure.x]))
    points = [
        (v, _place(names, colors, _name(x), _name(s))) for x, s, v in rows[[figure.x, figure.series, figure.y]].values
    ]
    labels = []
    for name, color in colors.items():
        own = _own(figure, rows, name)
        if len(own):
            spread = _spread(figure, own)["mean"]
            labels.append((name, spread.iloc[0], _place(names, colors, _name(spread.index[0]), name), color))
    place(axes, labels, np.array(points, dtype=float))
