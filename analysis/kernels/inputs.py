r"""What attacks and noise ask of a network: its last logits, and their derivative by the input alone; no graph a step.

With the weights held a recurrence back in time needs the slopes of the activations and nothing else; the gradient of
step t leaves through the input matrix while it is at hand. State and input stand side by side, so that a step has one
product with both. A search that differentiates several differences of logits at one point gives the point several
times over: forward these copies are one.

Whether an attack succeeded is asked of the model itself, as always: what is computed here is equal to rounding only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ...models.lure import LureLayer
from ...models.network import SequenceModel
from ...models.tensors import check_sequence
from .activate import activate_, steepened
from .dense import add_image, image
from .swap import plain_layer, plain_lstm, plainly_read

_FEW = 96
"""Sequences below which torch's own LSTM is the faster one: a step here is thirty calls."""
_ROWS = 512
"""Sequences that run together where nothing of them is kept: their states stay in the cache."""


class Cell(NamedTuple):
    """Of ``c = phi(W h + U x + b)``, ``h+ = keep h + A h + B c``; without B: ``length c``.

    ``joint`` is ``W`` and ``U`` side by side, transposed: ``(n + p, m)``.
    """

    activation: str
    joint: Tensor
    W: Tensor
    U: Tensor
    b: Tensor
    A: Tensor | None
    B: Tensor | None
    keep: bool
    length: float


def _cell(layer: LureLayer, prepared: Any) -> Cell:
    A_t, B_t, W_t = prepared
    A, B = (None if M is None else M.mT for M in (A_t, B_t))
    U, length = layer.weight_ih, 1.0
    if layer.time_step is not None:  # I + dt A is never formed: in float32 the sum would round away a small damping
        A, B = (None if M is None else layer.dt * M for M in (A, B))
        length = layer.dt
    joint = torch.cat([W_t, U.mT])
    return Cell(layer.activation, joint, W_t.mT, U, layer.bias, A, B, layer.time_step is not None, length)


def _by_sigmoid(t: Tensor) -> bool:
    return t.dtype == torch.float32


def _run(cell: Cell, x: Tensor, channels: Tensor | None) -> Tensor:
    """``h_T`` from rest of ``x (batch, time, p)``; with ``channels (time, batch, m)`` these are written, too."""
    n, U_t = cell.W.shape[1], cell.joint[cell.W.shape[1] :]
    A_t, B_t = (None if M is None else M.mT.contiguous() for M in (cell.A, cell.B))
    room = x.new_empty(len(x), len(cell.joint))
    h, given = room[:, :n], room[:, n:]
    own = x.new_empty(len(x), len(cell.b)) if channels is None else None
    other = None if A_t is None else x.new_empty(len(x), n)
    for t, x_t in enumerate(x.unbind(1)):
        c = own if channels is None else channels[t]
        if t == 0:
            before = None
            add_image(cast(Tensor, c), x_t, U_t, cell.b)
        else:
            given.copy_(x_t)
            add_image(cast(Tensor, c), room, cell.joint, cell.b)
            before = h if cell.keep else None
            if A_t is not None:
                before = torch.addmm(h, h, A_t, out=other) if cell.keep else torch.mm(h, A_t, out=other)
        c = activate_(cell.activation, cast(Tensor, c))
        if B_t is None:
            torch.mul(c, cell.length, out=h) if before is None else torch.add(before, c, alpha=cell.length, out=h)
        else:
            torch.mm(c, B_t, out=h) if before is None else torch.addmm(before, c, B_t, out=h)
    return h


class _LastState(torch.autograd.Function):
    """``h_T`` of sequences ``(batch, time, p)`` of which each ``copies`` in a row are the same one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cell: Cell, copies: int) -> Tensor:
        given = x[::copies]
        channels = x.new_empty(given.shape[1], len(given), len(cell.b))
        h = _run(cell, given, channels)
        ctx.cell, ctx.copies = cell, copies
        ctx.save_for_backward(channels)
        return h.repeat_interleave(copies, dim=0) if copies > 1 else h.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (channels,) = ctx.saved_tensors
        cell, copies = ctx.cell, ctx.copies
        time, batch, m = channels.shape
        W, U = (cell.length * M if cell.B is None else M for M in (cell.W, cell.U))
        by_x = g.new_empty(len(g), time, U.shape[1])
        lam, other, delta = g.clone(), torch.empty_like(g), g.new_empty(len(g), m)
        mu = g.new_empty(len(g), m) if cell.B is not None else lam
        slope, one = torch.empty_like(channels[0]), torch.ones_like(channels[0])
        for t in reversed(range(time)):
            mu = lam if cell.B is None else torch.mm(lam, cell.B, out=mu)
            if copies == 1:
                steepened(cell.activation, mu, channels[t], delta)
            else:
                steepened(cell.activation, one, channels[t], slope)
                torch.mul(mu.view(batch, -1, m), slope[:, None], out=delta.view(batch, -1, m))
            add_image(by_x[:, t], delta, U, None)
            if t == 0:
                break
            if cell.A is not None:
                torch.addmm(lam, lam, cell.A, out=other) if cell.keep else torch.mm(lam, cell.A, out=other)
                lam, other = other.addmm_(delta, W), lam
            else:
                lam = lam.addmm_(delta, W) if cell.keep else torch.mm(delta, W, out=lam)
        return by_x, None, None


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
        given = x[::copies].transpose(0, 1).contiguous()
        gates = image(given.flatten(0, 1), U).add_(b).unflatten(0, given.shape[:2])
        memory = gates.new_empty(*gates.shape[:2], n)
        tau, R_t = torch.empty_like(memory), R.mT.contiguous()
        h, c = gates.new_zeros(gates.shape[1], n), gates.new_zeros(gates.shape[1], n)
        out = torch.empty_like(h)
        for a, c_t, tau_t in zip(gates, memory, tau):
            add_image(a, h, R_t, a)
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
            add_image(by_x[t], delta, U, None)
            if t:
                add_image(lam, delta, R, None)
                m.mul_(f[:, None])
        return by_x.transpose(0, 1), None, None


def _last_state(model: SequenceModel, copies: int) -> Callable[[Tensor, bool], Tensor | None] | None:
    """``(x, whether a derivative is asked for) -> h_T`` of a model that only the last state of is read.

    ``None`` where it has no kernel here, or the layer itself is as fast.
    """
    layer = model.layer
    if isinstance(layer, LureLayer) and plain_layer(layer):
        known: dict[Any, Cell] = {}

        def of_layer(x: Tensor, derived: bool) -> Tensor:
            kind = x.dtype, x.device
            if kind not in known:
                with torch.no_grad():
                    known[kind] = _cell(layer, layer.begin(x, None)[0])
            cell = known[kind]
            if derived:
                return cast(Tensor, _LastState.apply(x, cell, copies))
            last = torch.cat([_run(cell, part, None) for part in x.detach()[::copies].split(_ROWS)])
            return last.repeat_interleave(copies, dim=0) if copies > 1 else last

        return of_layer
    if plain_lstm(layer):
        rnn: Any = layer.rnn
        weights = rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0 + rnn.bias_hh_l0

        def of_cells(x: Tensor, derived: bool) -> Tensor | None:
            if len(x) < _FEW or not derived:
                return None
            layer.begin(x, None)
            return cast(Tensor, _LastOfCells.apply(x, weights, copies))

        return of_cells
    return None


def _watched(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


@contextmanager
def by_input(model: nn.Module, copies: int = 1) -> Iterator[None]:
    """Inside, a model's last logits are derived by the input alone, and computed without a graph by fewer operations.

    Kernels stand for a head on the last state of a layer ``phi(W h + U x + b)`` (maps and forward Euler) or of an LSTM
    of one layer. Weights get no gradient, and must stay what they are; no derivative has another one. Inside another
    one the outer one rules.

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
        derived = torch.is_grad_enabled() and x.requires_grad
        if torch.is_autocast_enabled(x.device.type) or (torch.is_grad_enabled() and not derived):
            return SequenceModel.forward(own, x)
        last = run(x, derived)
        return SequenceModel.forward(own, x) if last is None else own.head(last)

    cast(Any, model).forward = forward
    try:
        yield
    finally:
        vars(model).pop("forward", None)
