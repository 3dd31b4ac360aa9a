"""Single inputs: what is certified and what is attacked, how far apart they are, and the inputs that give way first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter

from ..formatting import number
from ..stored.records import ModelRecord
from .svg import INK, label, legend_below, panel, series_color, to_svg

LEVELS = 5
"""Shades of a drawn input."""
WIDE = 8
"""Features from which on an input is drawn as a picture, time downwards; fewer are drawn as lines over time."""


def radii(model: ModelRecord) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Whether an input is classified correctly, its certified radius, and its attacked one, infinite where none is."""
    frame = model.frames.get("local")
    if frame is None:
        return None
    attacked = frame["attack_radius"].to_numpy(dtype=float) if "attack_radius" in frame else np.full(len(frame), np.nan)
    correct = frame["correct"].to_numpy(dtype=float) > 0
    return correct, frame["radius"].to_numpy(dtype=float), np.where(np.isnan(attacked), np.inf, attacked)


def sandwich(model: ModelRecord, index: int, name: str) -> str | None:
    """Certified and attacked accuracy over the radius; what lies between them is not known, and shaded.

    Args:
        model: with its table ``local``.
        index: it decides the colour.
        name: identifier in the page.
    """
    found = radii(model)
    if found is None:
        return None
    correct, radius, attacked = found
    finite = attacked[np.isfinite(attacked)]
    end = 1.05 * max([*finite, *radius, 1e-12])
    grid = np.unique([0.0, *radius, *finite, end])
    low = [(correct & (radius > r)).mean() for r in grid]  # until the next point of the grid
    high = [(correct & (attacked > r)).mean() for r in grid]
    with panel(label(model.title, 36)) as (figure, axes):
        color = series_color(index)
        both = correct & np.isfinite(attacked)
        wide = f", {number(float((attacked - radius)[both].mean()), 2)} wide on average" if both.any() else ""
        unknown = f"not known{wide}"
        axes.fill_between(grid, low, high, step="post", color=color, alpha=0.25, linewidth=0, label=unknown)
        axes.plot(grid, high, drawstyle="steps-post", color=color, linestyle=(0, (5, 1.6)), label="left by attacks")
        axes.plot(grid, low, drawstyle="steps-post", color=color, linewidth=2.6, label="certified")
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlim(0, end)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
        norm = {"l2": "Euclidean norm", "linf": "largest entry"}.get(str(model.documents.get("local", {}).get("norm")))
        axes.set(ylabel="accuracy", xlabel=f"radius, {norm or 'size'} of the change")
        legend_below(axes)
        said = f"{model.title}: accuracy that is certified and that attacks leave over the radius, shaded between"
        return to_svg(figure, name, said, [model.title])


def ratios(models: Sequence[ModelRecord], name: str) -> str | None:
    """How many inputs have which share of their attacked radius certified, for every model."""
    shares = []
    for i, m in enumerate(models):
        found = radii(m)
        if found is not None:
            correct, radius, attacked = found
            both = correct & np.isfinite(attacked) & (attacked > 0)
            if both.any():
                shares.append((i, m, radius[both] / attacked[both]))
    if not shares:
        return None
    edges = np.linspace(0.0, 1.0, 11)
    with panel("Certified over attacked radius") as (figure, axes):
        for i, m, share in shares:
            counts, _ = np.histogram(np.minimum(share, 1.0), edges)
            dash = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)))[i % 3]
            axes.stairs(counts, edges, color=series_color(i), linewidth=1.7, linestyle=dash, label=label(m.title))
        axes.set(xlabel="certified radius / attacked radius of an input", ylabel="inputs", xlim=(0, 1))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
        legend_below(axes)
        text = "Histogram of certified over attacked radius of single inputs, a line for each model"
        return to_svg(figure, name, text, [m.title for _, m, _ in shares])


def inputs(model: ModelRecord, index: int, name: str) -> str | None:
    """The least robust inputs and what changes their class, side by side."""
    frame = model.frames.get("local_inputs")
    if frame is None:
        return None
    groups = [group for _, group in frame.groupby("sample")][:2]
    with panel(label(model.title, 36)) as (figure, axes):
        axes.remove()
        figure.suptitle(label(model.title, 36), x=0.02, ha="left", fontsize=10.5, fontweight="bold")
        places = figure.subplots(len(groups), 2, squeeze=False)
        for row, group in zip(places, groups):
            values, change = (matrix_of(group, column) for column in ("value", "change"))
            (_picture if values.shape[1] >= WIDE else _lines)(row, values, change, index)
            row[0].set_title(f"input {int(group['sample'].iloc[0])}", fontsize=9)
            row[1].set_title(f"change of norm {number(float(np.sqrt((change**2).sum())), 2)}", fontsize=9)
        text = f"The inputs of {model.title} that the smallest perturbations misclassify, with these perturbations"
        return to_svg(figure, name, text, [model.title])


def matrix_of(group: pd.DataFrame, column: str) -> np.ndarray:
    """``(time, features)`` of one input; entries that are not in the table are zero."""
    t, feature = (group[key].to_numpy(dtype=int) for key in ("t", "feature"))
    out = np.zeros((int(min(max(t.max(), 0), 10**4)) + 1, int(min(max(feature.max(), 0), 10**4)) + 1))
    good = (t >= 0) & (feature >= 0) & (t < out.shape[0]) & (feature < out.shape[1])
    out[t[good], feature[good]] = group[column].to_numpy(dtype=float)[good]
    return out


def _picture(row: Sequence[Axes], values: np.ndarray, change: np.ndarray, index: int) -> None:
    """Shades of one colour for the input, of two for more and less."""
    values, change = shaded(values), shaded(change)
    span = float(np.ptp(values)) or 1.0
    _shades(row[0], (values - values.min()) / span, INK)
    largest = float(np.abs(change).max()) or 1.0
    _shades(row[1], np.maximum(change, 0) / largest, series_color(1))
    _shades(row[1], np.maximum(-change, 0) / largest, series_color(0))
    for axes in row:
        axes.set(xlim=(0, values.shape[1]), ylim=(values.shape[0], 0), xticks=[], yticks=[], aspect="equal")
        axes.grid(False)


def shaded(values: np.ndarray) -> np.ndarray:
    """What is drawn of an input: a few frames of many numbers as a square, for as one line they would not be seen."""
    height, width = values.shape
    if not height or width <= 8 * height:
        return values
    side = int(np.ceil(np.sqrt(values.size)))
    flat = np.zeros(side * side)
    flat[: values.size] = values.ravel()
    return flat.reshape(side, side)


def _shades(axes: Axes, shares: np.ndarray, color: str) -> None:
    """One path a shade, cells of equal shade in a row as one rectangle."""
    level = np.rint(LEVELS * shares).astype(int)
    for shade in range(1, LEVELS + 1):
        corners: list[tuple[float, float]] = []
        for i, line in enumerate(level == shade):
            edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
            for a, b in zip(edges[::2], edges[1::2]):
                corners += [(a, i), (b, i), (b, i + 1), (a, i + 1), (a, i)]
        if corners:
            codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * (len(corners) // 5)
            axes.add_patch(PathPatch(Path(corners, codes), facecolor=color, alpha=shade / LEVELS, linewidth=0))


def _lines(row: Sequence[Axes], values: np.ndarray, change: np.ndarray, index: int) -> None:
    """Lines over time, the perturbed input dotted."""
    t = np.arange(len(values))
    for k in range(values.shape[1]):
        color = series_color(index + k)
        row[0].plot(t, values[:, k], color=color, linewidth=1.2)
        row[0].plot(t, values[:, k] + change[:, k], color=color, linewidth=1.0, linestyle=(0, (1.2, 1.4)))
        row[1].plot(t, change[:, k], color=color, linewidth=1.2)
    for axes in row:
        axes.set_xlabel("time step")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
