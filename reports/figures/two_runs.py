"""Distance of two trajectories under one input: measured on data, proved for all, and of the counterexample."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from ..formatting import bound_at
from ..stored.facts import bounds, is_fast, is_layerwise, limits, proved_range
from ..stored.records import ModelRecord, select
from . import layout
from .figure import INK, MUTED, PROVEN, REFUTED, RULE, Figure
from .layout import Axes, Drawing, Table

LOWEST, HIGHEST = 1e-5, 1e4
"""Largest range of the vertical axis; lines are cut at its ends."""
POINTS = 200  # vertices of a line
KINDS = {
    "data": ("test data", INK, "Black line and band: test data, median and middle 80 %. "),
    "proved": ("proved for all", PROVEN, "Blue: proved upper bound for every pair of states. "),
    "counter": ("counterexample", REFUTED, "Orange, dashed: the counterexample, simulated. "),
}
"""Label, color and sentence of each kind of line."""


def envelope(model: ModelRecord, steps: np.ndarray) -> np.ndarray | None:
    """Return the proved bound after some steps, the smallest of all certified ``C rho^k``; ``None`` without a proof."""
    summary = model.certificate or {}
    pairs = summary.get("pairs", ())
    if model.state != "certified" or not pairs or not model.is_discrete or summary.get("driven") or is_layerwise(model):
        return None
    return np.array([bound_at(float(k), pairs, True) for k in steps], dtype=float)


def two_runs(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure; ``None`` without any pair and any proof."""
    measured = [int(m.frames["pairs"]["t"].to_numpy().max()) for m in models if "pairs" in m.frames]
    last = max(1, min(1000, max(measured or [3 * m.length for m in models if m.length] or [100])))
    reading = partial(_reading, line="Vertical line: trained length." * any(m.length for m in models))
    return layout.figure_of("two-runs", models, partial(_rows, last=last), _finding, reading, ("pairs",), _draw)


def _reading(table: Table, line: str) -> str:
    words = "".join(text for kind, (_, _, text) in KINDS.items() if (table["curve"] == kind).any())
    return f"Distance of two runs that read the same input. {words}{line}".rstrip()


def _rows(model: ModelRecord, last: int) -> Table:
    """Return the drawn points of a model's lines; a bound is given by its vertices, since its logarithm is linear."""
    parts, steps = [], np.arange(last + 1)
    proved, frame = envelope(model, steps), model.frames.get("pairs")
    if proved is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            bends = np.flatnonzero(~(np.abs(np.diff(np.log(proved), 2)) < 1e-9)) + 1
        keep = np.unique(np.concatenate([steps[:: max(1, last // POINTS)], bends, steps[-1:]]))
        parts.append(pd.DataFrame({"curve": "proved", "step": keep, "value": proved[keep]}))
    for kind in ("data", "counter"):
        rows = pd.DataFrame() if frame is None else select(frame, what=kind).assign(curve=kind)
        rows = rows.rename(columns={"t": "step", "q50": "value", "q10": "low", "q90": "high"})
        parts.append(rows.iloc[:: max(1, len(rows) // POINTS)])
    columns = ["curve", "step", "value", "low", "high"]
    return pd.concat(parts).reindex(columns=columns) if parts else pd.DataFrame()


def _draw(models: Sequence[ModelRecord], table: Table) -> Drawing:
    drawing, grid = layout.panels(models, "steps", "distance / initial distance")
    values, last = table[["value", "low", "high"]].to_numpy(dtype=float), int(table["step"].max())
    values = values[np.isfinite(values) & (values > 0)]
    low = max(LOWEST, min(0.1, 0.7 * float(values.min(initial=1.0))))
    high = min(HIGHEST, max(2.0, 2.0 * float(values.max(initial=1.0))))
    grid[0].set(xlim=(0, last), yscale="log", ylim=(low, high))
    layout.logarithmic(grid[0].yaxis)
    layout.lengths(grid[0].xaxis, layout.common_length(models), last)
    labelled: set[str] = set()
    for axes, model in zip(grid, models):
        rows = {str(kind): part for kind, part in select(table, model=model.name).groupby("curve")}
        _lines(axes, model, rows, low)
        lines = {kind: layout.along(part["step"], part["value"], axes) for kind, part in rows.items()}
        inside = {kind: p[(p[:, 1] > low) & (p[:, 1] < high)] for kind, p in lines.items() if kind not in labelled}
        labels = [(KINDS[k][0], *p[len(p) // 2], KINDS[k][1]) for k, p in inside.items() if len(p)]
        labelled.update(k for k, p in inside.items() if len(p))
        layout.place(axes, labels, np.concatenate(list(lines.values())))
    return drawing


def _lines(axes: Axes, model: ModelRecord, rows: dict[str, Table], low: float) -> None:
    axes.axhline(1.0, color=MUTED, linewidth=0.8, linestyle=":")
    if model.length is not None:
        axes.axvline(model.length, color=RULE, linewidth=1.0, zorder=0.6)
    if (data := rows.get("data")) is not None:
        axes.fill_between(data["step"], data["low"], data["high"], color=INK, alpha=0.2, linewidth=0)
        axes.plot(data["step"], data["value"], color=INK, linewidth=1.2)
    if (counter := rows.get("counter")) is not None:
        axes.plot(counter["step"], counter["value"], color=REFUTED, linewidth=1.7, dashes=(4, 1.6))
    if (proved := rows.get("proved")) is not None:
        axes.fill_between(proved["step"], low / 10, proved["value"], color=PROVEN, alpha=0.08, linewidth=0)
        axes.plot(proved["step"], proved["value"], color=PROVEN, linewidth=2.0, gid=f"curve:{model.name}")


def _finding(models: Sequence[ModelRecord], _: Table) -> str:
    stable, unstable = ([m for m in models if m.state == s and not bounds(m)] for s in ("certified", "refuted"))
    if len(models) == 1:
        if bounds(models[0]):
            return f"No proof bounds the distance of two runs of {models[0].title}; its state is proven bounded."
        if is_layerwise(models[0]):
            return f"{models[0].title} is proven stable{limits(models[0])}."
        is_stable = f"is proven stable{limits(models[0])}: differences between two runs under one input die out"
        is_unstable = "is proven not stable: there is a counterexample"
        word = is_stable if stable else is_unstable if unstable else "is undecided: neither bound nor counterexample"
        return f"{models[0].title} {word}."
    if not stable:
        rest = f"{len(unstable)} of {len(models)} are proven not stable" if unstable else "none is proven not stable"
        return f"No network is proven {'to contract' if any(map(bounds, models)) else 'stable'}; {rest}."
    subject = f"the {len(stable)} proven networks" if len(stable) > 1 else f"{stable[0].title}, which is proven stable"
    subject = f"all {len(stable)} networks, which are proven stable" if len(stable) == len(models) else subject
    ranged, layered = ([m for m in stable if test(m)] for test in (proved_range, is_layerwise))
    slow = [m.title for m in stable if not is_fast(m)]
    notes = [f"{len(ranged)} for a range of inputs only"] * bool(ranged)
    notes += [f"{len(layered)} layer by layer, each layer with its own input"] * bool(layered)
    notes += [f"slowly in {layout.joined(slow)}"] * (0 < len(slow) < 4 and not ranged)
    subject += limits(stable[0]) if len(stable) == 1 else f" ({'; '.join(notes)})" * bool(notes)
    others = f"; {len(unstable)} {'is' if len(unstable) == 1 else 'are'} proven not stable" * bool(unstable)
    return f"Differences die out in {subject}{others}."
