"""ReLU and pooling by the largest: linear piece by piece, so the second derivative by what goes in is nothing at all.

``torch`` makes that nothing as images of zeros, and adds them up: in a convolutional network a fifth of the time of a
product. Here nothing is none. The largest of what ReLU leaves is what ReLU leaves of the largest: pooling after it
is done before it, and the mask is one of fewer entries.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from .convolution import channels_last
from .patches import pooled_convolution
from .products import no_third


def _masked(g: Tensor, y: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(g, y, 0)


class _Rectified(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.clamp_min(x, 0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (_Masked.apply(grads[0], ctx.saved_tensors[0].detach()),)


class _Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return _masked(g, y)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        no_third(first_order=True)
        return _masked(cotangents[0], *ctx.saved_tensors), None


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, window: tuple[Any, ...]) -> Tensor:
        y, places = torch.ops.aten.max_pool2d_with_indices(x, *window)
        ctx.window = window
        ctx.save_for_backward(x, places)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, places = ctx.saved_tensors
        return _Spread.apply(grads[0], x.detach(), ctx.window, places), None


class _Spread(torch.autograd.Function):
    """Each entry to the place that it was the largest of."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, window: tuple[Any, ...], places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        return torch.ops.aten.max_pool2d_with_indices_backward(g, x, *window, places)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        no_third(first_order=True)
        (places,) = ctx.saved_tensors
        if places.dim() == 4 and not places.is_contiguous():  # channels side by side
            rows, chosen = (t.movedim(1, -1).flatten(1, 2) for t in (cotangents[0], places))
            found = rows.gather(1, chosen).unflatten(1, places.shape[2:]).movedim(-1, 1)
        else:
            found = cotangents[0].flatten(-2).gather(-1, places.flatten(-2)).view_as(places)
        return found, None, None, None


def rectified(x: Tensor) -> Tensor:
    """``max(x, 0)``, differentiable twice and no further.

    Example:
        >>> rectified(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    y = cast(Any, _Rectified.apply(x))
    y._rectified = x, x._version, y._version
    return y


def _unrectified(y: Tensor) -> Tensor | None:
    """What ReLU made a tensor of, where that is known and neither has been written to since."""
    x, *versions = getattr(y, "_rectified", (None,))
    return x if x is not None and versions == [x._version, y._version] else None


def pooled(
    x: Tensor,
    size: int | tuple[int, ...],
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest of each window of images, differentiable twice and no further.

    Args:
        x: ``(..., channels, height, width)``.
        size: of the window.
        stride: of the windows; ``None``: their size.
        padding: around the images.
        dilation: between the entries of a window.
        ceil_mode: whether a last window may be cut off.

    Example:
        >>> pooled(torch.arange(4.0).reshape(1, 1, 2, 2), 2).item()
        3.0
    """
    lists = [[v, v] if isinstance(v, int) else list(v) for v in (size, size if stride is None else stride, padding)]
    between = [dilation, dilation] if isinstance(dilation, int) else list(dilation)
    window = (*lists, between, bool(ceil_mode))
    before = _unrectified(x)
    z = x if before is None else before
    found = None
    if hasattr(z, "_convolved"):
        y, places = torch.ops.aten.max_pool2d_with_indices(z.detach(), *window)
        apart = between == [1, 1] and all(step >= wide for step, wide in zip(lists[1], lists[0]))
        found = pooled_convolution(z, channels_last(y), places, apart)
    if found is None:
        found = cast(Tensor, _Pooled.apply(z, window))
    return found if before is None else rectified(found)
