"""Price of a proof: accuracy against the guaranteed time after which a difference of states is halved."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from ..stored.facts import SEQUENCES, accuracy, halved_in_sequences, proved_range, recommended, scope
from ..stored.records import ModelRecord
from . import layout
from .figure import MUTED, PROVEN, WIDTH, Figure, blank, color_of
from .layout import Drawing, Label, Table

READING = f"Models further left forget faster. Shaded: halved within {SEQUENCES:g} training lengths."
RANGED = " {}: for inputs in a range alone, from the step on at which the proof holds."


def accuracy_price(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure; ``None`` for fewer than two accuracies, or without a proof of a known halving time."""
    known = [m for m in models if accuracy(m) and (m.state != "certified" or halved_in_sequences(m))]
    if len(known) < 2 or not any(halved_in_sequences(m) for m in known):
        return None
    best = recommended(models)
    ranged = [m.title for m in known if m.state == "certified" and proved_range(m)]
    reading = READING + (RANGED.format(", ".join(ranged)) if ranged else "")
    finding, draw = partial(_finding, best=best), partial(_draw, best=best)
    return layout.figure_of("price", known, _rows, finding, lambda _: reading, _protocol, draw)


def _rows(model: ModelRecord) -> Table:
    row = (model.state, halved_in_sequences(model), *(accuracy(model) or ()))
    return pd.DataFrame([row], columns=["verdict", "halved_within_sequences", "accuracy", "low", "high"])


def _draw(models: Sequence[ModelRecord], table: Table, best: ModelRecord | None) -> Drawing:
    table = table[table["model"].isin([m.name for m in models])]
    drawing, times = blank(WIDTH, 3.5), table["halved_within_sequences"].to_numpy(dtype=float)
    others = int(np.isnan(times).sum())
    ratios = (3, 0.9) if others else (1,)
    left, *rest = np.ravel(drawing.subplots(1, len(ratios), sharey=True, width_ratios=ratios))
    low, high = min(np.nanmin(times), 1.0) / 2.2, max(np.nanmax(times), SEQUENCES) * 2.2
    left.set(xscale="log", xlim=(low, high), ylabel="test accuracy")
    left.axvspan(low, SEQUENCES, color=PROVEN, alpha=0.06, linewidth=0)
    layout.logarithmic(left.xaxis, 6)
    length = layout.common_length(models)
    unit = f"training lengths (of {length} steps)" if length else "training lengths"
    left.set_xlabel(f"guaranteed to halve a difference within … {unit}")
    for axes, words, color in zip((left, *rest), ("proven stable", "no proof of stability"), (PROVEN, MUTED)):
        axes.set_title(words, color=color)
        axes.grid(axis="y")
        layout.percents(axes.yaxis)
    names, covered = layout.short_names(models), np.empty((0, 2))
    labels: list[Label] = []
    aside: list[Label] = []
    for m, time, value, below, above in zip(models, times, *(table[c] for c in ("accuracy", "low", "high"))):
        color, free = color_of(m.state), bool(np.isnan(time))
        axes, at = (rest[0], (len(aside) + 1) / (others + 1)) if free else (left, time)
        axes.plot([at, at], [below, above], color=color, linewidth=1.2, alpha=0.7)
        shape = "o" if m.state in ("certified", "refuted") else "s"
        axes.plot(at, value, shape, color=color, markersize=9 if m is best else 6.5)
        (aside if free else labels).append((names[m.name], at, value, color))
        if not free:
            bar = np.column_stack([np.full(15, at), np.linspace(below, above, 15)])
            covered = np.vstack([covered, bar, [(0.97 * at, value), (1.03 * at, value)]])
    for axes in rest:
        axes.set(xlim=(0, 1), xticks=[])
        layout.name_ends(axes, aside)
    layout.place(left, labels, covered)
    return drawing


def _finding(models: Sequence[ModelRecord], table: Table, best: ModelRecord | None) -> str:
    titles, table = {m.name: m.title for m in models}, table.set_index("model")
    shares, proven = table["accuracy"], table["accuracy"][table["halved_within_sequences"].notna()]
    top, kept = str(shares.idxmax()), best.name if best is not None and best in models else str(proven.idxmax())
    if shares[kept] == shares[top]:
        ranged = next((f" {scope(m)}" for m in models if m.name == kept and proved_range(m)), "")
        return f"The most accurate network, {titles[kept]} ({100 * shares[kept]:.1f}\xa0%), is proven stable{ranged}."
    return (
        f"With a proof, {titles[kept]} is {100 * (shares[top] - shares[kept]):.1f} points behind the most accurate "
        f"network, {titles[top]} ({100 * shares[kept]:.1f} against {100 * shares[top]:.1f}\xa0%)."
    )


def _protocol(model: ModelRecord) -> list[str]:
    if model.trainings.several:
        return ["", f"bars: 95 % intervals over {len(model.trainings.runs)} trainings"]
    task = model.analysis.get("task")
    n = model.performance.get("sequences") or (task.get("test") if isinstance(task, dict) else None)
    return [layout.amount(n, "test sequence"), "bars: 95 % intervals of sampling, one training each"]
