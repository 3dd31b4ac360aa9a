"""Products over all times of a recurrence at once, and what its hand-written derivatives share."""

from __future__ import annotations

import torch
from torch import Tensor


def rows(t: Tensor) -> Tensor:
    """All times and sequences as rows: ``(time, batch, n)`` to ``(time batch, n)``, a view also of some columns."""
    return t.flatten(0, 1)


def image_of(h: Tensor | None, turn: Tensor | None, p: Tensor | None, M_t: Tensor, room: Tensor) -> Tensor | None:
    """``h turn + p M_t`` for rows, written into ``room``; ``None`` for zero, where a factor of each is none."""
    parts = [(a, b) for a, b in ((h, turn), (p, M_t)) if a is not None and b is not None]
    if not parts:
        return None
    out = room[: len(parts[0][0])]
    torch.mm(*parts[0], out=out)
    for a, b in parts[1:]:
        out.addmm_(a, b)
    return out


def no_third(first_order: bool) -> None:
    """Refuse to differentiate a second derivative.

    Raises:
        NotImplementedError: where a graph of it is asked for, or it is one.
    """
    if torch.is_grad_enabled() or not first_order:
        raise NotImplementedError("these kernels are differentiable twice: a third derivative is not written out")
