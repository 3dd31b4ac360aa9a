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
:math:`q_t = f_t q_{t-1} + (K u)_i + (K u)_f + (K u)_g`, :math:`p_t = (K u)_o + E_t q_t`, and the gradient's recurrence
once more, driven by :math:`\Omega^T \delta_{t+1}` and by the tangents of its factors, for which ``u`` and ``q`` are
kept from the way forward. The states and gates are kept, and no graph; sequences that begin alike are one until they
part.

Source: S. Hochreiter, J. Schmidhuber (1997), with forget gates; B. Pearlmutter (1994), section 4.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .dense import summed
from .lstm_back import Curves, GatedBack, Moved, curves_of, factors_of, quarters, tangent_of, way_back
from .prefixes import Prefixes, apart
from .products import FIRST, ROWS, along, no_third
from .reads import images, reads_of, sums


class Products:
    """What the products of one pass share, and what one of them hands from its way forward to its way back."""

    def __init__(self) -> None:
        self.back: GatedBack | None = None
        self.curves: Curves | None = None
        self.delta_t: Tensor | None = None
        self.moved: Moved | None = None


class _Cells(torch.autograd.Function):
    """``h`` and ``c`` of all rows, ``h`` of the last ones, and a signal.

    ``drive`` is ``d (rows, 4 n)``; with rows ``given (rows, p)`` it is the matrix ``U (4 n, p)`` of ``d = U given``.

    A cotangent of the signal says that the gradient was differentiated: what its tangent sends to the states is taken
    step by step on the way back, from what ``_Adjoint`` left.
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
        gates, room = torch.empty_like(drive), drive.new_empty(max(tree.sizes), len(R))
        h, c, R_t = h0, c0, R.mT.contiguous()
        parts = (drive, gates, states, memory, tau)
        for t, (d, a, h_t, c_t, tau_t) in enumerate(zip(*(tree.cut(part) for part in parts))):
            z = d if h is None else torch.add(tree.grown(t, h @ R_t), d, out=room[: len(d)])
            torch.sigmoid(z, out=a)
            i, f, g, o = quarters(a)
            torch.tanh(quarters(z)[2], out=g)
            torch.mul(i, g, out=c_t)
            if c is not None:
                c_t.addcmul_(f, tree.grown(t, c))
            torch.tanh(c_t, out=tau_t)
            torch.mul(o, tau_t, out=h_t)
            h, c = h_t, c_t
        ctx.set_materialize_grads(False)
        ctx.tree, ctx.given, ctx.products, ctx.known = tree, given, Products(), None
        signal = R.new_zeros(())
        ctx.save_for_backward(states, memory, signal, gates, tau, h0, c0, R)
        return states, memory, states[-tree.sizes[-1] :].clone(), signal

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        states, memory, signal, gates, tau, h0, c0, R = ctx.saved_tensors
        g_h, g_c, g_last, g_signal = grads
        tree, given, n = ctx.tree, ctx.given, R.shape[1]
        if ctx.known is None:  # once, for all products
            with torch.no_grad():
                reads = reads_of(tree, states, h0, given)
                ctx.known = factors_of(tree, gates, tau, memory, c0), reads, reads.mT.contiguous()
        factors, _, reads_t = ctx.known
        wanted = bool(ctx.needs_input_grad[5]), given is not None
        if torch.is_grad_enabled():
            if g_signal is not None:
                no_third(first_order=False)
            fixed = (tree, given is not None, wanted, ctx.known, gates, tau, ctx.products)
            return None, None, *_Adjoint.apply(fixed, g_h, g_c, g_last, signal, h0, c0, R)
        products: Products = ctx.products

        def run(g_h: Any, g_c: Any, g_last: Any, g_signal: Any) -> tuple[Tensor | None, ...]:
            moved, products.moved = (None if g_signal is None else products.moved), None
            back = way_back(tree, factors, (g_h, g_c, g_last), h0, R, moved)
            by_R, by_U = sums(reads_t, n, back.delta, 4 * n, wanted)
            return back.delta if given is None else by_U, back.first, back.first_c, by_R

        axes = (ROWS, ROWS, ROWS, FIRST)
        out_axes = (ROWS if given is None else FIRST, ROWS, ROWS, FIRST)
        return None, None, *along(run, axes, out_axes, g_h, g_c, g_last, g_signal)


class _Adjoint(torch.autograd.Function):
    """The gradient as a function of its cotangents, the start and ``R``; the states and what was kept belong to them.

    What a change sends to the states is left for the way back, which the signal starts.
    """

    @staticmethod
    def forward(ctx: Any, fixed: tuple[Any, ...], *tensors: Any) -> tuple[Tensor | None, ...]:
        tree, is_given, wanted, (factors, reads, reads_t), gates, tau, products = fixed
        g_h, g_c, g_last, _, h0, _, R = tensors
        if products.back is not None:
            raise NotImplementedError("one gradient of each pass is differentiable: run the model again for another")
        whole = (None if part is None else part.unsqueeze(ROWS) for part in (g_h, g_c, g_last))
        back = way_back(tree, factors, (*whole,), h0, R, kept=True)
        by_R, by_U = (
            None if part is None else part[0] for part in sums(reads_t, R.shape[1], back.delta, len(R), wanted)
        )
        out = by_U if is_given else back.delta[:, 0].clone()  # what goes out is not kept: no cycle
        products.back = back._replace(first=None, first_c=None)
        ctx.set_materialize_grads(False)
        ctx.tree, ctx.is_given, ctx.factors, ctx.reads, ctx.products = tree, is_given, factors, reads, products
        ctx.read = tuple(part is not None for part in (g_h, g_c, g_last))
        ctx.save_for_backward(gates, tau, R)
        return out, *(None if part is None else part[:, 0] for part in (back.first, back.first_c)), by_R

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        gates, tau, R = ctx.saved_tensors
        no_third(first_order=True)
        tree, is_given, factors, reads, products = ctx.tree, ctx.is_given, ctx.factors, ctx.reads, ctx.products
        if products.curves is None:
            products.curves = curves_of(tree, gates, tau, products.back, factors)
            products.delta_t = products.back.delta[:, 0].mT.contiguous()
        back, curves, delta_t, read = products.back, products.curves, products.delta_t, ctx.read

        def run(by_drive: Any, by_first: Any, by_first_c: Any, by_R: Any) -> tuple[Tensor | None, ...]:
            u = images(reads, R.shape[1], by_R, by_drive if is_given else None, len(R))
            if not is_given and by_drive is not None:
                u = by_drive.clone() if u is None else u.add_(by_drive)
            moved = tangent_of(tree, u, (by_first, by_first_c, by_R), factors, curves, back, R, read)
            products.moved = moved
            p, q, last = (part if needed else None for part, needed in zip((moved.p, moved.q, moved.last), read))
            to_R = summed(delta_t, moved.before.flatten(1)).unflatten(1, moved.before.shape[1:])
            return p, q, last, R.new_zeros(moved.q.shape[1]), to_R

        axes = (ROWS if is_given is False else FIRST, ROWS, ROWS, FIRST)
        to_h, to_c, to_last, to_signal, to_R = along(run, axes, (ROWS, ROWS, ROWS, FIRST, ROWS), *cotangents)
        return None, to_h, to_c, to_last, to_signal, None, None, to_R


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
    h, c, _ = cells(drive, h0, c0, R, tree)
    return h, c


def cells(
    drive: Tensor | tuple[Tensor, Tensor],
    h0: Tensor | None,
    c0: Tensor | None,
    R: Tensor,
    tree: Prefixes | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``lstm_states``, and ``h`` of the rows of the last time.

    Who reads that alone has the derivatives of nothing else to carry.
    """
    given, drive = (None, drive) if isinstance(drive, Tensor) else drive
    if tree is None:
        tree = apart(*drive.shape[:2])
        h, c, last, _ = _Cells.apply(tree, given, drive.flatten(0, 1), h0, c0, R)
        return tree.everywhere(h), tree.everywhere(c), last
    h, c, last, _ = _Cells.apply(tree, given, drive, h0, c0, R)
    return h, c, last
