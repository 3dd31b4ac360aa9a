"""Radii of single steps: proved and attacked in one measure, the longest step of a perturbation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.analysis import local_radius
from stability.analysis.attacks.projections import geometry
from stability.analysis.attacks.smallest import attack_radii
from stability.analysis.radius import local
from stability.errors import ConfigurationError, ContradictionError
from stability.models.classifier import classifier
from stability.models.elman import ElmanRNN
from stability.models.gated import GRU
from stability.models.lru import LRU
from stability.models.network import SequenceModel
from stability.search.local.largest_radius import ENGINES

from ...stability.search.local.affine_toy import engine, toy_rule

__all__ = ["toy_rule"]
T, P, K = 4, 2, 3
EACH_STEP = geometry("l2_step")
SOME = torch.tensor([[True, False], [False, False], [True, True], [False, True]])


def made(layer, count: int = 5):
    torch.manual_seed(2)
    model = SequenceModel(layer(P, 6), K).double()
    with torch.no_grad():
        for value in model.head.parameters():
            value.mul_(2.0)
    x = torch.rand(count, T, P, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return model, x, model(x).argmax(dim=1)


def truth(model, x, y, mask) -> np.ndarray:
    """``margin / sum_t |g_t|`` of an affine network: where the nearest boundary is met by steps of one length."""
    rows = torch.autograd.functional.jacobian(lambda one: model(one[None])[0], x[0]).numpy()
    rows = rows if mask is None else rows * mask.numpy()
    logits, out = model(x).detach().numpy(), []
    for own, label in zip(logits, y.tolist()):
        steep = np.linalg.norm(rows[label] - rows, axis=2).sum(axis=1)
        out.append(min((own[label] - own[j]) / steep[j] for j in range(K) if j != label))
    return np.array(out)


@pytest.mark.parametrize("mask", [None, SOME])
def test_of_an_affine_network_both_radii_are_the_true_one(mask) -> None:
    model, x, y = made(LRU)
    found = local_radius(model, x, y, budget="step", mask=mask)
    true = truth(model, x, y, mask)
    assert found.budget == "step" == found.to_dict()["budget"]
    np.testing.assert_allclose(found.radius, true, rtol=1e-4)
    np.testing.assert_allclose(found.attack_radius, true, rtol=1e-4)
    assert (found.radius <= true * (1 + 1e-12)).all()
    assert (found.attack_radius >= true * (1 - 1e-12)).all()
    assert all(claim is not None and "at every step" in claim.statement for claim in found.claims)
    whole = local_radius(model, x, y, mask=mask)
    assert whole.budget == "total"
    assert (whole.radius > found.attack_radius * 1.05).all()


@pytest.mark.parametrize("bounds", [None, (-3.0, 4.0)])
@pytest.mark.parametrize("layer", [ElmanRNN, GRU])
def test_what_was_found_is_misclassified_and_as_long_as_said(layer, bounds) -> None:
    model, x, y = made(layer)
    found = local_radius(model, x, y, budget="step", mask=SOME, bounds=bounds, restarts=1, time_limit=0.3)
    moved = found.adversarial - x.numpy()
    hit = np.isfinite(found.attack_radius)
    assert hit.any()
    assert (found.radius > 0).all()
    assert (found.radius <= found.attack_radius).all()
    np.testing.assert_allclose(np.linalg.norm(moved, axis=2).max(axis=1)[hit], found.attack_radius[hit], rtol=1e-12)
    subject = classifier(model)
    assert (subject.logits(found.adversarial).argmax(axis=1) != y.numpy())[hit].all()
    assert not moved[:, ~SOME.numpy()].any()
    if bounds is not None:
        assert (found.adversarial >= -3.0).all()
        assert (found.adversarial <= 4.0).all()


def test_the_longest_step_is_made_shorter_than_by_the_attack_on_the_whole() -> None:
    """On networks that are not affine, too: the shortest whole perturbation has a longer step."""
    for layer in (ElmanRNN, GRU):
        model, x, y = made(layer)
        each, whole = (attack_radii(model, x, y, budget=budget, restarts=1) for budget in ("step", "total"))
        assert each.success.all()
        assert each.norm == "l2_step"
        longest = (whole.adversarial - x).norm(dim=2).amax(dim=1)
        assert (each.norms <= longest * (1 + 1e-9)).all()
        assert (each.norms < 0.98 * longest).any()
        assert torch.equal(each.norms, EACH_STEP.size(each.adversarial - x))


def test_a_crossing_is_judged_in_that_measure(toy_rule: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Total radii taken for those of steps are refuted, as they were if both sides were measured as a whole."""
    model, x, y = made(LRU)
    monkeypatch.setitem(ENGINES, "l2", engine("l2", share=0.99))
    assert (local_radius(model, x, y).radius > 0).all()
    with pytest.raises(ContradictionError):
        local_radius(model, x, y, budget="step")


@pytest.mark.parametrize("told", [{"budget": "month"}, {"budget": "step", "norm": "linf"}, {"budget": None}])
def test_other_budgets_are_refused_before_any_work(told: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = made(ElmanRNN)
    monkeypatch.setattr(local, "attack_radii", None)
    with pytest.raises(ConfigurationError):
        local_radius(model, x, y, **told)
    with pytest.raises(ConfigurationError):
        attack_radii(model, x, y, **told)


def test_points_are_drawn_back_into_the_ball_of_every_step() -> None:
    x = torch.zeros(2, 3, 2, dtype=torch.float64)
    z = torch.tensor([[[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]] * 2, dtype=torch.float64)
    inside = EACH_STEP.clip(x, z, torch.tensor([1.0, 0.25], dtype=torch.float64))
    assert (EACH_STEP.size(inside) <= torch.tensor([1.0, 0.25])).all()
    expected = [[[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], [[0.15, 0.2], [0.15, 0.2], [0.0, 0.0]]]
    np.testing.assert_allclose(inside.numpy(), expected, rtol=1e-12)
    drawn = EACH_STEP.random(x, torch.tensor([1.0, 0.25], dtype=torch.float64), torch.Generator().manual_seed(0))
    lengths = drawn.norm(dim=2)
    assert (lengths.amax(dim=1) <= torch.tensor([1.0, 0.25])).all()
    assert (lengths > 0).all()
