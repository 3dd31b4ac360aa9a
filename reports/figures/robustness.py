"""Robustness to changes of the input: certified and attacked accuracy, and radii of single inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from ..boxes import interval
from ..formatting import number
from ..stored.facts import accuracy, attack_size, attack_sizes, attacked, certified_accuracy
from ..stored.records import ModelRecord
from . import layout
from .figure import INK, MUTED, UNDECIDED, WIDTH, Figure, blank, color_of
from .layout import SIZE, Axes, Drawing, Table

NONE = (np.nan, np.nan, np.nan)
READING = (
    "Tick: certified accuracy. Dot: accuracy under the strongest attack, with 95 % interval. On equal samples "
    "the truth lies between. Diamond: accuracy without a change."
)


def robustness(models: Sequence[ModelRecord]) -> Figure | None:
    """Return ranges of accuracy under l2 changes of two sizes; ``None`` where no model was attacked."""
    sizes, size = attack_sizes(models), attack_size(models)
    sizes = sizes[1:3] if len(sizes) > 2 else sizes
    if size is None:
        return None
    rows, finding, draw = partial(_rows, sizes=sizes), partial(_finding, size=size), partial(_ranges, sizes=sizes)
    return layout.figure_of("robustness", models, rows, finding, lambda _: READING, _protocol, draw)


def _rows(model: ModelRecord, sizes: Sequence[float]) -> Table:
    found = [(e, certified_accuracy(model, e), attacked(model, e) or NONE) for e in sizes if "attacks" in model.frames]
    rows = [(size, bound, *left, (accuracy(model) or NONE)[0]) for size, bound, left in found]
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
            color, known, left = color_of(model.state), pd.notna(row["certified"]), row["attacked"]
            start, shade, alpha = (row["certified"], color, 0.3) if known else (0.0, UNDECIDED, 0.15)
            axes.barh(at, left - start, 0.42, start, color=shade, alpha=alpha)
            if known:
                axes.plot([start, start], [at - 0.27, at + 0.27], color=color, linewidth=2.4, clip_on=False)
            else:
                axes.text(0.01, at, "no bound", color=MUTED, va="center", fontsize=SIZE)
            axes.plot([row["low"], row["high"]], [at, at], color=color, linewidth=1.3, clip_on=False)
            axes.plot(left, at, "o", color=color, markersize=5, clip_on=False)
            axes.plot(row["undisturbed"], at, "D", mec=MUTED, mfc="none", mew=0.9, markersize=4, clip_on=False)
    return drawing


def _finding(models: Sequence[ModelRecord], table: Table, size: float) -> str:
    table = table[table["l2_size"] == size]
    bounds = table.set_index("model")["certified"].dropna()
    proven = [m for m in models if m.state == "certified" and m.name in bounds.index]
    where, ends = f"at an L2 change of {number(size)}", [layout.share(f(table["attacked"])) for f in (min, max)]
    if len(models) == 1:
        kept = f"{layout.share(bounds[models[0].name])} is certified and " if models[0].name in bounds.index else ""
        return f"Accuracy of {models[0].title} {where}: {kept}{ends[0]} is left by the strongest attack."
    if len(proven) > 1:
        least, most = (layout.share(f(bounds[m.name] for m in proven)) for f in (min, max))
        return f"Stable is not yet robust: {where}, certified accuracy of proven networks runs from {least} to {most}."
    if proven:
        return f"{proven[0].title} keeps {layout.share(bounds[proven[0].name])} certified accuracy {where}."
    return f"No proven network has a certified accuracy {where}; the strongest attack leaves {ends[0]} to {ends[1]}."


def _protocol(model: ModelRecord) -> list[str]:
    frame: Table = model.frames["attacks"]
    certified = model.documents.get("radius", {}).get("samples")
    inside, runs = interval(model.analysis.get("input_range")), len(model.trainings.runs)
    sizes = [layout.amount(layout.budget(model, f"{noun}s"), noun) for noun in ("step", "start")]
    sizes.append(layout.amount(float(frame["n"].max()), "test sequence") if "n" in frame else "")
    limits = [inside and f"inputs clipped to {inside}", f"means over {runs} trainings" if runs > 1 else ""]
    bound = certified and f"certified: {layout.amount(certified, 'sequence')} by a gain in double precision"
    return ["attack: DeepFool, then APGD", *sizes, *limits, bound or ""]


def single_inputs(models: Sequence[ModelRecord]) -> Figure | None:
    """Return a strip plot of certified over attacked radii of single inputs; ``None`` where there are none."""
    reading = "Each dot is one correctly classified input; bar: median. 100 %: the proof reaches the attack."
    return layout.figure_of("single-inputs", models, _ratios, _tightness, lambda _: reading, _single_protocol, _strips)


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
    said = f"The median certified radius is {layout.share(best)} of the smallest attack found"
    if len(models) == len(top):
        return f"{said}." if len(models) > 1 else f"{said} for {top[0]}."
    names = [layout.joined(n) if len(n) < 4 else f"{len(n)} networks" for n in (top, bottom)]
    return f"{said} for {names[0]}, {layout.share(least)} for {names[1]}."


def _single_protocol(model: ModelRecord) -> list[str]:
    found, restarts = model.documents.get("local", {}), layout.budget(model, "restarts")
    tried = f"attacks with {layout.amount(restarts, 'restart')}" if restarts else ""
    trials = "certified radii are the largest of a fixed number of trials" if found.get("counted") else ""
    return [layout.amount(found.get("samples"), "test sequence"), tried, trials]
