"""The largest balls of networks of one state whose head reads the mean: least sums, with prices of what runs cost.

What is found is a claim only where the rule ``local_frontier`` accepts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stability.certificate import Claim
from stability.local.parting import Parting
from stability.local.parts import Part
from stability.local.priced import Runs, Side
from stability.local.ranges import reached
from stability.local.scalar import ScalarStep
from stability.local.sums import Sum, least_sum, limits, told
from stability.rules.local_frontier import ENOUGH, ROOM
from stability.systems.activations import Activation, activation

if TYPE_CHECKING:
    from stability.local.single import Single

Array = np.ndarray
_PASSES, _TOTAL, _KEPT, _FINE, _STARTS = 16, 6_000_000, 3, 3, 12
"""Passes of dynamic programming for an end; boxes of all but the last; paths kept; see ``least.cells``; descents."""
_PARTED, _PART = 100_000_000, 1e-6
"""Boxes of all passes for parts, and what may be missing of the square then."""
_NEAR, _LITTLE = 1e-7, 1e-3
"""Of a square or a radius: what may be missing; and where prices are known to have a gap, for no other to be tried."""
_BELOW = (1e-9, 1e-8, 1e-7, 3e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Of a radius that was found: what is taken off, in turn."""


@dataclass(eq=False)
class Averaged:
    """The search for one input."""

    question: Single
    boxes: int = 0

    @property
    def phi(self) -> Activation:
        """The activation."""
        return activation(self.question.asked.classifier.recurrent.activation)

    @property
    def start(self) -> float:
        """The first state."""
        return float(self.question.asked.classifier.start[0])

    @property
    def over(self) -> bool:
        """Whether there is no time or room left."""
        return self.question.deadline.over or self.boxes > _TOTAL

    def sides(self, steps: list[ScalarStep]) -> list[tuple[float, float]] | None:
        """See ``sums.limits``."""
        low, high = reached(steps, self.phi, self.start)
        asked = self.question.asked
        return limits(asked.classifier, int(asked.y[self.question.k]), steps, low, high)

    def bounded(self, steps: list[ScalarStep], price: float, scale: float, paths: list[Array], paid: bool) -> Sum:
        """A pass of dynamic programming."""
        kept = np.array(paths[:_KEPT]).reshape(-1, len(steps) + 1)
        found = least_sum(steps, self.phi, self.start, price, scale, kept, _FINE, ROOM, paid=paid, followed=True)
        self.boxes += found.boxes
        return found

    # a budget for each step

    def margin(self, radius: float, paths: dict[float, list[Array]]) -> tuple[float, float]:
        """The least room that is left at a radius, and the factor of all moves that, nearly, leaves none."""
        steps = self.question.steps(radius, self.question.norm == "l2")
        if not told(steps, self.phi):
            return np.nan, np.nan
        sides, least, factor = self.sides(steps), np.inf, np.inf
        if sides is None:
            return -np.inf, 0.5
        low, high = reached(steps, self.phi, self.start)
        for sign, most in sides:
            found = self.bounded(steps, sign, float((high - low).sum()), paths.setdefault(sign, []), False)
            if found.moves is None:
                return np.nan, np.nan
            paths[sign] = [found.path, *paths[sign]][:_KEPT]
            least = min(least, found.value - most)
            factor = min(factor, self._factor(steps, found.moves, sign, most))
        return least, factor

    def _factor(self, steps: list[ScalarStep], moves: Array, sign: float, most: float) -> float:
        runs, low, high = Runs(steps, self.phi, self.start), 0.0, np.inf
        for far in (1.0001, 1.01, 1.1, 2.0, 8.0, 64.0):
            if sign * float(runs.total(far * moves[:, 1], far * moves[:, 2])) <= most:
                high = far
                break
        if not np.isfinite(high):
            return 64.0
        for _ in range(50):
            part = 0.5 * (low + high)
            out = sign * float(runs.total(part * moves[:, 1], part * moves[:, 2])) <= most
            low, high = (low, part) if out else (part, high)
        return high

    def stepwise(self, most: float) -> tuple[Claim | None, bool]:
        """With a range for each step: the radius at which no room is left."""
        paths, low, high, trial, back = dict[float, list[Array]](), 0.0, np.inf, min(most, 0.01), 0.02 * _NEAR
        for turn in range(2 * _PASSES):
            if self.over:
                break
            room, factor = self.margin(trial, paths)
            if np.isnan(room):
                break
            if room > 0.0:
                low = max(low, trial)
                known = factor < 1.0 + _NEAR or self.question.asked.bounds is None  # clipped, moves do not grow so
                high = min(high, max(trial * factor, low)) if known else high
            else:
                high = min(high, trial)
                back *= 20.0 if factor > 1.0 - 2.0 * back else 1.0
            if low >= most or high <= low * (1.0 + 0.1 * _NEAR):
                break
            guess = trial * min(factor, 8.0) * (1.0 - back)
            if np.isfinite(high) and (not low < guess < high or (turn % 3 == 2 and high > 1.001 * low)):
                guess = float(np.sqrt(low * high)) if low > 0.0 else 0.1 * high
                guess = max(guess, 0.02 * high) if turn < 6 else guess
            trial = min(max(guess, low * (1.0 + 0.05 * _NEAR)), most)
        count = len(self.question.steps(1.0, self.question.norm == "l2"))
        kept = np.array([p for own in paths.values() for p in own]).reshape(-1, count + 1)
        question, exact = self.question, low >= most or high <= low * (1.0 + _NEAR)
        if question.asked.epsilon is not None:
            claim = question.claim(most, kept, _FINE) if low >= most else None
            return claim, claim is not None or exact
        claim, close = _below(low, lambda radius: question.claim(radius, kept, _FINE))
        return claim, close and exact

    # a budget in total

    def total(self, most: float) -> tuple[Claim | None, bool]:
        """In l2: the least cost of each end, by prices."""
        question, rng = self.question, np.random.default_rng(0)
        steps = question.steps(most, False)
        found = self.sides(steps)
        if found is None or not any((step.high > step.low).any() for step in steps):
            return None, False
        runs, ends = Runs(steps, self.phi, self.start), [Side(*end) for end in found]
        for end in ends:
            end.descend(runs, end.starts(runs, rng, _STARTS))
        for end in sorted(ends, key=lambda end: end.nearest):
            self._priced(end, min([most, *(side.nearest**0.5 for side in ends)]))
        near, alone = min([most, *(end.nearest**0.5 for end in ends)]), [end.bound for end in ends]
        told = [self._parted(end, near) for end in ends]
        claim, close = self._stated(ends, told, most)
        if claim is None and any(told):  # cuts that a checker does not follow
            for end, bound in zip(ends, alone):
                end.bound = bound
            claim, close = self._stated(ends, [None, None], most)
        return claim, close

    def _stated(self, ends: list[Side], told: list[Parting | None], most: float) -> tuple[Claim | None, bool]:
        """The claim by the bounds of both ends, and whether no other is better."""
        question, near = self.question, min([most, *(end.nearest**0.5 for end in ends)])
        radius = min([most, *(max(end.bound, 0.0) ** 0.5 for end in ends)])
        data = _proved(ends, told, len(question.steps(most, False)))
        if question.asked.epsilon is not None:
            claim = question.claim(most, fine=_FINE, **data)
            return claim, claim is not None or near < most
        claim, close = _below(radius, lambda r: question.claim(r, fine=_FINE, **data))
        return claim, close and radius >= near * (1.0 - 0.6 * _PART)

    def _parted(self, end: Side, near: float) -> Parting | None:
        """The parts of the runs beyond one end, where its best price is not enough, and a better bound then."""
        if end.bound >= near * near * (1.0 - _PART) or self.question.deadline.over:
            return None
        steps, most = self.question.steps(near, False), self.boxes + _PARTED

        def bounded(price: float, path: Array, part: Part, square: float) -> Sum:
            found = least_sum(
                steps, self.phi, self.start, end.sign * price, square, path[None], _FINE, ROOM,
                paid=True, followed=True, part=part, enough=price * end.most + ENOUGH * square,
            )  # fmt: skip
            self.boxes += found.boxes
            return found

        found = Parting(
            end, Runs(steps, self.phi, self.start), steps, near * near, bounded,
            lambda: self.question.deadline.over or self.boxes > most,
        )  # fmt: skip
        bound = found.raised(_PART)
        if not bound > end.bound:
            return None
        end.bound = bound
        return found

    def _priced(self, end: Side, near: float) -> None:
        """The best price of one end, where what changes the class beyond a radius does not matter."""
        low, high = (0.0, np.nan, 0.0), (np.inf, np.nan, 0.0)  # prices, what is left of the sum there, and bounds
        for turn in range(_PASSES):
            if self.over:
                break
            near = min(near, end.nearest**0.5)
            steps = self.question.steps(near, False)
            runs, price = Runs(steps, self.phi, self.start), end.price
            found = self.bounded(steps, end.sign * price, near * near, end.paths, True)
            if found.path is None or found.moves is None:
                break
            if found.value - price * end.most > end.bound:
                end.bound, end.best = found.value - price * end.most, price
            if end.bound >= near * near * (1.0 - _NEAR):
                break
            moves = found.moves.T
            if end.descend(runs, moves[:1]):
                low, high = (0.0, np.nan, 0.0), (np.inf, np.nan, 0.0)
                continue
            end.paths.insert(1, found.path)
            left = end.sign * float(runs.total(*moves[1:])) - end.most
            own = price, left, found.value - price * end.most
            low, high = (own, high) if left > 0.0 else (low, own)
            if high[0] <= low[0] * (1.0 + 1e-5):
                break
            if not np.isfinite(high[0]) or not low[0]:
                end.price = 3.0 * low[0] if low[0] else high[0] / 3.0
                continue
            cross = (high[2] - low[2] + low[1] * low[0] - high[1] * high[0]) / (low[1] - high[1])
            most = low[2] + low[1] * (cross - low[0])  # no price has a better bound, as it is concave
            if most < near * near * (1.0 - 10.0 * _NEAR) and end.bound > most - _LITTLE * near * near:
                break
            part = low[1] / (low[1] - high[1]) if turn % 3 else 0.5
            end.price = low[0] + min(max(part, 0.02), 0.98) * (high[0] - low[0])


def averaged(question: Single, most: float) -> tuple[Claim | None, bool]:
    """The claim about one input, where one is proved, and whether there is no use in looking for a better one.

    Args:
        question: of a network whose head reads the mean.
        most: no larger radius is looked for.
    """
    search = Averaged(question)
    return search.stepwise(most) if question.boxed else search.total(most)


def _proved(ends: list[Side], told: list[Parting | None], steps: int) -> dict[str, Array]:
    """What a proof says of both ends: prices and paths, and cuts where there are some."""
    prices, cuts = np.ones(2), list[tuple[int, int, float]]()
    if not any(told):
        for end in ends:
            prices[0 if end.sign > 0.0 else 1] = end.best
        return {
            "paths": np.array([p for end in ends for p in end.paths[:_KEPT]]).reshape(-1, steps + 1),
            "prices": prices,
        }
    paths, more = np.zeros((2, steps + 1)), list[tuple[float, Array]]()
    for end, found in zip(ends, told):
        side = 0 if end.sign > 0.0 else 1
        prices[side], paths[side] = end.best, end.paths[0]
        if found is None:
            continue
        names = [side, *range(2 + len(cuts), 2 + len(cuts) + len(found.cuts))]
        cuts += [(names[k], step, value) for k, step, value in found.cuts]
        own = [(leaf.best, leaf.path if leaf.kept is None else leaf.kept) for leaf in found.leaves]
        prices[side], paths[side] = own[0]
        more += own[1:]
    return {
        "prices": np.append(prices, [price for price, _ in more]),
        "paths": np.concatenate([paths, *(path[None] for _, path in more)]),
        "cuts": np.array(cuts, dtype=np.float64),
    }


def _below(radius: float, claim: Callable[[float], Claim | None]) -> tuple[Claim | None, bool]:
    """The first claim a little below a radius, and whether it is close."""
    for part in _BELOW if radius > 0.0 else ():
        found = claim(radius * (1.0 - part))
        if found is not None:
            return found, part < 5.0 * _NEAR
    return None, False
