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
ROW_HEIGHT, FRAME, MOST_HEIGHT = 0.2, 1.0, 9.0
"""Inches of a row, of axes and legend together, and of the whole figure at most."""
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
        found = np.searchsorted(self.edges, values) + np.isinf(values)
        return np.where(np.isnan(values), -1, found)

    def patches(self) -> list[Patch]:
        """Return the legend's entry of each class, in its color."""
        words = [f"{edge:,.0f}" for edge in self.edges]
        names = [f"up to {words[0]}", *(f"to {word}" for word in words[1:]), f"over {words[-1]}"]
        shades = np.linspace(*OPACITIES, len(names))
        patches = [Patch(color=PROVEN, alpha=shade, lw=0, label=name) for name, shade in zip(names, shades)]
        return [*patches, *([Patch(color=UNDECIDED, lw=0, label=self.beyond)] if self.beyond else [])]


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
    shown = {layer: _quantiles(values) if many else values for layer, values in rows.items()}
    column = "quantile" if many else "unit"
    frames = [pd.DataFrame({"layer": layer, column: np.arange(len(v)), "value": v}) for layer, v in shown.items()]
    if many:
        reading += f" A row shows {QUANTILES} quantiles of the channels of a layer, from the smallest to the largest."
    table = pd.concat(frames, ignore_index=True)
    return Figure(name, title, reading, protocol, table, lambda: _draw(shown, scale, many))


def _quantiles(values: np.ndarray) -> np.ndarray:
    """Return ``QUANTILES`` of the sorted values, the smallest and the largest among them."""
    return np.sort(values)[np.round(np.linspace(0, len(values) - 1, QUANTILES)).astype(int)]


def _draw(rows: Mapping[int, np.ndarray], scale: Scale, many: bool) -> Drawing:
    drawing = blank(WIDTH, min(MOST_HEIGHT, FRAME + ROW_HEIGHT * max(3, len(rows))))
    axes, patches, width = drawing.add_subplot(), scale.patches(), max(map(len, rows.values()))
    for place, values in enumerate(rows.values()):
        classes = scale.classes(values)
        starts = np.flatnonzero(np.diff(classes, prepend=-2))  # one rectangle for equal neighbors
        for start, end in zip(starts, [*starts[1:], len(classes)]):
            if classes[start] >= 0:
                look = patches[classes[start]]
                span, color = (float(start) - 0.5, float(end - start)), look.get_facecolor()
                axes.broken_barh([span], (place - 0.44, 0.88), color=color[:3], alpha=look.get_alpha(), lw=0)
    labels = list(rows)
    step, stride = -(-len(rows) // 24), -(-width // 16)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(len(rows) - 0.5, -0.5), ylabel="layer")
    axes.set_yticks(range(0, len(rows), step), [str(layer) for layer in labels[::step]])
    places = np.linspace(0, width - 1, 5) if many else np.arange(0, width, stride)
    axes.set_xticks(places, [f"{100 * p / (width - 1):.0f}" if many else str(p) for p in places])
    axes.set_xlabel("share of the channels (%)" if many else "channel or head")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    drawing.legend(
        handles=patches, title=scale.unit, loc="outside upper left", ncols=len(patches), frameon=False, fontsize=8,
        handlelength=1.4, columnspacing=1.2, alignment="left", title_fontsize=8,
    )  # fmt: skip
    return drawing
