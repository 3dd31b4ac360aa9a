"""Exponents and margins on the page: what stands behind ± is what the page says, and rounding is called rounding."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from stability.certificate import Certificate, Finding
from stability.reports import render
from stability.reports.formatting import number, signed

from .test_numbers import Tables


def tables(folder: Path) -> dict[str, list[dict[str, str]]]:
    """The rows of every table by its first words, each by the columns' names."""
    render(folder)
    found = Tables((folder / "report.html").read_text(encoding="utf-8")).tables
    return {
        caption.split(":")[0]: [dict(zip(head, row, strict=False)) for row in rows]
        for caption, (head, *rows) in found.items()
    }


@pytest.mark.parametrize("spread", [1.0, 1e-15])
def test_the_half_interval_is_students_of_the_mean(small_dir: Path, spread: float) -> None:
    """The steps of a linear network do not depend on its data: what differs is rounding, and no interval."""
    values = -0.04 + spread * np.array([-0.01, -0.02, 0.02, 0.0])
    folder = small_dir / "models" / "contracting"
    table = pd.read_csv(folder / "lyapunov.csv")
    table.assign(standard_error=scipy.stats.sem(values)).to_csv(folder / "lyapunov.csv", index=False)
    told = {"largest": float(values.mean()), "trajectories": 4, "steps": 25, "bound": None}
    (folder / "exponents.json").write_text(json.dumps(told))
    (row,) = tables(small_dir)["The answer"]
    low, high = scipy.stats.t.interval(0.95, 3, values.mean(), scipy.stats.sem(values))
    half = number((high - low) / 2, 2) if spread == 1.0 else "0"
    assert row["mean exponent along the data (95 %)"] == f"{signed(values.mean())} ± {half}"


def test_a_margin_that_is_zero_but_for_rounding_is_called_so(small_dir: Path) -> None:
    path = small_dir / "models" / "contracting" / "certificate.json"
    margins = {"small_gain": -4.44e-16, "circle": -1e-9}
    findings = tuple(Finding(name, False, margin, "") for name, margin in margins.items())
    dataclasses.replace(Certificate.load(path), findings=findings).save(path)
    (row,) = tables(small_dir)["Signed margins"]
    cells = " ".join(row.values())
    assert "−4.44×10⁻¹⁶ (0 but for rounding)" in cells
    assert "−1×10⁻⁹" in cells
    assert cells.count("rounding") == 1
