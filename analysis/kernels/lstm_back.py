"""The LSTM cell's gradient backward in time, and its tangent forward: the recurrences of ``lstm.py``, row by row.

Formulas, and what the letters mean, stand there. What is multiplied is multiplied while it is at hand: only the first
way back, which products differentiate, is kept for all times.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .back import pull, side_by_side
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
    """Of a way back: ``delta (rows, k, 4 n)``, if it is asked for, and ``sum_t delta_t^T read_t``, ``(k, 4 n, width)``.

    Beside it ``lambda`` and ``mu``, ``(rows, k, n)``, if they are kept.
    ``later[t]`` is ``delta_{t+1}`` on the rows of t, the directions side by side; ``start`` is ``delta_1`` on those of
    ``h_0``; ``first`` and ``first_c`` are cotangents of the start.
    """

    delta: Tensor
    sums: Tensor | None
    lam: Tensor
    mu: Tensor
    later: list[Tensor]
    start: Tensor
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
        to_R: ``(4 n, k, n)``, what it sends to ``R``.
        turned: ``Omega``, the change ``(k, 4 n, n)`` of ``R``; or none.
        back: the way back that is differentiated.
        curves: its factors.
    """

    u: Tensor
    q: Tensor
    start: Tensor | None
    p: Tensor | None
    last: Tensor
    to_R: Tensor
    turned: Tensor | None
    back: GatedBack
    curves: Curves


def way_back(
    tree: Prefixes,
    factors: Factors,
    grads: tuple[Tensor | None, ...],
    started: tuple[Tensor | None, bool],
    R: tuple[Tensor, Tensor | None],
    moved: Moved | None = None,
    kept: bool = False,
) -> GatedBack:
    """The gradient's recurrence from cotangents ``(rows, k, n)`` of ``h``, ``c`` and the last ``h``; any may be none.

    Args:
        tree: rows of each time.
        factors: of the steps.
        grads: the cotangents.
        started: ``h_0``, or none, and whether ``delta`` is asked for at all times.
        R: the matrix, and what ``delta`` is summed with by rows; or none.
        moved: a tangent: the derivative along it of the way back that it is the tangent of is taken, with these
            cotangents as those of the cotangents.
        kept: whether ``lambda``, ``mu`` and ``delta`` are kept for all times.
    """
    g_h, g_c = (None if part is None else tree.cut(part) for part in grads[:2])
    (matrix, reads), h0, g_last = R, started[0], grads[2]
    count = next(part.shape[1] for part in grads if part is not None) if moved is None else moved.u.shape[1]
    delta, deltas = _room(tree, factors.K, count, kept or started[1])
    (lam, lams), (mu, mus) = (_room(tree, factors.E, count, kept) for _ in range(2))
    sums = None if reads is None else reads.new_zeros(count, factors.K.shape[1], reads.shape[1])
    summed = None if reads is None else tree.cut(reads)
    cuts = [tree.cut(part[:, None]) for part in (factors.K, factors.E, factors.forget)]
    turn = None if moved is None or moved.turned is None else side_by_side(moved.turned)
    bent = None if moved is None else _Bent(tree, moved, factors)
    later: list[Tensor] = []
    behind: Tensor | None = None
    for t, l, m, d, k, e_t, f_t in reversed([*zip(range(len(tree.sizes)), lams, mus, deltas, *cuts)]):
        if later:
            pull(l, (later[-1], matrix), None if moved is None or turn is None else (moved.back.later[t], turn), None)
        else:
            l.zero_() if g_last is None else l.copy_(g_last)
        if g_h is not None:
            l.add_(g_h[t])
        torch.mul(e_t, l, out=m)
        if behind is not None:
            m.add_(behind)
        if g_c is not None:
            m.add_(g_c[t])
        memory = f_t * m if bent is None else bent.add(t, m, d).addcmul_(f_t, m)
        for gate, factor, sent in zip(quarters(d), quarters(k), (m, m, m, l)):
            torch.mul(factor, sent, out=gate) if bent is None else gate.addcmul_(factor, sent)
        later.append(tree.gathered(t, d).flatten(1))
        behind = tree.gathered(t, memory)
        if sums is not None and summed is not None:
            sums.flatten(0, 1).addmm_(d.flatten(1).mT, summed[t])
    start, first = later.pop(), None
    if h0 is not None:
        first = h0.new_empty(len(h0), count, h0.shape[1])
        pull(first, (start, matrix), None if moved is None or turn is None else (moved.back.start, turn), None)
    first_c = None if factors.before[0] is None else behind
    return GatedBack(delta, sums, lam, mu, later[::-1], start, first, first_c)


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
    inner, qs = _room(tree, factors.E, count, True)
    to_R, R_t = R.new_zeros(len(R), count, R.shape[1]), R.mT.contiguous()
    room = R.new_empty(max(tree.sizes), count, len(R))
    earlier, first = [back.start, *back.later], q
    cuts = [tree.cut(part[:, None]) for part in (factors.K, factors.E, factors.forget)]
    for t, (p_t, q_t, u_t, k, e_t, f_t) in enumerate(zip(ps, qs, tree.cut(u), *cuts)):
        if p is not None:
            to_R.flatten(1).addmm_(earlier[t].mT, p.flatten(1))
            if tree.parents[t] is None:
                u_t.flatten(0, 1).addmm_(p.flatten(0, 1), R_t)
            else:
                u_t.add_(tree.grown(t, (p.flatten(0, 1) @ R_t).unflatten(0, (-1, count))))
        k_i, k_f, k_g, k_o = quarters(torch.mul(u_t, k, out=room[: len(u_t)]))
        torch.add(k_i, k_f, out=q_t).add_(k_g)
        if q is not None:
            q_t.addcmul_(f_t, tree.grown(t, q))
        torch.addcmul(k_o, e_t, q_t, out=p_t)
        p, q = p_t, q_t
    assert p is not None
    return Moved(u, inner, first, tangent if read[0] else None, p, to_R, turned, back, curves)
