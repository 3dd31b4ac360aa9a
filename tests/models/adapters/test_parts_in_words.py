"""Certificates of one part of a container name it in every sentence, in the file and on the screen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability import Certificate, certify, verify
from stability.kernel.systems.parts import part_of
from stability.models import LipschitzRNN
from stability.models.adapters.modules import _ADAPTERS, register_adapter
from stability.systems import LureSystem


class Residual(nn.Module):
    """A residual around the cell: nothing that is known about the cell is known about this."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x, h):
        return h + self.cell(x, h)


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(0.5 * torch.eye(2))


def scaled(module, factor):
    with torch.no_grad():
        for value in module.parameters():
            value.mul_(factor)
    return module


@pytest.fixture
def bare():
    register_adapter(Bare)(lambda m: LureSystem.recurrent(-np.eye(2), m.W.detach().double().numpy()))
    yield Bare
    del _ADAPTERS[Bare]


CELLS = {
    "certified cell": (lambda: scaled(nn.RNNCell(2, 3), 0.2), "certified"),
    "refuted cell": (lambda: scaled(nn.RNNCell(2, 3), 9.0), "refuted"),
    "gru": (lambda: scaled(nn.GRU(2, 3), 0.1), None),
    "stack": (lambda: scaled(nn.RNN(2, 3, 2), 0.2), "certified"),
    "our flow": (lambda: scaled(LipschitzRNN(2, 3, dt=0.1), 0.1), None),
}


@pytest.mark.parametrize("name", CELLS)
def test_every_sentence_names_the_part(name, tmp_path):
    torch.manual_seed(0)
    make, verdict = CELLS[name]
    cell = make()
    certificate = certify(Residual(cell), rate="any", refute=verdict == "refuted")
    assert part_of(certificate.subject) == "cell of Residual"
    assert certificate.meta["part"] == "cell of Residual"
    for claim in (certificate.claim, *certificate.claims):
        assert "part `cell` of Residual" in claim.statement.replace("Part", "part"), claim.name
        assert not claim.statement.startswith("Network")
    if verdict is not None:
        assert str(certificate.verdict) == verdict
    path = certificate.save(tmp_path / "c.json")
    if str(certificate.verdict) != "inconclusive":
        assert verify(path).valid
    assert "Part `cell` of Residual" in Certificate.load(path).claim.statement
    alone = certify(cell, rate="any", refute=verdict == "refuted")
    assert part_of(alone.subject) == ""
    assert "part" not in alone.meta
    assert "part `" not in alone.claim.statement.lower()
