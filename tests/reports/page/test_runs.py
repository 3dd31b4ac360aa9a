"""Table of rounding: one row a network, with a bound that no run in the box exceeds, or the reason for none."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stability.analysis.campaign import certificate
from stability.analysis.campaign.budgets import AnalysisSettings
from stability.analysis.campaign.work import Work
from stability.analysis.tasks import make_task
from stability.kernel.format.sentences import at_most
from stability.models import LRU, BoundedGainRNN, ContractingRNN, ElmanRNN, MinGRU, SequenceModel, save
from stability.reports.cli import run
from stability.reports.formatting import bound
from stability.reports.page.claims import covered, not_covered
from stability.reports.page.runs import runs
from stability.reports.rounding import rounding_words
from stability.reports.stored.collect import Report, read_model
from stability.reports.stored.records import ModelRecord
from stability.verification import verify

from ..conftest import seal
from .folds import rows

LAYERS = {
    "contracting": lambda: ContractingRNN(7, 8, rate=0.9),
    "linear": lambda: LRU(7, 8, output_size=5),
    "pairs": lambda: BoundedGainRNN(7, 8),
    "gated": lambda: MinGRU(7, 8),
    "unstable": lambda: ElmanRNN(7, 8),
}
BOUNDED = ("contracting", "linear", "pairs", "gated")


def network(name: str) -> SequenceModel:
    torch.manual_seed(0)
    model = SequenceModel(LAYERS[name](), 4)
    with torch.no_grad():
        model.head.weight.add_(1e5)  # large logits with small differences: rounding decides some of them
    if name == "unstable":
        with torch.no_grad():
            model.layer.weight_hh.mul_(20.0)
    return model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelRecord]:
    task, out = make_task("digits", size=7, limit=40, test_limit=20), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "RUN_STEPS", 5000)
        for name in LAYERS:
            folder, model = tmp_path_factory.mktemp(name), network(name)
            work = Work(folder, model, model, task, AnalysisSettings(), None, (0.0, 1.0))
            work.begin("certificate")
            certificate.certificate_step(work)
            (folder / "analysis.json").write_text(json.dumps({"title": name, "discrete": True, "steps": {}}))
            seal(folder)
            out[name] = read_model(folder)
    return out


def test_every_network_has_a_row_with_its_bound_or_the_reason_for_none(models: dict[str, ModelRecord]) -> None:
    (fold,) = runs(Report(Path(), {}, tuple(models.values())))
    (table,) = fold.parts
    shown = {name: {title: cell.text for title, cell in row.items()} for name, row in rows(table).items()}
    assert set(shown) == set(LAYERS)
    for name, row in shown.items():
        assert (row["proved bound"] == "–") == (name not in BOUNDED) == row["holds"].startswith("no bound: ")
        assert row["measured distance"] != "–"
        assert ("float32 on this machine's library" in covered(models[name])) == (name in BOUNDED)
        assert ("rounding of a float32" in not_covered(models[name])) == (name not in BOUNDED)
    assert shown["pairs"]["holds"] == "in the first 7 steps"
    useless = copy.deepcopy(models["gated"])
    claims: Any = useless.certificate["claims"]
    next(claim for claim in claims if claim["name"] == "as_it_runs")["value"] = 1e3  # above every state
    assert "float32 on" not in covered(useless)
    assert "rounding of a float32" in not_covered(useless)


@pytest.mark.parametrize("name", BOUNDED[:3])  # the others give no bound of their outputs
def test_runs_and_decisions_stay_within_what_is_proved(name: str, models: dict[str, ModelRecord]) -> None:
    assert verify(models[name].folder / "certificate.json").valid
    summary = models[name].certificate
    (value,) = (claim["value"] for claim in summary["claims"] if claim["name"] == "as_it_runs")
    measured, margin = summary["meta"]["rounding"], summary["meta"]["decisions"]["margin"]
    assert 0.0 < measured["largest"] < value < 1e-2 * measured["size"]
    assert measured["size"] < summary["run_size"]
    words = " ".join(rounding_words(summary))
    assert f"{bound(value / summary['run_size'], 2, up=True)} times that" in words
    assert f"margin above {at_most(margin)}" in words
    assert measured["steps"] * measured["sequences"] > 4900
    assert measured["steps"] == (7 if name == "pairs" else 1000)
    with torch.no_grad():
        best = network(name)(make_task("digits", size=7, limit=40, test_limit=20).test[0]).topk(2).values
    assert summary["meta"]["decisions"]["share"] < 1.0
    assert summary["meta"]["decisions"]["share"] == pytest.approx(
        float((best[:, 0] - best[:, 1] > margin).float().mean())
    )
    x = torch.as_tensor(np.random.default_rng(0).integers(0, 2, (200, 7, 7)), dtype=torch.float32)
    with torch.no_grad():
        logits, exact = network(name)(x).double(), network(name).double()(x.double())
    apart = [out[:, :, None] - out[:, None] for out in (logits, exact)]
    assert 0.0 < float((apart[0] - apart[1]).abs().max()) < margin


def test_the_terminal_says_which_decisions_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    save(SequenceModel(ContractingRNN(2, 4, rate=0.8), 3), file := tmp_path / "net.safetensors")
    assert run(["certify", str(file), "--arithmetic", "float32", "--input-box", "0", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (value,) = (claim["value"] for claim in found["claims"] if claim["name"] == "as_it_runs")
    assert 0.0 < value < 1e-3 * found["run_size"]
    assert 0.0 < found["meta"]["decisions"]["margin"] < 1e-2
