"""What the steps of a recurrence read, side by side: the state before each, and the rows that come in.

Side by side they have one product with the changes of both their matrices, for all times at once, and one with what a
step sends back to both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .prefixes import Prefixes


def reads_of(tree: Prefixes, states: Tensor, h0: Tensor | None, given: Tensor | None) -> Tensor:
    """``(h_{t-1}, x_t)`` by rows.

    Args:
        tree: rows of each time.
        states: ``(rows, n)``.
        h0: what is before them; ``None`` for zero.
        given: ``x``, ``(rows, p)``, or none.

    Returns:
        ``(rows, n + p)``.

    Example:
        >>> states, x = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[4.0], [5.0], [6.0]])
        >>> reads_of(Prefixes((1, 2), (None, torch.tensor([0, 0]))), states, None, x).tolist()
        [[0.0, 4.0], [1.0, 5.0], [1.0, 6.0]]
    """
    n = states.shape[1]
    out = states.new_empty(len(states), n + (0 if given is None else given.shape[1]))
    before = [h0, *tree.cut(states)]
    for t, (part, h) in enumerate(zip(tree.cut(out[:, :n]), before)):
        part.zero_() if h is None else part.copy_(tree.grown(t, h))
    if given is not None:
        out[:, n:].copy_(given)
    return out


def images(reads: Tensor, n: int, by_state: Tensor | None, by_given: Tensor | None) -> Tensor | None:
    """``reads`` times changes of both matrices in k directions; ``None`` where neither changes.

    Args:
        reads: ``(rows, n + p)``.
        n: how many of their columns are the state.
        by_state: change ``(k, m, n)`` of the state's matrix, or none.
        by_given: change ``(k, m, p)`` of the matrix of what comes in, or none.

    Returns:
        ``(rows, k, m)``.

    Example:
        >>> images(torch.ones(3, 5), 2, torch.ones(1, 4, 2), torch.ones(1, 4, 3))[0].tolist()
        [[5.0, 5.0, 5.0, 5.0]]
    """
    if by_state is not None and by_given is not None:
        turn = torch.cat([by_state, by_given], 2)
    elif by_state is not None:
        reads, turn = reads[:, :n], by_state
    elif by_given is not None:
        reads, turn = reads[:, n:], by_given
    else:
        return None
    return (reads @ turn.flatten(0, 1).mT).unflatten(1, turn.shape[:2])


def split(sums: Tensor | None, n: int, wanted: tuple[bool, bool]) -> tuple[Tensor | None, Tensor | None]:
    """Sums ``(k, m, n + p)`` over the columns of reads, or of the part that is wanted, as those of both matrices."""
    if sums is None or wanted != (True, True):
        return (sums, None) if wanted[0] else (None, sums)
    return sums[..., :n], sums[..., n:]


def part_of(reads: Tensor, n: int, wanted: tuple[bool, bool]) -> Tensor | None:
    """The columns of ``reads`` whose matrices' gradients are wanted; ``None``: of none."""
    if not any(wanted):
        return None
    return reads[:, 0 if wanted[0] else n : None if wanted[1] else n]
