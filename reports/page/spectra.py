"""Eigenvalues and margins on their way through training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..figures import crowd
from ..figures.eigenvalues import Region, called
from ..stored.collect import Report
from ..stored.records import ModelRecord, select
from .layout import Section, draw
from .marks import HEURISTIC
from .trainings import first_only

# In ``spectra.csv``: quantities of a symmetric-skew matrix that must hold the real parts of its eigenvalues.
BOUNDS = ("prop1_low", "prop1_high")

LEFT_OUT = ("B",)  # maps channels to states: its eigenvalues mean nothing
GATED = ("lstm", "gru")  # eigenvalues of their gates' matrices decide nothing by themselves
EQUATIONS = ("lipschitz", "antisymmetric", "neural_ode")  # integrated in steps; a deep network's file may leave dt out
NO_LINEAR_PART = ("neural_ode", "antisymmetric")  # A = 0: Theorem 1 cannot hold


_OUTERMOST = (
    " After each plane its outermost eigenvalue over the steps of training: for the layer of a differential "
    "equation the largest real part, with the smallest and both bounds (beyond 0 the linear equation grows); for "
    "a map the spectral radius (beyond 1 it grows)."
)


def layer_of(model: ModelRecord) -> tuple[str, Mapping[str, Any]]:
    """Name and options of a model's recurrent layers; of a deep network those of its blocks.

    Args:
        model: the record.

    Returns:
        The name, empty where none is known, and the options.
    """
    described = model.run.get("model", {})
    name, config = described.get("layer"), described.get("config", {})
    if name == "deep":
        name, config = config.get("layer"), config.get("options", {})
    return str(name or ""), config if isinstance(config, Mapping) else {}


def _region(model: ModelRecord) -> Region | None:
    """Where eigenvalues of the layer's linear part must lie for the map that runs; ``None`` where that says nothing."""
    layer, config = layer_of(model)
    step = config.get("dt")
    if layer in GATED or (layer in EQUATIONS and step is None):
        return None
    if config.get("time") == "discrete" or not isinstance(step, (int, float)) or not step > 0:
        return Region("map")
    return Region(str(config.get("integrator", "euler")), float(step))


def series(model: ModelRecord, matrix: str, quantity: str) -> pd.DataFrame:
    """Rows (step, value) of one recorded quantity, in order; empty where it was not recorded."""
    frame = model.frames.get("spectra")
    if frame is None:
        return pd.DataFrame({"step": [], "value": []})
    rows = select(frame, matrix=matrix, quantity=quantity)
    return rows.reindex(columns=["step", "value"]).dropna().sort_values("step")


def _outermost(model: ModelRecord, matrix: str, region: Region) -> str | None:
    """``extremes`` as a small drawing."""
    if region.kind == "map":
        lines = [("spectral radius", series(model, matrix, "spectral_radius"))]
        return crowd.along(model, lines, f"ρ({called(matrix)})", 1.0)
    names = ("largest", "smallest", "Proposition 1", "Proposition 1")
    quantities = ("max_real", "min_real", *BOUNDS)
    lines = [(name, series(model, matrix, quantity)) for name, quantity in zip(names, quantities)]
    return crowd.along(model, lines, f"Re λ({called(matrix)})")


def clouds(report: Report) -> Section | None:
    """Every recorded matrix of every model in the complex plane."""
    drawn, gated = [], False
    for m in report.models:
        frame, region = m.frames.get("eigenvalues"), _region(m)
        for matrix in () if frame is None else frame["matrix"].unique():
            if matrix in LEFT_OUT or str(matrix).startswith("J@"):
                continue
            gated = gated or region is None
            drawn.append((crowd.cloud(m, str(matrix), region), ""))
            if region is not None:
                drawn.append((_outermost(m, str(matrix), region), ""))
    return Section(
        "eigenvalues",
        "Eigenvalues and their path through training",
        "Each recurrent matrix in the complex plane: pale dots early in training, strong dots at its "
        "end. The curve is the border for the map that runs: the unit circle for a map, and for a layer that "
        "integrates a differential equation in steps dt the values λ with |1 + dt λ| = 1 (Euler) or "
        "|1 + dt λ + (dt λ)²/2| = 1 (midpoint); inside it a linear part with these eigenvalues would decay. For a "
        "matrix inside the activation it speaks of slope 1 alone."
        + _OUTERMOST
        + first_only(report)
        + " Matrices of the gates of LSTM and GRU have no such border." * gated,
        (),
        draw(*drawn, marks=(HEURISTIC,)),
        tuple(
            f"{m.title}: not tracked, the layer has no recurrent matrices"
            for m in report.models
            if m.run and "eigenvalues" not in m.frames
        ),
        made=("training",),
    ).kept


def along_training(report: Report) -> Section | None:
    """Margins of Theorem 1 at each recorded step, of the models that have a linear part."""
    drawn = []
    for m in report.models:
        if layer_of(m)[0] not in NO_LINEAR_PART:
            margins = [
                ("(a)", series(m, "margins", "theorem1a")),
                ("(b) as published", series(m, "margins", "theorem1b_published")),
                ("(b) sound", series(m, "margins", "theorem1b_sound")),
            ]
            drawn.append((crowd.along(m, margins, "Theorem 1"), ""))
    return Section(
        "along",
        "Theorem 1 along training",
        "Margins of both parts of Theorem 1 while the weights move; above zero the condition holds. It speaks of the "
        "differential equation behind a layer, not of the map that runs. "
        "Part (b) as published is shown beside its sound reading because it can hold where the network "
        "is unstable: it never certifies here." + first_only(report),
        (),
        draw(*drawn, marks=(HEURISTIC,)),
        made=("training",),
    ).kept
