"""Activations in place and their slopes, where no graph is recorded.

``numpy`` has a vectorised hyperbolic tangent that is good to one unit in the last place and takes a ninth of the time
of torch's on one core.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from stability.kernel.arithmetic.activations import ACTIVATIONS

_BY_NUMPY = (torch.float32, torch.float64)
LEAK = ACTIVATIONS["leaky_relu"].slope[0]
_aten = torch.ops.aten
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "leaky_relu": lambda z: torch.nn.functional.leaky_relu_(z, LEAK),
    "sigmoid": torch.sigmoid_,
    "saturation": torch.nn.functional.hardtanh_,
    "deadzone": lambda z: z.sub_(z.clamp(-1.0, 1.0)),
}


def activate_(activation: str, z: Tensor) -> Tensor:
    """``z`` to ``phi(z)``, in place.

    Args:
        activation: a name in ``stability.models.options.TORCH_ACTIVATIONS``.
        z: without a graph.

    Example:
        >>> activate_("tanh", torch.zeros(2))
        tensor([0., 0.])
    """
    if activation == "tanh" and z.device.type == "cpu" and z.dtype in _BY_NUMPY:
        array = z.numpy()
        np.tanh(array, array)
    else:
        IN_PLACE[activation](z)
    return z


def steepened(activation: str, mu: Tensor, c: Tensor, out: Tensor) -> Tensor:
    """``mu`` times the slope where the activation gave ``c``, written into ``out``; all of one shape.

    Example:
        >>> steepened("tanh", torch.ones(1), torch.full((1,), 0.5), torch.empty(1))
        tensor([0.7500])
    """
    if activation == "tanh":
        return _aten.tanh_backward.grad_input(mu, c, grad_input=out)
    if activation == "sigmoid":
        return _aten.sigmoid_backward.grad_input(mu, c, grad_input=out)
    if activation == "leaky_relu":
        return _aten.leaky_relu_backward.grad_input(mu, c, LEAK, True, grad_input=out)
    moves = {"relu": c > 0, "saturation": c.abs() < 1.0, "deadzone": c != 0}[activation]
    return torch.where(moves, mu, torch.zeros_like(mu), out=out)
