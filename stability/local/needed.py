"""How much is to be proved of cells of states, and no more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.local.cells import Cells

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Needed:
    """What is enough to prove of cells: no run that may cost less than the nearest one has more to spare there.

    Attributes:
        value: ``(n,)`` in the middles.
        slope: ``(n, d)`` of the planes that this was told from.
    """

    value: Array
    slope: Array

    def of(self, cells: Array) -> Needed:
        """Some cells."""
        return Needed(self.value[cells], self.slope[cells])

    def cut(self, cells: Cells, which: Array) -> Needed:
        """With the parts, just cut, of some cells."""
        parts = np.arange(len(self.value), len(cells))
        k = np.repeat(which, len(cells.corners))
        off = cells.boxes(parts)[0] - cells.boxes(k)[0]
        more = self.value[k] + (self.slope[k] * off).sum(axis=1), self.slope[k]
        return Needed(*(np.concatenate(pair) for pair in zip((self.value, self.slope), more)))

    def most(self, slope: Array, ds: Array) -> Array:
        """Of planes of other slopes ``(n, d)``, what is enough in the middle; half of the cells' widths ``(n, d)``."""
        return self.value + (np.abs(slope - self.slope) * ds).sum(axis=1)
