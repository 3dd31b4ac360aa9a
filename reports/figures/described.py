"""Figures of studies, drawn from their descriptions: one drawing a kind, no code for any study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..formatting import number
from ..names import printable
from .panels import look
from .svg import INK, MUTED, label, panel, series_color, to_svg

Rows = Any
"""A table; what selecting in one gives, pandas' types do not say."""
MARKED = 12
"""Markers on a line at most."""


def described(figure: Mapping[str, Any], rows: Rows, name: str) -> str | None:
    """A figure as its description says.

    Args:
        figure: fields of ``stability.analysis.studies.result.Figure``.
        rows: that it is drawn from; ``stored.studies.selected`` gives them.
        name: identifier in the page.

    Returns:
        One ``<svg>``; ``None`` where there is nothing that such axes can show.
    """
    log = str(figure.get("log") or "")
    for axis in log:
        if figure.get("kind") != "points" or axis == "y":
            rows = rows[rows[figure[axis]] > 0]
    if rows.empty:
        return None
    kind = str(figure.get("kind"))
    names = _names(figure, rows)
    height = 0.9 + 0.3 * rows[figure["x"]].nunique() if kind == "points" else 3.1
    with panel(printable(figure.get("title") or ""), height=height) as (canvas, axes):
        DRAWN[kind](canvas, axes, figure, rows)
        text = (
            f"{figure.get('title')}: {figure.get('ylabel') or figure['y']} over {figure.get('xlabel') or figure['x']}"
        )
        return to_svg(canvas, name, text, names)


def _names(figure: Mapping[str, Any], rows: Rows) -> list[str]:
    """Names that stand in the figure."""
    columns = [c for c in (figure.get("series"), figure["x"] if figure.get("kind") == "points" else None) if c]
    return [str(value) for c in columns for value in rows[c].unique()]


def _groups(figure: Mapping[str, Any], rows: Rows) -> list[tuple[str, Rows]]:
    """The series in order of appearance; one without a name where they are not told apart."""
    column = figure.get("series")
    if not column:
        return [("", rows)]
    known = rows[rows[column].notna()]
    return [(_name(value), known[known[column] == value]) for value in known[column].unique()]


def _name(value: Any) -> str:
    return number(value) if isinstance(value, (int, float, np.number)) else str(value)


def _shown(figure: Mapping[str, Any]) -> FuncFormatter:
    """Numbers of the values' axis."""
    percent = bool(figure.get("percent"))
    return FuncFormatter(lambda v, _: f"{number(100 * v)} %" if percent else number(v))


def _spread(rows: Rows, by: str, value: str) -> Rows:
    """Mean, least and largest of the repeats."""
    return rows.groupby(by, sort=False)[value].agg(["mean", "min", "max"])


def _scales(axes: Axes, figure: Mapping[str, Any]) -> None:
    log = str(figure.get("log") or "")
    for which in log:
        axis = axes.xaxis if which == "x" else axes.yaxis
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        axis.set_major_locator(LogLocator(numticks=6))
        axis.set_minor_locator(NullLocator())


def _labels(axes: Axes, figure: Mapping[str, Any]) -> None:
    axes.set_xlabel(printable(figure.get("xlabel") or figure["x"]))
    axes.set_ylabel(printable(figure.get("ylabel") or figure["y"]))


def _lines(canvas: Figure, axes: Axes, figure: Mapping[str, Any], rows: Rows) -> None:
    x, y = figure["x"], figure["y"]
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
    if "x" not in str(figure.get("log") or ""):
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    axes.yaxis.set_major_formatter(_shown(figure))
    if figure.get("series"):
        canvas.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def _marks(axes: Axes, figure: Mapping[str, Any]) -> None:
    """Horizontal lines with their names."""
    for mark in figure.get("marks") or ():
        value, words = (mark[0], mark[1]) if len(mark) == 2 else (None, "")
        if isinstance(value, (int, float)):
            axes.axhline(value, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
            where: Any = ("axes fraction", "data")
            axes.annotate(label(str(words), 40), (1, value), xycoords=where, ha="right", va="bottom", color=MUTED)


def _points(canvas: Figure, axes: Axes, figure: Mapping[str, Any], rows: Rows) -> None:
    """Names downwards, values to the right: a point a row, a bar over the range of repeats with their mean."""
    x, y = figure["x"], figure["y"]
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
    if "y" in str(figure.get("log") or ""):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=5))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(_shown(figure))
    axes.set_xlabel(printable(figure.get("ylabel") or y))
    if figure.get("series"):
        canvas.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def _field(canvas: Figure, axes: Axes, figure: Mapping[str, Any], rows: Rows) -> None:
    """Arrows of equal length, and paths over them, each with a point where it begins."""
    x, y = figure["x"], figure["y"]
    u, v = figure["vectors"]
    arrows = rows[rows[u].notna() & rows[v].notna()]
    paths = rows[rows[u].isna()]
    length = np.hypot(arrows[u], arrows[v]).to_numpy()
    scale = np.where(length > 0, length, 1.0)
    across, up = arrows[u].to_numpy() / scale, arrows[v].to_numpy() / scale
    axes.quiver(arrows[x], arrows[y], across, up, color=MUTED, angles="xy", scale=26, width=0.0035, headwidth=4)
    for name, own in _groups(figure, paths) if figure.get("series") else []:
        axes.plot(own[x], own[y], color=series_color(0), linewidth=1.1, alpha=0.9)
        axes.plot(own[x].iloc[:1], own[y].iloc[:1], "o", color=INK, markersize=2.6, label=name)
    _labels(axes, figure)
    axes.grid(visible=False)
    for values, limits, limit in ((arrows[x], axes.get_xlim, axes.set_xlim), (arrows[y], axes.get_ylim, axes.set_ylim)):
        room = 0.3 * float(values.max() - values.min())  # a path that runs away would leave nothing of the arrows
        low, high = limits()
        limit(max(low, float(values.min()) - room), min(high, float(values.max()) + room))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter(FuncFormatter(lambda w, _: number(w)))


def _heat(canvas: Figure, axes: Axes, figure: Mapping[str, Any], rows: Rows) -> None:
    """A square a pair, its number in it: repeats by their mean."""
    grid = rows.pivot_table(index=figure["y"], columns=figure["x"], values=figure["value"], aggfunc="mean")
    values = grid.to_numpy()
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    shown = _shown(figure)
    for i, k in zip(*np.nonzero(np.isfinite(values))):
        strength = 0.5 if high == low else (values[i, k] - low) / (high - low)
        square = Rectangle((k - 0.5, i - 0.5), 1, 1, color=series_color(0), alpha=0.08 + 0.62 * strength, linewidth=0)
        axes.add_patch(square)
        axes.annotate(shown(float(values[i, k])), (k, i), ha="center", va="center", color=INK, fontsize=8.5)
    axes.set_xlim(-0.5, values.shape[1] - 0.5)
    axes.set_ylim(-0.5, values.shape[0] - 0.5)
    axes.set_xticks(range(len(grid.columns)), [_name(c) for c in grid.columns])
    axes.set_yticks(range(len(grid.index)), [_name(c) for c in grid.index])
    axes.grid(visible=False)
    _labels(axes, figure)


DRAWN: dict[str, Callable[[Figure, Axes, Mapping[str, Any], Rows], None]] = {
    "lines": _lines,
    "points": _points,
    "field": _field,
    "heat": _heat,
}
"""The kinds of figures, each with its drawing."""
