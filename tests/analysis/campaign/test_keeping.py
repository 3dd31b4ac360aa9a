"""Campaigns keep finished steps, repeat stale ones, record both, and leave other files alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from stability.analysis.campaign import campaign as c
from stability.analysis.campaign import each
from stability.analysis.campaign.pipeline import STEPS
from stability.analysis.campaign.plan import Campaign, Given
from stability.errors import ConfigurationError
from stability.models import ElmanRNN, SequenceModel
from stability.systems import LureSystem

DIGITS = ("digits", {"size": 7, "limit": 30, "test_limit": 10})


@pytest.fixture
def network(tmp_path: Path) -> Campaign:
    torch.manual_seed(1)
    model = SequenceModel(ElmanRNN(7, 5), 10)
    with torch.no_grad():
        model.layer.weight_hh.mul_(0.5 / torch.linalg.matrix_norm(model.layer.weight_hh, 2))
    return Campaign(tmp_path / "r", ("net",), (Given("net", "net", model, DIGITS),), quick=True)


@pytest.fixture
def systems(tmp_path: Path) -> Campaign:
    made = [LureSystem.recurrent(-2 * np.eye(2), g * np.eye(2)) for g in (0.5, 0.6)]
    return Campaign(
        tmp_path / "r", ("s0", "s1"), tuple(Given(f"s{i}", f"s{i}.npz", s) for i, s in enumerate(made)), quick=True
    )


def settings(campaign: Campaign) -> dict:
    return json.loads((campaign.folder / "report-settings.json").read_text())


def test_torn_and_removed_files_cost_their_own_step_alone(network: Campaign) -> None:
    c.plan(network)
    assert [o.error for o in c.run_campaign(network, processes=1)] == [None]
    folder = network.folder / "models" / "net"
    whole = {p.name: p.read_bytes() for p in folder.glob("*.csv")}
    text = (folder / "attacks.csv").read_text()
    (folder / "attacks.csv").write_text(text[: len(text) // 2])
    (folder / "noise.csv").unlink()
    assert c.plan(network) == ()
    seen: list[str] = []
    c.run_campaign(network, processes=1, news=lambda name, text: seen.append(text))
    assert seen == ["noise", "attacks", c.FINISHED]
    assert {p.name: p.read_bytes() for p in folder.glob("*.csv")} == whole
    assert c.plan(network) == ("net",)
    steps = json.loads((folder / "analysis.json").read_text())["steps"]
    assert list(steps) == list(STEPS)


def test_an_edited_certificate_is_made_again(systems: Campaign) -> None:
    c.plan(systems)
    c.run_campaign(systems, processes=1)
    path = systems.folder / "models" / "s1" / "certificate.json"
    before = json.loads(path.read_text())
    path.write_text(path.read_text().replace("certified", "refuted"))
    assert c.plan(systems) == ("s0",)
    c.run_campaign(systems, processes=1)
    assert json.loads(path.read_text())["claim"] == before["claim"]


def test_the_record_is_there_from_the_beginning(systems: Campaign) -> None:
    def stop(name: str, text: str) -> None:
        told.append(settings(systems))
        if (name, text) == ("s1", "certificate"):
            raise KeyboardInterrupt

    told: list[dict] = []
    c.plan(systems)
    with pytest.raises(KeyboardInterrupt):
        c.run_campaign(systems, processes=1, news=stop, command="stability report")
    for document in told:
        assert document["command"] == "stability report"
        assert document["processes"] == 1
        assert document["environment"]["versions"]["torch"] == torch.__version__
        assert "finished" not in document
    assert told[-1]["seconds"] > told[0]["seconds"]
    for model in ("s0", "s1"):  # killed after the last model, before the record knew: nothing is left to do
        (systems.folder / "models" / model).mkdir(exist_ok=True)
    c.run_campaign(systems, processes=1, command="stability report")
    whole = settings(systems)
    assert len(whole["sessions"]) == 2
    document = {k: v for k, v in whole.items() if k != "finished"}
    (systems.folder / "report-settings.json").write_text(json.dumps(document))
    assert c.plan(systems) == ("s0", "s1")
    c.run_campaign(systems, processes=1, command="another")
    after = settings(systems)
    assert after["finished"]
    for key in ("command", "processes", "environment", "failed", "started"):
        assert after[key] == whole[key], key
    assert after["seconds"] >= whole["seconds"]
    again = (systems.folder / "report-settings.json").read_bytes()
    c.run_campaign(systems, processes=1, command="another")
    assert (systems.folder / "report-settings.json").read_bytes() == again


def test_files_of_others_stay(systems: Campaign) -> None:
    c.plan(systems)
    c.run_campaign(systems, processes=1)
    mine = [systems.folder / n for n in ("notes.txt", "models/s0/notes.txt", "models/mine/x")]
    mine[2].parent.mkdir()
    for path in mine:
        path.write_text("mine")
    other = Campaign(systems.folder, systems.models, systems.given, quick=True, seed=3)
    with pytest.raises(ConfigurationError):
        c.plan(other)
    assert c.plan(other, overwrite=True) == ()
    assert [p.read_text() for p in mine] == ["mine"] * 3
    assert not (systems.folder / "models" / "s1").exists()


def test_files_in_the_way_are_named_before_the_work(systems: Campaign) -> None:
    c.plan(systems)
    path = systems.folder / "models" / "s1" / "noise.csv"
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(ConfigurationError):
        c.plan(systems)
    assert path.read_text() == "mine"
    assert c.plan(systems, overwrite=True) == ()


@pytest.mark.slow
def test_edited_spectra_are_written_again_from_the_checkpoint(tmp_path: Path, monkeypatch) -> None:
    from stability.analysis.training.presets import train_preset

    monkeypatch.setattr(each, "train_preset", lambda *a, **k: train_preset(*a, epochs=2, milestones=(), **k))
    campaign = Campaign(tmp_path / "r", ("elman",), quick=True, task=DIGITS)
    c.plan(campaign)
    c.run_campaign(campaign, processes=1)
    folder = campaign.folder / "models" / "elman"
    names = ("spectra.csv", "eigenvalues.csv", "model.safetensors")
    whole = {n: (folder / n).read_bytes() for n in names}
    (folder / "spectra.csv").write_bytes(whole["spectra.csv"].replace(b",W,", b",V,"))
    (folder / "mine.txt").write_text("mine")
    assert (folder / "spectra.csv").read_bytes() != whole["spectra.csv"]
    assert c.plan(campaign) == ()
    c.run_campaign(campaign, processes=1)
    assert {n: (folder / n).read_bytes() for n in names} == whole
    assert (folder / "mine.txt").read_text() == "mine"
