"""Distance of two trajectories under one input: measured on data, proved for all, and of the counter-example."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..formatting import bound_at, count
from ..stored.records import ModelRecord, select
from .figure import INK, MUTED, PROVEN, REFUTED, RULE, Figure
from .layout import along, lengths, logarithmic, panels, place, protocol, selected

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LOWEST, HIGHEST = 1e-5, 1e4
"""Largest range of the vertical axis; lines are cut at its ends."""
KINDS = {"proved": "proved for all", "data": "test data", "counter": "counter-example"}
POINTS = 200  # vertices of a measured line


def envelope(model: ModelRecord, steps: np.ndarray) -> np.ndarray | None:
    """Return the proved bound of every pair after some steps, the least of all certified ``C rho^k``, or ``None``."""
    summary = model.certificate or {}
    pairs = summary.get("pairs", ())
    if model.state != "certified" or not pairs or not model.is_discrete or summary.get("driven"):
        return None
    return np.array([bound_at(float(k), pairs, True) for k in steps], dtype=float)


def two_runs(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure; ``None`` without any pair and any proof."""
    known = [m for m in models if "pairs" in m.frames or envelope(m, np.arange(2)) is not None]
    if not known:
        return None
    shown, note = selected(known)
    last = _horizon(shown)
    table = pd.concat([_rows(m, last) for m in shown], ignore_index=True)
    words = {"data": "Black: test data, median and middle 80 %.", "proved": "Blue: no pair of states, under any input, "
             "lies above.", "counter": "Orange, dashed: the counter-example, simulated."}  # fmt: skip
    reading = " ".join(words[k] for k in words if (table["curve"] == k).any())
    reading = f"Two runs read the same input; the line is their distance. {reading}{note}"
    return Figure(
        "two-runs", _finding(known), reading, protocol(shown, _protocol), table, partial(_draw, shown, table, last)
    )


def _horizon(models: Sequence[ModelRecord]) -> int:
    known = [int(m.frames["pairs"]["t"].to_numpy().max()) for m in models if "pairs" in m.frames]
    assumed = [3 * m.length for m in models if m.length is not None]
    return max(1, min(1000, max(known or assumed or [100])))


def _rows(model: ModelRecord, last: int) -> pd.DataFrame:
    """Return the drawn points of a model's lines; a bound has those of its bends too, between which it is straight."""
    parts, steps = [], np.arange(last + 1)
    proved = envelope(model, steps)
    if proved is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            bends = np.flatnonzero(~(np.abs(np.diff(np.log(proved), 2)) < 1e-9)) + 1
        keep = np.unique(np.concatenate([steps[:: max(1, last // POINTS)], bends, steps[-1:]]))
        parts.append(pd.DataFrame({"curve": "proved", "step": keep, "value": proved[keep]}))
    frame = model.frames.get("pairs")
    for kind in ("data", "counter") if frame is not None else ():
        rows = select(frame, what=kind)
        rows = rows.iloc[:: max(1, len(rows) // POINTS)].assign(curve=kind)
        parts.append(rows.rename(columns={"t": "step", "q50": "value", "q10": "low", "q90": "high"}))
    out = pd.concat(parts, ignore_index=True).assign(model=model.name)
    return out.reindex(columns=["model", "curve", "step", "value", "low", "high"])


def _draw(models: Sequence[ModelRecord], table: pd.DataFrame, last: int) -> Drawing:
    drawing, grid = panels(models)
    seen = table[["value", "low", "high"]].to_numpy(dtype=float)
    seen = seen[np.isfinite(seen) & (seen > 0)]
    low = max(LOWEST, min(0.1, 0.7 * float(seen.min(initial=1.0))))
    high = min(HIGHEST, max(2.0, 2.0 * float(seen.max(initial=1.0))))
    grid[0].set_xlim(0, last)
    grid[0].set_yscale("log")
    grid[0].set_ylim(low, high)
    logarithmic(grid[0].yaxis)
    known = {m.length for m in models}
    lengths(grid[0].xaxis, next(iter(known)) if len(known) == 1 else None, last)
    drawing.supxlabel("steps", fontsize=8.5, color=MUTED)
    drawing.supylabel("distance / initial distance", fontsize=8.5, color=MUTED)
    for axes, model in zip(grid, models):
        axes.axhline(1.0, color=MUTED, linewidth=0.8, linestyle=":")
        if model.length is not None and model.length < last:
            axes.axvline(model.length, color=RULE, linewidth=1.0, zorder=0.6)
        _lines(axes, model, table, low)
    named: set[str] = set()
    for axes, model in zip(grid, models):
        own = select(table, model=model.name)
        fresh = [k for k in KINDS if k not in named and (own["curve"] == k).any()]
        named.update(fresh)
        if fresh:
            drawn = {k: along(part["step"], part["value"], axes) for k, part in own.groupby("curve")}
            visible = {k: p[(p[:, 1] > low) & (p[:, 1] < high)] for k, p in drawn.items()}
            colors = {"proved": PROVEN, "data": INK, "counter": REFUTED}
            labels = [(KINDS[k], *visible[k][len(visible[k]) // 2], colors[k]) for k in fresh if len(visible[k])]
            place(axes, labels, np.concatenate(list(drawn.values())))
    return drawing


def _lines(axes: Axes, model: ModelRecord, table: pd.DataFrame, low: float) -> None:
    rows = {str(kind): part for kind, part in select(table, model=model.name).groupby("curve")}
    if (data := rows.get("data")) is not None:
        axes.fill_between(data["step"], data["low"], data["high"], color=INK, alpha=0.2, linewidth=0)
        axes.plot(data["step"], data["value"], color=INK, linewidth=1.2)
    if (counter := rows.get("counter")) is not None:
        axes.plot(counter["step"], counter["value"], color=REFUTED, linewidth=1.7, dashes=(4, 1.6))
    if (proved := rows.get("proved")) is not None:
        axes.fill_between(proved["step"], low / 10, proved["value"], color=PROVEN, alpha=0.08, linewidth=0)
        axes.plot(proved["step"], proved["value"], color=PROVEN, linewidth=2.0, gid=f"curve:{model.name}")


def _finding(models: Sequence[ModelRecord]) -> str:
    stable, unstable = ([m for m in models if m.state == s] for s in ("certified", "refuted"))
    if len(models) == 1:
        (name,) = (m.title for m in models)
        return (
            f"{name} is proven stable: differences between two runs under one input die out." if stable
            else f"{name} is proven not stable: a counter-example is proved." if unstable
            else f"{name} is undecided: no bound and no counter-example is proved."
        )  # fmt: skip
    if not stable:
        few = f"for {len(unstable)} of {len(models)} a counter-example is proved" if unstable else "none is refuted"
        return f"No network is proven stable; {few}."
    all_of_them = f"all {len(stable)} networks, for every pair of runs that read one input"
    which = f"the {len(stable)} proven networks" if len(stable) > 1 else f"{stable[0].title}, which is proven stable"
    said = f"Differences die out in {all_of_them if len(stable) == len(models) else which}"
    others = {0: "", 1: "; for one other a counter-example is proved"}
    return said + others.get(len(unstable), f"; for {len(unstable)} others a counter-example is proved") + "."


def _protocol(model: ModelRecord) -> str:
    found = model.documents.get("pairs", {})
    if not found.get("pairs"):
        return ""
    first = ", first training" * model.trainings.several
    return (
        f"{count(found['pairs'])} pairs of states that test sequences lead to, {count(found.get('steps'))} steps"
        f"{first}; vertical line: trained length"
    )
