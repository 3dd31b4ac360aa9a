"""Two trajectories under one input: their distance over steps, measured and proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from ..formatting import bound_at, number
from ..stored.records import ModelRecord, select
from .small import BAD, GOOD, INK, MUTED, Axis, Plot

LOWEST, HIGHEST = 1e-6, 1e4
"""Range of the vertical axis, distance over that at the start; lines are cut at its ends."""


def distances(model: ModelRecord, what: str) -> pd.DataFrame:
    """The stored distances of the pairs on data, or of the counter-example; empty where there are none."""
    frame = model.frames.get("pairs")
    return pd.DataFrame(columns=["t", "q10", "q50", "q90"]) if frame is None else select(frame, what=what)


def envelope(model: ModelRecord, steps: np.ndarray) -> np.ndarray | None:
    """What is proved of every pair: the least of all certified ``C rho^k``; ``None`` where nothing is."""
    summary = model.certificate or {}
    pairs = summary.get("pairs", ())
    if model.state != "certified" or not pairs or not model.is_discrete or summary.get("driven"):
        return None
    return np.array([bound_at(float(k), pairs, True) for k in steps], dtype=float)


def _horizon(models: Sequence[ModelRecord]) -> int:
    known = [int(cast(Any, m.frames["pairs"]["t"]).max()) for m in models if "pairs" in m.frames]
    lengths = [3 * m.length for m in models if m.length is not None]
    return max(1, min(1000, max(known or lengths or [100])))


def _axis(models: Sequence[ModelRecord], last: int) -> Axis:
    """Return the vertical axis of all models: it holds what was measured and the start of what is proved."""
    seen = [0.1, 2.0]
    for m in models:
        proved = envelope(m, np.arange(last + 1))
        seen += [] if proved is None else [float(proved.max())]
        frame = m.frames.get("pairs")
        if frame is not None:
            values = frame[["q10", "q50", "q90"]].to_numpy(dtype=float)
            seen += [float(v) for v in values[np.isfinite(values) & (values > 0)]]
    return Axis(max(LOWEST, min(seen)), min(HIGHEST, 1.5 * max(seen)), log=True, title="distance / at the start")


def shown(models: Sequence[ModelRecord]) -> list[ModelRecord]:
    """The models of which there is anything to draw."""
    return [m for m in models if "pairs" in m.frames or envelope(m, np.arange(2)) is not None]


def trajectories(models: Sequence[ModelRecord], *, width: float = 300.0) -> list[tuple[ModelRecord, str]]:
    """A small drawing a model, all with the same axes.

    Args:
        models: the records.
        width: of a drawing.

    Returns:
        Model and drawing of each that there is anything of.
    """
    models = shown(models)
    last, out = _horizon(models), []
    y = _axis(models, last)
    for m in models:
        x = Axis(0.0, float(last), title="steps")
        axis = Axis(y.low, y.high, log=True, title=y.title)
        plot = Plot(m.title, x, axis, width=width, height=0.62 * width + 8, row=True)
        out.append((m, _drawn(plot, m, last)))
    return out


def _vertices(model: ModelRecord, last: int) -> np.ndarray:
    """Return up to 200 steps, and those around each change of the certified pair that gives the least bound."""
    even = np.linspace(0, last, min(last + 1, 200)).round()
    bounds = envelope(model, np.arange(last + 1))
    if bounds is None:
        return np.unique(even)
    with np.errstate(divide="ignore", invalid="ignore"):
        bends = np.flatnonzero(~(np.abs(np.diff(np.log(bounds), 2)) < 1e-9))
    return np.unique(np.concatenate([even, bends + 1]))


def _drawn(plot: Plot, model: ModelRecord, last: int) -> str:
    data, counter = distances(model, "data"), distances(model, "counter")
    steps = _vertices(model, last)
    proved = envelope(model, steps)
    plot.level(1.0, dash="2 2")
    if proved is not None:
        plot.band(steps, np.full(len(steps), plot.y.low), proved, GOOD, "proved", opacity=0.10)
    if len(data):
        keep = data.iloc[:: max(1, len(data) // 200)]
        plot.band(keep["t"], keep["q10"], keep["q90"], MUTED, "measured", opacity=0.35)
        plot.line(keep["t"], keep["q50"], INK, "measured", width=1.1)
        plot.name("data", INK, "measured")
    if len(counter):
        keep = counter.iloc[:: max(1, len(counter) // 200)]
        plot.line(keep["t"], keep["q50"], BAD, "measured", width=2.0, dash="5 2")
        plot.name("counter-example", BAD, "measured", dash="5 2")
    if proved is not None:
        plot.line(steps, proved, GOOD, "proved", width=2.0)
        plot.name("proved for all", GOOD, "proved")
    if model.length is not None and model.length < last:
        plot.upright(float(model.length))
        plot.name("trained", MUTED, dash="2 2")
    return plot.svg(finding(model))


def finding(model: ModelRecord) -> str:
    """What the drawing shows, in words and numbers."""
    data, counter = distances(model, "data"), distances(model, "counter")
    when = model.length if model.length is not None else (int(cast(Any, data["t"]).max()) if len(data) else None)
    said = []
    if len(data) and when is not None:
        row = data.iloc[(data["t"] - when).abs().argsort().iloc[0]]
        low, middle, high = (number(float(row[q])) for q in ("q10", "q50", "q90"))
        said.append(
            f"after {int(row['t'])} steps the middle pair on test data is at {middle} of its distance at the start "
            f"(80 % of the pairs between {low} and {high})"
        )
    bound = None if when is None else envelope(model, np.array([float(when)]))
    if bound is not None:
        said.append(f"proved of every pair: at most {number(float(bound[0]))} after {when} steps")
    if len(counter):
        end = counter.dropna(subset=["q50"]).iloc[-1]
        said.append(f"the counter-example is at {number(float(end['q50']))} after {int(end['t'])} steps")
    return f"{model.title}, two trajectories under one input: {'; '.join(said) or 'nothing was measured'}"
