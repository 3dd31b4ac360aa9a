"""Passes of dynamic programming on ever smaller cells, until a bound is proved, or nearly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from stability.local.after import Ending
from stability.local.refining import Refining
from stability.rules.local_cells import MOST, ROOM
from stability.solve.deadline import Deadline

Array = np.ndarray
_PASSES, _STALLED = 40, 0.8
"""Passes; of a gap, the next one where a pass has stalled."""
_CHECKED = 0.8
"""Of the boxes at which a check gives up: proofs that stand on more are none."""
ENOUGH = 1.5e-7
"""Of a radius, what may be missing where there is no use in another pass."""


@dataclass(frozen=True, eq=False)
class Proved:
    """What passes came to.

    Attributes:
        value: the bound of the cost, or of the margins.
        upper: the length of the nearest run.
        told: what proves the bound.
        size: boxes of moves that it stands on, about as many as a check looks at.
    """

    value: float
    upper: float
    told: dict[str, Array]
    size: int = 0


def passes(
    made: Refining,
    end: Ending,
    upper: float,
    goal: float,
    room: int,
    deadline: Deadline,
    *,
    total: bool,
    others: int = 0,
    done: Callable[[Array, Proved], bool] = lambda moves, best: False,
) -> Proved:
    """Passes until a bound is proved, or nearly.

    Args:
        made: the cells.
        end: the bounds of the class.
        upper: the length of the nearest run.
        goal: the bound.
        room: boxes of moves.
        deadline: when to stop.
        total: whether moves cost their square; else a bound that is positive is enough, or a nearer run.
        others: boxes that proofs of other parts stand on.
        done: whether there is no use in another pass, by the moves of a run that costs about what the bound is.
    """

    def over() -> bool:
        return deadline.over

    gap, before, best = np.inf, np.inf, Proved(-np.inf, upper, {})
    for _ in range(_PASSES):
        value = made.back(gap, np.isfinite(before) and gap > _STALLED * before, over)
        cells = sum(len(own) for own in made.cells)
        if value is None or (best.told and (others + made.size > _CHECKED * ROOM or cells > MOST)):
            break
        moves = made.followed()
        best = replace(best, upper=min(best.upper, made.runs.nearest(end, moves)))
        if value > best.value:
            best = replace(best, value=value, told=made.told(), size=made.size)
        most = min(goal, best.upper**2) if total else goal
        gap, before = most - value, gap
        enough = gap <= 2.0 * ENOUGH * most if total else value > 0.0 or best.upper < upper
        many = made.boxes > room or cells > MOST // 2
        if enough or many or over() or done(moves, best):
            break
        made.forward(value, gap)
    return best
