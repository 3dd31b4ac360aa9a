"""Eigenvalues and margins on their way through training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..figures import crowd
from ..figures import panels as figures
from ..figures.eigenvalues import Region, called, cloud, extremes
from ..stored.collect import Report
from ..stored.records import ModelRecord, select
from .layout import FEW, Section, draw
from .marks import HEURISTIC
from .trainings import first_only

# In ``spectra.csv``: quantities of a symmetric-skew matrix that must hold the real parts of its eigenvalues.
BOUNDS = ("prop1_low", "prop1_high")
EXTREMES = ("max_real", "min_real", "spectral_radius")

LEFT_OUT = ("B",)  # maps channels to states: its eigenvalues mean nothing
GATED = ("lstm", "gru")  # eigenvalues of their gates' matrices decide nothing by themselves
EQUATIONS = ("lipschitz", "antisymmetric", "neural_ode")  # integrated in steps; a deep network's file may leave dt out
NO_LINEAR_PART = ("neural_ode", "antisymmetric")  # A = 0: Theorem 1 cannot hold


_BAND = (
    " The shaded band is where the form of A puts the real parts (symmetric-skew); the published interval is too "
    "narrow by a factor of two and is not shown."
)
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


def _bounds(model: ModelRecord, matrix: str) -> tuple[float, float] | None:
    low, high = (series(model, matrix, q) for q in BOUNDS)
    return None if low.empty or high.empty else (float(low["value"].iloc[-1]), float(high["value"].iloc[-1]))


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
    drawn, gated, many = [], False, len(report.models) > FEW
    for i, m in enumerate(report.models):
        frame = m.frames.get("eigenvalues")
        region = _region(m)
        for k, matrix in enumerate(() if frame is None else frame["matrix"].unique()):
            if matrix in LEFT_OUT or str(matrix).startswith("J@"):
                continue
            gated = gated or region is None
            if many:
                drawn.append((crowd.cloud(m, str(matrix), region), ""))
                if region is not None:
                    drawn.append((_outermost(m, str(matrix), region), ""))
                continue
            bounds = _bounds(m, str(matrix))
            drawn.append((cloud(m, str(matrix), i, f"cloud-{i}-{k}", region=region, bounds=bounds), ""))
            if region is not None:
                curves = {q: series(m, str(matrix), q) for q in (*EXTREMES, *BOUNDS)}
                name = f"extremes-{i}-{k}"
                drawn.append((extremes(m, str(matrix), i, name, region=region, curves=curves), ""))
    return Section(
        "eigenvalues",
        "Eigenvalues and their path through training",
        "Each recurrent matrix in the complex plane: pale dots early in training, strong dots at its "
        "end. The curve is the border for the map that runs: the unit circle for a map, and for a layer that "
        "integrates a differential equation in steps dt the values λ with |1 + dt λ| = 1 (Euler) or "
        "|1 + dt λ + (dt λ)²/2| = 1 (midpoint); inside it a linear part with these eigenvalues would decay. For a "
        "matrix inside the activation it speaks of slope 1 alone."
        + _BAND * (not many)
        + _OUTERMOST
        + first_only(report)
        + " Matrices of the gates of LSTM and GRU have no such border." * gated,
        (),
        draw(*drawn, marks=(HEURISTIC,), made=() if many else ("training",)),
        tuple(
            f"{m.title}: not tracked, the layer has no recurrent matrices"
            for m in report.models
            if m.run and "eigenvalues" not in m.frames
        ),
        small=many,
        made=("training",) if many else (),
    ).kept


def along_training(report: Report) -> Section | None:
    """Margins of Theorem 1 at each recorded step, of the models that have a linear part."""
    drawn, many = [], len(report.models) > FEW
    for i, m in enumerate(report.models):
        if layer_of(m)[0] in NO_LINEAR_PART:
            continue
        margins = [
            ("(a)", series(m, "margins", "theorem1a")),
            ("(b) as published", series(m, "margins", "theorem1b_published")),
            ("(b) sound", series(m, "margins", "theorem1b_sound")),
        ]
        if many:
            drawn.append((crowd.along(m, margins, "Theorem 1"), ""))
            continue
        drawn.append((figures.curves(m, margins, "Theorem 1", "margin", f"theorem1-{i}"), ""))
    return Section(
        "along",
        "Theorem 1 along training",
        "Margins of both parts of Theorem 1 while the weights move; above zero the condition holds. It speaks of the "
        "differential equation behind a layer, not of the map that runs. "
        "Part (b) as published is shown beside its sound reading because it can hold where the network "
        "is unstable: it never certifies here." + first_only(report),
        (),
        draw(*drawn, marks=(HEURISTIC,), made=() if many else ("training",)),
        small=many,
        made=("training",) if many else (),
    ).kept
