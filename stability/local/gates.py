"""The largest balls of LSTM and GRU networks of one unit: dynamic programming on cells of their states.

What is found is a claim only where the rule ``local_cells`` accepts it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stability.certificate import Claim
from stability.errors import ConfigurationError, NonFiniteError
from stability.local.gated_runs import GatedRuns
from stability.local.moves import Ending, Moves
from stability.local.refining import Refining
from stability.local.request import Request, one_by_one
from stability.local.togo import ending, gated_moves, image, margins, unfit
from stability.rigor.intervals import Interval
from stability.rules.local_cells import LONGEST, MOST, WIDEST
from stability.rules.registry import accepted
from stability.solve.deadline import Deadline

Array = np.ndarray
KIND = "local_cells"
_WIDER, _PAD, _BELOW = 1.0005, 1e-6, 1e-9
"""Of a radius: moves that are looked at; of boxes of states, what is added; and what is taken off a radius."""
_CLOSE, _ENOUGH = 1e-6, 1.5e-7
"""What may be missing where there is no use in another search, and where there is none in another pass."""
_STARTS, _SIZES, _FAR = 6, (0.1, 1.0, 10.0), 1e3
"""Descents from moves of each of these sizes; of the input's size: radii are not looked for beyond."""
_PASSES, _TOTAL, _TRIED = 40, 8_000_000, 600_000
"""Passes, and boxes of moves of all of them, where a run is known that changes the class, and where none is."""
_STALLED = 0.8
"""Of a gap, the next one where a pass has stalled."""
_UNKNOWN = (1.0, 4.0, 16.0, 64.0, 256.0)
"""Radii that are tried where no run is known."""
_PARTS, _AGAIN, _SLACK = (3e-7, 1e-5, 1e-3, 0.03), 4, 0.3
"""Of the nearest run's length: what is taken off, in turn, where steps have balls of their own; nearer runs that are
met; and of what margins are expected to be above zero, a bound."""
_BOXED, _MANY = 6, 60
"""Numbers that change, up to which boxes of all of them are tried first; moves of all steps, up to which cells are."""
_SHARE = 0.6
"""Of the time; other searches have the rest of it."""


@dataclass(frozen=True, eq=False)
class Proved:
    """What passes came to.

    Attributes:
        value: the bound of the cost, or of the margins.
        upper: the length of the nearest run.
        told: what proves the bound.
    """

    value: float
    upper: float
    told: dict[str, Array]


@dataclass(frozen=True, eq=False)
class Gates:
    """The question of one input."""

    asked: Request
    k: int
    norm: str
    deadline: Deadline

    @property
    def total(self) -> bool:
        """Whether moves cost their square; else each step has a ball or a box of its own."""
        return self.norm == "l2" and self.asked.budget == "total"

    def steps(self, reach: float) -> list[Moves]:
        """For moves up to a length."""
        asked = self.asked
        each = asked.budget == "step"
        return gated_moves(asked.classifier, asked.x[self.k], reach, self.norm, self.mask, asked.bounds, each)

    def refining(self, reach: float) -> tuple[Refining, Ending] | None:
        """Cells for moves up to a length, and the bounds of the class; ``None`` where no state surely has it."""
        asked, net, steps = self.asked, self.asked.classifier, self.steps(reach)
        low, high, boxes, label = net.start, net.start, list[tuple[Array, Array]](), int(asked.y[self.k])
        for step in steps[:-1]:
            low, high = image(step, low, high)
            pad = 1e-9 + _PAD * (high - low)
            low, high = low - pad, high + pad
            boxes.append((low, high))
        end = ending(net, label, Interval(*image(steps[-1], low, high)))
        if end is None:
            return None
        ends = (np.array([box[k] for box in boxes]).reshape(-1, len(net.start)) for k in (0, 1))
        after, cap = (end, reach * reach) if self.total else (margins(net, label), float(asked.margins[self.k].min()))
        return Refining(GatedRuns(steps, net.start), after, *ends, cap=cap), end

    @property
    def mask(self) -> Array | None:
        """As the rules have it."""
        return None if self.asked.mask is None else self.asked.free

    @property
    def loose(self) -> bool:
        """Whether inputs are clipped in a way that steps with fewer moves than entries make no use of."""
        entries = self.asked.free.sum(axis=1)
        return self.asked.bounds is not None and any(len(s.low) < k for s, k in zip(self.steps(1.0), entries))

    def nearest(self, most: float) -> float:
        """The least length of moves that change the class which descents find; infinite where they find none."""
        found, best, rng = self.refining(most), np.inf, np.random.default_rng(0)
        if found is None:
            return np.inf
        made, end = found
        for size in _SIZES:
            for y in made.runs.starts(rng, min(size, most), _STARTS):
                if self.deadline.over:
                    break
                best = min(best, made.runs.nearest(end, y))
        return best

    def claim(self, told: dict[str, Array], reach: float, radius: float) -> Claim | None:
        """The claim, where the rule accepts it."""
        data = self.asked.data(self.k, self.norm, radius) | {"reach": reach} | told
        return accepted(self.asked.classifier, KIND, data)

    def passes(self, made: Refining, end: Ending, upper: float, goal: float, room: int) -> Proved:
        """Passes until a bound is proved, or nearly.

        Args:
            made: the cells.
            end: the bounds of the class.
            upper: the length of the nearest run.
            goal: the bound.
            room: boxes of moves.
        """
        gap, before, best = np.inf, np.inf, Proved(-np.inf, upper, {})
        for _ in range(_PASSES):
            value = made.back(gap, np.isfinite(before) and gap > _STALLED * before, lambda: self.deadline.over)
            if value is None:
                break
            best = replace(best, upper=min(best.upper, made.runs.nearest(end, made.followed())))
            if value > best.value:
                best = replace(best, value=value, told=made.told())
            most = min(goal, best.upper**2) if self.total else goal
            gap, before = most - value, gap
            enough = gap <= 2.0 * _ENOUGH * most if self.total else value > 0.0 or best.upper < upper
            if enough or self._over(made, room):
                break
            made.forward(value, gap)
        return best

    def _over(self, made: Refining, room: int) -> bool:
        return made.boxes > room or self.deadline.over or sum(len(own) for own in made.cells) > MOST // 2


def covers(asked: Request, norm: str) -> bool:
    """Whether the rule is about such networks and balls."""
    few = unfit(asked.classifier) is None and asked.x.shape[1] <= LONGEST
    if not few or not asked.free.any() or not len(asked.right):
        return False
    sizes = [len(step.low) for step in Gates(asked, int(asked.right[0]), norm, Deadline.after(None)).steps(1.0)]
    return max(sizes) <= WIDEST and sum(sizes) <= _MANY


def first(asked: Request, norm: str) -> bool:
    """Whether this search is to be made before that by boxes of all coordinates, which is sooner done with few."""
    return norm == "l2" and asked.budget == "total" and int(asked.free.sum()) > _BOXED


@np.errstate(all="ignore")
def gates(asked: Request, k: int, norm: str, deadline: Deadline) -> tuple[Claim | None, bool]:
    """The claim about one input, where one is proved, and whether there is no use in looking for a better one.

    Args:
        asked: the inputs.
        k: which of them.
        norm: ``l2`` or ``linf``.
        deadline: of the search.
    """
    question = Gates(asked, k, norm, deadline)
    most = _FAR * (1.0 + float(np.abs(asked.x[k]).max()))
    try:
        near = min(question.nearest(most), float(asked.upper[k]))
        if asked.epsilon is not None:
            if near <= asked.epsilon:
                return None, not question.loose
            claim = _decided(question, near, asked.epsilon)
            return claim, claim is not None
        if not np.isfinite(near):
            return _unknown(question), False
        claim, upper = _largest(question, near)
        close = claim is not None and (claim.value or 0.0) >= (1.0 - _CLOSE) * upper
        return claim, close and not question.loose
    except (ConfigurationError, NonFiniteError):  # what overflows
        return None, False


def all_gates(asked: Request, norm: str) -> tuple[list[Claim | None], Array, float | None]:
    """The claims about such a network's inputs, which of these are settled, and seconds a sample for the others.

    Args:
        asked: the inputs.
        norm: ``l2`` or ``linf``.
    """
    return one_by_one(asked, norm, gates, _SHARE)


def _largest(question: Gates, near: float) -> tuple[Claim | None, float]:
    """The claim about a radius up to that of the nearest run, and this radius."""
    if question.total:
        return _costed(question, near, near, _TOTAL)
    for part in _PARTS:
        for _ in range(_AGAIN):
            claim, found = _kept(question, near, near * (1.0 - part), part, _TOTAL)
            if claim is not None or found >= near or question.deadline.over:
                break
            near = found
        if claim is not None or question.deadline.over:
            return claim, near
    return None, near


def _decided(question: Gates, near: float, epsilon: float) -> Claim | None:
    if question.total:
        return _costed(question, near, epsilon * (1.0 + _ENOUGH), _TOTAL, epsilon)[0]
    return _kept(question, near, epsilon, min(max(1.0 - epsilon / near, _PARTS[0]), 1.0), _TOTAL)[0]


def _costed(
    question: Gates, near: float, radius: float, room: int, asked: float | None = None
) -> tuple[Claim | None, float]:
    """In l2 in total: the claim about a radius up to one, and the length of the nearest run."""
    reach = _WIDER * radius
    found = question.refining(reach)
    if found is None:
        return None, near
    best = question.passes(*found, near, radius * radius, room)
    if not best.value > 0.0 or (asked is not None and best.value <= asked * asked):
        return None, best.upper
    size = asked or min(best.value**0.5, best.upper) * (1.0 - _BELOW)
    return (question.claim(best.told, reach, size) if size > 0.0 else None), best.upper


def _kept(question: Gates, near: float, radius: float, part: float, room: int) -> tuple[Claim | None, float]:
    """Where each step has a ball or a box: the claim about a radius, and the length of the nearest run.

    Margins are about as much above zero as the radius is below that of the nearest run, ``part`` of it.
    """
    found = question.refining(radius)
    if found is None:
        return None, near
    best = question.passes(*found, near, _SLACK * part * found[0].cap, room)
    claim = question.claim(best.told, radius, radius) if best.value > 0.0 and best.upper >= radius else None
    return claim, best.upper


def _unknown(question: Gates) -> Claim | None:
    """The claim about the largest of some radii, where no run is known that changes the class."""
    best: Claim | None = None
    for radius in _UNKNOWN:
        if question.total:
            claim, _ = _costed(question, np.inf, radius, _TRIED)
        else:
            claim, _ = _kept(question, np.inf, radius, 0.1, _TRIED)
        if claim is None or (best is not None and (claim.value or 0.0) <= (best.value or 0.0)):
            break
        best = claim
        if (claim.value or 0.0) < 0.99 * radius or question.deadline.over:
            break
    return best
