"""What the steps of a recurrence read, side by side: the state before each, and the rows that come in.

Side by side they have one product with the changes of both their matrices, for all times at once, and one with what a
step sends back to both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .dense import image, summed
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


def images(reads: Tensor, n: int, by_state: Tensor | None, by_given: Tensor | None, m: int) -> Tensor | None:
    """``reads`` times changes of both matrices in k directions; ``None`` where neither changes.

    Args:
        reads: ``(rows, n + p)``.
        n: how many of their columns are the state.
        by_state: change ``(k, m, n)`` of the state's matrix, or none.
        by_given: change ``(k, m or fewer, p)`` of the last rows of the matrix of what comes in, or none.
        m: rows of the state's matrix.

    Returns:
        ``(rows, k, m)``.

    Example:
        >>> images(torch.ones(3, 5), 2, torch.ones(1, 2, 2), torch.ones(1, 1, 3), 2)[0].tolist()
        [[2.0, 5.0]]
    """
    if by_state is not None and by_given is not None and by_given.shape[1] == m:
        return _image(reads, torch.cat([by_state, by_given], 2))
    if by_state is not None:
        found = _image(reads[:, :n], by_state)
    elif by_given is not None:
        found = reads.new_zeros(len(reads), len(by_given), m)
    else:
        return None
    for j, change in enumerate(() if by_given is None else by_given):
        found[:, j, -len(change) :].addmm_(reads[:, n:], change.mT)
    return found


def _image(reads: Tensor, turn: Tensor) -> Tensor:
    return image(reads, turn.flatten(0, 1)).unflatten(1, turn.shape[:2])


def sums(reads_t: Tensor, n: int, e: Tensor, m: int, wanted: tuple[bool, bool]) -> tuple[Tensor | None, Tensor | None]:
    """``sum_r e_r read_r^T`` in k directions, for the columns of the state and for those of what comes in.

    Args:
        reads_t: the reads transposed, ``(n + p, rows)``.
        n: how many of them are the state.
        e: ``(rows, k, width)``.
        m: of how many of its last columns the sums with what comes in are asked for.
        wanted: which of both are asked for; the others are none.

    Returns:
        ``(k, width, n)`` and ``(k, m, p)``.

    Example:
        >>> by_state, by_given = sums(torch.eye(2), 1, torch.tensor([[[3.0, 4.0]], [[5.0, 6.0]]]), 1, (True, True))
        >>> by_state.tolist(), by_given.tolist()
        ([[[3.0], [4.0]]], [[[6.0]]])
    """
    if all(wanted) and m == e.shape[2]:
        found = _sum(reads_t, e)
        return found[..., :n], found[..., n:]
    return _sum(reads_t[:n], e) if wanted[0] else None, _sum(reads_t[n:], e[..., -m:]) if wanted[1] else None


def _sum(reads_t: Tensor, e: Tensor) -> Tensor:
    return summed(reads_t, e.flatten(1)).unflatten(1, e.shape[1:]).movedim(0, 2)
