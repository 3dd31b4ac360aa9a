"""Attacks over several starts; where sequences have no gradient, their margin is felt for by differences instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ..guard import untouched
from ..kernels.inputs import by_input
from ..memory import kept_memory
from .differences import feel
from .masked import Watch, told_above, warn_of
from .threat import AttackResult, Threat, margins


def felt(threat: Threat, generator: torch.Generator, *, guessed: bool = False) -> Tensor:
    """Points ``(batch, time, features)`` of the balls, the best that were asked about: misclassified, if any was.

    The margin is driven up along its own gradient where it has one (the loss may have none where it is saturated), else
    along differences. A gradient with an entry that is not finite counts as none: the others may be those that matter
    least.

    Args:
        threat: the problem, with a finite radius.
        generator: of the ways that are tried first.
        guessed: the radius is a guess and nobody's claim: points where the model overflows are passed over.

    Raises:
        NonFiniteError: NaN in logits, of a radius that is no guess.
    """
    held = replace(threat.limited(), watch=None)
    radius = torch.zeros(len(held.x), dtype=torch.float64, device=held.x.device) + held.reach

    def value(z: Tensor, rows: Tensor) -> Tensor:
        part = held.take(rows)
        if not guessed:
            return margins(part.logits(z), part.y)
        with torch.no_grad():
            logits = part.model(z)
        return torch.where(torch.isfinite(logits).all(dim=1), margins(logits, part.y), float("nan"))

    def gradient(z: Tensor, rows: Tensor) -> Tensor:
        part = held.take(rows)
        watch = Watch.over(part.box.lower < part.box.upper)
        with told_above():
            found = replace(part, watch=watch).ascend(z, margins)[1]
        return torch.where(watch.blind[:, None, None], 0.0, found)

    def inside(z: Tensor, rows: Tensor) -> Tensor:
        return held.take(rows).inside(z)

    return feel(held.x, value, inside, held.geometry, radius, generator, gradient=gradient, enough=0.0)


def felt_where_blind(threat: Threat, z: Tensor) -> Tensor:
    """The points that an attack found, with others of the ball where there was no gradient and those are misclassified.

    Args:
        threat: the problem, with a finite radius, after an attack.
        z: ``(batch, time, features)``, what it found.
    """
    rows = blind_rows(threat, z)
    if not len(rows):
        return z
    points = felt(threat.take(rows), torch.Generator().manual_seed(threat.seed))
    wrong = threat.take(rows).wrong(points)
    return z.index_copy(0, rows[wrong], points[wrong])


def blind_rows(threat: Threat, z: Tensor) -> Tensor:
    """Where sequences had no gradient at any point that was visited, and ``z`` is classified correctly."""
    if threat.watch is None or not bool(threat.watch.blind.any()):
        return torch.arange(0, device=z.device)
    return (threat.watch.blind & ~threat.wrong(z)).nonzero()[:, 0]


def attacked(threat: Threat, name: str, run: Callable[[Threat], tuple[Tensor, int]], starts: int = 1) -> AttackResult:
    """The best points over several starts, judged; later ones attack only what still stands.

    Args:
        threat: the problem.
        name: of the attack.
        run: one start for a part of the problem: the points, and the steps taken.
        starts: how many.
    """
    with untouched(threat.model), kept_memory():
        for parameter in threat.model.parameters():
            parameter.requires_grad_(False)  # no derivative by them is needed, nor a graph that leads to them
        found, longest = threat.x.clone(), 0
        already = threat.wrong(threat.x)
        standing = (~already).nonzero()[:, 0]
        for left in reversed(range(starts)):
            if not len(standing):
                break
            part = threat.take(standing)
            with by_input(threat.model):
                z, taken = run(part)
            longest = max(longest, taken)
            found[standing] = z
            standing = standing[~part.wrong(z)] if left else standing
        found = felt_where_blind(threat, found)
        result = threat.judge(name, found, longest, already)
    warn_of(result.blind, len(threat.x), 4)
    return result
