"""Studies: trainings are kept and averaged, every size fits, and the studies without training hold their laws."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from stability.analysis.studies import STUDIES, Case, Figure, Study, base, run_study
from stability.analysis.studies.base import network
from stability.analysis.studies.factorizations import _drawn, _dual_qr
from stability.analysis.tasks import TASKS, make_task
from stability.errors import ConfigurationError, FileFormatError, UnsupportedError
from stability.models import ElmanRNN

COUNTS = {"train": 12, "test": 6, "limit": 20, "test_limit": 10}


def small(size):
    options = {"steps": 8, "train": 10, "test": 5}
    training = {"epochs": size["epochs"], "batch_size": 10}
    return [Case({"model": f"n={n}"}, network(ElmanRNN, n), "adding", options, training) for n in size["hidden"]]


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr("stability.analysis.studies.base.STUDIES", dict(STUDIES))
    size = {"hidden": (3, 4), "epochs": 2, "seeds": 2}
    study = Study(
        "toy", "reruns nothing", "Toy", "Nobody", {"full": size, "quick": {**size, "epochs": 1}},
        lambda frame: f"{len(frame)} trainings.", small,
        lambda model, task, size, seed, probed: {"width": len(probed), "word": "yes", "curves": [{"extra": seed}]},
        lambda model, task: [{"norm": 1.0}],
        figures=(Figure("lines", "Error", "step", "test_loss", "model"),),
    )  # fmt: skip
    base.register_study(study)
    return study


def test_every_case_and_seed_is_a_row_and_is_trained_once(toy, tmp_path, monkeypatch):
    trained, real = Counter(), base.train

    def counted(model, task, settings, **options):
        trained[model.layer.hidden_size, settings.seed] += 1
        return real(model, task, settings, **options)

    monkeypatch.setattr(base, "train", counted)
    result = run_study("toy", out=tmp_path, seed=1)
    assert [(r["model"], r["seed"], r["width"]) for r in result.rows] == [
        ("n=3", 1, 3), ("n=3", 2, 3), ("n=4", 1, 3), ("n=4", 2, 3),
    ]  # fmt: skip
    assert result.conclusion == "4 trainings."
    table, curves = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("table", "curves"))
    assert table["test_metric"].tolist() == [row["test_metric"] for row in result.rows]
    last = curves[(curves.model == "n=4") & (curves.seed == 2) & (curves.step == 2)]
    assert float(last.test_metric.dropna().iloc[0]) == result.rows[3]["test_metric"]
    summary = result.summary().set_index("model")
    assert summary.loc["n=3", "test_metric"] == pytest.approx(np.mean(table["test_metric"][:2]))
    assert summary.loc["n=3", "word"] == "2 yes"
    assert json.loads((tmp_path / "study.json").read_text())["rows"] == result.to_dict()["rows"]
    again = run_study("toy", out=tmp_path, seed=1)
    assert again.rows == result.rows
    assert set(trained.values()) == {1}
    run_study("toy", out=tmp_path, seed=2)
    assert trained == {(3, 1): 1, (4, 1): 1, (3, 2): 1, (4, 2): 1, (3, 3): 1, (4, 3): 1}
    (tmp_path / "parts.json").write_text("[torn")
    assert run_study("toy", out=tmp_path, seed=2, quick=True).rows != again.rows


def test_the_same_seed_gives_the_same_table(toy, tmp_path):
    one = run_study("toy", out=tmp_path / "one")
    torch.manual_seed(99)
    two = run_study("toy", out=tmp_path / "two")
    pd.testing.assert_frame_equal(one.frame().drop(columns="seconds"), two.frame().drop(columns="seconds"))


def test_an_interrupted_or_diverged_training_is_no_part_of_a_study(toy, tmp_path):
    told = []

    def interrupt(text):
        told.append(text)
        if len(told) == 5:  # the second training, after its first epoch
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study("toy", out=tmp_path, progress=interrupt)
    assert len(json.loads((tmp_path / "parts.json").read_text())) == 1
    rates = [replace(case, settings={**case.settings, "lr": 1e30}) for case in small(toy.sizes["full"])]
    base.register_study(replace(toy, cases=lambda size: rates))
    with pytest.raises(UnsupportedError):
        run_study("toy", out=tmp_path / "other")
    assert not (tmp_path / "other" / "study.json").exists()


def test_bad_requests_are_refused(toy, tmp_path):
    with pytest.raises(ConfigurationError):
        run_study("nothing", out=tmp_path)
    for seed in (-1, True, 1.5, None):
        with pytest.raises(ConfigurationError):
            run_study("toy", out=tmp_path, seed=seed)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileFormatError):
        run_study("toy", out=tmp_path / "file" / "study")
    (tmp_path / "table.csv").write_text("mine")
    with pytest.raises(ConfigurationError):
        run_study("toy", out=tmp_path)
    assert (tmp_path / "table.csv").read_text() == "mine"
    with pytest.raises(ConfigurationError):
        Figure("squares", "", "x", "y")


@pytest.mark.parametrize("name", STUDIES)
def test_the_sizes_of_every_study_fit_each_other(name):
    """Every task and model of every size is made, and the figures and the conclusion read columns that are there."""
    study, made = STUDIES[name], {}
    assert bool(study.cases(study.sizes["full"])) != bool(study.compute)
    for size in study.sizes.values():
        for case in study.cases(size):
            known = inspect.signature(TASKS[case.task]).parameters
            options = {**case.options, **{n: count for n, count in COUNTS.items() if n in known}}
            key = (case.task, repr(options))
            if key not in made:
                made[key] = make_task(case.task, **options)
            base.Settings().changed(**case.settings)
            with torch.no_grad():
                x = made[key].train[0][:2, : min(made[key].steps, 12)]
                assert case.make(made[key])(x).shape[-1] == made[key].output_size


@pytest.mark.parametrize("name", ["qr-gradients", "lrnn-spectra", "contracting"])
def test_figures_have_rows(name, tmp_path, monkeypatch):
    study = STUDIES[name]
    if name == "contracting":
        tiny = {"hidden": (4,), "seeds": 1, "epochs": 1, "limit": 40}
        monkeypatch.setitem(STUDIES, name, replace(study, sizes={"quick": tiny, "full": tiny}))
    result = run_study(name, out=tmp_path, quick=True)
    assert result.conclusion.endswith(".")
    assert result.figures
    assert all(len(figure.rows(result)) for figure in result.figures)


def test_the_gradients_of_qr_are_right_to_rounding_times_condition(tmp_path, monkeypatch):
    tiny = {"size": 3, "conditions": (1.0, 1e6), "draws": 1, "directions": 2}
    monkeypatch.setitem(STUDIES, "qr-gradients", replace(STUDIES["qr-gradients"], sizes={"quick": tiny}))
    frame = run_study("qr-gradients", out=tmp_path, quick=True).frame()
    assert len(frame) == 2 * 3 * 4 * 2
    assert (frame["error"] < 1e-13 * frame["condition"]).all()
    own = frame[(frame["method"] == "qr") & (frame["condition"] == 1.0)]
    assert (own["differences"] < 1e-4).all()


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_the_reference_of_qr_is_a_factorisation_with_its_own_derivative(shape, kind):
    rng = np.random.default_rng(1)
    A, E = _drawn(*shape, kind, 10.0, rng), _drawn(*shape, kind, 1.0, rng)
    Q, R = _dual_qr(A, E)
    np.testing.assert_allclose(Q.value @ R.value, A, atol=1e-13)
    np.testing.assert_allclose(Q.value.conj().T @ Q.value, np.eye(min(shape)), atol=1e-14)
    h = 1e-6
    for place, factor in enumerate((Q, R)):
        ends = [_dual_qr(A + s * h * E, E)[place].value for s in (1, -1)]
        np.testing.assert_allclose(factor.slope, (ends[0] - ends[1]) / (2 * h), atol=2e-7)
