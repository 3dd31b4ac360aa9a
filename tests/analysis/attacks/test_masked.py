"""Attacks on networks without a gradient by the input: the answer comes with a warning, and with no error."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stability.analysis import attack_sweep, deepfool, pgd
from stability.analysis.attacks import MaskedGradientWarning, apgd
from stability.analysis.attacks.masked import unwarned
from stability.analysis.attacks.strong import strong

T, F, RADIUS = 8, 6, 0.3


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head = nn.GRU(F, 6, batch_first=True), nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Rounded(Plain):
    def forward(self, x):
        return super().forward(torch.round(x * 255) / 255)


class Detached(Plain):
    def forward(self, x):
        return super().forward(x.detach())


class NotANumber(Plain):
    """The outputs are those of Plain, the gradient is inf * 0."""

    def forward(self, x):
        return super().forward(x + (x * 0).sqrt())


class Infinite(Plain):
    def forward(self, x):
        return super().forward(x + (x - x.detach()).sqrt())


def labelled(model):
    x = torch.rand(12, T, F, generator=torch.Generator().manual_seed(1))
    return x, model(x).detach().argmax(dim=1)


def swept(model, **told):
    x, y = labelled(model)
    return attack_sweep(model, x, y, epsilons=[0, RADIUS], **told)


@pytest.mark.parametrize("attack", ["fgsm", "pgd", "apgd", "deepfool", "strong"])
@pytest.mark.parametrize("kind", [Rounded, Detached, NotANumber, Infinite])
def test_standing_without_a_gradient_is_told(attack, kind):
    open_ = swept(Plain(), attack="pgd")
    assert open_.accuracy[1] <= 0.5
    assert open_.blind == 0
    with pytest.warns(MaskedGradientWarning) as told:
        found = swept(kind(), attack=attack)
    assert len(told) == 1
    assert found.accuracy[0] == 1.0
    assert found.blind == round(12 * found.accuracy[1]) > 0  # whoever stands, and nobody who fell to a random start


@pytest.mark.parametrize("norm", ["l2", "linf", "l2_step"])
@pytest.mark.parametrize("attack", [pgd, apgd, strong, deepfool])
@pytest.mark.parametrize("kind", [Plain, NotANumber])
def test_an_attack_keeps_to_ball_bounds_and_mask_with_and_without_a_gradient(kind, attack, norm):
    model = kind()
    x, y = labelled(model)
    mask = torch.zeros(T, F, dtype=torch.bool)
    mask[3:] = True
    with unwarned():
        first, again = (attack(model, x, y, epsilon=0.5, norm=norm, mask=mask, seed=3) for _ in range(2))
    z = first.adversarial
    assert torch.equal(z, again.adversarial)
    assert torch.equal(z[:, :3], x[:, :3])
    assert bool(torch.isfinite(z).all())
    assert bool(((z >= 0) & (z <= 1)).all())
    assert bool((first.norms <= 0.5).all())
    assert torch.equal(first.success, model(z).argmax(dim=1) != y)
    assert torch.equal(first.blind, ~first.success if kind is NotANumber else torch.zeros_like(first.success))
    assert bool(first.success.any()) or kind is NotANumber


def test_a_sequence_that_falls_at_one_radius_is_not_called_blind():
    class Flat(nn.Module):
        def forward(self, x):
            far = torch.relu(x.abs().sum(dim=(1, 2)) - 1)
            return torch.stack([1 - far, torch.zeros_like(far)], dim=1)

    x, y = torch.zeros(3, T, 1), torch.zeros(3, dtype=torch.long)
    with pytest.warns(MaskedGradientWarning):
        assert attack_sweep(Flat(), x, y, epsilons=[0.1], bounds=None).blind == 3
    for epsilons in ([2.0], [0.1, 2.0]):
        found = attack_sweep(Flat(), x, y, epsilons=epsilons, bounds=None)
        assert (found.accuracy[-1], found.blind) == (0.0, 0)


def test_a_sequence_that_may_not_change_is_not_called_masked():
    model = Plain()
    x, y = labelled(model)
    mask = torch.ones(12, T, F, dtype=torch.bool)
    mask[:4] = False
    assert not bool(pgd(model, x, y, epsilon=0.1, mask=mask).blind.any())
