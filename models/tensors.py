"""Checks of sequences, conversions of weights to arrays, and the tensors inside a state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stability.errors import ConfigurationError, DimensionError


def kind_of(value: Any) -> Any:
    """Return the dtype of a tensor or the type of another value, for errors."""
    return value.dtype if isinstance(value, Tensor) else type(value).__name__


def to_numpy(tensor: Tensor) -> Any:
    """Return a float64 numpy copy of a tensor; float32 and half precision convert exactly."""
    return tensor.detach().to("cpu", torch.float64).numpy().copy()


def state_leaves(state: Any) -> list[Any]:
    """Return the tensors of a state, in order."""
    return [leaf for part in state for leaf in state_leaves(part)] if isinstance(state, (tuple, list)) else [state]


def check_sequence(x: Any, input_size: int, axes: str = "(batch, time, input)") -> Tensor:
    """Check a sequence against the layer; return ``x``.

    Raises:
        ConfigurationError: not a floating-point tensor.
        DimensionError: wrong shape, empty batch or empty sequence.
    """
    expected = (*axes.strip("()").split(", ")[:-1], input_size)
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise ConfigurationError(f"x must be a floating-point tensor {axes}, got {kind_of(x)}")
    if x.dim() != len(expected) or x.shape[-1] != input_size or 0 in x.shape:
        raise DimensionError("x", expected, tuple(x.shape), "batch and time must not be empty")
    return x
