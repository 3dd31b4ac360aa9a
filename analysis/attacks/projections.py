"""Norms, projections and steepest ascent steps of attacks, on tensors ``(batch, time, features)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from stability.kernel.checks import as_choice

Radius = float | Tensor
"""One radius for all samples, or a radius per sample, ``(batch,)`` in float64."""


@dataclass(frozen=True, eq=False)
class Box:
    """Lower and upper bound of every entry, in the input's shape; equal where a position must not change."""

    lower: Tensor
    upper: Tensor

    def clip(self, z: Tensor) -> Tensor:
        """Return the nearest point of the box."""
        return torch.minimum(torch.maximum(z, self.lower), self.upper)

    def take(self, index: Tensor) -> Box:
        """Return the box of the selected samples."""
        return Box(self.lower[index], self.upper[index])

    def turned(self, z: Tensor, directions: Tensor) -> Tensor:
        """Zero the entries of directions ``(batch, k, ...)`` that leave the box at a face with ``z (batch, ...)``.

        >>> Box(torch.zeros(1, 2), torch.ones(1, 2)).turned(torch.ones(1, 2), torch.tensor([[[1.0, -1.0]]]))
        tensor([[[ 0., -1.]]])
        """
        ceiling = torch.zeros_like(z).masked_fill_(z < self.upper, float("inf"))
        floor = torch.zeros_like(z).masked_fill_(z > self.lower, float("-inf"))
        return torch.minimum(torch.maximum(directions, floor[:, None]), ceiling[:, None])


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """Reshape ``(batch,)`` so that it multiplies ``like (batch, ...)``."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


def _scaled(d: Tensor, norms: Tensor) -> Tensor:
    return d / per_sample(torch.where(norms > 0, norms, torch.ones_like(norms)), d)


def _l2(d: Tensor) -> Tensor:
    return d.double().flatten(1).norm(dim=1)


def _linf(d: Tensor) -> Tensor:
    return d.double().abs().flatten(1).amax(dim=1)


def _clip_l2(x: Tensor, z: Tensor, epsilon: Radius) -> Tensor:
    """Pull ``z`` back to the ball; every entry is rounded towards ``x``, so the stored result lies inside."""
    centre = x.double()
    d = z.double() - centre
    size = d.flatten(1).norm(dim=1)
    outside = size > epsilon
    if not bool(outside.any()):
        return z
    slack = 1 - (d[0].numel() + 4) * torch.finfo(torch.float64).eps  # what the norm's own rounding may add
    factor = torch.where(outside, slack * epsilon / torch.where(size > 0, size, 1.0), 1.0)
    d *= per_sample(factor, d)
    moved = (centre + d).to(x.dtype)
    beyond = (moved.double() - centre).abs_() > d.abs_()
    if bool(beyond.any()):
        moved = torch.where(beyond, torch.nextafter(moved, x), moved)
    return torch.where(per_sample(outside, z), moved, z)


def _clip_linf(x: Tensor, z: Tensor, epsilon: Radius) -> Tensor:
    """Return the nearest point of the ball, whose bounds are rounded inwards."""
    if isinstance(epsilon, Tensor):
        epsilon = per_sample(epsilon, x)
    doubled, infinity = x.double(), torch.full_like(x, float("inf"))
    lower, upper = (doubled - epsilon).to(x.dtype), (doubled + epsilon).to(x.dtype)
    lower = torch.where(doubled - lower > epsilon, torch.nextafter(lower, infinity), lower)
    upper = torch.where(upper - doubled > epsilon, torch.nextafter(upper, -infinity), upper)
    return torch.minimum(torch.maximum(z, lower), upper)


def _random_l2(x: Tensor, epsilon: Radius, generator: torch.Generator) -> Tensor:
    d = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    radius = torch.rand(len(x), generator=generator, dtype=torch.float64) ** (1 / d[0].numel())
    size = epsilon.cpu() if isinstance(epsilon, Tensor) else epsilon
    return (d * per_sample(size * radius / _l2(d), d)).to(x.device, x.dtype)


def _random_linf(x: Tensor, epsilon: Radius, generator: torch.Generator) -> Tensor:
    d = 2 * torch.rand(x.shape, generator=generator, dtype=torch.float64) - 1
    if isinstance(epsilon, Tensor):
        epsilon = per_sample(epsilon, d).cpu()
    return (epsilon * d).to(x.device, x.dtype)


def _jump_l2(g: Tensor, distance: Tensor) -> Tensor:
    return _scaled(g, _l2(g).to(g.dtype)) * per_sample(distance, g)


def _jump_linf(g: Tensor, distance: Tensor) -> Tensor:
    return g.sign() * per_sample(distance, g)


def _steps(x: Tensor) -> Tensor:
    """Return the steps of all sequences, ``(batch * time, features)``."""
    return x.flatten(0, 1)


def _each(radius: Radius, x: Tensor) -> Radius:
    """Repeat the radius of each sequence for its steps."""
    return radius.repeat_interleave(x.shape[1]) if isinstance(radius, Tensor) else radius


@dataclass(frozen=True)
class Geometry:
    """Operations of an attack in one norm.

    Attributes:
        name: ``l2``, ``linf``, or ``l2_step`` for the longest step, ``max_t |d_t|_2``.
        size: perturbation ``(batch, ...)`` to its norm ``(batch,)``, in float64.
        clip: ``(x, z, epsilon)`` to the point of the ball around ``x`` (nearest; rounding never leaves the
            ball).
        random: ``(x, epsilon, generator)`` to a uniformly distributed perturbation in the ball.
        step: ``(gradient, length (batch,))`` to the steepest ascent step of that length; 0 where the
            gradient is 0.
        dual: gradient to its dual norm ``(batch,)``: a linear function rises by at most ``dual * epsilon``.
    """

    name: str
    size: Callable[[Tensor], Tensor]
    clip: Callable[[Tensor, Tensor, Radius], Tensor]
    random: Callable[[Tensor, Radius, torch.Generator], Tensor]
    step: Callable[[Tensor, Tensor], Tensor]
    dual: Callable[[Tensor], Tensor]


NORMS: dict[str, Geometry] = {
    "l2": Geometry("l2", _l2, _clip_l2, _random_l2, _jump_l2, _l2),
    "linf": Geometry(
        "linf", _linf, _clip_linf, _random_linf, _jump_linf, lambda g: g.double().abs().flatten(1).sum(dim=1)
    ),
    "l2_step": Geometry(
        "l2_step",
        lambda d: d.double().norm(dim=2).amax(dim=1),
        lambda x, z, epsilon: _clip_l2(_steps(x), _steps(z), _each(epsilon, x)).reshape(x.shape),
        lambda x, epsilon, generator: _random_l2(_steps(x), _each(epsilon, x), generator).reshape(x.shape),
        lambda g, length: _jump_l2(_steps(g), length.repeat_interleave(g.shape[1])).reshape(g.shape),
        lambda g: g.double().norm(dim=2).sum(dim=1),
    ),
}


def geometry(norm: str) -> Geometry:
    """Return the geometry of a norm by name.

    Raises:
        ConfigurationError: an unknown name.

    >>> geometry("linf").size(torch.tensor([[[1.0, -3.0]]]))
    tensor([3.], dtype=torch.float64)
    """
    return NORMS[as_choice("norm", norm, NORMS)]
