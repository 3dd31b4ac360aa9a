"""The command line tells of a network that hides its gradient."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from stability.reports.cli import app

NETWORK = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head = torch.nn.GRU(3, 4, batch_first=True), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.rnn({})[0][:, -1])


def make():
    return Net()
"""


@pytest.mark.parametrize("hidden", ["torch.round(x * 255) / 255", "x.detach()", "x + (x * 0).sqrt()"])
def test_attack_says_that_there_was_no_gradient(tmp_path, monkeypatch, hidden):
    (tmp_path / "masked_net.py").write_text(NETWORK.format(hidden), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "masked_net", raising=False)
    x = np.random.default_rng(0).random((6, 5, 3), dtype=np.float32)
    np.savez("d.npz", x=x, y=np.array([0, 1] * 3))
    found = CliRunner().invoke(app, ["attack", "masked_net:make", "--data", "d.npz", "--attack", "pgd"])
    assert found.exit_code == 0, found.output
    assert "the gradient by the input is zero or not finite on" in found.stderr
