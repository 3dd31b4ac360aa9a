"""Parts that all figures share: names, panels with shared axes, label placement, protocol lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from scipy.optimize import isotonic_regression

from ..formatting import number, whole_percent
from ..names import columns, printable, shorten
from ..stored.protocol import protocol
from ..stored.records import ModelRecord
from .figure import MUTED, RULE, WIDTH, Figure, blank, color_of

Named = TypeVar("Named")
MOST_MODELS, EXTREMES = 24, 10
"""Largest number of models in a figure; beyond it, the number of best models and of worst models that are shown."""
SIZE, LETTER = 8.0, 0.58
"""Font size of labels in points, and mean width of a letter divided by the font size."""
Table = Any
"""A data frame; pandas gives no exact types for selections of rows and columns."""
Label = tuple[str, float, float, str]
"""Text, ``x`` and ``y`` of its point in units of the data, and color."""


def short_names(models: Sequence[ModelRecord], room: int = 24) -> dict[str, str]:
    """Return a label for each model by its name; titles stay whole where two labels would be the same.

    Args:
        models: the records.
        room: largest width of a label in letters.
    """
    titles = [printable(m.title) for m in models]
    brief = [t.replace(" RNN, margin penalty", " + margin").removesuffix(" RNN") or t for t in titles]
    brief = [shorten(b, room) for b in brief]
    titles = [t if brief.count(b) > 1 else b for t, b in zip(titles, brief)]
    return {m.name: shorten(t, room) if titles.count(t) == 1 else shorten(m.name, room) for m, t in zip(models, titles)}


def selected(models: Sequence[Named]) -> tuple[list[Named], str]:
    """Return the models that a figure shows, and a sentence if some are left out."""
    if len(models) <= MOST_MODELS:
        return list(models), ""
    note = f" Shown: the best and the worst {EXTREMES} of {len(models)} models."
    return [*models[:EXTREMES], *models[-EXTREMES:]], note


def figure_of(
    name: str,
    models: Sequence[ModelRecord],
    rows: Callable[[ModelRecord], Table],
    title: Callable[[Sequence[ModelRecord], Table], str],
    reading: Callable[[Table], str],
    steps: Sequence[str],
    draw: Callable[[Sequence[ModelRecord], Table], Drawing],
    means: bool = False,
) -> Figure | None:
    """Return the figure of the models that have data; ``None`` if no model has data.

    Args:
        name: name of the figure.
        models: models in the order of their ranking.
        rows: returns the table of one model, without rows if it has no data.
        title: returns the finding, from the models with data and the table of all.
        reading: returns instructions for reading the figure, from the table.
        steps: analysis steps that the figure shows, keys of ``PROTOCOLS``.
        draw: draws some models from the table.
        means: whether it shows means over several trainings instead of the first training.
    """
    tables = {m.name: part.assign(model=m.name) for m in models if len(part := rows(m))}
    with_data = [m for m in models if m.name in tables]
    if not with_data:
        return None
    table: Table = pd.concat(tables.values(), ignore_index=True)
    table = table[["model", *table.columns.drop("model")]]
    drawn, note = selected(with_data)
    text, line = reading(table) + note, protocol_line(drawn, steps, means)
    return Figure(name, title(with_data, table), text, line, table, partial(draw, drawn, table))


def protocol_line(models: Sequence[ModelRecord], steps: Sequence[str], means: bool = False) -> str:
    """Return a sentence with the protocols of some analysis steps and the trainings that are shown."""
    parts, most = [protocol(models, step) for step in steps], max(len(m.trainings.runs) for m in models)
    shown = f"means and 95 % intervals over {most} trainings" if means else "first training of each network"
    line = "; ".join(filter(None, (*parts, shown * (most > 1))))
    return line[:1].upper() + line[1:] + "." * bool(line)


def joined(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    Example:
        >>> joined(["A"]), joined(["A", "B", "C"])
        ('A', 'A, B and C')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def share(value: float, *, proved: bool = False) -> str:
    r"""Return a share in whole percent, with a non-breaking space."""
    return f"{whole_percent(value, proved=proved)}\xa0%"


def common_length(models: Sequence[ModelRecord]) -> int | None:
    """Return the common trained length of all models in steps; ``None`` if lengths differ or one is unknown."""
    lengths_of = {m.length for m in models}
    return next(iter(lengths_of)) if len(lengths_of) == 1 else None


def panels(
    models: Sequence[ModelRecord], xlabel: str, ylabel: str, *, square: bool = False, shared: bool = True
) -> tuple[Drawing, list[Axes]]:
    """Return a drawing with one pair of axes for each model, titled in the color of its verdict.

    Args:
        models: the records; a row has at most six panels.
        xlabel: horizontal label of all axes.
        ylabel: vertical label of all axes.
        square: whether panels are as high as wide.
        shared: whether panels share their horizontal axes; they always share the vertical ones.
    """
    size = len(models)
    wide = max(size, 3 * square) if size <= 6 else min(6, -(-size // 2))
    rows, side = -(-size // wide), WIDTH / wide
    drawing = blank(WIDTH, (0.93 * side + 0.25 if square else min(max(1.65, 0.75 * side), 2.6)) * rows + 0.4)
    grid: Any = drawing.subplots(rows, wide, sharex=shared, sharey=True, squeeze=False)
    flat, names = list(grid.ravel()), short_names(models, int(120 / wide))
    for axes, model in zip(flat, models):
        axes.set_title(names[model.name], color=color_of(model.state))
    for axes in flat[size:]:
        axes.set_axis_off()
    for axes in flat[max(0, size - wide) : size]:
        axes.tick_params(labelbottom=True)
    drawing.supxlabel(xlabel, fontsize=8.5, color=MUTED)
    drawing.supylabel(ylabel, fontsize=8.5, color=MUTED)
    return drawing, flat[:size]


def power(value: float, _: Any = None) -> str:
    """Return the label of a tick of a logarithmic axis.

    Example:
        >>> power(0.01), power(1000.0), power(1e-6)
        ('0.01', '1000', '10⁻⁶')
    """
    return f"{value:g}" if 1e-4 < value < 1e5 else number(value).removeprefix("1×")


def logarithmic(axis: Axis, ticks: int = 5) -> None:
    """Label a logarithmic axis at most ``ticks`` times: at powers of ten, or at 1, 2, 5 if it spans few of them."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0,) if high > 200 * low else (1.0, 2.0, 5.0), numticks=ticks))
    axis.set_major_formatter(FuncFormatter(power))
    axis.set_minor_locator(NullLocator())


def percents(axis: Axis) -> None:
    """Label an axis of shares in percent."""
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.3g} %"))


def lengths(axis: Axis, length: int | None, last: float) -> None:
    """Label an axis of steps at multiples of the trained length."""
    if length is not None and last >= length:
        every = max(1, math.ceil(last / length / 5))
        axis.set_major_locator(FixedLocator(sorted({length, *range(0, int(last) + 1, every * length)})))


def spread(targets: Any, gap: float, low: float, high: float) -> np.ndarray:
    """Return the positions that are closest to the targets, in least squares, with a minimum distance.

    Args:
        targets: wanted positions, a sequence of numbers.
        gap: minimum distance between positions.
        low: smallest allowed position.
        high: largest allowed position.

    Example:
        >>> spread([0.0, 0.2, 5.0], 1.0, 0.0, 9.0).tolist()
        [0.0, 1.0, 5.0]
    """
    order = np.argsort(targets, kind="stable")
    steps = gap * np.arange(len(order))
    shifted = np.asarray(isotonic_regression(np.asarray(targets, dtype=float)[order] - steps).x)
    positions = np.empty(len(order))
    positions[order] = np.clip(shifted, low, max(low, high - gap * (len(order) - 1))) + steps
    return positions


def _settle(drawing: Any) -> None:
    """Compute the layout of a drawing once, so that positions of axes are final."""
    if drawing.get_layout_engine() is not None:
        drawing.draw_without_rendering()
        drawing.set_layout_engine("none")


def name_ends(axes: Axes, labels: Sequence[Label]) -> None:
    """Write labels at the right of the axes, spread so that none overlap, each with a line to its point."""
    if not labels:
        return
    texts = [
        axes.text(1.04, 0.5, text, color=color, fontsize=SIZE, va="center", transform=axes.transAxes)
        for text, _, _, color in labels
    ]
    _settle(axes.figure)
    gap = 1.35 * SIZE / 72 * axes.figure.dpi / axes.get_window_extent().height
    points = axes.transAxes.inverted().transform(axes.transData.transform([(x, y) for _, x, y, _ in labels]))
    points[:, 1] = np.clip(points[:, 1], 0.0, 1.0)
    for text, (x, y), at in zip(texts, points, spread(points[:, 1], gap, 0.0, 1.0)):
        text.set_y(at)
        line = ([x, 1.005, 1.03], [y, y, at]) if x < 0.99 else ([1.005, 1.03], [y, at])
        axes.plot(*line, color=RULE, linewidth=0.8, transform=axes.transAxes, clip_on=False, zorder=0.5)


def place(axes: Axes, labels: Sequence[Label], avoid: np.ndarray) -> None:
    """Write labels near their points where they cover neither each other nor the drawing.

    Args:
        axes: axes without further changes.
        labels: texts and their points.
        avoid: ``(n, 2)`` points that labels must not cover, in units of the data.
    """
    if not labels:
        return
    _settle(axes.figure)
    unit = axes.figure.dpi / 72
    frame, covered = axes.get_window_extent(), axes.transData.transform(avoid)
    boxes: list[np.ndarray] = []
    directions = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)]
    for text, x, y, color in labels:
        at, best = axes.transData.transform((x, y)), (math.inf, np.zeros(4), 0.0)
        half = unit * np.array([0.5 * LETTER * SIZE * columns(text), 0.6 * SIZE])
        for away in (7.0, 12.0, 20.0, 30.0, 44.0):
            for direction in np.array(directions, dtype=float):
                middle = at + direction * (half + unit * away / (1 + (direction[0] != 0 and direction[1] != 0)))
                box = np.concatenate([middle - half, middle + half])
                outside = box[0] < frame.x0 or box[1] < frame.y0 or box[2] > frame.x1 or box[3] > frame.y1
                hidden = ((covered > box[:2] - 2 * unit) & (covered < box[2:] + 2 * unit)).all(1).sum()
                overlaps = sum(bool((box[:2] < other[2:]).all() and (other[:2] < box[2:]).all()) for other in boxes)
                cost = 1e6 * outside + 1e3 * overlaps + 10.0 * hidden + 0.01 * away
                best = min(best, (cost, box, away), key=lambda b: b[0])
        _, box, away = best
        boxes.append(box)
        center: Any = axes.transData.inverted().transform((box[:2] + box[2:]) / 2)
        line: dict[str, Any] = (
            {"arrowprops": {"arrowstyle": "-", "color": RULE, "shrinkA": 0, "shrinkB": 3}} if away > 12 else {}
        )
        axes.annotate(
            text, (x, y), center, color=color, fontsize=SIZE, ha="center", va="center", in_layout=False, **line
        )  # fmt: skip


def along(x: Any, y: Any, axes: Axes, points: int = 60) -> np.ndarray:
    """Return points of a line, evenly spaced in ``x``, as the argument ``avoid`` of ``place``."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    log = axes.get_yscale() == "log"
    keep = np.isfinite(x) & np.isfinite(y) & ((y > 0) | (not log))
    if not keep.any():
        return np.empty((0, 2))
    at = np.linspace(x[keep][0], x[keep][-1], points)
    values = np.interp(at, x[keep], np.log(y[keep]) if log else y[keep])
    return np.column_stack([at, np.exp(values) if log else values])
