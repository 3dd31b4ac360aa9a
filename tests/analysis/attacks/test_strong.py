"""The strong attack: exact where that is known, never weaker than what it replaces, and judged afresh."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis.attacks import strong as module
from stability.analysis.attacks.deepfool import deepfool
from stability.analysis.attacks.strong import strong
from stability.analysis.attacks.sweep import attack_sweep
from stability.errors import ConfigurationError, DimensionError

GRID = [0.0, 0.02, 0.05, 0.1, 0.2, 0.4]


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_on_an_affine_classifier_a_sequence_falls_at_the_first_radius_beyond_its_distance(norm):
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3)).double()
    x = torch.rand(80, 3, 2, dtype=torch.float64)
    with torch.no_grad():
        logits = model(x)
    y = logits.argmax(dim=1)
    weight = model[1].weight.detach()
    lead = logits.gather(1, y[:, None]) - logits
    slope = torch.linalg.vector_norm(weight[y][:, None] - weight[None], ord=2 if norm == "l2" else 1, dim=2)
    distance = torch.where(slope > 0, lead / torch.where(slope > 0, slope, 1.0), torch.inf).amin(dim=1).detach().numpy()
    found = attack_sweep(model, x, y, epsilons=GRID, attack="strong", norm=norm, bounds=None)
    expected = np.array([next((e for e in GRID if e > d), np.inf) for d in distance])
    clear = np.array([min(abs(np.array(GRID) - d)) > 1e-2 * d for d in distance])
    assert clear.sum() > 60
    assert np.isfinite(expected[clear]).any()
    assert np.array_equal(found.broken_at[clear], expected[clear])


@pytest.mark.parametrize("kind", ["lipschitz", "lstm"])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_it_is_at_least_as_strong_as_pgd_and_deepfool_at_every_radius(trained, kind, norm):
    model, x, y = trained(kind)
    told = {"epsilons": GRID, "norm": norm}
    found = np.array(attack_sweep(model, x, y, attack="strong", **told).accuracy)
    pgd = np.array(attack_sweep(model, x, y, attack="pgd", steps=7, **told).accuracy)
    near = np.array(attack_sweep(model, x, y, attack="deepfool", **told).accuracy)
    assert (found <= np.minimum(pgd, near)).all()
    assert (found < pgd).any()


class Plateau(nn.Module):
    """Flat at the data, so that DeepFool has nowhere to go; wrong beyond a first value of 0.3."""

    def forward(self, x):
        ahead = (x[:, 0, 0] - 0.3).clamp(min=-0.05)
        return torch.stack([torch.zeros_like(ahead), 100 * ahead], dim=1)


@pytest.mark.filterwarnings("ignore::stability.analysis.attacks.MaskedGradientWarning")
def test_random_starts_find_what_deepfool_has_no_gradient_for():
    x, y = torch.zeros(60, 1, 2), torch.zeros(60, dtype=torch.long)
    told = {"epsilons": [0.1, 0.5], "bounds": None}
    assert attack_sweep(Plateau(), x, y, attack="deepfool", **told).accuracy == (1.0, 1.0)
    assert attack_sweep(Plateau(), x, y, attack="strong", starts=1, **told).accuracy == (1.0, 1.0)
    one, two = (attack_sweep(Plateau(), x, y, attack="strong", starts=k, **told).accuracy for k in (2, 5))
    assert one[0] == two[0] == 1.0
    assert two[1] < one[1] < 0.9


def test_what_is_known_is_where_it_begins(network, monkeypatch):
    model, x, y = network
    near = deepfool(model, x, y, norm="linf")
    monkeypatch.setattr(module, "deepfool", lambda *a, **k: pytest.fail("DeepFool ran again"))
    monkeypatch.setattr("stability.analysis.attacks.gradient.deepfool", module.deepfool)
    told = {"epsilons": GRID, "norm": "linf", "near": near}
    found = attack_sweep(model, x, y, attack="strong", **told)
    before = attack_sweep(model, x, y, attack="deepfool", **told)
    assert (found.broken_at <= before.broken_at).all()
    boast = dataclasses.replace(near, adversarial=x, success=torch.ones(len(x), dtype=torch.bool))
    nothing = attack_sweep(model, x, y, attack="deepfool", epsilons=GRID, near=boast)
    assert nothing.accuracy[-1] == nothing.accuracy[0] > 0.9  # a claim of success counts for nothing


def test_the_smallest_perturbation_found_is_inside_the_smallest_ball(network):
    model, x, y = network
    found = strong(model, x, y, epsilon=GRID, norm="l2")
    sweep = attack_sweep(model, x, y, epsilons=GRID, attack="strong", norm="l2")
    at = sweep.broken_at[found.success.numpy()]
    assert (found.norms[found.success].numpy() <= at).all()
    with torch.no_grad():
        assert torch.equal(model(found.adversarial).argmax(dim=1) != y, found.success)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"attack": "pgd", "near": True}, ConfigurationError),
        ({"attack": "strong", "near": True}, DimensionError),
        ({"attack": "strong", "starts": 0}, ConfigurationError),
        ({"attack": "strong", "steps": 0}, ConfigurationError),
    ],
)
def test_what_does_not_fit_is_refused(network, options, error):
    model, x, y = network
    if "near" in options:
        options = {**options, "near": deepfool(model, x[:3], y[:3])}
    with pytest.raises(error):
        attack_sweep(model, x, y, epsilons=[0.1], **options)
