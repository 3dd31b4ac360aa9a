"""Gains of gated cells and stacks: never exceeded by an attack, and carried by the layers' proofs alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.errors import DimensionError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.models.adapters.modules import recurrent_subject
from stability.search.gains.lure import incremental_gain
from stability.search.gains.stack import stack_gain
from stability.verification import verify_claim


def small(module: nn.Module, scale: float) -> nn.Module:
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(scale)
    return module.double()


MODULES = {
    "gru": lambda: small(nn.GRU(2, 4), 0.5),
    "lstm": lambda: small(nn.LSTM(2, 3), 0.4),
    "two rnn": lambda: small(nn.RNN(2, 4, 2), 0.6),
    "two gru": lambda: small(nn.GRU(2, 3, 2), 0.4),
    "both ways": lambda: small(nn.RNN(2, 3, 2, bidirectional=True), 0.6),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("headed", [False, True])
def test_no_attack_exceeds_the_gain(name, headed):
    torch.manual_seed(1)
    module = MODULES[name]()
    subject = recurrent_subject(module)
    if name not in ("two rnn", "both ways"):
        subject = subject.with_inputs(-1.0, 1.0)
    width = module.hidden_size * (2 if module.bidirectional else 1)
    H = torch.randn(2, width, dtype=torch.float64) if headed else torch.eye(width, dtype=torch.float64)
    claim = stack_gain(subject, head=H.numpy() if headed else None)
    assert claim.verdict is Verdict.CERTIFIED
    assert verify_claim(subject, claim).valid
    x = torch.rand(12, 8, 2, dtype=torch.float64) * 1.6 - 0.8
    module.flatten_parameters()
    clean = module(x)[0].detach()
    assert not module.batch_first
    u = (0.05 * torch.randn_like(x)).requires_grad_()
    worst = 0.0
    for _ in range(40):  # gradient ascent on the ratio itself
        change = (module((x + u).clamp(-1, 1))[0] - clean) @ H.T
        size = ((x + u).clamp(-1, 1) - x).square().sum((0, 2)).sqrt()
        ratio = change.square().sum((0, 2)).sqrt() / size
        worst = max(worst, float(ratio.max().detach()))
        (grad,) = torch.autograd.grad(ratio.sum(), u)
        u = (u + 0.02 * grad / grad.norm()).detach().requires_grad_()
    assert worst <= claim.value * (1 + 1e-9)
    assert worst >= 1e-3 * claim.value


def test_a_stack_of_one_plain_layer_has_the_gain_of_that_layer():
    torch.manual_seed(0)
    layer = recurrent_subject(small(nn.RNN(2, 4), 0.6))
    assert stack_gain(LayerStack([layer])).value == pytest.approx(incremental_gain(layer).value, rel=1e-6)


def test_open_layers_and_other_subjects():
    cell = GatedCell("gru", np.ones((3, 1)), np.zeros((3, 1)))
    loud = GatedCell("gru", 5 * np.ones((3, 1)), 9 * np.ones((3, 1)), input_low=-1.0, input_high=1.0)
    assert stack_gain(loud).verdict is Verdict.INCONCLUSIVE
    with pytest.raises(DimensionError):
        stack_gain(cell, head=np.ones((1, 2)))
    with pytest.raises(UnsupportedError, match="incremental_gain"):
        stack_gain(nn.RNN(2, 3))
