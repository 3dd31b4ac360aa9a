r"""A plain network held to a gain while it is trained: after every step its weights are projected.

For :math:`h^+ = \phi(W h + V x + b)` with slopes in [-1, 1], :math:`|[W\; V / g]| \le 1` gives
:math:`|d_{t+1}|^2 \le |d_t|^2 + g^2 |u_t|^2` for the difference of two runs from one state whose inputs differ by
``u``: the state moves by at most :math:`g |u|_2` at any time. The nearest weights of that kind have the singular
values of :math:`[W\; V/g]` cut at one. ``BoundedGainRNN`` has them all at one, without a projection.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stability.errors import UnsupportedError
from stability.gains.gain import Gain
from stability.gains.norms import norm_gain

from ...models.elman import ElmanRNN
from ..unroll import as_layer, recurrent_layers

ROOM = 1e-5
"""Below one: for rounding in float32 and in the proof."""


def plain_weights(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """``W (n, n)`` and ``V (n, p)`` of a plain recurrent layer, the parameters themselves.

    Raises:
        UnsupportedError: another layer.
    """
    if isinstance(layer, ElmanRNN) or type(layer) is nn.RNNCell:
        return layer.weight_hh, layer.weight_ih  # type: ignore[return-value]
    if type(layer) is nn.RNN and layer.num_layers == 1 and not layer.bidirectional:
        return layer.weight_hh_l0, layer.weight_ih_l0  # type: ignore[return-value]
    raise UnsupportedError(
        f"gain_target projects the weights of ElmanRNN, torch.nn.RNN and RNNCell of one layer, not of a "
        f"{type(layer).__name__}: BoundedGainRNN has its gain by construction"
    )


def _layers(model: nn.Module) -> list[nn.Module]:
    layers = [layer for _, layer in recurrent_layers(model)]
    if len(layers) != 1:
        raise UnsupportedError(f"gain_target is about a model with one recurrent layer, this one has {len(layers)}")
    return layers


@torch.no_grad()
def project_gain(model: nn.Module, target: float) -> None:
    """The nearest weights whose gain from inputs to states is at most ``target``, in place.

    Args:
        model: with one plain recurrent layer.
        target: ``g``.

    Raises:
        UnsupportedError: another model.

    Example:
        >>> from stability.models import ElmanRNN
        >>> layer = ElmanRNN(2, 4)
        >>> project_gain(layer, 0.1)
        >>> K = torch.cat([layer.weight_hh, layer.weight_ih / 0.1], dim=1)
        >>> bool(torch.linalg.matrix_norm(K, 2) < 1.0)
        True
    """
    for layer in _layers(model):
        W, V = plain_weights(layer)
        left, sizes, right = torch.linalg.svd(torch.cat([W, V / target], dim=1).double(), full_matrices=False)
        if sizes[0] > 1.0 - ROOM:
            K = (left * sizes.clamp(max=1.0 - ROOM)) @ right
            W.copy_(K[:, : len(W)])
            V.copy_(target * K[:, len(W) :])


def proved_gain(model: nn.Module, target: float) -> Gain:
    """The gain of a model with one plain recurrent layer, proved by its norms; infinite where they do not prove it.

    Args:
        model: trained with ``gain_target``.
        target: ``g``.

    Raises:
        UnsupportedError: another model.
    """
    (layer,) = _layers(model)
    return norm_gain(as_layer(layer).driven(), target)
