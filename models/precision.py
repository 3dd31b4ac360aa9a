"""Precision of factorizations and parametrizations: full under autocast, and the error of computed weights."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from stability.errors import ConfigurationError
from stability.kernel.systems.execution import FORMATS

from .tensors import state_leaves

P = ParamSpec("P")
R = TypeVar("R")


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run without autocast, which would make half-precision products that no solver takes.

    Orthogonality to rounding is worth nothing in bfloat16; the product with the states may still be lowered.

    Example:
        >>> @full_precision
        ... def square(A):
        ...     return A @ A
        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     square(torch.eye(2)).dtype
        torch.float32
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        device = next((a.device.type for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
        if device is None or not torch.is_autocast_enabled(device):
            return function(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(*args, **kwargs)

    return run


def computed_error(layer: Any, format: str) -> float:
    """Bound the error of the matrices that a layer computes from its parameters in a format.

    Args:
        layer: a ``RecurrentLayer``.
        format: name of a floating-point format, such as ``float32``; narrower ones round what float32 computes.

    Returns:
        Largest difference from the matrices in float64, relative to the largest entry of each, with a factor of two for
        other libraries; zero for stored matrices. A narrower format adds the error of a layer that is cast to it.
    """
    stored = {t.untyped_storage().data_ptr() for t in (*layer.parameters(), *layer.buffers())}
    if all(m.untyped_storage().data_ptr() in stored for m in _run_weights(layer)):
        return 0.0
    wide = format == "float64"
    unit = FORMATS["float64" if wide else "float32"].unit
    with torch.no_grad():
        exact = _run_weights(copy.deepcopy(layer).double())

        def error(dtype: torch.dtype) -> float:
            found = _run_weights(copy.deepcopy(layer).to(dtype))
            errors = [(a.to(b.dtype) - b).abs().max() / b.abs().max().clamp(min=1e-300) for a, b in zip(found, exact)]
            return float(max(errors))

        narrow, dtype = FORMATS[format].unit if FORMATS[format].unit > unit else 0.0, getattr(torch, format, None)
        if narrow and dtype is not None:  # a cast rounds the parameters, from which the matrices are computed
            with contextlib.suppress(RuntimeError, ConfigurationError):  # torch lacks functions in this format
                narrow = max(narrow, error(dtype))
        return 2.0 * max(error(torch.float64 if wide else torch.float32), 2.0 * unit) + narrow


def _run_weights(layer: Any) -> list[Tensor]:
    """Return the matrices of a step, complex ones in real form."""
    leaves = [leaf for leaf in state_leaves(layer.prepare()) if isinstance(leaf, Tensor)]
    return [torch.view_as_real(leaf) if leaf.is_complex() else leaf for leaf in leaves]
