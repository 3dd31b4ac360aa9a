r"""Runs of a network of one state, told apart by their states at some steps.

A cut of a part at a step and a value leaves the runs with a smaller state there, and makes a part of those with a
larger one: together they are all runs of the part, whatever the step and the value. Of each part a least sum with a
price of its own is bounded (``stability.local.sums``): where cheap runs and dear ones together undercut the least cost
of all, a cut between them keeps them apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

Array = np.ndarray
MOST_CUTS = 256


@dataclass(frozen=True, eq=False)
class Part:
    """Runs whose states before and after ``K`` steps lie in ranges.

    Attributes:
        side: of the sums that change the class: zero for the lower end, one for the upper one.
        low: ``(K + 1,)``; minus infinity where nothing is known.
        high: ``(K + 1,)``.
    """

    side: int
    low: Array
    high: Array

    @property
    def ends(self) -> tuple[Array, Array]:
        """Both."""
        return self.low, self.high

    @classmethod
    def whole(cls, side: int, steps: int) -> Part:
        """All runs of so many steps."""
        return cls(side, np.full(steps + 1, -np.inf), np.full(steps + 1, np.inf))

    def cut(self, step: int, value: float) -> tuple[Part, Part]:
        """The runs with at most this state after so many steps, and those with at least this one.

        Example:
            >>> low, high = Part.whole(0, 2).cut(1, 0.5)
            >>> low.high.tolist(), high.low.tolist()
            ([inf, 0.5, inf], [-inf, 0.5, -inf])
        """
        low, high = self.low.copy(), self.high.copy()
        high[step], low[step] = min(high[step], value), max(low[step], value)
        return replace(self, high=high), replace(self, low=low)


def parts(cuts: Array, steps: int) -> list[Part] | None:
    """All parts: the whole of either side at first; each cut leaves what is below it, and adds what is above.

    Args:
        cuts: ``(s, 3)``: which part, after how many steps, and at what value.
        steps: of all runs.

    Returns:
        ``2 + s`` of them; ``None`` where a cut is none.
    """
    out = [Part.whole(side, steps) for side in (0, 1)]
    for which, step, value in cuts:
        if not (which in range(len(out)) and step in range(1, steps + 1) and np.isfinite(value)):
            return None
        out[int(which)], more = out[int(which)].cut(int(step), float(value))
        out.append(more)
    return out
