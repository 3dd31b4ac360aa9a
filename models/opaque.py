"""Layers and steps that no theorem covers, as subjects of certificates."""

from __future__ import annotations

import hashlib

import numpy as np
from torch import Tensor, nn

from stability.kernel.systems.opaque import OpaqueMap


def opaque_map(module: nn.Module, states: int, inputs: int, why: str, name: str) -> OpaqueMap:
    """Return the subject of a step that no theorem covers, with the SHA-256 of the module's weights.

    Args:
        module: holds the weights.
        states: size of the hidden state.
        inputs: features per time step.
        why: reason that ``certify`` gives.
        name: name in reports.

    Example:
        >>> opaque_map(nn.GRUCell(2, 3), 3, 2, "no theorem covers it", "gated")
        OpaqueMap(states=3, inputs=2, why='no theorem covers it', name='gated')
    """
    digest = hashlib.sha256()
    for key, value in sorted(module.state_dict().items()):
        if isinstance(value, Tensor):
            digest.update(f"{key}{tuple(value.shape)}".encode())
            digest.update(np.ascontiguousarray(value.detach().cpu().double().numpy()).tobytes())
    return OpaqueMap(states, inputs, why, weights=digest.hexdigest(), name=name)
