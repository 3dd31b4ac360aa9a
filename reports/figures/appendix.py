"""Figures of folded results: curvature of the loss, spectra along training, Theorem 1, Lyapunov spectra."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ..formatting import number
from ..stored.records import ModelRecord, select
from .figure import INK, MUTED, WIDTH, Figure, blank, color_of
from .layout import (
    Drawing,
    Label,
    along,
    amount,
    budget,
    first_only,
    logarithmic,
    name_ends,
    panels,
    place,
    protocol,
    selected,
    short_names,
)  # fmt: skip

FLOOR = 1e-7
"""Least density that is drawn, as a share of the largest one."""
LOWEST = -0.75
"""Lower end of the axis of Lyapunov exponents."""
GATED = ("lstm", "gru")  # eigenvalues of their gates' matrices decide nothing by themselves
EQUATIONS = ("lipschitz", "antisymmetric", "neural_ode")  # integrated in steps
NO_LINEAR_PART = ("neural_ode", "antisymmetric")  # A = 0: Theorem 1 cannot hold
PARTS = {"theorem1a": "(a)", "theorem1b_published": "(b) as published", "theorem1b_sound": "(b) sound"}
Series = dict[str, dict[str, pd.DataFrame]]
"""Columns step and value of each line, by the name of its model and its own."""


def hessian(models: Sequence[ModelRecord]) -> Figure | None:
    """Return spectral densities of the Hessian of the training loss; ``None`` where there are none."""
    shown, note = selected([m for m in models if "density" in m.frames])
    if not shown:
        return None
    table = pd.concat([m.frames["density"].assign(model=m.name) for m in shown], ignore_index=True)
    ends = {m.title: v for m in shown if (v := m.documents.get("hessian", {}).get("lambda_max")) is not None}
    title = "Spectral density of the Hessian at the trained weights."
    if ends:
        flat, sharp = (f(ends, key=lambda t: ends[t]) for f in (min, max))
        said = f"largest Hessian eigenvalue {number(ends[flat])}"
        title = f"{flat} ends in a minimum with the {said}."
        if len(ends) > 1:
            title = f"{flat} ends in the flattest minimum ({said}), {sharp} in the sharpest ({number(ends[sharp])})."
    reading = (
        "Spectral density of the Hessian of the training loss at the trained weights. Each panel has its own "
        f"horizontal axis.{note}"
    )
    table = table.reindex(columns=["model", "eigenvalue", "density"])
    return Figure("hessian", title, reading, protocol(shown, _hessian_protocol), table, partial(_densities, shown))


def _densities(models: Sequence[ModelRecord]) -> Drawing:
    drawing, grid = panels(models, "eigenvalue of the Hessian of the training loss", "density", shared=False)
    top = max(float(m.frames["density"]["density"].max()) for m in models)
    grid[0].set(yscale="log", ylim=(FLOOR * top, 2 * top))
    logarithmic(grid[0].yaxis, 4)
    for axes, m in zip(grid, models):
        x, y = (m.frames["density"][key].to_numpy(dtype=float) for key in ("eigenvalue", "density"))
        x, y = (v[:: max(1, len(x) // 300)] for v in (x, np.maximum(y, FLOOR * top / 10)))
        axes.fill_between(x, FLOOR * top / 10, y, color=INK, alpha=0.2, linewidth=0)
        axes.plot(x, y, color=INK, linewidth=0.9)
        axes.axvline(0, color=MUTED, linewidth=0.6, linestyle=":")
        visible = x[y > FLOOR * top]
        low, high = visible.min(), visible.max()
        axes.set_xlim(low - 0.04 * (high - low), high + 0.08 * (high - low))
        ticks = [v for v in (low, 0.0, high) if v == 0 or abs(v) > 0.16 * (high - low)]
        axes.set_xticks(ticks, [number(v, 2) for v in ticks])
    return drawing


def _hessian_protocol(model: ModelRecord) -> list[str]:
    samples = model.documents.get("hessian", {}).get("samples")
    parts = amount(samples, "training sequence"), amount(budget(model, "iterations"), "Lanczos step")
    return [*parts, amount(budget(model, "probes"), "random vector"), first_only(model)]


def spectra(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the outermost eigenvalue of each matrix along training, as a modulus of the map that runs."""
    reading = (
        "Largest modulus of the eigenvalues of each recurrent matrix; for a differential equation, of its integration "
        "step. Dotted: the unit circle. A matrix inside the activation counts here with slope 1, which alone decides "
        "nothing."
    )
    title = "At the end of training, recurrent matrices of {} have {}eigenvalues outside the unit circle."
    series = {m.name: found for m in models if (found := _moduli(m))}
    return _along("spectra", title, reading, "largest |λ| of one step", series, models, 1.0)


def theorem1(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the margins of both parts of Theorem 1 along training; ``None`` where none were tracked."""
    reading = (
        "Margins of both parts of Theorem 1; above zero the condition holds, for the differential equation and not for "
        "the map that runs. Part (b) as published is shown for comparison and certifies nothing."
    )
    title = "At the end of training, {1}sound part of Theorem 1 holds for {0}."
    series = {m.name: found for m in models if layer_of(m)[0] not in NO_LINEAR_PART and (found := _margins(m))}
    return _along("theorem1", title, reading, "margin", series, models, 0.0)


def _along(
    name: str, title: str, reading: str, label: str, series: Series, models: Sequence[ModelRecord], border: float
) -> Figure | None:
    """Return the figure of quantities along training; its title counts the models that end above the border."""
    shown, note = selected([m for m in models if m.name in series])
    if not shown:
        return None
    parts = [f.assign(model=m.name, line=k) for m in shown for k, f in series[m.name].items()]
    table = pd.concat(parts, ignore_index=True).reindex(columns=["model", "line", "step", "value"])
    counting = table[table["line"] != PARTS["theorem1b_published"]].groupby(["model", "line"])["value"].last()
    above = counting[counting > border + 1e-6].index.get_level_values("model").nunique()
    alone = len(shown) == 1
    some = "" if name == "spectra" else "a "
    title = title.format(
        shown[0].title if alone else f"{above} of {len(shown)} networks", "no " * alone * (not above) or some
    )
    said = protocol(shown, lambda m: ["computed during training", first_only(m)])
    return Figure(name, title, reading + note, said, table, partial(_courses, shown, series, label, border))


def layer_of(model: ModelRecord) -> tuple[str, dict[str, Any]]:
    """Return name and options of a model's recurrent layers, of a deep network those of its blocks."""
    described = model.run.get("model", {})
    name, config = described.get("layer"), described.get("config", {})
    if name == "deep":
        name, config = config.get("layer"), config.get("options", {})
    return str(name or ""), config if isinstance(config, dict) else {}


def _moduli(model: ModelRecord) -> dict[str, pd.DataFrame]:
    """Return step and value of the largest modulus of every recurrent matrix, of a flow after one integration step."""
    frame, (layer, config) = model.frames.get("eigenvalues"), layer_of(model)
    dt = config.get("dt")
    known = isinstance(dt, (int, float)) and dt > 0
    if frame is None or layer in GATED or (layer in EQUATIONS and not known):
        return {}
    z = frame["real"].to_numpy() + 1j * frame["imag"].to_numpy()
    if known and config.get("time") != "discrete":
        z = 1 + dt * z + (0.5 * (dt * z) ** 2 if config.get("integrator") == "midpoint" else 0.0)
    largest = frame.assign(value=np.abs(z)).groupby(["matrix", "step"], sort=False)["value"].max().reset_index()
    chosen = [str(n) for n in largest["matrix"].unique() if str(n) != "B" and not str(n).startswith("J@")]
    return {n.replace(".layer.", " ").replace("blocks.", "block "): select(largest, matrix=n) for n in chosen}


def _margins(model: ModelRecord) -> dict[str, pd.DataFrame]:
    frame = model.frames.get("spectra")
    rows = {} if frame is None else {words: select(frame, matrix="margins", quantity=k) for k, words in PARTS.items()}
    return {words: f[["step", "value"]].dropna().sort_values("step") for words, f in rows.items() if len(f)}


def _courses(models: Sequence[ModelRecord], series: Series, label: str, border: float) -> Drawing:
    """Draw quantities over training steps, each named beside its line."""
    drawing, grid = panels(models, "training step", label)
    for axes, m in zip(grid, models):
        axes.axhline(border, color=MUTED, linewidth=0.8, linestyle=":")
        for (_, rows), dashes in zip(series[m.name].items(), ("-", "--", ":", "-.") * 16):
            axes.plot(rows["step"], rows["value"], color=color_of(m.state), linestyle=dashes)
    grid[0].margins(y=0.12)
    for axes, m in zip(grid, models):
        lines = {k: along(f["step"], f["value"], axes) for k, f in series[m.name].items()}
        labels = [(k, *p[len(p) // 2], color_of(m.state)) for k, p in lines.items() if len(p)]
        place(axes, labels, np.concatenate(list(lines.values())))
    return drawing


def exponents(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the Lyapunov spectra on one pair of axes; ``None`` where there are none."""
    found = {m.name: rows for m in models if len(rows := _exponents(m))}
    shown, note = selected([m for m in models if m.name in found])
    if not shown:
        return None
    table = pd.concat([found[m.name].assign(model=m.name) for m in shown], ignore_index=True)
    falling = sum(float(found[m.name]["value"].iloc[0]) < 0 for m in shown)
    title = f"The largest Lyapunov exponent on test data is negative for {falling} of {len(shown)} networks."
    if len(shown) == 1:
        largest = number(float(table["value"].iloc[0]))
        title = f"The largest Lyapunov exponent of {shown[0].title} on test data is {largest} per step."
    cut = f" Cut at {number(LOWEST)}." * bool((table["value"] < LOWEST).any())
    reading = f"Exponents in falling order, means over steps and sequences. Below zero, differences shrink.{cut}{note}"
    draw = partial(_falling, shown, found)
    return Figure("exponents", title, reading, protocol(shown, _exponents_protocol), table, draw)


def _exponents(model: ModelRecord) -> pd.DataFrame:
    frame, over = model.frames.get("lyapunov", pd.DataFrame()), model.trainings.curve("lyapunov")
    rows = frame if over is None else over.rename(columns={"at": "index", "mean": "per_step"})
    rows = rows.rename(columns={"per_step": "value"}).reindex(columns=["index", "value", "low", "high"]).astype(float)
    return rows[np.isfinite(rows["value"])].sort_values("index")


def _falling(models: Sequence[ModelRecord], found: dict[str, pd.DataFrame]) -> Drawing:
    drawing, names = blank(WIDTH, max(3.4, 0.8 + 0.17 * len(models))), short_names(models)
    axes = drawing.subplots()
    values = np.concatenate([f["value"].to_numpy(dtype=float) for f in found.values()])
    low, high = max(LOWEST, 1.1 * float(values.min(initial=-0.1))), max(0.05, 1.2 * float(values.max()))
    axes.set(xlim=(0, 1), ylim=(low, high), ylabel="Lyapunov exponent per step")
    axes.set_xlabel("index of the exponent, as a share of the number of states")
    axes.axhline(0, color=MUTED, linewidth=0.8, linestyle=":")
    ends: list[Label] = []
    cut: list[Label] = []
    for m in models:
        rows, color = found[m.name], color_of(m.state)
        at = rows["index"] / rows["index"].max()
        axes.fill_between(at, rows["low"], rows["high"], color=color, alpha=0.15, linewidth=0)
        axes.plot(at, rows["value"], color=color, alpha=0.8)
        inside = rows["value"] > low
        (ends if inside.all() else cut).append((names[m.name], at[inside].max(), rows["value"][inside].min(), color))
    name_ends(axes, ends)
    lines = [along(f["index"] / f["index"].max(), f["value"], axes, 300) for f in found.values()]
    place(axes, cut, np.concatenate(lines))
    return drawing


def _exponents_protocol(model: ModelRecord) -> list[str]:
    found, runs = model.documents.get("exponents", {}), model.trainings.runs
    parts = amount(found.get("trajectories"), "test sequence"), amount(found.get("steps"), "step")
    return [*parts, f"bands: 95 % intervals over {len(runs)} trainings" if len(runs) > 1 else ""]
