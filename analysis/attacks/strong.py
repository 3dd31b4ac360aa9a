"""A strong attack at a whole grid of radii at once: DeepFool, then APGD from its points and from random ones.

Every sequence is asked one question at a time, and each its own: does it fall at the largest radius of the grid at
which it still stands? What falls is drawn back along its segment, which may settle smaller radii, too; what stands
against every start is left as it is, at that radius and at all smaller ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import DimensionError

from ..guard import check_int, check_number, untouched
from ..kernels.inputs import by_input
from ..memory import kept_memory
from .apgd import ascend_loss
from .deepfool import deepfool, draw_back
from .felt import felt_where_blind
from .masked import unwarned, warn_of
from .threat import LOSSES, AttackResult, Bounds, Threat, open_threat

HALVINGS = 6
"""Of the segment back from what APGD found."""
NEARBY = 0.6
"""Of the radius: the first step from a point that is known, which leaves its surroundings less than the paper's 2."""


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
    """Misclassified sequences inside the smallest balls of a grid in which DeepFool and then APGD find any.

    APGD first maximises the margin ``max_{j != y} z_j - z_y`` from the smallest perturbation that is known, pulled back
    to the ball; then from random starts cross entropy and the margin in turns. Either loss finds sequences that the
    other misses.

    Args:
        model: ``model(x) -> logits (batch, classes)``; judged in evaluation mode, left as it was found.
        x: ``(batch, time, features)``, within the bounds.
        y: ``(batch,)`` class labels.
        epsilon: a radius, or several.
        norm: ``"linf"`` or ``"l2"`` over the whole sequence.
        steps: gradient steps of each run of APGD.
        starts: runs of APGD of each sequence at each radius that it is attacked with.
        near: what another attack found for the same sequences; ``None``: DeepFool is run.
        bounds: pair of numbers or of tensors that broadcast to ``x``; ``None``: free.
        mask: boolean, broadcasts to ``x``: true where the attack may change something.
        seed: of the random starts.

    Returns:
        The result, with success recomputed on the stored sequences; of several radii without a limit, each sequence
        with the smallest perturbation that was found. ``iterations`` are those of one run of APGD.

    Raises:
        ConfigurationError: an option or tensor that does not fit.
        DimensionError: a wrong shape, of ``near``, too.
        NonFiniteError: NaN in data, weights or logits.

    Source: S. Moosavi-Dezfooli, A. Fawzi, P. Frossard (2016); F. Croce, M. Hein (2020); the grid and the way down it
    are this file's own.

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
    grid = torch.tensor(sorted(e for e in radii if e > 0), dtype=torch.float64, device=threat.x.device)
    with untouched(model), kept_memory():
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        already = threat.wrong(threat.x)
        points = threat.box.clip(near.adversarial.to(threat.x))
        z, taken = _descend(threat, points, ~already, grid, steps, starts)
        if threat.watch is not None:
            threat.watch.note(near.blind)  # not before: where APGD meets no gradient, differences are followed
        held = threat if several else replace(threat, epsilon=radii[0])
        result = held.judge("strong", z, taken, already)
    warn_of(result.blind, len(threat.x))
    return result


def _descend(
    threat: Threat, points: Tensor, right: Tensor, grid: Tensor, steps: int, starts: int
) -> tuple[Tensor, int]:
    """The points of the smallest balls, and the most steps that a run took.

    Args:
        threat: the problem, without a radius.
        points: ``(batch, time, features)``, where an attack ended; a sequence that it did not fool has one, too.
        right: ``(batch,)`` where the undisturbed sequence is classified correctly.
        grid: positive radii, ascending, float64.
        steps: of each run.
        starts: of each sequence at each radius.
    """
    generator = torch.Generator().manual_seed(threat.seed)
    points, longest = points.clone(), 0
    sizes, tried = _sizes(threat, points), torch.zeros(len(points), dtype=torch.long, device=points.device)
    while True:
        rung = torch.searchsorted(grid, sizes)  # how many radii of the grid it stands against
        waiting = (right & (rung > 0) & (tried < starts)).nonzero()[:, 0]
        if not len(waiting):
            return points, longest
        for start in tried[waiting].unique().tolist():
            rows = waiting[tried[waiting] == start]
            radii = grid[rung[rows] - 1]
            part = replace(threat.take(rows), radii=radii)
            loss = LOSSES["cross_entropy" if start % 2 else "margin"]
            known: dict[str, Any] = {} if start else {"start": points[rows], "stride": NEARBY}
            with by_input(threat.model):
                found, taken = ascend_loss(part, steps, loss, generator, **known)
            longest = max(longest, taken)
            tried[rows] += 1
            found = part.inside(found)
            if start == 0:
                found = felt_where_blind(part, found)
            fallen = part.wrong(found)
            if not bool(fallen.any()):
                continue
            where, found = rows[fallen], found[fallen]
            back = draw_back(threat.take(where), found, HALVINGS, fooled=True)
            own = threat.geometry.size(back.double() - threat.x[where].double())
            lower = own <= radii[fallen]
            points[where[lower]], sizes[where[lower]], tried[where[lower]] = back[lower], own[lower], 0


def _sizes(threat: Threat, z: Tensor) -> Tensor:
    """Size of each perturbation, infinite where the class is right."""
    own = threat.geometry.size(z.double() - threat.x.double())
    return torch.where(threat.wrong(z), own, float("inf"))
