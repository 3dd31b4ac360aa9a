"""Attacks on networks that hide their gradient: the same weights fall nearly alike, and what was met is said."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stability.analysis import attack_sweep, deepfool, fgsm, pgd
from stability.analysis.attacks import MaskedGradientWarning, apgd
from stability.analysis.attacks.smallest import attack_radii
from stability.analysis.attacks.strong import strong
from stability.errors import NonFiniteError, UnsupportedError
from stability.storage.artifacts import STEPS

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


class Saturated(Plain):
    """Cross entropy is exactly flat in single precision; the margin is not."""

    def forward(self, x):
        return 1e4 * super().forward(x)


class NotANumber(Plain):
    """The outputs are those of Plain, the gradient is inf * 0."""

    def forward(self, x):
        return super().forward(x + (x * 0).sqrt())


class Infinite(Plain):
    def forward(self, x):
        return super().forward(x + (x - x.detach()).sqrt())


class PartlyNotANumber(Plain):
    """The one feature that matters has a gradient of NaN, the others have one that leads nowhere."""

    def forward(self, x):
        first = 3 * x[..., :1]
        return super().forward(torch.cat([first + (first * 0).sqrt(), 1e-4 * x[..., 1:]], dim=2))


class Overflowing(Rounded):
    def forward(self, x):
        return super().forward(x.exp() - 1)


def labelled(model):
    x = torch.rand(12, T, F, generator=torch.Generator().manual_seed(1))
    return x, model(x).detach().argmax(dim=1)


def swept(model, **told):
    x, y = labelled(model)
    return attack_sweep(model, x, y, epsilons=[0, RADIUS], **told)


@pytest.mark.parametrize("attack", ["fgsm", "pgd", "apgd", "deepfool", "strong"])
@pytest.mark.parametrize("kind", [Rounded, Detached])
def test_a_masked_gradient_is_no_robustness(attack, kind):
    open_ = swept(Plain(), attack="pgd")
    assert open_.accuracy[1] <= 0.5
    assert open_.blind == 0
    with pytest.warns(MaskedGradientWarning, match="zero or not finite on 12 of 12 inputs") as told:
        found = swept(kind(), attack=attack)
    assert len(told) == 1
    assert found.accuracy[0] == 1.0
    assert found.accuracy[1] <= open_.accuracy[1] + 0.2
    assert found.blind == 12


@pytest.mark.parametrize(("norm", "radius"), [("linf", RADIUS), ("l2", 1.0)])
@pytest.mark.parametrize("attack", ["fgsm", "pgd", "apgd", "deepfool", "strong"])
@pytest.mark.parametrize("kind", [NotANumber, Infinite])
def test_a_gradient_that_is_not_finite_is_no_robustness(kind, attack, norm, radius):
    x, y = labelled(kind())
    told = {"epsilons": [0, radius], "norm": norm}
    open_ = attack_sweep(Plain(), x, y, attack="pgd", **told)
    assert open_.accuracy[1] <= 0.5
    with pytest.warns(MaskedGradientWarning, match="zero or not finite on 12 of 12 inputs"):
        found = attack_sweep(kind(), x, y, attack=attack, **told)
    assert found.accuracy[0] == 1.0
    assert found.accuracy[1] <= open_.accuracy[1] + 0.2
    assert found.blind == 12


@pytest.mark.parametrize("attack", [pgd, apgd, strong, deepfool])
def test_an_attack_alone_does_not_step_along_what_is_not_finite(attack):
    x, y = labelled(NotANumber())
    with pytest.warns(MaskedGradientWarning):
        found = attack(NotANumber(), x, y, epsilon=1.0, norm="l2")
    assert float(found.success.double().mean()) >= 0.75
    assert bool(torch.isfinite(found.adversarial).all())
    assert bool(found.blind.all())


@pytest.mark.parametrize("kind", [NotANumber, Infinite])
def test_the_smallest_perturbation_is_looked_for_where_gradients_are_not_finite(kind):
    x, y = labelled(kind())
    with pytest.warns(MaskedGradientWarning):
        found = attack_radii(kind(), x[:3], y[:3], bounds=(0, 1))
    assert bool(found.success.all())
    assert bool(found.blind.all())


def test_finite_entries_beside_others_do_not_pass_for_the_gradient():
    x, y = labelled(PartlyNotANumber())
    with pytest.warns(MaskedGradientWarning, match="on 12 of 12"):
        found = pgd(PartlyNotANumber(), x, y, epsilon=0.5)
    assert float(found.success.double().mean()) >= 0.5


def test_a_sequence_that_had_a_gradient_at_one_radius_is_not_called_blind():
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


def test_a_gradient_that_deepfool_met_counts_where_apgd_goes_on_from_it():
    class Step(nn.Module):
        def forward(self, x):
            rise = x.sum(dim=(1, 2)).clamp(-0.05, 0.05)
            return torch.stack([1 + rise, torch.zeros_like(rise)], dim=1)

    x, y = torch.zeros(3, T, 1), torch.zeros(3, dtype=torch.long)
    near = deepfool(Step(), x, y, bounds=None)
    assert not bool(near.blind.any())
    assert not bool(strong(Step(), x, y, epsilon=1.0, bounds=None, near=near).blind.any())
    assert attack_sweep(Step(), x, y, epsilons=[1.0], attack="strong", bounds=None).blind == 0


@pytest.mark.filterwarnings("ignore::stability.analysis.attacks.MaskedGradientWarning")
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("far", [1e30, 1e37])
def test_bounds_that_no_data_reach_are_as_good_as_none(far, norm):
    x, y = labelled(Rounded())
    free = deepfool(Rounded(), x, y, norm=norm, bounds=None)
    found = deepfool(Rounded(), x, y, norm=norm, bounds=(-far, far))
    assert torch.equal(found.adversarial, free.adversarial)


@pytest.mark.filterwarnings("ignore::stability.analysis.attacks.MaskedGradientWarning")
def test_what_overflows_far_away_is_passed_over_unless_the_radius_is_asked_about():
    x, y = labelled(Overflowing())
    assert bool(deepfool(Overflowing(), x, y, bounds=(-1000, 1000)).success.all())
    with pytest.raises(NonFiniteError, match="logits"):
        fgsm(Overflowing(), x, y, epsilon=1000.0, bounds=(-1000, 1000))


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("attack", [pgd, apgd, strong, deepfool])
def test_what_is_found_keeps_to_ball_bounds_and_mask_and_is_the_same_again(attack, norm):
    model = Rounded()
    x, y = labelled(model)
    mask = torch.zeros(T, F, dtype=torch.bool)
    mask[3:] = True
    told = {"epsilon": 0.5, "norm": norm, "mask": mask, "seed": 3}
    with pytest.warns(MaskedGradientWarning):
        first = attack(model, x, y, **told)
    with pytest.warns(MaskedGradientWarning):
        again = attack(model, x, y, **told)
    z = first.adversarial
    assert torch.equal(z, again.adversarial)
    assert bool(first.success.any())
    assert torch.equal(z[:, :3], x[:, :3])
    assert bool(((z >= 0) & (z <= 1)).all())
    assert bool((first.norms <= 0.5).all())
    assert torch.equal(first.success, model(z).argmax(dim=1) != y)


def test_a_saturated_loss_is_left_for_the_margin():
    with pytest.warns(MaskedGradientWarning):
        found = swept(Saturated(), attack="pgd")
    assert found.accuracy[1] <= swept(Plain(), attack="pgd").accuracy[1] + 0.2


@pytest.mark.parametrize("attack", [pgd, apgd])
def test_an_attack_alone_says_that_there_is_no_gradient_and_what_to_do(attack):
    x, y = labelled(Detached())
    with pytest.raises(UnsupportedError, match="do not depend differentiably on the input.*attack_sweep"):
        attack(Detached(), x, y, epsilon=0.1)
    with pytest.raises(UnsupportedError, match="do not depend differentiably"):
        deepfool(Detached(), x, y)


def test_a_sequence_that_may_not_change_is_not_called_masked():
    model = Plain()
    x, y = labelled(model)
    mask = torch.ones(12, T, F, dtype=torch.bool)
    mask[:4] = False
    assert not bool(pgd(model, x, y, epsilon=0.1, mask=mask).blind.any())


def test_a_remark_of_a_step_stands_under_its_section():
    from types import SimpleNamespace
    from typing import Any, cast

    from stability.reports.stored.reasons import remarks_on

    model = SimpleNamespace(title="net", step=lambda name: {"status": "done", "notes": ["no gradient"]})
    assert remarks_on(cast(Any, [model]), "attacks") == (f"net, {STEPS['attacks']}: no gradient",)
