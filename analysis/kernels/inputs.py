r"""What attacks ask of a network, its derivative by the input alone: no graph a step, and copies run forward once.

With the weights held a recurrence back in time needs the slopes of the activations and nothing else; the gradient of
step t leaves through the input matrix while it is at hand. A search that differentiates several differences of logits
at one point gives the point several times over: forward these copies are one.

In single precision ``tanh z`` is taken as ``2 sigmoid(2 z) - 1``, which is off by 1e-7 at most and takes a third of the
time. Whether an attack succeeded is therefore asked of the model itself, as always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ...models.gated import LSTM
from ...models.lure import LureLayer
from ...models.network import SequenceModel
from ...models.scans.unrolled import FUSED
from ...models.tensors import check_sequence
from .swap import plain_layer, plainly_read

_FEW = 96
"""Sequences below which torch's own LSTM is the faster one: a step here is thirty calls."""


class Matrices(NamedTuple):
    """Of ``c = phi(W h + U x + b)``, ``h+ = A h + B c``; without A: ``keep h``; without B: ``length c``."""

    activation: str
    W: Tensor
    U: Tensor
    b: Tensor
    A: Tensor | None
    B: Tensor | None
    keep: bool
    length: float


def _matrices(layer: LureLayer, prepared: Any) -> Matrices:
    A_t, B_t, W_t = prepared
    A, B = (None if M is None else M.mT for M in (A_t, B_t))
    dt = layer.time_step
    if dt is not None:
        A = None if A is None else torch.eye(len(A), dtype=A.dtype, device=A.device).add_(A, alpha=layer.dt)
        B = None if B is None else layer.dt * B
    step = dt is not None and A is None, 1.0 if dt is None else layer.dt
    return Matrices(layer.activation, W_t.mT, layer.weight_ih, layer.bias, A, B, *step)


def _by_sigmoid(t: Tensor) -> bool:
    return t.dtype == torch.float32


class _LastState(torch.autograd.Function):
    """``h_T`` of sequences ``(batch, time, p)`` of which each ``copies`` in a row are the same one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, cell: Matrices, copies: int) -> Tensor:
        activation, W, U, b, A, B, keep, length = cell
        doubled = activation == "tanh" and _by_sigmoid(x)
        scale = 2.0 if doubled else 1.0
        drive = torch.nn.functional.linear(x[::copies].transpose(0, 1).contiguous(), scale * U, scale * b)
        phi_ = FUSED["sigmoid" if doubled else activation].phi_
        W_t, A_t, B_t = (None if M is None else M.mT.contiguous() for M in (scale * W, A, B))
        h, out = h[::copies], [h.new_empty(len(h[::copies]), h.shape[1]) for _ in range(2)]
        for t, c in enumerate(drive):  # a channel takes the place of what drove it
            phi_(c.addmm_(h, cast(Tensor, W_t)), None)
            if doubled:
                c.mul_(2.0).sub_(1.0)
            after = out[t % 2]
            if A_t is not None:
                torch.mm(h, A_t, out=after)
                after = after.addmm_(c, B_t) if B_t is not None else after.add_(c, alpha=length)
            elif B_t is None:
                torch.add(h, c, alpha=length, out=after) if keep else torch.mul(c, length, out=after)
            else:
                torch.mm(c, B_t, out=after)
                after = after.add_(h) if keep else after
            h = after
        ctx.cell, ctx.copies = cell, copies
        ctx.save_for_backward(drive)
        return h.repeat_interleave(copies, dim=0) if copies > 1 else h.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (channels,) = ctx.saved_tensors
        activation, W, U, _, A, B, keep, length = ctx.cell
        time, batch, m = channels.shape
        W, U = (length * M if B is None else M for M in (W, U))
        back_, slope = FUSED[activation].back_, torch.empty_like(channels[0])
        by_x = g.new_empty(time, len(g), U.shape[1])
        lam, other, delta = g.contiguous(), torch.empty_like(g), g.new_empty(len(g), m)
        for c, out in zip(reversed(channels.unbind(0)), reversed(by_x.unbind(0))):
            mu = lam if B is None else torch.mm(lam, B)
            back_(slope.fill_(1.0), c, None)
            torch.mul(mu.view(batch, -1, m), slope[:, None], out=delta.view(batch, -1, m))
            torch.mm(delta, U, out=out)
            if A is not None:
                torch.mm(lam, A, out=other).addmm_(delta, W)
            elif keep:
                torch.addmm(lam, delta, W, out=other)
            else:
                torch.mm(delta, W, out=other)
            lam, other = other, (torch.empty_like(lam) if lam is g else lam)
        return by_x.transpose(0, 1), None, None, None


def _quarters(t: Tensor) -> tuple[Tensor, ...]:
    """Input, forget, candidate and output parts."""
    return t.chunk(4, dim=-1)


class _LastOfCells(torch.autograd.Function):
    """``h_T`` of an LSTM from rest, of sequences of which each ``copies`` in a row are the same one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: tuple[Tensor, Tensor, Tensor], copies: int) -> Tensor:
        U, R, b = weights
        doubled, n = _by_sigmoid(x), R.shape[1]
        if doubled:  # of the candidate alone
            scale = torch.ones_like(b)
            _quarters(scale)[2].fill_(2.0)
            U, R, b = scale[:, None] * U, scale[:, None] * R, scale * b
        gates = torch.nn.functional.linear(x[::copies].transpose(0, 1).contiguous(), U, b)
        memory = gates.new_empty(*gates.shape[:2], n)
        tau, R_t = torch.empty_like(memory), R.mT.contiguous()
        h, c = gates.new_zeros(gates.shape[1], n), gates.new_zeros(gates.shape[1], n)
        out = torch.empty_like(h)
        for a, c_t, tau_t in zip(gates, memory, tau):
            a.addmm_(h, R_t)
            i, f, g, o = _quarters(a)
            if doubled:
                torch.sigmoid_(a)
                g.mul_(2.0).sub_(1.0)
            else:
                candidate = torch.tanh(g)
                torch.sigmoid_(a)
                g.copy_(candidate)
            torch.mul(f, c, out=c_t).addcmul_(i, g)
            if doubled:
                torch.sigmoid_(torch.mul(c_t, 2.0, out=tau_t)).mul_(2.0).sub_(1.0)
            else:
                torch.tanh(c_t, out=tau_t)
            h, c = torch.mul(o, tau_t, out=out), c_t
        ctx.weights, ctx.copies = weights, copies
        ctx.save_for_backward(gates, memory, tau)
        return h.repeat_interleave(copies, dim=0) if copies > 1 else h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gates, memory, tau = ctx.saved_tensors
        U, R, _ = ctx.weights
        (time, batch, n), copies = memory.shape, ctx.copies
        rest = torch.zeros_like(memory[0])
        by_x, delta = grad.new_empty(time, len(grad), U.shape[1]), grad.new_empty(len(grad), 4 * n)
        lam, mu = grad.clone(), torch.zeros_like(grad)
        by_copy, by_gate = (len(grad) // copies, copies, n), delta.view(batch, copies, 4, n)
        l, m = lam.view(by_copy), mu.view(by_copy)
        k = torch.empty_like(gates[0])
        k_i, k_f, k_g, k_o = _quarters(k)
        for t in reversed(range(time)):
            a, tau_t = gates[t], tau[t]
            i, f, g, o = _quarters(a)
            torch.addcmul(a, a, a, value=-1.0, out=k)  # the slopes of the sigmoids
            k_i.mul_(g)
            k_f.mul_(memory[t - 1] if t else rest)
            torch.addcmul(i, i * g, g, value=-1.0, out=k_g)
            k_o.mul_(tau_t)
            m.addcmul_(torch.addcmul(o, o * tau_t, tau_t, value=-1.0)[:, None], l)
            factors = k.view(batch, 1, 4, n)
            torch.mul(factors[:, :, :3], m[:, :, None], out=by_gate[:, :, :3])
            torch.mul(factors[:, :, 3], l, out=by_gate[:, :, 3])
            torch.mm(delta, U, out=by_x[t])
            if t:
                torch.mm(delta, R, out=lam)
                m.mul_(f[:, None])
        return by_x.transpose(0, 1), None, None


def _last_state(model: SequenceModel, copies: int) -> Callable[[Tensor], Tensor | None] | None:
    """``x -> h_T`` of a model that only the last state of is read; ``None`` where it has no kernel here."""
    layer = model.layer
    if isinstance(layer, LureLayer) and plain_layer(layer):

        def of_layer(x: Tensor) -> Tensor:
            prepared, start = layer.begin(x, None)
            return cast(Tensor, _LastState.apply(x, start, _matrices(layer, prepared), copies))

        return of_layer
    if type(layer) is LSTM and layer.num_layers == 1 and "forward" not in vars(layer) and not _watched(layer.rnn):
        rnn: Any = layer.rnn
        weights = rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0 + rnn.bias_hh_l0

        def of_cells(x: Tensor) -> Tensor | None:
            if len(x) < _FEW:
                return None
            layer.begin(x, None)
            return cast(Tensor, _LastOfCells.apply(x, weights, copies))

        return of_cells
    return None


def _watched(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


@contextmanager
def by_input(model: nn.Module, copies: int = 1) -> Iterator[None]:
    """Inside, the derivative of a model's last logits is taken by its input alone, wherever a kernel here knows how.

    Kernels stand for a head on the last state of a layer ``phi(W h + U x + b)`` (maps and forward Euler) or of an LSTM
    of one layer. Weights get no gradient, and no derivative has another one.

    Args:
        model: any module, which is left as it was.
        copies: of the sequences that the model is called with each so many in a row are equal.

    Example:
        >>> from stability.models import LipschitzRNN
        >>> model, x = SequenceModel(LipschitzRNN(2, 4), 3), torch.rand(2, 5, 2).repeat_interleave(3, 0)
        >>> x.requires_grad_(True)[0, 0, 0].item() == x[1, 0, 0].item()
        True
        >>> expected = torch.autograd.grad(model(x).trace(), x)[0]
        >>> with by_input(model, copies=3):
        ...     found = torch.autograd.grad(model(x).trace(), x)[0]
        >>> torch.allclose(found, expected, atol=1e-6)
        True
    """
    reads_last = isinstance(model, SequenceModel) and plainly_read(model) and model.reduction == "last"
    run = _last_state(cast(SequenceModel, model), copies) if reads_last and not _watched(model) else None
    if run is None:
        yield
        return

    def forward(x: Tensor) -> Tensor:
        own = cast(SequenceModel, model)
        check_sequence(x, own.layer.input_size)
        if torch.is_autocast_enabled(x.device.type) or not (torch.is_grad_enabled() and x.requires_grad):
            return SequenceModel.forward(own, x)
        last = run(x)
        return SequenceModel.forward(own, x) if last is None else own.head(last)

    cast(Any, model).forward = forward
    try:
        yield
    finally:
        vars(model).pop("forward", None)
