"""One logit gives what two give; padding stays as it is; sizes may be in units of each feature's standard deviation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import (
    attack_sweep,
    certified_radius,
    hessian_summary,
    local_radius,
    noise_sweep,
    parameter_noise_sweep,
    pgd,
    task_from_arrays,
)
from stability.analysis.campaign.fitting import joined
from stability.models.elman import ElmanRNN
from stability.models.network import SequenceModel
from stability.search.local.largest_radius import ENGINES


class Own(nn.Module):
    """A GRU with a head of one or two logits."""

    def __init__(self, classes: int, flat: bool = False) -> None:
        super().__init__()
        self.rnn, self.head, self.flat = nn.GRU(2, 4, batch_first=True), nn.Linear(4, classes), flat

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.head(self.rnn(x)[0][:, -1])
        return z.squeeze(1) if self.flat else z


def binary(one: nn.Module, two: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Two networks of equal weights, the second with the logits ``(0, z)``."""
    torch.manual_seed(0)
    with torch.no_grad():
        for p in one.parameters():
            p.normal_(0.0, 0.8)
        state = {name: p.clone() for name, p in one.state_dict().items()}
        for name in ("head.weight", "head.bias"):
            state[name] = torch.cat([torch.zeros_like(state[name]), state[name]])
        two.load_state_dict(state)
    return one, two


BINARY = {
    "flat": lambda: binary(Own(1, flat=True), Own(2)),
    "column": lambda: binary(Own(1), Own(2)),
    "sequence model": lambda: binary(SequenceModel(ElmanRNN(2, 4), 1), SequenceModel(ElmanRNN(2, 4), 2)),
}


@pytest.mark.parametrize("kind", BINARY)
def test_one_logit_gives_what_two_give(kind, monkeypatch) -> None:
    for engine in ENGINES:
        monkeypatch.setitem(ENGINES, engine, lambda asked: [None] * len(asked.x))
    one, two = BINARY[kind]()
    x = torch.randn(12, 5, 2)
    y = (two(x).argmax(1) + torch.arange(12).eq(3)) % 2
    for call in (
        lambda m: pgd(m, x, y, epsilon=0.3, bounds=None).adversarial.flatten().tolist(),
        lambda m: attack_sweep(m, x, y, epsilons=[0, 0.2, 0.5], attack="strong", bounds=None).accuracy,
        lambda m: noise_sweep(m, x, y, levels=[0, 1.0]).accuracy,
        lambda m: parameter_noise_sweep(m, x, y, levels=[0.0], draws=1).accuracy,
        lambda m: local_radius(m, x, y, restarts=0).attack_radius.tolist(),
        lambda m: hessian_summary(m, x, y, parameters="recurrent", method="dense").trace,
    ):
        assert call(one) == pytest.approx(call(two), rel=1e-5)
    if kind == "sequence model":
        assert certified_radius(one, x, y).radius == pytest.approx(certified_radius(two, x, y).radius)
    task = task_from_arrays(x, y)
    read, fitted = joined(task, one, "the model")
    again, other = joined(task, two, "the model")
    assert (read(x) == again(x)).all()
    assert fitted.output_size == other.output_size == 2
    assert torch.equal(fitted.loss(read(x), y), other.loss(again(x), y))
