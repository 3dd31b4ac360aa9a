"""Results of a report do not depend on the speed of the machine: searches count their attempts."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from stability.analysis import task_from_arrays
from stability.analysis.campaign import pipeline
from stability.analysis.campaign.budgets import AnalysisSettings, Budget
from stability.models import ElmanRNN, SequenceModel
from stability.models.gated import GRU

SEARCHES = ("certificate", "cross_check", "robustness", "local", "margin")


@pytest.mark.parametrize("cell", [ElmanRNN, GRU])
def test_every_search_of_a_report_finds_the_same_when_the_clock_leaps(
    cell: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that leaps an hour at every reading stands for a machine under any load."""
    monkeypatch.setattr(pipeline, "STEPS", {name: pipeline.STEPS[name] for name in SEARCHES})
    torch.manual_seed(0)
    model, x = SequenceModel(cell(2, 6), 3), 3.0 * torch.randn(6, 5, 2)
    task = task_from_arrays(x, model(x).argmax(1))
    budget = Budget(certified=3, restarts=0, epsilons_l2=(0.0, 1.0), program_states=8, program_steps=20)
    settings = AnalysisSettings(budget)
    found = []
    for leap in (0.0, 3600.0):
        folder, now = tmp_path / f"{leap:g}", [1000.0]
        folder.mkdir()

        def clock(now: list[float] = now, leap: float = leap) -> float:
            now[0] += leap
            return now[0]

        with monkeypatch.context() as patch:
            patch.setattr("time.monotonic", clock)
            patch.setattr("time.perf_counter", clock)
            patch.setattr("stability.search.solvers.deadline.monotonic", clock)
            told = pipeline.analyse(folder, model, settings, model=model, task=task, title="net", source="test")
        assert told["steps"]["local"]["status"] == "done", told["steps"]
        radii = pd.read_csv(folder / "local.csv").drop(columns="seconds")
        assert radii["radius"].max() > 0
        found.append((radii.to_dict(), _timeless(folder)))
    assert found[0] == found[1]


def _timeless(folder: Path) -> dict[str, object]:
    """Return the JSON files of the searches without the times that they took."""

    def kept(value: object) -> object:
        if isinstance(value, dict):
            return {k: kept(v) for k, v in value.items() if k not in ("seconds", "digest")}
        return [kept(v) for v in value] if isinstance(value, list) else value

    names = [p.name for p in folder.glob("*.json") if p.name != "analysis.json"]
    return {name: kept(json.loads((folder / name).read_text())) for name in sorted(names)}
