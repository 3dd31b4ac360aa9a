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
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from .activate import activate_
from .back import Back, Map, bend_of, side_by_side, steepness, stepped_by, way_back
from .dense import add_image, image, summed
from .prefixes import Prefixes, apart
from .products import FIRST, ROWS, along, no_third
from .reads import images, reads_of, sums


class _Kept:
    """What the passes over one sequence share: what a step reads, by rows and transposed, and the first way back."""

    def __init__(self, tree: Prefixes, given: Tensor | None) -> None:
        self.tree, self.given = tree, given
        self.back: Back | None = None
        self._reads: tuple[Tensor, Tensor] | None = None
        self._e: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def reads(self, states: Tensor, h0: Tensor | None) -> tuple[Tensor, Tensor]:
        """``(h_{t-1}, x_t)``, ``(rows, n + p)``, and the same transposed."""
        if self._reads is None:
            rows = reads_of(self.tree, states, h0, self.given)
            self._reads = rows, rows.mT.contiguous()
        return self._reads

    def e(self) -> tuple[Tensor, Tensor]:
        """``e_t`` of the first way back, ``(rows, rows of M)``, and the same transposed."""
        assert self.back is not None
        if self._e is None:
            rows = self.back.e[:, 0]
            self._e = rows, rows.mT.contiguous()
        return self._e


class _Steps(torch.autograd.Function):
    """States, the last of them, pre-activations ``z``, and zeros in the shape of ``M``.

    ``drive`` is ``d (rows, m)``; with rows ``given (rows, p)`` it is the matrix ``U (m, p)`` of ``d = U given``.

    A cotangent of those zeros is the change of ``M`` that the gradient was differentiated along: what it sends to the
    states joins them on the way back.
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
            moved = None if h is None else tree.grown(t, h @ M_t)
            z_t.copy_(d) if moved is None else torch.add(moved[:, -m:], d, out=z_t)
            activate_(kind.activation, c.copy_(z_t))
            if B is None:
                torch.mul(c, kind.length, out=out)
            else:
                torch.mm(c, B.mT, out=out)
            if moved is not None and len(M) > m:
                out.add_(moved[:, :n])
            if kind.keep and h is not None:  # last: a small damping is not rounded away
                out.add_(tree.grown(t, h))
            h = out
        ctx.set_materialize_grads(False)
        ctx.kind, ctx.kept = kind, _Kept(tree, given)
        still = torch.zeros_like(M)
        ctx.save_for_backward(states, z, still, channels, steepness(kind, channels, B is not None), h0, M, B)
        return states, states[-tree.sizes[-1] :].clone(), z, still

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        states, z, still, channels, slope, h0, M, B = ctx.saved_tensors
        g, g_last, g_z, turned = grads
        wanted = tuple(ctx.needs_input_grad[5:])
        if torch.is_grad_enabled():
            if g_z is not None or turned is not None:
                no_third(first_order=False)
            fixed = (ctx.kind, ctx.kept, wanted, channels, slope)
            return None, None, None, *_Adjoint.apply(fixed, g, g_last, states, z, still, h0, M, B)
        kept: _Kept = ctx.kept

        def run(g: Any, g_last: Any, g_z: Any, turned: Any) -> tuple[Tensor | None, ...]:
            sent = None if turned is None else image(kept.e()[0], side_by_side(turned)).unflatten(1, (len(turned), -1))
            back = way_back(ctx.kind, kept.tree, slope, (g, g_last, g_z), (h0 is not None, M, B), sent)
            return _gradients(kept, back, (states, h0, channels), wanted)

        axes = (ROWS, ROWS, ROWS, FIRST)
        out_axes = (ROWS if kept.given is None else FIRST, ROWS, FIRST, FIRST)
        return None, None, None, *along(run, axes, out_axes, g, g_last, g_z, turned)


def _gradients(
    kept: _Kept, back: Back, seen: tuple[Tensor, Tensor | None, Tensor], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """By drive, start and matrices, in k directions, as a way back gives them."""
    states, h0, channels = seen
    is_given, n, m = kept.given is not None, states.shape[1], channels.shape[1]
    by_M, by_U = sums(kept.reads(states, h0)[1], n, back.e, m, (wanted[0], is_given))
    by_B = (back.lam.flatten(1).mT @ channels).unflatten(0, back.lam.shape[1:]) if wanted[1] else None
    return back.e[..., -m:] if by_U is None else by_U, back.first, by_M, by_B


class _Adjoint(torch.autograd.Function):
    """The gradient as a function of its cotangents, ``z``, ``h_0`` and the matrices; channels and slopes belong to z.

    The states are held: what a change of ``M`` sends to them goes back as a cotangent of the zeros beside them.
    """

    @staticmethod
    def forward(ctx: Any, fixed: tuple[Any, ...], *tensors: Any) -> tuple[Tensor | None, ...]:
        kind, kept, wanted, channels, slope = fixed
        g, g_last, states, _, _, h0, M, B = tensors
        if kept.back is not None:
            raise NotImplementedError("one gradient of each pass is differentiable: run the model again for another")
        whole = (None if part is None else part.unsqueeze(ROWS) for part in (g, g_last, None))
        back = way_back(kind, kept.tree, slope, (*whole,), (h0 is not None, M, B))
        drive, first, by_M, by_B = _gradients(kept, back, (states, h0, channels), wanted)
        assert drive is not None
        kept.back = back._replace(first=None)
        ctx.set_materialize_grads(False)
        ctx.kind, ctx.kept, ctx.curve = kind, kept, None
        ctx.read = g is not None, g_last is not None
        ctx.save_for_backward(channels, slope, states, h0, M, B)
        drive = drive[:, 0].clone() if kept.given is None else drive[0]  # what goes out is not kept: no cycle
        return (
            drive,
            None if first is None else first[:, 0],
            *(None if part is None else part[0] for part in (by_M, by_B)),
        )

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        kind: Map = ctx.kind
        kept: _Kept = ctx.kept
        channels, slope, states, h0, M, B = ctx.saved_tensors
        no_third(first_order=True)
        back = cast(Back, kept.back)
        if ctx.curve is None and (bend := bend_of(kind.activation, channels)) is not None:
            ctx.curve = bend.mul_(back.steep[:, 0]).mul_(kind.length if B is None else 1.0)
        read, curve = ctx.read, ctx.curve
        axes = (ROWS if kept.given is None else FIRST, ROWS, FIRST, FIRST)

        def run(by_drive: Any, by_first: Any, by_M: Any, by_B: Any) -> tuple[Tensor | None, ...]:
            given = (by_drive, by_first, by_M, by_B)
            count = next(part.shape[axis] for part, axis in zip(given, axes) if part is not None)
            is_given = kept.given is not None
            u = images(kept.reads(states, h0)[0], M.shape[1], by_M, by_drive if is_given else None, len(M))
            u = slope.new_zeros(len(slope), count, len(M)) if u is None else u
            v = u[..., -slope.shape[1] :]
            if not is_given and by_drive is not None:
                v.add_(by_drive)
            more = None if by_B is None else image(channels, by_B.flatten(0, 1)).unflatten(1, by_B.shape[:2])
            p = _tangent(kind, kept.tree, (u, slope, more), by_first, (M, B), read[0])
            to_z = None if curve is None else torch.mul(curve[:, None], v)
            if by_B is not None:
                pulled = (back.lam[:, 0] @ by_B.movedim(0, 1).flatten(1)).unflatten(1, (count, -1))
                to_z = pulled.mul_(slope[:, None]) if to_z is None else to_z.addcmul_(pulled, slope[:, None])
            to_M = summed(kept.e()[1], p.before.flatten(1)).unflatten(1, (count, -1))
            to_B = None if p.turned is None else (back.lam[:, 0].mT @ p.turned.flatten(1)).unflatten(1, (count, -1))
            return p.states, p.last if read[1] else None, to_z, to_M, to_B

        tangent, to_last, to_z, to_M, to_B = along(run, axes, (ROWS,) * 5, *cotangents)
        return None, tangent, to_last, None, to_z, cotangents[2], None, to_M, to_B


class _Tangent(NamedTuple):
    """``p``: of the state before each row, of all states if they are asked for, of the last; ``phi' u`` for a ``B``."""

    before: Tensor
    states: Tensor | None
    last: Tensor
    turned: Tensor | None


def _tangent(
    kind: Map,
    tree: Prefixes,
    factors: tuple[Tensor, Tensor, Tensor | None],
    start: Tensor | None,
    matrices: tuple[Tensor, Tensor | None],
    everywhere: bool,
) -> _Tangent:
    """The tangent of the states in k directions.

    Args:
        kind: of the step.
        tree: rows of each time.
        factors: what changes of ``M`` and of the drive send to each row, ``(rows, k, rows of M)``, to which ``M p`` is
            added; the slopes; what a change of ``B`` sends to the state, or none.
        start: change of ``h_0``, or none.
        matrices: ``M`` and ``B``.
        everywhere: whether all states' are asked for.
    """
    (u, slope, more), (M, B) = factors, matrices
    (k, size), (m, n) = u.shape[1:], (slope.shape[1], M.shape[1])
    stepped, keep = stepped_by(kind, M, m)
    before = slope.new_empty(len(slope), k, n)
    states = slope.new_empty(len(slope), k, n) if everywhere else None
    befores = tree.cut(before)
    outs = _homes(tree, befores) if states is None else tree.cut(states)
    turned = None if B is None else slope.new_empty(len(slope), k, m)
    linear = u[..., :n] if size > m else more
    if linear is not None and more is not None and linear is not more:
        linear.add_(more)
    none = [None] * len(tree.sizes)
    linears, turneds = (none if part is None else tree.cut(part) for part in (linear, turned))
    parts = (tree.flat(u), tree.flat(before), tree.cut(u[..., -m:]), tree.cut(slope[:, None]))
    p, M_t = start, stepped.mT.contiguous()
    for t, (u_t, flat, v, s, b, l, w, out) in enumerate(zip(*parts, befores, linears, turneds, outs)):
        if p is None:
            b.zero_()
        else:
            if p is not b:
                b.copy_(tree.grown(t, p))
            add_image(u_t, flat, M_t, u_t)
        if keep:
            l = b if l is None else l + b
        _step(v, s, l, B, w, out)
        p = out
    assert p is not None
    return _Tangent(before, states, p, turned)


def _homes(tree: Prefixes, befores: Sequence[Tensor]) -> list[Tensor]:
    """Where the state of each time is written: to what is before the next one, if that has the same rows."""
    following = [*zip(befores[1:], tree.parents[1:])]
    homes = [b if parents is None else None for b, parents in following]
    return [torch.empty_like(b) if home is None else home for b, home in zip(befores, [*homes, None])]


def _step(v: Tensor, s: Tensor, linear: Tensor | None, B: Tensor | None, turned: Tensor | None, out: Tensor) -> None:
    """Write ``linear + B (v s)``, with ``v s`` into ``turned`` where there is a ``B``."""
    if B is None or turned is None:
        torch.mul(v, s, out=out) if linear is None else torch.addcmul(linear, v, s, out=out)
        return
    scaled, flat = torch.mul(v, s, out=turned).flatten(0, 1), out.flatten(0, 1)
    if linear is None:
        torch.mm(scaled, B.mT, out=flat)
    else:
        torch.addmm(linear.reshape(flat.shape), scaled, B.mT, out=flat)


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
