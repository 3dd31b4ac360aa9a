"""Every kind of layer that there is, for the tests of what layers have in common."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis.unroll import as_layer
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.systems.opaque import OpaqueMap
from stability.models import (
    GRU,
    LAYERS,
    LRU,
    LSTM,
    DeepNetwork,
    ElmanRNN,
    LipschitzRNN,
    RecurrentLayer,
    RotRNN,
    Stack,
    register_layer,
)
from stability.systems import DrivenSystem, LureSystem

INPUT, HIDDEN = 3, 8
OPTIONS: dict[str, dict] = {"householder": {"reflections": 3}, "rotrnn": {"heads": 2}}
# modReLU, the unitary layer's own activation, is not slope-restricted channel by channel: no Lur'e system
SYSTEM = {"unitary": {"activation": "tanh"}}


class LeakyRNN(RecurrentLayer):
    """A user's own layer, ``h+ = (1 - leak) h + leak tanh(W h + U x)``, which says what it knows of itself."""

    def __init__(self, input_size, hidden_size, *, leak=0.3):
        super().__init__(input_size, hidden_size)
        self.leak = leak
        self.U = nn.Parameter(0.5 * torch.randn(self.hidden_size, self.input_size))
        self.W = nn.Parameter(0.2 * torch.randn(self.hidden_size, self.hidden_size))

    def prepare(self):
        return self.W.T

    def drive(self, x, prepared):
        return x @ self.U.T

    def transition(self, drive, state, prepared):
        return (1 - self.leak) * state + self.leak * torch.tanh(state @ prepared + drive)

    def matrices(self):
        return {"W": self.W}

    def contraction_gap(self):
        return self.leak * (1 - torch.linalg.matrix_norm(self.W, 2))

    def real_part_bounds(self, published=False):
        spectrum = torch.linalg.eigvalsh(0.5 * (self.W + self.W.T).detach())
        return {"W": (float(spectrum[0]), float(spectrum[-1]))}

    def driven(self, continuous=False):
        self.refuse_equation(continuous)
        self.check_finite()
        eye, (W, U) = np.eye(self.hidden_size), (p.detach().double().numpy() for p in (self.W, self.U))
        return DrivenSystem(LureSystem((1 - self.leak) * eye, self.leak * eye, W, dt=1.0), "tanh", U)


class GatedLinearRNN(RecurrentLayer):
    """A user's own layer without a system, ``h+ = (1 - z) h + z c`` with ``z = sigmoid(W x + b)``, ``c = V x + d``."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.gate, self.candidate = nn.Linear(input_size, hidden_size), nn.Linear(input_size, hidden_size)

    def prepare(self):
        return None

    def drive(self, x, prepared):
        return torch.cat([torch.sigmoid(self.gate(x)), self.candidate(x)], dim=-1)

    def transition(self, drive, state, prepared):
        z, c = drive.chunk(2, dim=-1)
        return (1 - z) * state + z * c


@pytest.fixture(autouse=True, scope="module")
def own_layers():
    """A module that imports this name has the user's own layers registered."""
    register_layer("leaky")(LeakyRNN)
    register_layer("gated_linear")(GatedLinearRNN)
    yield
    del LAYERS["leaky"], LAYERS["gated_linear"]


MADE = {  # layers made of layers, and torch's own modules of several layers, keep the same laws
    "stack": lambda: Stack([LipschitzRNN(INPUT, 5, dt=0.2), LSTM(5, 4), GRU(4, 6), ElmanRNN(6, HIDDEN)]),
    "stack of linear layers": lambda: Stack([LRU(INPUT, 4), RotRNN(INPUT, HIDDEN, heads=2)]),
    "lstm of two layers": lambda: LSTM(INPUT, HIDDEN, num_layers=2),
    "gru of three layers": lambda: GRU(INPUT, HIDDEN, num_layers=3),
    "a user's own": lambda: LeakyRNN(INPUT, HIDDEN),
    "a user's gated": lambda: GatedLinearRNN(INPUT, HIDDEN),
    "layer of a deep network": lambda: DeepNetwork(
        INPUT, 2, layer="lru", hidden_size=HIDDEN, width=INPUT, depth=2
    ).layers[1],
    "torch.nn.RNN": lambda: as_layer(nn.RNN(INPUT, HIDDEN, nonlinearity="relu")),
    "torch.nn.RNNCell": lambda: as_layer(nn.RNNCell(INPUT, HIDDEN)),
    "torch.nn.GRU": lambda: as_layer(nn.GRU(INPUT, HIDDEN, num_layers=2)),
    "torch.nn.LSTM": lambda: as_layer(nn.LSTM(INPUT, HIDDEN, num_layers=2, bias=False)),
}
REGISTERED = pytest.mark.parametrize("name", sorted(LAYERS))
EVERY = pytest.mark.parametrize("name", [*sorted(LAYERS), *MADE])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def make(name, dtype=torch.float64, seed=0, **options):
    torch.manual_seed(seed)
    if name in MADE:
        return MADE[name]().to(dtype)
    layer = LAYERS[name](INPUT, HIDDEN, **OPTIONS.get(name, {}), **options).to(dtype)
    return layer.requires_grad_()  # what is drawn once and kept obeys the laws of gradients, too


def system_of(layer):
    """The system of a layer; the test is skipped for a layer without a map."""
    subject = layer.driven()
    if isinstance(subject, (GatedLinearLayer, OpaqueMap)):
        pytest.skip("this layer has no map")
    return subject


def inputs(batch=4, time=6, dtype=torch.float64, seed=1):
    return torch.randn(batch, time, INPUT, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def leaves(state):
    return tuple(leaf for part in state for leaf in leaves(part)) if isinstance(state, tuple) else (state,)


def drawn_like(state):
    return tuple(map(drawn_like, state)) if isinstance(state, tuple) else torch.randn_like(state)


def flat(layer, state):
    """A state as its system writes it: layer by layer, complex numbers as their parts, ``h`` before ``c``."""
    if isinstance(layer, Stack):
        return np.concatenate([flat(part, own) for part, own in zip(layer.layers, state, strict=True)], axis=1)
    real = [torch.view_as_real(v).movedim(-1, 1) if v.is_complex() else v for v in leaves(state)]
    rows = [v.reshape(v.shape[0], getattr(layer, "num_layers", 1), -1).detach().numpy() for v in real]
    return np.concatenate(rows, axis=2).reshape(len(rows[0]), -1)


def close(dtype):
    eps = torch.finfo(dtype).eps
    return {"rtol": 200 * eps, "atol": 200 * eps}
