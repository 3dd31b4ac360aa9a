"""The LSTM cell's gradient backward in time, and its tangent forward: the recurrences of ``lstm.py``, row by row.

Formulas, and what the letters mean, stand there. A step has one product of matrices; what does not wait for the step
before is multiplied for all times at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .back import side_by_side
from .dense import add_image, image
from .prefixes import Prefixes


def quarters(t: Tensor) -> tuple[Tensor, ...]:
    """Input, forget, candidate and output parts."""
    return t.chunk(4, dim=-1)


class Factors(NamedTuple):
    """``K (rows, 4 n)``, ``E (rows, n)``, the forget gate, and the memory of the time before (none at a zero start)."""

    K: Tensor
    E: Tensor
    forget: Tensor
    before: list[Tensor | None]


@torch.no_grad()
def factors_of(tree: Prefixes, gates: Tensor, tau: Tensor, memory: Tensor, c0: Tensor | None) -> Factors:
    """What a step multiplies with, as of its gates and ``tau``."""
    i, f, g, o = quarters(gates)
    K = gates - gates * gates
    k_i, k_f, k_g, k_o = quarters(K)
    k_i.mul_(g)
    cut = tree.cut(memory)
    before = [None if c is None else tree.grown(t, c) for t, c in enumerate([c0, *cut[:-1]])]
    for part, c in zip(tree.cut(k_f), before):
        part.zero_() if c is None else part.mul_(c)
    torch.mul(i, 1.0 - g * g, out=k_g)
    k_o.mul_(tau)
    return Factors(K, (1.0 - tau * tau).mul_(o), f, before)


class GatedBack(NamedTuple):
    """Of a way back: ``delta (rows, k, 4 n)``; ``lambda`` and ``mu``, ``(rows, k, n)``, if they are kept.

    ``first`` and ``first_c`` are cotangents of the start.
    """

    delta: Tensor
    lam: Tensor
    mu: Tensor
    first: Tensor | None
    first_c: Tensor | None


class Curves(NamedTuple):
    """Factors of the curvature, by rows: of ``z`` with its gate's ``u``; of input gate and candidate with each other.

    Then of the forget gate with the memory, of the output gate with ``c``, and of ``c`` with ``q``.
    """

    own: Tensor
    gate: Tensor
    memory: Tensor
    output: Tensor
    of_tau: Tensor


def curves_of(tree: Prefixes, gates: Tensor, tau: Tensor, back: GatedBack, factors: Factors) -> Curves:
    """The factors for a way back that was kept."""
    lam, mu = back.lam[:, 0], back.mu[:, 0]
    i, f, g, o = quarters(gates)
    own = torch.empty_like(gates)
    di, df, _, do = quarters(gates - gates * gates)
    dg, dtau = 1.0 - g * g, 1.0 - tau * tau
    before = torch.zeros_like(tau)
    for part, c in zip(tree.cut(before), factors.before):
        if c is not None:
            part.copy_(c)
    for out, value in zip(
        quarters(own),
        (mu * g * di * (1 - 2 * i), mu * before * df * (1 - 2 * f), -2 * mu * i * g * dg, lam * tau * do * (1 - 2 * o)),
    ):
        out.copy_(value)
    return Curves(own, mu * di * dg, mu * df, lam * dtau * do, -2 * lam * o * tau * dtau)


class Moved(NamedTuple):
    """The tangent of the states in k directions, and what it is the tangent of.

    Attributes:
        u: of ``z``, ``(rows, k, 4 n)``.
        q: of ``c``, ``(rows, k, n)``.
        start: of ``c_0``; or none.
        p: of ``h``, if it is kept.
        last: of ``h`` at the last time.
        before: of ``h`` before each row, ``(rows, k, n)``.
        turned: ``Omega``, the change ``(k, 4 n, n)`` of ``R``; or none.
        back: the way back that is differentiated.
        curves: its factors.
    """

    u: Tensor
    q: Tensor
    start: Tensor | None
    p: Tensor | None
    last: Tensor
    before: Tensor
    turned: Tensor | None
    back: GatedBack
    curves: Curves

    def sent(self, tree: Prefixes) -> Sequence[Tensor] | None:
        """What ``Omega`` sends from each row of the way back to the state before it, ``(rows, k, n)``, cut in times."""
        if self.turned is None:
            return None
        found = image(self.back.delta[:, 0], side_by_side(self.turned))
        return tree.cut(found.unflatten(1, (len(self.turned), -1)))


def way_back(
    tree: Prefixes,
    factors: Factors,
    grads: tuple[Tensor | None, ...],
    h0: Tensor | None,
    R: Tensor,
    moved: Moved | None = None,
    kept: bool = False,
) -> GatedBack:
    """The gradient's recurrence from cotangents ``(rows, k, n)`` of ``h``, ``c`` and the last ``h``; any may be none.

    Args:
        tree: rows of each time.
        factors: of the steps.
        grads: the cotangents.
        h0: the start, or none.
        R: the matrix.
        moved: a tangent: the derivative along it of the way back that it is the tangent of is taken, with these
            cotangents as those of the cotangents.
        kept: whether ``lambda`` and ``mu`` are kept for all times.
    """
    g_h, g_c = (None if part is None else tree.cut(part) for part in grads[:2])
    g_last, sent = grads[2], None if moved is None else moved.sent(tree)
    count = next(part.shape[1] for part in grads if part is not None) if moved is None else moved.u.shape[1]
    delta, deltas = _room(tree, factors.K, count, True)
    (lam, lams), (mu, mus) = (_room(tree, factors.E, count, kept) for _ in range(2))
    cuts = [tree.cut(part[:, None]) for part in (factors.K, factors.E, factors.forget)]
    turn, bent = R.mT.contiguous(), None if moved is None else _Bent(tree, moved, factors)
    pulled: Tensor | None = None
    behind: Tensor | None = None
    for t, l, m, d, k, e_t, f_t in reversed([*zip(range(len(tree.sizes)), lams, mus, deltas, *cuts)]):
        before = g_last if pulled is None else pulled
        l.zero_() if before is None else l.copy_(before)
        if g_h is not None:
            l.add_(g_h[t])
        torch.mul(e_t, l, out=m)
        if behind is not None:
            m.add_(behind)
        if g_c is not None:
            m.add_(g_c[t])
        memory = f_t * m if bent is None else bent.add(t, m, d).addcmul_(f_t, m)
        for gate, factor, to in zip(quarters(d), quarters(k), (m, m, m, l)):
            torch.mul(factor, to, out=gate) if bent is None else gate.addcmul_(factor, to)
        behind = tree.gathered(t, memory)
        if t or h0 is not None:
            pulled = _pulled(tree, t, image(d.flatten(0, 1), turn).view_as(l), sent)
    first_c = None if factors.before[0] is None else behind
    return GatedBack(delta, lam, mu, None if h0 is None else pulled, first_c)


def _pulled(tree: Prefixes, t: int, out: Tensor, sent: Sequence[Tensor] | None) -> Tensor:
    """What a step sends to the state before it, on the rows of the time before."""
    return tree.gathered(t, out if sent is None else out.add_(sent[t]))


class _Bent:
    """What the tangents of a step's factors send to ``mu``, ``delta`` and the memory of the time before."""

    def __init__(self, tree: Prefixes, moved: Moved, factors: Factors) -> None:
        self.tree, self.factors = tree, factors
        self.u, self.q, self.start = tree.cut(moved.u), tree.cut(moved.q), moved.start
        self.curves = [*zip(*(tree.cut(part[:, None]) for part in moved.curves))]

    def add(self, t: int, m: Tensor, d: Tensor) -> Tensor:
        """Add to ``mu_t``, write into ``delta_t`` and return the part of the memory."""
        own, gate, memory, output, of_tau = self.curves[t]
        q, (u_i, u_f, u_g, u_o) = self.q[t], quarters(self.u[t])
        m.addcmul_(of_tau, q).addcmul_(output, u_o)
        d_i, d_f, d_g, d_o = quarters(torch.mul(self.u[t], own, out=d))
        d_i.addcmul_(gate, u_g)
        d_g.addcmul_(gate, u_i)
        d_o.addcmul_(output, q)
        before = self.q[t - 1] if t else self.start
        if before is not None:
            d_f.addcmul_(memory, self.tree.grown(t, before))
        return memory * u_f


def _room(tree: Prefixes, like: Tensor, count: int, kept: bool) -> tuple[Tensor, list[Tensor]]:
    """Where a recurrence writes in so many directions: for all times, or for two in turns."""
    if kept:
        whole = like.new_empty(len(like), count, like.shape[1])
        return whole, [*tree.cut(whole)]
    whole = like.new_empty(2, max(tree.sizes), count, like.shape[1])
    return whole, [whole[t % 2, :size] for t, size in enumerate(tree.sizes)]


def tangent_of(
    tree: Prefixes,
    u: Tensor | None,
    start: tuple[Tensor | None, ...],
    factors: Factors,
    curves: Curves,
    back: GatedBack,
    R: Tensor,
    read: tuple[bool, ...],
) -> Moved:
    """The tangent of the states in k directions.

    Args:
        tree: rows of each time.
        u: what changes of matrices and drive send to ``z``, ``(rows, k, 4 n)``, which is added to; or none.
        start: change of ``h_0``, of ``c_0``, ``(rows, k, n)``, and of ``R``: ``Omega (k, 4 n, n)``; any may be none.
        factors: of the steps.
        curves: of the way back.
        back: the way back that is differentiated.
        R: ``(4 n, n)``.
        read: whether ``p`` is kept at first.
    """
    p, q, turned = start
    count = next(part.shape[1] for part in (u, p, q) if part is not None)
    u = factors.K.new_zeros(len(factors.K), count, len(R)) if u is None else u
    tangent, ps = _room(tree, factors.E, count, read[0])
    (inner, qs), (before, bs) = (_room(tree, factors.E, count, True) for _ in range(2))
    room, R_t, first = R.new_empty(max(tree.sizes), count, len(R)), R.mT.contiguous(), q
    cuts = [tree.cut(part[:, None]) for part in (factors.K, factors.E, factors.forget)]
    for t, (p_t, q_t, u_t, b, k, e_t, f_t) in enumerate(zip(ps, qs, tree.cut(u), bs, *cuts)):
        if p is None:
            b.zero_()
        else:
            b.copy_(tree.grown(t, p))
            flat = u_t.flatten(0, 1)
            add_image(flat, b.flatten(0, 1), R_t, flat)
        k_i, k_f, k_g, k_o = quarters(torch.mul(u_t, k, out=room[: len(u_t)]))
        torch.add(k_i, k_f, out=q_t).add_(k_g)
        if q is not None:
            q_t.addcmul_(f_t, tree.grown(t, q))
        torch.addcmul(k_o, e_t, q_t, out=p_t)
        p, q = p_t, q_t
    assert p is not None
    return Moved(u, inner, first, tangent if read[0] else None, p, before, turned, back, curves)
