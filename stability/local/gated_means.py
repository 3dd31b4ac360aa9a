"""LSTM and GRU of one unit whose head reads the mean: prices of outputs, and cuts between runs where none does.

Of each end of the means that keep the class the runs that leave it there are bounded, with a toll for each output, see
``stability.local.after``. In l2 in total the toll has a price. What is best at a price is looked for by descents first:
the bound is no more than what any run comes to at it, so that a cheap run, which keeps the class, and a dear one, which
does not, tell whether any price will do. Where none does, runs are told apart at the step where these two are farthest
apart, and each part has a price of its own. Dynamic programming follows where descents find nothing against a price.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stability.local.after import Ending, Margins
from stability.local.gated_runs import GatedRuns, Met
from stability.local.parts import MOST_CUTS, Part
from stability.local.passes import ENOUGH, Proved, passes
from stability.local.refining import Refining
from stability.solve.deadline import Deadline

Array = np.ndarray
_PRICES, _AGAIN, _RANDOM = 10, 4, 4
"""Prices of a part; how often dynamic programming meets a cheaper run than descents did; starts of descents."""
_ROOMY, _NEARLY, _HERE, _FIRST = 1.05, 1.02, 1e-4, 3.0
"""Of the goal: a bound that is quickly proved; of a bound: what better prices have at most, where none is looked for;
of what runs leave: where the cheapest run is at the bound, as at the best price; and where no run is known, a price."""


@dataclass(eq=False)
class Leaf:
    """A part of the runs.

    Attributes:
        part: which.
        price: of the outputs.
        met: runs of it.
        proved: what is proved of it; ``None``: nothing yet.
        paid: at what price.
    """

    part: Part
    price: float
    met: list[Met] = field(default_factory=list)
    proved: Proved | None = None
    paid: float = 0.0

    def add(self, found: Proved) -> None:
        """What was found at the price, where it is better than what was."""
        if self.proved is None or found.value > self.proved.value:
            self.proved, self.paid = found, self.price


@dataclass(eq=False)
class Means:
    """The question of one input.

    Attributes:
        runs: of the ball.
        end: the bounds of the means that keep the class.
        deadline: of the search.
        leaves: the parts.
        cuts: that made them.
        boxes: of moves, that were looked at.
    """

    runs: GatedRuns
    end: Ending
    deadline: Deadline
    leaves: list[Leaf] = field(default_factory=list)
    cuts: list[tuple[int, int, float]] = field(default_factory=list)
    boxes: int = 0

    @property
    def size(self) -> int:
        """How many steps."""
        return len(self.runs.steps)

    def side(self, leaf: Leaf) -> tuple[float, float] | None:
        """The sign and the bound of a part; ``None`` where no other class is there."""
        sign, at = ((-1.0, self.end.low), (1.0, self.end.high))[leaf.part.side]
        return (sign, at) if np.isfinite(at) else None

    def refining(self, leaf: Leaf, goal: float) -> Refining | None:
        """Cells of a part; ``None`` where it has no runs, or there is nothing to be proved."""
        found, side = self.runs.boxes(leaf.part), self.side(leaf)
        if found is None or side is None:
            return None
        low, high = found
        sign, at = side
        most = np.concatenate([[0.0], np.cumsum(np.maximum(sign * low[:, 0], sign * high[:, 0]))])
        cap = goal + leaf.price * max(float(most.max()) / self.size, 0.0)
        toll = -sign * leaf.price / self.size
        return Refining(self.runs, Margins.tolled(toll, at, leaf.part), low[:-1], high[:-1], cap, toll)

    def told(self) -> dict[str, Array]:
        """What a proof says."""
        d, none = len(self.runs.start), (self.size - 1, len(self.runs.start))
        empty = {"low": np.full(none, -1.0), "high": np.ones(none), "cut": np.zeros(self.size - 1)}
        empty |= {"values": np.zeros(self.size - 1), "slopes": np.zeros(none)}
        parts = [leaf.proved.told if leaf.proved is not None and leaf.proved.told else empty for leaf in self.leaves]
        out = {name: np.stack([part[name].reshape(none) for part in parts]) for name in ("low", "high")}
        out |= {name: np.concatenate([part[name] for part in parts]) for name in ("cut", "values")}
        out["slopes"] = np.concatenate([part["slopes"].reshape(-1, d) for part in parts])
        out["prices"] = np.array([leaf.paid for leaf in self.leaves])
        return out | ({"cuts": np.array(self.cuts, dtype=np.float64)} if self.cuts else {})

    def started(self, prices: tuple[float, float]) -> None:
        """No cuts."""
        self.leaves = [Leaf(Part.whole(side, self.size), prices[side]) for side in (0, 1)]
        self.cuts = []

    # a ball or box for each step

    def kept(self, upper: float, goal: float, room: int) -> Proved:
        """Whether no mean leaves the bounds, where each step has a ball or a box.

        Args:
            upper: the length of the nearest run.
            goal: of what is to be left of the means' room, a share of that of the input itself.
            room: boxes of moves.
        """
        self.started((1.0, 1.0))
        least, mean = np.inf, self.runs.mean(np.zeros(self.runs.parts[-1].stop))
        for leaf in self.leaves:
            side = self.side(leaf)
            left = np.inf if side is None else side[0] * (side[1] - mean)
            made = self.refining(leaf, left)
            if made is None or side is None:
                continue
            told = self._ended(leaf), upper, goal * left, room, self.deadline
            found = passes(made, *told, total=False, others=self._others(leaf))
            leaf.add(found)
            least, upper, room = min(least, found.value), min(upper, found.upper), room - made.boxes
            if not found.value > 0.0:
                break
        return Proved(least, upper, self.told())

    def _others(self, leaf: Leaf) -> int:
        """Boxes that the proofs of the other parts stand on."""
        return sum(own.proved.size for own in self.leaves if own is not leaf and own.proved is not None)

    def _ended(self, leaf: Leaf) -> Ending:
        return Ending(*((self.end.low, np.inf), (-np.inf, self.end.high))[leaf.part.side])

    # in total

    def raised(self, near: Array | None, upper: float, goal: float, room: int) -> Proved:
        """A bound of what leaves the bounds costs, raised to a goal where that can be.

        Args:
            near: moves of the nearest run; ``None``: none is known.
            upper: its length.
            goal: the bound.
            room: boxes of moves.
        """
        self.started((self._first(0, near, goal), self._first(1, near, goal)))
        for leaf in self.leaves:
            leaf.met = [] if near is None else [self._met(leaf, near)]
        k = 0
        while k < len(self.leaves) and not self._over(room):
            leaf = self.leaves[k]
            if self.side(leaf) is None or self.runs.boxes(leaf.part) is None or self._priced(leaf, goal):
                k += 1
            elif not self._divided(k):
                break
        return self._proved(upper, goal, room)

    def _proved(self, upper: float, goal: float, room: int) -> Proved:
        """Dynamic programming of all parts; parts that turn out to have no price are cut then."""
        k, least = 0, np.inf
        while k < len(self.leaves):
            leaf, again = self.leaves[k], 0
            while leaf.proved is None or leaf.proved.value < min(goal, upper**2) * (1.0 - 2.0 * ENOUGH):
                made = self.refining(leaf, goal)
                if made is None:
                    leaf.add(Proved(np.inf, upper, {}))
                    break
                if self._over(room):
                    break
                aim, met = (1.0 - ENOUGH) * goal, list[Met]()

                def hopeless(y: Array, _: Proved, leaf: Leaf = leaf, aim: float = aim, met: list[Met] = met) -> bool:
                    met.append(self._met(leaf, y))
                    return self._within(leaf, y) and met[-1].at(leaf.price) < aim

                told = self._ended(leaf), upper, goal, room - self.boxes, self.deadline
                found = passes(made, *told, total=True, others=self._others(leaf), done=hopeless)
                leaf.add(found)
                self.boxes, upper, again = self.boxes + made.boxes, min(upper, found.upper), again + 1
                if not met or met[-1].at(leaf.price) >= aim or self._over(room) or again > _AGAIN:
                    break
                leaf.met.append(met[-1])
                if not self._priced(leaf, goal):
                    if not self._divided(k):
                        break
                    leaf, again = self.leaves[k], 0
                    self._priced(leaf, goal)
            least, k = min(least, -np.inf if leaf.proved is None else leaf.proved.value), k + 1
        return Proved(least, upper, self.told())

    def _first(self, side: int, near: Array | None, goal: float) -> float:
        """A first price of one side: that of the nearest run, where it leaves the bounds there."""
        at = (self.end.low, self.end.high)[side]
        if near is not None:
            mean, slope = self.runs.read(near)
            size = float(slope @ slope)
            if abs(mean - at) < 1e-6 and size > 0.0:
                return abs(2.0 * float(near @ slope)) / size
        left = abs(at - self.runs.mean(np.zeros(self.runs.parts[-1].stop)))
        return _FIRST * goal / max(left, 1e-9) if np.isfinite(left) else 0.0

    def _met(self, leaf: Leaf, y: Array) -> Met:
        sign, at = self.side(leaf) or (1.0, 0.0)
        return Met(float(y @ y), sign * (at - self.runs.mean(y)), y)

    def _within(self, leaf: Leaf, y: Array) -> bool:
        h = self.runs.states(y)[:, 0]
        return bool((h >= leaf.part.low - 1e-9).all() and (h <= leaf.part.high + 1e-9).all())

    def _over(self, room: int) -> bool:
        return self.boxes > room or self.deadline.over

    def _priced(self, leaf: Leaf, goal: float) -> bool:
        """Whether there is a price against which descents find no run."""
        side, rng, aim = self.side(leaf), np.random.default_rng(0), (1.0 - 0.5 * ENOUGH) * goal
        assert side is not None
        for turn in range(_PRICES):
            size = float(np.sqrt(goal))
            starts = [0.0 * y for y in self.runs.starts(rng, 1.0, 1)] + list(self.runs.starts(rng, size, _RANDOM))
            starts += [met.moves for met in leaf.met[-6:]]
            found = [self.runs.cheapest(leaf.price, side, leaf.part, y) for y in starts]
            leaf.met += [met for met in found if self._within(leaf, met.moves)]
            if not leaf.met:
                return True
            cheapest = min(leaf.met, key=lambda met: met.at(leaf.price))
            least, here = cheapest.at(leaf.price), abs(cheapest.left) < _HERE * max(abs(met.left) for met in leaf.met)
            price, most = _best(leaf.met, leaf.price)
            if least >= aim and (here or least >= _ROOMY * goal or most <= _NEARLY * least or turn > 2):
                return True
            if most < aim or self.deadline.over:
                leaf.price = price
                return False
            leaf.price = price
        return min(met.at(leaf.price) for met in leaf.met) >= aim

    def _cut(self, leaf: Leaf) -> tuple[int, float] | None:
        """A step and a state between the runs that leave no price; ``None`` where these are too near each other."""
        price, _ = _best(leaf.met, leaf.price)
        order = sorted(leaf.met, key=lambda met: met.at(price))
        cheap, dear = ([met for met in order if (met.left > 0.0) is kept] for kept in (True, False))
        boxes = self.runs.boxes(leaf.part)
        if not cheap or not dear or boxes is None:
            return None
        ends = [self.runs.states(some[0].moves)[1:, 0] for some in (cheap, dear)]
        apart = np.abs(ends[0] - ends[1]) / np.maximum(boxes[1][:, 0] - boxes[0][:, 0], 1e-300)
        t = int(apart.argmax())
        return (t + 1, 0.5 * float(ends[0][t] + ends[1][t])) if apart[t] > 1e-7 else None

    def _divided(self, k: int) -> bool:
        """Whether a part could be cut."""
        leaf = self.leaves[k]
        cut = self._cut(leaf) if len(self.cuts) < MOST_CUTS else None
        if cut is None:
            return False
        self.cuts.append((k, *cut))
        self.leaves[k], more = (Leaf(part, leaf.price) for part in leaf.part.cut(*cut))
        self.leaves.append(more)
        for own in (self.leaves[k], more):
            own.met = [met for met in leaf.met if self._within(own, met.moves)]
        return True


def _best(met: list[Met], price: float) -> tuple[float, float]:
    """The price at which the least of some runs is largest, and that; three times the price where all keep the class.

    Example:
        >>> _best([Met(0.0, 1.0, np.zeros(1)), Met(4.0, -1.0, np.zeros(1))], 1.0)
        (2.0, 2.0)
    """
    cost, left = np.array([m.cost for m in met]), np.array([m.left for m in met])
    if (left > 0.0).all():
        price = 3.0 * price
        return price, np.inf
    apart = left[:, None] - left
    cross = (cost - cost[:, None]) / np.where(apart == 0.0, np.inf, apart)
    tried = np.append(cross[cross > 0.0], 0.0)
    least = (cost + tried[:, None] * left).min(axis=1)
    return float(tried[least.argmax()]), float(least.max())
