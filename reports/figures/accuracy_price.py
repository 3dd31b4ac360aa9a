"""Price of a proof: test accuracy against the certified halving time of state differences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from ..formatting import percent
from ..stored.facts import SEQUENCES, accuracy, halved_in_sequences, limits, proved_range, recommended
from ..stored.records import ModelRecord
from . import layout
from .figure import MUTED, PROVEN, WIDTH, Figure, blank, color_of
from .layout import Drawing, Label, Table

READING = (
    "Networks further left forget faster; bars are 95 % intervals. "
    f"Shaded: halving times up to {SEQUENCES:g} training lengths."
)
RANGED = " {}: proved for a range of inputs only; the time starts at the first step at which the proof holds."


def accuracy_price(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure; ``None`` for fewer than two accuracies, or if no model has a certified halving time."""
    with_accuracy = [m for m in models if accuracy(m) and (m.state != "certified" or halved_in_sequences(m))]
    if len(with_accuracy) < 2 or not any(halved_in_sequences(m) for m in with_accuracy):
        return None
    best = recommended(models)
    ranged = [m.title for m in with_accuracy if m.state == "certified" and proved_range(m)]
    reading = READING + (RANGED.format(", ".join(ranged)) if ranged else "")
    finding, draw = partial(_finding, best=best), partial(_draw, best=best)
    return layout.figure_of("price", with_accuracy, _rows, finding, lambda _: reading, ("performance",), draw, True)


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
    left.set_xlabel(f"certified halving time of differences, {unit}")
    for axes, words, color in zip((left, *rest), ("proven stable", "no proof of stability"), (PROVEN, MUTED)):
        axes.set_title(words, color=color)
        axes.grid(axis="y")
        layout.percents(axes.yaxis)
    names, covered = layout.short_names(models), np.empty((0, 2))
    labels: list[Label] = []
    unproven_labels: list[Label] = []
    for m, time, value, lower, upper in zip(models, times, *(table[c] for c in ("accuracy", "low", "high"))):
        color, unproven = color_of(m.state), bool(np.isnan(time))
        axes, at = (rest[0], (len(unproven_labels) + 1) / (others + 1)) if unproven else (left, time)
        axes.plot([at, at], [lower, upper], color=color, linewidth=1.2, alpha=0.7)
        shape = "o" if m.state in ("certified", "refuted") else "s"
        axes.plot(at, value, shape, color=color, markersize=9 if m is best else 6.5)
        (unproven_labels if unproven else labels).append((names[m.name], at, value, color))
        if not unproven:
            bar = np.column_stack([np.full(15, at), np.linspace(lower, upper, 15)])
            covered = np.vstack([covered, bar, [(0.97 * at, value), (1.03 * at, value)]])
    for axes in rest:
        axes.set(xlim=(0, 1), xticks=[])
        layout.name_ends(axes, unproven_labels)
    layout.place(left, labels, covered)
    return drawing


def _finding(models: Sequence[ModelRecord], table: Table, best: ModelRecord | None) -> str:
    shares = table.set_index("model")["accuracy"]
    top = next(m for m in models if m.name == shares.idxmax())
    halving = table["model"][table["halved_within_sequences"].notna()]
    proven = (
        best if best is not None and best in models else next(m for m in models if m.name == shares[halving].idxmax())
    )
    high, low = (percent(shares[m.name]).replace(" ", "\xa0") for m in (top, proven))
    if shares[proven.name] == shares[top.name]:
        return f"The most accurate network, {proven.title} ({high}), is proven stable{limits(proven)}."
    return (
        f"With a proof, {proven.title} is {100 * (shares[top.name] - shares[proven.name]):.1f} points behind the most "
        f"accurate network, {top.title} ({low} against {high})."
    )
