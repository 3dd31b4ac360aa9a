"""Heat maps of numbers of channels or heads: one row a layer, colors by classes of the number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.patches import Patch

from .figure import PROVEN, UNDECIDED, WIDTH, Drawing, Figure, blank

MOST_UNITS = 128
"""Most channels or heads that have a cell each; of more, a row shows quantiles."""
QUANTILES = 64
"""Cells of a row of quantiles."""
ROW_HEIGHT = 0.2
"""Inches of a row; ``FRAME`` inches are left for axes and legend."""
FRAME = 1.0
MOST_HEIGHT = 9.0
OPACITIES = (0.1, 0.95)
"""Opacities of the smallest and of the largest class."""


@dataclass(frozen=True)
class Scale:
    """Classes of a number.

    Attributes:
        edges: limits between the classes; a class includes its upper limit.
        unit: unit of the edges in the legend.
        beyond: meaning of an infinite number; empty where there is none.
    """

    edges: Sequence[float]
    unit: str
    beyond: str = ""

    def classes(self, values: np.ndarray) -> np.ndarray:
        """Return the class of each value: -1 for NaN, ``len(edges) + 1`` for an infinite one."""
        found = np.searchsorted(self.edges, values)
        return np.where(np.isnan(values), -1, np.where(np.isinf(values), len(self.edges) + 1, found))

    def patches(self) -> list[tuple[str, str, float]]:
        """Return legend, color and opacity of each class."""
        words = [f"{edge:,.0f}" for edge in self.edges]
        names = [f"up to {words[0]}", *(f"to {word}" for word in words[1:]), f"over {words[-1]}"]
        shades = np.linspace(*OPACITIES, len(names))
        patches = [(name, PROVEN, float(shade)) for name, shade in zip(names, shades)]
        return [*patches, *([(self.beyond, UNDECIDED, 1.0)] if self.beyond else [])]


def heat_map(
    name: str, title: str, reading: str, protocol: str, rows: Mapping[int, np.ndarray], scale: Scale
) -> Figure:
    """Return a heat map of layers times channels or heads.

    Args:
        name: name of the figure.
        title: the finding.
        reading: how to read it; a sentence about quantiles is added where a row has more than ``MOST_UNITS`` numbers.
        protocol: origin of the numbers.
        rows: numbers of the units by the number of the layer; infinite for no proven limit, NaN for none.
        scale: classes of the numbers.
    """
    many = max(map(len, rows.values())) > MOST_UNITS
    shown = {layer: _quantiles(values) if many else np.asarray(values, float) for layer, values in rows.items()}
    unit = "quantile" if many else "unit"
    table = pd.concat(
        [pd.DataFrame({"layer": layer, unit: np.arange(len(v)), "value": v}) for layer, v in shown.items()],
        ignore_index=True,
    )
    if many:
        reading += f" A row shows {QUANTILES} quantiles of the channels of a layer, from the smallest to the largest."
    return Figure(name, title, reading, protocol, table, lambda: _draw(shown, scale, many))


def _quantiles(values: np.ndarray) -> np.ndarray:
    """Return ``QUANTILES`` of the sorted values, the largest among them."""
    ordered = np.sort(values)
    return ordered[np.round(np.linspace(0, len(ordered) - 1, QUANTILES)).astype(int)]


def _draw(rows: Mapping[int, np.ndarray], scale: Scale, many: bool) -> Drawing:
    height = min(MOST_HEIGHT, FRAME + ROW_HEIGHT * max(3, len(rows)))
    drawing, patches = blank(WIDTH, height), scale.patches()
    axes = drawing.add_subplot()
    width = max(map(len, rows.values()))
    for place, values in enumerate(rows.values()):
        classes = scale.classes(values)
        starts = np.flatnonzero(np.diff(classes, prepend=-2))  # one rectangle for equal neighbors
        ends = [*starts[1:], len(classes)]
        for k, (_, color, opacity) in enumerate(patches):
            runs = [(a - 0.5, b - a) for a, b in zip(starts, ends) if classes[a] == k]
            if runs:
                axes.broken_barh(runs, (place - 0.44, 0.88), facecolor=color, alpha=opacity, linewidth=0)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(len(rows) - 0.5, -0.5), ylabel="layer")
    axes.set_xlabel("share of the channels (%)" if many else "channel or head")
    if many:
        axes.set_xticks(np.linspace(0, width - 1, 5), ["0", "25", "50", "75", "100"])
    else:
        axes.set_xticks(range(0, width, max(1, -(-width // 16))))
    step = -(-len(rows) // 24)
    axes.set_yticks(range(0, len(rows), step), [str(layer) for layer in list(rows)[::step]])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    handles = [Patch(facecolor=c, alpha=o, label=label, edgecolor="none") for label, c, o in patches]
    drawing.legend(
        handles=handles, title=scale.unit, loc="outside upper left", ncols=len(handles), frameon=False,
        fontsize=8, handlelength=1.4, columnspacing=1.2, alignment="left", title_fontsize=8,
    )  # fmt: skip
    return drawing
