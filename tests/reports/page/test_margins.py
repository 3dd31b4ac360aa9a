"""The two-sided margin of the page: shown as far as its own certificates verify and are about the model."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from stability.analysis.campaign.budgets import AnalysisSettings
from stability.analysis.campaign.margin import margin_step
from stability.analysis.campaign.work import Work
from stability.certificate import Certificate
from stability.certification import certify
from stability.reports.page.parts import Table
from stability.reports.page.results import more_results
from stability.reports.stored.collect import Report, read_model
from stability.systems import LureSystem

from ..conftest import seal
from .folds import numbers

ENDS = ("gain_certified", "gain_destabilising", "step_certified", "step_destabilising")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A certified map that an integrator made, with the margins of its slopes and its step."""
    loop = LureSystem(-2.0 * np.eye(2), np.eye(2), [[0.5, 0.2], [0.0, 0.3]]).discretise("euler", 0.1)
    certificate = certify(loop)
    certificate.save(tmp_path / "certificate.json")
    (tmp_path / "analysis.json").write_text(json.dumps({"title": "loop", "discrete": True, "steps": {}}))
    work = Work(tmp_path, loop, None, None, AnalysisSettings(), certificate=certificate)
    work.begin("margin")
    margin_step(work)
    seal(tmp_path)
    return tmp_path


def test_both_sides_are_shown_and_are_true(folder: Path) -> None:
    model = read_model(folder)
    assert tuple(model.margins) == ENDS
    loop = Certificate.load(folder / "certificate.json").subject
    for kind in ("gain", "step"):
        low, high = model.margins[f"{kind}_certified"], model.margins[f"{kind}_destabilising"]
        assert 1.0 < low <= high <= 1.2 * low

        def radius(factor: float, kind: str = kind) -> float:
            dt, slope = (0.1, factor) if kind == "gain" else (0.1 * factor, 1.0)
            base = loop.origin.base
            return max(
                np.abs(np.linalg.eigvals(np.eye(2) + dt * (base.A + s * slope * base.B @ base.C))).max() for s in (0, 1)
            )

        assert radius(low) < 1.0 <= radius(high) + 1e-9
    shown = [
        part for fold in more_results(Report(folder, {}, (model,))) for part in fold.parts if isinstance(part, Table)
    ]
    (row,) = next(table.rows for table in shown if table.caption == "Gain and step margins")
    factors = [numbers(cell.text)[0] for cell in row[1:]]
    exact = [Decimal(model.margins[name]) for name in ENDS]
    assert [
        factor <= e if k % 2 == 0 else factor >= e for k, (factor, e) in enumerate(zip(factors, exact, strict=True))
    ] == [True] * 4


@pytest.mark.parametrize("change", ["factor", "proof", "model"])
def test_factors_of_something_else_are_not_shown(folder: Path, change: str) -> None:
    name = "gain_certified"
    if change == "factor":
        stored = json.loads((folder / "margin.json").read_text())
        (folder / "margin.json").write_text(json.dumps(stored | {name: 1.01 * stored[name]}))
    elif change == "proof":
        (folder / f"margin_{name}.json").write_text("{}")
    else:
        other = certify(LureSystem([[0.1, 0.0], [0.0, 0.1]], np.eye(2), 0.1 * np.eye(2), dt=1.0))
        other.save(folder / f"margin_{name}.json")
    seal(folder)
    assert name not in read_model(folder).margins
    assert "gain_destabilising" in read_model(folder).margins
