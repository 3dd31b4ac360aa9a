r"""A whole sequence of :math:`h_t = \phi(W h_{t-1} + d_t)` as one differentiable operation.

The loop over time runs on preallocated memory without recording a graph; the backward pass is written out:
with :math:`\delta_t = (g_t + W^T \delta_{t+1}) \odot \phi'(z_t)` the gradient of W is one matrix product over
all times, :math:`\sum_t \delta_t h_{t-1}^T`. Of activations whose derivative the output does not show (OPLU, absolute
value) marks are kept. ``W`` is a full matrix, or ``I - V X`` with thin factors.

A derivative of the gradient (a Hessian-vector product) falls back to the recorded loop, whose value is equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stability.kernel.arithmetic.activations import ACTIVATIONS

from ..activations import CHANNELWISE, NORM_PRESERVING

RECORDED: dict[str, Callable[[Tensor], Tensor]] = {**NORM_PRESERVING, **CHANNELWISE}
LEAK = ACTIVATIONS["leaky_relu"].slope[0]


class Fused(NamedTuple):
    """An activation of the written-out loop, all in place.

    Attributes:
        phi_: ``phi_(z, mark)``: ``z`` to ``phi(z)``; what of ``z`` the way back needs goes into ``mark``.
        back_: ``back_(g, h, mark)``: ``g`` to ``phi'(z)^T g``, from the output ``h`` or from ``mark``.
        marks: ``(states (..., n)) -> (..., k)``: memory for the marks of all times; ``None`` where ``h`` is enough.
    """

    phi_: Callable[[Tensor, Any], Any]
    back_: Callable[[Tensor, Tensor, Any], Any]
    marks: Callable[[Tensor], Tensor] | None = None


def _sort_(z: Tensor, mark: Tensor) -> None:
    """OPLU; ``mark`` holds which pairs were exchanged."""
    first, second = z[..., 0::2], z[..., 1::2]
    torch.lt(first, second, out=mark)
    larger = torch.maximum(first, second)
    torch.minimum(first, second, out=second)
    first.copy_(larger)


def _sort_back_(g: Tensor, h: Tensor, mark: Tensor) -> None:
    first, second = g[..., 0::2], g[..., 1::2]
    one, other = torch.where(mark, second, first), torch.where(mark, first, second)
    first.copy_(one)
    second.copy_(other)


def _abs_(z: Tensor, mark: Tensor) -> None:
    """The absolute value; ``mark`` holds the signs, zero where the derivative is taken to be zero."""
    torch.sign(z, out=mark)
    z.abs_()


_aten = torch.ops.aten
FUSED: dict[str, Fused] = {
    "tanh": Fused(lambda z, _: torch.tanh_(z), lambda g, h, _: _aten.tanh_backward.grad_input(g, h, grad_input=g)),
    "relu": Fused(
        lambda z, _: torch.relu_(z), lambda g, h, _: _aten.threshold_backward.grad_input(g, h, 0, grad_input=g)
    ),
    "leaky_relu": Fused(
        lambda z, _: torch.nn.functional.leaky_relu_(z, LEAK),
        lambda g, h, _: _aten.leaky_relu_backward.grad_input(g, h, LEAK, True, grad_input=g),
    ),
    "sigmoid": Fused(
        lambda z, _: torch.sigmoid_(z), lambda g, h, _: _aten.sigmoid_backward.grad_input(g, h, grad_input=g)
    ),
    "saturation": Fused(
        lambda z, _: torch.nn.functional.hardtanh_(z),
        lambda g, h, _: _aten.hardtanh_backward.grad_input(g, h, -1.0, 1.0, grad_input=g),
    ),
    "deadzone": Fused(lambda z, _: z.sub_(z.clamp(-1.0, 1.0)), lambda g, h, _: g.mul_(h != 0)),
    "identity": Fused(lambda z, _: None, lambda g, h, _: None),
    "oplu": Fused(
        _sort_,
        _sort_back_,
        lambda states: states.new_empty((*states.shape[:-1], states.shape[-1] // 2), dtype=torch.bool),
    ),
    "abs": Fused(_abs_, lambda g, h, mark: g.mul_(mark), torch.empty_like),
}
"""The activations of the written-out loop, by name."""


Step = Callable[[Tensor, Tensor, Tensor], None]  # takes out, addend and rows (k, n), and writes into out
COPY_UP_TO = 256  # rows of a matrix whose transpose is worth a copy: small products are slower without (measured)


def _dense_step(M: Tensor) -> Step:
    """Writes ``addend + rows M``."""

    def step(out: Tensor, addend: Tensor, rows: Tensor) -> None:
        torch.addmm(addend, rows, M, out=out)

    return step


def _thin_step(down: Tensor, up: Tensor, like: Tensor) -> Step:
    """Writes ``addend + rows (I - down up)`` with ``down (n, p)`` and ``up (p, n)`` stored row by row."""
    reduced = like.new_empty(len(like), down.shape[1])

    def step(out: Tensor, addend: Tensor, rows: Tensor) -> None:
        torch.mm(rows, down, out=reduced)
        torch.add(addend, rows, out=out)
        out.addmm_(reduced, up, alpha=-1.0)

    return step


class Dense(NamedTuple):
    """``W (n, n)``, applied to rows."""

    W: Tensor

    def rows(self, drive: Tensor, h: Tensor) -> Tensor:
        """``W h + drive`` for rows."""
        return torch.addmm(drive, h, self.W.mT)

    def step(self, like: Tensor) -> Step:
        """``W h + drive`` for as many rows as ``like`` has."""
        return _dense_step(self.W.mT.contiguous() if len(self.W) <= COPY_UP_TO else self.W.mT)

    def step_back(self, like: Tensor) -> Step:
        """``W^T delta + g`` for as many rows as ``like`` has."""
        return _dense_step(self.W)

    def gradients(self, h: Tensor, delta: Tensor) -> tuple[Tensor, ...]:
        """Gradient of W from all rows ``h (k, n)`` before a step and ``delta (k, n)`` after it."""
        return (delta.mT @ h,)


class Thin(NamedTuple):
    """``W = I - V X`` with ``V (n, p)``, ``X (p, n)``: ``4 n p`` operations a row instead of ``2 n^2``."""

    V: Tensor
    X: Tensor

    def rows(self, drive: Tensor, h: Tensor) -> Tensor:
        """``W h + drive`` for rows."""
        return torch.addmm(drive + h, h @ self.X.mT, self.V.mT, alpha=-1.0)

    def step(self, like: Tensor) -> Step:
        """``W h + drive`` for as many rows as ``like`` has."""
        return _thin_step(self.X.mT.contiguous(), self.V.mT.contiguous(), like)

    def step_back(self, like: Tensor) -> Step:
        """``W^T delta + g`` for as many rows as ``like`` has."""
        return _thin_step(self.V.contiguous(), self.X.contiguous(), like)

    def gradients(self, h: Tensor, delta: Tensor) -> tuple[Tensor, ...]:
        """Gradients of V and X from all rows ``h`` before a step and ``delta`` after it."""
        return -(delta.mT @ (h @ self.X.mT)), -((delta @ self.V).mT @ h)


def can_fuse(activation: str, x: Tensor) -> bool:
    """Whether the written-out loop may run: not under autocast, compilation or a ``torch.func`` transform."""
    return (
        activation in FUSED
        and not torch.is_autocast_enabled(x.device.type)
        and not torch.compiler.is_compiling()
        and not _transformed(x)
    )


def unroll(drive: Tensor, h0: Tensor, recurrence: Dense | Thin, activation: str) -> Tensor:
    """All states of ``h_t = phi(W h_{t-1} + d_t)``.

    Args:
        drive: ``(time, batch, n)``: time first, so that every step is one block of memory.
        h0: ``(batch, n)``.
        recurrence: ``Dense(W)`` or ``Thin(V, X)``.
        activation: a name in ``FUSED``.

    Returns:
        ``(time, batch, n)``.

    Example:
        >>> unroll(torch.ones(3, 1, 1), torch.zeros(1, 1), Dense(torch.eye(1)), "identity").flatten()
        tensor([1., 2., 3.])
    """
    return _Unrolled.apply(type(recurrence), activation, drive, h0, *recurrence)[0]


class _Unrolled(torch.autograd.Function):
    @staticmethod
    def forward(
        kind: type, activation: str, drive: Tensor, h0: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        step, fused = kind(*tensors).step(h0), FUSED[activation]
        states = torch.empty_like(drive, memory_format=torch.contiguous_format)
        marks = None if fused.marks is None else fused.marks(states)
        h = h0
        for t, (d, out) in enumerate(zip(drive.unbind(0), states.unbind(0))):
            step(out, d, h)
            fused.phi_(out, None if marks is None else marks[t])
            h = out
        return states, marks

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor | None]) -> None:
        ctx.kind, ctx.activation, *tensors = inputs
        states, marks = output
        if marks is not None:
            ctx.mark_non_differentiable(marks)
        ctx.save_for_backward(states, marks, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        states, marks, *inputs = ctx.saved_tensors
        if torch.is_grad_enabled() or _transformed(grads[0]):
            return (None, None, *_recorded(ctx, inputs, grads[0]))
        _, h0, *tensors = inputs
        recurrence = ctx.kind(*tensors)
        step, back_ = recurrence.step_back(h0), FUSED[ctx.activation].back_
        delta = torch.empty_like(states)
        deltas, outputs, g = delta.unbind(0), states.unbind(0), grads[0].unbind(0)
        marked = [None] * len(deltas) if marks is None else marks.unbind(0)
        deltas[-1].copy_(g[-1])
        back_(deltas[-1], outputs[-1], marked[-1])
        for t in reversed(range(len(states) - 1)):
            step(deltas[t], g[t], deltas[t + 1])
            back_(deltas[t], outputs[t], marked[t])
        n = states.shape[-1]
        gradients = recurrence.gradients(h0, deltas[0])
        if len(states) > 1:
            rest = recurrence.gradients(states[:-1].reshape(-1, n), delta[1:].reshape(-1, n))
            gradients = tuple(a + b for a, b in zip(gradients, rest))
        first = torch.empty_like(h0, memory_format=torch.contiguous_format)
        step(first, torch.zeros_like(first), deltas[0])
        return None, None, delta, first, *gradients


def _recorded(ctx: Any, inputs: list[Tensor], g: Tensor) -> list[Tensor | None]:
    """The same gradients through the recorded loop, differentiable again."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # views: a path from one input to another outside this operation must not be counted here
        drive, h0, *tensors = views = [x.view_as(x) for x in inputs]
        recurrence, phi, h, states = ctx.kind(*tensors), RECORDED[ctx.activation], h0, []
        for d in drive.unbind(0):
            h = phi(recurrence.rows(d, h))
            states.append(h)
        wanted = [v for v, needed in zip(views, ctx.needs_input_grad[2:]) if needed]
        found = iter(torch.autograd.grad(torch.stack(states), wanted, g, create_graph=again))
    return [next(found) if needed else None for needed in ctx.needs_input_grad[2:]]


def _transformed(x: Tensor) -> bool:
    """Whether ``x`` is inside ``vmap``, ``grad``, ``jvp`` and the like, of ``torch.func`` or of autograd."""
    functorch = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue] # compiled, without annotations
    return functorch.is_functorch_wrapped_tensor(x) or functorch.is_legacy_batchedtensor(x)
