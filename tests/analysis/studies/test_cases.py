"""Studies made of cases: parts are kept, sizes matched by free parameters; every figure has its columns."""

from __future__ import annotations

import functools
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

from stability.analysis.studies import STUDIES, cases, run_study
from stability.analysis.studies.cases import IMAGES, SPEECH, TEXT, Case, data_place, equal_parameters, own_data
from stability.analysis.studies.qr_gradients import drawn, dual_qr
from stability.models import ElmanRNN, HouseholderRNN, SequenceModel, UnitaryRNN, free_parameters

MADE_OF_CASES = (
    "long-sequences", "orthogonal-characters", "orthogonal-copying", "orthogonal-generation", "orthogonal-pixels",
    "speech-frames",
)  # fmt: skip


def elman(n, task):
    return SequenceModel(ElmanRNN(task.input_size, n), task.output_size, task.reduction)


def small(epochs=2):
    options = {"steps": 8, "train": 10, "test": 5}
    training = {"epochs": epochs, "batch_size": 10}
    return [Case(f"n={n}", "short", "adding", options, functools.partial(elman, n), training) for n in (3, 4)]


@pytest.fixture
def job(tmp_path):
    from stability.analysis.studies.base import Job

    return Job(tmp_path, 0, True, None, torch.device("cpu"), lambda text: None)


def test_every_case_and_seed_is_a_row_and_is_trained_once(job, monkeypatch):
    trained = Counter()
    real = cases._trained

    def counted(job, case, task, seed, measure):
        trained[case.model, seed] += 1
        return real(job, case, task, seed, measure)

    monkeypatch.setattr(cases, "_trained", counted)
    rows = cases.run_cases(job, small(), (1, 2), lambda model, task: {"width": model.hidden_size})
    assert [(r["model"], r["seed"], r["width"]) for r in rows] == [
        ("n=3", 1, 3), ("n=3", 2, 3), ("n=4", 1, 4), ("n=4", 2, 4),
    ]  # fmt: skip
    assert rows[0]["parameters"] == 3 * (2 + 3 + 1) + 4
    curves = pd.read_csv(job.out / "curves.csv")
    assert len(curves) == 8
    last = curves[(curves.model == "n=4") & (curves.seed == 2) & (curves.step == 2)]
    assert float(last.test_loss.iloc[0]) == rows[3]["test_loss"]
    assert rows[0]["test_loss"] != rows[1]["test_loss"]
    assert cases.run_cases(job, small(), (1, 2), lambda model, task: {}) == rows
    assert set(trained.values()) == {1}
    cases.run_cases(job, small(epochs=1)[:1], (1,))
    assert trained["n=3", 1] == 2


def test_sizes_of_equal_free_parameters():
    for goal in (50, 500, 3000):
        found = equal_parameters(lambda n: HouseholderRNN(2, n, reflections=n), goal)
        gaps = [
            abs(free_parameters(HouseholderRNN(2, n, reflections=n)) - goal)
            for n in range(max(1, found - 2), found + 3)
        ]
        assert min(gaps) == abs(free_parameters(HouseholderRNN(2, found, reflections=found)) - goal)
    assert equal_parameters(lambda n: UnitaryRNN(1, n, kind="arjovsky"), 100, even=True) % 2 == 0


def test_data_lie_where_they_are(tmp_path):
    assert data_place(None, TEXT) == own_data() == data_place(tmp_path, TEXT)
    assert data_place(None, IMAGES) is None
    (tmp_path / "a.txt").write_text("text")
    assert data_place(tmp_path, TEXT) == str(tmp_path)
    assert data_place(tmp_path, SPEECH) == own_data()


def pretended(job, case, task, seed, measure):
    """What a training leaves behind, without the training."""
    offset = 0.01 * seed + 0.001 * len(case.model)
    curve = [[step, 1.0 / step, 1.1 / step + offset, 0.3 + offset + 0.1 * step] for step in (1, 2, 3)]
    measured = {} if measure is None else measure(case.make(task), task)
    return {"curve": curve, "parameters": 10, "measured": measured, "seconds": 0.0}


@pytest.mark.parametrize("name", MADE_OF_CASES)
def test_a_study_has_a_conclusion_and_columns_for_its_figures(name, tmp_path, monkeypatch):
    monkeypatch.setattr(cases, "_trained", pretended)
    result = run_study(name, out=tmp_path, quick=True)
    tables = {"curves": pd.read_csv(tmp_path / "curves.csv"), "table": pd.read_csv(tmp_path / "table.csv")}
    assert result.conclusion.endswith(".")
    assert len(result.rows) == len(STUDIES[name].plan(True)) * len(result.seeds)
    assert all(c.ours is not None and c.where for c in result.compared)
    for figure in result.figures:
        table = tables[figure.source]
        assert set(figure.columns) <= set(table.columns)
        for column, value in figure.where.items():
            table = table[table[column] == value]
        assert len(table)
        assert table[figure.y].notna().all()


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_the_reference_of_qr_is_a_factorisation_with_its_own_derivative(shape, kind):
    rng = np.random.default_rng(1)
    A, E = drawn(*shape, kind, 10.0, rng), drawn(*shape, kind, 1.0, rng)
    Q, R = dual_qr(A, E)
    k = min(shape)
    np.testing.assert_allclose(Q.value @ R.value, A, atol=1e-13)
    np.testing.assert_allclose(Q.value.conj().T @ Q.value, np.eye(k), atol=1e-14)
    assert (np.diag(R.value[:, :k]).real > 0).all()
    h = 1e-6
    for place, factor in enumerate((Q, R)):
        ends = [dual_qr(A + s * h * E, E)[place].value for s in (1, -1)]
        np.testing.assert_allclose(factor.slope, (ends[0] - ends[1]) / (2 * h), atol=2e-7)
    singular = np.linalg.svd(drawn(6, 6, kind, 1e3, rng), compute_uv=False)
    assert singular[0] / singular[-1] == pytest.approx(1e3)


def test_the_gradients_are_right_to_rounding_times_condition(tmp_path, monkeypatch):
    from stability.analysis.studies import qr_gradients

    monkeypatch.setattr(qr_gradients, "QUICK", {"size": 3, "conditions": (1.0, 1e6), "draws": 1, "directions": 2})
    result = run_study("qr-gradients", out=tmp_path, quick=True)
    assert len(result.rows) == 2 * 3 * 4 * 2
    assert all(row["error"] < 1e-13 * row["condition"] for row in result.rows)
    assert all(row["differences"] < 1e-4 for row in result.rows if row["method"] == "qr" and row["condition"] == 1.0)
    curves = pd.read_csv(tmp_path / "curves.csv")
    assert set(curves["series"]) == {*qr_gradients.METHODS, "central differences"}
