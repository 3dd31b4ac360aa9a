r"""Rule ``local_cells``: no perturbation of an input of an LSTM or GRU of one unit within a radius changes its class.

The least :math:`\sum_t |d_t|^2` that leads to another class is bounded from below by dynamic programming. The proof
names how far moves are looked at (``reach``, not less than the radius), a box of states after each step but the last
(``low``, ``high``), how it is cut into cells (``cut``: whether a cell is, larger ones first) and for every cell that is
not a plane (``values``, ``slopes``). The checker looks at each cell on its own (``stability.local.togo``): that no move
leads out of the boxes, and that what a move costs and the bound of the next step are together at least the plane,
roundings included. The bound at the start has to be at least the radius' square, and a little. Where each step has a
ball (l2, ``budget``) or a box (l_inf) of its own, moves cost nothing, the last bound is the margin, and that at the
start has to be positive.

With a head on the mean the class is that of an interval of means, and of each of its ends the costs of runs that leave
it there are bounded, with a toll for each output (``stability.local.after``), whose price is one of ``prices``. Where
no price does for all runs, ``cuts`` tell them apart by their states at some steps (``stability.local.parts``), and each
part has a price, and boxes and cells, of its own. ``low`` and ``high`` are then those of all parts in turn.

Where planes lack a few hundredths of the square, boxes of all moves may follow: most are ruled out by what a run has
cost so far and the bound from there (``stability.local.guided``), the others as by rule ``local_hessians``, whose
``points``, prices (``touches``) and ``bends`` these are.

What the cells and planes are proves nothing; small cells near the runs that change the class at the least cost make the
bound sharp, so that a radius may be proved up to about 1e-7 of itself. Nothing depends on the margin being convex; work
grows as the number of cells, which grows as that of the steps.
"""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim
from stability.errors import ConfigurationError
from stability.local.after import Margins
from stability.local.cells import Cells
from stability.local.classifier import Classifier
from stability.local.coordinates import MOST as COORDINATES
from stability.local.coordinates import Coordinates, coordinates
from stability.local.covering import covered
from stability.local.guided import Guide
from stability.local.lagrangians import Touch
from stability.local.moves import Moves
from stability.local.parts import MOST_CUTS, Part, parts
from stability.local.togo import TURN, Progress, checked, ending, gated_moves, image, margins, sides, unfit
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
ROOM, LONGEST, MOST, WEIGHT = 10_000_000, 500, 400_000, 5
"""Boxes at which a check gives up, which takes one to two minutes; most steps; most cells of all, also those cut; for
how many boxes one of all moves counts."""
WORK = 240e6
"""What boxes of all moves may cost, see ``turn_cost``: some two minutes, however long a sequence is."""


@certifies("local_cells", subject=Classifier, claim="local_robustness", value="radius", unfit=unfit)
class LocalCells(EitherBall):
    """``reach``; ``low (T - 1, d)`` and ``high``; ``cut (N,)``, zeros and ones; ``values (L,)``, ``slopes (L, d)``;
    of heads on the mean ``low (2 + s, T - 1, d)``, ``prices (2 + s,)``, ``cuts (s, 3)`` (a part, a step, a value).
    Where boxes of all moves follow, for ``c`` other classes ``points (c, k)``, ``touches (c,)``, ``bends (c,)``.
    """

    reach: Number
    low: AnyArray
    high: AnyArray
    cut: AnyArray
    values: AnyArray
    slopes: AnyArray
    prices: AnyArray | None = None
    cuts: AnyArray | None = None
    points: AnyArray | None = None
    touches: AnyArray | None = None
    bends: AnyArray | None = None

    def check(self, subject: Classifier, claim: Claim) -> str:
        self.require_asked(subject)
        require(len(self.x) <= LONGEST, f"there are more than {LONGEST} steps")
        require(self.radius <= self.reach < LARGEST, "reach must not be less than the radius")
        try:
            each = self.budget == "step"
            steps = gated_moves(subject, self.x, self.reach, self.norm, self.mask, self.bounds, each)
            total = self.norm == "l2" and not each
            require(total or all(len(step.low) <= WIDEST for step in steps), f"more than {WIDEST} features change")
            goal = self.radius * self.radius * (1.0 + 4 * EPS) if total else _POSITIVE
            if subject.reduction == "mean":
                found = self._by_means(subject, steps, max(goal, _POSITIVE), total)
            else:
                found = self._by_last(subject, steps, goal, total)
        except ConfigurationError as error:
            raise Refused("the network's numbers overflow") from error
        require(found.boxes <= ROOM, f"it takes more than {ROOM} boxes")
        require(found.holds, f"within the radius, the class is not proved to stay {self.label}")
        by = f"{found.boxes} boxes in {len(self.cut)} cells"
        said = f"what changes the class is {self.radius:.9g} long or more" if total else "all margins are positive"
        return f"{said}, by {by}"

    def _by_last(self, subject: Classifier, steps: list[Moves], goal: float, total: bool) -> Progress:
        alike = len({part is None for part in (self.points, self.touches, self.bends)}) == 1
        require(alike, "points, touches and bends go together")
        require(self.prices is None and self.cuts is None, "prices and cuts are for heads on the mean")
        require(self.low.shape == (len(steps) - 1, len(subject.start)), "low and high must be (T - 1, d)")
        cells = self._cells(subject, not total)
        last = self._reached(subject, steps, self.low, self.high, Part.whole(0, len(steps)))
        assert last is not None
        end = ending(subject, self.label, last) if total else margins(subject, self.label)
        require(end is not None, f"within the radius, the class is not proved to stay {self.label}")
        assert end is not None
        if self.points is None:
            return checked(steps, subject.start, cells, end, goal, ROOM)
        require(total, "points are for a total budget in l2")
        found = checked(steps, subject.start, cells, end, -np.inf, ROOM)
        return self._guided(subject, Guide(self._ball(subject), cells, goal), found.boxes) if found.holds else found

    def _ball(self, subject: Classifier) -> Coordinates:
        of = coordinates(subject, self.x, self.radius, self.norm, self.mask)  # what clipping leaves is part of it
        require(1 < len(of.low) <= COORDINATES, f"boxes of all moves have 2 to {COORDINATES} coordinates")
        return of

    def _guided(self, subject: Classifier, guide: Guide, boxes: int) -> Progress:
        """Boxes of all moves, once the planes of the cells are proved."""
        of, others = guide.of, [k for k in range(subject.classes) if k != self.label]
        points, touches, bends = self.points, self.touches, self.bends
        sizes = (len(others), len(of.low)), (len(others),), (len(others),)
        told = tuple(None if part is None else part.shape for part in (points, touches, bends))
        require(told == sizes, f"points, touches and bends must be {sizes}")
        assert points is not None
        assert touches is not None
        assert bends is not None
        require(bool(((of.low <= points) & (points <= of.high)).all()), "points must lie in the box of the ball")
        positive = all(bool(((part >= 0.0) & (part < LARGEST**2)).all()) for part in (touches, bends))
        require(positive, "touches and bends must be numbers from zero")
        left = WORK
        for other, point, price, bend in zip(others, points, touches, bends):
            touch = Touch(point, np.array([price]), float(bend))
            found = covered(of, self.label, other, touch, (ROOM - boxes) // WEIGHT, most=left, known=guide)
            boxes, left = boxes + WEIGHT * found.boxes, left - found.work
            if not found.holds:
                return Progress(False, boxes)
        return Progress(True, boxes)

    def _by_means(self, subject: Classifier, steps: list[Moves], goal: float, total: bool) -> Progress:
        said = "cuts are for heads on the mean with a total budget in l2"
        require(self.cuts is None or (total and self.cuts.ndim == 2 and 0 < len(self.cuts) <= MOST_CUTS), said)
        cuts = np.zeros((0, 3)) if self.cuts is None else self.cuts
        require(cuts.shape[1] == 3, "cuts must be (s, 3)")
        count, told = 2 + len(cuts), parts(cuts, len(steps))
        one = all(part is None for part in (self.points, self.touches, self.bends))
        require(one, "points, touches and bends are for heads on the last output")
        require(told is not None, "each of cuts must be a part that is there, a step from one on, and a number")
        prices = np.zeros(0) if self.prices is None else self.prices
        require(prices.shape == (count,), "heads on the mean have prices (2,), and one more for each of cuts")
        require(bool(((prices >= 0.0) & (prices < LARGEST)).all()), "prices must be numbers from zero, below 1e12")
        sizes = (count, len(steps) - 1, len(subject.start))
        require(self.low.shape == sizes, f"low and high must be {sizes}")
        boxes, each = count * TURN * len(steps), len(steps) - 1  # a turn for each step of each part, whatever it has
        require(boxes <= ROOM, f"it takes more than {ROOM} boxes")
        end, cells = sides(subject, self.label), self._cells(subject, True)
        require(end is not None, f"within the radius, the class is not proved to stay {self.label}")
        for k, part in enumerate(told or ()):
            sign, at = ((-1.0, end.low), (1.0, end.high))[part.side] if end else (1.0, np.inf)
            reached = self._reached(subject, steps, self.low[k], self.high[k], part) if np.isfinite(at) else None
            if reached is None:  # no other class on this side, or no run in this part
                continue
            toll, own = -sign * float(prices[k]) / len(steps), cells[k * each : (k + 1) * each]
            last = Margins.tolled(toll, at, part)
            found = checked(steps, subject.start, own, last, goal, ROOM - boxes, toll)
            boxes += found.boxes
            if not found.holds:
                return Progress(False, boxes)
        return Progress(True, boxes)

    def _cells(self, subject: Classifier, signed: bool) -> list[Cells]:
        """Of the states after each step but the last, of one part after the other."""
        d = len(subject.start)
        require(self.low.shape == self.high.shape, "low and high must be of one shape")
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
        for low, high in zip(self.low.reshape(-1, d), self.high.reshape(-1, d)):
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

    def _reached(
        self, subject: Classifier, steps: list[Moves], lows: Array, highs: Array, part: Part
    ) -> Interval | None:
        """The last ``h``, where no move of a part's runs leads out of its boxes; ``None`` where it has no runs."""
        low = high = subject.start
        for t, step in enumerate(steps):
            low, high = image(step, low, high)
            low[0], high[0] = max(low[0], part.low[t + 1]), min(high[0], part.high[t + 1])
            if low[0] > high[0]:
                return None
            if t < len(steps) - 1:
                inside = bool((lows[t] <= low).all() and (high <= highs[t]).all())
                require(inside, "moves within reach lead out of low and high")
                low, high = lows[t], highs[t]
        return Interval(low[:1], high[:1])
