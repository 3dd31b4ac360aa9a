r"""Boxes of all coordinates that planes on cells of states rule out.

With ``V`` a lower bound of what leads from a state to another class, see ``stability.local.togo``, and
:math:`s_t(y)` the state after ``t`` steps, a run of another class is at least

.. math:: \sum_{i \le t} y_i^2 + V_t(s_t(y))

long, squared, for every ``t``: where that is the goal in all of a box, the box is done. The moves that come after ``t``
need not be told apart for it, so that boxes are cut along those before it first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.local.cells import Cells
from stability.local.coordinates import Coordinates
from stability.local.jets import column
from stability.local.minorants import first_order
from stability.local.unrolled import Way, ways
from stability.rigor.constants import EPS, TINY
from stability.rigor.intervals import Interval

Array = np.ndarray
_PART, _MUCH = 0.05, 0.02
"""Of what bounds lose in a box, and of the goal: how much is to be above it in the middle where first moves are cut."""


@dataclass(frozen=True, eq=False)
class Guide:
    """What is known of runs that start as those of a box do.

    Attributes:
        of: the ball, of a cell of gates.
        cells: of the states after each step but the last, with planes that are proved.
        goal: the square that is to be proved.
    """

    of: Coordinates
    cells: list[Cells]
    goal: float

    def __call__(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Which boxes are done ``(N,)``, and what cutting is worth ``(N, k)``: zeros where it is not for this.

        Args:
            low: ``(N, k)``.
            high: ``(N, k)``.
        """
        middle, done, worth = 0.5 * low + 0.5 * high, np.zeros(len(low), dtype=bool), np.zeros(low.shape)
        for cells, step, way in zip(self.cells, self.of.steps, ways(self.of, low, high, False)):
            bound, lost = self._least(cells, way, (low, middle, high), step.of.stop)
            square = (middle[:, : step.of.stop] ** 2).sum(axis=1)
            here = square + cells.bound(np.stack([0.5 * at.low + 0.5 * at.high for at in way.centre], axis=1))
            above = here - self.goal > np.maximum(_PART * (here - bound), _MUCH * self.goal)
            above &= ~(worth > 0.0).any(axis=1)
            worth[above, : step.of.stop] = lost[above] + TINY
            done |= bound >= self.goal
        return done, worth

    def _least(self, cells: Cells, way: Way, ends: tuple[Array, Array, Array], stop: int) -> tuple[Array, Array]:
        """The least cost ``(N,)`` over boxes, and what each coordinate takes off that of the middles, nearly."""
        low, middle, high = (end[:, :stop] for end in ends)
        count, one = len(low), Interval.point(np.ones(stop))
        own = [Interval(slope.low[:, :stop], slope.high[:, :stop]) for slope in way.slopes]
        square = (middle * middle).sum(axis=1)
        near = np.where((low <= 0.0) & (high >= 0.0), 0.0, np.minimum(low * low, high * high)).sum(axis=1)
        best, lost = np.full(count, np.inf), np.zeros((count, stop))
        box = [np.stack([getattr(x, end) for x in way.state], axis=1) for end in ("low", "high")]
        for piece in cells.pieces(*box):
            value, tilt = Interval.point(piece.value), Interval.point(np.zeros((count, stop)))
            for i, (at, slope) in enumerate(zip(way.centre, own)):
                g = Interval.point(piece.slope[:, i])
                value, tilt = value + g * (at - Interval.point(piece.at[:, i])), tilt + column(g) * slope
            falls = first_order(tilt, one, middle, low, high)
            bound = value.low + square + falls
            bound = bound - (stop + 16) * EPS * (np.abs(value.low) + square + np.abs(falls)) - TINY
            bound = np.maximum(bound, piece.least + near - (stop + 16) * EPS * (np.abs(piece.least) + near) - TINY)
            bound = np.where(piece.there, bound, np.inf)
            less = bound < best
            lost[less], best = _taken(tilt, low, middle, high)[less], np.minimum(best, bound)
        return best, lost


def _taken(tilt: Interval, low: Array, middle: Array, high: Array) -> Array:
    """How much less than in the middle ``y^2 + q (y - m)`` is somewhere, nearly."""
    least = middle * middle
    for q, a, b in ((tilt.low, middle, high), (tilt.high, low, middle)):
        y = np.clip(-0.5 * q, a, b)
        least = np.minimum(least, y * y + q * (y - middle))
    return middle * middle - least
