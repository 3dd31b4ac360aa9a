"""The attacks against those of Foolbox, on networks that have learned something."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from stability.analysis.attacks.deepfool import deepfool
from stability.analysis.attacks.gradient import pgd

ORDER = {"l2": 2, "linf": math.inf}


@pytest.fixture(scope="module")
def foolbox():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unmaintained library: its imports warn
        import foolbox

        yield foolbox


@pytest.mark.parametrize("kind", ["lipschitz", "lstm"])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_foolbox_reaches_a_comparable_accuracy_by_pgd(foolbox, trained, kind, norm):
    model, x, y = trained(kind)
    epsilon = {"l2": 0.25, "linf": 0.06}[norm]
    attack = {"l2": foolbox.attacks.L2PGD, "linf": foolbox.attacks.LinfPGD}[norm]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = foolbox.PyTorchModel(model.eval(), bounds=(0, 1))
        _, _, theirs = attack(steps=20, rel_stepsize=2.5 / 20)(peer, x, y, epsilons=epsilon)
    ours = pgd(model, x, y, epsilon=epsilon, norm=norm, steps=20)
    assert 0.1 < theirs.double().mean() < 0.95  # neither nothing nor everything
    assert ours.success.double().mean() == pytest.approx(theirs.double().mean().item(), abs=0.08)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_foolbox_finds_perturbations_of_the_same_size_by_deepfool(foolbox, trained, norm):
    model, x, y = trained("lipschitz")
    attack = {"l2": foolbox.attacks.L2DeepFoolAttack, "linf": foolbox.attacks.LinfDeepFoolAttack}[norm]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = foolbox.PyTorchModel(model.eval(), bounds=(0, 1))
        raw, _, theirs = attack(steps=20, loss="logits")(peer, x, y, epsilons=None)
    ours = deepfool(model, x, y, norm=norm, steps=20)
    assert (ours.success | ~theirs).double().mean() > 0.95
    both = ours.success & theirs & ~ours.already_wrong
    size = torch.linalg.vector_norm((raw - x).flatten(1), ord=ORDER[norm], dim=1)
    ratio = ours.norms[both] / size[both]
    assert ratio.median().item() == pytest.approx(1.0, abs=0.05)
    assert ratio.mean().item() < 1.1
