"""Gains from inputs to logits of stacks of layers, bounded by the norms of their weights."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from stability.kernel.format.claims import Claim
from stability.kernel.systems.residual_stack import STRETCH, ResidualStack
from stability.kernel.theorems.residual import gain_below
from stability.kernel.theorems.stack_contraction import layer_claim
from stability.kernel.theorems.stack_gain import Span, layer_gain
from stability.search.gains.stack import stack_gain
from stability.systems import PairwiseSystem

from ...models.deep import DeepNetwork, why_without_gain
from ...models.network import SequenceModel
from ...models.stack import Stack
from ...models.tensors import to_numpy
from ..dynamics.stepbound import SLACK, pair_gains

Array = NDArray[np.float64]


def is_stack_of_pairs(model: Any) -> bool:
    """Return True for a head on a stack of layers with pairwise activations, such as ``BoundedGainRNN``."""
    layers = model.layer.parts if isinstance(model, SequenceModel) and isinstance(model.layer, Stack) else []
    read = bool(layers) and all(layer.outputs_hidden for layer in layers)
    return read and all(isinstance(layer.driven(), PairwiseSystem) for layer in layers)


def stack_reach(model: SequenceModel, horizon: int) -> tuple[float, Array, str]:
    """Return the gain to the logits, the gains to the pairs of classes, and the method's name.

    The gain of the stack to its last state, proved, holds after every number of steps up to the horizon: for the state
    at each of them, and for the mean of the states, which moves no further than the one that moves most.

    Args:
        model: see ``is_stack_of_pairs``.
        horizon: time steps.

    Returns:
        The gain, infinite where none is proved; ``(classes, classes)``; the method in words.
    """
    claims = [stack_gain(model.layer, measure="final")]
    if claims[0].value is None and model.reduction == "last":
        claims.append(stack_gain(model.layer, measure="final", horizon=horizon))
    value = min((float(c.value) for c in claims if c.value is not None), default=math.inf)
    head = to_numpy(model.head.weight)
    pairs = pair_gains(np.eye(head.shape[1]), head, value)
    return value * float(np.linalg.norm(head, 2)) * (1.0 + 1e-9), pairs, "gains of a stack's layers, multiplied"


def is_residual(model: Any) -> TypeGuard[DeepNetwork]:
    """Return True for a deep network whose residual blocks have a gain."""
    return isinstance(model, DeepNetwork) and why_without_gain(model) is None and model.reduction != "all"


def residual_reach(model: DeepNetwork, horizon: int) -> tuple[float, Array, str]:
    """Return the gains of residual blocks around recurrent layers, under the decoder; see ``is_residual``.

    Args:
        model: the network.
        horizon: time steps.

    Returns:
        As ``stack_reach``.
    """
    network, head = model.residual(), to_numpy(model.decoder.weight)
    asked: tuple[int | None, ...] = (None,) if model.reduction == "mean" else (None, horizon)
    value, pairs = math.inf, np.full((len(head),) * 2, math.inf)
    for steps in asked:
        claim = stack_gain(network, head=head, measure="final", horizon=steps)
        if claim.value is not None:
            value, pairs = min(value, claim.value), np.minimum(pairs, _pairs_of(network, claim, head))
    return value, pairs, "gains of residual blocks, multiplied"


def _pairs_of(network: ResidualStack, claim: Claim, head: Array) -> Array:
    """Return bounds ``(classes, classes)`` from a proved gain of the blocks, following the last block to each pair."""
    assert claim.proof is not None
    data = claim.proof.data
    span = Span(data["measure"], data["horizon"])
    claims = [layer_claim(part) for part in data["layers"]]
    gain_before, last_gain = gain_below(network, claims, span), layer_gain(network.layers[-1], claims[-1], None, span)
    assert not isinstance(gain_before, str)
    assert not isinstance(last_gain, str)
    scale = float(np.abs(network.scales[-1]).max()) * STRETCH[network.between]
    apart = [pair_gains(np.eye(rows.shape[1]), rows, 1.0) for rows in (head, head @ network.mixing[-1])]
    return gain_before * (apart[0] + apart[1] * scale * last_gain) * (1.0 + SLACK)
