"""Weights of dynamically quantized recurrent modules, as exact float64 numbers.

A quantized weight is ``scale (q - zero point)`` with an 8-bit ``q``; the product of a scale of 24 bits and such an
integer is exact in float64, which torch's own ``dequantize`` (float32) is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from stability.errors import UnsupportedError
from stability.kernel.systems.execution import FORMATS, ExecutionModel
from stability.search.as_it_runs import register_execution

from .weights import KINDS, RecurrentWeights, module_weights

_MODULES = ("torch.ao.nn.quantized.dynamic", "torch.nn.quantized.dynamic")


def is_quantized(module: Any) -> bool:
    """Return True for torch's dynamically quantized recurrent modules."""
    cls = type(module)
    return cls.__module__.startswith(_MODULES) and cls.__name__ in KINDS


def execution_of(module: Any) -> ExecutionModel | None:
    """Return the arithmetic in which a module runs: the format of its parameters, or that of dynamic quantization.

    Dynamic quantization to int8 rounds states and inputs to 7 bits over their range before each product
    (``reduce_range``), multiplies integers exactly and scales in float32.
    """
    if not isinstance(module, nn.Module):
        return None
    parts = [part for part in module.modules() if is_quantized(part)]
    if parts:
        stored: list[dict[str, torch.Tensor]] = [part.get_weight() for part in parts]  # type: ignore[operator]
        whole = any(weight.is_quantized for weights in stored for weight in weights.values())
        return ExecutionModel("float32", factors="int7" if whole else "")
    formats = {str(p.dtype).removeprefix("torch.") for p in module.parameters() if p.is_floating_point()} & set(FORMATS)
    return ExecutionModel(max(formats, key=lambda name: FORMATS[name].unit)) if formats else None


def refined(model: ExecutionModel, module: Any) -> ExecutionModel:
    """Return a model of arithmetic with the error of a module's computed weights, and the size of its two biases.

    Raises:
        UnsupportedError: computed weights without a correct digit.
    """
    measure = getattr(module, "weight_error", None)
    error = float(measure(model.format)) if callable(measure) else 0.0  # type: ignore[arg-type]
    if not error < 0.1:
        raise UnsupportedError(
            f"the matrices that {type(module).__name__} computes from its parameters are off by {error:.2g} of their "
            f"largest entry in {model.format}: use float32 operations, and {model.format} for the state only"
        )
    biases = [
        float(bias.detach().abs().max())
        for part in (module.modules() if isinstance(module, nn.Module) else ())
        if isinstance(part, (nn.RNN, nn.RNNCell))
        for name, bias in part.named_parameters(recurse=False)
        if name.startswith("bias") and bias.numel()
    ]
    return replace(model, weight_error=max(model.weight_error, error), biases=max(model.biases, *biases, 0.0))


register_execution(execution_of, refined)


def quantized_weights(module: Any) -> RecurrentWeights:
    """Read the weights as exact float64 numbers.

    Raises:
        UnsupportedError: quantized in a way other than per tensor or per channel.
    """
    weights, biases = module.get_weight(), module.get_bias()
    stored = ", ".join(sorted({str(w.dtype).removeprefix("torch.") for w in weights.values()}))
    name = f"{type(module).__name__} ({stored} weights dequantised exactly; rounding of activations not modelled)"

    def array(key: str) -> np.ndarray | None:
        if key in weights:
            return _exact(weights[key])
        return None if biases.get(key) is None else biases[key].detach().double().numpy()

    return module_weights(module, KINDS[type(module).__name__], name, array, lambda _: name)


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
