"""Robustness to changes of the input: certified and attacked accuracy, and radii of single inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from ..formatting import number
from ..stored.facts import accuracy, attack_size, attack_sizes, attacked, certified_accuracy
from ..stored.records import ModelRecord
from . import layout
from .figure import INK, MUTED, UNDECIDED, WIDTH, Figure, blank, color_of
from .layout import SIZE, Axes, Drawing, Table

STEPS = ("attacks", "robustness")
NO_ACCURACY = (np.nan, np.nan, np.nan)
READING = (
    "Tick: certified accuracy. Dot: accuracy under the strongest attack, with 95 % interval. On equal samples "
    "the truth lies between. Diamond: accuracy without a change."
)


def robustness(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure of ranges of accuracy under l2 changes of two sizes; ``None`` if no model was attacked."""
    sizes, size = attack_sizes(models), attack_size(models)
    sizes = sizes[1:3] if len(sizes) > 2 else sizes
    if size is None:
        return None
    rows, finding, draw = partial(_rows, sizes=sizes), partial(_finding, size=size), partial(_ranges, sizes=sizes)
    return layout.figure_of("robustness", models, rows, finding, lambda _: READING, STEPS, draw, means=True)


def _rows(model: ModelRecord, sizes: Sequence[float]) -> Table:
    clean = (accuracy(model) or NO_ACCURACY)[0]
    sizes = sizes if "attacks" in model.frames else ()
    rows = [(size, certified_accuracy(model, size), *(attacked(model, size) or NO_ACCURACY), clean) for size in sizes]
    return pd.DataFrame(rows, columns=["l2_size", "certified", "attacked", "low", "high", "undisturbed"], dtype=float)


def _named_rows(models: Sequence[ModelRecord], wide: int) -> tuple[Drawing, list[Axes]]:
    """Return axes with a row for each model, named in the color of its verdict, the first one at the top."""
    drawing, names = blank(WIDTH, 0.235 * max(len(models), 2) + 0.75), layout.short_names(models)
    grid = list(drawing.subplots(1, wide, sharey=True, squeeze=False)[0])
    grid[0].set_yticks(range(len(models)), [names[m.name] for m in models])
    grid[0].set_ylim(len(models) - 0.4, -0.6)
    for label, model in zip(grid[0].get_yticklabels(), models):
        label.set_color(color_of(model.state))
    for axes in grid:
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1)
        layout.percents(axes.xaxis)
    return drawing, grid


def _ranges(models: Sequence[ModelRecord], table: Table, sizes: Sequence[float]) -> Drawing:
    drawing, grid = _named_rows(models, len(sizes))
    for axes, size in zip(grid, sizes):
        axes.set_title(f"L2 change of the whole sequence ≤ {number(size)}", color=INK)
        axes.set_xlabel("test accuracy")
        axes.grid(axis="x")
        rows = table[table["l2_size"] == size].set_index("model")
        for at, model in enumerate(models):
            row = rows.loc[model.name]
            color, is_certified, after_attack = color_of(model.state), pd.notna(row["certified"]), row["attacked"]
            start, shade, alpha = (row["certified"], color, 0.3) if is_certified else (0.0, UNDECIDED, 0.15)
            axes.barh(at, after_attack - start, 0.42, start, color=shade, alpha=alpha)
            if is_certified:
                axes.plot([start, start], [at - 0.27, at + 0.27], color=color, linewidth=2.4, clip_on=False)
            else:
                free = 0.01 if after_attack > 0.15 else row["high"] + 0.02
                axes.text(free, at, "no bound", color=MUTED, va="center", fontsize=SIZE)
            axes.plot([row["low"], row["high"]], [at, at], color=color, linewidth=1.3, clip_on=False)
            axes.plot(after_attack, at, "o", color=color, markersize=5, clip_on=False)
            axes.plot(row["undisturbed"], at, "D", mec=MUTED, mfc="none", mew=0.9, markersize=4, clip_on=False)
    return drawing


def _finding(models: Sequence[ModelRecord], table: Table, size: float) -> str:
    table = table[table["l2_size"] == size]
    bounds = table.set_index("model")["certified"].dropna()
    proven = [m for m in models if m.state == "certified" and m.name in bounds.index]
    where, shares = f"at an L2 change of {number(size)}", [layout.share(f(table["attacked"])) for f in (min, max)]
    least, most = (layout.share(f([bounds[m.name] for m in proven] or [0.0]), proved=True) for f in (min, max))
    if len(models) == 1:
        certified = f"; {layout.share(bounds.iloc[0], proved=True)} is certified" if len(bounds) else ""
        return f"The strongest attack {where} leaves {models[0].title} {shares[0]} accuracy{certified}."
    if len(proven) > 1:
        return f"Stable does not mean robust: {where}, certified accuracy of proven networks is {least} to {most}."
    if proven:
        return f"The certified accuracy of {proven[0].title} {where} is {least}."
    return f"No proven network has a certified accuracy {where}; the strongest attack leaves {' to '.join(shares)}."


def single_inputs(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure of certified radii of single inputs divided by attacked ones; ``None`` without radii."""
    reading = "Each dot is one correctly classified input; bar: median. 100 %: the proof reaches the attack."
    return layout.figure_of("single-inputs", models, _ratios, _tightness, lambda _: reading, ("local",), _strips)


def _ratios(model: ModelRecord) -> Table:
    frame = model.frames.get("local", pd.DataFrame(columns=["correct"]))
    frame = frame.reindex(columns=["index", "radius", "attack_radius", "correct"])
    frame = frame[(frame["correct"] > 0) & (frame["attack_radius"] > 0)].drop(columns="correct")
    return frame.assign(share=np.minimum(frame["radius"] / frame["attack_radius"], 1.0))


def _strips(models: Sequence[ModelRecord], table: Table) -> Drawing:
    drawing, (axes,) = _named_rows(models, 1)
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("certified radius, as a share of the smallest attack found")
    for at, model in enumerate(models):
        values, color = table.loc[table["model"] == model.name, "share"].to_numpy(), color_of(model.state)
        cells = np.round(values / 0.01)
        for near in (values[cells == k] for k in np.unique(cells)):
            heights = (np.arange(len(near)) - (len(near) - 1) / 2) * min(0.15, 0.56 / len(near))
            axes.plot(near, at + heights, "o", color=color, alpha=0.6, markersize=4.2, mew=0, clip_on=False)
        axes.plot([np.median(values)] * 2, [at - 0.38, at + 0.38], color=color, linewidth=2.2, clip_on=False)
        axes.text(1.015, at, f"n = {len(values)}", color=MUTED, va="center", fontsize=SIZE)
    return drawing


def _tightness(models: Sequence[ModelRecord], table: Table) -> str:
    middle = table.groupby("model")["share"].median()
    best, least = (float(f(middle)) for f in (max, min))
    top, bottom = ([m.title for m in models if abs(middle[m.name] - v) < 0.005] for v in (best, least))
    start = f"The median certified radius is {layout.share(best, proved=True)} of the smallest attack found"
    if len(models) == len(top):
        return f"{start}." if len(models) > 1 else f"{start} for {top[0]}."
    names = [layout.joined(n) if len(n) < 4 else f"{len(n)} networks" for n in (top, bottom)]
    return f"{start} for {names[0]}, {layout.share(least, proved=True)} for {names[1]}."
