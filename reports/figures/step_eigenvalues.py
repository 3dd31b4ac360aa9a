"""Eigenvalues of the one-step Jacobian along test data, with the eigenvalue that a refutation proves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.patches import Circle

from ..formatting import bound, count
from ..stored.records import ModelRecord, select
from . import layout
from .figure import INK, MUTED, REFUTED, Figure
from .layout import SIZE, Axes, Drawing, Table

ROUNDING = 1e-6
"""Largest excess of a modulus over one that counts as rounding."""
REACH = (1.3, 3.0)
"""Smallest and largest half width of the axes; a note states the largest modulus beyond them."""
CELLS = 900  # grid cells over the width of the figure; dots in one cell are drawn once


def step_eigenvalues(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure; ``None`` where no Jacobians were computed."""
    return layout.figure_of("step-eigenvalues", models, _rows, _finding, _reading, (), _draw)


def _rows(model: ModelRecord) -> Table:
    measured, witness = pd.DataFrame(_on_data(model), columns=["real", "imag"]).assign(what="data"), _witness(model)
    ring = pd.DataFrame([(*witness, "proved")], columns=measured.columns) if witness and len(measured) else measured[:0]
    return pd.concat([measured, ring])


def _reading(table: Table) -> str:
    ring = " Ring: the eigenvalue that the counterexample proves." * bool((table["what"] == "proved").any())
    n = count(int((table["what"] == "data").sum()))
    return (
        f"{n} eigenvalues of one-step Jacobians along test sequences; orange: outside the unit circle.{ring} "
        "They do not decide stability alone."
    )


def _on_data(model: ModelRecord) -> np.ndarray:
    frame = model.frames.get("jacobians")
    return np.empty((0, 2)) if frame is None else select(frame, what="data")[["real", "imag"]].to_numpy(dtype=float)


def _outside(values: np.ndarray) -> np.ndarray:
    return np.hypot(*values.T) > 1 + ROUNDING


def _witness(model: ModelRecord) -> tuple[float, float] | None:
    eigenvalue = (model.certificate or {}).get("eigenvalue")
    return (float(eigenvalue[0]), float(eigenvalue[1])) if eigenvalue and model.state == "refuted" else None


def _draw(models: Sequence[ModelRecord], table: Table) -> Drawing:
    drawing, grid = layout.panels(models, "real part", "imaginary part", square=True)
    reach = float(np.clip(1.08 * np.nanmax(table[["real", "imag"]].abs().to_numpy()), *REACH))
    cell = 2 * reach * float(np.clip(len(models), 3, 6)) / CELLS
    for axes, model in zip(grid, models):
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=MUTED, linewidth=0.8))
        values, witness, note = _on_data(model), _witness(model), ""
        _dots(axes, values[~_outside(values)], INK, 0.5, cell)
        _dots(axes, values[_outside(values)], REFUTED, 0.9, cell)
        if witness:
            axes.plot(*witness, "o", markersize=8, mfc="none", mec=REFUTED, mew=1.6)
            note = f"proved: |λ| = {bound(float(np.hypot(*witness)), 4, up=False)}"
        elif np.abs(values).max() > reach:
            note = f"up to |λ| = {bound(float(np.hypot(*values.T).max()), 3, up=False)}"
        axes.text(-0.97 * reach, -0.97 * reach, note, color=REFUTED, fontsize=SIZE, va="bottom")
    return drawing


def _dots(axes: Axes, values: np.ndarray, color: str, alpha: float, cell: float) -> None:
    """Draw dots as one path: a file with thousands of them stays small."""
    values = np.unique(np.round(values / cell).astype(int), axis=0) * cell
    x, y = (np.column_stack([v, v + 1e-3 * cell * k, np.full(len(v), np.nan)]).ravel() for k, v in enumerate(values.T))
    axes.plot(x, y, color=color, alpha=alpha, linewidth=1.5)


def _finding(models: Sequence[ModelRecord], _: Table) -> str:
    event, refuted = "eigenvalues outside the unit circle", [m for m in models if m.state == "refuted"]
    outside = [m for m in models if _outside(_on_data(m)).any()]
    if not outside:
        return f"Along test data, no step{f' of {models[0].title}' * (len(models) == 1)} has {event}."
    others = [m.title for m in outside if m not in refuted]
    if len(models) == 1:
        return f"Along test data, some steps of {models[0].title} have {event}."
    if not refuted or not set(refuted) <= set(outside) or len(others) > 3:
        return f"Along test data, steps of {len(outside)} of {len(models)} networks have {event}."
    subject = "every network that is proven not stable" if len(refuted) > 1 else refuted[0].title
    more = f"; so do those of {layout.joined(others)}" if others else ", and those of no other network"
    return f"Along test data, steps of {subject} have {event}{more}."
