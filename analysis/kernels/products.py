"""Products over all times of a recurrence at once, and what its hand-written derivatives share."""

from __future__ import annotations

from typing import NamedTuple

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


class Source(NamedTuple):
    """What drives a tangent: a change of the matrix, and of what is added to its products.

    Attributes:
        states: ``(time, batch, n)``.
        first: ``(batch, n)``, before them.
        turned: ``(k, n)``, the change of the matrix; or none.
        pulse: ``(time, batch, k)``; or none.
    """

    states: Tensor
    first: Tensor
    turned: Tensor | None
    pulse: Tensor | None

    def into(self, t: int, out: Tensor) -> None:
        """Write ``turned h_{t-1} + pulse_t`` for rows: a step at a time, while it is at hand (memory is the limit)."""
        if self.turned is not None:
            torch.mm(self.states[t - 1] if t else self.first, self.turned.mT, out=out)
            if self.pulse is not None:
                out.add_(self.pulse[t])
        elif self.pulse is not None:
            out.copy_(self.pulse[t])
        else:
            out.zero_()


def no_third(first_order: bool) -> None:
    """Refuse to differentiate a second derivative.

    Raises:
        NotImplementedError: where a graph of it is asked for, or it is one.
    """
    if torch.is_grad_enabled() or not first_order:
        raise NotImplementedError("these kernels are differentiable twice: a third derivative is not written out")
