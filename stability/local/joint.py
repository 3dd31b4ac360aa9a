"""Dynamic programming and boxes of all moves together, where cells alone come to no end: the search for such a proof.

Bounds of what is still to be paid, with a few hundredths missing, rule out most boxes of all moves, and what is left
around the nearest run is convex, see ``stability.local.guided`` and ``stability.local.covering``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stability.local.classifier import Classifier
from stability.local.coordinates import MOST, coordinates
from stability.local.covering import covered
from stability.local.guided import Guide
from stability.local.passes import Proved
from stability.local.refining import Refining
from stability.local.worst import Margin
from stability.rules.local_cells import ROOM, WEIGHT, WORK
from stability.solve.deadline import Deadline

Array = np.ndarray
_HARD, _HARDER = 1_000_000, 8_000_000
"""Boxes of moves after which cells are made with this in mind, and after which it is tried as things are."""
_WIDER, _NEAR, _AGAIN = 1.2, 0.02, 0.2
"""Up to what costs are told apart, of the goal; what may be missing of it for a try; and for another one, of that."""
_BELOW, _ROOM = 2e-7, 1_500_000
"""Of the nearest run's length, what is taken off; boxes of all moves."""


@dataclass(eq=False)
class Joint:
    """The question of one input whose head reads the last output, in l2 in total.

    Attributes:
        classifier: of one unit.
        x: ``(T, p)``.
        label: its class.
        mask: ``(T, p)`` entries that may change; ``None``: all.
        made: cells.
        goal: the square that is to be proved.
        moves: of the nearest run; ``None``: none is known.
        deadline: of the search.
        asked: the one radius that is asked about; ``None``: a little less than that of the nearest run.
        told: what proves ``radius``, once it is found.
        radius: as above.
    """

    classifier: Classifier
    x: Array
    label: int
    mask: Array | None
    made: Refining
    goal: float
    moves: Array | None
    deadline: Deadline
    asked: float | None = None
    told: dict[str, Array] = field(default_factory=dict)
    radius: float = 0.0
    _missing: float = np.inf

    def __call__(self, moves: Array, best: Proved) -> bool:
        """Whether a proof is found, after a pass with a run that costs about what the bound is."""
        made, missing = self.made, 1.0 - best.value / self.goal
        if made.boxes < _HARD:
            return False
        if made.more == 0.0:
            made.cap, made.more = _WIDER * self.goal, (_WIDER - 1.0) * self.goal
            return False
        if not (missing < min(_NEAR, _AGAIN * self._missing) or (made.boxes > _HARDER and not self._missing < np.inf)):
            return False
        self._missing = missing
        return self._tried(best.upper, moves)

    def _tried(self, upper: float, moves: Array) -> bool:
        radius = self.asked or min(self.goal**0.5, upper) * (1.0 - _BELOW)
        of = coordinates(self.classifier, self.x, radius, "l2", self.mask)
        if not 1 < len(of.low) <= MOST:
            return False
        guide, rng = Guide(of, self.made.cells, radius * radius * (1.0 + 1e-12)), np.random.default_rng(0)
        room, left, touches = min(_ROOM, (ROOM - 2 * self.made.size) // WEIGHT), WORK, []
        for other in range(self.classifier.classes):
            if other == self.label:
                continue
            margin = Margin(of, self.label, other)
            known = [y for y in (self.moves, moves) if y is not None and len(y) == len(of.low)]
            value, y = margin.least(margin.starts(rng, margin.moved(known)))
            if not value > 0.0:
                return False
            touches.append(margin.touch(y))
            told = room, lambda: self.deadline.over, left
            found = covered(of, self.label, other, touches[-1], *told, known=guide)
            room, left = room - found.boxes, left - found.work
            if not found.holds:
                return False
        self.told = self.made.told() | {"points": np.stack([touch.point for touch in touches])}
        self.told |= {"touches": np.array([touch.prices[0] for touch in touches])}
        self.told |= {"bends": np.array([touch.bend for touch in touches])}
        self.radius = radius
        return True
