"""Gain claims from the norms of the weights."""

from __future__ import annotations

import numpy as np

from stability.kernel.format.claims import Claim
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.stack_contraction import GROW
from stability.kernel.theorems.stack_gain import Span, combined
from stability.proposals import accepted, pack, propose
from stability.search.gains.pairwise import pairwise_proof


def norm_gain(subject: PairwiseSystem) -> Claim | None:
    """From the input sequence to the state at any time, where the norms of the weights bound it over every horizon.

    Args:
        subject: a network with an activation on pairs.

    Returns:
        The certified claim ``gain`` with the bound as its value, or ``None``.

    Example:
        >>> half = PairwiseSystem(0.6 * np.eye(2), 0.8 * np.eye(2), np.zeros(2), "oplu")
        >>> round(norm_gain(half).value, 9)
        1.0
    """
    found = pairwise_proof(subject, np.eye(subject.states), "final", None)
    return None if isinstance(found, str) else propose(subject, "norm_gain", found[1].data, value=found[0])


def stack_norm_gain(stack: LayerStack) -> Claim | None:
    """The same for a stack of such networks, in one direction: the gains of its layers, multiplied.

    Args:
        stack: the stack.

    Returns:
        The certified claim ``gain`` of the last layer's state at any time, or ``None``.

    Example:
        >>> half = PairwiseSystem(0.6 * np.eye(2), 0.8 * np.eye(2), np.zeros(2), "oplu")
        >>> round(stack_norm_gain(LayerStack([half, half])).value, 6)
        2.0
    """
    claims: list[Claim] = []
    for k, layer in enumerate(stack.layers):
        if not isinstance(layer, PairwiseSystem) or stack.directions != 1:
            return None
        measure = "final" if k == len(stack.layers) - 1 else "l2"
        found = pairwise_proof(layer, np.eye(layer.states), measure, None)
        if isinstance(found, str):
            return None
        claims.append(propose(layer, "norm_gain", found[1].data, value=found[0]))
    total = combined(stack, claims, None, Span("final"))
    if isinstance(total, str):
        return None
    data = {"layers": [pack(claim) for claim in claims], "gain": total * GROW, "measure": "final"}
    return accepted(stack, "stack_gain", data)
