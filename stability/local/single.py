"""The largest balls of networks of one state: ranges, and least costs; heads on the mean: ``stability.local.mean``.

What is found is a claim only where the rule ``local_frontier`` accepts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stability.certificate import Claim
from stability.errors import ConfigurationError
from stability.local.least import WIDER, Least, kept_states, least_cost
from stability.local.mean import averaged
from stability.local.priced import Runs, Side
from stability.local.ranges import reached
from stability.local.request import Request, one_by_one
from stability.local.scalar import ScalarStep, scalar_steps, unfit
from stability.rules.local_frontier import LONGEST, ROOM
from stability.rules.registry import accepted
from stability.solve.deadline import Deadline
from stability.systems.activations import activation

Array = np.ndarray
KIND = "local_frontier"
_BELOW = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Of a radius that was found: what is taken off, in turn."""
_CLOSE, _PASSES, _KEPT, _STARTS = 1e-6, 14, 4, 12
"""What may be missing where there is no use in another search; passes of dynamic programming; paths kept; descents."""
_SHARE = 0.5
"""Of the time; other searches have the rest of it."""
_TOTAL = 24_000_000
"""Boxes of all passes but the last."""
_ALIKE = 0.02
"""Of the states: how far paths that count as the same are apart at most."""
_FINE = (3, 8)
"""Knots for each halving of the distance from a path: at first, and where this does not do."""


@dataclass(frozen=True, eq=False)
class Single:
    """The question of one input."""

    asked: Request
    k: int
    norm: str
    deadline: Deadline

    @property
    def boxed(self) -> bool:
        """Whether every step has a range of its own."""
        return self.norm == "linf" or self.asked.budget == "step"

    def steps(self, radius: float, each: bool) -> list[ScalarStep]:
        """Of a ball."""
        asked = self.asked
        mask = None if asked.mask is None else asked.free
        return scalar_steps(asked.classifier, asked.x[self.k], radius, self.norm, mask, asked.bounds, each)

    def loose(self, radius: float) -> bool:
        """Whether a ball is clipped in a way that proofs make no use of: several of a step go to the state, too."""
        asked, past = self.asked, self.asked.classifier.recurrent.F
        if self.boxed or asked.bounds is None or self.norm != "l2" or past.shape[1] < 2 or not past.any():
            return False
        x, (low, high) = asked.x[self.k], asked.bounds
        return bool((x - radius <= low).any() or (x + radius >= high).any())

    def room(self, radius: float) -> float:
        """The least margin where every step may move by a radius; not positive where a class changes."""
        net, label = self.asked.classifier, int(self.asked.y[self.k])
        try:
            low, high = reached(self.steps(radius, self.norm == "l2"), activation(net.recurrent.activation),
                                float(net.start[0]))  # fmt: skip
        except ConfigurationError:
            return -np.inf
        ends = np.array([low[-1], high[-1]])
        margins = [(net.weight[label, 0] - net.weight[other, 0]) * ends + net.bias[label] - net.bias[other]
                   for other in range(net.classes) if other != label]  # fmt: skip
        return float(np.nan_to_num(np.min(margins), nan=-np.inf))

    def claim(
        self, radius: float, paths: Array | None, fine: int | None, prices: Array | None = None,
        cuts: Array | None = None,
    ) -> Claim | None:  # fmt: skip
        """The claim, where the rule accepts it."""
        data = self.asked.data(self.k, self.norm, radius)
        data |= {} if paths is None else {"paths": paths, "fine": fine}
        data |= {} if prices is None else {"prices": prices}
        data |= {} if cuts is None else {"cuts": cuts}
        return accepted(self.asked.classifier, KIND, data)

    def near(self, radius: float) -> tuple[Runs, list[Side], Array]:
        """Runs of a ball whose class is that of the last state, the ends of it, and the nearest runs beyond these."""
        net, label, rng = self.asked.classifier, int(self.asked.y[self.k]), np.random.default_rng(0)
        steps = self.steps(WIDER * radius, False)
        runs = Runs(steps, activation(net.recurrent.activation), float(net.start[0]), last=True)
        low, high = (end[-1] for end in reached(steps, runs.phi, runs.start))
        kept = kept_states(net, label, low, high)
        if kept is None or not np.isfinite(kept).all():
            return runs, [], np.zeros((0, len(steps) + 1))
        ends = [Side(sign, sign * at) for sign, at, far in zip((1.0, -1.0), kept, (low, high)) if at != far]
        for end in ends:
            end.descend(runs, end.starts(runs, rng, _STARTS))
        least = min([end.nearest for end in ends], default=np.inf)
        paths = [end.paths[0] for end in ends if end.paths and end.nearest <= (1.0 + _ALIKE) * least]
        return runs, ends, np.array(paths).reshape(-1, len(steps) + 1)

    def costs(self, radius: float, paths: Array, fine: int) -> Least:
        """A pass of dynamic programming."""
        steps, label = self.steps(WIDER * radius, False), int(self.asked.y[self.k])
        return least_cost(self.asked.classifier, steps, label, radius, paths, fine, ROOM, followed=True)


def covers(asked: Request) -> bool:
    """Whether the rule is about such networks."""
    net = asked.classifier
    return unfit(net) is None and asked.x.shape[1] <= LONGEST


@np.errstate(all="ignore")
def single(asked: Request, k: int, norm: str, deadline: Deadline) -> tuple[Claim | None, bool]:
    """The claim about one input, where one is proved, and whether there is no use in looking for a better one.

    Args:
        asked: the inputs.
        k: which of them.
        norm: ``l2`` or ``linf``.
        deadline: of the search.
    """
    question = Single(asked, k, norm, deadline)
    claim, settled = _largest(question)
    if asked.epsilon is not None:
        return claim, settled and (claim is not None or not question.loose(asked.epsilon))
    return claim, settled and not (claim is not None and question.loose(claim.value or 0.0))


def _largest(question: Single) -> tuple[Claim | None, bool]:
    asked, norm = question.asked, question.norm
    if asked.classifier.reduction == "mean" and asked.x.shape[1] > 1:  # the mean of one step is its output
        most = asked.furthest(question.k) if asked.epsilon is None else asked.epsilon
        try:
            return averaged(question, most)
        except ConfigurationError:  # what overflows
            return None, False
    if norm == "l2" and not question.boxed:
        return _cheapest(question)
    if asked.epsilon is not None:
        claim = question.claim(asked.epsilon, None, None)
        return claim, claim is not None
    low, _ = _root(question.room, asked.furthest(question.k))
    return _below(low, lambda radius: question.claim(radius, None, None))


def found_alone(asked: Request, norm: str) -> tuple[list[Claim | None], Array, float | None]:
    """The claims about such a network's inputs, which of these are settled, and seconds a sample for the others.

    Args:
        asked: the inputs.
        norm: ``l2`` or ``linf``.
    """
    return one_by_one(asked, norm, single, _SHARE)


def _below(radius: float, claim: Callable[[float], Claim | None]) -> tuple[Claim | None, bool]:
    """The first claim a little below a radius, and whether it is close."""
    for part in _BELOW if radius > 0.0 else ():
        found = claim(radius * (1.0 - part))
        if found is not None:
            return found, part < _CLOSE
    return None, False


def _root(value: Callable[[float], float], most: float) -> tuple[float, float]:
    """Where a falling function crosses zero, or ``most``: a point at which it is positive, and one where it is not."""
    low, high, trial, turn = 0.0, np.inf, min(1e-2, most), 0
    at_low, at_high = value(0.0 * most + 1e-300), np.nan
    if not at_low > 0.0:
        return 0.0, 0.0
    while trial < high and turn < 200:
        found, turn = value(trial), turn + 1
        if found > 0.0:
            low, at_low = trial, found
        else:
            high, at_high = trial, found
        if low >= most or high <= low * (1.0 + 1e-11):
            break
        if not np.isfinite(high):
            trial = min(4.0 * trial, most)
        elif turn % 3 == 0 or not np.isfinite(at_high):
            trial = np.sqrt(max(low, 1e-9 * high) * high)
        else:
            step = low + (high - low) * at_low / (at_low - at_high)
            trial = step - 1e-12 * step if turn % 3 == 1 else step + 1e-12 * step
            trial = trial if low < trial < high else 0.5 * (low + high)
    return low, high


def _cheapest(question: Single) -> tuple[Claim | None, bool]:
    """In l2: passes of dynamic programming, each with small cells where the one before it went."""
    steps, most = question.steps(1.0, False), question.asked.furthest(question.k)
    moving = sum(bool((step.high > step.low).any()) for step in steps)
    if not moving:
        return None, False
    lower, _ = _root(question.room, most)
    if question.asked.epsilon is not None:
        most, lower = question.asked.epsilon, min(lower, question.asked.epsilon)
    if not lower > 0.0:
        return None, False
    best, paths, fine, upper = _passes(question, lower, min(most, lower * np.sqrt(moving) * 1.001))
    if question.asked.epsilon is not None:
        claim = question.claim(question.asked.epsilon, paths, fine)
        return claim, claim is not None
    claim, close = _below(best, lambda radius: question.claim(radius, paths, fine))
    return claim, close and best >= min(most, upper) * (1.0 - 0.5 * _CLOSE)


def _passes(question: Single, lower: float, radius: float) -> tuple[float, Array, int, float]:
    """The best bound of radii up to one, what proves it, ``paths`` and ``fine``, and how far the nearest run is."""
    runs, ends, kept = question.near(radius)
    best, fine = (lower * (1.0 - 1e-9), kept[:0], _FINE[0]), _FINE[0]
    still, boxes = 0, 0
    for turn in range(_PASSES):
        if turn and (question.deadline.over or boxes > _TOTAL or still > 4):
            break
        radius = min([radius, *(end.nearest**0.5 for end in ends)])
        found = question.costs(radius, kept[:_KEPT], fine)
        boxes += found.boxes
        own = min(np.sqrt(max(found.cost, 0.0)), radius) if np.isfinite(found.cost) else 0.0
        still = still + 1 if own <= best[0] * (1.0 + 1e-9) else 0
        if own > best[0]:
            best = own, kept[:_KEPT], fine
        if best[0] >= radius * (1.0 - 0.1 * _CLOSE) or found.path is None or found.moves is None:
            break
        kept = _added(kept, found.path)
        for end in ends:
            if end.descend(runs, found.moves[None]):
                kept = _added(kept, end.paths[0])
        fine = _FINE[still > 2]
    upper = min([end.nearest**0.5 for end in ends], default=np.inf)
    return best[0], best[1], best[2], upper


def _added(paths: Array, path: Array) -> Array:
    """A path before the others, those left out that go nearly the same way."""
    wide = np.abs(path).max() + np.abs(paths).max(initial=0.0)
    other = np.abs(paths - path).max(axis=1, initial=0.0) > _ALIKE * wide
    return np.concatenate([path[None], paths[other]])
