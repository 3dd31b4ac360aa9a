"""Robustness to changes of the input: certified and attacked accuracy, and radii of single inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..boxes import interval
from ..formatting import count, number
from ..stored.facts import accuracy, attack_sizes, attacked, certified_accuracy
from ..stored.records import ModelRecord
from .figure import INK, MUTED, UNDECIDED, WIDTH, Figure, blank, color_of
from .layout import SIZE, counted, joined, percents, protocol, selected, short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


def robustness(models: Sequence[ModelRecord]) -> Figure | None:
    """Return ranges of accuracy under l2 changes of two sizes; ``None`` where no model was attacked."""
    shown, note = selected([m for m in models if "attacks" in m.frames])
    sizes = attack_sizes(shown)[1:3] or attack_sizes(shown)[:1]
    if not sizes:
        return None
    rows = [
        (m.name, size, certified_accuracy(m, size), *(attacked(m, size) or [None] * 3), (accuracy(m) or [None])[0])
        for size in sizes
        for m in shown
    ]
    table = pd.DataFrame(rows, columns=["model", "l2_size", "certified", "attacked", "low", "high", "undisturbed"])
    reading = (
        "Tick: certified accuracy. Dot: accuracy under the strongest attack, with 95 % interval. The true value lies "
        f"between. Diamond: accuracy without a change.{note}"
    )
    title = _finding(shown, table[table["l2_size"] == sizes[0]], sizes[0])
    draw = partial(_ranges, shown, table, sizes)
    return Figure("robustness", title, reading, protocol(shown, _protocol), table, draw)


def _rows(models: Sequence[ModelRecord], wide: int, share: float = 0.235) -> tuple[Drawing, list[Axes]]:
    """Return axes with a row for each model, named in the color of its verdict, the first one at the top."""
    drawing = blank(WIDTH, share * max(len(models), 2) + 0.75)
    grid = list(drawing.subplots(1, wide, sharey=True, squeeze=False)[0])
    names = short_names(models)
    grid[0].set_yticks(range(len(models)), [names[m.name] for m in models])
    grid[0].set_ylim(len(models) - 0.4, -0.6)
    for label, model in zip(grid[0].get_yticklabels(), models):
        label.set_color(color_of(model.state))
    for axes in grid:
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1)
        percents(axes.xaxis)
    return drawing, grid


def _ranges(models: Sequence[ModelRecord], table: pd.DataFrame, sizes: Sequence[float]) -> Drawing:
    drawing, grid = _rows(models, len(sizes))
    for axes, size in zip(grid, sizes):
        axes.set_title(f"L2 change of the whole sequence ≤ {number(size)}", color=INK)
        axes.set_xlabel("test accuracy")
        axes.grid(axis="x")
        own = table[table["l2_size"] == size].to_dict("records")
        for at, (model, row) in enumerate(zip(models, own)):
            color, bound = color_of(model.state), row["certified"]
            known, left = pd.notna(bound), row["attacked"]
            start = bound if known else 0.0
            axes.barh(at, left - start, 0.42, start, color=color if known else UNDECIDED, alpha=0.3 if known else 0.15)
            if known:
                axes.plot([bound, bound], [at - 0.27, at + 0.27], color=color, linewidth=2.4, clip_on=False)
            else:
                axes.text(0.01, at, "no bound", color=MUTED, va="center", fontsize=SIZE)
            axes.plot([row["low"], row["high"]], [at, at], color=color, linewidth=1.3, clip_on=False)
            axes.plot(left, at, "o", color=color, markersize=5, clip_on=False)
            axes.plot(row["undisturbed"], at, "D", mec=MUTED, mfc="none", mew=0.9, markersize=4, clip_on=False)
    return drawing


def _finding(models: Sequence[ModelRecord], table: pd.DataFrame, size: float) -> str:
    bounds = {m.name: v for m, v in zip(models, table["certified"]) if pd.notna(v)}
    where, proven = (
        f"an L2 change of {number(size)}",
        [m for m in models if m.state == "certified" and m.name in bounds],
    )
    if len(models) == 1:
        left = f"the strongest attack leaves {_share(table['attacked'].iloc[0])}"
        bound = bounds.get(models[0].name)
        kept = f"{models[0].title} keeps {_share(bound)} certified accuracy; " if bound is not None else ""
        return f"At {where}, {kept}{left}{'' if kept else f' of accuracy for {models[0].title}'}."
    if len(proven) > 1:
        ends = [_share(f(bounds[m.name] for m in proven)) for f in (min, max)]
        return f"Stable is not yet robust: certified accuracy at {where} runs from {ends[0]} to {ends[1]} among the proven networks."
    if proven:
        return f"Of the proven networks, {proven[0].title} alone has a bound: {_share(bounds[proven[0].name])} certified accuracy at {where}."
    ends = [_share(f(table["attacked"])) for f in (min, max)]
    return f"No proven network has certified accuracy at {where}; the strongest attack leaves {ends[0]} to {ends[1]}."


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _protocol(model: ModelRecord) -> str:
    budget = model.analysis.get("budget")
    budget = budget if isinstance(budget, dict) else {}
    made = [f"{count(budget[k])} {unit}" for k, unit in (("steps", "steps"), ("starts", "starts")) if k in budget]
    frame, certified = model.frames["attacks"], model.documents.get("radius", {}).get("samples")
    made += [f"{count(frame['n'].max())} test sequences"] if "n" in frame else []
    made += [f"over {len(model.trainings.runs)} trainings"] if model.trainings.several else []
    inside = interval(model.analysis.get("input_range"))
    made += [f"inputs clipped to {inside}"] if inside else []
    bound = f"; certified: {count(certified)} sequences, gain computed in double precision" if certified else ""
    return f"Attack: DeepFool, then APGD, {', '.join(made)}{bound}"


def single_inputs(models: Sequence[ModelRecord]) -> Figure | None:
    """Return a strip plot of certified over attacked radii of single inputs; ``None`` where there are none."""
    shares = {m.name: found for m in models if (found := _ratios(m)) is not None}
    shown, note = selected([m for m in models if m.name in shares])
    if not shown:
        return None
    table = pd.concat([shares[m.name].assign(model=m.name) for m in shown], ignore_index=True)
    table = table.reindex(columns=["model", "index", "radius", "attack_radius", "share"])
    reading = f"Each dot is one correctly classified input; bar: median. 100 %: nothing is left unknown.{note}"
    draw = partial(_strips, shown, table)
    title = _tightness(shown, table)
    return Figure("single-inputs", title, reading, protocol(shown, _single_protocol), table, draw)


def _ratios(model: ModelRecord) -> pd.DataFrame | None:
    frame = model.frames.get("local")
    if frame is None or "attack_radius" not in frame:
        return None
    frame = frame[(frame["correct"] > 0) & (frame["attack_radius"] > 0)]
    return frame.assign(share=np.minimum(frame["radius"] / frame["attack_radius"], 1.0)) if len(frame) else None


def _strips(models: Sequence[ModelRecord], table: pd.DataFrame) -> Drawing:
    drawing, (axes,) = _rows(models, 1)
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("certified radius, as a share of the smallest attack found")
    for at, model in enumerate(models):
        values, color = np.sort(table.loc[table["model"] == model.name, "share"].to_numpy()), color_of(model.state)
        place, heights = -np.inf, []
        for value in values:  # neighbors go above and below in turns
            heights = (
                [*heights, (abs(heights[-1]) + 0.11 * (heights[-1] >= 0)) * (-1) ** len(heights)]
                if value - place < 0.008
                else [0.0]
            )
            place = value
            axes.plot(value, at + heights[-1], "o", color=color, alpha=0.6, markersize=4.5, mew=0, clip_on=False)
        axes.plot([np.median(values)] * 2, [at - 0.36, at + 0.36], color=color, linewidth=2.4, clip_on=False)
        axes.text(1.015, at, f"n = {len(values)}", color=MUTED, va="center", fontsize=SIZE)
    return drawing


def _tightness(models: Sequence[ModelRecord], table: pd.DataFrame) -> str:
    middle = table.groupby("model")["share"].median()
    best, least = float(middle.max()), float(middle.min())
    titles = {m.name: m.title for m in models}
    top = [titles[str(name)] for name in middle.index[middle > best - 0.005]]
    bottom = titles[str(middle.idxmin())]
    if len(models) == 1:
        return f"Half of the certified radii of {bottom} reach {_share(best)} or more of the smallest attack found."
    if best - least < 0.01:
        return f"The median certified radius is {_share(best)} of the smallest attack found."
    many = joined(top) if len(top) < 4 else counted(len(top), "network")
    return f"The median certified radius is {_share(best)} of the smallest attack found for {many}, {_share(least)} for {bottom}."


def _single_protocol(model: ModelRecord) -> str:
    found, budget = model.documents.get("local", {}), model.analysis.get("budget")
    restarts = budget.get("restarts") if isinstance(budget, dict) else None
    parts = [f"{count(found['samples'])} test sequences"] if found.get("samples") else []
    parts += [f"attacks with {counted(restarts, 'restart')}"] if restarts else []
    parts += ["certified radii: each the largest of a fixed number of trials"] if found.get("counted") else []
    return ", ".join(parts)
