"""Networks and data of a user's own, for the tests of ``--data``."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.analysis.campaign.budgets import Budget

__all__ = ["MODULE", "SMALL", "arrays"]

SMALL = Budget(
    samples=30, attacked=8, curved=12, certified=3, gated=1, restarts=0,
    draws=2, levels=(0.0, 0.5), epsilons_linf=(0.0, 0.1), epsilons_l2=(0.0, 1.0),
    steps=2, stretch=2, iterations=4, probes=2, trajectories=2, program_states=0,
)  # fmt: skip
MODULE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, outputs, features=3):
        super().__init__()
        self.scale = nn.Linear(features, 2)
        self.rnn = nn.GRU(2, 4, batch_first=True)
        self.head = nn.Linear(4, outputs)

    def forward(self, x):
        return self.head(self.rnn(self.scale(x))[0][:, -1])


def made(outputs, seed=1):
    torch.manual_seed(seed)
    return Net(outputs)


def three():
    return made(3)


def one():
    return made(1)


def double():
    return made(3).double()


class PerStep(Net):
    def forward(self, x):
        return self.head(self.rnn(self.scale(x))[0])


def per_step():
    torch.manual_seed(1)
    return PerStep(3)


class Broken(Net):
    def forward(self, x):
        raise KeyError("no such gate\\nsecond line")


def broken():
    return Broken(3)


class Diverging(Net):
    def forward(self, x):
        return super().forward(x) / 0.0


def diverging():
    return Diverging(3)


def gru():
    torch.manual_seed(1)
    return nn.GRU(3, 4, batch_first=True)
"""


def arrays(n: int = 24, seed: int = 0, **changed: Any) -> dict[str, np.ndarray]:
    """Sequences of three classes, sorted by class, in an odd range."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) * 3 // n
    x = rng.normal(size=(n, 6, 3)).astype(np.float32) + 2.0 * y[:, None, None]
    return {k: v for k, v in {"x": np.float32(4.0) * x.astype(np.float32), "y": y, **changed}.items() if v is not None}
