r"""Larger l2 balls for inputs of which few numbers may change: the ball is cut in pieces until each of them is proved.

A piece, what of the ball lies in a box, is proved by planes or by parabolas with a price for what leaves the ball
(``stability.local.pieces``); one that is not is cut in two where its margin bends most. What is found is a claim only
where the rule ``local_pieces`` accepts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.certificate import Claim
from stability.errors import UnsupportedError
from stability.local.forms import Form
from stability.local.leaves import input_box, kinked, touched
from stability.local.multipliers import best_multipliers
from stability.local.parabolas import Quadratic, quadratic
from stability.local.pieces import PieceTube, beyond, priced
from stability.local.request import Request
from stability.local.runs import margins, steps_of
from stability.local.trees import About, Outcome, Tree, tree_of
from stability.solve.deadline import Deadline

Array = np.ndarray
KIND = "local_pieces"
FEW = 3
"""Numbers that may change, up to which balls are cut whether there is a time limit or not."""
_NODES = 400
"""Pieces tried for one radius."""
_ONE, _ALL = 120, 360
"""Pieces tried for one radius, and for all together, where no time limit says how long."""
_SYMBOLS = 1500
"""Symbols up to which pieces are tried: each costs some factorisations of that size."""
_NEAR = (0.99, 0.95)
"""Of a radius that does not hold, tried first."""
_NEARER, _CHEAP = (0.999, 1.0 - 1e-5, 1.0 - 1e-7), 48
"""Tried after it, one after the other, while one took no more pieces than this."""
_TOLERANCE, _TRIALS = 0.01, 12
_ROOMS = ((1, 0.05), (12, 0.1), (100, 0.1), (_NODES, 0.05))
"""Pieces, and how near radii that hold and that do not come to each other, in turn."""
_PRICES, _ROUNDS, _TOUCHES = 7, 40, 3


@dataclass(frozen=True, eq=False)
class Piecewise(About):
    """The question of an l2 ball."""

    each: bool = False
    """Whether every step has one of its own."""

    def decide(self, radius: float, room: int = _NODES) -> Trial:
        """Whether a tree was found that proves a radius."""
        nearest, outside = np.inf, 0

        def look(low: Array, high: Array) -> Outcome:
            nonlocal nearest, outside
            if beyond(self.x, radius, low, high, self.each):
                outside += 1
                return Outcome({})
            found = self._piece(radius, low, high)
            nearest = min(nearest, found.broken)
            return found

        box = input_box(self.x, radius, self.mask, self.bounds)
        tree, looked = tree_of(box, look, room, self.deadline)
        return Trial(tree, nearest, looked - outside)

    def claim(self, radius: float, tree: Tree) -> Claim | None:
        """The claim, where the rule accepts it."""
        return self.claimed(KIND, "l2", radius, tree, **({"budget": "step"} if self.each else {}))

    def _piece(self, radius: float, low: Array, high: Array) -> Outcome:
        """One piece: the classes that planes leave open by parabolas, the most doubtful one first."""
        tube = PieceTube(x=self.x, ball=radius, each=self.each)
        margin = margins(self.classifier, tube, low, high, self.label)
        others = np.delete(np.arange(self.classifier.classes), self.label)
        classes: list[dict[str, Any]] = []
        for row in np.argsort(margin.low):
            if margin.low[row] > 0.0:
                break
            if tube.merged or tube.symbols > _SYMBOLS:
                return Outcome()
            found = self._parabolas(tube, margin, int(row))
            if found.leaf is None:
                return found
            classes.append({"class": int(others[row]), **found.leaf})
        return Outcome({"classes": classes})

    def _crossing(self, step: Array) -> float:
        """How far on the way to an input of another class another one's logit is as large first, nearly."""
        parts = np.linspace(0.0, 1.0, 33)
        for _ in range(3):
            logits = self.classifier.logits(self.x + parts[:, None, None] * step)
            wrong = np.delete(logits, self.label, axis=1).max(axis=1) >= logits[:, self.label]
            first = max(1, int(np.argmax(wrong))) if wrong.any() else len(parts) - 1
            parts = np.linspace(parts[first - 1], parts[first], 33)
        return float(parts[-1] * np.linalg.norm(step, axis=1 if self.each else None).max())

    def _parabolas(self, tube: PieceTube, margin: Form, row: int) -> Outcome:
        """One class: parabolas touch where the planes are least in the ball, then where the bound was."""
        index, shift = tube.symbols_of_inputs()
        if not len(index):
            return Outcome()
        size = tube.radius[index]
        slope = margin.L[row][index]
        towards = -shift - tube.ball * slope / np.maximum(_lengths(tube, slope, spread=True), 1e-300)
        point, weight = np.clip(towards / size, -1.0, 1.0), np.abs(margin.L[row]) * tube.radius
        inside = bool(_lengths(tube, np.abs(shift) + size).max() <= tube.ball)
        for _ in range(_TOUCHES):
            met, values = touched(self.classifier, tube, point, self.label)
            away = float(_lengths(tube, size * point + shift).max())
            if not values[row] > 0.0 and away <= tube.ball:
                step = np.zeros(self.x.size)
                step[_entries(tube)] = size * point + shift
                return Outcome(broken=self._crossing(step.reshape(self.x.shape)))
            F = quadratic(tube, margin, row, met)
            prices = _lengths(tube, F.slope()[index] / size) / (2.0 * tube.ball)
            best, known = _best_price(F, tube, prices, not inside, self.deadline)
            if best is not None and known:
                return Outcome({"point": point, **best})
            weight = F.curvature() + kinked(tube, F)
            if best is None or self.deadline.over:
                break
            moved = np.clip(best["v"][index], -1.0, 1.0)
            if np.abs(moved - point).max(initial=0.0) < 1e-3:
                break
            point = moved
        cut = np.argmax(weight[index] + 1e-12 * size)
        return Outcome(cut=_entries(tube)[int(cut)])


@dataclass(frozen=True)
class Trial:
    """What came of a radius: the tree, how far a point of another class is that was met, how many pieces there were."""

    tree: Tree | None
    broken: float
    pieces: int


def _entries(tube: PieceTube) -> list[int]:
    """The numbers of the entries of the input that move, in the order of their symbols."""
    return [t * len(centre) + int(k) for t, (centre, moves, _) in enumerate(tube.inputs) for k in moves]


def _lengths(tube: PieceTube, values: Array, *, spread: bool = False) -> Array:
    """Lengths ``(groups,)`` of what the inputs' symbols of each ball have; one for each symbol where ``spread``."""
    sizes = np.array([float(np.linalg.norm(values[of])) for of in tube.shares])
    return (
        np.concatenate([np.full(of.stop - of.start, size) for of, size in zip(tube.shares, sizes)]) if spread else sizes
    )


def _best_price(
    F: Quadratic, tube: PieceTube, prices: Array, paid: bool, deadline: Deadline
) -> tuple[dict[str, Any] | None, bool]:
    """Multiples of prices, with multipliers, that prove ``F`` positive in the piece, and whether; else the best.

    The bound is concave in the price, and rises with it while the minimum lies outside of the ball.
    """
    index, shift = tube.symbols_of_inputs()
    low, high, best, bound, times = 0.0, np.inf, None, -np.inf, float(paid)
    for _ in range(_PRICES):
        now = times * prices
        G = priced(F, tube, now)
        found = best_multipliers(G, rounds=_ROUNDS, deadline=deadline)
        if not np.isfinite(found.bound):
            break
        price = now if tube.each else float(now[0])
        if found.bound > bound or best is None:
            best, bound = {"price": price, "multipliers": found.D, "v": found.v}, found.bound
        if found.bound > 0.0 and G.least(found.D) > 0.0:
            return {"price": price, "multipliers": found.D}, True
        v = np.clip(found.v, -1.0, 1.0)
        away = float(_lengths(tube, tube.radius[index] * v[index] + shift).max())
        if away <= tube.ball and (F.value(v) < 0.0 or times == 0.0):
            break
        low, high = (times, high) if away > tube.ball else (low, times)
        times = (2.0 * low or 1.0) if not np.isfinite(high) else 0.5 * (low + high)
    return best, False


def pays(asked: Request) -> bool:
    """Whether cutting is tried: few numbers change, or there is a time limit to keep to, and steps have tubes."""
    if not (0 < int(asked.free.sum()) <= FEW or asked.time_limit is not None):
        return False
    try:
        steps_of(asked.classifier)
    except UnsupportedError:
        return False
    return True


def larger(asked: Request, k: int, known: Claim | None, about: tuple[float, float], deadline: Deadline) -> Claim | None:
    """The claim about a larger ball than the one that is known, where pieces prove one; else that claim.

    Args:
        asked: the inputs.
        k: which of them.
        known: what is proved of it.
        about: a radius of the right size, where nothing is proved, and one that is not to be reached.
        deadline: of the search.
    """
    mask, radius = None if asked.mask is None else asked.free, 0.0 if known is None else float(known.value or 0.0)
    each = asked.budget == "step"
    question = Piecewise(asked.classifier, asked.x[k], int(asked.y[k]), mask, asked.bounds, deadline, each)
    if asked.epsilon is not None:
        tree = None if known is not None or deadline.over else question.decide(asked.epsilon).tree
        return known if tree is None else question.claim(asked.epsilon, tree) or known
    search = from_above if int(asked.free.sum()) <= FEW else from_below
    guess, upper = about
    found = search(question, radius, upper, guess)
    return known if found is None else question.claim(*found) or known


def from_above(question: Piecewise, low: float, high: float, guess: float) -> tuple[float, Tree] | None:
    """The largest radius found between one that is proved and one that is not to be reached, with its tree.

    Few numbers: any radius below the truth is within reach, so that the search begins at the top.
    """
    best: tuple[float, Tree] | None = None
    trials = [max(1.2 * low, guess)]
    if np.isfinite(high):
        trials = [high * part for part in (_NEAR if low < high * _NEAR[0] else _NEARER) if low < high * part][:2]
    unlimited, left = question.deadline.seconds is None, _ALL
    for _ in range(_TRIALS):
        if (high <= low * (1.0 + _TOLERANCE) and not trials) or question.deadline.over or left <= 0:
            break
        middle = 0.5 * (low + high) if np.isfinite(high) else 2.0 * max(low, guess)
        radius = trials.pop(0) if trials else middle
        if not low < radius < high:
            continue
        found = question.decide(radius, min(_ONE, left) if unlimited else _NODES)
        left -= found.pieces if unlimited else 0
        if found.tree is not None:
            low, best = radius, (radius, found.tree)
            nearer = [part * high for part in _NEARER if low < part * high < np.inf]
            if found.pieces <= _CHEAP and nearer:
                trials = nearer[:1]
            continue
        high = min(radius, found.broken)
        if np.isfinite(found.broken):
            trials = [high * part for part in _NEAR]
    return best


def from_below(question: Piecewise, low: float, high: float, guess: float) -> tuple[float, Tree] | None:
    """The same for many numbers, whose pieces come to an end early: whole balls first, then more and more cuts."""
    best: tuple[float, Tree] | None = None
    for room, tolerance in _ROOMS:
        top = high
        for _ in range(_TRIALS):
            if top <= low * (1.0 + tolerance) or question.deadline.over:
                break
            ends = max(low, 1e-3 * guess), min(top, 8.0 * max(low, guess))
            radius = float(np.sqrt(ends[0] * ends[1]))
            if not low < radius < top:
                break
            found = question.decide(radius, room)
            if found.tree is None:
                top, high = radius, min(high, found.broken)
            else:
                low, best = radius, (radius, found.tree)
    return best
