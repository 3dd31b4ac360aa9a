"""Layouts of gated DeltaNet and of Kimi Delta Attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.errors import FileFormatError, UnsupportedError
from stability.systems import Affine, DeltaInjection, SoftplusGate

from .layer_weights import InputSet, LayerWeights, Signal

Parts = tuple[Any, Any]


def qwen3_next(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of Qwen3-Next: rows are [q | k | v | z] and [b | a] for every key head."""
    log_rate = layer.array("A_log", None)
    heads, key_heads, key_size = _sizes(layer, len(log_rate))
    weight = layer.array("in_proj_qkvz.weight", None, u.size)
    gates = layer.array("in_proj_ba.weight", 2 * heads, u.size).reshape(key_heads, 2, -1, u.size)
    share = (len(weight) // key_heads - 2 * key_size) // 2  # rows of v of a key head
    if share < 1 or len(weight) != key_heads * 2 * (key_size + share):
        raise FileFormatError(f"{layer.prefix}: the rows of in_proj_qkvz do not fit to {key_heads} key heads")
    rows = weight.reshape(key_heads, -1, u.size)[:, 2 * key_size : 2 * key_size + share]
    values = Affine(rows.reshape(-1, u.size), u)
    beta, decay = (gates[:, i].reshape(-1, u.size) for i in range(2))
    return _delta_rule(layer, u, values, decay, Affine(beta, u), key_size)


def qwen3_5(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of Qwen3.5: rows are [q | k | v] of all heads."""
    heads, key_heads, key_size = _sizes(layer, len(layer.array("A_log", None)))
    values = layer.affine("in_proj_qkv", u, slice(2 * key_heads * key_size, None))
    decay = layer.array("in_proj_a.weight", heads, u.size)
    return _delta_rule(layer, u, values, decay, layer.affine("in_proj_b", u), key_size)


def gated_deltanet(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of gated DeltaNet in the layouts of OLMo-Hybrid and flash-linear-attention."""
    scale = 2.0 if layer.flag("linear_allow_neg_eigval", "allow_neg_eigval") else 1.0
    heads = len(layer.array("A_log", None))
    key_heads = layer.count("linear_num_key_heads", "num_heads", default=heads)
    key_size = len(layer.array("k_proj.weight", None, u.size)) // key_heads
    decay = layer.array("a_proj.weight", heads, u.size)
    return _delta_rule(layer, u, layer.affine("v_proj", u), decay, layer.affine("b_proj", u), key_size, scale)


def _sizes(layer: LayerWeights, heads: int) -> tuple[int, int, int]:
    """Return the numbers of heads, of key heads, and the entries of a key."""
    key_heads, key_size = layer.count("linear_num_key_heads"), layer.count("linear_key_head_dim")
    if layer.count("linear_num_value_heads", default=heads) != heads or heads % key_heads:
        raise FileFormatError(f"{layer.prefix}: {heads} decays do not fit to the heads in config.json")
    return heads, key_heads, key_size


def _delta_rule(
    layer: LayerWeights, u: InputSet, values: Signal, decay: np.ndarray, rate: Signal, key_size: int, scale: float = 1.0
) -> Parts:
    log_rate = layer.vector("A_log")
    gate = SoftplusGate(log_rate, Affine(decay, u, layer.vector("dt_bias", len(log_rate))))
    return gate, DeltaInjection(_convolved(layer, values), rate, key_size, scale)


def _convolved(layer: LayerWeights, values: Signal) -> Signal:
    """Return values behind their convolution: the last channels of that for q, k and v.

    Three separate convolutions are joined first, since transformers splits one into thirds whatever the sizes are.

    Raises:
        UnsupportedError: no convolution.
    """
    names = [f"{x}_conv1d" for x in "qkv"] if layer.has("v_conv1d.weight") else ["conv1d"]
    if not layer.has(f"{names[0]}.weight"):
        raise UnsupportedError(f"{layer.prefix}: a delta rule without convolutions is not read")
    return layer.activated(names, values, slice(-values.size, None))


def kimi_delta(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of Kimi Delta Attention: a decay for every key channel, from a product of two maps."""
    if layer.flag("safe_gate", default=False) or layer.setting("lower_bound", "gate_lower_bound", default=None):
        raise UnsupportedError(f"{layer.prefix}: the gate with a lower bound is another function and is not read")
    heads = len(layer.vector("A_log"))
    names = ("f_a_proj", "f_b_proj") if layer.has("f_a_proj.weight") else ("f_proj.0", "f_proj.1")
    inner = layer.affine(names[0], u)
    outer = layer.affine(names[1], inner)
    key_size = outer.size // heads
    if layer.count("num_v_heads", default=heads) != heads or layer.has(f"{names[1]}.bias"):
        raise UnsupportedError(f"{layer.prefix}: more value heads than key heads, or a second bias, are not read")
    signal = Affine(outer.weight, inner, layer.vector("dt_bias", outer.size))
    gate = SoftplusGate(np.repeat(layer.vector("A_log"), key_size), signal)
    scale = 2.0 if layer.flag("allow_neg_eigval", default=False) else 1.0
    values = _convolved(layer, layer.affine("v_proj", u))
    return gate, DeltaInjection(values, layer.affine("b_proj", u), key_size, scale)
