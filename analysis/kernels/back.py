r"""A step of :math:`\phi(W h + d)` with a linear part, and the recurrence of its gradient backward in time.

The formulas, and what the letters mean, stand in ``lure.py``. A step has one product of matrices; what does not wait
for the step before is multiplied for all times at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stability.kernel.arithmetic.activations import ACTIVATIONS

from .dense import add_image
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


def steepness(kind: Map, c: Tensor, has_B: bool) -> Tensor:
    """``phi'(z)``, times the multiple of the identity that stands for ``B``."""
    slope = slope_of(kind.activation, c)
    return slope if has_B or kind.length == 1.0 else slope.mul_(kind.length)


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


class Back(NamedTuple):
    """Of a way back, by rows and directions: ``e (rows, k, rows of M)``, ``lambda`` and ``B^T lambda``.

    ``first`` is the cotangent of ``h_0``, where there is one.
    """

    e: Tensor
    lam: Tensor
    steep: Tensor
    first: Tensor | None


def side_by_side(turned: Tensor) -> Tensor:
    """Matrices ``(k, m, n)`` as one ``(k n, m)``, by which rows ``(rows, m)`` are multiplied with all of them."""
    return turned.mT.flatten(0, 1).contiguous()


def way_back(
    kind: Map,
    tree: Prefixes,
    slope: Tensor,
    grads: tuple[Tensor | None, ...],
    matrices: tuple[bool, Tensor, Tensor | None],
    sent: Tensor | None = None,
) -> Back:
    """The gradient's recurrence from cotangents of all states, of the last ones and of ``z``, in k directions at once.

    Args:
        kind: of the step.
        tree: rows of each time.
        slope: see ``steepness``.
        grads: ``(rows, k, ...)``, any of them may be none.
        matrices: whether there is an ``h_0``, ``M``, ``B``.
        sent: what else goes from each row to the state before it, ``(rows, k, n)``; or none.
    """
    g, g_last, g_z = grads
    g, g_z = (None if part is None else tree.cut(part) for part in (g, g_z))
    has_start, M, B = matrices
    k = next(part.shape[1] for part in (*grads, sent) if part is not None)
    n, m = M.shape[1], slope.shape[1]
    e = slope.new_empty(len(slope), k, len(M))
    lam = e[..., :n] if len(M) > m else slope.new_empty(len(slope), k, n)
    steep = lam if B is None else slope.new_empty(len(slope), k, m)
    pull = _Pull(tree, stepped_by(kind, M, m), e, lam, sent)
    pull.lams[-1].zero_() if g_last is None else pull.lams[-1].copy_(g_last)
    parts = (steep, e[..., -m:], slope[:, None])
    for t, l, mu, d, s in reversed([*zip(range(len(tree.sizes)), pull.lams, *(tree.cut(part) for part in parts))]):
        if g is not None:
            l.add_(g[t])
        if B is not None:
            torch.mm(l.reshape(-1, n), B, out=mu.flatten(0, 1))
        torch.mul(mu, s, out=d) if g_z is None else torch.addcmul(g_z[t], mu, s, out=d)
        if t:
            pull(t)
    return Back(e, lam, steep, pull.start() if has_start else None)


class _Pull:
    """What a step sends back to the state before it: ``M^T e_t``, and more."""

    def __init__(
        self, tree: Prefixes, stepped: tuple[Tensor, bool], e: Tensor, lam: Tensor, sent: Tensor | None
    ) -> None:
        self.tree, (self.M, self.keep) = tree, stepped
        self.es, self.flat, self.lams = tree.flat(e), tree.flat(lam), tree.cut(lam)
        self.sent: Sequence[Tensor | None] = [None] * len(tree.sizes) if sent is None else tree.flat(sent)

    def __call__(self, t: int) -> None:
        """Written into ``lambda`` of the time before."""
        if self.tree.parents[t] is None:
            self._write(t, self.flat[t - 1])
        else:
            self.lams[t - 1].copy_(self._gathered(t))

    def start(self) -> Tensor:
        """On the rows of the start."""
        return self._gathered(0)

    def _gathered(self, t: int) -> Tensor:
        found = self.lams[t].new_empty(self.flat[t].shape)
        self._write(t, found)
        return self.tree.gathered(t, found.view(self.lams[t].shape))

    def _write(self, t: int, out: Tensor) -> None:
        add_image(out, self.es[t], self.M, self.sent[t])
        if self.keep:
            out.add_(self.flat[t])
