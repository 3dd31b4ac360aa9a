"""Accuracy of a model over the strength of a perturbation."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from .records import ModelRecord, select


def rows_of(model: ModelRecord, frame: str, keys: Mapping[str, str]) -> pd.DataFrame | None:
    """Return scores by the strength of a perturbation; over several trainings the mean and its interval."""
    strength, stored = ("level" if frame.startswith("noise") else "epsilon"), model.frames.get(frame)
    if stored is None:
        return None
    means = model.trainings.curve(frame, " ".join(keys.values()))
    if means is not None:
        value = "score" if frame.endswith("scores") else "accuracy"
        return means.rename(columns={"at": strength, "mean": value, "low": "ci_low", "high": "ci_high"})
    rows = select(stored, **keys)
    return None if rows.empty else rows.sort_values(strength)
