"""The LSTM cell's gradient backward in time, and its tangent forward: the recurrences of ``lstm.py``, row by row.

Formulas, and what the letters mean, stand there. What is multiplied is multiplied while it is at hand: only the first
way back, which products differentiate, is kept for all times.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .back import pull, side_by_side
from .prefixes import Prefixes, pulses_of
from .products import image_of


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
    """Of a way back: ``delta (rows, k, 4 n)``, or ``(k, 4 n, p)``, the gradient of what rows come in through.

    Beside it ``lambda`` and ``mu``, ``(rows, k, n)``, if they are kept.
    ``later[t]`` is ``delta_{t+1}`` on the rows of t, the directions side by side; ``start`` is ``delta_1`` on those of
    ``h_0``; ``first`` and ``first_c`` are cotangents of the start; ``by_R`` is ``(k, 4 n, n)``.
    """

    by_drive: Tensor
    lam: Tensor
    mu: Tensor
    later: list[Tensor]
    start: Tensor
    first: Tensor | None
    first_c: Tensor | None
    by_R: Tensor | None


def way_back(
    tree: Prefixes,
    factors: Factors,
    grads: tuple[Tensor | None, ...],
    seen: tuple[Tensor, Tensor | None, Tensor | None],
    R: tuple[Tensor, bool],
    also: tuple[GatedBack, Tensor] | None = None,
    kept: bool = False,
) -> GatedBack:
    """The gradient's recurrence from cotangents ``(rows, k, ...)`` of ``h``, ``c`` and ``z``, any of which may be none.

    Args:
        tree: rows of each time.
        factors: of the steps.
        grads: the cotangents.
        seen: the states, ``h_0``, and the rows that come in through a matrix whose gradient is wanted; or none.
        R: the matrix, and whether its gradient is wanted.
        also: an earlier way back in one direction, and ``Omega (k, 4 n, n)``: ``Omega^T delta_{t+1}`` of that one is
            added to ``lambda_t``.
        kept: whether ``lambda`` and ``mu`` are kept for all times.
    """
    g_h, g_c, g_z = (None if part is None else tree.cut(part) for part in grads)
    K, (states, h0, given) = factors.K, seen
    count = next(part.shape[1] for part in grads if part is not None) if also is None else len(also[1])
    delta, deltas = _room(tree, K, count, kept or given is None)
    (lam, lams), (mu, mus) = (_room(tree, factors.E, count, kept) for _ in range(2))
    by_U = None if given is None else given.new_zeros(count, K.shape[1], given.shape[1])
    by_R = R[0].new_zeros(count, *R[0].shape) if R[1] else None
    split = (4, R[0].shape[1])
    later: list[Tensor] = []
    behind, (earlier, turn) = None, (None, None) if also is None else (also[0], side_by_side(also[1]))
    cuts = [tree.cut(part[:, None]) for part in (K.unflatten(1, split), factors.E, factors.forget)]
    for t, l, m, d, k, e_t, f_t in reversed([*zip(range(len(tree.sizes)), lams, mus, deltas, *cuts)]):
        by_gate = d.unflatten(2, split)
        if later:
            pull(l, (later[-1], R[0]), None if earlier is None or turn is None else (earlier.later[t], turn), None)
        else:
            l.zero_()
        _add(l, t, g_h)
        torch.mul(e_t, l, out=m)
        if behind is not None:
            m.add_(behind)
        _add(m, t, g_c)
        torch.mul(k[:, :, :3], m[:, :, None], out=by_gate[:, :, :3])
        torch.mul(k[:, :, 3], l, out=by_gate[:, :, 3])
        _add(d, t, g_z)
        later.append(tree.gathered(t, d).flatten(1))
        behind = tree.gathered(t, f_t * m)
        if by_U is not None and given is not None:
            by_U.flatten(0, 1).addmm_(d.flatten(1).mT, tree.at(t, given))
        h = tree.at(t - 1, states) if t else h0
        if by_R is not None and h is not None:
            by_R.flatten(0, 1).addmm_(later[-1].mT, h)
    start, first = later.pop(), None
    if h0 is not None:
        first = h0.new_empty(len(h0), count, h0.shape[1])
        pull(first, (start, R[0]), None if earlier is None or turn is None else (earlier.start, turn), None)
    first_c = None if factors.before[0] is None else behind
    return GatedBack(delta if by_U is None else by_U, lam, mu, later[::-1], start, first, first_c, by_R)


def _room(tree: Prefixes, like: Tensor, count: int, kept: bool) -> tuple[Tensor, list[Tensor]]:
    """Where a recurrence writes in so many directions: for all times, or for two in turns."""
    if kept:
        whole = like.new_empty(len(like), count, like.shape[1])
        return whole, [*tree.cut(whole)]
    whole = like.new_empty(2, max(tree.sizes), count, like.shape[1])
    return whole, [whole[t % 2, :size] for t, size in enumerate(tree.sizes)]


def _add(out: Tensor, t: int, parts: object) -> None:
    """Add the part of a time, if there are any."""
    if isinstance(parts, tuple | list):
        out.add_(parts[t])


class Tangent(NamedTuple):
    """``p`` and ``q``, if they are kept, and what the curvature of gates and ``tau`` sends to ``z``, ``c``, ``c0``.

    ``to_R (4 n, k, n)`` is what the change of the start and the states sends to ``R``.
    """

    p: Tensor
    q: Tensor
    to_z: Tensor
    to_memory: Tensor
    to_c0: Tensor | None
    to_R: Tensor


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


def tangent_of(
    tree: Prefixes,
    pulse: Tensor | tuple[Tensor, Tensor] | None,
    along: tuple[Tensor | None, ...],
    seen: tuple[Tensor, Tensor | None],
    factors: Factors,
    curves: Curves,
    back: GatedBack,
    R: Tensor,
    kept: tuple[bool, bool],
) -> Tangent:
    """The tangent of the states in k directions; ``u_t`` is at hand during its step alone.

    Args:
        tree: rows of each time.
        pulse: change of the drive, ``(rows, k, 4 n)``; or what drives, and the change of the matrix; or none.
        along: change of ``h_0``, of ``c_0``, ``(rows, k, n)``, and of ``R``: ``Omega (k, 4 n, n)``; any may be none.
        seen: the states, and ``h_0``.
        factors: of the steps.
        curves: likewise.
        back: the way back that is differentiated.
        R: ``(4 n, n)``.
        kept: whether ``p`` and ``q`` are kept for all times.
    """
    p, q, turned = along
    if isinstance(pulse, tuple):
        count = len(pulse[1])
    else:
        count = len(turned) if turned is not None else next(part.shape[1] for part in (pulse, p, q) if part is not None)
    (tangent, ps), (inner, qs) = (_room(tree, factors.E, count, keep) for keep in kept)
    to_z, to_memory = (like.new_empty(len(like), count, like.shape[1]) for like in (factors.K, factors.E))
    to_R, to_c0 = R.new_zeros(len(R), count, R.shape[1]), None
    R_t, turn = R.mT.contiguous(), None if turned is None else turned.flatten(0, 1).mT.contiguous()
    room, other_room = R.new_empty(2, max(tree.sizes), count, len(R)).unbind()
    drive = pulses_of(tree, pulse)
    states, memories, earlier = tree.cut(seen[0]), tree.cut(to_memory), [back.start, *back.later]
    cuts = [tree.cut(part[:, None]) for part in (factors.K, factors.E, factors.forget)]
    cuts += [tree.cut(to_z), *(tree.cut(part[:, None]) for part in curves)]
    for t, (p_t, q_t, k, e_t, f_t, z, own, gate, memory, output, of_tau) in enumerate(zip(ps, qs, *cuts)):
        if p is not None:
            to_R.flatten(1).addmm_(earlier[t].mT, p.flatten(1))
        u = image_of(states[t - 1] if t else seen[1], turn, p, R_t, room)
        u = k.new_zeros(len(k), count, len(R)) if u is None else tree.grown(t, u)
        drive(t, u, u)
        scaled = torch.mul(u, k, out=other_room[: len(k)])
        k_i, k_f, k_g, k_o = quarters(scaled)
        u_i, u_f, u_g, u_o = quarters(u)
        torch.add(k_i, k_f, out=q_t).add_(k_g)
        z_i, z_f, z_g, z_o = quarters(torch.mul(own, u, out=z))
        if q is not None:
            before = tree.grown(t, q)
            q_t.addcmul_(f_t, before)
            z_f.addcmul_(memory, before)
        torch.addcmul(k_o, e_t, q_t, out=p_t)
        z_i.addcmul_(gate, u_g)
        z_g.addcmul_(gate, u_i)
        z_o.addcmul_(output, q_t)
        torch.mul(of_tau, q_t, out=memories[t]).addcmul_(output, u_o)
        if t:
            memories[t - 1].add_(tree.gathered(t, memory * u_f))
        elif factors.before[0] is not None:
            to_c0 = memory * u_f
        p, q = p_t, q_t
    return Tangent(tangent, inner, to_z, to_memory, to_c0, to_R)
