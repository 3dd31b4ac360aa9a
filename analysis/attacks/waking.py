"""Attacks where gradients vanish: of units that are off, gradients around a sequence tell which way wakes them."""

from __future__ import annotations

import torch
from torch import Tensor

from .apgd import ascend_loss
from .threat import Threat, margins

_AROUND = 32
"""Points of a ball over which gradients are averaged."""


def sleeping(threat: Threat, z: Tensor) -> Tensor:
    """``(batch,)``: whether at ``z`` the margin does not change to first order with all that a step may change."""
    _, gradient, _ = threat.ascend(z, margins)
    free = (threat.box.lower < threat.box.upper).expand_as(gradient)
    return (free.any(dim=2) & (gradient == 0.0).all(dim=2)).any(dim=1)


def woken(threat: Threat, steps: int, generator: torch.Generator) -> tuple[Tensor, int]:
    """Points ``(batch, time, features)`` of balls, and the steps taken to them.

    An ascent that begins where the gradient, averaged over random points of the ball, leads: at the sequence itself
    it vanishes for units that are off (ReLU), and no ascent would turn them on. Steps that are off at all of these
    points stay as they are.

    Args:
        threat: the problem, with a radius for each sequence.
        steps: of the ascent.
        generator: of the random points.
    """
    limited, shape = threat.limited(), threat.geometry
    total = torch.zeros_like(threat.x)
    for _ in range(_AROUND):
        z = limited.inside(threat.x + shape.random(threat.x, threat.reach, generator))
        _, gradient, _ = threat.ascend(z, margins)
        total += gradient
    length = torch.zeros_like(total[:, 0, 0]) + threat.reach
    start = threat.x + shape.step(total, length)
    return ascend_loss(threat, steps, margins, generator, start=start)
