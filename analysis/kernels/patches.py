"""A convolution of data and the largest of each window of it, derived by filters and bias together.

The result is linear in these: each pooled place is one patch of the images, that under its largest entry, times its
filter. Some images at a time are convolved and pooled, so that what pooling drops stays in the cache and is never
written out.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .dense import image, summed
from .products import no_third

_ROOM = 2**18
"""Numbers before pooling of the images that are taken at a time: with what they are made of they fit into a cache."""


class Convolved(NamedTuple):
    """What a tensor is the convolution of: images that are data, filters, a bias, the window; and its version."""

    x: Tensor
    w: Tensor
    b: Tensor | None
    window: Any
    version: int


class _Part(NamedTuple):
    """Of some images: patches by rows, ``(images, all places, entries)``, these transposed, and the chosen places."""

    patches: Tensor
    turned: Tensor
    chosen: Tensor


class _Chosen:
    """Patches and the places of the largest entries, ``(batch, filters, ...)``, which may be the same for several."""

    def __init__(self, of: Convolved, places: Tensor, apart: bool) -> None:
        self.of, self.places, self.apart = of, places, apart

    @cached_property
    def parts(self) -> list[_Part]:
        """Made when they are first asked for."""
        x, w, _, window, _ = self.of
        patches = nn.functional.unfold(x, w.shape[2:], window.dilation, window.padding, window.stride).mT.contiguous()
        chosen = self.places.movedim(1, -1).flatten(1, 2).contiguous()
        size = max(1, _ROOM // (patches.shape[1] * len(w)))
        return [_Part(p, p.flatten(0, 1).mT.contiguous(), c) for p, c in zip(patches.split(size), chosen.split(size))]

    def apply(self, w: Tensor, b: Tensor | None) -> Tensor:
        """What filters give at the chosen places, the channels of a place side by side."""
        batch, filters, *sizes = self.places.shape
        out, done, W = w.new_empty(batch, *sizes, filters), 0, w.flatten(1)
        for patches, _, chosen in self.parts:
            whole = image(patches.flatten(0, 1), W).unflatten(0, patches.shape[:2])
            torch.gather(whole, 1, chosen, out=out[done : done + len(chosen)].flatten(1, 2))
            done += len(chosen)
        return (out if b is None else out.add_(b)).movedim(-1, 1)

    def back(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients by filters and bias."""
        g, done = g.movedim(1, -1).flatten(1, 2).contiguous(), 0
        by_w = g.new_zeros(self.of.w[0].numel(), g.shape[2])
        for patches, turned, chosen in self.parts:
            whole = g.new_zeros(*patches.shape[:2], g.shape[2])
            part = g[done : done + len(chosen)]
            whole.scatter_(1, chosen, part) if self.apart else whole.scatter_add_(1, chosen, part)
            by_w.add_(summed(turned, whole.flatten(0, 1)))
            done += len(chosen)
        return by_w.mT.reshape(self.of.w.shape), g.sum((0, 1))


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, w: Tensor, b: Tensor | None, y: Tensor, chosen: _Chosen) -> Tensor:
        ctx.chosen = chosen
        return y.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        by_w, by_b = _Adjoint.apply(grads[0], ctx.chosen)
        return by_w, by_b if ctx.needs_input_grad[1] else None, None, None


class _Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, chosen: _Chosen) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.chosen = chosen
        return chosen.back(g)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        no_third(first_order=True)
        by_w, by_b = cotangents
        by_w = torch.zeros_like(ctx.chosen.of.w) if by_w is None else by_w
        return ctx.chosen.apply(by_w, by_b), None


def pooled_convolution(z: Tensor, y: Tensor, places: Tensor, apart: bool) -> Tensor | None:
    """``y`` with derivatives by filters and bias, where ``z`` is the convolution of data with small patches.

    Args:
        z: what was pooled.
        y: the largest of each window.
        places: where in the plane of its filter each of them was.
        apart: whether no two windows share a place.

    Returns:
        Images, or ``None``.
    """
    of: Convolved | None = getattr(z, "_convolved", None)
    if of is None or z._version != of.version:
        return None
    return _Pooled.apply(of.w, of.b, y, _Chosen(of, places, apart))  # type: ignore[no-any-return]
