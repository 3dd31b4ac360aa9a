"""Eigenvalues in the complex plane and their way through training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Circle, PathPatch
from matplotlib.path import Path

from .collect import ModelRecord, select
from .svg import INK, MUTED, panel, series_color, to_svg

__all__ = ["cloud"]

SNAPSHOTS = 7


def _dots(axes: Axes, real: np.ndarray, imag: np.ndarray, *, color: str, size: float, alpha: float) -> None:
    """Many dots as one path: segments of no length with round ends (a tenth of a marker's bytes)."""
    points = np.repeat(np.column_stack([real, imag]), 2, axis=0)
    codes = np.tile([Path.MOVETO, Path.LINETO], len(real))
    axes.add_patch(
        PathPatch(Path(points, codes), edgecolor=color, linewidth=size, alpha=alpha, capstyle="round", fill=False)
    )


def _chosen(steps: Sequence[int]) -> list[int]:
    """First, last and some steps between, evenly spread."""
    at = np.unique(np.linspace(0, len(steps) - 1, min(SNAPSHOTS, len(steps))).round().astype(int))
    return [steps[i] for i in at]


def cloud(
    model: ModelRecord,
    matrix: str,
    index: int,
    name: str,
    *,
    title: str,
    discrete: bool,
    bounds: tuple[float, float] | None = None,
) -> str | None:
    """Eigenvalues of one matrix of one model: pale at the start of training, strong at its end.

    Args:
        model: the record; its ``eigenvalues.csv`` has the columns step, epoch, matrix, real, imag.
        matrix: which matrix.
        index: the model's index, for its colour.
        name: identifier in the page.
        title: the panel's title.
        discrete: draw the unit circle instead of the imaginary axis.
        bounds: interval that must hold the real parts (the corrected Proposition 1), if there is one.

    Returns:
        The drawing, or ``None`` without data.
    """
    stored = model.frames.get("eigenvalues")
    if stored is None:
        return None
    frame = select(stored, matrix=matrix).dropna(subset=["real", "imag"])
    if frame.empty:
        return None
    steps = _chosen(sorted(frame["step"].unique()))
    shown = cast(pd.DataFrame, frame[frame["step"].isin(steps)])
    with panel(title) as (figure, axes):
        if bounds is not None:
            axes.axvspan(*bounds, color=MUTED, alpha=0.13, linewidth=0)
            for edge in bounds:
                axes.axvline(edge, color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        if discrete:
            axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=INK, linewidth=1))
        else:
            axes.axvline(0, color=INK, linewidth=1)
        for rank, step in enumerate(steps):
            rows = select(shown, step=step)
            last = rank == len(steps) - 1
            share = (rank + 1) / len(steps)
            _dots(
                axes,
                rows["real"].to_numpy(),
                rows["imag"].to_numpy(),
                color=series_color(index),
                size=4.6 if last else 2.6,
                alpha=1.0 if last else 0.12 + 0.4 * share,
            )
        x0, x1 = _limits(shown["real"].to_numpy(), (-1.0, 1.0) if discrete else (0.0, 0.0), bounds)
        y0, y1 = _limits(shown["imag"].to_numpy(), (-1.0, 1.0) if discrete else (0.0, 0.0), None)
        if discrete:
            axes.set_aspect("equal", adjustable="datalim")
            axes.update_datalim([(x0, y0), (x1, y1)])
            axes.autoscale_view()
        else:
            axes.set_xlim(x0, x1)
            axes.set_ylim(y0, y1)
        axes.set_xlabel("real part")
        axes.set_ylabel("imaginary part")
        where = "the unit circle is drawn" if discrete else "the imaginary axis is drawn"
        return to_svg(
            figure,
            name,
            f"Eigenvalues of {matrix} of {model.title} in the complex plane at {len(steps)} moments of "
            f"training; {where}",
        )


def _limits(
    values: np.ndarray, include: tuple[float, float], bounds: tuple[float, float] | None
) -> tuple[float, float]:
    low, high = min(values.min(), include[0]), max(values.max(), include[1])
    if bounds is not None:
        low, high = min(low, bounds[0]), max(high, bounds[1])
    pad = 0.08 * (high - low) or 0.5
    return float(low - pad), float(high + pad)
