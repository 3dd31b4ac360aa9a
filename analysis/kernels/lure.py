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

A Hessian-vector product is this recurrence forward and the gradient's once more backward, driven by
:math:`\Omega^T e_{t+1}` too. The states are kept, and no graph; sequences that begin alike are one until they part.

Source: B. Pearlmutter, "Fast exact multiplication by the Hessian", Neural Computation 6 (1994), section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .activate import activate_
from .back import Back, Map, Sums, bend_of, slope_of, stepped_by, way_back
from .prefixes import Prefixes, apart, pulses_of
from .products import FIRST, ROWS, along, image_of, no_third


class _Steps(torch.autograd.Function):
    """States, the last of them, pre-activations ``z``, and zeros in the shape of ``M``.

    ``drive`` is ``d (rows, m)``; with rows ``given (rows, p)`` it is the matrix ``U (m, p)`` of ``d = U given``, whose
    gradient is added up while ``delta`` is at hand.

    A cotangent of those zeros is the change of ``M`` that the gradient was differentiated along: what it sends to the
    states is not written down for all times, but taken step by step on the way back.
    """

    @staticmethod
    def forward(
        ctx: Any,
        kind: Map,
        tree: Prefixes,
        given: Tensor | None,
        drive: Tensor,
        h0: Tensor | None,
        M: Tensor,
        B: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        drive = drive if given is None else given @ drive.mT
        n, m = M.shape[1], drive.shape[1]
        states, z, channels = drive.new_empty(len(drive), n), torch.empty_like(drive), torch.empty_like(drive)
        h, M_t = h0, M.mT.contiguous()
        for t, (d, z_t, c, out) in enumerate(zip(*(tree.cut(part) for part in (drive, z, channels, states)))):
            image = None if h is None else tree.grown(t, h @ M_t)
            z_t.copy_(d) if image is None else torch.add(image[:, -m:], d, out=z_t)
            activate_(kind.activation, c.copy_(z_t))
            if B is None:
                torch.mul(c, kind.length, out=out)
            else:
                torch.mm(c, B.mT, out=out)
            if image is not None and len(M) > m:
                out.add_(image[:, :n])
            if kind.keep and h is not None:  # last: a small damping is not rounded away
                out.add_(tree.grown(t, h))
            h = out
        ctx.set_materialize_grads(False)
        ctx.kind, ctx.tree, ctx.given, ctx.differentiated = kind, tree, given, []
        still = torch.zeros_like(M)
        ctx.save_for_backward(states, z, still, channels, slope_of(kind.activation, channels), h0, M, B)
        return states, states[-tree.sizes[-1] :].clone(), z, still

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        states, z, still, channels, slope, h0, M, B = ctx.saved_tensors
        g, g_last, g_z, turned = grads
        wanted = [part if needed else None for part, needed in zip((M, B), ctx.needs_input_grad[5:])]
        if torch.is_grad_enabled():
            if g_z is not None or turned is not None:
                no_third(first_order=False)
            fixed = (ctx.kind, ctx.tree, ctx.given, wanted, ctx.differentiated)
            return None, None, None, *_Adjoint.apply(fixed, channels, slope, g, g_last, states, z, still, h0, M, B)
        kind, tree, given = ctx.kind, ctx.tree, ctx.given

        def run(g: Any, g_last: Any, g_z: Any, turned: Any) -> tuple[Tensor | None, ...]:
            count = next(part.shape[axis] for part, axis in zip((g, g_last, g_z, turned), axes) if part is not None)
            also = None if turned is None else (ctx.differentiated[0], turned)
            sums = Sums(states, h0, channels, given, wanted, count)
            back = way_back(kind, tree, slope, (g, g_last, g_z), (h0 is not None, M, B), sums, also)
            return back.delta if sums.by_U is None else sums.by_U, back.first, sums.by_M, sums.by_B

        axes = (ROWS, ROWS, ROWS, FIRST)
        out_axes = (ROWS if given is None else FIRST, ROWS, FIRST, FIRST)
        return None, None, None, *along(run, axes, out_axes, g, g_last, g_z, turned)


class _Adjoint(torch.autograd.Function):
    """The gradient as a function of its cotangents, ``z``, ``h_0`` and the matrices; channels and slopes belong to z.

    The states are held: what a change of ``M`` sends to them goes back as a cotangent of the zeros beside them.
    """

    @staticmethod
    def forward(ctx: Any, fixed: tuple[Any, ...], *tensors: Any) -> tuple[Tensor | None, ...]:
        kind, tree, given, wanted, differentiated = fixed
        channels, slope, g, g_last, states, _, _, h0, M, B = tensors
        if differentiated:
            raise NotImplementedError("one gradient of each pass is differentiable: run the model again for another")
        sums = Sums(states, h0, channels, given, wanted, 1)
        whole = (None if part is None else part.unsqueeze(ROWS) for part in (g, g_last, None))
        back = way_back(kind, tree, slope, (*whole,), (h0 is not None, M, B), sums, kept=True)
        if sums.by_U is not None:
            first_grad = sums.by_U[0]
        else:
            first_grad = back.delta[:, 0]
            if len(M) == slope.shape[1]:  # what goes out is not kept: no cycle
                first_grad = first_grad.clone()
        back = back._replace(delta=back.delta.new_empty(0))
        differentiated.append(back)
        ctx.set_materialize_grads(False)
        ctx.kind, ctx.tree, ctx.given, ctx.back, ctx.curve = kind, tree, given, back, None
        ctx.read = g is not None, g_last is not None
        ctx.save_for_backward(channels, slope, states, h0, M, B)
        first = None if back.first is None else back.first[:, 0]
        return first_grad, first, *(None if part is None else part[0] for part in (sums.by_M, sums.by_B))

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        kind: Map = ctx.kind
        tree: Prefixes = ctx.tree
        back: Back = ctx.back
        given: Tensor | None = ctx.given
        channels, slope, states, h0, M, B = ctx.saved_tensors
        no_third(first_order=True)
        if ctx.curve is None and (bend := bend_of(kind.activation, channels)) is not None:
            ctx.curve = bend.mul_(back.steep[:, 0]).mul_(kind.length if B is None else 1.0)
        read, curve = ctx.read, ctx.curve

        def run(by_drive: Any, by_first: Any, by_M: Any, by_B: Any) -> tuple[Tensor | None, ...]:
            count = next(
                part.shape[axis] for part, axis in zip((by_drive, by_first, by_M, by_B), axes) if part is not None
            )
            pulse = by_drive if given is None or by_drive is None else (given, by_drive)
            moved = Moved(pulse, by_first, by_M, None if by_B is None else (channels, by_B))
            to_M = M.new_zeros(len(M), count, M.shape[1])
            room = slope.new_empty(2, max(tree.sizes), *to_M.shape[1:])  # where nobody asks for it but the next step
            tangent = slope.new_empty(len(slope), *to_M.shape[1:]) if read[0] else None
            ps = [room[t % 2, :size] for t, size in enumerate(tree.sizes)] if tangent is None else tree.cut(tangent)
            turned, to_z = _tangent(kind, tree, (states, h0), moved, (slope, curve), (back, to_M), (M, B), ps)
            if by_B is not None:
                pulled = (back.lam[:, 0] @ by_B.movedim(0, 1).flatten(1)).unflatten(1, (count, -1))
                to_z = pulled.mul_(slope[:, None]) if to_z is None else to_z.addcmul_(pulled, slope[:, None])
            to_B = None if turned is None else (back.lam[:, 0].mT @ turned.flatten(1)).unflatten(1, (count, -1))
            return tangent, ps[-1] if read[1] else None, to_z, to_M, to_B

        axes = (ROWS if given is None else FIRST, ROWS, FIRST, FIRST)
        tangent, to_last, to_z, to_M, to_B = along(run, axes, (ROWS,) * 5, *cotangents)
        return None, None, None, tangent, to_last, None, to_z, cotangents[2], None, to_M, to_B


class Moved(NamedTuple):
    """What a gradient is differentiated along, in k directions.

    Attributes:
        pulse: ``omega``, ``(rows, k, m)``, or what drives ``(rows, p)`` and the change ``(k, m, p)`` of ``U``; or none.
        start: change of ``h_0``; or none.
        of_M: ``Omega``, ``(k, rows of M, n)``; or none.
        of_B: the channels, and the change of ``B``; or none.
    """

    pulse: Tensor | tuple[Tensor, Tensor] | None
    start: Tensor | None
    of_M: Tensor | None
    of_B: tuple[Tensor, Tensor] | None


def _tangent(
    kind: Map,
    tree: Prefixes,
    seen: tuple[Tensor, Tensor | None],
    moved: Moved,
    factors: tuple[Tensor, Tensor | None],
    onto: tuple[Back, Tensor],
    matrices: tuple[Tensor, Tensor | None],
    ps: Sequence[Tensor],
) -> tuple[Tensor | None, Tensor | None]:
    """Write ``p_t`` into ``ps``; ``phi' u`` where there is a ``B``, and what the activation's curvature sends to ``z``.

    ``u_t`` is at hand during its step alone; ``e_{t+1} p_t^T`` is added to the second part of ``onto``. The channels
    times the change of ``B`` are added to ``p`` by way of the part of ``A`` where there is one.
    """
    (slope, curve), (M, B) = factors, matrices
    m, n, k = slope.shape[1], M.shape[1], onto[1].shape[1]
    stepped, keep = stepped_by(kind, M, m)
    M_t, turn = stepped.mT.contiguous(), None if moved.of_M is None else moved.of_M.flatten(0, 1).mT.contiguous()
    turned = None if B is None else slope.new_empty(len(slope), k, m)
    to_z = None if curve is None else slope.new_empty(len(slope), k, m)
    drive = pulses_of(tree, moved.pulse)
    states, channels, curves, turneds, to_zs = (
        None if part is None else tree.cut(part)
        for part in (seen[0], None if moved.of_B is None else moved.of_B[0], curve, turned, to_z)
    )
    assert states is not None
    by_B = None if moved.of_B is None else moved.of_B[1].flatten(0, 1).mT.contiguous()
    room, to_M = slope.new_empty(max(tree.sizes), k, len(M)), onto[1].flatten(1)
    h, p, earlier = seen[1], moved.start, [onto[0].start, *onto[0].later]
    for t, (s_t, out) in enumerate(zip(tree.cut(slope), ps)):
        if p is not None:
            to_M.addmm_(earlier[t].mT, p.flatten(1))
        u = image_of(h, turn, p, M_t, room)
        u = slope.new_zeros(len(s_t), k, len(M)) if u is None else tree.grown(t, u)
        linear, v = u[..., :n] if len(M) > m else None, u[..., -m:]
        s_t = s_t[:, None]
        drive(t, u, v)
        if channels is not None and by_B is not None:
            more = (channels[t] @ by_B).unflatten(1, (k, n))
            linear = more if linear is None else linear.add_(more)
        if keep and p is not None:
            before = tree.grown(t, p)
            linear = before if linear is None else linear.add_(before)
        _step((v, s_t), linear, kind.length if B is None else B, None if turneds is None else turneds[t], out)
        if curves is not None and to_zs is not None:
            torch.mul(curves[t][:, None], v, out=to_zs[t])
        h, p = states[t], out
    return turned, to_z


def _step(
    steep: tuple[Tensor, Tensor], linear: Tensor | None, B: Tensor | float, turned: Tensor | None, out: Tensor
) -> None:
    """Write ``linear + B (v s)``, with ``v s`` into ``turned`` where ``B`` is a matrix."""
    v, s = steep
    if not isinstance(B, Tensor):
        torch.mul(v, s, out=out).mul_(B) if linear is None else torch.addcmul(linear, v, s, value=B, out=out)
        return
    assert turned is not None
    scaled, flat = torch.mul(v, s, out=turned).flatten(0, 1), out.flatten(0, 1)
    torch.mm(scaled, B.mT, out=flat) if linear is None else torch.addmm(linear.flatten(0, 1), scaled, B.mT, out=flat)


def lure_states(
    kind: Map,
    drive: Tensor | tuple[Tensor, Tensor],
    h0: Tensor | None,
    W: Tensor,
    A: Tensor | None = None,
    B: Tensor | None = None,
    tree: Prefixes | None = None,
) -> tuple[Tensor, Tensor]:
    """All states of the recurrence, and the last ones, differentiable twice and no further.

    Args:
        kind: activation, and how a step enters the state.
        drive: ``(time, batch, m)``; with a tree ``(rows, m)``, or ``(rows, p)`` that no derivative is taken by and the
            matrix ``U (m, p)`` that they come in through.
        h0: ``(rows of the start, n)``; ``None`` for zero.
        W: ``(m, n)``.
        A: ``(n, n)``, or none.
        B: ``(n, m)``, or none: ``kind.length`` times the identity.
        tree: which sequences are one, and for how long; ``None``: each for itself.

    Returns:
        Like ``drive``: ``(time, batch, n)`` and ``(batch, n)``; with a tree ``(rows, n)`` and the rows of the last
        time.

    Example:
        >>> W = torch.full((1, 1), 0.5, dtype=torch.float64, requires_grad=True)
        >>> drive = torch.zeros(2, 1, 1, dtype=torch.float64)
        >>> h = lure_states(Map("relu"), drive, torch.ones(1, 1, dtype=torch.float64), W)[1].sum()  # W^2
        >>> (g,) = torch.autograd.grad(h, W, create_graph=True)
        >>> g.item(), torch.autograd.grad(g.sum(), W)[0].item()
        (1.0, 2.0)
    """
    M = W if A is None else torch.cat([A, W])
    given, U = (None, drive) if isinstance(drive, Tensor) else drive
    if tree is None:
        tree = apart(*U.shape[:2])
        states, last, *_ = _Steps.apply(kind, tree, None, U.flatten(0, 1), h0, M, B)
        return tree.everywhere(states), last
    states, last, *_ = _Steps.apply(kind, tree, given, U, h0, M, B)
    return states, last
