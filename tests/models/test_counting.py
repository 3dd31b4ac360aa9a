"""Free parameters: the papers' numbers, and directions without effect, found by looking at gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from stability.models import (
    LSTM,
    AntisymmetricRNN,
    HouseholderRNN,
    LipschitzRNN,
    RotRNN,
    SequenceModel,
    UnitaryRNN,
    free_parameters,
    make_orthogonal,
)
from stability.models.parametrizations.planes import Rotation


def test_the_papers_numbers():
    """Orthogonal RNN paper, table 4: 183 K for 512 units and 510 reflections on 49 characters; uRNN: 7 n."""
    assert free_parameters(SequenceModel(HouseholderRNN(49, 512, reflections=510), 49)) == 182_574
    unitary = UnitaryRNN(1, 16, kind="arjovsky", activation="tanh")
    assert free_parameters(unitary) - (16 + 16 + 16) == 7 * 8
    assert free_parameters(LSTM(3, 5)) == 4 * (5 * 3 + 5 * 5 + 2 * 5)


LAYERS = {
    "householder": lambda: HouseholderRNN(2, 6, reflections=4),
    "unitary": lambda: UnitaryRNN(2, 8, reflections=3, activation="tanh"),
    "rotrnn": lambda: RotRNN(2, 6, heads=2),
    "antisymmetric": lambda: AntisymmetricRNN(2, 5),
    "lipschitz": lambda: LipschitzRNN(2, 5),
    "lipschitz, skew": lambda: LipschitzRNN(2, 5, beta=(1.0, 0.0)),
    "lipschitz, no A": lambda: LipschitzRNN(2, 5, alpha=0.0),
    "orthogonal weight": lambda: make_orthogonal(nn.RNN(2, 5, batch_first=True), "weight_hh_l0", 3),
}


@pytest.mark.parametrize("name", LAYERS)
def test_what_does_not_count_has_no_gradient_in_any_direction(name):
    """The rank of the gradients of many outputs is what counts, less the directions that turn with the weights."""
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    names = [n for n, p in layer.named_parameters() if n in ("U", "vectors", "M", "M_A", "M_W") or "original" in n]
    rest = sum(p.numel() for n, p in layer.named_parameters() if n not in names)
    rank = 0
    for n in names:
        rows = []
        for _ in range(40):
            x = torch.randn(3, 4, 2, dtype=torch.float64)
            output = layer(x)[0]
            weights = torch.randn_like(output)
            p = dict(layer.named_parameters())[n]
            (g,) = torch.autograd.grad((output * weights).sum(), p, allow_unused=True)
            rows.append(torch.zeros(p.numel()).double() if g is None else g.flatten())
        if rows[0].numel():
            rank += int(torch.linalg.matrix_rank(torch.stack(rows), rtol=1e-9))
    counted = free_parameters(layer) - rest
    # where the weights are, the length of a reflection vector (and its phase) does not matter, nor turning a plane in
    # itself: counted all the same, as in the papers, since these directions turn with the weights
    gauge = {"householder": 4, "orthogonal weight": 3, "unitary": 2 * 3, "rotrnn": 2 * 1}.get(name, 0)
    assert rank == counted - gauge


def test_frozen_and_shared_numbers():
    model = nn.ModuleDict({"one": nn.Linear(3, 2), "two": nn.Linear(3, 2)})
    model["two"].weight = model["one"].weight
    model["two"].bias.requires_grad_(False)
    assert free_parameters(model) == 6 + 2
    linear = nn.Linear(3, 3, bias=False, dtype=torch.float64)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(3))
    parametrize.register_parametrization(linear, "weight", Rotation(3))
    assert free_parameters(linear) == 1 + 3
