"""Price of a proof: accuracy against the guaranteed time after which a difference of states is halved."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..formatting import count, number
from ..stored.facts import SEQUENCES, accuracy, halved_in_sequences, recommended
from ..stored.records import ModelRecord
from .figure import MUTED, PROVEN, WIDTH, Figure, blank, color_of
from .layout import joined, logarithmic, name_ends, percents, place, power, protocol, selected, short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


def accuracy_price(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure; ``None`` for fewer than two accuracies, or without a proof of a known halving time."""
    shown, note = selected([m for m in models if accuracy(m) is not None and (m.state != "certified" or _time(m))])
    if len(shown) < 2 or not any(_time(m) for m in shown):
        return None
    rows = [(m.name, m.state, _time(m), *(accuracy(m) or ())) for m in shown]
    table = pd.DataFrame(rows, columns=["model", "verdict", "halved_within_sequences", "accuracy", "low", "high"])
    reading = f"Models further left forget faster. Shaded: halved within {SEQUENCES:g} training lengths.{note}"
    best = recommended(models)
    draw = partial(_draw, shown, table, best.name if best else "")
    return Figure("price", _finding(shown, best), reading, protocol(shown, _protocol), table, draw)


def _time(model: ModelRecord) -> float | None:
    return halved_in_sequences(model) or None


def _draw(models: Sequence[ModelRecord], table: pd.DataFrame, best: str) -> Drawing:
    drawing, others = blank(WIDTH, 3.6), [m for m in models if not _time(m)]
    left, right = drawing.subplots(1, 2, sharey=True, width_ratios=(3, 0.9)) if others else (drawing.subplots(), None)
    times = [t for m in models if (t := _time(m))]
    low, high = min(*times, 1.0) / 2.2, max(*times, SEQUENCES) * 2.2
    left.set_xscale("log")
    left.set_xlim(low, high)
    logarithmic(left.xaxis, 6)
    left.axvspan(low, SEQUENCES, color=PROVEN, alpha=0.06, linewidth=0)
    known = {m.length for m in models}
    unit = f" (of {next(iter(known))} steps)" if len(known) == 1 else ""
    left.set_xlabel(f"guaranteed to halve any difference within … training lengths{unit}")
    left.set_ylabel("test accuracy")
    left.set_title("proven stable", color=PROVEN)
    names, avoid = short_names(models), []
    for axes in filter(None, (left, right)):
        axes.grid(axis="y")
        percents(axes.yaxis)
    labels, aside = [], []
    for m, (_, _, time, value, below, above) in zip(models, table.itertuples(index=False)):
        axes = left if _time(m) else right
        at = time if axes is left else (len(aside) + 1) / (len(others) + 1)
        axes.plot([at, at], [below, above], color=color_of(m.state), linewidth=1.2, alpha=0.7)
        shape = "o" if m.state in ("certified", "refuted") else "s"
        axes.plot(at, value, shape, color=color_of(m.state), markersize=9 if m.name == best else 6.5)
        (labels if axes is left else aside).append((names[m.name], at, value, color_of(m.state)))
        if axes is left:
            avoid += [(at, v) for v in np.linspace(below, above, 15)] + [(at * f, value) for f in (0.97, 1.03)]
    if right is not None:
        _aside(right, aside)
    place(left, labels, np.array(avoid))
    return drawing


def _aside(axes: Axes, labels: list[tuple[str, float, float, str]]) -> None:
    """Finish the axes of the models without a proof."""
    axes.set_title("no proof of stability", color=MUTED)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_locator(NullLocator())
    name_ends(axes, labels)


def _finding(models: Sequence[ModelRecord], best: ModelRecord | None) -> str:
    share = {m.name: (accuracy(m) or (0.0,))[0] for m in models}
    top = max(models, key=lambda m: share[m.name])
    kept = best if best in models else max((m for m in models if _time(m)), key=lambda m: share[m.name])
    points = 100 * (share[top.name] - share[kept.name])
    if _time(top) and (kept is top or not best):
        return f"The most accurate network, {top.title} ({100 * share[top.name]:.1f} %), is proven stable."
    if points < 0.05:
        return f"With a proof, {kept.title} is as accurate as the most accurate network, {top.title}."
    return (
        f"With a proof, {kept.title} is {points:.1f} points behind the most accurate network, {top.title} "
        f"({100 * share[kept.name]:.1f} against {100 * share[top.name]:.1f} %)."
    )


def _protocol(model: ModelRecord) -> str:
    runs = model.trainings.runs
    if model.trainings.several:
        return f"bars: 95 % intervals over {len(runs)} trainings"
    task = model.analysis.get("task")
    n = model.performance.get("sequences") or (task.get("test") if isinstance(task, dict) else None)
    return f"{count(n)} test sequences; bars: 95 % intervals of sampling; one training each" if n else ""
