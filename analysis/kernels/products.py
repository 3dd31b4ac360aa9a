"""Products over all times of a recurrence at once, and what its hand-written derivatives share."""

from __future__ import annotations

import torch
from torch import Tensor


def rows(t: Tensor) -> Tensor:
    """All times and sequences as rows: ``(time, batch, n)`` to ``(time batch, n)``, a view also of some columns."""
    return t.flatten(0, 1)


def earlier_product(later: Tensor, states: Tensor, first: Tensor) -> Tensor:
    """``sum_t later_t^T states_{t-1}``, with ``first`` before all states.

    Args:
        later: ``(time, batch, k)``.
        states: ``(time, batch, n)``.
        first: ``(batch, n)``.

    Returns:
        ``(k, n)``.

    Example:
        >>> earlier_product(torch.ones(2, 1, 1), torch.tensor([[[3.0]], [[9.0]]]), torch.tensor([[4.0]])).item()
        7.0
    """
    return (later[0].mT @ first).addmm_(rows(later[1:]).mT, rows(states[:-1]))


def times_earlier(states: Tensor, first: Tensor, matrix: Tensor) -> Tensor:
    """``states_{t-1} matrix`` for all t, with ``first`` before all states.

    Args:
        states: ``(time, batch, n)``.
        first: ``(batch, n)``.
        matrix: ``(n, k)``.

    Returns:
        ``(time, batch, k)``.

    Example:
        >>> times_earlier(torch.tensor([[[3.0]], [[9.0]]]), torch.tensor([[4.0]]), torch.eye(1)).flatten()
        tensor([4., 3.])
    """
    out = states.new_empty(len(states), len(first), matrix.shape[1])
    torch.mm(first, matrix, out=out[0])
    torch.mm(rows(states[:-1]), matrix, out=rows(out[1:]))
    return out


def no_third(first_order: bool) -> None:
    """Refuse to differentiate a second derivative.

    Raises:
        NotImplementedError: where a graph of it is asked for, or it is one.
    """
    if torch.is_grad_enabled() or not first_order:
        raise NotImplementedError("these kernels are differentiable twice: a third derivative is not written out")
