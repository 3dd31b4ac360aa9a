"""Small multiples: a drawing for each model with data, on the same axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from ..formatting import metric_word, number, percent
from ..names import printable, shorten
from ..stored.records import ModelRecord, select
from ..vocabulary import NAMES
from .eigenvalues import NARROW, Region, called
from .small import DASHED, DOTTED, INK, MUTED, Axis, Plot, Rows, color_of

WIDTH, HEIGHT = 240.0, 150.0
SNAPSHOTS = 4
"""Moments of training whose eigenvalues are drawn."""
LOWEST = -0.75
"""Lower end of the axis of exponents; the page says where lines are cut there."""
_POINTS = 120
Drawn = list[tuple[ModelRecord, str]]


def _known(models: Sequence[ModelRecord], frame: str) -> list[ModelRecord]:
    return [m for m in models if frame in m.frames]


def thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """Return at most about 120 evenly spread rows."""
    return frame.iloc[:: max(1, len(frame) // _POINTS)]


def span(values: Iterable[Any], *, log: bool = False, **more: Any) -> Callable[[], Axis]:
    """Return a function that makes an axis for all of these values, one for each drawing."""
    every = np.concatenate([np.asarray(v, dtype=float).ravel() for v in values] or [np.array([0.0, 1.0])])
    every = every[np.isfinite(every) & ((every > 0) | (not log))]
    low, high = (float(every.min()), float(every.max())) if every.size else (0.1, 1.0)
    pad = 0.0 if log else 0.04 * (high - low)
    return lambda: Axis(low - pad, high + pad, log=log, **more)


def drift(models: Sequence[ModelRecord]) -> Drawn:
    """Norm of the hidden state over time: median, band of 80 %, proved bound, and where the sequence ends."""
    known = {m.name: _last(m.frames["norms"]) for m in _known(models, "norms")}
    models = [m for m in models if m.name in known]
    shown = [frame[["q10", "q90"]] for frame in known.values()]
    y, x = span(shown, log=True, title="‖h‖"), span([f["t"] for f in known.values()], title="time step")
    out = []
    for m in models:
        frame, color = thinned(known[m.name]), color_of(m.place - 1)
        plot = Plot(m.title, x(), y(), WIDTH, HEIGHT, row=True)
        plot.band(frame["t"], frame["q10"], frame["q90"], color, "measured")
        plot.line(frame["t"], frame["q50"], color, "measured")
        plot.name("median", color, "measured")
        if "envelope" in frame and (frame["envelope"] <= plot.y.high).to_numpy().any():
            plot.line(frame["t"], frame["envelope"], color, "proved", width=1.1, dash=DOTTED)
            plot.name("proved bound", color, "proved", dash=DOTTED)
        if m.length is not None:
            plot.upright(float(m.length))
            plot.name("trained", MUTED, dash="2 2")
        first, last = (number(float(frame["q50"].iloc[k])) for k in (0, -1))
        out.append((m, plot.svg(f"Norm of the hidden state of {m.title}: median {first} at first, {last} at last")))
    return out


def _last(frame: pd.DataFrame) -> pd.DataFrame:
    return select(frame, layer=frame["layer"].max())


def exponents(models: Sequence[ModelRecord]) -> Drawn:
    """Lyapunov exponents in falling order, each with its own horizontal axis."""
    models = _known(models, "lyapunov")
    frames = {m.name: m.frames["lyapunov"][np.isfinite(m.frames["lyapunov"]["per_step"])] for m in models}
    y = span([np.maximum(f["per_step"], LOWEST) for f in frames.values()] + [np.zeros(1)], title="exponent per step")
    out = []
    for m in models:
        frame = frames[m.name]
        plot = Plot(m.title, span([frame["index"]], title="index")(), y(), WIDTH, HEIGHT)
        plot.level(0.0, INK)
        plot.line(frame["index"], frame["per_step"], color_of(m.place - 1), "measured")
        top = number(float(np.max(frame["per_step"]))) if len(frame) else "unknown"
        positive = int(np.count_nonzero(frame["per_step"] > 0))
        out.append((m, plot.svg(f"Lyapunov exponents of {m.title}: the largest is {top}, {positive} lie above 0")))
    return out


def cut(model: ModelRecord) -> bool:
    """Whether exponents of a model lie below what is drawn."""
    frame = model.frames.get("lyapunov")
    return frame is not None and bool((frame["per_step"] < LOWEST).any())


def margin(models: Sequence[ModelRecord], criterion: str) -> str | None:
    """Draw the signed margins of one criterion in its own unit, a row a model; right of zero it holds."""
    known = [
        (m, f if (f := m.trainings.number("margin", criterion)) is not None else {"mean": float(found["margin"])})
        for m in models
        for found in (m.certificate or {}).get("findings", ())
        if found["criterion"] == criterion and found["margin"] is not None
    ]
    if not known:
        return None
    ends = [abs(float(v)) for _, spread in known for k, v in spread.items() if k in ("mean", "low", "high")]
    reach, count, words = 1.1 * max(ends) or 1.0, len(known), str(NAMES.get(criterion, criterion))
    titles = {count - 0.5 - k: shorten(printable(m.title), 22) for k, (m, _) in enumerate(known)}
    x = Axis(-reach, reach, title="← fails | margin | holds →")
    plot = Plot(words, x, Rows(0.0, float(count), names=titles), 1.5 * WIDTH, 58.0 + 13.0 * count)
    plot.upright(0.0, INK, dash="")
    for at, (m, spread) in zip(titles, known):
        value, color = float(spread["mean"]), color_of(m.place - 1)
        if "low" in spread:
            plot.line([spread["low"], spread["high"]], [at, at], color, "heuristic", width=5.0, opacity=0.3)
        plot.line([0.0, value], [at, at], color, "heuristic", width=1.2)
        plot.dots([value], [at], color, "heuristic")
    holds = [m.title for m, spread in known if float(spread["mean"]) > 0]
    said = f"{words}: its margin is positive for {len(holds)} of {count} models"
    return plot.svg(said + (f": {', '.join(holds)}" if 0 < len(holds) <= 6 else ""))


def density(models: Sequence[ModelRecord]) -> Drawn:
    """Spectral density of the Hessian, each with its own horizontal axis."""
    out = []
    for m in _known(models, "density"):
        frame = m.frames["density"]
        height = frame["density"].clip(lower=float(cast(Any, frame["density"]).max()) * 1e-6)
        x = span([frame["eigenvalue"]], title="eigenvalue")
        plot = Plot(m.title, x(), span([height], log=True, title="density")(), WIDTH, HEIGHT)
        keep = slice(None, None, max(1, len(frame) // _POINTS))
        plot.band(
            frame["eigenvalue"][keep],
            np.full(len(height[keep]), height.min()),
            height[keep],
            color_of(m.place - 1),
            "measured",
        )
        plot.line(frame["eigenvalue"][keep], height[keep], color_of(m.place - 1), "measured", width=1.2)
        ends = " to ".join(number(float(frame["eigenvalue"].iloc[k])) for k in (0, -1))
        out.append((m, plot.svg(f"Spectral density of the Hessian of {m.title}, eigenvalues from {ends}")))
    return out


def training(models: Sequence[ModelRecord], column: str, metric: str | None = None) -> Drawn:
    """One column of the metrics over epochs; ``metric``: of which task's metric it holds values."""
    models = [m for m in _known(models, "metrics") if column in m.frames["metrics"] and metric in (None, m.metric)]
    models = [m for m in models if m.frames["metrics"][column].notna().to_numpy().any()]
    share = metric == "accuracy"
    words = "loss" if metric is None else metric_word(metric)
    y = (
        (lambda: Axis(0.0, 1.0, percent=True, title=words))
        if share
        else span([m.frames["metrics"][column] for m in models], title=words)
    )
    x, out = span([m.frames["metrics"]["epoch"] for m in models], title="epoch"), []
    for m in models:
        frame, plot = m.frames["metrics"], Plot(m.title, x(), y(), WIDTH, HEIGHT)
        plot.line(frame["epoch"], frame[column], color_of(m.place - 1), "measured")
        end = float(frame[column].dropna().iloc[-1])
        last = percent(end) if share else number(end)
        out.append((m, plot.svg(f"{words.capitalize()} of {m.title} over epochs of training: {last} at the end")))
    return out


def cloud(model: ModelRecord, matrix: str, region: Region | None) -> str | None:
    """Eigenvalues of one matrix at a few moments of training, pale to strong, with the border of the map that runs."""
    stored = model.frames.get("eigenvalues")
    frame = None if stored is None else select(stored, matrix=matrix).dropna(subset=["real", "imag"])
    if frame is None or frame.empty:
        return None
    steps = sorted(frame["step"].unique())
    chosen = [steps[k] for k in np.unique(np.linspace(0, len(steps) - 1, SNAPSHOTS).round().astype(int))]
    frame = cast(pd.DataFrame, frame[frame["step"].isin(chosen)])
    around = [-1.0, 1.0] if region is not None and region.kind == "map" else [0.0]
    ends = [(min(float(np.min(v)), *around), max(float(np.max(v)), *around)) for v in (frame["real"], frame["imag"])]
    reach = 0.55 * max(max(high - low for low, high in ends), 0.1)
    (a, b), (c, d) = ends
    wide = reach * 1.45  # the frame is wider than high: equal units on both axes
    x, y = Axis((a + b) / 2 - wide, (a + b) / 2 + wide), Axis((c + d) / 2 - reach, (c + d) / 2 + reach)
    plot = Plot(f"{model.title}: {called(matrix)}", x, y, WIDTH, 180.0)
    square(plot)
    if region is not None:
        border = region.border(240)
        real, imag = np.real(border), np.imag(border)
        inside = (np.abs(real - (a + b) / 2) <= wide) & (np.abs(imag - (c + d) / 2) <= reach)
        plot.line(np.where(inside, real, np.nan), imag, INK, width=1.0)
    for rank, at in enumerate(chosen):
        rows, last = select(frame, step=at), rank == len(chosen) - 1
        strength = {"size": 4.0 if last else 2.4, "opacity": 1.0 if last else 0.2 + 0.15 * rank}
        plot.dots(rows["real"], rows["imag"], color_of(model.place - 1), "heuristic", **strength)
    last = select(frame, step=chosen[-1])
    values = last["real"].to_numpy() + 1j * last["imag"].to_numpy()
    count = (
        ""
        if region is None
        else f": at the end {int(region.holds(values).sum())} of {len(values)} lie inside the border"
    )
    return plot.svg(f"Eigenvalues of {matrix} of {model.title} in the complex plane{count}")


def square(plot: Plot) -> None:
    """Equal units on both axes: the horizontal one is widened or narrowed about its middle."""
    wide, high = plot.inner
    middle, half = 0.5 * (plot.x.low + plot.x.high), 0.5 * (plot.y.high - plot.y.low) * wide / high
    plot.x.low, plot.x.high = middle - half, middle + half


def along(
    model: ModelRecord, series: Sequence[tuple[str, pd.DataFrame]], title: str, border: float = 0.0
) -> str | None:
    """Quantities of one model over training steps with their border, told apart by dashes, named under the title."""
    series = [(legend, frame) for legend, frame in series if not frame.empty]
    if not series:
        return None
    values = np.concatenate([*(f["value"].to_numpy(dtype=float) for _, f in series), np.full(1, border)])
    if float(np.ptp(values)) < NARROW:  # rounding is not drawn as a curve
        values = np.append(values, [border - NARROW / 2, border + NARROW / 2])
    y = span([values])
    x = span([f["step"] for _, f in series], title="training step")
    plot = Plot(f"{model.title}: {title}", x(), y(), WIDTH, HEIGHT, row=True)
    plot.level(border, INK)
    color, named = color_of(model.place - 1), set()
    for (legend, frame), dash in zip(series, ("", DASHED, DOTTED, DOTTED)):
        keep = thinned(frame)
        plot.line(keep["step"], keep["value"], color, "heuristic", dash=dash)
        if legend not in named:
            plot.name(legend, color, "heuristic", dash=dash)
        named.add(legend)
    ends = ", ".join(f"{legend} {number(float(f['value'].iloc[-1]))}" for legend, f in series)
    return plot.svg(f"{title} of {model.title} along training; at the end {ends}")
