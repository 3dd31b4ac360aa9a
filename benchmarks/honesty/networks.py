"""Gated cells and stacks that contract by construction."""

from __future__ import annotations

import numpy as np

from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.systems import DrivenSystem

from .constructions import Rng, draw, drive

__all__ = ["gated_cell", "stack"]

NETWORKS = ("inf_norm", "two_norm", "triangular", "leaky")


def gated_cell(rng: Rng, margin: float, kind: str | None = None) -> GatedCell:
    """A cell without recurrent weights: every unit forgets at the rate of its gate, which is at most ``1 - margin``.

    The box of the inputs is [-1, 1]; the bias of the forgetting gate (LSTM: f, GRU: z) leaves it just that room.
    """
    kind = kind or ("lstm", "gru")[rng.integers(2)]
    m, p = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    gates = 4 if kind == "lstm" else 3
    W = 0.5 * rng.standard_normal((gates * m, p))
    b = 0.3 * rng.standard_normal(gates * m)
    b[m : 2 * m] = np.log((1.0 - margin) / margin) - np.abs(W[m : 2 * m]).sum(axis=1)
    return GatedCell(kind, W, np.zeros((gates * m, m)), b, None, -1.0, 1.0)


def stack(rng: Rng, margin: float) -> LayerStack:
    """Two or three layers on top of each other; each contracts, and so does the stack."""
    layers: list[DrivenSystem | GatedCell] = []
    for _ in range(int(rng.integers(2, 4))):
        n = int(rng.integers(1, 4))
        kind = NETWORKS[rng.integers(len(NETWORKS))]
        layer = drive(draw(kind, rng, n, margin).system, rng)
        assert layer is not None
        if layers:
            below = layers[-1].system.states if isinstance(layers[-1], DrivenSystem) else layers[-1].outputs
            E = rng.standard_normal((n, below))
            layer = DrivenSystem(layer.system, layer.activation, E, layer.b)
        layers.append(layer)
    return LayerStack(layers)
