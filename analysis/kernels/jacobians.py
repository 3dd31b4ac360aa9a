r"""Derivatives of a step by the state in closed form, for the layers that have kernels.

.. math:: \frac{\partial h^+}{\partial h} = \kappa I + A + B \,\mathrm{diag}(\phi'(z))\, W

for :math:`h^+ = \kappa h + A h + B \phi(W h + U x + b)`; of an LSTM, with :math:`z = R h + U x + b` gate by gate,
:math:`c^+ = f c + i g` and :math:`h^+ = o \tanh c^+`, by the product rule.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ...models.lure import LureLayer
from ...models.options import TORCH_ACTIVATIONS
from ...models.recurrent import RecurrentLayer
from .back import slope_of
from .swap import plain_layer, plain_lstm


def jacobians_of(layer: RecurrentLayer, drive: Tensor, state: Any, prepared: Any) -> Tensor | None:
    """Derivatives ``(batch, n, n)`` of the next state by the state; ``None`` for a layer without a closed form here.

    Args:
        layer: a recurrent layer.
        drive: ``(batch, ...)`` of one step.
        state: the state before it.
        prepared: what ``layer.prepare()`` returned.

    Example:
        >>> from stability.models import ElmanRNN
        >>> layer, x = ElmanRNN(2, 3), torch.zeros(1, 1, 2)
        >>> prepared, state = layer.begin(x)
        >>> jacobians_of(layer, layer.drive(x, prepared)[:, 0], state, prepared).shape
        torch.Size([1, 3, 3])
    """
    with torch.no_grad():
        if isinstance(layer, LureLayer) and plain_layer(layer):
            return _of_lure(layer, drive, state, prepared)
        return _of_lstm(layer, drive, *state) if plain_lstm(layer) else None


def _of_lure(layer: LureLayer, drive: Tensor, h: Tensor, prepared: Any) -> Tensor:
    A_t, B_t, W_t = prepared
    slope = slope_of(layer.activation, TORCH_ACTIVATIONS[layer.activation](torch.addmm(drive, h, W_t)))
    found = slope[:, :, None] * W_t.mT
    if B_t is not None:
        found = B_t.mT @ found
    if A_t is not None:
        found += A_t.mT
    if layer.time_step is not None:
        found *= layer.dt
        found.diagonal(dim1=1, dim2=2).add_(1.0)
    return found


def _of_lstm(layer: RecurrentLayer, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
    rnn = cast(Any, layer).rnn
    n = h.shape[1]
    z = torch.addmm(rnn.bias_ih_l0 + rnn.bias_hh_l0, x, rnn.weight_ih_l0.mT).addmm_(h, rnn.weight_hh_l0.mT)
    i, f, _, o = torch.sigmoid(z).chunk(4, dim=1)
    g = torch.tanh(z.chunk(4, dim=1)[2])
    R_i, R_f, R_g, R_o = rnn.weight_hh_l0.chunk(4)
    tau = torch.tanh(f * c + i * g)
    by_h = (g * i * (1 - i))[:, :, None] * R_i
    by_h.addcmul_((c * f * (1 - f))[:, :, None], R_f).addcmul_((i * (1 - g * g))[:, :, None], R_g)
    steep = o * (1 - tau * tau)
    found = h.new_zeros(len(h), 2 * n, 2 * n)
    found[:, n:, :n] = by_h
    found[:, n:, n:].diagonal(dim1=1, dim2=2).copy_(f)
    torch.mul(by_h, steep[:, :, None], out=by_h).addcmul_((tau * o * (1 - o))[:, :, None], R_o)
    found[:, :n, :n] = by_h
    found[:, :n, n:].diagonal(dim1=1, dim2=2).copy_(steep * f)
    return found
