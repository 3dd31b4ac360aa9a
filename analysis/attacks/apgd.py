"""APGD: projected gradient ascent with momentum that halves its own step size."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..guard import check_int
from .threat import LOSSES, AttackResult, Bounds, Threat, check_loss, open_threat

_MOMENTUM = 0.75  # alpha of the paper, section 3.1
_PROGRESS = 0.75  # rho: share of steps that must raise the loss for the step size to stay


def checkpoints(steps: int) -> list[int]:
    """Iterations at which the step size is reviewed: ``ceil(p_j steps)``, ``p_0 = .22``, with shrinking gaps.

    >>> checkpoints(100)[:4]
    [22, 41, 57, 70]
    """
    previous, current, found = 0.0, 0.22, []
    while current <= 1:
        found.append(max(1, math.ceil(round(current * steps, 6))))
        previous, current = current, current + max(round(current - previous - 0.03, 10), 0.06)
    return sorted(set(found))


def ascend_loss(
    threat: Threat, steps: int, objective: Callable[[Tensor, Tensor], Tensor], generator: torch.Generator
) -> tuple[Tensor, int]:
    """One run from a random start; the first misclassified point visited, else that of highest loss.

    Args:
        threat: the problem.
        steps: gradient steps.
        objective: logits ``(batch, classes)`` and labels to losses ``(batch,)``.
        generator: of the start.

    Returns:
        Points ``(batch, time, features)``, and the steps taken.
    """
    shape = threat.geometry
    z = threat.inside(threat.x + shape.random(threat.x, threat.reach, generator))
    value, gradient, logits = threat.ascend(z, objective)
    best, best_value, best_gradient = z, value, gradient
    fooled = logits.argmax(dim=1) != threat.y
    answer = z
    length = torch.zeros_like(value) + 2 * threat.reach
    previous, rises, reviews = z, torch.zeros_like(value), checkpoints(steps)
    last_review, unchanged, value_at_review = 0, torch.zeros_like(fooled), best_value
    for k in range(1, steps + 1):
        if bool(fooled.all()):
            return answer, k - 1
        target = threat.inside(z + shape.step(gradient, length))
        blend = z + _MOMENTUM * (target - z) + (1 - _MOMENTUM) * (z - previous)
        following = target if k == 1 else threat.inside(blend)
        previous, z = z, following
        before = value
        value, gradient, logits = threat.ascend(z, objective)
        rises = rises + (value > before)
        better = value > best_value
        best = torch.where(better[:, None, None], z, best)
        best_gradient = torch.where(better[:, None, None], gradient, best_gradient)
        best_value = torch.maximum(best_value, value)
        wrong = logits.argmax(dim=1) != threat.y
        answer = torch.where((wrong & ~fooled)[:, None, None], z, torch.where(fooled[:, None, None], answer, best))
        fooled = fooled | wrong
        if k in reviews:
            stalled = rises < _PROGRESS * (k - last_review)
            stuck = ~unchanged & (best_value <= value_at_review)
            halve = stalled | stuck
            length = torch.where(halve, length / 2, length)
            z = torch.where(halve[:, None, None], best, z)
            previous = torch.where(halve[:, None, None], best, previous)
            gradient = torch.where(halve[:, None, None], best_gradient, gradient)
            value = torch.where(halve, best_value, value)
            last_review, unchanged, value_at_review = k, halve, best_value
            rises = torch.zeros_like(rises)
    return answer, steps


def apgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float,
    norm: str = "linf",
    steps: int = 50,
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    restarts: int = 1,
    loss: str = "cross_entropy",
    seed: int = 0,
) -> AttackResult:
    """Auto-PGD: no step size to choose.

    ``u = P(z + eta direction(dL/dz))``, ``z+ = P(z + a (u - z) + (1 - a)(z - z-))`` with ``a = 3/4``;
    ``eta`` begins at ``2 epsilon`` and is halved, per sequence, at checkpoints where the loss rose too
    seldom or the best loss stands still; the search then goes on from the best point.

    Args:
        model: ``model(x) -> logits (batch, classes)``; judged in evaluation mode, left as it was found.
        x: ``(batch, time, features)``, within the bounds.
        y: ``(batch,)`` class labels.
        epsilon: radius, 0 or more.
        norm: ``"linf"`` or ``"l2"`` over the whole sequence.
        steps: gradient steps of each start.
        bounds: pair of numbers or of tensors that broadcast to ``x``; ``None``: free.
        mask: boolean, broadcasts to ``x``: true where the attack may change something.
        restarts: random starts; later ones attack only what still stands.
        loss: ``"cross_entropy"`` or ``"margin"``.
        seed: of the random starts.

    Returns:
        The result, with success recomputed on the stored sequences.

    Raises:
        ConfigurationError: an option or tensor that does not fit.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or logits.

    Source: F. Croce, M. Hein (2020), algorithm 1.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    >>> _ = model[1].weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
    >>> apgd(model, torch.tensor([[[0.5]]]), torch.tensor([0]), epsilon=0.75, bounds=(-1, 1)).robust_accuracy
    0.0
    """
    threat = open_threat(model, x, y, norm=norm, bounds=bounds, mask=mask, seed=seed, epsilon=epsilon)
    steps, restarts = check_int("steps", steps), check_int("restarts", restarts)
    check_loss(loss)
    generator = torch.Generator().manual_seed(threat.seed)
    return threat.attacked("apgd", lambda part: ascend_loss(part, steps, LOSSES[loss], generator), restarts)
