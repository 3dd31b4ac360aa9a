r"""Convolutions whose second derivative is made of the kernels that the first one uses.

The gradient of :math:`y = w * x` is trilinear, :math:`(\nabla_x, \nabla_w, \nabla_b) = (w \star g, g \star x, \sum g)`,
so its adjoint is again a convolution and two gradients of convolutions. ``torch`` makes the gradient by ``w`` there
from a convolution with images as filters, which is slow, and a gradient by an input that nobody asked for. Images that
are data keep the patches under a small filter: each product with them is then one of matrices. All others are made with
the channels of a place side by side, which the processor's kernels read without rearranging them first; what comes in
and goes out is laid as the rest of the network has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .products import no_third


def channels_last(t: Tensor) -> Tensor:
    """Images with their channels beside each other, as the processor's convolutions read them at once."""
    two = t.dim() == 4 and t.device.type == "cpu" and t.dtype == torch.float32
    return t.contiguous(memory_format=torch.channels_last) if two else t


@dataclass(frozen=True)
class Window:
    """Stride, padding and dilation, one number an axis, and the number of groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def apply(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        """``w * x + b``."""
        none = [0] * len(self.stride)
        x, w = channels_last(x), channels_last(w)
        return torch.convolution(x, w, b, self.stride, self.padding, self.dilation, False, none, self.groups)

    def back(self, g: Tensor, x: Tensor, w: Tensor, wanted: tuple[bool, bool, bool]) -> tuple[Any, Any, Any]:
        """``w* g``, the gradient by ``w`` and that by a bias, where they are wanted."""
        if not any(wanted):
            return None, None, None
        g, x, w = channels_last(g), channels_last(x), channels_last(w)
        bias, none = [len(w)], [0] * len(self.stride)
        stride, padding, dilation, groups = self.stride, self.padding, self.dilation, self.groups
        found = torch.ops.aten.convolution_backward(
            g, x, w, bias, stride, padding, dilation, False, none, groups, list(wanted)
        )
        return tuple(value.contiguous() if needed else None for value, needed in zip(found, wanted))  # type: ignore[return-value]


_PATCH = 32
"""Entries of a patch up to which products of matrices are faster than a convolution (measured, on one core)."""


@dataclass(frozen=True)
class _Patches:
    """A window on images that are data: ``columns (batch, channels k, places)``."""

    columns: Tensor
    places: tuple[int, ...]

    def apply(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        """``w * x + b``; ``x`` is in the columns."""
        out = w.flatten(1) @ self.columns
        return (out if b is None else out.add_(b[:, None])).unflatten(2, self.places)

    def back(self, g: Tensor, x: Tensor, w: Tensor, wanted: tuple[bool, bool, bool]) -> tuple[Any, Any, Any]:
        """Nothing for the images, the gradient by ``w`` and that by a bias, where they are wanted."""
        g = g.flatten(2)
        by_w = torch.bmm(g, self.columns.mT).sum(0).reshape(w.shape) if wanted[1] else None
        return None, by_w, g.sum((0, 2)) if wanted[2] else None


def _patches(window: Window, x: Tensor, w: Tensor, y: Tensor) -> Window | _Patches:
    """Patches where they are small and the images are data, else the window."""
    if x.requires_grad or x.dim() != 4 or window.groups > 1 or w[0].numel() > _PATCH:
        return window
    stride, padding, dilation, _ = (getattr(window, name) for name in ("stride", "padding", "dilation", "groups"))
    columns = nn.functional.unfold(x, w.shape[2:], dilation, padding, stride)
    return _Patches(columns, tuple(y.shape[2:]))


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, window: Window, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        y = window.apply(x, w, b).contiguous()
        ctx.window = _patches(window, x, w, y)
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        wanted = tuple(ctx.needs_input_grad[1:])
        return None, *_Adjoint.apply(ctx.window, wanted, grads[0], *ctx.saved_tensors)


class _Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, window: Window | _Patches, wanted: tuple[bool, bool, bool], g: Tensor, x: Tensor, w: Tensor
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.window, ctx.arranged = window, None
        ctx.save_for_backward(g, x, w)
        return window.back(g, x, w, wanted)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        no_third(True)
        window: Window | _Patches = ctx.window
        if ctx.arranged is None:  # once, for all products
            ctx.arranged = tuple(channels_last(t.detach()) for t in ctx.saved_tensors)
        g, x, w = ctx.arranged
        _, _, to_g, to_x, to_w = ctx.needs_input_grad
        by_x, by_w, by_b = cotangents
        first = second = None
        if to_g and by_x is not None:
            first = window.apply(by_x, w, by_b)
            by_b = None
        if to_g and by_w is not None:
            second = window.apply(x, by_w, by_b)
            by_b = None
        tangent = second if first is None else first if second is None else first.add_(second)
        if tangent is not None:
            tangent = tangent.contiguous()
        if by_b is not None:
            tangent = by_b.reshape(-1, *[1] * (g.dim() - 2)).expand_as(g)
        x_too = to_x and by_w is not None
        of_x = window.back(g, x, by_w, (True, False, False))[0] if x_too and by_w is not None else None
        of_w = window.back(g, by_x, w, (False, True, False))[1] if to_w and by_x is not None else None
        return None, None, tangent, of_x, of_w


def convolution(x: Tensor, w: Tensor, b: Tensor | None, window: Window) -> Tensor:
    """``w * x + b``, differentiable twice and no further.

    Args:
        x: ``(batch, channels, ...)``.
        w: ``(filters, channels / groups, ...)``.
        b: ``(filters,)``, or none.
        window: how the filters walk.

    Returns:
        ``(batch, filters, ...)``.

    Example:
        >>> window = Window((1,), (0,), (1,), 1)
        >>> convolution(torch.arange(4.0).reshape(1, 1, 4), torch.ones(1, 1, 2), None, window).flatten()
        tensor([1., 3., 5.])
    """
    return _Convolution.apply(window, x, w, b)
