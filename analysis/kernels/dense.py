"""Products of rows with matrices, by the faster of the two libraries that torch brings.

Products of float32 matrices go to MKL, which leaves half the width of a processor unused that is not its maker's.
oneDNN, to which convolutions go, writes its code for the processor that it finds, and has the same product. Equal to
rounding; where torch was built without it, or for other numbers, MKL makes all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

_LEAST = 2**20
"""Multiplications from which oneDNN is asked: its call is the longer one."""


@cache
def _one_dnn() -> Callable[..., Tensor] | None:
    """The product ``x W^T`` of oneDNN, if torch has it and it is that."""
    x = torch.arange(6.0).reshape(2, 3)
    try:
        linear: Any = torch.ops.mkldnn._linear_pointwise.default
        same = torch.equal(linear(x, x.mT.contiguous().mT, None, "none", [], ""), x @ x.mT)  # integers: exact
    except (AttributeError, RuntimeError, TypeError):
        return None
    return linear if same else None


def image(x: Tensor, W: Tensor) -> Tensor:
    """``x W^T``, without a graph.

    Args:
        x: ``(rows, n)``.
        W: ``(m, n)``.

    Example:
        >>> image(torch.ones(2, 3), torch.ones(1, 3)).tolist()
        [[3.0], [3.0]]
    """
    few = len(x) * W.numel() < _LEAST or x.dtype != torch.float32 or x.device.type != "cpu"
    linear = None if few or torch.is_grad_enabled() else _one_dnn()
    if linear is None:
        return x @ W.mT
    if not W.is_contiguous():  # nor its transpose: there oneDNN falls back to a loop, a thousand times slower
        W = W.mT.contiguous().mT
    return linear(x.contiguous(), W, None, "none", [], "")


def summed(x_t: Tensor, e: Tensor) -> Tensor:
    """``sum_r x_r^T e_r`` over rows.

    Args:
        x_t: ``(n, rows)``: what is the same for many products is transposed once.
        e: ``(rows, m)``.

    Returns:
        ``(n, m)``.

    Example:
        >>> summed(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 0.0], [1.0, 1.0]])).tolist()
        [[5.0, 2.0]]
    """
    return image(x_t, e.mT)
