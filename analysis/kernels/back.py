r"""A step of :math:`\phi(W h + d)` with a linear part, and the recurrence of its gradient backward in time.

The formulas, and what the letters mean, stand in ``lure.py``. What is multiplied is multiplied while it is at hand:
only the first way back, which products differentiate, is kept for all times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stability.systems.activations import ACTIVATIONS

from .prefixes import Prefixes

LEAK = ACTIVATIONS["leaky_relu"].slope[0]


@dataclass(frozen=True)
class Map:
    """What a step is besides its matrices.

    Attributes:
        activation: a name in ``stability.models.options.TORCH_ACTIVATIONS``.
        keep: ``kappa``, 0 or 1.
        length: the multiple of the identity that ``B`` is where none is given.
    """

    activation: str
    keep: int = 0
    length: float = 1.0


def slope_of(activation: str, c: Tensor) -> Tensor:
    """``phi'(z)`` as a function of ``c = phi(z)``."""
    if activation == "saturation":
        return (c.abs() < 1.0).to(c.dtype)
    if activation == "deadzone":
        return (c != 0.0).to(c.dtype)
    if activation in ("relu", "leaky_relu"):
        below = torch.full_like(c, 0.0 if activation == "relu" else LEAK)
        return below.masked_fill_(c > 0, 1.0)
    return 1.0 - c * c if activation == "tanh" else c * (1.0 - c)


def bend_of(activation: str, c: Tensor) -> Tensor | None:
    """``phi''(z)`` as a function of ``c = phi(z)``; ``None`` for zero."""
    if ACTIVATIONS[activation].kinks:
        return None
    return slope_of(activation, c).mul_(-2.0 * c if activation == "tanh" else 1.0 - 2.0 * c)


def stepped_by(kind: Map, M: Tensor, m: int) -> tuple[Tensor, bool]:
    """``M`` with ``kappa`` added to ``A``, and whether ``kappa`` is still to be added, for want of an ``A``.

    The sum rounds as much as the addition of states does that it stands for.
    """
    n = M.shape[1]
    if not kind.keep or len(M) == m:
        return M, bool(kind.keep)
    M = M.clone()
    M[:n].diagonal().add_(1.0)
    return M, False


class Sums:
    """``sum_t e_t h_{t-1}^T``, ``sum_t lambda_t c_t^T``, ``sum_t delta_t x_t^T``, while what is multiplied is at hand.

    Args:
        states: ``(rows, n)``.
        h0: what is before them; ``None`` for zero.
        channels: ``(rows, m)``.
        given: ``x``, ``(rows, p)``, where the gradient of the matrix is wanted that it comes in through; or none.
        wanted: ``M`` and ``B``, whose gradients are wanted; or none.
        count: directions.
    """

    def __init__(
        self,
        states: Tensor,
        h0: Tensor | None,
        channels: Tensor,
        given: Tensor | None,
        wanted: Sequence[Tensor | None],
        count: int,
    ) -> None:
        self.states, self.h0, self.channels, self.given = states, h0, channels, given
        self.by_U = None if given is None else given.new_zeros(count, channels.shape[1], given.shape[1])
        self.by_M, self.by_B = (None if part is None else part.new_zeros(count, *part.shape) for part in wanted)

    def add(self, tree: Prefixes, t: int, before: Tensor, l: Tensor, delta: Tensor) -> None:
        """The terms of a time; ``before`` is ``e_t`` on the rows of the time before."""
        if self.by_U is not None and self.given is not None:
            self.by_U.flatten(0, 1).addmm_(delta.flatten(1).mT, tree.at(t, self.given))
        h = tree.at(t - 1, self.states) if t else self.h0
        if self.by_M is not None and h is not None:
            self.by_M.flatten(0, 1).addmm_(before.mT, h)
        if self.by_B is not None:
            self.by_B.flatten(0, 1).addmm_(l.flatten(1).mT, tree.at(t, self.channels))


class Back(NamedTuple):
    """Of a way back, ``(rows, k, n)``: ``delta``; ``lambda`` and ``B^T lambda``, if they are kept; ``e`` of a time.

    ``later[t]`` is ``e_{t+1}`` on the rows of ``t``, the directions side by side; ``start`` is ``e_1`` on those of
    ``h_0``, ``first`` its cotangent.
    """

    delta: Tensor
    lam: Tensor
    steep: Tensor
    later: list[Tensor]
    start: Tensor
    first: Tensor | None


class _Rooms(NamedTuple):
    """Where a way back writes, time by time: ``delta``, ``e``, ``lambda`` and ``B^T lambda``."""

    delta: Sequence[Tensor]
    e: Sequence[Tensor]
    lam: Sequence[Tensor]
    steep: Sequence[Tensor]
    kept: tuple[Tensor, Tensor, Tensor]


def _rooms(
    tree: Prefixes, slope: Tensor, k: int, matrices: tuple[bool, Tensor, Tensor | None], kept: bool, asked: bool
) -> _Rooms:
    """For all times where ``lambda`` is kept, and ``delta`` where it is asked for, else for two times in turns."""
    _, M, B = matrices
    (size, n), m = M.shape, slope.shape[1]

    def room(width: int, all_times: bool = kept) -> tuple[Tensor, Sequence[Tensor]]:
        if all_times:
            whole = slope.new_empty(len(slope), k, width)
            return whole, tree.cut(whole)
        whole = slope.new_empty(2, max(tree.sizes), k, width)
        return whole, [whole[t % 2, :size] for t, size in enumerate(tree.sizes)]

    lam, lams = room(n)
    delta, deltas = room(m, asked or (kept and size == m))
    es = deltas if size == m else room(size)[1]  # nothing but delta
    steep, steeps = (lam, lams) if B is None else room(m)
    return _Rooms(deltas, es, lams, steeps, (delta, lam, steep))


def pull(
    out: Tensor, after: tuple[Tensor, Tensor], before: tuple[Tensor, Tensor] | None, behind: Tensor | None
) -> None:
    """Write for rows and directions ``(rows, k, n)`` the sum of one or two products, and ``behind``.

    Args:
        out: contiguous.
        after: ``(rows, k m)`` and the matrix ``(m, n)`` that each direction is multiplied with.
        before: ``(rows, m)`` and the matrices ``(m, k n)`` of all directions.
        behind: ``(rows, k, n)``.
    """
    rows, M = after
    torch.mm(rows.reshape(-1, len(M)), M, out=out.flatten(0, 1))
    if before is not None:
        out.flatten(1).addmm_(*before)
    if behind is not None:
        out.add_(behind)


def side_by_side(turned: Tensor) -> Tensor:
    """Matrices ``(k, m, n)`` as one ``(m, k n)``."""
    return turned.movedim(0, 1).flatten(1).contiguous()


def way_back(
    kind: Map,
    tree: Prefixes,
    slope: Tensor,
    grads: tuple[Tensor | None, ...],
    matrices: tuple[bool, Tensor, Tensor | None],
    sums: Sums,
    also: tuple[Back, Tensor] | None = None,
    kept: bool = False,
) -> Back:
    """The gradient's recurrence from cotangents of all states, of the last ones and of ``z``, in k directions at once.

    Args:
        kind: of the step.
        tree: rows of each time.
        slope: ``phi'(z)``.
        grads: ``(rows, k, ...)``, any of them may be none.
        matrices: whether there is an ``h_0``, ``M``, ``B``.
        sums: the gradients by these, which are added to.
        also: an earlier way back in one direction, and ``Omega (k, rows of M, n)``: ``Omega^T e_{t+1}`` of that one is
            added to ``lambda_t``.
        kept: whether ``lambda`` and ``e`` are kept for all times.
    """
    g_last = grads[1]
    g, g_z = (None if part is None else tree.cut(part) for part in (grads[0], grads[2]))
    has_start, M, B = matrices
    k = next(part.shape[1] for part in grads if part is not None) if also is None else len(also[1])
    earlier, turn = (None, None) if also is None else (also[0], side_by_side(also[1]))
    n, m = M.shape[1], slope.shape[1]
    rooms = _rooms(tree, slope, k, matrices, kept, sums.by_U is None)
    stepped, keep = stepped_by(kind, M, m)
    later: list[Tensor] = []
    behind = None
    parts = [*zip(range(len(tree.sizes)), rooms.lam, rooms.e, rooms.delta, tree.cut(slope), rooms.steep)]
    for t, l, e_t, d_t, s_t, mu in reversed(parts):
        if later:
            before = None if earlier is None or turn is None else (earlier.later[t], turn)
            pull(l, (later[-1], stepped), before, behind)
        else:
            l.zero_() if g_last is None else l.copy_(g_last)
        if g is not None:
            l.add_(g[t])
        if B is not None:
            torch.mm(l.flatten(0, 1), B, out=mu.flatten(0, 1))
        _steepened(mu, s_t[:, None], 1.0 if B is not None else kind.length, None if g_z is None else g_z[t], d_t)
        if len(M) > m:
            e_t[..., :n].copy_(l)
            e_t[..., n:].copy_(d_t)
        later.append(tree.gathered(t, e_t).flatten(1))
        behind = tree.gathered(t, l) if keep else None
        sums.add(tree, t, later[-1], l, d_t)
    start, first = later.pop(), None
    if has_start:
        first = slope.new_empty(len(start), k, n)
        pull(first, (start, stepped), None if earlier is None or turn is None else (earlier.start, turn), behind)
    return Back(*rooms.kept, later[::-1], start, first)


def _steepened(mu: Tensor, slope: Tensor, factor: float, more: Tensor | None, out: Tensor) -> None:
    """Write ``factor mu slope``, and ``more``."""
    if more is None:
        torch.mul(mu, slope, out=out).mul_(factor)
    else:
        torch.addcmul(more, mu, slope, value=factor, out=out)
