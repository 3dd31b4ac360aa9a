"""The geometry of a budget for each step: no step's change is longer than the radius, in l2."""

from __future__ import annotations

import torch
from torch import Tensor

from stability.errors import ConfigurationError

from .projections import NORMS, Geometry, Radius

BUDGETS = ("total", "step")
_L2 = NORMS["l2"]
_NEGLIGIBLE = 1e-100
"""Of a step's steepest entry: what is flatter is left alone, and its square does not vanish."""


def check_budget(norm: str, budget: str) -> str:
    """What the radius limits: the change of the whole sequence, or that of every step.

    Args:
        norm: ``"l2"`` or ``"linf"``.
        budget: ``"total"`` or ``"step"``.

    Returns:
        The budget.

    Raises:
        ConfigurationError: an unknown word, or ``"step"`` in l_inf.

    >>> check_budget("l2", "step")
    'step'
    """
    if budget not in BUDGETS:
        raise ConfigurationError(f"budget must be 'total' or 'step', got {budget!r}")
    if budget == "step" and norm != "l2":
        raise ConfigurationError(
            f"budget 'step' is for norm 'l2', got {norm!r}: the largest change of an entry of the sequence is the "
            "largest one of its steps, so that both budgets are one in l_inf; leave the budget out"
        )
    return budget


def _steps(x: Tensor) -> Tensor:
    """``(batch * time, features)``."""
    return x.flatten(0, 1)


def _each(radius: Radius, x: Tensor) -> Radius:
    """The radius of every step."""
    return radius.repeat_interleave(x.shape[1]) if isinstance(radius, Tensor) else radius


def _lengths(d: Tensor) -> Tensor:
    return d.double().norm(dim=2)


def _clip(x: Tensor, z: Tensor, epsilon: Radius) -> Tensor:
    return _L2.clip(_steps(x), _steps(z), _each(epsilon, x)).reshape(x.shape)


def _random(x: Tensor, epsilon: Radius, generator: torch.Generator) -> Tensor:
    return _L2.random(_steps(x), _each(epsilon, x), generator).reshape(x.shape)


def _jump(g: Tensor, distance: Tensor) -> Tensor:
    return _L2.step(_steps(g), distance.repeat_interleave(g.shape[1])).reshape(g.shape)


EACH_STEP = Geometry(
    "l2_step",
    lambda d: _lengths(d).amax(dim=1),
    _clip,
    _random,
    _jump,
    lambda g: _lengths(g).sum(dim=1),
    lambda x, epsilon: None,
)
"""``max_t |d_t|_2``, whose ball is one ball for each step and whose dual norm is ``sum_t |g_t|_2``."""


class _Ways:
    """Of every step the way that climbs a linear function fastest inside a box, by the length gone."""

    def __init__(self, gradient: Tensor, low: Tensor, high: Tensor) -> None:
        top = gradient.abs().amax(dim=2, keepdim=True)
        g = gradient / torch.where(top > 0, top, torch.ones_like(top))
        g = torch.where(g.abs() > _NEGLIGIBLE, g, torch.zeros_like(g))
        end = torch.where(g > 0, high, torch.where(g < 0, low, torch.zeros_like(low)))
        until = torch.where(g != 0, end / torch.where(g != 0, g, torch.ones_like(g)), torch.zeros_like(g))
        self.until, order = until.sort(dim=2)  # entry by entry comes to the end of the box, and stays there
        squares = end.gather(2, order).square().cumsum(dim=2)
        self.gone = torch.cat([torch.zeros_like(squares[..., :1]), squares], dim=2)
        self.left = g.gather(2, order).square().flip(2).cumsum(dim=2).flip(2)
        self.reached = self.gone[..., :-1] + self.until.square() * self.left
        self.g, self.low, self.high = g, low, high

    def at(self, radius: Tensor) -> Tensor:
        """``(batch, time, features)``: where each step is at this length ``(batch,)``, or at its corner of the box."""
        square = radius.square()[:, None, None]
        count = (self.reached <= square).sum(dim=2, keepdim=True)
        last = self.until.shape[2] - 1
        rest, left = square - self.gone.gather(2, count), self.left.gather(2, count.clamp(max=last))
        scale = (rest.clamp(min=0) / torch.where(left > 0, left, torch.ones_like(left))).sqrt()
        scale = torch.where(count > last, self.until[..., -1:], scale)
        return torch.minimum(torch.maximum(scale * self.g, self.low), self.high)


def nearest_level_of_steps(gradient: Tensor, rise: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The ``d`` with ``g . d >= rise`` inside a box whose longest step ``max_t |d_t|_2`` is the shortest.

    Every step goes as far as the longest one: without a box ``d_t = r g_t / |g_t|`` with ``r = rise / sum_t |g_t|``. In
    a box ``d_t = clip(s_t g_t)`` with ``|d_t| = r``, or the box's corner, with ``r`` by bisection.

    Args:
        gradient: ``(batch, time, features)``.
        rise: ``(batch,)``.
        low: as the gradient, at most 0.
        high: as the gradient, at least 0.

    Returns:
        As the gradient; the corner of the box that goes farthest where no point of it reaches the level.

    >>> g, far = torch.tensor([[[3.0, 4.0], [0.0, 5.0]]]), torch.full((1, 2, 2), 9.0)
    >>> nearest_level_of_steps(g, torch.tensor([10.0]), -far, far)
    tensor([[[0.6000, 0.8000],
             [0.0000, 1.0000]]])
    """
    ways, need = _Ways(gradient, low, high), rise.clamp(min=0)
    steep = gradient.norm(dim=2).sum(dim=1)
    above = torch.where(steep > 0, need / torch.where(steep > 0, steep, torch.ones_like(steep)), torch.zeros_like(need))
    below = above  # the answer without a box

    def short(radius: Tensor) -> Tensor:
        return (gradient * ways.at(radius)).sum(dim=(1, 2)) < need

    for _ in range(60):
        lacks = short(above)
        if not bool(lacks.any()):
            break
        below, above = torch.where(lacks, above, below), torch.where(lacks, 2 * above, above)
    for _ in range(50 if bool((below < above).any()) else 0):
        middle = (below + above) / 2
        lacks = short(middle)
        below, above = torch.where(lacks, middle, below), torch.where(lacks, above, middle)
    return ways.at(above)
