"""Products of rows with matrices, by the library of torch's that is the faster one on this processor.

Products of float32 matrices go to MKL, which leaves half the width of AMD's processors unused. oneDNN, to which
convolutions go, writes its code for the processor that it finds, and has the same product; on Intel's, MKL's calls are
the shorter ones. Equal to rounding.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_LEAST = 2**20
"""Multiplications from which oneDNN is asked: its call is the longer one."""


def _maker() -> str:
    """What the system says of the processor."""
    try:
        return Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:  # another system, or one that shows it to nobody
        return platform.processor()


@cache
def _one_dnn() -> Callable[..., Tensor] | None:
    """The product ``x W^T`` of oneDNN, on processors of AMD's, if torch has it and it is that."""
    if "AuthenticAMD" not in _maker():
        return None
    x = torch.arange(6.0).reshape(2, 3)
    try:
        linear: Any = torch.ops.mkldnn._linear_pointwise.default
        same = torch.equal(linear(x, x.mT.contiguous().mT, None, "none", [], ""), x @ x.mT)  # integers: exact
    except (AttributeError, RuntimeError, TypeError):
        return None
    return linear if same else None


def _by_one_dnn(x: Tensor, W: Tensor) -> Tensor | None:
    """``x W^T``; ``None`` where torch's own is to make it."""
    if len(x) * W.numel() < _LEAST or x.dtype != torch.float32 or x.device.type != "cpu":
        return None
    linear = None if torch.is_grad_enabled() and (x.requires_grad or W.requires_grad) else _one_dnn()
    if linear is None:
        return None
    if not W.is_contiguous():  # nor its transpose: there oneDNN falls back to a loop, a thousand times slower
        W = W.mT.contiguous().mT
    return linear(x.contiguous(), W, None, "none", [], "")


def image(x: Tensor, W: Tensor) -> Tensor:
    """``x W^T``, without a graph.

    Args:
        x: ``(rows, n)``.
        W: ``(m, n)``.

    Example:
        >>> image(torch.ones(2, 3), torch.ones(1, 3)).tolist()
        [[3.0], [3.0]]
    """
    found = _by_one_dnn(x, W)
    return x @ W.mT if found is None else found


def add_image(out: Tensor, x: Tensor, W_t: Tensor, more: Tensor | None) -> None:
    """Write ``x W^T + more`` into ``out``, which ``more`` may be.

    Args:
        out: ``(rows, m)``.
        x: ``(rows, n)``.
        W_t: ``(n, m)``.
        more: ``(rows, m)``, or ``(m,)`` for all rows, or none for zero.

    Example:
        >>> out = torch.ones(2, 1)
        >>> add_image(out, torch.ones(2, 3), torch.ones(3, 1), out)
        >>> out.tolist()
        [[4.0], [4.0]]
    """
    found = _by_one_dnn(x, W_t.mT)
    if found is not None:
        out.copy_(found) if more is None else torch.add(more, found, out=out)
    elif more is None:
        torch.mm(x, W_t, out=out)
    else:
        torch.addmm(more, x, W_t, out=out)


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
