"""Several trainings of each model; searches that find the same when the clock leaps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from stability.analysis import task_from_arrays
from stability.analysis.campaign import campaign as c
from stability.analysis.campaign import pipeline
from stability.analysis.campaign.budgets import AnalysisSettings, Budget
from stability.analysis.campaign.plan import Campaign
from stability.analysis.campaign.trainings import summarise
from stability.models import ElmanRNN, SequenceModel
from stability.models.gated import GRU
from stability.reports import render
from stability.reports.stored.collect import collect

from .test_campaign import DIGITS


def written(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True)
    for name, value in files.items():
        if isinstance(value, pd.DataFrame):
            value.to_csv(folder / f"{name}.csv", index=False)
        else:
            (folder / f"{name}.json").write_text(json.dumps(value))


def test_means_and_intervals_are_students(tmp_path: Path) -> None:
    medians, shares = [0.1, 0.4, 0.25], [[0.9, 0.2], [0.8, 0.0], [0.95, 0.1]]
    for k, name in enumerate(("a", "a-seed-1", "a-seed-2")):
        noise = pd.DataFrame({"noise": "white", "level": [0.0, 0.1], "accuracy": shares[k]})
        more = {"largest": 2.0} if k else {}  # not in all: not compared
        reach = [[0.0, 0.5], [0.0, 0.2], [0.0, 0.9]][k]
        proved = pd.DataFrame({"radius": reach, "certified_accuracy": [0.8, 0.4]})
        written(tmp_path / "models" / name, radius={"median": medians[k], "samples": 7, **more}, noise=noise,
                robustness=proved)  # fmt: skip
    found = summarise(tmp_path, {"a": ["a", "a-seed-1", "a-seed-2"]}).set_index(["what", "group", "at"]).sort_index()
    assert "radius.largest" not in found.index.get_level_values("what")
    (row,) = found.loc["radius.median"].to_dict("records")
    low, high = stats.t.interval(0.95, 2, np.mean(medians), stats.sem(medians))
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((np.mean(medians), low, high))
    assert (row["least"], row["largest"], row["n"]) == (0.1, 0.4, 3)
    (same,) = found.loc["radius.samples"].to_dict("records")
    assert same["low"] == same["mean"] == same["high"] == 7
    last = found.loc["noise", "white", 0.1]
    assert last["mean"] == pytest.approx(0.1)
    assert last["low"] == 0.0  # an accuracy cannot be less
    # what the second proves at 0.5 is nothing, the third at least what it proves at 0.9
    assert found.loc["robustness", "", 0.5]["mean"] == pytest.approx((0.4 + 0.0 + 0.4) / 3)


@pytest.mark.usefixtures("brief_presets")
def test_a_campaign_trains_each_preset_with_several_seeds_and_compares_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {name: step for name, step in pipeline.STEPS.items() if name not in ("local", "hessian", "growth")}
    monkeypatch.setattr(pipeline, "STEPS", steps)
    plan = Campaign(tmp_path / "r", ("elman",), quick=True, seed=3, task=("digits", DIGITS), seeds=2)
    assert plan.runs == {"elman": ("elman", 3), "elman-seed-4": ("elman", 4)}
    assert "seeds" not in replace(plan, seeds=1).plan()
    with c.opened(plan):
        assert [o.error for o in c.run_campaign(plan, processes=1)] == [None, None]
    models = tmp_path / "r" / "models"
    runs = [json.loads((models / run / "run.json").read_text()) for run in plan.runs]
    assert [run["training"]["seed"] for run in runs] == [3, 4]
    accuracies = [run["result"]["test_metric"] for run in runs]
    (model,) = collect(tmp_path / "r").models
    spread = model.trainings.number("run.result.test_metric")
    assert spread is not None
    assert spread["mean"] == pytest.approx(np.mean(accuracies))
    assert model.trainings.several
    assert len(model.trainings.states) == 2
    with c.opened(plan) as done:
        assert set(done) == set(plan.runs)
    assert "Means over several trainings" in render(tmp_path / "r").read_text()
    for path in (models / "elman-seed-4").glob("analysis.json"):  # another analysis than the table was made of
        path.write_text(path.read_text() + " ")
    changed = collect(tmp_path / "r")
    assert "elman-seed-4" in changed.not_compared
    assert changed.models[0].trainings.number("run.result.test_metric") is None
    assert "run the report again" in render(tmp_path / "r").read_text()


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
    budget = Budget(certified=3, gated=1, restarts=0, epsilons_l2=(0.0, 1.0), program_states=8, program_steps=20)
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
