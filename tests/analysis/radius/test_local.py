"""Certified and attacked radii of single inputs: named as promised, in their order, and stopped where they cross."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from stability.analysis import local_radius
from stability.analysis.attacks.smallest import attack_radii
from stability.analysis.radius import local
from stability.errors import ConfigurationError, ContradictionError, DimensionError, UnsupportedError
from stability.models import ContractingRNN, ElmanRNN
from stability.models.classifier import classifier
from stability.models.classifier_network import ClassifierNetwork
from stability.models.gated import GRU
from stability.models.network import SequenceModel
from stability.search.local.largest_radius import ENGINES

from ...stability.search.local.affine_toy import engine, largest, network, toy_rule

__all__ = ["toy_rule"]
NORMS = ["l2", "linf"]


@pytest.fixture
def affine(monkeypatch: pytest.MonkeyPatch, toy_rule: None):
    """A network whose boundaries are planes, inputs with labels of which one is wrong, and an engine that knows it."""
    for norm in NORMS:
        monkeypatch.setitem(ENGINES, norm, engine(norm))
    monkeypatch.setattr(local, "attack_radii", lambda *a, **k: attack_radii(*a, **{**k, "restarts": 0, "steps": 6}))
    subject = network()
    x = np.random.default_rng(3).normal(size=(6, 4, 2))
    y = subject.logits(x).argmax(axis=1)
    y[2] = (y[2] + 1) % 3
    return subject, x, y


@pytest.mark.parametrize("norm", NORMS)
def test_both_radii_are_right_where_they_are_known(norm: str, affine) -> None:
    subject, x, y = affine
    found = local_radius(subject, x, y, norm=norm)
    true = np.array([largest(subject, row, int(label), norm) for row, label in zip(x, y)])
    right = found.correct
    assert right.tolist() == [True, True, False, True, True, True]
    np.testing.assert_allclose(found.radius[right], 0.9 * true[right])
    np.testing.assert_allclose(found.attack_radius[right], true[right], rtol=1e-5)
    assert (found.attack_radius[right] >= true[right]).all()
    assert found.radius[2] == found.attack_radius[2] == 0.0
    assert found.certified is None
    assert found.claims[2] is None
    np.testing.assert_allclose(found.ratio, 0.9, rtol=1e-4)
    moved = subject.logits(found.adversarial).argmax(axis=1)
    assert (moved != y).all()


def test_an_attack_inside_a_certified_ball_stops_the_run(affine, monkeypatch: pytest.MonkeyPatch) -> None:
    subject, x, y = affine
    monkeypatch.setitem(ENGINES, "l2", engine("l2", share=1.01))
    with pytest.raises(ContradictionError):
        local_radius(subject, x, y)


def test_the_answer_as_json_has_the_promised_names(affine) -> None:
    subject, x, y = affine
    found = local_radius(subject, x, y, norm="linf", epsilon=0.01)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert list(document) == [
        "norm", "budget", "n", "correct", "certified", "median_radius", "median_attack", "median_share", "samples",
    ]  # fmt: skip
    names = ["index", "label", "correct", "radius", "attack_radius", "share", "certified", "seconds"]
    assert all(list(row) == names for row in document["samples"])
    assert (document["n"], document["correct"], document["norm"]) == (6, 5, "linf")
    assert document["certified"] == sum(row["certified"] for row in document["samples"]) == int(found.certified.sum())
    assert document["samples"][2]["radius"] == 0.0
    np.testing.assert_allclose(found.share, found.radius / np.abs(x).max(axis=(1, 2)))
    assert local_radius(subject, x, y).to_dict()["certified"] is None
    assert list(found.frame().columns) == names


def test_with_an_epsilon_only_that_question_is_decided(affine) -> None:
    subject, x, y = affine
    true = np.array([largest(subject, row, int(label), "l2") for row, label in zip(x, y)])
    middle = float(np.median(true[true > 0]))
    found = local_radius(subject, x, y, epsilon=middle)
    assert found.certified is not None
    assert found.certified.tolist() == (true >= middle).tolist()
    assert set(found.radius) <= {0.0, middle}
    assert found.certified_accuracy(middle) == found.certified.mean()
    assert found.attacked_accuracy(middle) >= found.certified_accuracy(middle)
    assert found.certified_accuracy(0.0) == 5 / 6 == found.attacked_accuracy(0.0)


def test_proofs_are_handed_over_as_they_come(affine, monkeypatch: pytest.MonkeyPatch) -> None:
    subject, x, y = affine
    monkeypatch.setattr("stability.analysis.radius.local._AT_ONCE", {"l2": 2})
    kept, said = [], []
    found = local_radius(
        subject, x, y, keep=lambda k, c: kept.append((k, c.value)), progress=lambda *now: said.append(now)
    )
    assert kept == [(k, found.radius[k]) for k in (0, 1, 3, 4, 5)]
    assert said == [("attacks", 0, 6), ("certificates", 0, 5), ("certificates", 2, 5), ("certificates", 4, 5)]


def test_models_are_read_and_no_proof_is_radius_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "l2", lambda asked: [None] * len(asked.x))
    model = SequenceModel(GRU(2, 4), 3)
    x = torch.rand(5, 3, 2)
    y = model(x).argmax(dim=1)
    found, again = (local_radius(m, x, y) for m in (model, ClassifierNetwork(classifier(model))))
    assert not found.radius.any()
    np.testing.assert_array_equal(found.attack_radius, again.attack_radius)
    with pytest.raises(UnsupportedError):
        local_radius(SequenceModel(GRU(2, 4), 3, reduction="all"), x, y)


def test_dropout_in_training_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "l2", lambda asked: [None] * len(asked.x))
    rnn, head = torch.nn.GRU(2, 4, 2, batch_first=True, dropout=0.5), torch.nn.Linear(4, 3)

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = rnn, head

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    model, x, y = Own(), torch.rand(2, 3, 2), torch.zeros(2, dtype=torch.long)
    with pytest.raises(UnsupportedError):
        local_radius(model, x, y, restarts=0)
    assert len(local_radius(model.eval(), x, y, restarts=0).radius) == 2


def test_no_attack_is_null_and_infinite(affine) -> None:
    subject, x, y = affine
    found = local_radius(subject, x, y, mask=np.zeros((4, 2), dtype=bool))
    assert np.isinf(found.attack_radius[found.correct]).all()
    document = found.to_dict()
    assert document["median_attack"] is None
    assert document["samples"][0]["attack_radius"] is None
    assert math.isclose(document["median_radius"], float(np.median(found.radius[found.correct])))
    np.testing.assert_array_equal(found.adversarial, x)


@pytest.mark.parametrize(("told", "error"), [
    ({"norm": "l1"}, ConfigurationError), ({"epsilon": -1.0}, ConfigurationError),
    ({"epsilon": 0}, ConfigurationError), ({"epsilon": 1e12}, ConfigurationError),
    ({"time_limit": 0.0}, ConfigurationError), ({"bounds": (0.0, 0.1)}, ConfigurationError),
    ({"mask": np.ones((2, 2), dtype=bool)}, ConfigurationError), ({"y": np.full(6, 9)}, ConfigurationError),
    ({"x": np.zeros((6, 4, 3))}, DimensionError),
])  # fmt: skip
def test_bad_input_is_refused_by_name(told: dict, error: type, affine) -> None:
    subject, x, y = affine
    given = {"x": x, "y": y, **told}
    with pytest.raises(error):
        local_radius(subject, given.pop("x"), given.pop("y"), **given)


@pytest.mark.parametrize("epsilon", [0.0, 1e13])
def test_no_radius_is_asked_about_that_no_proof_has(epsilon: float, affine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the attacks, and where every label is wrong, so that nothing would be proved."""
    subject, x, y = affine
    monkeypatch.setattr("stability.analysis.radius.local.attack_radii", lambda *a, **k: pytest.fail("it came too late"))
    with pytest.raises(ConfigurationError):
        local_radius(subject, x, (y + 1) % subject.classes, epsilon=epsilon)


def test_a_refuted_proof_is_no_missing_result_of_a_report(affine, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Other errors of a step are told on the page, and the report goes on; this one ends it."""
    from stability.analysis import task_from_arrays
    from stability.analysis.campaign import pipeline
    from stability.analysis.campaign.budgets import AnalysisSettings, Budget
    from stability.analysis.campaign.fitting import fitted
    from stability.analysis.radius import single

    subject, x, _ = affine
    monkeypatch.setattr(pipeline, "STEPS", {"local": single.local_step})
    told = {"model": ClassifierNetwork(subject), "title": "net", "source": "test"}
    settings = AnalysisSettings(budget=Budget(certified=6))
    for share in (0.9, 1.01):
        monkeypatch.setitem(ENGINES, "l2", engine("l2", share=share))
        task = fitted(task_from_arrays(x, subject.logits(x).argmax(axis=1)), told["model"], "net")
        place = tmp_path / str(share)
        place.mkdir()
        if share > 1:
            with pytest.raises(ContradictionError):
                pipeline.analyse(place, told["model"], settings, task=task, **told)
        else:
            document = pipeline.analyse(place, told["model"], settings, task=task, **told)
            assert document["steps"]["local"]["status"] == "done"
            assert json.loads((place / "local.json").read_text())["median_ratio"] == pytest.approx(0.9, rel=1e-3)
            assert len((place / "local_inputs.csv").read_text().splitlines()) == 1 + 2 * 4 * 2


@pytest.mark.parametrize("layer", [ElmanRNN, ContractingRNN])
def test_radii_in_units_of_each_feature_say_so(layer) -> None:
    """A vector as ``scale`` or ``epsilon``: the proof is about the network with input weights times the units."""
    torch.manual_seed(0)
    model, x, units = SequenceModel(layer(2, 4), 3).double(), torch.rand(2, 3, 2), torch.tensor([0.5, 20.0])
    x, y = x.double(), model(x.double()).argmax(1)
    raw, found = local_radius(model, x, y), local_radius(model, x, y, scale=units)
    asked = local_radius(model, x, y, epsilon=0.5 * found.radius.min() * units)
    assert asked.certified is not None
    assert asked.certified.all()
    assert not np.allclose(raw.radius, found.radius)
    for claim in found.claims:
        assert claim is not None
        assert "its inputs in units of each feature" in claim.statement
    assert all(claim is not None and "in units of each" not in claim.statement for claim in raw.claims)
    assert ("computed in float64" in found.claims[0].statement) == (layer is ContractingRNN)
    moved = (torch.tensor(found.adversarial) - x) / units
    np.testing.assert_allclose(moved.flatten(1).norm(dim=1), found.attack_radius, rtol=1e-9)
    with pytest.raises(DimensionError):
        local_radius(model, x, y, scale=[1.0])
