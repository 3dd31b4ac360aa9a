"""Liquid cells of ncps are refused by name: they are no system of the kinds that criteria are about."""

from __future__ import annotations

import pytest
import torch

from stability import certify
from stability.errors import FileFormatError, UnsupportedError
from stability.models.adapters.state_dicts import state_dict_subject

CFC = ("ff1.weight", "ff1.bias", "ff2.weight", "ff2.bias", "time_a.weight", "time_b.weight", "backbone.0.weight")
PURE = ("ff1.weight", "ff1.bias", "w_tau", "A", "backbone.0.weight")
LTC = ("gleak", "vleak", "cm", "sigma", "mu", "w", "erev", "sensory_sigma", "sensory_mu", "sensory_w", "sensory_erev")


@pytest.mark.parametrize("names", [CFC, PURE, LTC])
@pytest.mark.parametrize("path", ["", "rnn_cell.", "model.rnn_cell."])
def test_a_liquid_cell_is_refused_by_name(names, path) -> None:
    with pytest.raises(UnsupportedError) as refused:
        state_dict_subject({path + name: torch.zeros(2, 2) for name in names}, where="net.pt")
    assert "net.pt" in str(refused.value)
    assert "no criterion" in str(refused.value)


def test_a_module_that_is_a_liquid_cell_is_refused_by_name() -> None:
    cell = torch.nn.Module()
    cell.rnn_cell = torch.nn.ModuleDict({name: torch.nn.Linear(2, 2) for name in ("ff1", "ff2", "time_a", "time_b")})
    with pytest.raises(UnsupportedError):
        certify(cell)


def test_half_of_its_names_are_no_liquid_cell() -> None:
    with pytest.raises(FileFormatError):
        state_dict_subject({name: torch.zeros(2, 2) for name in CFC[:4]})
