"""Figures of results: a curve with its band if the result has one, else its numbers as a table.

pandas gives the numbers (``curves()`` of the result); matplotlib is imported only for a figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 12
"""Most lines with a name in the legend; more lines are drawn thin and unnamed."""
ROWS = 12
"""Most rows and columns of a table that is drawn in place of a curve."""


@dataclass(frozen=True)
class Curve:
    """Columns of a result's ``curves()`` that are drawn, and how.

    Attributes:
        x: the column of the horizontal axis.
        y: columns of the vertical axis, a line each; missing and empty ones are left out.
        band: lower and upper end around the first of them.
        by: a column whose values have a line each.
        words: label of the vertical axis; by default the first column's name.
        log: whether that axis is logarithmic.
        steps: whether a value holds until the next place, as a share of counted samples does.
    """

    x: str
    y: tuple[str, ...]
    band: tuple[str, str] | None = None
    by: str = ""
    words: str = ""
    log: bool = False
    steps: bool = False


def draw(name: str, table: pd.DataFrame, curve: Curve | None, ax: Axes | None) -> Axes:
    """Draw the curve, or the table itself if there is no curve.

    Args:
        name: above it.
        table: the numbers.
        curve: selection of the columns.
        ax: axes to draw on; ``None``: a new figure.

    Returns:
        The axes.
    """
    from matplotlib import pyplot

    axes: Any = pyplot.subplots()[1] if ax is None else ax
    axes.set_title(name)
    if curve is None:
        return _tabled(table, axes)
    groups = list(table.groupby(curve.by)) if curve.by else [("", table)]
    style = "steps-post" if curve.steps else "default"
    for value, rows in groups:
        columns = [y for y in curve.y if y in rows and rows[y].notna().to_numpy().any()]
        for k, y in enumerate(columns):
            named = " ".join(
                filter(None, (f"{curve.by} {value}" if len(groups) > 1 else "", y if len(columns) > 1 else ""))
            )
            thin = {"linewidth": 0.6, "alpha": 0.5} if len(groups) > MOST else {"label": named or y}
            (line,) = axes.plot(rows[curve.x], rows[y], drawstyle=style, **thin)
            if k == 0 and curve.band is not None and rows[list(curve.band)].notna().to_numpy().any():
                low, high = (rows[end] for end in curve.band)
                step = "post" if curve.steps else None
                axes.fill_between(rows[curve.x], low, high, color=line.get_color(), alpha=0.2, linewidth=0, step=step)
    if curve.log:
        axes.set_yscale("log", nonpositive="mask")
    axes.set_xlabel(curve.x.replace("_", " "))
    axes.set_ylabel((curve.words or curve.y[0]).replace("_", " "))
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend()
    return axes


def _tabled(table: pd.DataFrame, axes: Any) -> Axes:
    """Draw a table: one row as names and numbers, of several rows the first rows and columns."""
    if len(table) == 1:
        table = pd.DataFrame({"name": table.columns, "value": table.iloc[0].tolist()})
    excerpt = table.iloc[: 2 * ROWS, :ROWS]
    cells = [
        [f"{v:.4g}" if isinstance(v, float) else str(v)[:40] for v in row] for row in excerpt.to_numpy(dtype=object)
    ]
    axes.set_axis_off()
    if cells:
        axes.table(cellText=cells, colLabels=[str(c) for c in excerpt.columns], loc="center", edges="horizontal")
    return axes
