"""Eigenvalues and margins on their way through training."""

from __future__ import annotations

import pandas as pd

from . import figures
from .clouds import cloud
from .collect import ModelRecord, Report, select
from .page import Section, draw

__all__ = ["along_training", "clouds"]

# In ``spectra.csv``: quantities of a symmetric-skew matrix that must hold the real parts of its eigenvalues.
BOUNDS = ("prop1_low", "prop1_high")


LEFT_OUT = ("B",)  # maps channels to states: its eigenvalues mean nothing


def _is_map(model: ModelRecord) -> bool:
    """Whether the layer's matrices belong to a map by their meaning, not to a differential equation."""
    config = model.run.get("model", {}).get("config", {})
    return config.get("time") == "discrete" or "dt" not in config


def series(model: ModelRecord, matrix: str, quantity: str) -> pd.DataFrame:
    """Rows (step, value) of one recorded quantity, in order; empty where it was not recorded."""
    frame = model.frames.get("spectra")
    if frame is None:
        return pd.DataFrame({"step": [], "value": []})
    rows = select(frame, matrix=matrix, quantity=quantity)
    return rows.reindex(columns=["step", "value"]).dropna().sort_values("step")


def _bounds(model: ModelRecord, matrix: str) -> tuple[float, float] | None:
    low, high = (series(model, matrix, q) for q in BOUNDS)
    return None if low.empty or high.empty else (float(low["value"].iloc[-1]), float(high["value"].iloc[-1]))


def clouds(report: Report) -> Section | None:
    """Every recorded matrix of every model in the complex plane."""
    drawn = []
    for i, m in enumerate(report.models):
        frame = m.frames.get("eigenvalues")
        for matrix in () if frame is None else frame["matrix"].unique():
            if matrix in LEFT_OUT or str(matrix).startswith("J@"):
                continue
            name = f"cloud-{m.name}-{matrix}"
            title, bounds = f"{m.title}: {matrix}", _bounds(m, matrix)
            drawn.append((cloud(m, matrix, i, name, title=title, discrete=_is_map(m), bounds=bounds), ""))
    panels = draw(*drawn)
    if not panels:
        return None
    return Section(
        "eigenvalues",
        "Eigenvalues and their path through training",
        "Each recurrent matrix in the complex plane: pale dots early in training, strong dots at its "
        "end. Left of the vertical line (inside the circle, for a map) the linear part alone would "
        "decay. The shaded band is where the symmetric-skew form puts the real parts; the published "
        "interval is too narrow by a factor of two and is not shown. "
        "For the gates of LSTM and GRU the circle is only a scale.",
        (),
        panels,
    )


def along_training(report: Report) -> Section | None:
    """Margins of Theorem 1 and extreme eigenvalues at each recorded step."""
    drawn = []
    for m in report.models:
        margins = [
            ("(a)", series(m, "margins", "theorem1a")),
            ("(b) as published", series(m, "margins", "theorem1b_published")),
            ("(b) sound", series(m, "margins", "theorem1b_sound")),
        ]
        drawn.append((figures.curves(m, margins, f"{m.title}: Theorem 1", "margin", f"theorem1-{m.name}"), ""))
    panels = draw(*drawn)
    if not panels:
        return None
    return Section(
        "along",
        "Theorem 1 along training",
        "Margins of both parts of Theorem 1 while the weights move; above zero the condition holds. "
        "Part (b) as published is shown beside its sound reading because it can hold where the network "
        "is unstable: it never certifies here.",
        (),
        panels,
    )
