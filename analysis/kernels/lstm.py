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
:math:`q_t = f_t q_{t-1} + (K u)_i + (K u)_f + (K u)_g`, :math:`p_t = (K u)_o + E_t q_t`. As for ``lure`` all products
with ``R`` run step by step, while what is multiplied is at hand; the states and gates are kept, and no graph; sequences
that begin alike are one until they part.

Source: S. Hochreiter, J. Schmidhuber (1997), with forget gates; B. Pearlmutter (1994), section 4.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .lstm_back import curves_of, factors_of, quarters, tangent_of, way_back
from .prefixes import Prefixes, apart
from .products import FIRST, ROWS, along, no_third


class _Cells(torch.autograd.Function):
    """``h``, ``c`` and the pre-activations of all rows, and zeros in the shape of ``R``.

    ``drive`` is ``d (rows, 4 n)``; with rows ``given (rows, p)`` it is the matrix ``U (4 n, p)`` of ``d = U given``,
    whose gradient is added up while ``delta`` is at hand.

    A cotangent of those zeros is the change of ``R`` that the gradient was differentiated along: what it sends to the
    states is not written down for all times, but taken step by step on the way back.
    """

    @staticmethod
    def forward(
        ctx: Any,
        tree: Prefixes,
        given: Tensor | None,
        drive: Tensor,
        h0: Tensor | None,
        c0: Tensor | None,
        R: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        drive = drive if given is None else given @ drive.mT
        states, memory, tau = (drive.new_empty(len(drive), R.shape[1]) for _ in range(3))
        z, gates = torch.empty_like(drive), torch.empty_like(drive)
        h, c, R_t = h0, c0, R.mT.contiguous()
        parts = (drive, z, gates, states, memory, tau)
        for t, (d, z_t, a, h_t, c_t, tau_t) in enumerate(zip(*(tree.cut(part) for part in parts))):
            z_t.copy_(d) if h is None else torch.add(tree.grown(t, h @ R_t), d, out=z_t)
            torch.sigmoid(z_t, out=a)
            i, f, g, o = quarters(a)
            torch.tanh(quarters(z_t)[2], out=g)
            torch.mul(i, g, out=c_t)
            if c is not None:
                c_t.addcmul_(f, tree.grown(t, c))
            torch.tanh(c_t, out=tau_t)
            torch.mul(o, tau_t, out=h_t)
            h, c = h_t, c_t
        ctx.set_materialize_grads(False)
        ctx.tree, ctx.given, ctx.differentiated, ctx.factors = tree, given, [], None
        still = torch.zeros_like(R)
        ctx.save_for_backward(states, memory, z, still, gates, tau, h0, c0, R)
        return states, memory, z, still

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        states, memory, z, still, gates, tau, h0, c0, R = ctx.saved_tensors
        g_h, g_c, g_z, turned = grads
        tree, given = ctx.tree, ctx.given
        if ctx.factors is None:  # once, for all products
            ctx.factors = factors_of(tree, gates, tau, memory, c0)
        wanted = bool(ctx.needs_input_grad[5])
        if torch.is_grad_enabled():
            if g_z is not None or turned is not None:
                no_third(first_order=False)
            fixed = (tree, given, wanted, ctx.factors, gates, tau, ctx.differentiated)
            return None, None, *_Adjoint.apply(fixed, g_h, g_c, states, memory, z, still, h0, c0, R)
        factors = ctx.factors

        def run(g_h: Any, g_c: Any, g_z: Any, turned: Any) -> tuple[Tensor | None, ...]:
            also = None if turned is None else (ctx.differentiated[0], turned)
            back = way_back(tree, factors, (g_h, g_c, g_z), (states, h0, given), (R, wanted), also)
            return back.by_drive, back.first, back.first_c, back.by_R

        axes = (ROWS, ROWS, ROWS, FIRST)
        out_axes = (ROWS if given is None else FIRST, ROWS, ROWS, FIRST)
        return None, None, *along(run, axes, out_axes, g_h, g_c, g_z, turned)


class _Adjoint(torch.autograd.Function):
    """The gradient as a function of its cotangents, ``c``, ``z``, the start and ``R``; what was kept belongs to them.

    The states are held: what a change of ``R`` sends to them goes back as a cotangent of the zeros beside them.
    """

    @staticmethod
    def forward(ctx: Any, fixed: tuple[Any, ...], *tensors: Any) -> tuple[Tensor | None, ...]:
        tree, given, wanted, factors, gates, tau, differentiated = fixed
        g_h, g_c, states, _, _, _, h0, _, R = tensors
        if differentiated:
            raise NotImplementedError("one gradient of each pass is differentiable: run the model again for another")
        whole = (None if part is None else part.unsqueeze(ROWS) for part in (g_h, g_c, None))
        back = way_back(tree, factors, (*whole,), (states, h0, given), (R, wanted), kept=True)
        # what goes out is not kept: no cycle
        out = back.by_drive[:, 0].clone() if given is None else back.by_drive[0]
        back = back._replace(by_drive=out.new_empty(0))
        differentiated.append(back)
        ctx.set_materialize_grads(False)
        ctx.tree, ctx.given, ctx.back, ctx.factors, ctx.curves = tree, given, back, factors, None
        ctx.read = (g_h is not None, g_c is not None)
        ctx.save_for_backward(gates, tau, states, h0, R)
        first = (None if part is None else part[:, 0] for part in (back.first, back.first_c))
        return out, *first, None if back.by_R is None else back.by_R[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        gates, tau, states, h0, R = ctx.saved_tensors
        no_third(first_order=True)
        tree, given, back, factors = ctx.tree, ctx.given, ctx.back, ctx.factors
        if ctx.curves is None:
            ctx.curves = curves_of(tree, gates, tau, back, factors)
        curves, read = ctx.curves, ctx.read

        def run(by_drive: Tensor | None, *rest: Tensor | None) -> tuple[Tensor | None, ...]:
            pulse = by_drive if given is None or by_drive is None else (given, by_drive)
            moved = tangent_of(tree, pulse, rest, (states, h0), factors, curves, back, R, read)
            to_g = moved.p if read[0] else None, moved.q if read[1] else None
            return *to_g, moved.to_memory, moved.to_z, moved.to_c0, moved.to_R

        axes = (ROWS if given is None else FIRST, ROWS, ROWS, FIRST)
        *to_g, to_memory, to_z, to_c0, to_R = along(run, axes, (ROWS,) * 6, *cotangents)
        return None, *to_g, None, to_memory, to_z, cotangents[3], None, to_c0, to_R


def lstm_states(
    drive: Tensor | tuple[Tensor, Tensor],
    h0: Tensor | None,
    c0: Tensor | None,
    R: Tensor,
    tree: Prefixes | None = None,
) -> tuple[Tensor, Tensor]:
    """All states of the cell, differentiable twice and no further.

    Args:
        drive: ``(time, batch, 4 n)``: input, forget, candidate and output gate, in ``torch.nn``'s order; with a tree
            ``(rows, 4 n)``, or ``(rows, p)`` that no derivative is taken by and the matrix ``U (4 n, p)`` that they
            come in through.
        h0: ``(rows of the start, n)``; ``None`` for zero.
        c0: likewise.
        R: ``(4 n, n)``.
        tree: which sequences are one, and for how long; ``None``: each for itself.

    Returns:
        ``h`` and ``c``, ``(time, batch, n)``; with a tree ``(rows, n)``.

    Example:
        >>> drive = torch.zeros(3, 1, 4)
        >>> h, c = lstm_states(drive, torch.zeros(1, 1), torch.ones(1, 1), torch.zeros(4, 1))
        >>> c.flatten()
        tensor([0.5000, 0.2500, 0.1250])
    """
    given, drive = (None, drive) if isinstance(drive, Tensor) else drive
    if tree is None:
        tree = apart(*drive.shape[:2])
        h, c, *_ = _Cells.apply(tree, given, drive.flatten(0, 1), h0, c0, R)
        return tree.everywhere(h), tree.everywhere(c)
    h, c, *_ = _Cells.apply(tree, given, drive, h0, c0, R)
    return h, c
