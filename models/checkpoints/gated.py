"""Layouts of gated recurrences with diagonal or outer-product states: RG-LRU, minGRU, minLSTM, mLSTM, GLA, HGRN."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.errors import UnsupportedError
from stability.systems import (
    Affine,
    ConvexInjection,
    Convolution,
    OuterInjection,
    RatioGate,
    RGLRUGate,
    RootInjection,
    SigmoidGate,
)

from .layer_weights import MOST_ENTRIES, InputSet, LayerWeights, Signal

Parts = tuple[Any, Any]


def rg_lru(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of the RG-LRU in the layouts of transformers and of recurrentgemma."""
    linear = layer.affine("linear_x", u)
    if layer.has("conv_1d.w"):  # recurrentgemma: (taps, width)
        kernel = layer.array("conv_1d.w", None, linear.size)[::-1]
        values = Convolution(kernel, linear, layer.array("conv_1d.b", linear.size))
        names = "rg_lru.a_param", "rg_lru.a_gate.w", "rg_lru.a_gate.b", "rg_lru.input_gate.w", "rg_lru.input_gate.b"
    else:
        values = layer.convolution("conv_1d", linear)
        names = (
            "rg_lru.recurrent_param",
            *(f"rg_lru.{gate}_gate_{end}" for gate in ("recurrent", "input") for end in ("weight", "bias")),
        )
    parameter = layer.vector(names[0], values.size)
    decay, insert = (_block_diagonal(layer, names[i], names[i + 1], values) for i in (1, 3))
    return RGLRUGate(decay, parameter), RootInjection(values, insert)


def _block_diagonal(layer: LayerWeights, weight: str, bias: str, source: Signal) -> Affine:
    """Return the linear map of blocks ``W`` that are applied as ``x_block @ W``."""
    if source.size**2 > MOST_ENTRIES:
        raise UnsupportedError(f"{layer.prefix}: a width of {source.size} is too large")
    blocks = layer.array(weight, None, None, None)
    count, width, _ = blocks.shape
    if blocks.shape[1:] != (width, width) or count * width != source.size:
        layer.array(weight, count, source.size // count, source.size // count)  # raises the error on its shape
    matrix = np.zeros((count, width, count, width))
    matrix[np.arange(count), :, np.arange(count)] = blocks.transpose(0, 2, 1)
    return Affine(matrix.reshape(source.size, source.size), source, layer.vector(bias, source.size))


def min_gru(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of minGRU: rows are [value | z], the decay is ``1 - sigmoid(z)``."""
    weight = layer.array("to_hidden_and_gate.weight", None, u.size)
    bias = layer.bias("to_hidden_and_gate.bias", len(weight))
    half = len(weight) // 2
    return (
        SigmoidGate(Affine(-weight[half:], u, -bias[half:])),
        ConvexInjection(Affine(weight[:half], u, bias[:half]), "min_gru"),
    )


def min_lstm(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of minLSTM: rows are [value | forget | input]."""
    third = len(layer.array("to_hidden_and_f_i_gate.weight", None, u.size)) // 3
    value, forget, insert = (
        layer.affine("to_hidden_and_f_i_gate", u, slice(i * third, (i + 1) * third)) for i in range(3)
    )
    return RatioGate(forget, insert), ConvexInjection(value, "min_gru")


def mlstm(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of mLSTM, for states without the running rescaling by the largest exponent."""
    cap = layer.number("gate_soft_cap")
    forget = layer.affine("fgate_preact", u)
    insert = layer.affine("igate_preact", u)
    injection = OuterInjection(layer.affine("v", u), layer.affine("k", u), forget.size, insert, cap)
    return SigmoidGate(forget, cap=cap), injection


def gla(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of gated linear attention: a decay for every key channel."""
    heads = layer.count("num_heads")
    if layer.count("num_kv_heads", default=heads) != heads or layer.has("k_conv1d.weight"):
        raise UnsupportedError(f"{layer.prefix}: GLA with shared keys or a convolution is not read")
    if any(layer.setting(name, default=None) is not None for name in ("feature_map", "clamp_min")):
        raise UnsupportedError(f"{layer.prefix}: GLA with a feature map or a clamped gate is not read")
    pre_activation = layer.affine("gk_proj.1", layer.affine("gk_proj.0", u))
    gate = SigmoidGate(pre_activation, root=layer.number("gate_logit_normalizer", default=16))
    return gate, OuterInjection(layer.affine("v_proj", u), layer.affine("k_proj", u), heads)


def hgrn(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of HGRN; its floor is the cumulative softmax of the model's lower bounds."""
    if layer.has("i_conv1d.weight"):
        raise UnsupportedError(f"{layer.prefix}: HGRN with a convolution is not read")
    gate = layer.affine("f_proj", u)
    name = next((key for key in layer.tensors if key.endswith("lower_bounds")), None)
    floor = None
    if name is not None and layer.index:
        bounds = LayerWeights(layer.tensors, layer.config).array(name, None, gate.size)
        share = np.exp(bounds - bounds.max(axis=0))
        floor = (share / share.sum(axis=0))[1 : layer.index + 1].sum(axis=0)
    return SigmoidGate(gate, floor), ConvexInjection(layer.affine("i_proj", u), "silu")
