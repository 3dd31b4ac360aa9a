r"""The LSTM cell over a whole sequence, its gradient, and the derivative of its gradient.

.. math:: (i, f, g, o)_t = \sigma, \sigma, \tanh, \sigma\,(R h_{t-1} + d_t), \qquad
          c_t = f_t c_{t-1} + i_t g_t, \qquad h_t = o_t \tau_t, \quad \tau_t = \tanh c_t .

With :math:`K = (g\,i', c_{t-1} f', i\,g', \tau\,o')`, primes for the slopes at ``z``, and :math:`E = o (1 - \tau^2)`
the gradient is the recurrence backward in time

.. math:: \lambda_t = g^h_t + R^T \delta_{t+1}, \quad
          \mu_t = g^c_t + f_{t+1} \mu_{t+1} + E_t \lambda_t, \quad
          \delta_t = K_t (\mu_t, \mu_t, \mu_t, \lambda_t) + g^z_t, \quad
          \nabla_R = \sum_t \delta_t h_{t-1}^T .

Its adjoint is the tangent of the states, :math:`u_t = R p_{t-1} + \Omega h_{t-1} + \omega_t`,
:math:`q_t = f_t q_{t-1} + (K u)_i + (K u)_f + (K u)_g`, :math:`p_t = (K u)_o + E_t q_t`. As for ``lure`` two of the six
products with ``R`` run step by step and the others take all times at once; the states and gates are kept, and no graph.

Source: S. Hochreiter, J. Schmidhuber (1997), with forget gates; B. Pearlmutter (1994), section 4.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .products import Source, earlier_product, no_third, rows


def _quarters(t: Tensor) -> tuple[Tensor, ...]:
    """Input, forget, candidate and output parts."""
    return t.chunk(4, dim=-1)


class _Cells(torch.autograd.Function):
    """``h``, ``c`` and the pre-activations of all times."""

    @staticmethod
    def forward(ctx: Any, drive: Tensor, h0: Tensor, c0: Tensor, R: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = torch.empty_like(drive)
        states, memory = (h0.new_empty(len(drive), *h0.shape) for _ in range(2))
        gates, tau = torch.empty_like(drive), torch.empty_like(memory)
        h, c, R_t = h0, c0, R.mT.contiguous()
        for d, z_t, a, h_t, c_t, tau_t in zip(drive, z, gates, states, memory, tau):
            torch.addmm(d, h, R_t, out=z_t)
            torch.sigmoid(z_t, out=a)
            i, f, g, o = _quarters(a)
            torch.tanh(_quarters(z_t)[2], out=g)
            torch.mul(f, c, out=c_t).addcmul_(i, g)
            torch.tanh(c_t, out=tau_t)
            torch.mul(o, tau_t, out=h_t)
            h, c = h_t, c_t
        ctx.set_materialize_grads(False)
        ctx.factors = None
        ctx.save_for_backward(states, memory, z, gates, tau, h0, c0, R)
        return states, memory, z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        states, memory, z, gates, tau, h0, c0, R = ctx.saved_tensors
        g_h, g_c, g_z = grads
        g_h = torch.zeros_like(states) if g_h is None else g_h
        if ctx.factors is None:  # once, for all products
            ctx.factors = _factors(gates, tau, memory, c0)
        constant = (bool(ctx.needs_input_grad[3]), ctx.factors, gates, tau)
        return _Adjoint.apply(constant, g_h, g_c, g_z, states, memory, z, h0, c0, R)


@torch.no_grad()
def _factors(gates: Tensor, tau: Tensor, memory: Tensor, c0: Tensor) -> tuple[Tensor, Tensor]:
    """``K (time, batch, 4 n)`` and ``E (time, batch, n)``."""
    i, _, g, o = _quarters(gates)
    K = gates - gates * gates
    k_i, k_f, k_g, k_o = _quarters(K)
    k_i.mul_(g)
    k_f[0].mul_(c0)
    k_f[1:].mul_(memory[:-1])
    torch.mul(i, 1.0 - g * g, out=k_g)
    k_o.mul_(tau)
    return K, (1.0 - tau * tau).mul_(o)


class _Adjoint(torch.autograd.Function):
    """The gradient as a function of ``g``, ``h``, ``c``, ``z``, ``R``; gates and ``tau`` belong to ``z`` and ``c``."""

    @staticmethod
    def forward(ctx: Any, constant: tuple[Any, ...], g_h: Tensor, *tensors: Any) -> tuple[Any, ...]:
        wanted, (K, E), gates, tau = constant
        g_c, g_z, states, memory, z, h0, c0, R = tensors
        forget = _quarters(gates)[1]
        delta, lam, mu = torch.empty_like(z), torch.empty_like(states), torch.empty_like(states)
        split = (4, states.shape[2])
        after = None
        parts = [*zip(lam, mu, delta, delta.unflatten(2, split), K.unflatten(2, split), E, g_h, forget)]
        for t, (l, m, d, by_gate, k, e_t, g_t, f_t) in reversed([*enumerate(parts)]):
            if after is None:
                l.copy_(g_t)
                torch.mul(e_t, l, out=m)
            else:
                torch.addmm(g_t, after[0], R, out=l)
                torch.mul(e_t, l, out=m).addcmul_(*after[1:])
            if g_c is not None:
                m.add_(g_c[t])
            torch.mul(k[:, :3], m[:, None], out=by_gate[:, :3])
            torch.mul(k[:, 3], l, out=by_gate[:, 3])
            if g_z is not None:
                d.add_(g_z[t])
            after = d, f_t, m
        ctx.set_materialize_grads(False)
        ctx.first_order, ctx.read_c, ctx.curves = g_z is None, g_c is not None, None
        ctx.save_for_backward(delta, lam, mu, K, E, gates, tau, states, memory, h0, c0, R)
        by_R = earlier_product(delta, states, h0) if wanted else None
        return delta, delta[0] @ R, mu[0] * forget[0], by_R

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        delta, lam, mu, K, E, gates, tau, states, memory, h0, c0, R = ctx.saved_tensors
        no_third(ctx.first_order)
        by_drive, by_h0, by_c0, by_R = cotangents
        if ctx.curves is None:
            ctx.curves = _curves(gates, tau, lam, mu, memory, c0)
        source = Source(states, h0, by_R, by_drive)
        tangent, inner, bent = _tangent(source, (K, E, _quarters(gates)[1]), ctx.curves, R, by_h0, by_c0)
        to_z, to_memory, to_c0 = bent
        to_states = to_h0 = None
        if by_R is not None:
            to_states = torch.empty_like(states)
            torch.mm(rows(delta[1:]), by_R, out=rows(to_states[:-1]))
            to_states[-1], to_h0 = 0.0, delta[0] @ by_R
        to_R = earlier_product(delta, tangent, torch.zeros_like(h0) if by_h0 is None else by_h0)
        return None, tangent, inner if ctx.read_c else None, None, to_states, to_memory, to_z, to_h0, to_c0, to_R


def _tangent(
    source: Source,
    factors: tuple[Tensor, Tensor, Tensor],
    curves: tuple[Tensor, Tensor, Tensor],
    R: Tensor,
    h: Tensor | None,
    c: Tensor | None,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """``p_t`` and ``q_t`` for all t, and what the curvature of gates and ``tau`` sends to ``z``, ``c`` and ``c0``.

    ``u_t`` is at hand during its step alone.
    """
    (K, E, forget), (own, other, of_tau) = factors, curves
    tangent, inner, to_z, to_memory = (torch.empty_like(like) for like in (E, E, K, E))
    to_c0 = torch.empty_like(E[0])
    R_t, scaled, u = R.mT.contiguous(), torch.empty_like(K[0]), torch.empty_like(K[0])
    k_i, k_f, k_g, k_o = _quarters(scaled)
    u_i, u_f, u_g, u_o = _quarters(u)
    for t, (p, q, k, e_t, f_t, z, m) in enumerate(zip(tangent, inner, K, E, forget, to_z, to_memory)):
        source.into(t, u)
        if h is not None:
            u.addmm_(h, R_t)
        torch.mul(u, k, out=scaled)
        torch.add(k_i, k_f, out=q).add_(k_g)
        if c is not None:
            q.addcmul_(f_t, c)
        torch.addcmul(k_o, e_t, q, out=p)
        torch.mul(own[t], u, out=z)
        z_i, z_f, z_g, z_o = _quarters(z)
        o_i, o_f, _, o_o = _quarters(other[t])
        z_i.addcmul_(o_i, u_g)
        z_g.addcmul_(o_i, u_i)
        z_o.addcmul_(o_o, q)
        if c is not None:
            z_f.addcmul_(o_f, c)
        torch.mul(of_tau[t], q, out=m).addcmul_(o_o, u_o)
        if t:
            to_memory[t - 1].addcmul_(o_f, u_f)
        else:
            torch.mul(o_f, u_f, out=to_c0)
        h, c = p, q
    return tangent, inner, (to_z, to_memory, to_c0)


def _curves(
    gates: Tensor, tau: Tensor, lam: Tensor, mu: Tensor, memory: Tensor, c0: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Factors of the curvature: of ``z`` with its gate's ``u``; of ``z`` and ``c`` with others; of ``c`` with ``q``."""
    i, f, g, o = _quarters(gates)
    own, other = torch.empty_like(gates), torch.empty_like(gates)
    slopes = gates - gates * gates
    di, df, _, do = _quarters(slopes)
    dg, dtau, before = 1.0 - g * g, 1.0 - tau * tau, torch.cat([c0[None], memory[:-1]])
    for out, value in zip(
        _quarters(own),
        (mu * g * di * (1 - 2 * i), mu * before * df * (1 - 2 * f), -2 * mu * i * g * dg, lam * tau * do * (1 - 2 * o)),
    ):
        out.copy_(value)
    for out, value in zip(_quarters(other), (mu * di * dg, mu * df, mu * di * dg, lam * dtau * do)):
        out.copy_(value)
    return own, other, -2 * lam * o * tau * dtau


def lstm_states(drive: Tensor, h0: Tensor, c0: Tensor, R: Tensor) -> tuple[Tensor, Tensor]:
    """All states of the cell, differentiable twice and no further.

    Args:
        drive: ``(time, batch, 4 n)``: input, forget, candidate and output gate, in ``torch.nn``'s order.
        h0: ``(batch, n)``.
        c0: ``(batch, n)``.
        R: ``(4 n, n)``.

    Returns:
        ``h`` and ``c``, ``(time, batch, n)``.

    Example:
        >>> drive = torch.zeros(3, 1, 4)
        >>> h, c = lstm_states(drive, torch.zeros(1, 1), torch.ones(1, 1), torch.zeros(4, 1))
        >>> c.flatten()
        tensor([0.5000, 0.2500, 0.1250])
    """
    h, c, _ = _Cells.apply(drive, h0, c0, R)
    return h, c
