"""The largest balls of networks of one unit up to 1e-7 of their radii: the nearest boundary, then a proof below it.

With few coordinates alone, see ``stability.local.coordinates``; the rule takes networks of a few units, too. What is
found is a claim only where the rule ``local_hessians`` accepts it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.certificate import Claim
from stability.errors import ConfigurationError
from stability.gated.cell import GatedCell
from stability.local.coordinates import MOST, Coordinates, coordinates, uncovered
from stability.local.covering import covered
from stability.local.lagrangians import Touch
from stability.local.request import Request, one_by_one
from stability.local.worst import Margin, nearest
from stability.rules.local_hessians import ROOM, WORK
from stability.rules.registry import accepted
from stability.solve.deadline import Deadline

Array = np.ndarray
KIND = "local_hessians"
_ROOM, _NEXT = 150_000, 4_000
"""Boxes for one class and the first radius, and for each other radius."""
_BELOW = (2e-7, 8e-7, 1e-5, 1e-3, 0.03)
"""Of the distance of the nearest boundary: what is taken off, in turn."""
_CLOSE = 1e-6
"""What has been taken off where there is no use in another search."""
_SHARE = 0.7
"""Of the time; other searches have the rest of it."""
_AGAIN, _HALVES = 6, 14
"""Nearer boundaries that proofs may come upon; radii between one that is proved and one that is not."""


@dataclass(frozen=True, eq=False)
class Exact:
    """The question of one input."""

    asked: Request
    k: int
    norm: str
    deadline: Deadline

    @property
    def each(self) -> bool:
        """Whether every step has a ball of its own."""
        return self.norm == "l2" and self.asked.budget == "step"

    def ball(self, radius: float) -> Coordinates:
        """The ball."""
        asked = self.asked
        mask = None if asked.mask is None else asked.free
        return coordinates(asked.classifier, asked.x[self.k], radius, self.norm, mask, asked.bounds, self.each)

    def claim(self, radius: float, touches: list[Touch]) -> Claim | None:
        """The claim, where the rule accepts it."""
        asked, balls = self.asked, len(self.ball(radius).balls)
        data = asked.data(self.k, self.norm, radius) | {"points": np.stack([t.point for t in touches])}
        data |= {"prices": np.stack([t.prices for t in touches]).reshape(len(touches), balls)}
        data |= {"bends": np.array([t.bend for t in touches])}
        data |= {"slopes": np.stack([t.slopes for t in touches])} if len(touches[0].slopes) else {}
        return accepted(asked.classifier, KIND, data)

    def decide(
        self, radius: float, rng: np.random.Generator, known: dict[int, list[Array]], first: bool = True
    ) -> list[Touch] | Array | None:
        """What proves a radius; a perturbation that breaks it; or neither."""
        asked, of, out = self.asked, self.ball(radius), list[Touch]()
        label, size = int(asked.y[self.k]), len(of.low)
        room = _ROOM if first else _NEXT
        boxes, work = ROOM, WORK  # what the rule has for all classes
        for other in range(asked.classifier.classes):
            if other == label:
                continue
            touch = Touch(np.zeros(size), np.zeros(len(of.balls)), 0.0, np.zeros(of.bent))
            if not covered(of, label, other, touch, 1).holds:
                margin = Margin(of, label, other)
                warm = margin.moved(known.get(other, []))
                value, y = margin.least(warm or margin.starts(rng, []))
                if not value > 0.0:
                    known.setdefault(other, []).insert(0, y)
                    return y
                touch = margin.touch(y)
                found = covered(of, label, other, touch, min(room, boxes), lambda: self.deadline.over, work)
                boxes, work = boxes - found.boxes, work - found.work
                if found.broken is not None:
                    known.setdefault(other, []).insert(0, found.broken)
                    return found.broken
                if not found.holds:
                    return None
            out.append(touch)
        return out

    def boundary(self, guess: float, most: float, rng: np.random.Generator, known: dict[int, list[Array]]) -> float:
        """The distance of the nearest boundary that descents find; ``known`` gets the points there."""
        label, order = int(self.asked.y[self.k]), np.argsort(self.asked.margins[self.k], kind="stable")
        for other in map(int, order[:-1]):  # the label's margin is infinite
            if self.deadline.over:
                break
            if covered(self.ball(most), label, other, self._plain(most), 1).holds:
                continue
            found, points = nearest(
                lambda radius, other=other: Margin(self.ball(radius), label, other),
                min(guess, most), most, rng, known.get(other, [])[:2],
            )  # fmt: skip
            known[other] = points
            most = min(most, found)
        return most

    def _plain(self, radius: float) -> Touch:
        of = self.ball(radius)
        return Touch(np.zeros(len(of.low)), np.zeros(len(of.balls)), 0.0)


def pays(asked: Request, norm: str) -> bool:
    """Whether this is a network of one unit, and its balls are small enough: of others boxes come to no end in time."""
    net = asked.classifier.recurrent
    if uncovered(asked.classifier) is not None or not len(asked.right):
        return False
    units = 2 if not isinstance(net, GatedCell) and net.system.D.any() else 1  # a midpoint map has its unit twice
    if not isinstance(net, GatedCell) and not (net.states == 1 and len(net.E) <= units):
        return False
    mask = None if asked.mask is None else asked.free
    each = norm == "l2" and asked.budget == "step"
    counts = [len(coordinates(asked.classifier, x, 1.0, norm, mask, asked.bounds, each).low) for x in asked.x[:1]]
    return 0 < counts[0] <= MOST


@np.errstate(all="ignore")
def exact(asked: Request, k: int, norm: str, deadline: Deadline) -> tuple[Claim | None, bool]:
    """The claim about one input, where one is proved, and whether there is no use in looking for a better one.

    Args:
        asked: the inputs.
        k: which of them.
        norm: ``l2`` or ``linf``.
        deadline: of the search.
    """
    question, rng = Exact(asked, k, norm, deadline), np.random.default_rng(0)
    points: dict[int, list[Array]] = {}
    try:
        if asked.epsilon is None:
            return _largest(question, rng, points)
        found = None if deadline.over else question.decide(asked.epsilon, rng, points)
        claim = question.claim(asked.epsilon, found) if isinstance(found, list) else None
        return claim, claim is not None or isinstance(found, np.ndarray)
    except ConfigurationError:  # what overflows
        return None, False


def settled(asked: Request, norm: str) -> tuple[list[Claim | None], Array, float | None]:
    """The claims about a small network's inputs, which of these are settled, and seconds a sample for the others.

    Args:
        asked: the inputs.
        norm: ``l2`` or ``linf``.
    """
    return one_by_one(asked, norm, exact, _SHARE)


def _largest(question: Exact, rng: np.random.Generator, points: dict[int, list[Array]]) -> tuple[Claim | None, bool]:
    asked, k = question.asked, question.k
    most = asked.furthest(k)
    start = 1e-3 * most if most < 1e3 else 1.0
    top, parts, turns = question.boundary(start, most, rng, points), list(_BELOW), 0
    bad = top  # the least radius that is known not to be proved
    while parts and not question.deadline.over:
        radius = top * (1.0 - parts[0])
        found = question.decide(radius, rng, points, parts[0] == _BELOW[0])
        if isinstance(found, np.ndarray) and turns < _AGAIN:
            top, turns = question.boundary(radius, radius, rng, points), turns + 1
            bad = top
            continue
        if isinstance(found, list) and (claim := question.claim(radius, found)) is not None:
            return (claim, True) if parts[0] < _CLOSE else _nearer(question, claim, bad, rng, points)
        bad = radius
        parts.pop(0)
    return None, False


def _nearer(
    question: Exact, claim: Claim, bad: float, rng: np.random.Generator, points: dict[int, list[Array]]
) -> tuple[Claim, bool]:
    """Claims about radii between one that is proved and one that is not, which is a boundary where one is met."""
    met, close, low = False, False, float(claim.value or 0.0)
    for _ in range(_HALVES):
        if question.deadline.over or bad <= low * (1.0 + 0.5 * _CLOSE):
            break
        trial = bad * (1.0 - _BELOW[0]) if close else 0.5 * (low + bad)
        found = question.decide(trial, rng, points, False)
        if isinstance(found, np.ndarray):
            bad, met, close = question.boundary(trial, trial, rng, points), True, not close
            continue
        better = None if found is None else question.claim(trial, found)
        if better is None:
            bad, met = trial, False
        else:
            claim, low = better, trial
        close = False
    return claim, met and bad <= low * (1.0 + _CLOSE)
