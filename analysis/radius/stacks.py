"""How far an input can move the logits of a stack of layers whose gains follow from the norms of their weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stability.gains.stack import stack_gain
from stability.systems import PairwiseSystem

from ...models.network import SequenceModel
from ...models.stack import Stack
from ...models.tensors import to_numpy
from ..dynamics.stepbound import pair_gains

Array = NDArray[np.float64]


def is_stack_of_pairs(model: Any) -> bool:
    """Whether a model is a head on a stack of layers with activations on pairs, ``BoundedGainRNN`` and its kin."""
    layers = model.layer.parts if isinstance(model, SequenceModel) and isinstance(model.layer, Stack) else []
    read = bool(layers) and all(layer.outputs_hidden for layer in layers)
    return read and all(isinstance(layer.driven(), PairwiseSystem) for layer in layers)


def stack_reach(model: SequenceModel, horizon: int) -> tuple[float, Array, str]:
    """The gain to the logits, that of every pair of classes, and where it comes from.

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
