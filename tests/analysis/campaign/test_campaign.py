"""Campaigns: what is finished is kept, what is missing is done, mistakes in one model do not stop another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from stability.analysis.campaign import campaign as c
from stability.analysis.campaign.budgets import AnalysisSettings
from stability.analysis.campaign.pipeline import STEPS, analyse
from stability.analysis.campaign.plan import Campaign, Given
from stability.analysis.jobs import cluster
from stability.analysis.tasks import make_task
from stability.errors import ConfigurationError, FileFormatError
from stability.models import ElmanRNN, SequenceModel
from stability.storage import artifacts
from stability.systems import LureSystem
from stability.verification import verify

from .conftest import SMALL

DIGITS = {"size": 7, "limit": 40, "test_limit": 20}


def contracting_network() -> SequenceModel:
    torch.manual_seed(1)
    model = SequenceModel(ElmanRNN(7, 5), 10)
    with torch.no_grad():
        model.layer.weight_hh.mul_(0.5 / torch.linalg.matrix_norm(model.layer.weight_hh, 2))
    return model


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analysed")
    model = contracting_network()
    task = make_task("digits", **DIGITS)
    settings = AnalysisSettings(replace(SMALL, program_states=5))
    analyse(folder, model, settings, model=model, task=task, title="T", source="s")
    return folder


def test_every_step_of_a_classifier_is_done(analysed: Path) -> None:
    document = json.loads((analysed / "analysis.json").read_text())
    assert {k: s["status"] for k, s in document["steps"].items()} == dict.fromkeys(STEPS, "done")
    assert document["parameters"] == sum(p.numel() for p in contracting_network().parameters())
    assert document["discrete"] is True


def test_every_file_is_as_it_is_described(analysed: Path) -> None:
    steps = json.loads((analysed / "analysis.json").read_text())["steps"]
    assert set(artifacts.STEPS) == {"training", *STEPS}
    assert {name: tuple(s["files"]) for name, s in steps.items()} == {
        name: tuple(sorted(f for f in artifacts.files_of_steps(name) if "scores" not in f and "_step_" not in f))
        for name in STEPS  # a map that no integrator made has no margin of a step
    }
    for described in artifacts.ARTIFACTS:
        path = analysed / described.name
        if "scores" in described.name:
            assert not path.exists()  # they are of tasks without a class a sequence
        elif described.columns and described.step != "training":
            assert tuple(pd.read_csv(path).columns) == tuple(described.columns), path
        elif described.fields and described.step != "training":
            fields = set(described.fields)
            if described.name == "local.json":  # of a network that packs its sequences
                fields -= {"shortest", "longest", "unread"}
            assert set(json.loads(path.read_text())) == fields, path


def test_the_certificate_on_disk_is_valid(analysed: Path) -> None:
    assert verify(analysed / "certificate.json").valid


def test_solvers_were_asked_beside_the_certificate(analysed: Path) -> None:
    found = json.loads((analysed / "cross_check.json").read_text())
    findings = {f["criterion"]: f for f in json.loads((analysed / "certificate.json").read_text())["findings"]}
    assert {(o["criterion"], o["solver"]) for o in found["opinions"]} == {
        (c, s) for c in ("small_gain", "circle") for s in ("SCS", "CLARABEL")
    }
    for opinion in found["opinions"]:
        assert opinion["holds"] is findings[opinion["criterion"]]["holds"] is True
        assert opinion["frequency_margin"] == pytest.approx(findings[opinion["criterion"]]["margin"], rel=1e-6)


def test_every_kind_of_noise_and_attack_of_the_tables_is_there(analysed: Path) -> None:
    noise, attacks = pd.read_csv(analysed / "noise.csv"), pd.read_csv(analysed / "attacks.csv")
    assert set(noise["noise"]) == {"white", "salt_pepper", "parameters"}
    kinds = set(zip(attacks["attack"], attacks["norm"]))
    assert kinds == {(attack, norm) for attack in ("strong", "deepfool") for norm in ("linf", "l2")}
    left = attacks.pivot_table(index=["norm", "epsilon"], columns="attack", values="accuracy")
    assert (left["strong"] <= left["deepfool"]).all()
    for frame in (noise[noise["level"] == 0], attacks[attacks["epsilon"] == 0]):
        assert frame["accuracy"].nunique() == 1


def test_a_bare_system_has_a_verdict_and_reasons_for_the_rest(tmp_path: Path) -> None:
    system = LureSystem.recurrent(-2 * np.eye(2), 0.5 * np.eye(2))
    document = analyse(tmp_path, system, AnalysisSettings(SMALL), title="T", source="s")
    theory = ("certificate", "cross_check", "margin")  # these need no network
    assert [document["steps"].pop(step)["status"] for step in theory] == ["done"] * 3
    assert all("no network" in s["reason"] for s in document["steps"].values())
    assert document["discrete"] is False


def test_a_regression_task_has_scores_and_no_certified_accuracy(tmp_path: Path) -> None:
    torch.manual_seed(0)
    task = make_task("adding", steps=8, train=20, test=10)
    model = SequenceModel(ElmanRNN(2, 4), 1)
    steps = analyse(tmp_path, model, AnalysisSettings(SMALL), model=model, task=task, title="T", source="s")["steps"]
    assert "has real targets" in steps["robustness"]["reason"]
    for name, file, grid in (("noise", "noise_scores.csv", 6), ("attacks", "attack_scores.csv", 5)):
        assert steps[name]["files"] == [file]
        table = pd.read_csv(tmp_path / file)
        assert tuple(table.columns) == tuple(artifacts.artifact(file).columns)
        assert (len(table), set(table["metric"])) == (grid, {"mse"})
    attacks = pd.read_csv(tmp_path / "attack_scores.csv").groupby("norm")["score"]
    assert all(scores.is_monotonic_increasing for _, scores in attacks)
    error = task.metric(model(task.test[0]), task.test[1])
    assert attacks.first().tolist() == pytest.approx([error] * 2)
    assert steps["hessian"]["status"] == steps["norms"]["status"] == "done"


def test_a_disk_error_is_no_property_of_the_model(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError):
        analyse(tmp_path / "gone", LureSystem.linear([[-1.0]]), AnalysisSettings(SMALL), title="T", source="s")


@pytest.fixture
def given(tmp_path: Path) -> Campaign:
    systems = [LureSystem.recurrent(-2 * np.eye(2), g * np.eye(2)) for g in (0.5, 3.0)]
    models = tuple(Given(f"s{i}", f"s{i}.npz", s) for i, s in enumerate(systems))
    return Campaign(tmp_path / "report", ("s0", "s1"), models, quick=True)


def claim(campaign: Campaign, name: str) -> dict:
    return json.loads((campaign.folder / "models" / name / "certificate.json").read_text())["claim"]


def test_what_is_finished_is_not_done_again(given: Campaign) -> None:
    assert c.plan(given) == ()
    seen: list[str] = []
    c.run_campaign(given, processes=1, news=lambda name, text: seen.append(name))
    assert set(seen) == {"s0", "s1"}
    (given.folder / "models" / "s1" / "analysis.json").unlink()
    assert c.plan(given) == ("s0",)
    seen.clear()
    c.run_campaign(given, processes=1, news=lambda name, text: seen.append(name))
    assert set(seen) == {"s1"}
    verdicts = [json.loads((given.folder / "models" / n / "certificate.json").read_text()) for n in ("s0", "s1")]
    assert [v["claim"]["verdict"] for v in verdicts] == ["certified", "refuted"]


TIMES = ("finished", "started", "seconds", "host", "created", "process")


def results(campaign: Campaign) -> dict[str, Any]:
    """Every file in the folders of the models, without times."""
    found: dict[str, Any] = {}
    for path in sorted((campaign.folder / "models").glob("*/*.*")):
        name = str(path.relative_to(campaign.folder))
        if path.suffix == ".json":
            found[name] = _timeless(json.loads(path.read_text()))
        elif path.suffix == ".csv":
            frame = pd.read_csv(path)
            found[name] = frame.drop(columns=frame.columns.intersection(TIMES)).to_csv()
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in (*TIMES, "files", "digest")}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


@pytest.mark.slow
def test_workers_write_the_files_that_one_process_writes(given: Campaign, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")  # without it no second process starts
    model = Given("net", "net", contracting_network(), ("digits", DIGITS))
    here = replace(given, models=("s0", "net"), given=(given.given[0], model))
    there, news = replace(here, folder=tmp_path / "there"), []
    c.plan(here)
    assert [o.error for o in c.run_campaign(here, processes=1)] == [None, None]
    c.plan(there)
    with cluster(2) as client:
        outcomes = c.run_campaign(there, client=client, news=lambda *told: news.append(told))
        assert c.run_campaign(there, client=client) == []
    assert {o.name: o.error for o in outcomes} == {"s0": None, "net": None}
    assert results(here) == results(there)
    assert ("net", c.FINISHED) in news
    assert any(name == "net" and text != c.FINISHED for name, text in news)
    assert json.loads((there.folder / "report-settings.json").read_text())["processes"] == 2


@pytest.mark.slow
def test_a_worker_that_writes_elsewhere_is_an_error(given: Campaign, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("cryptography")  # without it no second process starts
    c.plan(given)
    with cluster(2) as client:
        monkeypatch.setattr(c, "is_complete", lambda folder: False)
        (first, *_) = c.run_campaign(given, client=client)
    assert "does not see" in str(first.error)


def test_another_plan_needs_another_place(given: Campaign) -> None:
    c.plan(given)
    with pytest.raises(ConfigurationError):
        c.plan(replace(given, seed=1))
    assert c.plan(replace(given, seed=1), overwrite=True) == ()
    assert json.loads((given.folder / "report-settings.json").read_text())["seed"] == 1


def test_places_that_are_taken(tmp_path: Path, given: Campaign) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(FileFormatError):
        c.plan(replace(given, folder=tmp_path / "file"))
    with pytest.raises(ConfigurationError):
        c.plan(replace(given, folder=tmp_path))


def test_unknown_models_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        c.plan(Campaign(tmp_path / "new", ("transformer",)))
    assert not (tmp_path / "new").exists()
