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
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn

from .patches import Convolved
from .products import no_third


def channels_last(t: Tensor) -> Tensor:
    """Images with their channels beside each other, as the processor's convolutions read them at once."""
    two = t.dim() == 4 and t.device.type == "cpu" and t.dtype == torch.float32
    return t.contiguous(memory_format=torch.channels_last) if two else t


def laid_like(t: Tensor, x: Tensor) -> Tensor:
    """Images laid in memory as others are."""
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return t.contiguous(memory_format=torch.channels_last) if last else t.contiguous()


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
        by_x, by_w, by_b = (value if needed else None for value, needed in zip(found, wanted))
        return by_x, None if by_w is None else by_w.contiguous(), by_b


_PATCH = 32
"""Entries of a patch up to which products of matrices are faster than a convolution (measured, on one core)."""


@dataclass(frozen=True)
class _Patches:
    """A window on images that are data, of which the patches are kept."""

    window: Window
    images: Tensor
    filter: tuple[int, ...]
    places: tuple[int, ...]

    @cached_property
    def columns(self) -> Tensor:
        """``(batch, channels k, places)``, made when they are first asked for."""
        stride, padding, dilation = self.window.stride, self.window.padding, self.window.dilation
        return nn.functional.unfold(self.images, self.filter, dilation, padding, stride)

    def apply(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        """``w * x + b``; ``x`` is in the columns."""
        out = w.flatten(1) @ self.columns
        return (out if b is None else out.add_(b[:, None])).unflatten(2, self.places)

    def back(self, g: Tensor, x: Tensor, w: Tensor, wanted: tuple[bool, bool, bool]) -> tuple[Any, Any, Any]:
        """Nothing for the images, the gradient by ``w`` and that by a bias, where they are wanted."""
        g = g.flatten(2)
        by_w = torch.bmm(g, self.columns.mT).sum(0).reshape(w.shape) if wanted[1] else None
        return None, by_w, g.sum((0, 2)) if wanted[2] else None


def _is_data(window: Window, x: Tensor, w: Tensor) -> bool:
    """Whether images are data and the patches under the filters small."""
    return not (x.requires_grad or x.dim() != 4 or window.groups > 1 or w[0].numel() > _PATCH)


def _patches(window: Window, x: Tensor, w: Tensor, y: Tensor) -> Window | _Patches:
    """Patches where they are small and the images are data, else the window."""
    if not _is_data(window, x, w):
        return window
    return _Patches(window, x, tuple(w.shape[2:]), tuple(y.shape[2:]))


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, window: Window, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        y = laid_like(window.apply(x, w, b), x)
        ctx.window, ctx.arranged = _patches(window, x, w, y), None
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        wanted, seen = tuple(ctx.needs_input_grad[1:]), ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, *_Adjoint.apply(ctx.window, wanted, grads[0], *seen)
        if ctx.arranged is None:  # once, for all products
            ctx.arranged = tuple(channels_last(t.detach()) for t in seen)
        by_x, by_w, by_b = ctx.window.back(grads[0], *ctx.arranged, wanted)
        return None, None if by_x is None else laid_like(by_x, seen[0]), by_w, by_b


class _Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, window: Window | _Patches, wanted: tuple[bool, bool, bool], g: Tensor, x: Tensor, w: Tensor
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.window, ctx.arranged = window, None
        ctx.save_for_backward(g, x, w)
        by_x, by_w, by_b = window.back(g, x, w, wanted)
        return None if by_x is None else laid_like(by_x, x), by_w, by_b

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        no_third(True)
        window: Window | _Patches = ctx.window
        if ctx.arranged is None:  # once, for all products
            ctx.arranged = tuple(channels_last(t.detach()) for t in ctx.saved_tensors)
        (g, x, w), images = ctx.arranged, ctx.saved_tensors[1]
        _, _, to_g, to_x, to_w = ctx.needs_input_grad
        by_x, by_w, by_b = cotangents
        by_x = None if by_x is None else channels_last(by_x)
        first = second = None
        if to_g and by_x is not None:
            first = window.apply(by_x, w, by_b)
            by_b = None
        if to_g and by_w is not None:
            second = window.apply(x, by_w, by_b)
            by_b = None
        tangent = second if first is None else first if second is None else first.add_(second)
        if tangent is not None:
            tangent = laid_like(tangent, images)
        if by_b is not None:
            tangent = by_b.reshape(-1, *[1] * (g.dim() - 2)).expand_as(g)
        x_too = to_x and by_w is not None
        of_x = (
            laid_like(window.back(g, x, by_w, (True, False, False))[0], images) if x_too and by_w is not None else None
        )
        of_w = window.back(g, by_x, w, (False, True, False))[1] if to_w and by_x is not None else None
        return None, None, tangent, None if of_x is None else laid_like(of_x, images), of_w


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
    y = cast(Any, _Convolution.apply(window, x, w, b))
    if _is_data(window, x, w):
        y._convolved = Convolved(x, w, b, window, y._version)
    return cast(Tensor, y)
