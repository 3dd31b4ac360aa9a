r"""Rule ``local_cells``: no perturbation of an input of an LSTM or GRU of one unit within a radius changes its class.

The least :math:`\sum_t |d_t|^2` that leads to another class is bounded from below by dynamic programming. The proof
names how far moves are looked at (``reach``, not less than the radius), a box of states after each step but the last
(``low``, ``high``), how it is cut into cells (``cut``: whether a cell is, larger ones first) and for every cell that is
not a plane (``values``, ``slopes``). The checker looks at each cell on its own (``stability.local.togo``): that no move
leads out of the boxes, and that what a move costs and the bound of the next step are together at least the plane,
roundings included. The bound at the start has to be at least the radius' square, and a little. Where each step has a
ball (l2, ``budget``) or a box (l_inf) of its own, moves cost nothing, the last bound is the margin, and that at the
start has to be positive.

What the cells and planes are proves nothing; small cells near the runs that change the class at the least cost make the
bound sharp, so that a radius may be proved up to about 1e-7 of itself. Nothing depends on the margin being convex; work
grows as the number of cells, which grows as that of the steps.
"""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim
from stability.errors import ConfigurationError
from stability.local.cells import Cells
from stability.local.classifier import Classifier
from stability.local.moves import Ending, Moves
from stability.local.togo import checked, ending, gated_moves, image, margins, unfit
from stability.rigor.constants import EPS
from stability.rigor.intervals import Interval
from stability.rules.fields import AnyArray, Number, Refused, require
from stability.rules.local_ball import LARGEST, EitherBall
from stability.rules.registry import certifies

Array = np.ndarray
_POSITIVE = 1e-280
"""Of margins: what underflow of all steps cannot make."""
WIDEST = 4
"""Coordinates of a step, at most."""
ROOM, LONGEST, MOST = 3_000_000, 500, 400_000
"""Boxes at which a check gives up, which takes one to two minutes; most steps; most cells of all, also those cut."""


@certifies("local_cells", subject=Classifier, claim="local_robustness", value="radius", unfit=unfit)
class LocalCells(EitherBall):
    """``reach``; ``low (T - 1, d)`` and ``high``; ``cut (N,)``, zeros and ones; ``values (L,)``, ``slopes (L, d)``."""

    reach: Number
    low: AnyArray
    high: AnyArray
    cut: AnyArray
    values: AnyArray
    slopes: AnyArray

    def check(self, subject: Classifier, claim: Claim) -> str:
        self.require_asked(subject)
        require(len(self.x) <= LONGEST, f"there are more than {LONGEST} steps")
        require(self.radius <= self.reach < LARGEST, "reach must not be less than the radius")
        try:
            each = self.budget == "step"
            steps = gated_moves(subject, self.x, self.reach, self.norm, self.mask, self.bounds, each)
            total = self.norm == "l2" and not each
            require(total or all(len(step.low) <= WIDEST for step in steps), f"more than {WIDEST} features change")
            cells, last = self._cells(subject, not total), self._last(subject, steps)
            end = self._ending(subject, last) if total else margins(subject, self.label)
            goal = self.radius * self.radius * (1.0 + 4 * EPS) if total else _POSITIVE
            found = checked(steps, subject.start, cells, end, goal, ROOM)
        except ConfigurationError as error:
            raise Refused("the network's numbers overflow") from error
        require(found.boxes <= ROOM, f"it takes more than {ROOM} boxes")
        require(found.holds, f"within the radius, the class is not proved to stay {self.label}")
        by = f"{found.boxes} boxes in {len(self.cut)} cells"
        said = f"what changes the class is {self.radius:.9g} long or more" if total else "all margins are positive"
        return f"{said}, by {by}"

    def _cells(self, subject: Classifier, signed: bool) -> list[Cells]:
        """Of the states after each step but the last."""
        d, sizes = len(subject.start), (len(self.x) - 1, len(subject.start))
        require(self.low.shape == sizes == self.high.shape, f"low and high must be {sizes}")
        flags, values, slopes = self.cut, self.values, self.slopes
        require(flags.ndim == 1 and len(flags) <= MOST, f"cut must be (N,), N <= {MOST}")
        require(bool(np.isin(flags, (0.0, 1.0)).all()), "cut must be zeros and ones")
        leaves = int((flags == 0.0).sum())
        fits = values.shape == (leaves,) and slopes.shape == (leaves, d)
        require(fits, f"values and slopes must be of {leaves} cells")
        limited = all(bool((np.abs(part) < LARGEST).all()) for part in (self.low, self.high, values, slopes))
        require(limited, "low, high, values and slopes must be numbers below 1e12")
        require(bool((self.low < self.high).all()), "low must be below high")
        out, at, done = list[Cells](), 0, 0
        for low, high in zip(self.low, self.high):
            read = Cells.of(low, high, flags[at:] != 0.0, signed)
            require(read is not None, "cut ends too soon, or too deep")
            assert read is not None
            own, count = read
            leaf = own.ordered()[1]
            own.value[leaf], own.slope[leaf] = values[done : done + len(leaf)], slopes[done : done + len(leaf)]
            out.append(own)
            at, done = at + count, done + len(leaf)
        require(at == len(flags), "cut goes on after the last step")
        return out

    def _last(self, subject: Classifier, steps: list[Moves]) -> Interval:
        """The last ``h``, where no move leads out of the boxes before it."""
        low = high = subject.start
        for step, own_low, own_high in zip(steps, self.low, self.high):
            low, high = image(step, low, high)
            inside = bool((own_low <= low).all() and (high <= own_high).all())
            require(inside, "moves within reach lead out of low and high")
            low, high = own_low, own_high
        low, high = image(steps[-1], low, high)
        return Interval(low, high)

    def _ending(self, subject: Classifier, last: Interval) -> Ending:
        found = ending(subject, self.label, last)
        require(found is not None, f"within the radius, the class is not proved to stay {self.label}")
        assert found is not None
        return found
