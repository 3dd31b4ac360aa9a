"""Strong attack over a grid of radii: DeepFool, then APGD from its points and from random starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import DimensionError

from ..guard import check_int, check_number, untouched
from .apgd import ascend_loss
from .deepfool import deepfool, move_to_boundary
from .masked import unwarned, warn_of
from .threat import LOSSES, AttackResult, Bounds, open_threat

BISECTIONS = 6
"""Bisection steps from a misclassified point back towards the input."""
WARM_START_STEP = 0.6
"""First step of APGD in radii when it starts from a known point, where the paper's 2 would leave its neighborhood."""


def strong(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float | Sequence[float],
    norm: str = "linf",
    steps: int = 10,
    starts: int = 2,
    near: AttackResult | None = None,
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    seed: int = 0,
) -> AttackResult:
    """Attack with DeepFool and then, from the largest radius down, with several runs of APGD.

    The first run of APGD maximizes the margin ``max_{j != y} z_j - z_y`` from the smallest known perturbation, pulled
    back to the ball; later runs maximize cross entropy and the margin in turns from random starts. A misclassified
    point is bisected towards its sequence, which may decide smaller radii, too. A sequence that withstands every run at
    one radius is not attacked at smaller ones.

    Args:
        model: ``model(x) -> logits (batch, classes)``; run in evaluation mode, restored afterwards.
        x: ``(batch, time, features)``, within the bounds.
        y: ``(batch,)`` class labels.
        epsilon: a radius, or several.
        norm: ``"linf"`` or ``"l2"`` over the whole sequence; ``"l2_step"`` for every step.
        steps: gradient steps of each run of APGD.
        starts: runs of APGD of each sequence at each radius that it is attacked with.
        near: the result of another attack on the same sequences; ``None``: DeepFool is run.
        bounds: pair of numbers or of tensors that broadcast to ``x``; ``None``: free.
        mask: boolean, broadcasts to ``x``: True where the attack may change an entry.
        seed: seed of the random starts.

    Returns:
        The result, with success recomputed on the stored sequences; of several radii without a limit, each sequence
        with the smallest perturbation that was found. ``iterations`` are those of one run of APGD.

    Raises:
        ConfigurationError: an invalid option or tensor.
        DimensionError: a wrong shape, also of ``near``.
        NonFiniteError: NaN in data, weights or logits.

    Source: S. Moosavi-Dezfooli, A. Fawzi, P. Frossard (2016); F. Croce, M. Hein (2020); the order of radii is this
    project's.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    >>> _ = model[1].weight.data.copy_(torch.tensor([[1.0], [-1.0]]))  # class 0 where x > 0
    >>> x, y = torch.tensor([[[0.25]], [[0.75]]]), torch.tensor([0, 0])
    >>> found = strong(model, x, y, epsilon=[0.5, 1], bounds=(-1, 1))
    >>> (found.norms <= torch.tensor([0.5, 1.0])).tolist(), found.success.tolist()
    ([True, True], [True, True])
    """
    threat = open_threat(model, x, y, norm=norm, bounds=bounds, mask=mask, seed=seed, epsilon=None)
    steps, starts = check_int("steps", steps), check_int("starts", starts)
    if near is None:
        with unwarned():
            near = deepfool(model, x, y, norm=norm, bounds=bounds, mask=mask, seed=seed)
    if near.adversarial.shape != threat.x.shape:
        raise DimensionError("near.adversarial", tuple(threat.x.shape), tuple(near.adversarial.shape))
    several = isinstance(epsilon, Sequence)
    radii = [check_number("epsilon", e) for e in (epsilon if isinstance(epsilon, Sequence) else [epsilon])]
    generator, longest = torch.Generator().manual_seed(threat.seed), 0
    with untouched(model):
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        already = threat.wrong(threat.x)
        z = threat.box.clip(near.adversarial.to(threat.x))
        sizes = torch.where(threat.wrong(z), threat.geometry.size(z.double() - threat.x.double()), float("inf"))
        open_ = ~already  # no radius of the grid was withstood yet
        for radius in sorted((e for e in radii if e > 0), reverse=True):
            rows = (open_ & (sizes > radius)).nonzero()[:, 0]
            for start in range(starts):
                if not len(rows):
                    break
                part = replace(threat.take(rows), epsilon=radius)
                loss = LOSSES["cross_entropy" if start % 2 else "margin"]
                known: dict[str, Any] = {} if start else {"start": z[rows], "stride": WARM_START_STEP}
                perturbed, taken = ascend_loss(part, steps, loss, generator, **known)
                perturbed, longest = part.inside(perturbed), max(longest, taken)
                fallen = part.wrong(perturbed)
                hit = rows[fallen]
                z[hit] = move_to_boundary(threat.take(hit), perturbed[fallen], BISECTIONS, fooled=True)
                sizes[hit] = threat.geometry.size(z[hit].double() - threat.x[hit].double())
                rows = rows[~fallen]
            open_[rows] = False
        held = threat if several else replace(threat, epsilon=radii[0])
        result = held.judge("strong", z, longest, already)
    warn_of(result.blind, len(threat.x))
    return result
