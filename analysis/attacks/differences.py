"""Ascent without gradients: the slopes of a function of sequences by differences, block of entries by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .projections import Geometry

BLOCKS = 160
"""Of a sequence, about: each is one question a pass."""
PASSES = 2
"""Of all blocks; the later ones where the first came half of the way to what is enough."""
_GROUPS = 32
"""Of features, at most."""


class Block(NamedTuple):
    """Entries of a sequence: some features over a span of time."""

    begin: int
    end: int
    features: Tensor


def blocks(steps: int, features: int, generator: torch.Generator) -> list[list[Block]]:
    """Blocks that part a sequence, a list a span of time; the last spans first and finest, which most networks heed.

    Args:
        steps: of the sequence.
        features: of each step; many stand in random groups.
        generator: of the groups.

    >>> found = blocks(4, 1, torch.Generator())
    >>> [(b.begin, b.end) for span in found for b in span]
    [(3, 4), (2, 3), (1, 2), (0, 1)]
    >>> [(span[0].begin, span[0].end) for span in blocks(28, 28, torch.Generator())]
    [(27, 28), (26, 27), (24, 26), (21, 24), (14, 21), (0, 14)]
    """
    order = torch.arange(features) if features <= _GROUPS else torch.randperm(features, generator=generator)
    groups = order.chunk(min(features, _GROUPS))
    spans, begin = [], 0
    while steps - begin > 1:
        middle = begin + (steps - begin) // 2
        spans.append((begin, middle))
        begin = middle
    spans.append((begin, steps))
    while 2 * len(spans) * len(groups) <= BLOCKS or len(spans) == 1:
        halves = [(a + (b - a) * k // 2, a + (b - a) * (k + 1) // 2) for a, b in spans for k in (0, 1)]
        halves = [(a, b) for a, b in halves if a < b]
        if len(halves) == len(spans):
            break
        spans = halves
    return [[Block(a, b, group) for group in groups] for a, b in reversed(spans)]


def feel(
    x: Tensor,
    value: Callable[[Tensor, Tensor], Tensor],
    inside: Callable[[Tensor, Tensor], Tensor],
    shape: Geometry,
    radius: Tensor,
    generator: torch.Generator,
    *,
    gradient: Callable[[Tensor, Tensor], Tensor] | None = None,
    enough: float = float("inf"),
) -> Tensor:
    """Points of balls around sequences where a function is large, of all that it was asked about the best.

    Each block of entries in turn is moved by half of the radius; what the function rises by tells its slope, and after
    each span of time all that is known of slopes is followed to the end of the ball. Some ``2 PASSES BLOCKS`` questions
    a sequence at most; of the same seed the same ones.

    Args:
        x: ``(batch, time, features)``.
        value: points and the rows of ``x`` that they belong to, to ``(rows,)``; what is not finite is no better than
            anything, and tells no slope.
        inside: the same to points in the ball and the bounds; no other is asked about.
        shape: of the ball.
        radius: ``(batch,)`` of it.
        generator: of the ways that blocks are moved first.
        gradient: points and rows to gradients, all finite, zero where there is none; those that are not are followed.
        enough: a value above which a sequence takes part no longer.

    >>> x, rise = torch.zeros(1, 3, 1), torch.tensor([[[2.0], [-4.0], [6.0]]])
    >>> from stability.analysis.attacks.projections import NORMS
    >>> shape, one = NORMS["linf"], torch.ones(1)
    >>> value, inside = lambda z, _: (rise * z).round().sum((1, 2)), lambda z, _: z.clamp(-1, 1)
    >>> found = feel(x, value, inside, shape, one, torch.Generator())
    >>> found.flatten().tolist()
    [1.0, -1.0, 1.0]
    """
    best, rows, z = x.clone(), torch.arange(len(x), device=x.device), x
    top = value(x, rows)
    at, total = top.clone(), torch.zeros_like(x)

    def ask(points: Tensor) -> Tensor:
        found = value(points, rows)
        found = torch.where(torch.isfinite(found), found, float("-inf"))
        better = found > top[rows]
        best[rows[better]], top[rows[better]] = points[better], found[better]
        return found

    first, spans = top.clone(), blocks(x.shape[1], x.shape[2], generator)
    for turn, span in enumerate(PASSES * spans):
        hopeful = turn < len(spans) or (enough - top[rows] <= (enough - first[rows]) / 2)
        standing = ((top[rows] <= enough) & hopeful).nonzero()[:, 0]
        if not len(standing):
            break
        rows, z, at, total = rows[standing], z[standing], at[standing], total[standing]
        reach = radius[rows].to(z.dtype)
        given = torch.zeros_like(z) if gradient is None else gradient(z, rows)
        known = given.flatten(1).ne(0).any(dim=1)
        for block in span if not bool(known.all()) else ():
            way = torch.zeros_like(z)
            own = (slice(None), slice(block.begin, block.end), block.features.to(z.device))
            way[own] = 1.0 if float(torch.rand((), generator=generator)) < 0.5 else -1.0
            step = shape.step(way, reach / 2)
            there = inside(z + step, rows)
            stuck = (there == z).flatten(1).all(dim=1)
            there = torch.where(stuck[:, None, None], inside(z - step, rows), there)
            moved = there - z
            square = moved.square().sum(dim=(1, 2))
            rise = ask(there) - at
            rise = torch.where(torch.isfinite(rise), rise, 0.0)
            slope = rise.to(z.dtype) / torch.where(square > 0, square, torch.ones_like(square))
            total[own] = (slope[:, None, None] * moved)[own]
        climbed, jumped = z + shape.step(given, reach / 2), x[rows] + shape.step(total, reach)
        there = inside(torch.where(known[:, None, None], climbed, jumped), rows)
        found = ask(there)
        higher = found > at
        z, at = torch.where(higher[:, None, None], there, z), torch.where(higher, found, at)
    return best
