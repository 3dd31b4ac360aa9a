"""Figures of folded results: curvature of the loss, spectra along training, Theorem 1, Lyapunov spectra."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..formatting import count, number
from ..stored.records import ModelRecord, select
from .figure import INK, MUTED, UNDECIDED, WIDTH, Figure, blank, color_of
from .layout import along, counted, joined, logarithmic, name_ends, panels, place, protocol, selected, short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

FLOOR = 1e-6
"""Least density that is drawn, as a share of the largest one."""
EXPONENTS = -0.75
"""Lower end of the axis of Lyapunov exponents."""
GATED = ("lstm", "gru")  # eigenvalues of their gates' matrices decide nothing by themselves
EQUATIONS = ("lipschitz", "antisymmetric", "neural_ode")  # integrated in steps
NO_LINEAR_PART = ("neural_ode", "antisymmetric")  # A = 0: Theorem 1 cannot hold
PARTS = {"theorem1a": "(a)", "theorem1b_published": "(b) as published", "theorem1b_sound": "(b) sound"}


def hessian(models: Sequence[ModelRecord]) -> Figure | None:
    """Return spectral densities of the Hessian of the training loss; ``None`` where there are none."""
    shown, note = selected([m for m in models if "density" in m.frames])
    if not shown:
        return None
    table = pd.concat([m.frames["density"].assign(model=m.name) for m in shown], ignore_index=True)
    table = table.reindex(columns=["model", "eigenvalue", "density"])
    ends = {m.title: v for m in shown if (v := m.documents.get("hessian", {}).get("lambda_max")) is not None}
    title = "Spectral density of the Hessian at the trained weights."
    if ends:
        flat, sharp = min(ends, key=lambda t: ends[t]), max(ends, key=lambda t: ends[t])
        title = f"The largest Hessian eigenvalue of {sharp} is {number(ends[sharp])}."
        if len(ends) > 1:
            title = f"{flat} ends in the flattest minimum, {sharp} in the sharpest: largest Hessian eigenvalues {number(ends[flat])} and {number(ends[sharp])}."
    reading = f"Spectral density of the Hessian of the training loss at the trained weights; each panel has its own horizontal axis.{note}"
    return Figure("hessian", title, reading, protocol(shown, _hessian_protocol), table, partial(_densities, shown))


def _densities(models: Sequence[ModelRecord]) -> Drawing:
    drawing, grid = panels(models, shared=False)
    drawing.supxlabel("eigenvalue of the Hessian of the training loss", fontsize=8.5, color=MUTED)
    drawing.supylabel("density", fontsize=8.5, color=MUTED)
    top = max(float(m.frames["density"]["density"].max()) for m in models)
    for axes, m in zip(grid, models):
        x, y = (m.frames["density"][key].to_numpy(dtype=float) for key in ("eigenvalue", "density"))
        axes.set(yscale="log", ylim=(FLOOR * top, 2 * top))
        x, y = x[:: max(1, len(x) // 300)], np.maximum(y, FLOOR * top / 10)[:: max(1, len(x) // 300)]
        axes.fill_between(x, FLOOR * top / 10, y, color=INK, alpha=0.2, linewidth=0)
        axes.plot(x, y, color=INK, linewidth=0.9)
        visible = x[y > FLOOR * top]
        low, high = (visible.min(), visible.max()) if len(visible) else (x.min(), x.max())
        axes.set_xlim(low - 0.04 * (high - low), high + 0.08 * (high - low))
        axes.axvline(0, color=MUTED, linewidth=0.6, linestyle=":")
        near = 0.16 * (high - low)
        axes.set_xticks(
            [v for v in (low, 0.0, high) if v == 0 or abs(v) > near],
            [number(v, 2) for v in (low, 0.0, high) if v == 0 or abs(v) > near],
        )
        logarithmic(axes.yaxis, 4)
    return drawing


def _hessian_protocol(model: ModelRecord) -> str:
    found, budget = model.documents.get("hessian", {}), model.analysis.get("budget")
    budget = budget if isinstance(budget, dict) else {}
    parts = [f"{count(found['samples'])} training sequences"] if found.get("samples") else []
    parts += [
        f"{count(budget[k])} {unit}"
        for k, unit in (("iterations", "Lanczos steps"), ("probes", "random vectors"))
        if k in budget
    ]
    return ", ".join([*parts, *(["first training"] if model.trainings.several else [])])


def spectra(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the outermost eigenvalue of each matrix along training, as a modulus of the map that runs."""
    series = {m.name: found for m in models if (found := _moduli(m))}
    shown, note = selected([m for m in models if m.name in series])
    if not shown:
        return None
    table = pd.concat([f.assign(model=n, matrix=k) for n, s in series.items() for k, f in s.items()], ignore_index=True)
    beyond = [m.title for m in shown if any(f["value"].iloc[-1] > 1 + 1e-6 for f in series[m.name].values())]
    title = f"At the end of training, the matrices of {len(beyond)} of {len(shown)} networks have an eigenvalue outside the unit circle of their map."
    if len(shown) == 1:
        title = f"At the end of training, the recurrent matrices of {shown[0].title} {'leave' if beyond else 'stay within'} the unit circle of their map."
    reading = (
        "Largest modulus over the eigenvalues of each recurrent matrix; for a differential equation, of its integration "
        f"step. Dotted: the unit circle. For a matrix inside the activation this is the case of slope 1.{note}"
    )
    return Figure(
        "spectra",
        title,
        reading,
        protocol(shown, _tracked),
        table,
        partial(_courses, shown, series, "largest |λ| of one step", 1.0),
    )


def layer_of(model: ModelRecord) -> tuple[str, dict[str, Any]]:
    """Return name and options of a model's recurrent layers, of a deep network those of its blocks."""
    described = model.run.get("model", {})
    name, config = described.get("layer"), described.get("config", {})
    if name == "deep":
        name, config = config.get("layer"), config.get("options", {})
    return str(name or ""), config if isinstance(config, dict) else {}


def _moduli(model: ModelRecord) -> dict[str, pd.DataFrame]:
    """Return step and value of the largest modulus of every recurrent matrix."""
    frame, (layer, config) = model.frames.get("eigenvalues"), layer_of(model)
    dt, out = config.get("dt"), {}
    real = isinstance(dt, (int, float)) and dt > 0
    if frame is None or layer in GATED or (layer in EQUATIONS and not real):
        return {}
    integrated = real and config.get("time") != "discrete"
    for name, rows in frame.groupby("matrix", sort=False):
        if str(name) == "B" or str(name).startswith("J@"):
            continue
        z = rows["real"].to_numpy() + 1j * rows["imag"].to_numpy()
        if integrated:
            z = 1 + dt * z + (0.5 * (dt * z) ** 2 if config.get("integrator") == "midpoint" else 0.0)
        largest = pd.Series(np.abs(z)).groupby(rows["step"].to_numpy()).max()
        out[_called(str(name))] = pd.DataFrame({"step": largest.index, "value": largest.to_numpy()})
    return out


def _called(matrix: str) -> str:
    parts = matrix.split(".")
    return f"{parts[-1]}, block {parts[1]}" if matrix.startswith("blocks.") and len(parts) > 3 else matrix


def theorem1(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the margins of both parts of Theorem 1 along training; ``None`` where none were tracked."""
    series = {m.name: found for m in models if layer_of(m)[0] not in NO_LINEAR_PART and (found := _margins(m))}
    shown, note = selected([m for m in models if m.name in series])
    if not shown:
        return None
    table = pd.concat([f.assign(model=n, part=k) for n, s in series.items() for k, f in s.items()], ignore_index=True)
    sound = (PARTS["theorem1a"], PARTS["theorem1b_sound"])
    held = [
        m.title for m in shown if any(series[m.name][k]["value"].iloc[-1] > 0 for k in sound if k in series[m.name])
    ]
    title = (
        f"At the end of training, a sound part of Theorem 1 holds for {len(held)} of {counted(len(shown), 'network')}."
    )
    reading = (
        "Margins of both parts of Theorem 1; above zero the condition holds, for the differential equation and not for "
        f"the map that runs. Part (b) as published is shown for comparison and certifies nothing.{note}"
    )
    return Figure(
        "theorem1", title, reading, protocol(shown, _tracked), table, partial(_courses, shown, series, "margin", 0.0)
    )


def _margins(model: ModelRecord) -> dict[str, pd.DataFrame]:
    frame = model.frames.get("spectra")
    rows = {} if frame is None else {words: select(frame, matrix="margins", quantity=k) for k, words in PARTS.items()}
    return {words: f[["step", "value"]].dropna().sort_values("step") for words, f in rows.items() if len(f)}


def _courses(
    models: Sequence[ModelRecord], series: dict[str, dict[str, pd.DataFrame]], label: str, border: float
) -> Drawing:
    """Draw quantities over training steps, each named beside its line."""
    drawing, grid = panels(models)
    drawing.supxlabel("training step", fontsize=8.5, color=MUTED)
    drawing.supylabel(label, fontsize=8.5, color=MUTED)
    for axes, m in zip(grid, models):
        axes.axhline(border, color=MUTED, linewidth=0.8, linestyle=":")
        for (_, rows), dashes in zip(series[m.name].items(), ((), (4, 1.6), (1, 1.2), (6, 1, 1, 1)) * 16):
            axes.plot(rows["step"], rows["value"], color=color_of(m.state), dashes=dashes or (None, None))
    grid[0].margins(y=0.12)
    for axes, m in zip(grid, models):
        lines = {k: along(f["step"], f["value"], axes) for k, f in series[m.name].items()}
        place(
            axes,
            [(k, *p[len(p) // 2], color_of(m.state)) for k, p in lines.items()],
            np.concatenate(list(lines.values())),
        )
    return drawing


def _tracked(model: ModelRecord) -> str:
    return "computed during training in floating point" + ", first training" * model.trainings.several


def exponents(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the Lyapunov spectra on one pair of axes; ``None`` where there are none."""
    found = {m.name: rows for m in models if len(rows := _exponents(m))}
    shown, note = selected([m for m in models if m.name in found])
    if not shown:
        return None
    table = pd.concat([found[m.name].assign(model=m.name) for m in shown], ignore_index=True)
    largest = {m.title: float(found[m.name]["value"].iloc[0]) for m in shown}
    falling = [t for t, v in largest.items() if v < 0]
    title = f"The largest Lyapunov exponent on test data is negative for {len(falling)} of {counted(len(shown), 'network')}."
    if len(shown) == 1:
        title = f"The largest Lyapunov exponent of {shown[0].title} on test data is {number(next(iter(largest.values())))} per step."
    cut = f" Cut at {number(EXPONENTS)}." if (table["value"] < EXPONENTS).any() else ""
    reading = f"Exponents in falling order, averaged over steps and sequences; below zero differences shrink on average.{cut}{note}"
    return Figure(
        "exponents", title, reading, protocol(shown, _exponents_protocol), table, partial(_falling, shown, found)
    )


def _exponents(model: ModelRecord) -> pd.DataFrame:
    frame, over = model.frames.get("lyapunov"), model.trainings.curve("lyapunov")
    if over is not None:
        rows = over.rename(columns={"at": "index", "mean": "value"})
    else:
        rows = pd.DataFrame() if frame is None else frame.rename(columns={"per_step": "value"})
    rows = rows.reindex(columns=["index", "value", "low", "high"])
    return rows[np.isfinite(rows["value"].astype(float))].sort_values("index")


def _falling(models: Sequence[ModelRecord], found: dict[str, pd.DataFrame]) -> Drawing:
    drawing, names = blank(WIDTH, 3.4), short_names(models)
    axes = drawing.subplots()
    values = np.concatenate([f["value"].to_numpy(dtype=float) for f in found.values()])
    axes.set_ylim(max(EXPONENTS, 1.1 * float(values.min())), max(0.05, 1.2 * float(values.max())))
    axes.axhline(0, color=MUTED, linewidth=0.8, linestyle=":")
    axes.set_xlabel("index of the exponent, as a share of the number of states")
    axes.set_ylabel("Lyapunov exponent per step")
    ends = []
    for m in models:
        rows, color = found[m.name], color_of(m.state)
        at = rows["index"] / rows["index"].max()
        axes.fill_between(at, rows["low"], rows["high"], color=color, alpha=0.15, linewidth=0)
        axes.plot(at, rows["value"], color=color, alpha=0.8)
        ends.append((names[m.name], 1.0, float(rows["value"].iloc[-1]), color))
    axes.set_xlim(0, 1)
    name_ends(axes, ends)
    return drawing


def _exponents_protocol(model: ModelRecord) -> str:
    found = model.documents.get("exponents", {})
    parts = [
        f"{count(found[k])} {unit}"
        for k, unit in (("trajectories", "test sequences"), ("steps", "steps each"))
        if found.get(k)
    ]
    parts += [f"after {count(found['skipped'])} that are left out"] if found.get("skipped") else []
    return ", ".join(parts)
