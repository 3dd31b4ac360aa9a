r"""The recurrence :math:`\phi(W h + d)` with a linear part, its gradient, and the derivative of its gradient.

.. math:: z_t = W h_{t-1} + d_t, \quad c_t = \phi(z_t), \quad h_t = \kappa h_{t-1} + A h_{t-1} + B c_t

with :math:`\kappa = 0` for a map; forward Euler has :math:`\kappa = 1` and its step in ``A`` and ``B``. With :math:`M =
(A; W)` and the columns :math:`e_t = (\lambda_t; \delta_t)` the gradient is the recurrence backward in time

.. math:: \lambda_t = g_t + \kappa \lambda_{t+1} + M^T e_{t+1}, \quad
          \delta_t = \phi'(z_t) \odot B^T \lambda_t + g^z_t, \quad
          \nabla_M = \sum_t e_t h_{t-1}^T, \quad \nabla_B = \sum_t \lambda_t c_t^T .

As a function of ``g``, the states, the pre-activations and the matrices, each on its own, this has as its adjoint
Pearlmutter's R-operator: with cotangents :math:`\Omega` of :math:`\nabla_M` and :math:`\omega_t` of :math:`\delta_t`
the tangent of the states is

.. math:: (a_t; u_t) = M p_{t-1} + \Omega h_{t-1} + (0; \omega_t), \qquad
          p_t = \kappa p_{t-1} + a_t + B (\phi'(z_t) \odot u_t) + \Omega_B c_t .

A Hessian-vector product is this recurrence forward and the gradient's once more backward. Of its six products a step
with ``M`` two run step by step; the others take all times at once. The states are kept, and no graph.

Source: B. Pearlmutter, "Fast exact multiplication by the Hessian", Neural Computation 6 (1994), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stability.systems.activations import ACTIVATIONS

from ...models.scans.unrolled import FUSED
from .products import Source, earlier_product, no_third, rows

LEAK = ACTIVATIONS["leaky_relu"].slope[0]


@dataclass(frozen=True)
class Map:
    """What a step is besides its matrices.

    Attributes:
        activation: ``tanh``, ``sigmoid``, ``relu`` or ``leaky_relu``.
        keep: ``kappa``, 0 or 1.
        length: the multiple of the identity that ``B`` is where none is given.
    """

    activation: str
    keep: int = 0
    length: float = 1.0


def _slope(activation: str, c: Tensor) -> Tensor:
    """``phi'(z)`` as a function of ``c = phi(z)``."""
    if activation in ("relu", "leaky_relu"):
        below = torch.full_like(c, 0.0 if activation == "relu" else LEAK)
        return below.masked_fill_(c > 0, 1.0)
    return 1.0 - c * c if activation == "tanh" else c * (1.0 - c)


def _bend(activation: str, c: Tensor) -> Tensor | None:
    """``phi''(z)`` as a function of ``c = phi(z)``; ``None`` for zero."""
    if activation in ("relu", "leaky_relu"):
        return None
    return _slope(activation, c).mul_(-2.0 * c if activation == "tanh" else 1.0 - 2.0 * c)


def _stepped(kind: Map, M: Tensor, m: int) -> tuple[Tensor, bool]:
    """``M`` with ``kappa`` added to ``A``, and whether ``kappa`` is still to be added, for want of an ``A``.

    The sum rounds as much as the addition of states does that it stands for.
    """
    n = M.shape[1]
    if not kind.keep or len(M) == m:
        return M, bool(kind.keep)
    M = M.clone()
    M[:n].diagonal().add_(1.0)
    return M, False


class _Steps(torch.autograd.Function):
    """States and pre-activations ``z``."""

    @staticmethod
    def forward(ctx: Any, kind: Map, drive: Tensor, h0: Tensor, M: Tensor, B: Tensor | None) -> tuple[Tensor, Tensor]:
        n, m = h0.shape[1], drive.shape[2]
        phi_ = FUSED[kind.activation].phi_
        states, z = drive.new_empty(*drive.shape[:2], n), torch.empty_like(drive)
        channels = torch.empty_like(drive)
        h, M_t, image = h0, M.mT.contiguous(), drive.new_empty(len(h0), len(M))
        for d, z_t, c, out in zip(drive, z, channels, states):
            torch.mm(h, M_t, out=image)
            torch.add(image[:, -m:], d, out=z_t)
            phi_(c.copy_(z_t), None)  # of these activations the way back needs no marks
            if B is None:
                torch.mul(c, kind.length, out=out)
            else:
                torch.mm(c, B.mT, out=out)
            if len(M) > m:
                out.add_(image[:, :n])
            if kind.keep:  # last: a small damping is not rounded away
                out.add_(h)
            h = out
        ctx.set_materialize_grads(False)
        ctx.kind = kind
        ctx.save_for_backward(states, z, channels, _slope(kind.activation, channels), h0, M, B)
        return states, z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        states, z, channels, slope, h0, M, B = ctx.saved_tensors
        g, g_z = grads
        g = torch.zeros_like(states) if g is None else g
        wanted = ctx.needs_input_grad[3:]
        return None, *_Adjoint.apply(ctx.kind, wanted, channels, slope, g, g_z, states, z, h0, M, B)


class _Adjoint(torch.autograd.Function):
    """The gradient as a function of ``g``, the states, ``z`` and the matrices; channels and slopes belong to ``z``."""

    @staticmethod
    def forward(ctx: Any, kind: Map, wanted: tuple[bool, ...], *tensors: Any) -> tuple[Tensor | None, ...]:
        channels, slope, g, g_z, states, z, h0, M, B = tensors
        n, m = h0.shape[1], z.shape[2]
        e = g.new_empty(*g.shape[:2], len(M))
        lam = e[..., :n] if len(M) > m else torch.empty_like(states)
        steep = lam if B is None else torch.empty_like(z)
        stepped, keep = _stepped(kind, M, m)
        factor = kind.length if B is None else 1.0
        for t, l, g_t, e_t, s_t in reversed([*zip(range(len(g)), lam, g, e, slope)]):
            if t + 1 == len(g):
                l.copy_(g_t)
            else:
                torch.addmm(g_t, e[t + 1], stepped, out=l)
                if keep:
                    l.add_(lam[t + 1])
            mu = l if B is None else torch.mm(l, B, out=steep[t])
            if g_z is None:
                torch.mul(mu, s_t, out=e_t[:, -m:]).mul_(factor)
            else:
                torch.addcmul(g_z[t], mu, s_t, value=factor, out=e_t[:, -m:])
        first = torch.mm(e[0], stepped)
        if keep:
            first.add_(lam[0])
        ctx.set_materialize_grads(False)
        ctx.kind, ctx.first_order, ctx.curve = kind, g_z is None, None
        ctx.save_for_backward(e, lam, steep, channels, slope, states, h0, M, B)
        by_M = earlier_product(e, states, h0) if wanted[0] else None
        by_B = rows(lam).mT @ rows(channels) if wanted[1] and B is not None else None
        # of a view, whoever is to differentiate this would get products laid out the other way round
        delta = e[..., -m:].contiguous() if ctx.first_order else e[..., -m:]
        return delta, first, by_M, by_B

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        kind: Map = ctx.kind
        e, lam, steep, channels, slope, states, h0, M, B = ctx.saved_tensors
        no_third(ctx.first_order)
        by_drive, by_first, by_M, by_B = cotangents
        if ctx.curve is None and (bend := _bend(kind.activation, channels)) is not None:
            ctx.curve = bend.mul_(steep).mul_(kind.length if B is None else 1.0)
        source = Source(states, h0, by_M, None)
        tangent, turned, to_z = _tangent(
            kind, source, by_drive, (slope, ctx.curve), by_first, M, B, None if by_B is None else (channels, by_B)
        )
        if by_B is not None:
            pulled = lam @ by_B
            to_z = pulled.mul_(slope) if to_z is None else to_z.addcmul_(pulled, slope)
        to_states = to_first = None
        if by_M is not None:
            to_states = torch.empty_like(states)
            torch.mm(rows(e[1:]), by_M, out=rows(to_states[:-1]))
            to_states[-1], to_first = 0.0, e[0] @ by_M
        to_B = None if turned is None else rows(lam).mT @ rows(turned)
        to_M = earlier_product(e, tangent, torch.zeros_like(h0) if by_first is None else by_first)
        return None, None, None, None, tangent, None, to_states, to_z, to_first, to_M, to_B


def _tangent(
    kind: Map,
    source: Source,
    pulse: Tensor | None,
    factors: tuple[Tensor, Tensor | None],
    start: Tensor | None,
    M: Tensor,
    B: Tensor | None,
    of_B: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """``p_t`` for all t; ``phi' u`` where there is a ``B``; and what the activation's curvature sends to ``z``.

    ``u_t`` is at hand during its step alone. ``pulse`` (``omega``) is added to the channels' part of it; the channels
    times the change of ``B`` to ``p``, by way of the part of ``A`` where there is one.
    """
    slope, curve = factors
    m, n = slope.shape[2], M.shape[1]
    stepped, keep = _stepped(kind, M, m)
    M_t, p = stepped.mT.contiguous(), start
    tangent, turned = slope.new_empty(*slope.shape[:2], n), None if B is None else torch.empty_like(slope)
    to_z = None if curve is None else torch.empty_like(curve)
    u, moved, slanted = (slope.new_empty(slope.shape[1], k) for k in (len(M), n, m))
    linear = u[:, :n] if len(M) > m else None
    seen = u[:, -m:]
    for t, (s_t, out) in enumerate(zip(slope, tangent)):
        source.into(t, u)
        if p is not None:
            u.addmm_(p, M_t)
        if pulse is not None:
            seen.add_(pulse[t])
        offset = linear
        if of_B is not None:
            channels, by_B = of_B
            offset = (
                torch.mm(channels[t], by_B.mT, out=moved) if offset is None else offset.addmm_(channels[t], by_B.mT)
            )
        scaled = torch.mul(seen, s_t, out=slanted if turned is None else turned[t])
        if B is None:
            torch.mul(scaled, kind.length, out=out) if offset is None else torch.add(
                offset, scaled, alpha=kind.length, out=out
            )
        else:
            torch.mm(scaled, B.mT, out=out) if offset is None else torch.addmm(offset, scaled, B.mT, out=out)
        if curve is not None and to_z is not None:
            torch.mul(curve[t], seen, out=to_z[t])
        if keep and p is not None:
            out.add_(p)
        p = out
    return tangent, turned, to_z


def lure_states(
    kind: Map, drive: Tensor, h0: Tensor, W: Tensor, A: Tensor | None = None, B: Tensor | None = None
) -> Tensor:
    """All states of the recurrence, differentiable twice and no further.

    Args:
        kind: activation, and how a step enters the state.
        drive: ``(time, batch, m)``.
        h0: ``(batch, n)``.
        W: ``(m, n)``.
        A: ``(n, n)``, or none.
        B: ``(n, m)``, or none: ``kind.length`` times the identity.

    Returns:
        ``(time, batch, n)``.

    Example:
        >>> W = torch.full((1, 1), 0.5, dtype=torch.float64, requires_grad=True)
        >>> drive = torch.zeros(2, 1, 1, dtype=torch.float64)
        >>> h = lure_states(Map("relu"), drive, torch.ones(1, 1, dtype=torch.float64), W)[-1].sum()  # W^2
        >>> (g,) = torch.autograd.grad(h, W, create_graph=True)
        >>> g.item(), torch.autograd.grad(g.sum(), W)[0].item()
        (1.0, 2.0)
    """
    M = W if A is None else torch.cat([A, W])
    return _Steps.apply(kind, drive, h0, M, B)[0]
