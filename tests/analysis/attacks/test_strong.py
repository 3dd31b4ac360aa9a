"""The strong attack over radii, and the smallest perturbation that attacks find."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import nn

from stability.analysis.attacks import strong as module
from stability.analysis.attacks.deepfool import deepfool
from stability.analysis.attacks.gradient import pgd
from stability.analysis.attacks.projections import geometry
from stability.analysis.attacks.smallest import attack_radii, nearest_level
from stability.analysis.attacks.strong import strong
from stability.analysis.attacks.sweep import attack_sweep
from stability.errors import ConfigurationError, DimensionError
from stability.models.gated import LSTM
from stability.models.network import SequenceModel

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


NORMS = ["l2", "linf"]


class Affine(nn.Module):
    def __init__(self, classes=4, size=6):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.W = nn.Parameter(torch.randn(classes, size, generator=generator, dtype=torch.float64))

    def forward(self, x):
        return x.flatten(1) @ self.W.T


def true_distance(w, rise, low, high, norm):
    """The smallest change with ``w . d = rise`` inside the box, by scipy and by enumeration."""
    if norm == "linf":
        k = len(w)
        ends = np.block([[np.eye(k), -np.ones((k, 1))], [-np.eye(k), -np.ones((k, 1))]])
        equal = np.append(w, 0.0)[None]
        box = [*zip(low, high), (0, None)]
        found = linprog(np.append(np.zeros(k), 1.0), ends, np.zeros(2 * k), equal, [rise], box)
        return found.fun if found.success else math.inf
    best, ends = math.inf, np.where(w > 0, high, low)
    for held in itertools.product([False, True], repeat=len(w)):  # which entries stand at the bound that w points to
        at = np.array(held)
        free = w * ~at
        scale = (rise - ends[at] @ w[at]) / max(free @ free, 1e-300)
        d = np.where(at, ends, scale * w)
        if abs(d @ w - rise) < 1e-9 and (d >= low - 1e-12).all() and (d <= high + 1e-12).all():
            best = min(best, float(np.linalg.norm(d)))
    return best


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
def test_planes_are_met_exactly_where_inputs_stand_at_their_bounds(norm, bounds):
    model = Affine()
    x = torch.rand(8, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.where(x < 0.3, 0.0, x)  # many at the lower bound
    y = model(x).argmax(dim=1)
    found = attack_radii(model, x, y, norm=norm, bounds=bounds)
    W, rows = model.W.detach().numpy(), x.flatten(1).numpy()
    low, high = (np.full(6, -99.0), np.full(6, 99.0)) if bounds is None else (0.0 - rows, 1.0 - rows)
    for k, row in enumerate(rows):
        own = (low, high) if bounds is None else (low[k], high[k])
        steps = [W[j] - W[y[k]] for j in range(len(W)) if j != y[k]]
        true = min(true_distance(w, -float(w @ row), *own, norm) for w in steps)
        assert bool(found.success[k]) == (true < math.inf)
        if true < math.inf:
            assert true * (1 - 1e-7) <= float(found.norms[k]) <= true * (1 + 1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_the_nearest_point_of_a_level_is_that_of_a_solver(norm, rng):
    for _ in range(10):
        w = rng.normal(size=5)
        low, high = -rng.uniform(0, 1, 5) * (rng.random(5) > 0.3), rng.uniform(0, 1, 5)
        rise = rng.uniform(0, 1.2) * float(np.maximum(w * low, w * high).sum())
        level, *rest = (torch.tensor(v, dtype=torch.float64)[None] for v in (rise, w, low, high))
        gradient, under, over = (v[None] for v in rest)
        d = nearest_level(gradient, level, under, over, geometry(norm)).flatten().numpy()
        true = true_distance(w, rise, low, high, norm)
        assert (d >= low).all()
        assert (d <= high).all()
        if true < math.inf:
            assert d @ w == pytest.approx(rise, abs=1e-9)
            assert (np.abs(d).max() if norm == "linf" else np.linalg.norm(d)) == pytest.approx(true, rel=1e-4)


@pytest.fixture(scope="module")
def lstm():
    torch.manual_seed(5)
    model = SequenceModel(LSTM(2, 6), 3).double()
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(3.0)
    x = torch.rand(8, 5, 2, dtype=torch.float64)
    return model, x, model(x).argmax(dim=1)


@pytest.mark.parametrize("norm", NORMS)
def test_no_other_attack_finds_less(lstm, norm):
    model, x, y = lstm
    found = attack_radii(model, x, y, norm=norm, bounds=(0.0, 1.0), seed=1, restarts=2, steps=15)
    other = deepfool(model, x, y, norm=norm, steps=30)
    both = found.success & other.success
    assert int(both.sum()) >= 3
    assert (found.norms[both] <= other.norms[both] * (1 + 1e-6)).all()
    inside = 0.98 * float(found.norms[found.success].min())
    assert not pgd(model, x, y, norm=norm, epsilon=inside, steps=20, restarts=3).success.any()


def test_what_is_stored_is_what_was_counted(lstm):
    model, x, y = lstm
    found = attack_radii(model, x, y, bounds=(0.0, 1.0), restarts=1, steps=8)
    with torch.no_grad():
        wrong = model(found.adversarial).argmax(dim=1) != y
    assert found.success.any()
    assert torch.equal(wrong, found.success)
    assert ((found.adversarial >= 0) & (found.adversarial <= 1)).all()
    assert found.norms.numpy() == pytest.approx((found.adversarial - x).flatten(1).norm(dim=1).numpy())
    again = attack_radii(model, x, y, bounds=(0.0, 1.0), restarts=1, steps=8)
    assert torch.equal(again.adversarial, found.adversarial)


def test_a_mask_holds_and_more_starts_never_find_more(lstm):
    model, x, y = lstm
    mask = torch.zeros(5, 2, dtype=torch.bool)
    mask[3:] = True
    few, many = (attack_radii(model, x, y, mask=mask, restarts=n, steps=8) for n in (0, 2))
    assert torch.equal(many.adversarial[:, :3], x[:, :3])
    assert many.success.any()
    sizes = [torch.where(r.success, r.norms, math.inf) for r in (few, many)]
    assert (sizes[1] <= sizes[0]).all()


def test_misclassified_inputs_have_radius_zero_and_bounds_are_checked(lstm):
    model, x, y = lstm
    found = attack_radii(model, x, (y + 1) % 3)
    assert found.already_wrong.all()
    assert not found.norms.any()
    with pytest.raises(ConfigurationError):
        attack_radii(model, x, y, bounds=(0.4, 0.6))
