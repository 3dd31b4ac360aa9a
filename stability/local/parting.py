"""Cuts between runs of a network of one state whose head reads the mean, where no price does for all of them.

At the best price a cheap run, which keeps the class, and a dear one, which is beyond the ball, cost the same: between
them lies what is lost. A cut between their states, at the step where these are farthest apart, leaves each part one of
them, and a better price. Parts are cut, that of the least bound first, until all are above what is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from stability.local.parts import MOST_CUTS, Part
from stability.local.priced import Runs, Side
from stability.local.ranges import reached
from stability.local.scalar import ScalarStep
from stability.local.sums import Sum
from stability.rules.local_frontier import PARTED

Array = np.ndarray
_PASSES = 10
"""Passes of dynamic programming for a part."""
_AGAIN = 3
"""Passes at one price, each with small cells where the one before has its run."""
_STEPS = (1.03, 1.2, 2.0, 3.0)
"""Of prices, in turn, until there is one on either side."""
_CHECKED = 0.45
"""Of the boxes that a checker looks at: what the parts of one end may take of them."""
_BRACKETED = 1e-6
"""Prices that are no further apart are not told apart."""


@dataclass(eq=False)
class Leaf:
    """A part of the runs.

    Attributes:
        part: which.
        price: to be tried next.
        path: near which cells are small.
        bound: of what changing the class costs, at ``best``.
        boxes: that its pass looked at.
        near: of the radius that they were for, the square.
        best: the price of the bound.
        kept: the path of the bound.
        apart: coordinates of two runs of the part, a cheap one and a dear one, where both were met.
    """

    part: Part
    price: float
    path: Array
    bound: float = -np.inf
    boxes: int = 0
    near: float = np.inf
    best: float = 1.0
    kept: Array | None = None
    apart: tuple[Array | None, Array | None] = (None, None)


@dataclass(eq=False)
class Parting:
    """The parts of one end of the sums.

    Attributes:
        end: the end.
        runs: of the ball.
        steps: of the ball.
        square: of its radius.
        bounded: a pass of dynamic programming: of a price, a path, a part, and the square of what radius is enough.
        over: whether there is no time or room left.
        leaves: the parts.
        cuts: that made them, each a part, a step and a value.
    """

    end: Side
    runs: Runs
    steps: list[ScalarStep]
    square: float
    bounded: Callable[[float, Array, Part, float], Sum]
    over: Callable[[], bool]
    leaves: list[Leaf] = field(default_factory=list)
    cuts: list[tuple[int, int, float]] = field(default_factory=list)

    @property
    def near(self) -> float:
        """Of the radius that is asked for, or of that of a nearer run which has been met since: the square."""
        return min(self.square, self.end.nearest)

    def raised(self, missing: float) -> float:
        """The least bound over all parts, once no more of ``near`` is missing than a share, or no more can be done."""
        whole = Part.whole(0 if self.end.sign > 0.0 else 1, len(self.steps))
        self.leaves = [Leaf(whole, self.end.best, self.end.paths[0])]
        self._raise(self.leaves[0], missing)
        while True:
            k = min(range(len(self.leaves)), key=lambda k: self.leaves[k].bound)
            least, lacking = self.leaves[k], (1.0 - missing) * self.near - self.leaves[k].bound
            many = len(self.cuts) >= MOST_CUTS // 2 or sum(leaf.boxes for leaf in self.leaves) > _CHECKED * PARTED
            if many or self.over():
                return least.bound
            if lacking <= 0.0:
                old = [leaf for leaf in self.leaves if leaf.near > self.near]
                for leaf in old:  # a checker knows the last radius alone, and has larger cells where less counts
                    leaf.price, leaf.path, leaf.bound = (
                        leaf.best,
                        leaf.path if leaf.kept is None else leaf.kept,
                        -np.inf,
                    )
                    self._raise(leaf, missing)
                if not old:
                    return least.bound
                continue
            cut = self._cut(least, lacking)
            if cut is None:
                return least.bound
            self.cuts.append((k, *cut))
            path = least.path if least.kept is None else least.kept
            self.leaves[k], more = (Leaf(part, least.best, path) for part in least.part.cut(*cut))
            self.leaves.append(more)
            for leaf in (self.leaves[k], more):
                self._raise(leaf, missing)

    def _raise(self, leaf: Leaf, missing: float) -> None:
        """The best price of a part, or one that is good enough."""
        end, low, high = self.end, (0.0, np.nan, 0.0), (np.inf, np.nan, 0.0)  # see ``mean.Averaged._priced``
        turn, again, lost = 0, 0, np.inf
        for _ in range(_PASSES):
            if turn + again and self.over():
                break
            price, leaf.near = leaf.price, self.near
            found = self.bounded(price, leaf.path, leaf.part, leaf.near)
            if found.value == np.inf:
                leaf.bound, leaf.best = np.inf, price
                break
            if found.path is None or found.moves is None:
                break
            bound = found.value - price * end.most
            if bound > leaf.bound:
                leaf.bound, leaf.boxes, leaf.best, leaf.kept = bound, found.boxes, price, leaf.path
            leaf.path = found.path
            if leaf.bound >= (1.0 - missing) * leaf.near:
                break
            left = end.sign * float(self.runs.total(*found.moves.T[1:])) - end.most
            cost = float(self.runs.cost(found.moves[:, 0]))
            if turn == 0 or (left <= 0.0 and cost < end.nearest):
                end.descend(self.runs, found.moves.T[:1])
            met, aim = cost + price * left, (1.0 - missing) * self.near
            if met >= aim and again < _AGAIN and met - bound < 0.5 * lost:  # what is missing is lost by large cells
                again, lost = again + 1, met - bound
                continue
            cheap, dear = leaf.apart
            leaf.apart = (found.moves[:, 0], dear) if left > 0.0 else (cheap, found.moves[:, 0])
            low, high = ((price, left, met), high) if left > 0.0 else (low, (price, left, met))
            following = _next(low, high, turn, aim)
            if following is None:
                break
            leaf.price, turn, again, lost = following, turn + 1, 0, np.inf

    def _cut(self, leaf: Leaf, missing: float) -> tuple[int, float] | None:
        """A step, and a state after it, of a part whose bound lacks something; ``None`` where it is too small."""
        (low, high), whole = (reached(self.steps, self.runs.phi, self.runs.start, w) for w in (leaf.part.ends, None))
        most, wide = np.maximum(whole[1] - whole[0], 1e-300), high - low
        cheap, dear = leaf.apart
        if cheap is None or dear is None:
            t = int((wide / most)[1:].argmax()) + 1
            value = 0.5 * low[t] + 0.5 * high[t]
        else:
            pinned = self._pinned(0.5 * cheap + 0.5 * dear, leaf.best)
            ends = self.runs.path(cheap), self.runs.path(dear)
            lost = np.where(pinned > 0.0, wide[1:] ** 2 / np.maximum(pinned, 1e-300), np.inf)
            lost[lost < 4.0 * missing] = np.inf  # so much is missing though the state is known so well
            if np.isfinite(lost).any():
                t = int(lost.argmin()) + 1
            else:
                t = int((np.abs(ends[0] - ends[1]) / most)[1:].argmax()) + 1
            value = 0.5 * ends[0][t] + 0.5 * ends[1][t]
            if min(value - low[t], high[t] - value) < 0.1 * wide[t]:
                value = 0.5 * low[t] + 0.5 * high[t]
        apart = min(value - low[t], high[t] - value)
        return (t, float(value)) if apart > 1e-9 * most[t] else None

    def _pinned(self, v: Array, price: float) -> Array:
        """How much a state's being known takes of a concave direction, ``-c H^-1 c`` of each after the first one.

        ``H`` is the Hessian of the cost with the price of the sum, ``c`` the slope of the state: where the number is
        positive, and ``H`` concave in one direction, what a price loses on a range of the state is at most its square
        divided by four times the number.
        """
        size, small = len(v), 1e-4 * (1.0 + np.abs(v).max())
        ways = v + small * np.concatenate([np.eye(size), -np.eye(size)])
        slopes = self.end.sign * price * self.runs.slope(ways)[1]
        m = vars(self.runs)
        states = self.runs.states(m["S"] * ways, m["g"] * ways)[:, 1:]
        hessian, rows = (part[:size] - part[size:] for part in (slopes, states))
        hessian = 2.0 * np.eye(size) + (0.5 * hessian + 0.5 * hessian.T) / (2.0 * small)
        rows = rows.T / (2.0 * small)
        try:
            return -np.einsum("ik,ki->i", rows, np.linalg.solve(hessian, rows.T))
        except np.linalg.LinAlgError:
            return np.zeros(size)


def _next(low: tuple[float, float, float], high: tuple[float, float, float], turn: int, aim: float) -> float | None:
    """A price between two, each with what a run leaves of the sum and what it costs at the price; ``None`` where no
    price reaches ``aim``: none has a better bound than what either run costs at it.

    Args:
        low: of a run that keeps the class; zeros where none was met.
        high: of one that does not; infinite where none was met.
        turn: how many prices were tried.
        aim: a bound.
    """
    if high[0] <= low[0] * (1.0 + _BRACKETED):
        return None
    if not np.isfinite(high[0]) or not low[0]:
        far = _STEPS[min(turn, len(_STEPS) - 1)]
        return far * low[0] if low[0] else high[0] / far
    cross = (high[2] - low[2] + low[1] * low[0] - high[1] * high[0]) / (low[1] - high[1])
    if low[2] + low[1] * (cross - low[0]) < aim:
        return None
    part = (low[1] / (low[1] - high[1]), (cross - low[0]) / (high[0] - low[0]), 0.5)[turn % 3]
    return low[0] + min(max(part, 0.02), 0.98) * (high[0] - low[0])
