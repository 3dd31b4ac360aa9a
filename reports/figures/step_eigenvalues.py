"""Eigenvalues of the one-step Jacobian along test data, with the eigenvalue that a refutation proves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.patches import Circle

from ..formatting import bound, count
from ..stored.records import ModelRecord, select
from .figure import INK, MUTED, REFUTED, Figure
from .layout import SIZE, joined, panels, protocol, selected

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

ROUNDING = 1e-6
"""Moduli above one by no more than this count as one."""
REACH = (1.3, 3.0)
"""Least and largest half width of the axes; eigenvalues beyond it are cut and said."""
CELLS = 150  # positions side by side at which dots are told apart


def step_eigenvalues(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure; ``None`` where no Jacobians were computed."""
    known = [m for m in models if len(_on_data(m))]
    if not known:
        return None
    shown, note = selected(known)
    parts = [pd.DataFrame(_on_data(m), columns=["real", "imag"]).assign(model=m.name, what="data") for m in shown]
    proved = [(m.name, "proved", *w) for m in shown if (w := _witness(m))]
    parts.append(pd.DataFrame(proved, columns=["model", "what", "real", "imag"]))
    table = pd.concat([p for p in parts if len(p)], ignore_index=True).reindex(
        columns=["model", "what", "real", "imag"]
    )
    outside = [m for m in known if (np.hypot(*_on_data(m).T) > 1 + ROUNDING).any()]
    ring = " Ring: the eigenvalue that the counter-example proves." if proved else ""
    reading = f"Eigenvalues of the one-step Jacobian along test sequences; orange: outside the unit circle.{ring}{note}"
    said = protocol(shown, _protocol)
    return Figure("step-eigenvalues", _finding(known, outside), reading, said, table, partial(_draw, shown))


def _on_data(model: ModelRecord) -> np.ndarray:
    frame = model.frames.get("jacobians")
    return np.empty((0, 2)) if frame is None else select(frame, what="data")[["real", "imag"]].to_numpy(dtype=float)


def _witness(model: ModelRecord) -> tuple[float, float] | None:
    found = (model.certificate or {}).get("eigenvalue")
    return (float(found[0]), float(found[1])) if found and model.state == "refuted" else None


def _draw(models: Sequence[ModelRecord]) -> Drawing:
    drawing, grid = panels(models, square=True)
    drawing.supxlabel("real part", fontsize=8.5, color=MUTED)
    drawing.supylabel("imaginary part", fontsize=8.5, color=MUTED)
    every = np.vstack([np.abs(_on_data(m)) for m in models] + [np.abs([w]) for m in models if (w := _witness(m))])
    reach = float(np.clip(1.08 * np.nanmax(every), *REACH))
    for axes, model in zip(grid, models):
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=MUTED, linewidth=0.8))
        values = _on_data(model)
        size = np.hypot(*values.T)
        _dots(axes, values[size <= 1 + ROUNDING], INK, 0.45, reach)
        _dots(axes, values[size > 1 + ROUNDING], REFUTED, 0.9, reach)
        named, said = _witness(model), ""
        if named:
            axes.plot(*named, "o", markersize=8, markerfacecolor="none", markeredgecolor=REFUTED, markeredgewidth=1.6)
            said = f"proved: |λ| = {bound(float(np.hypot(*named)), 4, up=False)}"
        elif np.abs(values).max() > reach:
            said = f"up to |λ| = {bound(float(size.max()), 3, up=False)}"
        axes.text(-0.97 * reach, -0.97 * reach, said, color=REFUTED, fontsize=SIZE, va="bottom")
    return drawing


def _dots(axes: Any, values: np.ndarray, color: str, alpha: float, reach: float) -> None:
    """Draw dots as one path: a file of thousands of them stays small."""
    cell = 2 * reach / CELLS
    values = np.unique(np.round(values / cell).astype(int), axis=0) * cell
    x, y = (np.column_stack([v, v + 1e-3 * cell * k, np.full(len(v), np.nan)]).ravel() for k, v in enumerate(values.T))
    axes.plot(x, y, color=color, alpha=alpha, linewidth=1.6)


def _finding(models: Sequence[ModelRecord], outside: Sequence[ModelRecord]) -> str:
    where, refuted = "eigenvalues outside the unit circle", [m for m in models if m.state == "refuted"]
    if len(models) == 1:
        return f"Along test data, {'some steps' if outside else 'no step'} of {models[0].title} {'have' if outside else 'has'} {where}."
    if not outside:
        return f"Along test data, no step has {where}."
    others = [m.title for m in outside if m not in refuted]
    if refuted and set(refuted) <= set(outside) and len(others) < 4:
        more = f"; so have those of {joined(others)}" if others else " and of no other"
        which = "every network that is proven not stable" if len(refuted) > 1 else refuted[0].title
        return f"Along test data, steps of {which} have {where}{more}."
    return f"Along test data, steps of {len(outside)} of {len(models)} networks have {where}."


def _protocol(model: ModelRecord) -> str:
    hidden = model.analysis.get("hidden_size")
    n = len(_on_data(model))
    steps = (
        f"{count(n / hidden)} steps of test sequences"
        if isinstance(hidden, int) and hidden and n % hidden == 0
        else f"{count(n)} eigenvalues"
    )
    return f"{steps}; eigenvalues of single steps do not decide stability by themselves"
