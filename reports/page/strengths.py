"""Many models under one perturbation: a row a model, a column a strength, shaded by what is left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from ..formatting import metric, number
from ..stored.records import ModelRecord, select
from ..stored.sweeps import rows_of
from .layout import NAMED, Cell, Column, Table, tabulate
from .marks import MEASURED

MOST = 10
"""Strengths in a table; of more, some between are left out."""
SHADES = "abcdef"


def shade(share: float) -> str:
    """The class of a cell by a share: the darker the more is left.

    Example:
        >>> shade(0.0), shade(1.0)
        ('heat-a', 'heat-f')
    """
    return f"heat-{SHADES[min(len(SHADES) - 1, max(0, int(share * len(SHADES))))]}"


def _between(rows: pd.DataFrame, name: str) -> str:
    """The interval of the first row in brackets, of shares in whole per cent; empty where there is none."""
    low, high = (float(rows[key].iloc[0]) if key in rows else float("nan") for key in ("ci_low", "ci_high"))
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    ends = [f"{100 * v:.0f}" if name == "accuracy" else number(v) for v in (low, high)]
    return f" ({ends[0]} to {ends[1]})"


def strengths(
    models: Sequence[ModelRecord],
    frame: str,
    keys: Mapping[str, str],
    caption: str,
    *,
    protocol: str,
    step: str,
    clean: Mapping[str, float],
) -> tuple[Table, ...]:
    """The table of one perturbation; none where it was not measured.

    Args:
        models: the records.
        frame: ``noise``, ``attacks``, or the same of scores.
        keys: columns and values that select the rows; ``metric`` among them for scores.
        caption: what is shown against what.
        protocol: how it was measured.
        step: that it is from.
        clean: accuracies of models by name, undisturbed; the table begins above 0 where those of all stand elsewhere.
    """
    at, value = "level" if frame.startswith("noise") else "epsilon", "score" if frame.endswith("scores") else "accuracy"
    found = {m.name: rows for m in models if (rows := rows_of(m, frame, keys)) is not None}
    every = sorted({float(v) for rows in found.values() for v in rows[at] if v > 0 or not clean.keys() >= found.keys()})
    levels = [every[k * (len(every) - 1) // (MOST - 1)] for k in range(MOST)] if len(every) > MOST else every
    name = keys.get("metric", "accuracy")

    def column(level: float) -> Column:
        def show(model: ModelRecord) -> Cell:
            rows = select(found[model.name], **{at: level})
            if rows.empty or pd.isna(rows[value].iloc[0]):
                return Cell("–", "quiet")
            left = float(rows[value].iloc[0])
            return Cell(metric(left, name) + _between(rows, name), shade(left) if name == "accuracy" else "")

        return Column(number(level), show, mark=MEASURED)

    shown = [m for m in models if m.name in found]
    return tabulate(caption, (NAMED, *map(column, levels)), shown, "not measured", protocol=protocol, made=(step,))
