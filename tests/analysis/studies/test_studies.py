"""Studies: files, kept parts, and the adding problem's table."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import torch
from torch import nn

from stability.analysis.studies import STUDIES, keep_part, run_study
from stability.analysis.studies import adding as adding_study
from stability.analysis.studies.adding import equal_size
from stability.errors import ConfigurationError, FileFormatError, UnsupportedError

TINY = {"steps": 8, "iterations": 6, "hidden": 48, "every": 2, "batch": 5, "reflections": 8, "test": 20}


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr("stability.analysis.studies.adding.QUICK", TINY)


def test_adding_writes_its_table_and_its_curves(tiny, tmp_path):
    told = []
    result = run_study("adding", out=tmp_path / "study", quick=True, seed=4, progress=told.append)
    assert [row["model"] for row in result.rows] == ["oRNN", "oRNN", "LSTM", "LSTM", "Elman", "Elman"]
    assert [row["seed"] for row in result.rows] == [4, 5, 4, 5, 4, 5]
    sizes = [row["parameters"] for row in result.rows]
    assert max(sizes) - min(sizes) < 0.2 * sizes[0]
    curves = pd.read_csv(tmp_path / "study" / "curves.csv")
    assert list(curves.columns) == ["model", "seed", "iteration", "train_mse", "test_mse"]
    assert len(curves) == 6 * TINY["iterations"] // TINY["every"]
    for row in result.rows:
        own = curves[(curves["model"] == row["model"]) & (curves["seed"] == row["seed"])]
        assert own["test_mse"].min() == row["best_test_mse"]
        assert own["test_mse"].iloc[-1] == row["last_test_mse"]
    document = json.loads((tmp_path / "study" / "study.json").read_text())
    assert document["rows"] == json.loads(json.dumps(result.to_dict()["rows"]))
    assert document["settings"]["steps"] == TINY["steps"]
    table = pd.read_csv(tmp_path / "study" / "table.csv")
    assert table["best_test_mse"].tolist() == [row["best_test_mse"] for row in result.rows]
    assert "oRNN" in result.text()
    assert told


def test_a_rerun_with_the_same_settings_goes_on_from_the_kept_parts(tiny, tmp_path, monkeypatch):
    first = run_study("adding", out=tmp_path, quick=True)
    monkeypatch.setattr(adding_study, "_train", lambda *_: pytest.fail("trained again"), raising=True)
    again = run_study("adding", out=tmp_path, quick=True)
    assert again.rows == first.rows
    with pytest.raises(pytest.fail.Exception):
        run_study("adding", out=tmp_path, quick=True, seed=9)


def test_the_same_seed_gives_the_same_curve(tiny, tmp_path):
    one = run_study("adding", out=tmp_path / "one", quick=True)
    torch.manual_seed(99)
    two = run_study("adding", out=tmp_path / "two", quick=True)
    pd.testing.assert_frame_equal(one.frame().drop(columns="seconds"), two.frame().drop(columns="seconds"))


def test_parts_are_kept_for_their_settings_only(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"value": (1.5, float("inf"))}

    assert keep_part(tmp_path, "a", {"seed": 1}, compute) == {"value": [1.5, None]}
    assert keep_part(tmp_path, "a", {"seed": 1}, compute) == {"value": [1.5, None]}
    assert len(calls) == 1
    keep_part(tmp_path, "a", {"seed": 2}, compute)
    keep_part(tmp_path, "b", {"seed": 2}, compute)
    assert len(calls) == 3


@pytest.mark.parametrize("parameters", [1, 10, 1000, 12345])
def test_equal_size_is_the_nearest(parameters):
    def make(n):
        return nn.Linear(n, 2 * n)

    def gap(n):
        return abs(2 * n * n + 2 * n - parameters)

    size = equal_size(make, parameters)
    assert gap(size) == min(gap(n) for n in range(1, 200))


def test_an_interrupted_training_is_no_part_of_a_study(tmp_path):
    """What was trained for half an epoch would be kept for good, and shown as the result."""
    told = []

    def interrupt(text):
        told.append(text)
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study("linear-recurrences", out=tmp_path, quick=True, progress=interrupt)
    assert len(told) == 2
    assert not (tmp_path / "parts").exists()


def test_a_part_that_diverges_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(adding_study, "LEARNING_RATES", dict.fromkeys(adding_study.LEARNING_RATES, 1e30))
    with pytest.raises(UnsupportedError, match="the training of oRNN has no result: .* the other parts are kept"):
        run_study("adding", out=tmp_path, quick=True)


def test_bad_requests_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="unknown study 'nothing'; the known ones are"):
        run_study("nothing", out=tmp_path)
    for seed in (-1, True, 1.5, None):
        with pytest.raises(ConfigurationError, match="seed"):
            run_study("adding", out=tmp_path, seed=seed)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileFormatError, match="cannot make the folder"):
        run_study("adding", out=tmp_path / "file" / "study")
    assert all(study.name == name and study.summary for name, study in STUDIES.items())
