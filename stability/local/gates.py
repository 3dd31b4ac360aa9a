"""The largest balls of LSTM and GRU networks of one unit: dynamic programming on cells of their states.

What is found is a claim only where the rule ``local_cells`` accepts it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.certificate import Claim
from stability.errors import ConfigurationError, NonFiniteError
from stability.local.after import Ending
from stability.local.gated_means import Means
from stability.local.gated_runs import GatedRuns
from stability.local.joint import Joint
from stability.local.moves import Moves
from stability.local.parts import Part
from stability.local.passes import ENOUGH, Proved, passes
from stability.local.refining import Refining
from stability.local.request import Request, one_by_one
from stability.local.togo import ending, gated_moves, margins, sides, unfit
from stability.rigor.intervals import Interval
from stability.rules.local_cells import LONGEST, WIDEST
from stability.rules.registry import accepted
from stability.solve.deadline import Deadline

Array = np.ndarray
KIND = "local_cells"
_WIDER, _BELOW, _CLOSE = 1.0005, 1e-9, 1e-6
"""Of a radius: moves that are looked at; what is taken off; and what may be missing where another search is no use."""
_STARTS, _SIZES, _OTHERS, _FAR = 6, (0.1, 1.0, 10.0), 0.4, 1e3
"""Descents from moves of each of these sizes, and three times from those of the nearest run, a share of them drawn
anew; of the input's size: radii are not looked for beyond."""
_TOTAL, _TRIED = 30_000_000, 2_000_000
"""Boxes of moves of all passes, where a run is known that changes the class, and where none is."""
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
class Near:
    """The nearest run of another class: how long its moves are, and these, where it is a run and not an attack."""

    length: float
    moves: Array | None = None


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

    def ended(self, reach: float) -> tuple[GatedRuns, Ending, tuple[Array, Array]] | None:
        """Runs with moves up to a length, the bounds of the class, and boxes ``(T - 1, d)`` of states.

        ``None`` where no state, or mean of states, surely has the class.
        """
        net, label, steps = self.asked.classifier, int(self.asked.y[self.k]), self.steps(reach)
        runs = GatedRuns(steps, net.start, self.averaged)
        boxes = runs.boxes(Part.whole(0, len(steps)))
        if boxes is None:  # what overflows
            return None
        low, high = boxes
        end = sides(net, label) if self.averaged else ending(net, label, Interval(low[-1, :1], high[-1, :1]))
        return None if end is None else (runs, end, (low[:-1], high[:-1]))

    @property
    def averaged(self) -> bool:
        """Whether the head reads the mean."""
        return self.asked.classifier.reduction == "mean"

    def proved(
        self, reach: float, near: Near, goal: float, room: int, asked: float | None = None
    ) -> tuple[Proved, Joint | None]:
        """What is proved about moves up to a length.

        Args:
            reach: the length.
            near: the nearest run.
            goal: the square that is to be reached; of balls and boxes of each step, a share of the margin.
            room: boxes of moves.
            asked: the one radius that is asked about.

        Returns:
            It, and in l2 in total what boxes of all moves prove, of heads on the last output.
        """
        found, upper = self.ended(reach), near.length
        if found is None:
            return Proved(-np.inf, upper, {}), None
        runs, end, boxes = found
        if self.averaged:
            search = Means(runs, end, self.deadline)
            by_sums = search.raised(near.moves, upper, goal, room) if self.total else search.kept(upper, goal, room)
            return by_sums, None
        net, margin = self.asked.classifier, float(self.asked.margins[self.k].min())
        if self.total:
            made = Refining(runs, end, *boxes, cap=reach * reach)
            told = self.asked.x[self.k], int(self.asked.y[self.k]), self.mask
            joint = Joint(net, *told, made, goal, near.moves, self.deadline, asked)
            return passes(made, end, upper, goal, room, self.deadline, total=True, done=joint), joint
        made, goal = Refining(runs, margins(net, int(self.asked.y[self.k])), *boxes, cap=margin), goal * margin
        return passes(made, end, upper, goal, room, self.deadline, total=False), None

    @property
    def mask(self) -> Array | None:
        """As the rules have it."""
        return None if self.asked.mask is None else self.asked.free

    @property
    def loose(self) -> bool:
        """Whether inputs are clipped in a way that steps with fewer moves than entries make no use of."""
        entries = self.asked.free.sum(axis=1)
        return self.asked.bounds is not None and any(len(s.low) < k for s, k in zip(self.steps(1.0), entries))

    def nearest(self, most: float) -> Near:
        """The nearest run that changes the class which descents find."""
        found, best, rng = self.ended(most), Near(np.inf), np.random.default_rng(0)
        if found is None:
            return best
        runs, end, _ = found
        for size in (*_SIZES, None, None, None):
            if size is None and best.moves is None:
                break
            for y in runs.starts(rng, min(size or best.length, most), _STARTS):
                if self.deadline.over:
                    break
                if size is None and best.moves is not None:  # some of the nearest run's moves are others
                    y = np.where(rng.random(len(y)) < _OTHERS, y, best.moves)
                best = min(best, Near(*runs.descended(end, y)), key=lambda near: near.length)
        return best

    def claim(self, told: dict[str, Array], reach: float, radius: float) -> Claim | None:
        """The claim, where the rule accepts it."""
        data = self.asked.data(self.k, self.norm, radius) | {"reach": reach} | told
        return accepted(self.asked.classifier, KIND, data)


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
        near = question.nearest(most)
        if asked.upper[k] < near.length:
            near = Near(float(asked.upper[k]))
        if asked.epsilon is not None:
            if near.length <= asked.epsilon:
                return None, not question.loose
            claim = _decided(question, near, asked.epsilon)
            return claim, claim is not None
        if not np.isfinite(near.length):
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


def _largest(question: Gates, near: Near) -> tuple[Claim | None, float]:
    """The claim about a radius up to that of the nearest run, and this radius."""
    if question.total:
        return _costed(question, near, near.length, _TOTAL)
    for part in _PARTS:
        for _ in range(_AGAIN):
            claim, found = _kept(question, near, near.length * (1.0 - part), part, _TOTAL)
            if claim is not None or found >= near.length or question.deadline.over:
                break
            near = Near(found)
        if claim is not None or question.deadline.over:
            return claim, near.length
    return None, near.length


def _decided(question: Gates, near: Near, epsilon: float) -> Claim | None:
    if question.total:
        return _costed(question, near, epsilon * (1.0 + ENOUGH), _TOTAL, epsilon)[0]
    return _kept(question, near, epsilon, min(max(1.0 - epsilon / near.length, _PARTS[0]), 1.0), _TOTAL)[0]


def _costed(
    question: Gates, near: Near, radius: float, room: int, asked: float | None = None
) -> tuple[Claim | None, float]:
    """In l2 in total: the claim about a radius up to one, and the length of the nearest run."""
    reach = _WIDER * radius
    best, joint = question.proved(reach, near, radius * radius, room, asked)
    if joint is not None and joint.told:
        claim = question.claim(joint.told, reach, joint.radius)
        if claim is not None:
            return claim, best.upper
    if not best.value > 0.0 or (asked is not None and best.value <= asked * asked):
        return None, best.upper
    size = asked or min(min(best.value, radius * radius) ** 0.5, best.upper) * (1.0 - _BELOW)
    return (question.claim(best.told, reach, size) if size > 0.0 else None), best.upper


def _kept(question: Gates, near: Near, radius: float, part: float, room: int) -> tuple[Claim | None, float]:
    """Where each step has a ball or a box: the claim about a radius, and the length of the nearest run.

    Margins are about as much above zero as the radius is below that of the nearest run, ``part`` of it.
    """
    best, _ = question.proved(radius, near, _SLACK * part, room)
    claim = question.claim(best.told, radius, radius) if best.value > 0.0 and best.upper >= radius else None
    return claim, best.upper


def _unknown(question: Gates) -> Claim | None:
    """The claim about the largest of some radii, where no run is known that changes the class."""
    best, none = None, Near(np.inf)
    for radius in _UNKNOWN:
        if question.total:
            claim, _ = _costed(question, none, radius, _TRIED)
        else:
            claim, _ = _kept(question, none, radius, 0.1, _TRIED)
        if claim is None or (best is not None and (claim.value or 0.0) <= (best.value or 0.0)):
            break
        best = claim
        if (claim.value or 0.0) < 0.99 * radius or question.deadline.over:
            break
    return best
