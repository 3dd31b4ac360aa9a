"""Results identify their model: digests, ranges, seeds, and the data behind them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from stability.analysis.attacks.noise import noise_sweep
from stability.analysis.campaign import campaign as c
from stability.analysis.campaign import each
from stability.analysis.campaign.budgets import AnalysisSettings
from stability.analysis.campaign.digests import model_digest
from stability.analysis.campaign.labels import names_for, titles_for
from stability.analysis.campaign.pipeline import analyse
from stability.analysis.campaign.plan import Campaign, Given
from stability.analysis.curvature.hessian import hessian_summary
from stability.analysis.tasks import make_task
from stability.analysis.training.front import train
from stability.certificate import Certificate
from stability.models import GRU, LSTM, ElmanRNN, LipschitzRNN, SequenceModel, load, save
from stability.systems import LureSystem

from .conftest import SMALL

DIGITS = {"size": 7, "limit": 40, "test_limit": 20}
HOSTILE = [
    '"', "\\", "<", "#", "..", "a/..", ".", "a b", "x" * 200, "'", "&amp;", "\u05d0\u05d1\u05d2", "\u202eabc", "🚀",
    "模型", "\udcff", "a\nb", "a\x1b[31m", "-rf", "CON:", "$(reboot)", "%s", "{x}", "_", "package.module:factory",
    "n.pt#rnn",
]  # fmt: skip


def network() -> SequenceModel:
    torch.manual_seed(1)
    return SequenceModel(ElmanRNN(7, 5), 10)


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analysed")
    task = make_task("digits", **DIGITS)
    analyse(folder, network(), AnalysisSettings(SMALL, seed=3), model=network(), task=task, title="T", source="s")
    return folder


def document(folder: Path, name: str) -> dict:
    return json.loads((folder / name).read_text())


def test_the_hessian_is_that_of_the_training_data(analysed: Path) -> None:
    task = make_task("digits", **DIGITS)
    losses = []
    for x, y in (task.train, task.test):
        x, y = x[: SMALL.curved], y[: SMALL.curved]
        summary = hessian_summary(
            network(), x, y, loss=task.loss, seed=3, max_iter=SMALL.iterations, trace_samples=SMALL.probes
        )
        losses.append(summary.loss)
    found = document(analysed, "hessian.json")["loss"]
    assert found == pytest.approx(losses[0], rel=1e-6)
    assert abs(losses[0] - losses[1]) > 1e-3


def test_other_layers_than_gated_ones_are_asked_about_every_input(analysed: Path) -> None:
    assert document(analysed, "analysis.json")["input_box"] is None
    assert document(analysed, "analysis.json")["input_range"] == [0.0, 1.0]


@pytest.mark.parametrize("layer", [LSTM, GRU])
def test_gated_cells_are_asked_about_inputs_in_the_range_of_the_data(tmp_path: Path, layer: type) -> None:
    torch.manual_seed(0)
    task = make_task("adding", steps=6, train=20, test=10)
    model = SequenceModel(layer(2, 3), 1)
    stored = analyse(tmp_path, model, AnalysisSettings(SMALL), model=model, task=task, title="T", source="s")
    low, high = stored["input_box"]
    both = torch.cat([task.train[0].flatten(), task.test[0].flatten()])
    assert low <= float(both.min())
    assert float(both.max()) <= high <= 1.0
    subject = Certificate.load(tmp_path / "certificate.json").subject
    assert subject.input_low.tolist() == [low] * 2
    assert subject.input_high.tolist() == [high] * 2


def test_a_witness_is_looked_for_where_the_data_are(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = SequenceModel(ElmanRNN(7, 3), 10)
    with torch.no_grad():
        model.layer.weight_hh.copy_(2.5 * torch.eye(3))
        model.layer.bias.zero_()
    task = make_task("digits", **DIGITS)
    analyse(tmp_path, model, AnalysisSettings(SMALL), model=model, task=task, title="T", source="s")
    certificate = Certificate.load(tmp_path / "certificate.json")
    assert str(certificate.verdict) == "refuted"
    assert certificate.meta["witness"]["input_in_data_range"] is True
    assert set(certificate.meta["witness"]) == {"input_in_data_range", "states_reachable"}


def shear(features: int) -> ElmanRNN:
    layer = ElmanRNN(features, 2)
    with torch.no_grad():
        layer.weight_hh.copy_(torch.tensor([[0.5, 8.0], [0.0, 0.5]]))
        layer.weight_ih.zero_()
        layer.bias.zero_()
    return layer


def test_a_model_that_changed_is_examined_again(tmp_path: Path) -> None:
    """The same path, other weights: nothing of the old results stays, and the other model keeps its own."""
    systems = [LureSystem.recurrent(-2 * np.eye(2), g * np.eye(2)) for g in (0.5, 3.0)]
    models = tuple(Given(f"s{i}", f"s{i}.npz", s) for i, s in enumerate(systems))
    first = Campaign(tmp_path / "report", ("s0", "s1"), models, quick=True)
    c.plan(first)
    c.run_campaign(first, processes=1)
    folders = [first.folder / "models" / name for name in first.models]
    assert document(folders[1], "certificate.json")["claim"]["verdict"] == "refuted"
    kept = (folders[0] / "certificate.json").stat().st_mtime_ns
    (folders[1] / "lyapunov.csv").write_text("of the old model")
    (folders[1] / "mine.csv").write_text("of nobody's")
    other = replace(models[1], subject=LureSystem.recurrent(-2 * np.eye(2), 0.25 * np.eye(2)))
    again = replace(first, given=(models[0], other))
    assert c.plan(again) == ("s0",)
    assert not (folders[1] / "lyapunov.csv").exists()
    assert (folders[1] / "mine.csv").read_text() == "of nobody's"
    c.run_campaign(again, processes=1)
    assert document(folders[1], "certificate.json")["claim"]["verdict"] == "certified"
    assert (folders[0] / "certificate.json").stat().st_mtime_ns == kept
    assert c.plan(again) == ("s0", "s1")


@pytest.mark.usefixtures("brief_presets")
def test_a_preset_is_examined_with_the_seed_of_the_campaign(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "report", ("elman",), quick=True, seed=3, task=("digits", DIGITS))
    c.plan(campaign)
    news: list[str] = []
    assert [o.error for o in c.run_campaign(campaign, processes=1, news=lambda n, text: news.append(text))] == [None]
    folder = campaign.folder / "models" / "elman"
    run, stored = document(folder, "run.json"), document(folder, "analysis.json")
    assert run["training"]["seed"] == stored["seed"] == stored["environment"]["seed"] == 3
    assert (run["result"]["epochs"], stored["title"]) == (2, "Elman RNN")
    assert any("held-out accuracy" in text for text in news)
    table = pd.read_csv(folder / "noise.csv")
    model, task = load(folder), make_task("digits", seed=3, **DIGITS)
    x, y = (part[: SMALL.samples] for part in task.test)
    white = noise_sweep(model, x, y, kind="white", levels=SMALL.levels, draws=SMALL.draws, bounds=task.bounds, seed=3)
    assert table[table["noise"] == "white"]["accuracy"].tolist() == pytest.approx(list(white.accuracy))
    assert c.plan(campaign) == ("elman",)
    with torch.no_grad():
        model.layer.bias.add_(1)
    save(model, folder / "model.safetensors")
    assert c.plan(campaign) == ()
    assert (folder / "run.json").is_file()


def test_one_bit_of_one_weight_is_another_model() -> None:
    model = network()
    before = model_digest(model)
    assert model_digest(network()) == before
    with torch.no_grad():
        model.layer.bias[2] = torch.nextafter(model.layer.bias[2], torch.tensor(9.0))
    assert model_digest(model) != before


def test_the_same_weights_in_another_architecture_are_another_model() -> None:
    first, second = LipschitzRNN(2, 3, dt=0.1), LipschitzRNN(2, 3, dt=0.2)
    second.load_state_dict(first.state_dict())
    assert model_digest(first) != model_digest(second)


@pytest.mark.parametrize("path", HOSTILE)
def test_names_of_folders_are_made_here(path: str) -> None:
    (name,) = names_for([path])
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,39}", name)


def test_names_are_unique_in_any_case() -> None:
    paths = [*HOSTILE, *HOSTILE, "lstm", "LSTM", "x/Lstm"]
    names = names_for(paths)
    assert len({n.lower() for n in names}) == len(paths) == len(set(titles_for(paths)))


def test_a_run_on_a_generated_task_leaves_the_folder_of_data_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report on runs of several tasks has one folder of data: who reads none is examined all the same."""
    torch.manual_seed(1)
    model, seen = SequenceModel(ElmanRNN(2, 3), 1), []
    train(model, make_task("adding", steps=5, train=8, test=4, seed=1), epochs=1, seed=1, out=tmp_path / "run")
    given = Given("adding", str(tmp_path / "run"), model)
    campaign = Campaign(tmp_path / "report", ("adding",), (given,), data_dir=str(tmp_path))
    monkeypatch.setattr(each, "analyse", lambda *_, task, **__: seen.append(task))
    each.examine_one(each.RunJob(campaign, "adding", "adding", AnalysisSettings(SMALL)), print)
    assert [(task.name, task.steps, len(task.test[0])) for task in seen] == [("adding", 5, 4)]
