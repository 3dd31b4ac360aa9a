"""The report's models examined by the workers of a cluster: the files are those that one process makes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from stability.analysis.campaign import campaign as c
from stability.analysis.campaign.budgets import BUDGETS, Budget
from stability.analysis.campaign.far import files_in, put_files
from stability.analysis.running.jobs import on_cluster
from stability.analysis.studies import run_study
from stability.errors import ConfigurationError, StabilityError
from stability.models import ElmanRNN, SequenceModel
from stability.systems import LureSystem

SMALL = Budget(
    samples=20, attacked=10, curved=10, draws=1, levels=(0.0, 0.3), epsilons_linf=(0.0, 0.1), epsilons_l2=(0.0, 1.0),
    steps=2, stretch=3, iterations=5, probes=2, trajectories=2,
    program_states=0,
)  # fmt: skip
TIMES = ("finished", "started", "seconds", "host", "created", "process")


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> c.Campaign:
    monkeypatch.setitem(BUDGETS, "quick", SMALL)
    torch.manual_seed(1)
    model = SequenceModel(ElmanRNN(7, 5), 10)
    with torch.no_grad():
        model.layer.weight_hh.mul_(0.5 / torch.linalg.matrix_norm(model.layer.weight_hh, 2))
    digits = ("digits", {"size": 7, "limit": 30, "test_limit": 10})
    system = LureSystem.recurrent([[-2.0]], [[0.5]])
    given = (c.Given("net", "net", model, digits), c.Given("system", "system.npz", system))
    return c.Campaign(tmp_path / "here", ("net", "system"), given, quick=True)


def results(campaign: c.Campaign) -> dict[str, Any]:
    """Everything in the folders of the models, but for times."""
    found: dict[str, Any] = {}
    for path in sorted((campaign.folder / "models").glob("*/*")):
        if path.suffix == ".json":
            found[str(path.relative_to(campaign.folder))] = _timeless(json.loads(path.read_text()))
        elif path.suffix == ".csv":
            frame = pd.read_csv(path)
            found[str(path.relative_to(campaign.folder))] = frame.drop(
                columns=frame.columns.intersection(TIMES)
            ).to_csv()
        elif not path.name.startswith("."):
            found[str(path.relative_to(campaign.folder))] = path.read_bytes()
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in (*TIMES, "files", "digest")}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def test_workers_elsewhere_find_what_this_process_finds(plan: c.Campaign, tmp_path: Path, cluster: Any) -> None:
    for _ in range(2):
        cluster.start_worker()
    c.plan(plan)
    assert [o.error for o in c.run_campaign(plan, processes=1)] == [None, None]  # while the workers start
    there = replace(plan, folder=tmp_path / "there")
    c.plan(there)
    news: list[tuple[str, str]] = []
    with on_cluster(cluster.address) as place:
        outcomes = c.run_campaign(there, place=place, news=lambda *told: news.append(told))
        assert c.run_campaign(there, place=place) == []  # nothing is left to do
    assert {o.name: o.error for o in outcomes} == {"net": None, "system": None}, cluster.logs()
    assert c.finished(there) == ("net", "system")
    ours, theirs = results(plan), results(there)
    assert ours.keys() == theirs.keys()
    assert len(ours) > 20
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert ("net", c.FINISHED) in news
    assert any(name == "net" and text != c.FINISHED for name, text in news)  # while it was examined
    settings = json.loads((there.folder / "report-settings.json").read_text())
    assert settings["processes"] == 2


def test_a_scheduler_that_dies_leaves_what_is_finished(plan: c.Campaign, cluster: Any, monkeypatch) -> None:
    cluster.start_worker()
    c.plan(plan)

    def news(name: str, text: str) -> None:
        if text == c.FINISHED:
            cluster.kill_scheduler()

    with pytest.raises(StabilityError, match="the scheduler is gone"), on_cluster(cluster.address) as place:
        c.run_campaign(plan, place=place, news=news)
    assert len(c.finished(plan)) == 1
    again = c.run_campaign(plan, processes=1)
    assert [o.error for o in again] == [None]
    assert c.finished(plan) == ("net", "system")


def test_files_of_others_stay_and_no_name_leads_out(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "notes.txt").write_text("mine")
    put_files({"a.csv": ("analysis", b"1"), "b.csv": ("analysis", b"2")}, tmp_path / "m")
    put_files({"a.csv": ("analysis", b"3")}, tmp_path / "m")
    assert files_in(tmp_path / "m") == {"a.csv": ("analysis", b"3")}
    assert sorted(p.name for p in (tmp_path / "m").glob("[!.]*")) == ["a.csv", "notes.txt"]
    with pytest.raises(ConfigurationError, match="notes.txt"):
        put_files({"notes.txt": ("analysis", b"theirs")}, tmp_path / "m")
    assert (tmp_path / "m" / "notes.txt").read_text() == "mine"
    with pytest.raises(StabilityError):
        put_files({"../out.csv": ("analysis", b"x")}, tmp_path / "m")
    assert not (tmp_path / "out.csv").exists()
    assert files_in(tmp_path / "none") == {}


@pytest.mark.slow
def test_a_study_done_by_workers_is_the_one_done_here(tmp_path: Path, cluster: Any) -> None:
    for _ in range(2):
        cluster.start_worker()
    here = run_study("qr-gradients", out=tmp_path / "here", quick=True)
    with on_cluster(cluster.address) as place:
        there = run_study("qr-gradients", out=tmp_path / "there", quick=True, place=place)
    assert there.rows == here.rows
    assert _parts(tmp_path / "there") == _parts(tmp_path / "here")
    assert len(_parts(tmp_path / "here")) > 10
    with on_cluster(cluster.address) as place:
        cluster.kill_worker()
        cluster.kill_worker()  # nobody is needed for parts that are kept
        assert run_study("qr-gradients", out=tmp_path / "there", quick=True, place=place).rows == here.rows


def _parts(folder: Path) -> dict[str, Any]:
    found = {p.name: json.loads(p.read_text()) for p in (folder / "parts").glob("*.json")}
    return {name: (part["settings"], part["outcome"]) for name, part in found.items()}
