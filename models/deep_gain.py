r"""Gain from the input to the logits of a deep network with residual branches of known gain.

With ``G_k`` the gain of layer ``k``, ``M_k`` the mixing after it, ``g_k`` the scales of the norm before it, ``c`` the
Lipschitz constant of GELU (1.129; one without GELU) and ``w`` the rows of the decoder,

.. math:: |\Delta(z_i - z_j)| \le |E| \prod_{k < K} (1 + |M_k|\, c\, |g_k|_\infty\, G_k)\;
          \bigl(|w_i - w_j| + |(w_i - w_j) M_K|\, c\, |g_K|_\infty\, G_K\bigr)\, |u| .

The last layer's gain bounds its last state, the gains of the others bound whole sequences. See ``residual``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stability.errors import UnsupportedError
from stability.kernel.systems.residual_stack import STRETCH

from .deep import DeepNetwork, why_without_gain


def deep_reach(network: DeepNetwork) -> Tensor:
    """Return ``(classes, classes)``: the gain from the input's l2 norm to each difference of two logits.

    Args:
        network: network whose layers prescribe their gains, with logits of the last or mean output.

    Returns:
        The bounds of the formula above with the prescribed gains, differentiable; zero on the diagonal.

    Raises:
        UnsupportedError: another network.

    Example:
        >>> from stability.models import DeepNetwork
        >>> network = DeepNetwork(3, 10, layer="bounded_gain", hidden_size=4, width=6, norm="none", mixing="linear")
        >>> deep_reach(network).shape
        torch.Size([10, 10])
    """
    why = why_without_gain(network)
    gains: list[Any] = [getattr(layer, "prescribed_sequence_gain", None) for layer in network.layers[:-1]]
    gains.append(network.layers[-1].prescribed_gain)
    if why is None and None in gains:
        why = f"no gain is prescribed for layers of kind {network.layer_name}: take bounded_gain"
    if why is None and network.reduction == "all":
        why = "logits at every step are no one decision"
    if why is not None:
        raise UnsupportedError(why)
    stretch, w = STRETCH["gelu" if network.mixing == "gelu" else "identity"], network.decoder.weight
    norm = torch.linalg.matrix_norm(network.encoder.weight, 2)
    scales = [block.affine_norm()[0].abs().amax() * stretch for block in network.residuals]
    for block, scale, gain in zip(network.residuals[:-1], scales, gains):
        norm = norm * (1.0 + torch.linalg.matrix_norm(block.mix.weight, 2) * scale * gain)
    through = network.residuals[-1].mix.weight
    return norm * (_apart(w) + _apart(w @ through) * scales[-1] * gains[-1])


def _apart(rows: Tensor) -> Tensor:
    """Return the distances ``(k, k)`` of rows; the gradient is zero where two rows are equal."""
    squares = (rows[:, None] - rows[None]).square().sum(dim=2)
    differ = squares > 0
    return torch.where(differ, torch.where(differ, squares, 1.0).sqrt(), 0.0)
