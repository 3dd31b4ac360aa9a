r"""Floors: lower limits of the steps of gated linear layers, which shorten the memory that can be certified.

With a floor ``f`` the step is :math:`\Delta = \max(f, \mathrm{softplus}(p))`, so that the decay is at most
:math:`e^{-A f}` for every input. One floor per channel or head, a low quantile of its steps on data, changes the
outputs on such data little; one floor for all channels would remove the slow channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from stability.checkpoint_certificate import LayerClaims
from stability.errors import UnsupportedError
from stability.kernel.theorems.gated_linear_bounds import TOLERANCE
from stability.search.gated_linear import layer_claims

from ..models.gated_linear.block import GatedLinearBlock
from .gated_layers import measure_layers
from .guard import in_evaluation


@dataclass(frozen=True, eq=False)
class LayerFloors:
    """Floors of one layer, and its certified memory horizons.

    Attributes:
        layer: number among the gated linear layers.
        type: name of the architecture.
        floors: ``(units,)``.
        horizons_before: ``(units,)`` certified horizon of each channel or head without the floors, in steps; infinite
            where none is proven.
        horizons_after: the same with the floors.
    """

    layer: int
    type: str
    floors: np.ndarray
    horizons_before: np.ndarray
    horizons_after: np.ndarray


@dataclass(frozen=True, eq=False)
class FloorRepair:
    """Result of setting floors.

    Attributes:
        loss_before: loss on data without the floors.
        loss_after: loss with them.
        layers: layers that got floors.
    """

    loss_before: float
    loss_after: float
    layers: tuple[LayerFloors, ...]


def set_floors(
    network: nn.Module, batches: Sequence[Tensor], loss: Callable[[nn.Module], float], *, quantile: float = 0.01
) -> FloorRepair:
    """Set a floor for every channel or head that has a step, in place: a quantile of its steps on data.

    Args:
        network: network with gated linear layers; layers without steps stay as they are.
        batches: its inputs, as for ``measure_layers``.
        loss: function of the network that returns the loss to be reported.
        quantile: level of the quantile, in [0, 1].

    Returns:
        Losses and certified horizons, before and after.

    Raises:
        UnsupportedError: no layer has steps.

    Example:
        >>> from stability.models import Mamba2, SequenceModel
        >>> model, x = SequenceModel(Mamba2(3, 8), 2), torch.randn(4, 20, 3)
        >>> repair = set_floors(model, [x], lambda network: float(network(x).square().mean()))
        >>> bool((repair.layers[0].horizons_after <= repair.layers[0].horizons_before).all())
        True
    """
    blocks = [part for part in network.modules() if isinstance(part, GatedLinearBlock)]
    if blocks and all(block.mixer.step_bias is None for block in blocks):
        names = ", ".join(sorted({block.type_name for block in blocks}))
        raise UnsupportedError(f"floors limit the steps of Mamba, Mamba-2 and gated DeltaNet, and {names} has no steps")
    records = measure_layers(network, batches, quantile=quantile)
    with in_evaluation(network), torch.no_grad():
        loss_before = loss(network)
        layers = []
        for block, record in zip(blocks, records):
            if record.step is None:
                continue
            before = _horizons(block)
            block.set_floors(torch.from_numpy(record.step))
            floors = block.mixer.get_buffer("dt_floor").double().cpu().numpy()
            layers.append(LayerFloors(record.layer, record.type, floors, before, _horizons(block)))
        return FloorRepair(loss_before, loss(network), tuple(layers))


def _horizons(block: GatedLinearBlock) -> np.ndarray:
    layer = block.gated_linear()
    claims = LayerClaims(0, block.type_name, layer.digest, "norm", layer_claims(layer, TOLERANCE), layer.taps)
    steps = claims.horizons()
    return np.full(layer.units, np.inf) if steps is None else steps


def next_token_loss(network: nn.Module, batches: Sequence[Tensor]) -> float:
    """Return the mean cross entropy of the next token, in nats.

    Args:
        network: called as ``network(tokens)``; gives logits ``(batch, time, vocabulary)``.
        batches: batches of tokens ``(batch, time)``.
    """
    total = sum(
        float(
            cross_entropy(network(tokens[:, :-1]).flatten(0, 1).float().cpu(), tokens[:, 1:].flatten(), reduction="sum")
        )
        for tokens in batches
    )
    return total / sum(tokens[:, 1:].numel() for tokens in batches)
