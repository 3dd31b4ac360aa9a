"""APGD: projected gradient ascent with momentum and an adaptive step size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from stability.kernel.checks import as_choice

from ..guard import check_int
from .threat import LOSSES, AttackResult, Bounds, Threat, attacked, open_threat
from .units import per_feature

_MOMENTUM = 0.75  # alpha of the paper, section 3.1
_PROGRESS = 0.75  # rho: share of steps that must raise the loss for the step size to stay


def checkpoints(steps: int) -> list[int]:
    """Return the iterations at which the step size is reviewed: ``ceil(p_j steps)``, ``p_0 = .22``, shrinking gaps.

    >>> checkpoints(100)[:4]
    [22, 41, 57, 70]
    """
    previous, current, points = 0.0, 0.22, []
    while current <= 1:
        points.append(max(1, math.ceil(round(current * steps, 6))))
        previous, current = current, current + max(round(current - previous - 0.03, 10), 0.06)
    return sorted(set(points))


@dataclass
class _Ascent:
    """State of the ascent of each sequence; all fields are ``(batch, ...)``.

    Attributes:
        z: current point.
        previous: previous point.
        value: loss at ``z``.
        gradient: gradient at ``z``.
        best: point of the largest loss so far.
        best_value: loss there.
        best_gradient: gradient there.
        length: step size.
        rises: steps since the last review that raised the loss.
        halved: whether the last review halved the step size.
        value_at_review: best loss at the last review.
    """

    z: Tensor
    previous: Tensor
    value: Tensor
    gradient: Tensor
    best: Tensor
    best_value: Tensor
    best_gradient: Tensor
    length: Tensor
    rises: Tensor
    halved: Tensor
    value_at_review: Tensor

    def take(self, index: Tensor) -> _Ascent:
        """Return the state of the selected sequences."""
        return _Ascent(*(getattr(self, each.name)[index] for each in fields(self)))

    def move_to(self, z: Tensor, value: Tensor, gradient: Tensor) -> None:
        """Move to the next point and update the best one."""
        self.rises = self.rises + (value > self.value)
        better = value > self.best_value
        self.previous, self.z, self.value, self.gradient = self.z, z, value, gradient
        self.best = torch.where(better[:, None, None], z, self.best)
        self.best_gradient = torch.where(better[:, None, None], gradient, self.best_gradient)
        self.best_value = torch.maximum(self.best_value, value)

    def review(self, steps: int) -> None:
        """Halve the step size and return to the best point if the ascent has stalled.

        It has stalled if few of the ``steps`` since the last review raised the loss, or the best loss has not improved.
        """
        stalled = self.rises < _PROGRESS * steps
        halve = stalled | (~self.halved & (self.best_value <= self.value_at_review))
        back = halve[:, None, None]
        self.length = torch.where(halve, self.length / 2, self.length)
        self.z, self.previous = torch.where(back, self.best, self.z), torch.where(back, self.best, self.previous)
        self.gradient = torch.where(back, self.best_gradient, self.gradient)
        self.value = torch.where(halve, self.best_value, self.value)
        self.halved, self.value_at_review = halve, self.best_value
        self.rises = torch.zeros_like(self.rises)


def _lead(logits: Tensor, y: Tensor, rival: Tensor) -> Tensor:
    """Return the logit lead of the classes ``rival (batch,)`` over the true ones."""
    return (logits.gather(1, rival[:, None]) - logits.gather(1, y[:, None]))[:, 0]


def ascend_loss(
    threat: Threat,
    steps: int,
    objective: Callable[[Tensor, Tensor], Tensor],
    generator: torch.Generator,
    rival: Tensor | None = None,
    start: Tensor | None = None,
    stride: float = 2.0,
) -> tuple[Tensor, int]:
    """Run the ascent once; return the first misclassified point visited, else the point of highest loss.

    The ascent of a sequence ends at its first misclassified point.

    Args:
        threat: the problem.
        steps: gradient steps.
        objective: logits ``(batch, classes)`` and labels to losses ``(batch,)``.
        generator: generator of the random start.
        rival: classes ``(batch,)`` whose lead over the true classes replaces the objective.
        start: starting points ``(batch, time, features)``, projected to ball and bounds; ``None``: random points.
        stride: length of the first step, in radii.

    Returns:
        Points ``(batch, time, features)``, and the steps taken.
    """
    shape = threat.geometry

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        return objective(logits, y) if rival is None else _lead(logits, y, rival)

    if start is None:
        start = threat.x + shape.random(threat.x, threat.reach, generator)
    z = threat.inside(start)
    value, gradient, logits = threat.ascend(z, loss)
    length, zeros = (torch.zeros_like(value) + stride * threat.reach).to(value.dtype), torch.zeros_like(value)
    at = _Ascent(z, z, value, gradient, z, value, gradient, length, zeros, zeros.bool(), value)
    answer, rows = z.clone(), torch.arange(len(z), device=z.device)
    reviews, last_review = checkpoints(steps), 0
    for k in range(1, steps + 1):
        wrong = logits.argmax(dim=1) != threat.y
        if bool(wrong.any()):
            remaining = (~wrong).nonzero()[:, 0]
            answer[rows[wrong]] = at.z[wrong]
            if not len(remaining):
                return answer, k - 1
            rows, at, threat = rows[remaining], at.take(remaining), threat.take(remaining)
            rival = None if rival is None else rival[remaining]
        if k - 1 in reviews:
            at.review(k - 1 - last_review)
            last_review = k - 1
        target = threat.inside(at.z + shape.step(at.gradient, at.length))
        blend = at.z + _MOMENTUM * (target - at.z) + (1 - _MOMENTUM) * (at.z - at.previous)
        z = target if k == 1 else threat.inside(blend)
        if k < steps:
            value, gradient, logits = threat.ascend(z, loss)
        else:  # no gradient is needed at the last point
            logits = threat.logits(z)
            value, gradient = loss(logits, threat.y), at.gradient
        at.move_to(z, value, gradient)
    wrong = logits.argmax(dim=1) != threat.y
    answer[rows] = torch.where(wrong[:, None, None], at.z, at.best)
    return answer, steps


@per_feature
def apgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float | Tensor,
    norm: str = "linf",
    steps: int = 50,
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    restarts: int = 1,
    loss: str = "cross_entropy",
    seed: int = 0,
) -> AttackResult:
    """Run Auto-PGD, projected gradient ascent without a step size to choose.

    ``u = P(z + eta direction(dL/dz))``, ``z+ = P(z + a (u - z) + (1 - a)(z - z-))`` with ``a = 3/4``;
    ``eta`` starts at ``2 epsilon`` and is halved, per sequence, at checkpoints where too few steps raised the
    loss or the best loss has not improved; the search then continues from the best point.

    Args:
        model: ``model(x) -> logits (batch, classes)``; run in evaluation mode, restored afterwards.
        x: ``(batch, time, features)``, within the bounds.
        y: ``(batch,)`` class labels.
        epsilon: radius, 0 or more.
        norm: ``"linf"`` or ``"l2"`` over the whole sequence; ``"l2_step"`` for every step.
        steps: gradient steps of each start.
        bounds: pair of numbers or of tensors that broadcast to ``x``; ``None``: no bounds.
        mask: boolean, broadcasts to ``x``: True where the attack may change an entry.
        restarts: random starts; later ones attack only sequences that are still classified correctly.
        loss: ``"cross_entropy"`` or ``"margin"``.
        seed: seed of the random starts.

    Returns:
        The result, with success recomputed on the stored sequences.

    Raises:
        ConfigurationError: an invalid option or tensor.
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
    as_choice("loss", loss, LOSSES)
    generator = torch.Generator().manual_seed(threat.seed)
    return attacked(threat, "apgd", lambda part: ascend_loss(part, steps, LOSSES[loss], generator), restarts)
