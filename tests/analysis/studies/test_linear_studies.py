"""The studies of linear recurrences at toy sizes: their tables, curves and kept parts."""

from __future__ import annotations

import dataclasses
import json
import math

import pandas as pd
import pytest

from stability.analysis.studies import base, linear_recurrences, rotrnn_norms, run_study
from stability.analysis.tasks import make_task
from stability.analysis.training.front import train


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
    curves = pd.read_csv(tmp_path / "curves.csv")
    last = curves[curves.epoch == 3].set_index(["task", "model"]).test_accuracy
    assert len(curves) == 4 * 3
    assert all(last[row["task"], row["model"]] == pytest.approx(row["accuracy"]) for row in result.rows)
    document = json.loads((tmp_path / "study.json").read_text())
    assert [row["accuracy"] for row in document["rows"]] == [row["accuracy"] for row in result.rows]


def few_sequences(monkeypatch, module):
    """The study's own tasks, with few sequences."""

    def small(name, **options):
        counts = {"train": 40, "test": 20} if "train" in options else {"limit": 40, "test_limit": 20}
        return make_task(name, **{**options, **counts})

    monkeypatch.setattr(module, "make_task", small)


@pytest.mark.parametrize("quick", [True, False])
def test_the_settings_that_ship_fit_each_other(tmp_path, monkeypatch, quick):
    few_sequences(monkeypatch, linear_recurrences)
    monkeypatch.setattr(base, "train", lambda *a, **o: train(*a, **{**o, "epochs": 1}))
    result = run_study("linear-recurrences", out=tmp_path, quick=quick)
    assert [(row["task"], row["model"]) for row in result.rows] == [
        (task, model) for task in ("listops", "digits") for model in ("rotrnn", "lru")
    ]
    assert {row["task"]: row["steps"] for row in result.rows} == {
        "listops": 20 if quick else 40,
        "digits": 49 if quick else 196,
    }


@pytest.mark.parametrize("name", ["QUICK", "SMALL"])
def test_the_settings_of_the_norms_fit_each_other(tmp_path, monkeypatch, name):
    few_sequences(monkeypatch, rotrnn_norms)
    shipped = {**getattr(rotrnn_norms, name), "iterations": 1, "depths": [1], "seeds": 1, "batch": 8}
    monkeypatch.setattr(rotrnn_norms, name, shipped)
    result = run_study("rotrnn-norms", out=tmp_path, quick=name == "QUICK")
    assert [row["model"] for row in result.rows] == ["rotrnn", "lru"]


def test_parts_of_other_data_are_computed_again(tmp_path, monkeypatch):
    few_sequences(monkeypatch, linear_recurrences)
    seen = []

    def count(model, task, settings, **options):
        seen.append(task.name)
        return train(model, task, settings, **{**options, "epochs": 1})

    monkeypatch.setattr(base, "train", count)
    tasks = {"digits": {"size": 7, "limit": 40}}
    monkeypatch.setattr(linear_recurrences, "TASKS_QUICK", tasks)
    for _ in range(2):
        run_study("linear-recurrences", out=tmp_path, quick=True)
    assert seen == ["digits"] * 2
    few = make_task("digits", size=7, limit=40, test_limit=20)
    others = dataclasses.replace(few, data={**few.data, "source": "folder"})
    monkeypatch.setattr(linear_recurrences, "make_task", lambda *_, **__: others)
    run_study("linear-recurrences", out=tmp_path, quick=True)
    assert seen == ["digits"] * 4
