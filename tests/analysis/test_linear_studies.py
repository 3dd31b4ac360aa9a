"""The studies of linear recurrences at toy sizes: their tables, curves and kept parts."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest

from stability.analysis.studies import linear_recurrences, rotrnn_norms, run_study


def test_norms_along_training(tmp_path, monkeypatch):
    toy = {
        **rotrnn_norms.QUICK,
        "max_length": 16,
        "min_length": 4,
        "train": 40,
        "test": 16,
        "batch": 8,
        "iterations": 6,
        "depths": [3, 1],
        "seeds": 2,
    }
    monkeypatch.setattr(rotrnn_norms, "QUICK", toy)
    news = []
    result = run_study("rotrnn-norms", out=tmp_path, quick=True, progress=news.append)
    assert len(result.rows) == 2 * 2 * 2
    curves = pd.read_csv(tmp_path / "curves.csv")
    assert len(curves) == 2 * 2 * 7 * (3 + 1)  # models, seeds, records, layers
    assert (curves.norm > 0).all()
    for row in result.rows:
        own = curves[(curves.model == row["model"]) & (curves.depth == row["depth"]) & (curves.seed == row["seed"])]
        assert row["norm_end"] == pytest.approx(own[own.iteration == 6].norm.mean())
        assert row["norm_start"] == pytest.approx(own[own.iteration == 0].norm.mean())
        assert row["spread_all"] == pytest.approx(math.log2(own.norm.max() / own.norm.min()))
    assert len(news) == 2 * 2 * 2 * 6
    again = run_study("rotrnn-norms", out=tmp_path, quick=True, progress=news.append)
    assert len(news) == 2 * 2 * 2 * 6  # every part was kept
    assert again.rows == result.rows


def test_training_on_both_tasks(tmp_path, monkeypatch):
    tasks = {
        "listops": {"max_length": 12, "min_length": 4, "train": 60, "test": 20},
        "digits": {"size": 7, "limit": 60, "test_limit": 20},
    }
    monkeypatch.setattr(linear_recurrences, "TASKS_QUICK", tasks)
    monkeypatch.setattr(linear_recurrences, "NETWORK", {**linear_recurrences.NETWORK, "hidden_size": 8, "width": 8})
    news = []
    result = run_study("linear-recurrences", out=tmp_path, quick=True, progress=news.append)
    assert [(row["task"], row["model"]) for row in result.rows] == [
        (task, model) for task in ("listops", "digits") for model in ("rotrnn", "lru")
    ]
    assert all(0 <= row["accuracy"] <= 1 and 0 < row["chance"] < 1 for row in result.rows)
    assert len(news) == 4 * 3
    document = json.loads((tmp_path / "study.json").read_text())
    assert [row["accuracy"] for row in document["rows"]] == [row["accuracy"] for row in result.rows]
