"""Figures of folded results: curvature of the loss, spectra along training, Theorem 1, Lyapunov spectra."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ..formatting import number
from ..stored.records import ModelRecord, select
from . import layout
from .figure import INK, MUTED, WIDTH, Figure, blank, color_of
from .layout import Drawing, Label, Table

FLOOR = 1e-7
"""Smallest density that is drawn, as a share of the largest one."""
LOWEST = -0.75
"""Lower end of the axis of Lyapunov exponents."""
GATED = ("lstm", "gru")  # eigenvalues of their gates' matrices decide nothing by themselves
EQUATIONS = ("lipschitz", "antisymmetric", "neural_ode")  # integrated in steps
NO_LINEAR_PART = ("neural_ode", "antisymmetric")  # A = 0: Theorem 1 cannot hold
PARTS = {"theorem1a": "(a)", "theorem1b_published": "(b) as published", "theorem1b_sound": "(b) sound"}


def hessian(models: Sequence[ModelRecord]) -> Figure | None:
    """Return spectral densities of the Hessian of the training loss; ``None`` where there are none."""
    reading = "Spectral density of the Hessian of the training loss. Each panel has its own horizontal axis."
    rows = partial(_frame, stem="density", columns=("eigenvalue", "density"))
    return layout.figure_of("hessian", models, rows, _sharpness, lambda _: reading, ("hessian",), _densities)


def _frame(model: ModelRecord, stem: str, columns: Sequence[str]) -> Table:
    return model.frames.get(stem, pd.DataFrame()).reindex(columns=list(columns))


def _sharpness(models: Sequence[ModelRecord], _: Table) -> str:
    largest = {m.title: v for m in models if (v := m.documents.get("hessian", {}).get("lambda_max")) is not None}
    if not largest:
        return "Spectral density of the Hessian at the trained weights."
    flat, sharp = (f(largest, key=lambda t: largest[t]) for f in (min, max))
    more = f", {sharp} {number(largest[sharp])}" if len(largest) > 1 else ""
    return f"Largest Hessian eigenvalue at the end of training: {flat} {number(largest[flat])}{more}."


def _densities(models: Sequence[ModelRecord], table: Table) -> Drawing:
    drawing, grid = layout.panels(models, "eigenvalue of the Hessian of the training loss", "density", shared=False)
    top = float(table["density"].max())
    grid[0].set(yscale="log", ylim=(FLOOR * top, 2 * top))
    layout.logarithmic(grid[0].yaxis, 4)
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


def spectra(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure of the largest modulus of each matrix's eigenvalues along training, for one step of the map."""
    reading = (
        "Largest modulus of the eigenvalues of each recurrent matrix; for a differential equation, of its integration "
        "step. Dotted: the unit circle. A matrix inside the activation counts here with slope 1, which alone decides "
        "nothing."
    )
    title = "recurrent matrices of {} have {}eigenvalues outside the unit circle"
    return _along("spectra", title, reading, models, _moduli, "largest |λ| of one step", 1.0)


def theorem1(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the margins of both parts of Theorem 1 along training; ``None`` where none were tracked."""
    reading = (
        "Margins of both parts of Theorem 1; above zero the condition holds, for the differential equation and not for "
        "the map that runs. Part (b) as published is shown for comparison and certifies nothing."
    )
    return _along("theorem1", "{1}sound part of Theorem 1 holds for {0}", reading, models, _margins, "margin", 0.0)


def _along(
    name: str, title: str, reading: str, models: Sequence[ModelRecord], rows: Any, label: str, border: float
) -> Figure | None:
    """Return the figure of quantities along training; its title counts the models that end above the border."""

    def finding(drawn: Sequence[ModelRecord], table: Table) -> str:
        finals = table[table["line"] != PARTS["theorem1b_published"]].groupby(["model", "line"])["value"].last()
        above, alone = finals[finals > border + 1e-6].index.get_level_values("model").nunique(), len(drawn) == 1
        subject = drawn[0].title if alone else f"{above} of {len(drawn)} networks"
        some = "no " if alone and not above else "a " * (name == "theorem1")
        return f"At the end of training, {title.format(subject, some)}."

    draw = partial(_courses, label=label, border=border)
    return layout.figure_of(name, models, rows, finding, lambda _: reading, (), draw)


def layer_of(model: ModelRecord) -> tuple[str, dict[str, Any]]:
    """Return name and options of a model's recurrent layers, of a deep network those of its blocks."""
    described = model.run.get("model", {})
    name, config = described.get("layer"), described.get("config", {})
    if name == "deep":
        name, config = config.get("layer"), config.get("options", {})
    return str(name or ""), config if isinstance(config, dict) else {}


def _moduli(model: ModelRecord) -> Table:
    """Return the largest modulus of every recurrent matrix, of a flow after one integration step."""
    frame, (layer, config) = model.frames.get("eigenvalues"), layer_of(model)
    dt: Any = config.get("dt")
    has_step = isinstance(dt, (int, float)) and dt > 0
    if frame is None or layer in GATED or (layer in EQUATIONS and not has_step):
        return pd.DataFrame()
    z = frame["real"].to_numpy() + 1j * frame["imag"].to_numpy()
    if has_step and config.get("time") != "discrete":
        z = 1 + dt * z + (0.5 * (dt * z) ** 2 if config.get("integrator") == "midpoint" else 0.0)
    names = frame["matrix"].astype(str).str.replace(".layer.", " ").str.replace("blocks.", "block ")
    frame = pd.DataFrame({"line": names, "step": frame["step"], "value": np.abs(z)})
    recurrent = frame[~(names.str.startswith("J@") | (names.str.split().str[-1] == "B"))]
    return recurrent.groupby(["line", "step"], sort=False, as_index=False)["value"].max()


def _margins(model: ModelRecord) -> Table:
    rows: Table = select(_frame(model, "spectra", ("matrix", "quantity", "step", "value")), matrix="margins")
    rows = rows[rows["quantity"].isin(list(PARTS))].dropna().sort_values("step", kind="stable")
    linear = layer_of(model)[0] not in NO_LINEAR_PART
    return rows.assign(line=rows["quantity"].map(PARTS))[["line", "step", "value"]] if linear else pd.DataFrame()


def _courses(models: Sequence[ModelRecord], table: Table, label: str, border: float) -> Drawing:
    """Draw quantities over training steps, with a name at each line."""
    drawing, grid = layout.panels(models, "training step", label)
    series = {m.name: select(table, model=m.name).groupby("line", sort=False) for m in models}
    for axes, m in zip(grid, models):
        axes.axhline(border, color=MUTED, linewidth=0.8, linestyle=":")
        for (_, rows), dashes in zip(series[m.name], ("-", "--", ":", "-.") * 16):
            axes.plot(rows["step"], rows["value"], color=color_of(m.state), linestyle=dashes)
    grid[0].margins(y=0.12)
    for axes, m in zip(grid, models):
        lines = {str(line): layout.along(rows["step"], rows["value"], axes) for line, rows in series[m.name]}
        labels = [(k, *p[len(p) // 2], color_of(m.state)) for k, p in lines.items() if len(p)]
        layout.place(axes, labels, np.concatenate(list(lines.values())))
    return drawing


def exponents(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the Lyapunov spectra on one pair of axes; ``None`` where there are none."""
    return layout.figure_of("exponents", models, _exponents, _signs, _exponents_reading, ("lyapunov",), _falling, True)


def _exponents(model: ModelRecord) -> Table:
    frame, means = model.frames.get("lyapunov", pd.DataFrame()), model.trainings.curve("lyapunov")
    rows: Table = frame if means is None else means.rename(columns={"at": "index", "mean": "per_step"})
    rows = rows.rename(columns={"per_step": "value"}).reindex(columns=["index", "value", "low", "high"]).astype(float)
    return rows[np.isfinite(rows["value"])].sort_values("index")


def _signs(models: Sequence[ModelRecord], table: Table) -> str:
    largest = table.groupby("model")["value"].first()
    if len(models) == 1:
        return f"The largest Lyapunov exponent of {models[0].title} on test data is {number(largest.iloc[0])} per step."
    falling = int((largest < 0).sum())
    return f"The largest Lyapunov exponent on test data is negative for {falling} of {len(models)} networks."


def _exponents_reading(table: Table) -> str:
    cut = f" Cut at {number(LOWEST)}." * bool((table["value"] < LOWEST).any())
    return f"Exponents in falling order, means over steps and sequences. Below zero, differences shrink.{cut}"


def _falling(models: Sequence[ModelRecord], table: Table) -> Drawing:
    drawing, names = blank(WIDTH, max(3.4, 0.8 + 0.17 * len(models))), layout.short_names(models)
    axes = drawing.subplots()
    by_model: dict[str, Table] = {m.name: select(table, model=m.name) for m in models}
    values = table["value"].to_numpy(dtype=float)
    low, high = max(LOWEST, 1.1 * float(values.min(initial=-0.1))), max(0.05, 1.2 * float(values.max()))
    axes.set(xlim=(0, 1), ylim=(low, high), ylabel="Lyapunov exponent per step")
    axes.set_xlabel("index of the exponent, as a share of the number of states")
    axes.axhline(0, color=MUTED, linewidth=0.8, linestyle=":")
    outer: list[Label] = []
    inner: list[Label] = []
    for m in models:
        rows, color = by_model[m.name], color_of(m.state)
        at: Table = rows["index"] / rows["index"].max()
        axes.fill_between(at, rows["low"], rows["high"], color=color, alpha=0.15, linewidth=0)
        axes.plot(at, rows["value"], color=color, alpha=0.8)
        inside = rows["value"] > low
        (outer if inside.all() else inner).append((names[m.name], at[inside].max(), rows["value"][inside].min(), color))
    layout.name_ends(axes, outer)
    lines = [layout.along(f["index"] / f["index"].max(), f["value"], axes, 300) for f in by_model.values()]
    layout.place(axes, inner, np.concatenate(lines))
    return drawing
