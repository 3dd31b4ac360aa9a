"""Full precision of factorizations and parametrizations under autocast."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

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
