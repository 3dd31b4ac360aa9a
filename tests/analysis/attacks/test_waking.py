"""Attacks on units that are off, where the gradient at the sequence itself is zero."""

from __future__ import annotations

import math

import pytest
import torch

from stability.analysis.attacks.smallest import attack_radii
from stability.analysis.attacks.threat import open_threat
from stability.analysis.attacks.waking import sleeping
from stability.models.elman import ElmanRNN
from stability.models.network import SequenceModel


def off(steps: int, seed: int) -> tuple[SequenceModel, torch.Tensor]:
    """A ReLU unit that is off at every step, and a sequence."""
    generator = torch.Generator().manual_seed(seed)
    model = SequenceModel(ElmanRNN(3, 1, activation="relu"), 2).double()
    x = torch.randn(1, steps, 3, generator=generator, dtype=torch.float64)
    row = torch.randn(1, 3, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        model.layer.weight_ih.copy_(row)
        model.layer.weight_hh.fill_(0.5)
        model.layer.bias.fill_(-1.0 - float((x @ row.T).max()))
        model.head.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model.head.bias.copy_(torch.tensor([0.3, -0.3]))  # the second class from h = 0.3 on
    return model, x


def reached(model: SequenceModel, x: torch.Tensor, radius: float) -> float:
    """The largest last state of an l_inf ball: each step's input drives the unit as far as it may."""
    row, h, bias = model.layer.weight_ih.detach()[0], 0.0, float(model.layer.bias.detach())
    for u in x[0]:
        drive = float(row @ u) + radius * float(row.abs().sum()) + bias
        h = max(0.0, 0.5 * h + drive)
    return h


@pytest.mark.parametrize(("steps", "seed"), [(1, 0), (2, 1), (3, 2), (5, 3)])
def test_the_radius_in_linf_is_found_though_all_gradients_are_zero(steps, seed):
    model, x = off(steps, seed)
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if reached(model, x, middle) > 0.3 else (middle, high)
    found = attack_radii(model, x, torch.tensor([0]), norm="linf", restarts=1)
    assert bool(found.success[0])
    assert high * (1.0 - 1e-9) <= float(found.norms[0]) <= high * (1.0 + 1e-6)


def test_in_l2_a_crossing_is_found_too():
    model, x = off(1, 4)
    found = attack_radii(model, x, torch.tensor([0]), restarts=1)
    row, bias = model.layer.weight_ih.detach()[0], float(model.layer.bias.detach())
    true = (0.3 - bias - float(row @ x[0, 0])) / float(row.norm())
    assert math.isclose(float(found.norms[0]), true, rel_tol=1e-6)


def test_only_what_may_change_counts_as_asleep():
    model, x = off(2, 5)
    awake = model.layer.bias.detach() + 50.0
    y, told = torch.tensor([0]), {"norm": "l2", "bounds": None, "seed": 0, "epsilon": None, "mask": None}
    some = torch.tensor([[[False], [True]]]).expand(1, 2, 3)
    assert bool(sleeping(open_threat(model, x, y, **told), x)[0])
    assert not bool(sleeping(open_threat(model, x, y, **(told | {"mask": torch.zeros_like(x).bool()})), x)[0])
    with torch.no_grad():
        model.layer.bias.copy_(awake)
    assert not bool(sleeping(open_threat(model, x, y, **told), x)[0])
    assert not bool(sleeping(open_threat(model, x, y, **(told | {"mask": some})), x)[0])
