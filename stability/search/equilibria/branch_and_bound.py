"""Branch and bound over boxes: every equilibrium of an equation, or the boxes that could not be decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from stability.kernel.arithmetic.balls import Ball
from stability.search.equilibria.affine_boxes import AffineBoxes
from stability.search.equilibria.equations import Bounds, Equation

Array = np.ndarray
MOST_BOXES, MOST_OPERATIONS = 400_000, 8e8  # default effort: boxes, and boxes times unknowns squared times symbols
SMALLEST = 1e-6  # width relative to the unknowns below which a box is left undecided
NEWTON_BELOW = 1e-2  # relative width below which a box is a start for Newton's method
FAILURES = 8  # such starts without a new equilibrium in one round
GRID = 1e-3  # relative width of the cells whose undecided boxes are joined
BATCH_NUMBERS = 2**21  # numbers in the coefficients of one batch of boxes


@dataclass(frozen=True, eq=False)
class Proved:
    """Equilibrium in a box in which there is exactly one.

    Attributes:
        state: ball ``(n,)``.
        jacobian: ball ``(n, n)``; ``None`` if it is not enclosed.
        low: ``(d,)`` lower corner, in the equation's coordinates, of a box with no other equilibrium.
        high: its upper corner.
    """

    state: Ball
    jacobian: Ball | None
    low: Array
    high: Array


@dataclass
class Enumeration:
    """Equilibria found so far, and the boxes that may hold others.

    Attributes:
        equation: the equation.
        newton: function that returns an approximate equilibrium near a state ``(n,)``, or ``None``.
        undecided: ``(k, 2, n)`` boxes of states that may hold others, none before the search.
        equilibria: all that were found.
        boxes: number of examined boxes.
    """

    equation: Equation
    newton: Callable[[Array], Array | None]
    undecided: Array
    equilibria: list[Proved] = field(default_factory=list)
    boxes: int = 0

    def offer(self, guess: Array) -> bool:
        """Return True if Newton's method leads from a state to an equilibrium that was not known."""
        state = self.newton(guess)
        if state is None or any(np.abs(state - p.state.mid).max() <= 2 * p.state.rad.max() for p in self.equilibria):
            return False
        proof = self.equation.enclose(state)
        if proof is None:
            return False
        ball, place, jacobian = proof
        low, high = (end[None] for end in place.endpoints())
        if self._known(low, high).any() or any(meet(ball, other.state) for other in self.equilibria):
            return False
        wide = [r for r in 2.0 ** np.arange(2, -40, -1.0) if r > place.rad.max()]
        radius = next((r for r in wide if self.equation.unique(place.mid, r)), -1.0)  # a negative one holds no box
        lower, upper = place.mid - radius, place.mid + radius
        self.equilibria.append(Proved(ball, jacobian, np.nextafter(lower, np.inf), np.nextafter(upper, -np.inf)))
        return True

    def _known(self, low: Array, high: Array) -> Array:
        """Return the mask of located boxes ``(N, d)`` inside a box that has one known equilibrium and no other."""
        inside = np.zeros(len(low), dtype=bool)
        for point in self.equilibria:
            inside |= ((point.low <= low) & (high <= point.high)).all(axis=1)
        return inside

    def run(self, max_boxes: int | None, corners: Bounds | None) -> str:
        """Find all equilibria with states between two corners ``(n,)`` as far as possible.

        Returns:
            The reason why there may be others; empty if it is proved that there are none.
        """
        start, limit = self.equation.start, max_boxes
        if start is None or corners is None:  # a start has corners
            if corners is not None:
                return "the search cannot enclose this network in the box"
            return "no box is known that contains every equilibrium: give one (box=)"
        if limit is None:
            cost = start[0].size ** 2 * self.equation.image(AffineBoxes(*start)).L.shape[2]
            limit = int(min(MOST_BOXES, MOST_OPERATIONS / cost)) + 1
        low, high = self._search(*start, limit)
        inside = ((low <= corners[1]) & (high >= corners[0])).all(axis=1)
        low, high = low[inside], high[inside]
        self.undecided = np.stack(_hulls(low, high), axis=1)
        if not len(low):
            return ""
        end = "a degenerate equilibrium is not proved to exist"
        if self.boxes >= limit:
            end = f"the search ended after max_boxes={limit}"
        return f"{len(self.undecided)} boxes are undecided: {end}"

    def _search(self, low: Array, high: Array, max_boxes: int) -> Bounds:
        """Return boxes of states ``(k, n)`` that may hold further equilibria.

        All boxes of one width are examined before those of half, until all are decided, too small, or ``max_boxes``.
        """
        d, possible = low.shape[1], (low <= high).all(axis=1)
        low, high = low[possible], high[possible]
        small: list[Bounds] = []  # too small, or beyond max_boxes
        size = max(1, BATCH_NUMBERS // (d * (d + 1) * 8))
        while len(low) and self.boxes < max_boxes:
            count = min(len(low), max_boxes - self.boxes)
            self.boxes += count
            small.append((low[count:], high[count:]))
            cuts = [*range(0, count, size), count]
            parts = [self._contracted(low[a:b], high[a:b]) for a, b in pairwise(cuts)]
            low, high, at = (np.concatenate(part) for part in zip(*parts))
            scale = 1.0 + np.maximum(np.abs(low), np.abs(high)).max(axis=1, initial=0.0)
            width = (high - low).max(axis=1, initial=0.0) / scale
            near = np.flatnonzero(width < NEWTON_BELOW)
            self._look_near(low[near], high[near], np.argsort(width[near], kind="stable"))
            keep = ~self._known(*self.equation.located(low, high))
            tiny = width < SMALLEST
            small.append((low[keep & tiny], high[keep & tiny]))
            keep &= ~tiny
            low, high = self._halves(low[keep], high[keep], at[keep])
        low, high = (np.concatenate(ends) for ends in zip((low, high), *small))
        return self.equation.states(low, high)

    def _look_near(self, low: Array, high: Array, order: Array) -> None:
        """Start Newton's method in small boxes, until ``FAILURES`` of them lead to no new equilibrium."""
        failures, located = 0, self.equation.located(low, high)
        centres = [0.5 * a + 0.5 * b for a, b in zip(*self.equation.states(low, high))] if len(low) else []
        while len(order) and failures < FAILURES:
            if self.offer(centres[order[0]]):
                order = order[~self._known(located[0][order], located[1][order])]
            else:
                failures, order = failures + 1, order[1:]

    def _contracted(self, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """Return the boxes that may hold unknown equilibria, contracted, and the unknowns ``(N,)`` to split."""
        influence = low
        for _ in range(2):  # the second time in smaller boxes, which halves their number at the same cost
            boxes = AffineBoxes(low, high)
            low, high, influence = boxes.contract(self.equation.image(boxes))
            keep = ~boxes.empty
            low, high, influence = low[keep], high[keep], influence[keep]
        if self.equilibria and len(low):
            unknown = ~self._known(*self.equation.located(low, high))
            low, high, influence = low[unknown], high[unknown], influence[unknown]
        influence = np.where(high - low > SMALLEST * (1.0 + np.abs(low)), np.nan_to_num(influence), -1.0)
        return low, high, influence.argmax(axis=1)

    def _halves(self, low: Array, high: Array, at: Array) -> Bounds:
        rows = np.arange(len(low))
        middle = self.equation.split(low[rows, at], high[rows, at])
        upper, lower = low.copy(), high.copy()
        upper[rows, at] = lower[rows, at] = middle
        return np.concatenate([low, upper]), np.concatenate([lower, high])


def meet(first: Ball, second: Ball) -> bool:
    """Return True if two boxes intersect, up to rounding."""
    return bool((np.abs(first.mid - second.mid) <= (first.rad + second.rad) * (1 + 1e-12)).all())


def _hulls(low: Array, high: Array) -> Bounds:
    """Return the hulls of boxes whose centers lie in one cell of a grid, since there may be thousands side by side."""
    cells = np.round((0.5 * low + 0.5 * high) / (GRID * (1.0 + np.abs(low).max(initial=0.0))))
    kept, group = np.unique(cells, axis=0, return_inverse=True)
    hulls = np.full(kept.shape, np.inf), np.full(kept.shape, -np.inf)
    np.minimum.at(hulls[0], group.ravel(), low)
    np.maximum.at(hulls[1], group.ravel(), high)
    return hulls
