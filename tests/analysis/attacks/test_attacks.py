"""Attacks against closed forms on affine classifiers, against Foolbox, and against their own contract."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from stability.analysis.attacks.apgd import apgd
from stability.analysis.attacks.deepfool import deepfool
from stability.analysis.attacks.gradient import ATTACKS, pgd
from stability.analysis.attacks.projections import NORMS
from stability.errors import ConfigurationError, DimensionError, NonFiniteError, StabilityError

ORDER = {"l2": 2, "linf": math.inf}
DUAL = {"l2": 2, "linf": 1}
T, F = 4, 3


class Affine(nn.Module):
    """``z = W vec(x) + b`` in float64."""

    def __init__(self, classes: int, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.W = nn.Parameter(torch.randn(classes, T * F, generator=generator, dtype=torch.float64))
        self.b = nn.Parameter(torch.randn(classes, generator=generator, dtype=torch.float64))

    def forward(self, x):
        return x.flatten(1) @ self.W.T + self.b


def labelled(model, n=40, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, T, F, generator=generator, dtype=torch.float64)
    return x, model(x).argmax(dim=1)


# ------------------------------------------------------------------------------------------ closed forms


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("overshoot", [0.02, 0.5])
def test_deepfool_is_exact_on_an_affine_classifier(norm, overshoot):
    model = Affine(5)
    x, y = labelled(model)
    options = {"norm": norm, "bounds": None, "overshoot": overshoot, "candidates": 5}
    result = deepfool(model, x, y, halvings=0, **options)
    logits = model(x).detach()
    gaps = logits.gather(1, y[:, None]) - logits
    W = model.W.detach()
    steepness = torch.linalg.vector_norm(W[y][:, None, :] - W[None], ord=DUAL[norm], dim=2)
    distance = torch.where(steepness > 0, gaps / steepness, math.inf).amin(dim=1)
    assert result.success.all()
    assert result.norms / (1 + overshoot) == pytest.approx(distance.numpy(), rel=1e-9)
    assert result.iterations <= 2  # one step, and one look at where it led
    for halvings in (1, 12, 30):
        drawn_back = deepfool(model, x, y, halvings=halvings, **options)
        assert drawn_back.success.all()
        ratio = drawn_back.norms / distance
        assert (ratio >= 1).all()
        assert (ratio <= 1 + (1 + overshoot) * 0.5**halvings).all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_deepfool_on_an_affine_classifier_knows_the_mask(norm):
    model = Affine(2)
    x, y = labelled(model)
    mask = torch.zeros(T, F, dtype=torch.bool)
    mask[1:3, 0] = True
    result = deepfool(model, x, y, norm=norm, bounds=None, mask=mask, halvings=0)
    z = model(x).detach()
    w = (model.W[0] - model.W[1]).detach()[mask.flatten()]
    distance = (z[:, 0] - z[:, 1]).abs() / torch.linalg.vector_norm(w, ord=DUAL[norm])
    assert result.norms / 1.02 == pytest.approx(distance.numpy(), rel=1e-9)
    assert torch.equal(result.adversarial[:, ~mask], x[:, ~mask])


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_deepfool_goes_on_along_the_bounds(norm):
    """Entries at a bound leave the rest of the step to others, until the class changes at a corner of the box."""
    model = Affine(2)
    x, y = labelled(model, 80)
    corner = best_margin(model, x, y, 10.0, "linf", 0.0, 1.0)
    possible = corner > 0.3
    assert possible.sum() > 40
    result = deepfool(model, x, y, norm=norm, steps=2 * T * F)
    assert result.success[possible].all()
    assert not result.success[corner < 0].any()


def best_margin(model, x, y, epsilon, norm, low, high):
    """Largest ``z_other - z_y`` over ball and (for linf) box of a two-class affine model."""
    sign = torch.where(y == 0, 1.0, -1.0).double()
    w = sign[:, None] * (model.W[1] - model.W[0])
    z = model(x)
    margin = sign * (z[:, 1] - z[:, 0])
    if norm == "l2":
        return (margin + epsilon * w.norm(dim=1)).detach()
    room = torch.where(w > 0, high - x.flatten(1), x.flatten(1) - low).clamp_max(epsilon)
    return (margin + (w.abs() * room).sum(dim=1)).detach()


PGD = {"steps": 60, "step_size": 0.3}
CLIMBERS = [("fgsm", {}), ("pgd", PGD), ("pgd", {**PGD, "loss": "margin"}), ("apgd", {"steps": 60})]


@pytest.mark.parametrize(("attack", "options"), CLIMBERS)
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_climbers_reach_the_optimum_of_an_affine_classifier(attack, options, norm):
    model = Affine(2)
    x, y = labelled(model, 60)
    low, high = (0.0, 1.0) if norm == "linf" else (-math.inf, math.inf)
    epsilon = {"l2": 0.3, "linf": 0.1}[norm]
    bounds = (low, high) if norm == "linf" else None
    result = ATTACKS[attack](model, x, y, epsilon=epsilon, norm=norm, bounds=bounds, **options)
    best = best_margin(model, x, y, epsilon, norm, low, high)
    assert 5 < int((best > 0).sum()) < 55  # the grid point separates
    clear = best.abs() > 1e-3
    assert torch.equal(result.success[clear], (best > 0)[clear])
    failed = ~result.success
    reached = best_margin(model, result.adversarial[failed], y[failed], 0.0, norm, low, high)
    assert reached == pytest.approx(best[failed].numpy(), abs=1e-9 if attack != "apgd" else 1e-3)


# ------------------------------------------------------------------------------------------ contract

RUNS = [(a, n) for a in sorted(ATTACKS) for n in ("l2", "linf")]


@pytest.mark.parametrize(("attack", "norm"), RUNS)
def test_contract_of_every_attack(network, attack, norm):
    model, x, y = network
    epsilon = {"l2": 0.5, "linf": 0.15}[norm]
    low, high = torch.tensor([0.0, -0.1, -0.2]), torch.full((6, 3), 1.1)
    mask = torch.ones(6, 1, dtype=torch.bool)
    mask[0] = False
    model.train()
    model.layer.eval()
    rng = torch.random.get_rng_state()
    options = {"epsilon": epsilon, "norm": norm, "bounds": (low, high), "mask": mask, "seed": 4}
    result, again = (ATTACKS[attack](model, x, y, **options) for _ in range(2))
    assert torch.equal(result.adversarial, again.adversarial)
    assert model.training
    assert not model.layer.training
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert torch.equal(rng, torch.random.get_rng_state())
    z = result.adversarial
    size = torch.linalg.vector_norm((z.double() - x.double()).flatten(1), ord=ORDER[norm], dim=1)
    assert (size <= epsilon).all()  # to the last bit, in float64
    assert torch.equal(size, result.norms)
    assert (z >= low).all()
    assert (z <= high).all()
    assert torch.equal(z[:, 0], x[:, 0])
    with torch.no_grad():
        assert torch.equal(result.success, model(z).argmax(dim=1) != y)
        assert torch.equal(result.already_wrong, model(x).argmax(dim=1) != y)
    assert result.already_wrong[:2].all()
    assert (result.norms[result.already_wrong] == 0).all()
    assert result.success[result.already_wrong].all()
    assert result.robust_accuracy == pytest.approx(1 - result.success.double().mean().item())
    assert result.success.sum() > result.already_wrong.sum()  # it does something
    assert not z.requires_grad
    assert result.frame().shape == (64, 4)
    assert result.to_dict()["success"] == result.success.tolist()


def test_apgd_shortens_its_steps():
    """The class changes only within a small ball around the centre of the search ball's one maximum."""

    class Island(nn.Module):
        def forward(self, x):
            rise = 1e-4 - (x - 0.5).flatten(1).square().sum(dim=1)
            return torch.stack([torch.zeros_like(rise), rise], dim=1)

    x = torch.full((8, 2, 2), 0.3) + 0.1 * torch.rand(8, 2, 2)
    y = torch.zeros(8, dtype=torch.long)
    result = apgd(Island(), x, y, epsilon=1.0, norm="l2", bounds=None, steps=100)
    assert result.success.all()
    fixed = pgd(Island(), x, y, epsilon=1.0, norm="l2", bounds=None, steps=100, step_size=1.0)
    assert fixed.success.sum() <= 2  # by chance


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_apgd_moves_as_the_paper_says(norm):
    """Up to the first review of the step size: ``u = P(z + eta d)``, ``z+ = P(z + .75 (u - z) + .25 (z - z-))``."""
    epsilon, steps, visited = 0.4, 60, []

    class Hill(nn.Module):  # never fooled: the search goes on; curved, so that directions change
        def forward(self, x):
            visited.append(x.detach().numpy().copy())
            rise = torch.sin(3 * x.flatten(1) @ torch.linspace(-1, 1, 4, dtype=x.dtype)) + x.flatten(1).square().sum(1)
            return torch.stack([100 + 0 * rise, rise], dim=1)

    x = torch.rand(5, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    apgd(
        Hill(), x, torch.zeros(5, dtype=torch.long), epsilon=epsilon, norm=norm, bounds=None, steps=steps, loss="margin"
    )
    path = visited[1 : 1 + 12]  # first comes a look at x itself; the first review is after .22 * 60 = 13.2 steps
    centre = x.numpy()

    def into_ball(z):
        d = z - centre
        if norm == "linf":
            return centre + np.clip(d, -epsilon, epsilon)
        size = np.sqrt((d**2).sum((1, 2), keepdims=True))
        return centre + d * np.minimum(1, epsilon / size)

    def direction(z):
        weights = np.linspace(-1, 1, 4).reshape(2, 2)
        inner = 3 * (z * weights).sum((1, 2), keepdims=True)
        gradient = 3 * np.cos(inner) * weights + 2 * z
        return np.sign(gradient) if norm == "linf" else gradient / np.sqrt((gradient**2).sum((1, 2), keepdims=True))

    for k in range(1, len(path)):
        z = path[k - 1]
        u = into_ball(z + 2 * epsilon * direction(z))
        expected = u if k == 1 else into_ball(z + 0.75 * (u - z) + 0.25 * (z - path[k - 2]))
        np.testing.assert_allclose(path[k], expected, atol=1e-9)
    moved = max(np.abs(path[k] - path[k - 1]).max() for k in range(2, len(path)))
    assert moved > 0.01  # momentum had something to do


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_radius_zero_leaves_everything_in_place(network, attack):
    model, x, y = network
    result = ATTACKS[attack](model, x, y, epsilon=0)
    assert torch.equal(result.adversarial, x)
    assert torch.equal(result.success, result.already_wrong)


@pytest.mark.parametrize("attack", [pgd, apgd])
def test_a_sequence_that_is_fooled_takes_part_in_no_further_step(attack):
    """On an affine classifier each step brings every sequence as far: who falls after k steps is known beforehand."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0], [-1.0]]))  # class 0 where x > 0
    x = torch.tensor([0.05, 0.15, 0.25, 0.9], dtype=torch.float64).reshape(-1, 1, 1)
    seen = []
    model.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    options = {"step_size": 0.1, "random_start": False} if attack is pgd else {}
    result = attack(model, x, torch.zeros(4, dtype=torch.long), epsilon=0.4, steps=6, bounds=None, **options)
    assert result.success.tolist() == [True, True, True, False]
    assert seen.pop() == 1  # the gradient of the one that stands: is it masked?
    assert seen[0] == seen[-1] == 4  # the sequences as they are, and at last as they are stored
    assert seen[1:-1] == sorted(seen[1:-1], reverse=True)
    assert seen[-2] == 1
    if attack is pgd:
        assert seen == [4, 4, 4, 3, 2, 1, 1, 1, 4]
        assert result.norms[:3].tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_clipped_points_lie_in_the_l2_ball_in_exact_arithmetic():
    z = torch.randn(100, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 1.0
    clipped = NORMS["l2"].clip(torch.zeros_like(z), z, 0.1)
    squares = [sum(Fraction(v) ** 2 for v in row.flatten().tolist()) for row in clipped]
    assert max(squares) <= Fraction(0.1) ** 2
    assert min(squares) > Fraction(0.1) ** 2 * (1 - Fraction(1, 10**12))


@pytest.mark.parametrize("norm", ["l2", "linf"])
@given(scale=st.floats(1e-6, 1e3), epsilon=st.floats(0, 10), seed=st.integers(0, 50))
def test_clip_is_the_projection_and_rounding_never_leaves_the_ball(norm, scale, epsilon, seed):
    generator = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(3, 2, 2, generator=generator)
    z = x + 3 * max(epsilon, 1e-3) * torch.randn(3, 2, 2, generator=generator)
    shape = NORMS[norm]
    inside = shape.clip(x, z, epsilon)
    d, wanted = (inside.double() - x.double()), (z.double() - x.double())
    assert (shape.size(d) <= epsilon).all()
    if norm == "l2":
        exact = wanted * (epsilon / shape.size(wanted).clamp_min(1e-300)).clamp_max(1.0)[:, None, None]
    else:
        exact = wanted.clamp(-epsilon, epsilon)
    assert (d - exact).abs().max() <= 4e-7 * (scale * 8 + epsilon)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_random_starts_fill_the_ball(norm):
    shape = NORMS[norm]
    d = shape.random(torch.zeros(4000, 2, 1), 2.0, torch.Generator().manual_seed(0))
    size = shape.size(d)
    assert (size <= 2.0).all()
    assert (size < 1.0).double().mean() == pytest.approx(0.25, abs=0.03)  # area grows with the square


# ------------------------------------------------------------------------------------------ bad input

X, Y = torch.full((4, T, F), 0.5, dtype=torch.float64), torch.zeros(4, dtype=torch.long)


@pytest.mark.parametrize(("x", "y", "options", "error"), [
    (X, Y, {"epsilon": -1}, ConfigurationError), (X, Y, {"epsilon": float("nan")}, ConfigurationError),
    (X, Y, {"epsilon": float("inf")}, ConfigurationError), (X, Y, {"epsilon": True}, ConfigurationError),
    (X, Y, {"norm": "l7"}, ConfigurationError), (X, Y, {"steps": 0}, ConfigurationError),
    (X, Y, {"step_size": 0.0}, ConfigurationError), (X, Y, {"loss": "hinge"}, ConfigurationError),
    (X, Y, {"restarts": 2, "random_start": False}, ConfigurationError),
    (X, Y, {"bounds": (0, 0.2)}, ConfigurationError), (X, Y, {"bounds": (1, 0)}, ConfigurationError),
    (X, Y, {"bounds": 1.0}, ConfigurationError), (X, Y, {"bounds": ("a", "b")}, ConfigurationError),
    (X, Y, {"bounds": (0, float("nan"))}, ConfigurationError),
    (X, Y, {"bounds": (torch.zeros(5), torch.ones(5))}, DimensionError),
    (X, Y, {"mask": torch.ones(T, F)}, ConfigurationError),
    (X, Y, {"mask": torch.ones(7, dtype=torch.bool)}, DimensionError), (X, Y, {"seed": 1.5}, ConfigurationError),
    (X[0], Y, {}, DimensionError), (X[:0], Y[:0], {}, DimensionError), (X.float(), Y, {}, ConfigurationError),
    (X.tolist(), Y, {}, ConfigurationError), (X * float("nan"), Y, {}, NonFiniteError),
    (X, Y[:2], {}, DimensionError), (X, Y.double(), {}, ConfigurationError), (X, Y + 7, {}, ConfigurationError),
    (X, None, {}, ConfigurationError),
])  # fmt: skip
def test_bad_input_gets_a_typed_error(x, y, options, error):
    with pytest.raises(error) as caught:
        pgd(Affine(3), x, y, **{"epsilon": 0.1, **options})
    assert isinstance(caught.value, StabilityError)


@pytest.mark.parametrize("options", [{"candidates": 1}, {"overshoot": 2}, {"halvings": -1}])
def test_bad_options_of_deepfool(options):
    with pytest.raises(ConfigurationError):
        deepfool(Affine(3), X, Y, **options)


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (lambda x: x.flatten(1) * float("nan"), NonFiniteError),
        (lambda x: x, DimensionError),
        (lambda x: (x, x), DimensionError),
        (lambda x: x.flatten(1)[:1], DimensionError),
    ],
)
def test_outputs_that_are_no_logits(output, error):
    class Odd(nn.Module):
        def forward(self, x):
            return output(x)

    with pytest.raises(error):
        pgd(Odd(), X, Y, epsilon=0.1)


def test_what_is_pulled_back_to_a_ball_lies_in_it_exactly():
    x = torch.zeros(40, 9, 4, dtype=torch.float64)  # around which nothing else is rounded
    found = NORMS["l2"].clip(x, x + torch.randn_like(x), 0.1)
    for row, centre in zip(found.flatten(1).tolist(), x.flatten(1).tolist()):
        assert sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(row, centre)) <= Fraction(0.1) ** 2
