"""The largest balls in l2 of LSTM and GRU networks of one unit: dynamic programming on cells of their states.

What is found is a claim only where the rule ``local_cells`` accepts it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stability.certificate import Claim
from stability.errors import ConfigurationError, NonFiniteError
from stability.local.gated_runs import GatedRuns
from stability.local.refining import Refining
from stability.local.request import Request, one_by_one
from stability.local.togo import ending, gated_moves, image, unfit
from stability.rigor.intervals import Interval
from stability.rules.local_cells import LONGEST, MOST
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
_SHARE = 0.6
"""Of the time; other searches have the rest of it."""


@dataclass(frozen=True, eq=False)
class Proved:
    """What passes came to.

    Attributes:
        value: the bound of the cost.
        upper: the cost of the nearest run.
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
    deadline: Deadline

    def refining(self, reach: float) -> Refining | None:
        """Cells for moves up to a length; ``None`` where no state surely has the class."""
        asked, net = self.asked, self.asked.classifier
        steps = gated_moves(net, asked.x[self.k], reach, self.mask, asked.bounds)
        low, high, boxes = net.start, net.start, list[tuple[Array, Array]]()
        for step in steps[:-1]:
            low, high = image(step, low, high)
            pad = 1e-9 + _PAD * (high - low)
            low, high = low - pad, high + pad
            boxes.append((low, high))
        end = ending(net, int(asked.y[self.k]), Interval(*image(steps[-1], low, high)))
        if end is None:
            return None
        ends = (np.array([box[k] for box in boxes]).reshape(-1, len(net.start)) for k in (0, 1))
        return Refining(GatedRuns(steps, net.start), end, *ends, cap=reach * reach)

    @property
    def mask(self) -> Array | None:
        """As the rules have it."""
        return None if self.asked.mask is None else self.asked.free

    def nearest(self, most: float) -> float:
        """The least length of moves that change the class which descents find; infinite where they find none."""
        made, best, rng = self.refining(most), np.inf, np.random.default_rng(0)
        if made is None:
            return np.inf
        for size in _SIZES:
            for y in made.runs.starts(rng, min(size, most), _STARTS):
                if self.deadline.over:
                    break
                best = min(best, made.runs.nearest(made.end, y)[0])
        return best**0.5

    def claim(self, told: dict[str, Array], reach: float, radius: float) -> Claim | None:
        """The claim, where the rule accepts it."""
        data = self.asked.data(self.k, "l2", radius) | {"reach": reach} | told
        return accepted(self.asked.classifier, KIND, data)

    def passes(self, made: Refining, upper: float, radius: float, room: int) -> Proved:
        """Passes until a radius is proved, or nearly."""
        gap, before, best = np.inf, np.inf, Proved(0.0, upper, {})
        for _ in range(_PASSES):
            value = made.back(gap, np.isfinite(before) and gap > _STALLED * before, lambda: self.deadline.over)
            if value is None:
                break
            upper = min(best.upper, made.runs.nearest(made.end, made.followed())[0])
            best = replace(best, upper=upper)
            if value > best.value:
                best = Proved(value, upper, made.told())
            goal = min(upper, radius * radius)
            gap, before = goal - value, gap
            if gap <= 2.0 * _ENOUGH * goal or self._over(made, room):
                break
            made.forward(value, gap)
        return best

    def _over(self, made: Refining, room: int) -> bool:
        return made.boxes > room or self.deadline.over or sum(len(own) for own in made.cells) > MOST // 2


def covers(asked: Request, norm: str) -> bool:
    """Whether the rule is about such networks and balls."""
    fits = norm == "l2" and asked.budget == "total" and asked.x.shape[1] <= LONGEST
    return fits and unfit(asked.classifier) is None and bool(asked.free.any())


@np.errstate(all="ignore")
def gates(asked: Request, k: int, norm: str, deadline: Deadline) -> tuple[Claim | None, bool]:
    """The claim about one input, where one is proved, and whether there is no use in looking for a better one.

    Args:
        asked: the inputs.
        k: which of them.
        norm: ``l2``.
        deadline: of the search.
    """
    question = Gates(asked, k, deadline)
    most = _FAR * (1.0 + float(np.abs(asked.x[k]).max()))
    try:
        near = min(question.nearest(most), float(asked.upper[k]))
        if asked.epsilon is not None:
            if near <= asked.epsilon:
                return None, True
            claim, _ = _proved(question, near, asked.epsilon * (1.0 + _ENOUGH), _TOTAL, asked.epsilon)
            return claim, claim is not None
        if np.isfinite(near):
            claim, upper = _proved(question, near, near, _TOTAL)
            return claim, claim is not None and (claim.value or 0.0) >= (1.0 - _CLOSE) * upper
        return _unknown(question), False
    except (ConfigurationError, NonFiniteError):  # what overflows
        return None, False


def all_gates(asked: Request, norm: str) -> tuple[list[Claim | None], Array, float | None]:
    """The claims about such a network's inputs, which of these are settled, and seconds a sample for the others.

    Args:
        asked: the inputs.
        norm: ``l2``.
    """
    return one_by_one(asked, norm, gates, _SHARE)


def _proved(
    question: Gates, near: float, radius: float, room: int, asked: float | None = None
) -> tuple[Claim | None, float]:
    """The claim about a radius up to one, and the length of the nearest run."""
    reach = _WIDER * radius
    made = question.refining(reach)
    if made is None:
        return None, near
    best = question.passes(made, near * near, radius, room)
    upper = best.upper**0.5
    if not best.value > 0.0 or (asked is not None and best.value <= asked * asked):
        return None, upper
    size = asked or min(best.value, best.upper) ** 0.5 * (1.0 - _BELOW)
    return (question.claim(best.told, reach, size) if size > 0.0 else None), upper


def _unknown(question: Gates) -> Claim | None:
    """The claim about the largest of some radii, where no run is known that changes the class."""
    best: Claim | None = None
    for radius in _UNKNOWN:
        claim, _ = _proved(question, np.inf, radius, _TRIED)
        if claim is None or (best is not None and (claim.value or 0.0) <= (best.value or 0.0)):
            break
        best = claim
        if (claim.value or 0.0) < 0.99 * radius or question.deadline.over:
            break
    return best
