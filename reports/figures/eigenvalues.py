"""Eigenvalues in the complex plane and their way through training."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from ..stored.records import ModelRecord, select
from .svg import INK, MUTED, label, panel, series_color, to_svg

SNAPSHOTS = 7
NARROW = 1e-3
"""Of the values on an axis: differences below it are rounding."""
NAMES = {"map": "the unit circle", "euler": "the border of Euler steps", "midpoint": "the border of midpoint steps"}


@dataclass(frozen=True)
class Region:
    """Where the eigenvalues of a linear part must lie for the map that runs.

    Attributes:
        kind: ``map`` (inside the unit circle), ``euler`` or ``midpoint``.
        dt: the step of an integrator.
    """

    kind: str
    dt: float = 1.0

    def border(self, points: int = 720) -> np.ndarray:
        """The region's border, complex and closed.

        With ``z = dt * eigenvalue``: ``|z| = 1`` for a map, ``|1 + z| = 1`` for Euler, ``|1 + z + z^2/2| = 1`` for the
        midpoint rule.

        Args:
            points: how many.

        Example:
            >>> z = 0.2 * Region("midpoint", 0.2).border()
            >>> bool(np.allclose(np.abs(1 + z + z**2 / 2), 1))
            True
        """
        if self.kind != "midpoint":
            circle = np.exp(1j * np.linspace(0, 2 * np.pi, points))
            return circle if self.kind == "map" else (circle - 1) / self.dt
        square = 2 * np.exp(1j * np.linspace(0, 4 * np.pi, points)) - 1  # (1 + z)^2; twice round, for both roots
        root = np.sqrt(np.abs(square)) * np.exp(0.5j * np.unwrap(np.angle(square)))
        return (root - 1) / self.dt

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Which eigenvalues lie inside."""
        z = np.asarray(values) * (1.0 if self.kind == "map" else self.dt)
        factor = {"map": z, "euler": 1 + z}.get(self.kind, 1 + z + z**2 / 2)
        return np.abs(factor) < 1


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
    region: Region | None,
    bounds: tuple[float, float] | None = None,
) -> str | None:
    """Eigenvalues of one matrix of one model: pale at the start of training, strong at its end; equal axes.

    Args:
        model: the record; its ``eigenvalues.csv`` has the columns step, epoch, matrix, real, imag.
        matrix: which matrix.
        index: the model's index, for its colour.
        name: identifier in the page.
        region: the border to draw, ``None`` for none.
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
    with panel(f"{label(model.title, 34)}: {label(called(matrix), 14)}") as (figure, axes):
        if bounds is not None:
            axes.axvspan(*bounds, color=MUTED, alpha=0.13, linewidth=0)
            for edge in bounds:
                axes.axvline(edge, color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        if region is not None:
            border = region.border()
            line = Line2D(np.real(border), np.imag(border), color=INK, linewidth=1)
            axes.add_artist(line)  # so it does not widen the view
        axes.axvline(0, color=MUTED, linewidth=0.7)
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
        unit = region is not None and region.kind == "map"
        include = (-1.0, 1.0) if unit else (0.0, 0.0)
        x0, x1 = _limits(shown["real"].to_numpy(), include, bounds)
        y0, y1 = _limits(shown["imag"].to_numpy(), include, None)
        axes.set_aspect("equal", adjustable="datalim")
        axes.update_datalim([(x0, y0), (x1, y1)])
        axes.autoscale_view()
        axes.set(xlabel="real part", ylabel="imaginary part")
        where = "no border" if region is None else NAMES.get(region.kind, "the border of the integrator")
        text = (
            f"Eigenvalues of {matrix} of {model.title} in the complex plane at {len(steps)} moments of "
            f"training; {where} is drawn{_count(region, select(shown, step=steps[-1]))}"
        )
        return to_svg(figure, name, text, [model.title, matrix])


def extremes(
    model: ModelRecord,
    matrix: str,
    index: int,
    name: str,
    *,
    region: Region,
    curves: Mapping[str, pd.DataFrame],
) -> str | None:
    """The outermost eigenvalue of one matrix over training steps, with the border that it must not cross.

    For a map the spectral radius, border 1; for the layer of a differential equation the largest real part, border 0,
    with the smallest one, and between which bounds Proposition 1, corrected, puts both.

    Args:
        model: the record.
        matrix: which matrix.
        index: the model's index, for its colour.
        name: identifier in the page.
        region: the map that runs.
        curves: recorded quantities by their names in ``spectra.csv``, each a frame with ``step`` and ``value``.

    Returns:
        The drawing, or ``None`` where the quantity was not recorded.
    """
    quantity, words = ("spectral_radius", "spectral radius") if region.kind == "map" else ("max_real", "real part")
    if curves[quantity].empty:
        return None
    with panel(f"{label(model.title, 26)}: {label(called(matrix), 14)}, {words}") as (figure, axes):
        axes.axhline(1.0 if region.kind == "map" else 0.0, color=INK, linewidth=1)
        drawn: dict[str, dict[str, Any]] = {
            quantity: {"color": series_color(index), "label": "largest" if words == "real part" else words}
        }
        if region.kind != "map":
            drawn["min_real"] = {"color": series_color(index), "linewidth": 1.0, "linestyle": "--", "label": "smallest"}
            dotted: dict[str, Any] = {"color": MUTED, "linewidth": 1.2, "linestyle": (0, (1.2, 1.4))}
            drawn["prop1_high"] = {**dotted, "label": "bounds (Proposition 1)"}
            drawn["prop1_low"] = dotted
        for key, style in drawn.items():
            if not curves[key].empty:
                axes.plot(curves[key]["step"], curves[key]["value"], **style)
        axes.set(xlabel="training step", ylabel=words)
        axes.ticklabel_format(axis="y", useOffset=False)
        low, high = axes.get_ylim()
        if high - low < NARROW:  # rounding is not drawn as a curve
            axes.set_ylim(0.5 * (low + high - NARROW), 0.5 * (low + high + NARROW))
        if region.kind != "map":
            figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        last = f"{curves[quantity]['value'].iloc[-1]:.4g}"
        text = f"{words.capitalize()} of the eigenvalues of {matrix} of {model.title} along training; at the end {last}"
        return to_svg(figure, name, text, [model.title, matrix])


def called(matrix: str) -> str:
    """A matrix as a title has it: of a deep network the matrix first, for the blocks differ in a number only.

    Example:
        >>> called("blocks.1.layer.A"), called("W")
        ('A, block 1', 'W')
    """
    found = re.fullmatch(r"blocks\.(\d+)\.layer\.(.+)", matrix)
    return f"{found[2]}, block {found[1]}" if found else matrix


def _count(region: Region | None, last: pd.DataFrame) -> str:
    """How many eigenvalues lie inside at the end, in words."""
    if region is None:
        return ""
    inside = region.holds(last["real"].to_numpy() + 1j * last["imag"].to_numpy())
    return f"; at the end {int(inside.sum())} of {len(inside)} lie inside"


def _limits(
    values: np.ndarray, include: tuple[float, float], bounds: tuple[float, float] | None
) -> tuple[float, float]:
    low, high = min(values.min(), include[0]), max(values.max(), include[1])
    if bounds is not None:
        low, high = min(low, bounds[0]), max(high, bounds[1])
    pad = 0.08 * (high - low) or 0.5
    return float(low - pad), float(high + pad)
