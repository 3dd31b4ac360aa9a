"""Weights of dynamically quantised recurrent modules, as exact float64 numbers.

A quantised weight is ``scale (q - zero point)`` with an 8-bit ``q``; the product of a scale of 24 bits and such an
integer is exact in float64, which torch's own ``dequantize`` (float32) is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from stability.errors import UnsupportedError

__all__ = ["QuantizedWeights", "is_quantized", "quantized_weights"]

_KINDS = {"LSTM": "lstm", "GRU": "gru", "LSTMCell": "lstm", "GRUCell": "gru", "RNNCell": "rnn"}
_MODULES = ("torch.ao.nn.quantized.dynamic", "torch.nn.quantized.dynamic")


@dataclass(frozen=True, eq=False)
class QuantizedWeights:
    """What a quantised module holds.

    Attributes:
        kind: ``rnn``, ``lstm`` or ``gru``.
        layers: ``(w_ih, w_hh, b_ih, b_hh)``, level by level and direction by direction.
        directions: 1 or 2.
        activation: of an RNN cell.
        dtype: what the weights were.
    """

    kind: str
    layers: list[tuple[Any, Any, Any, Any]]
    directions: int
    activation: str
    dtype: str


def is_quantized(module: Any) -> bool:
    """Whether it is one of torch's dynamically quantised recurrent modules."""
    cls = type(module)
    return cls.__module__.startswith(_MODULES) and cls.__name__ in _KINDS


def quantized_weights(module: Any) -> QuantizedWeights:
    """Read the weights.

    Raises:
        UnsupportedError: quantised in a way other than per tensor or per channel.
    """
    kind = _KINDS[type(module).__name__]
    weights, biases = module.get_weight(), module.get_bias()
    dtypes = sorted({str(w.dtype).removeprefix("torch.") for w in weights.values()})
    if hasattr(module, "num_layers"):
        directions = 2 if module.bidirectional else 1
        suffixes = [f"_l{k}{r}" for k in range(module.num_layers) for r in ("", "_reverse")[:directions]]
    else:
        directions, suffixes = 1, [""]
    layers = []
    for suffix in suffixes:
        pair = [_exact(weights[f"{name}{suffix}"]) for name in ("weight_ih", "weight_hh")]
        rest = [biases.get(f"{name}{suffix}") for name in ("bias_ih", "bias_hh")]
        layers.append((*pair, *(None if b is None else b.detach().double().numpy() for b in rest)))
    return QuantizedWeights(kind, layers, directions, getattr(module, "nonlinearity", "tanh"), ", ".join(dtypes))


def _exact(weight: torch.Tensor) -> np.ndarray:
    if not weight.is_quantized:
        return weight.detach().double().numpy()
    codes = weight.int_repr().numpy().astype(np.float64)
    if weight.qscheme() == torch.per_tensor_affine:
        return float(np.float32(weight.q_scale())) * (codes - weight.q_zero_point())
    if weight.qscheme() == torch.per_channel_affine:
        shape = [-1 if axis == weight.q_per_channel_axis() else 1 for axis in range(codes.ndim)]
        scales = weight.q_per_channel_scales().double().numpy().reshape(shape)
        return scales * (codes - weight.q_per_channel_zero_points().double().numpy().reshape(shape))
    raise UnsupportedError(f"a weight quantised as {weight.qscheme()} cannot be converted exactly")
