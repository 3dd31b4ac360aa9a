"""Small models run on one thread wherever they are run, large ones on those that there are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import attack_sweep, hessian_summary, noise_sweep
from stability.analysis.guard import untouched
from stability.models import ElmanRNN, SequenceModel


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


class Counted(SequenceModel):
    """Notes with how many threads it is run on more than a sequence."""

    def __init__(self) -> None:
        super().__init__(ElmanRNN(2, 4), 2)
        self.seen: set[int] = set()

    def forward(self, x):
        if len(x) > 1:
            self.seen.add(torch.get_num_threads())
        return super().forward(x)


X, Y = torch.rand(6, 5, 2), torch.arange(6) % 2


@pytest.mark.parametrize(
    "measure",
    [
        lambda m: attack_sweep(m, X, Y, epsilons=[0.1], attack="pgd"),
        lambda m: attack_sweep(m, X, Y, epsilons=[0.1], attack="deepfool", norm="l2"),
        lambda m: noise_sweep(m, X, Y, kind="white", levels=[0.1], draws=2),
        lambda m: hessian_summary(m, X, Y),
    ],
)
def test_measurements_of_a_small_model_take_one_thread(measure):
    model = Counted()
    measure(model)
    assert model.seen == {1}


def test_threads_come_back_where_something_is_raised():
    with pytest.raises(ZeroDivisionError), untouched(nn.Linear(2, 2)):
        _ = 1 / np.int64(0).item()
