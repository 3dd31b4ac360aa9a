"""Layouts of RWKV-7: flash-linear-attention, and the files of its author."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from stability.systems import Affine, Convolution, RWKVGate, RWKVInjection, Tanh

from .layer_weights import InputSet, LayerWeights, Signal, norm_ball

SHIFTS = "rwkvag"
"""Order of the mixing weights in the files of flash-linear-attention that store them in one tensor."""
OWN_NORM = ("ln1",)
"""Name of the norm in the author's files."""


def rwkv7(layer: LayerWeights, u: InputSet) -> tuple[Any, Any]:
    """Return gate and injection of RWKV-7; layers behind the first mix its values into theirs."""
    first = None
    if layer.index:
        prefix = re.sub(rf"(^|[._]){layer.index}\.", r"\g<1>0.", layer.prefix, count=1)
        lowest = LayerWeights(layer.tensors, layer.config, prefix)
        first = _projected(lowest, "v", norm_ball(lowest, 0, ("attn_norm", *OWN_NORM))[0])
    decay, rate = (_low_rank(layer, name, u, is_bounded=name == "w") for name in "wa")
    vectors = (layer.vector(name, rate.size) for name in ("k_k", "k_a"))
    heads = len(layer.array("r_k", None, None))
    values, keys = _projected(layer, "v", u), _projected(layer, "k", u)
    return RWKVGate(decay), RWKVInjection(values, keys, rate, *vectors, heads, first)


def _mixed(layer: LayerWeights, name: str, u: InputSet) -> Convolution:
    """Return ``u_t + x * (u_{t-1} - u_t)``."""
    if layer.has("x_x"):
        share = layer.array("x_x", len(SHIFTS), u.size)[SHIFTS.index(name)]
    else:
        share = layer.vector(f"x_{name}", u.size)
    return Convolution(np.stack([1.0 - share, share]), u)


def _projected(layer: LayerWeights, name: str, u: InputSet) -> Affine:
    full = {"k": "key", "v": "value"}[name]
    return layer.affine(full if layer.has(f"{full}.weight") else f"{name}_proj", _mixed(layer, name, u))


def _low_rank(layer: LayerWeights, name: str, u: InputSet, *, is_bounded: bool) -> Affine:
    """Return a product of two maps with a bias, with a hyperbolic tangent between them where it is bounded."""
    if layer.has(f"{name}0"):
        inner, outer = (layer.array(f"{name}{i}", None, None).T for i in (1, 2))
        bias = layer.vector(f"{name}0", len(outer))
    else:
        inner, outer = (layer.array(f"{name}_lora.lora.{i}.weight", None, None) for i in (0, 2))
        bias = layer.bias(f"{name}_lora.lora.2.bias", len(outer))
    middle: Signal = Affine(inner, _mixed(layer, name, u))
    return Affine(outer, Tanh(middle) if is_bounded else middle, bias)
